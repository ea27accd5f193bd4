"""The server half of choosing collaborators: who is brought whose models, batch after batch.

The site half is a method's verbs: ``model`` (what travels), ``order``, ``search``, ``found``,
``weigh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.build import nearest
from fallow.core.methods import Load
from fallow.core.types import Answer, SiteId, State
from fallow.training.personal.parts import graphs
from fallow.training.personal.parts.graphs import Reach, graph_of, peers

Rows = Mapping[SiteId, Sequence[SiteId]]


class Limits(NamedTuple):
    """``room``: (N,) how many peers a site may choose; ``batch``: how many models a site is brought
    at a time."""

    room: Tensor
    batch: Mapping[SiteId, int]

    @staticmethod
    def check(budget: int | Sequence[int] | None, counts_self: bool) -> None:
        """Raise unless every budget is a number of models that a site may have."""
        least, given = (
            int(counts_self),
            budget if isinstance(budget, Sequence) else [budget],
        )
        if wrong := [
            b for b in given if b is not None and (type(b) is not int or b < least)
        ]:
            raise ValueError(
                f"DPFL's budget is {wrong[0]!r} models; it must be {least} or more"
            )

    @staticmethod
    def of(
        budget: int | Sequence[int] | None, counts_self: bool, sites: Sequence[SiteId]
    ) -> Limits:
        """From a budget for all sites, one for each, or none."""
        n = len(sites)
        each = (
            [n if budget is None else budget] * n
            if not isinstance(budget, Sequence)
            else budget
        )
        if len(each) != n:
            raise ValueError(
                f"there are budgets for {len(each)} sites and {n} sites; give one number for each, "
                "or one for all"
            )
        return Limits(
            torch.tensor(each) - int(counts_self), dict(zip(sites, each, strict=True))
        )


def batches(rows: Rows, batch: Mapping[SiteId, int]) -> Iterator[Rows]:
    """Some senders for every receiver, until each receiver had all of its own.

    >>> list(batches({"a": ["b", "c"], "b": ["a"]}, {"a": 1, "b": 3}))
    [{'a': ['b'], 'b': ['a']}, {'a': ['c']}]
    """
    left = dict(rows)
    while left:
        yield {site: row[: batch[site]] for site, row in left.items()}
        left = {s: row[batch[s] :] for s, row in left.items() if len(row) > batch[s]}


def search(ask: Ask, among: Tensor, limits: Limits, turn: int) -> State:
    """Algorithm 3, or 2 for a site whose candidates are one batch: the graph (N, N) and how it was
    found.  A site without room is brought nothing, one that is full nothing more."""
    rows = peers(among & (limits.room > 0)[:, None], ask.cohort)
    room = dict(zip(ask.cohort, limits.room.tolist(), strict=True))
    to: dict[SiteId, Answer] = {
        site: {"candidates": len(row), "room": room[site], "turn": turn}
        for site, row in rows.items()
    }
    many = {site: row for site, row in rows.items() if len(row) > limits.batch[site]}
    for routes in batches(many, limits.batch):  # pass 1: Y
        _bring(ask, routes, to)
    queue = {**rows, **ordered(ask, many, f"ggc order {turn}")}
    told: dict[SiteId, Answer] = {}
    while queue:  # pass 2: X meets Y
        routes = next(batches(queue, limits.batch))
        _bring(ask, routes, to)
        told |= ask.each("found", to={site: {} for site in routes})
        left = {site: row[limits.batch[site] :] for site, row in queue.items()}
        queue = {site: row for site, row in left.items() if row and not told[site]["full"]}
    return _traced(told, rows, ask.cohort)


def load(
    graph: str, reach: Tensor, limits: Limits, rounds: int, period: int, reuses: bool
) -> Load:
    """What choosing costs at most: candidates once, then so many rounds of the main loop.

    reach: (N,) how many sites each may receive from; ``reuses``: rounds without a choice average
    the last one again.

    >>> load("ggc", torch.tensor([4, 4]), Limits.of(3, True, ["a", "b"]), 2, 1, True)
    Load(models=24, evaluations=44)
    """
    few = torch.minimum(reach, limits.room)
    if graph in ("static", "resampled", "full"):
        return Load(rounds * int((reach if graph == "full" else few).sum()), 0)
    first, each, searches = (
        _search(reach, limits),
        _search(few, limits),
        math.ceil(rounds / period),
    )
    again = searches * (graph != "ggc") + (rounds - searches) * reuses
    weighed = searches * (graph == "symmetric-or") * int(reach.sum())
    models = first.models + searches * each.models + again * int(few.sum()) + weighed
    return Load(models, first.evaluations + searches * each.evaluations + weighed)


def _search(among: Tensor, limits: Limits) -> Load:
    """What `search` costs at most, where a site has so many candidates, (N,)."""
    n, batch = (
        torch.where(limits.room > 0, among, 0),
        torch.tensor([*limits.batch.values()]),
    )
    models = torch.where(n > batch, 2 * n, n)  # two passes, unless one batch holds all
    return Load(int(models.sum()), int((2 * n + 2)[n > 0].sum()))


def either(ask: Ask, chosen: Tensor, reach: Tensor, limits: Limits) -> Tensor:
    """Every link of a graph in both directions; beyond a site's room, of the added ones those whose
    models would earn most.  (N, N) -> (N, N)"""
    free = limits.room - chosen.sum(1)
    added = chosen.T & ~chosen & reach & (free > 0)[:, None]
    rows = peers(added & (added.sum(1) > free)[:, None], ask.cohort)
    earned: dict[SiteId, list[float]] = {site: [] for site in rows}
    for routes in batches(rows, limits.batch):
        ask.relay("model", routes)
        for site, answer in ask.each("weigh", to={site: {} for site in routes}).items():
            earned[site] += torch.as_tensor(answer["rewards"]).tolist()
    for site, row in rows.items():
        k = ask.cohort.index(site)
        best = torch.tensor(earned[site]).argsort(descending=True, stable=True)[
            : int(free[k])
        ]
        added[k] = graph_of({site: [row[i] for i in best]}, ask.cohort)[k]
    return chosen | added


def reachable(ask: Ask, reach: Reach, alone: Sequence[SiteId] = ()) -> Tensor:
    """Who may receive from whom, (N, N); of ``"random-k"`` every site draws its own row, and sites
    that stay ``alone`` have an empty one."""
    n, (kind, k) = len(ask.cohort), graphs.parse(reach)
    if unknown := [site for site in alone if site not in ask.cohort]:
        raise ValueError(
            f"alone names site {unknown[0]!r}{nearest(unknown[0], list(ask.cohort))}"
        )
    others = torch.tensor([site not in alone for site in ask.cohort])[:, None]
    if kind == "random":
        return drawn(ask, graphs.everyone(n) & others, torch.full((n,), k), "reach")
    return graphs.reachable(reach, n) & others


def drawn(ask: Ask, among: Tensor, counts: Tensor, purpose: str) -> Tensor:
    """So many peers for each site, drawn by the site itself.  (N, N), (N,) -> (N, N)"""
    rows = ordered(ask, peers(among, ask.cohort), purpose)
    many = dict(zip(ask.cohort, counts.tolist(), strict=True))
    return graph_of({site: row[: many[site]] for site, row in rows.items()}, ask.cohort)


def ordered(ask: Ask, rows: Rows, purpose: str) -> dict[SiteId, list[SiteId]]:
    """Every site's peers in an order that the site draws."""
    if not rows:
        return {}
    to: dict[SiteId, Answer] = {
        site: {"candidates": len(row)} for site, row in rows.items()
    }
    told = ask.each("order", to=to, purpose=purpose)
    return {
        s: [row[j] for j in torch.as_tensor(told[s]["order"])] for s, row in rows.items()
    }


def _bring(ask: Ask, routes: Rows, to: Mapping[SiteId, Answer]) -> None:
    ask.relay("model", routes)
    ask.keep("search", to={site: to[site] for site in routes})


def _traced(told: Mapping[SiteId, Answer], rows: Rows, sites: Sequence[SiteId]) -> State:
    """What sites told of their choice, by the number of the site."""

    def picked(name: str) -> Tensor:
        return graph_of(
            {
                s: [rows[s][j] for j in torch.as_tensor(told[s][name]).nonzero()]
                for s in rows
            },
            sites,
        )

    trace: State = {"graph": picked("chosen"), "refused": picked("refused").any(0)}
    for name in ("evaluations", "conflicts", "broke", "guarded", "can_judge"):
        each = [int(torch.as_tensor(told[s][name])) if s in told else 0 for s in sites]
        trace[name] = torch.tensor(each)
    return trace
