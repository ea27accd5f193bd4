"""The server half of choosing collaborators: who is brought whose models, batch after batch.

The site half is a method's site functions: ``model`` (what travels), ``order``, ``search``,
``found``, ``weigh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.methods import Load
from fallow.core.terms import nearest
from fallow.core.types import Answer, SiteId, State
from fallow.training.personal.parts import graphs
from fallow.training.personal.parts.graphs import Reach, graph_of, peers

Rows = Mapping[SiteId, Sequence[SiteId]]


class ChoiceLimits(NamedTuple):
    """``room``: (N,) how many peers a site may choose; ``batch``: how many models a site is brought
    at a time."""

    room: Tensor
    batch: Mapping[SiteId, int]

    @staticmethod
    def check(budget: int | Sequence[int] | None, counts_self: bool) -> None:
        """Raise unless every budget is a number of models that a site may have."""
        least = int(counts_self)
        budgets: list[int | None] = []
        if isinstance(budget, Sequence):
            budgets += budget
        else:
            budgets.append(budget)
        for number in budgets:
            if number is None:
                continue
            if type(number) is not int or number < least:
                raise ValueError(
                    f"DPFL's budget is {number!r} models; it must be {least} or more"
                )

    @staticmethod
    def of(
        budget: int | Sequence[int] | None, counts_self: bool, sites: Sequence[SiteId]
    ) -> ChoiceLimits:
        """From a budget for all sites, one for each, or none."""
        n = len(sites)
        item: Sequence[int]
        if isinstance(budget, Sequence):
            item = budget
        elif budget is None:
            item = [n] * n
        else:
            item = [budget] * n
        if len(item) != n:
            raise ValueError(
                f"there are budgets for {len(item)} sites and {n} sites; give one number for each, "
                "or one for all"
            )
        room = torch.tensor(item) - int(counts_self)
        return ChoiceLimits(room, batch=dict(zip(sites, item, strict=True)))


def batches(rows: Rows, batch: Mapping[SiteId, int]) -> Iterator[Rows]:
    """Some senders for every receiver, until each receiver had all of its own.

    >>> list(batches({"a": ["b", "c"], "b": ["a"]}, {"a": 1, "b": 3}))
    [{'a': ['b'], 'b': ['a']}, {'a': ['c']}]
    """
    left = dict(rows)
    while left:
        yield _first_of_each(left, batch)
        left = _rest_of_each(left, batch)


def _first_of_each(rows: Rows, batch: Mapping[SiteId, int]) -> Rows:
    """The next senders of every receiver."""
    return {site: row[: batch[site]] for site, row in rows.items()}


def _rest_of_each(
    rows: Rows, batch: Mapping[SiteId, int]
) -> dict[SiteId, Sequence[SiteId]]:
    """The senders after those, for the receivers that have any left."""
    rest = {site: row[batch[site] :] for site, row in rows.items()}
    return {site: row for site, row in rest.items() if row}


def search(ask: Ask, among: Tensor, limits: ChoiceLimits, turn: int) -> State:
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
        _send_models(ask, routes, to)

    queue: Rows = {**rows, **draw_orders(ask, many, f"ggc order {turn}")}
    choices: dict[SiteId, Answer] = {}
    while queue:  # pass 2: X meets Y
        routes = _first_of_each(queue, limits.batch)
        _send_models(ask, routes, to)
        choices |= ask.each("found", to={site: {} for site in routes})
        left = _rest_of_each(queue, limits.batch)
        queue = {site: row for site, row in left.items() if not choices[site]["full"]}
    return _collect_choices(choices, rows, ask.cohort)


def load(
    graph: str, reach: Tensor, limits: ChoiceLimits, rounds: int, period: int, reuses: bool
) -> Load:
    """What choosing costs at most: candidates once, then so many rounds of the main loop.

    reach: (N,) how many sites each may receive from; ``reuses``: rounds without a choice average
    the last one again.

    >>> load("ggc", torch.tensor([4, 4]), ChoiceLimits.of(3, True, ["a", "b"]), 2, 1, True)
    Load(models=24, evaluations=44)
    """
    few = torch.minimum(reach, limits.room)
    if graph == "full":
        return Load(models=rounds * int(reach.sum()), evaluations=0)
    if graph in ("static", "resampled"):
        return Load(models=rounds * int(few.sum()), evaluations=0)

    candidates = _search_load(reach, limits)
    choice = _search_load(few, limits)
    searches = math.ceil(rounds / period)

    averages = (
        0  # for which models travel again: GGC's own average is at hand after a choice
    )
    if graph != "ggc":
        averages += searches
    if reuses:
        averages += rounds - searches
    weighed = 0  # links added both ways are weighed by what each would earn
    if graph == "symmetric-or":
        weighed = searches * int(reach.sum())

    models = candidates.models + searches * choice.models + averages * int(few.sum())
    evaluations = candidates.evaluations + searches * choice.evaluations
    return Load(models + weighed, evaluations + weighed)


def _search_load(among: Tensor, limits: ChoiceLimits) -> Load:
    """What `search` costs at most, where a site has so many candidates, (N,)."""
    n = torch.where(limits.room > 0, among, 0)
    batch = torch.tensor(list(limits.batch.values()))
    models = torch.where(n > batch, 2 * n, n)  # two passes, unless one batch holds all
    evaluations = torch.where(n > 0, 2 * n + 2, 0)  # two to begin with, two a candidate
    return Load(int(models.sum()), int(evaluations.sum()))


def link_both_ways(ask: Ask, chosen: Tensor, reach: Tensor, limits: ChoiceLimits) -> Tensor:
    """Every link of a graph in both directions; beyond a site's room, of the added ones those whose
    models would earn most.  (N, N) -> (N, N)"""
    free = limits.room - chosen.sum(1)  # (N,)
    has_room = (free > 0)[:, None]
    added = chosen.T & ~chosen & reach & has_room
    has_too_many = (added.sum(1) > free)[:, None]
    rows = peers(added & has_too_many, ask.cohort)

    earned: dict[SiteId, list[float]] = {site: [] for site in rows}
    for routes in batches(rows, limits.batch):
        ask.relay("model", routes)
        answers = ask.each("weigh", to={site: {} for site in routes})
        for site, answer in answers.items():
            earned[site] += torch.as_tensor(answer["rewards"]).tolist()

    for site, row in rows.items():
        k = ask.cohort.index(site)
        by_reward = torch.tensor(earned[site]).argsort(descending=True, stable=True)
        best = [row[i] for i in by_reward[: int(free[k])]]
        added[k] = graph_of({site: best}, ask.cohort)[k]
    return chosen | added


def reachable(ask: Ask, reach: Reach, alone: Sequence[SiteId] = ()) -> Tensor:
    """Who may receive from whom, (N, N); of ``"random-k"`` every site draws its own row, and sites
    that stay ``alone`` have an empty one."""
    n = len(ask.cohort)
    kind, k = graphs.parse(reach)
    for site in alone:
        if site not in ask.cohort:
            raise ValueError(f"alone names site {site!r}{nearest(site, list(ask.cohort))}")
    receives = torch.tensor([site not in alone for site in ask.cohort])[:, None]  # (N, 1)
    if kind == "random":
        among = graphs.everyone(n) & receives
        return draw_peers(ask, among, torch.full((n,), k), "reach")
    return graphs.reachable(reach, n) & receives


def draw_peers(ask: Ask, among: Tensor, counts: Tensor, purpose: str) -> Tensor:
    """So many peers for each site, drawn by the site itself.  (N, N), (N,) -> (N, N)"""
    orders = draw_orders(ask, peers(among, ask.cohort), purpose)
    count = dict(zip(ask.cohort, counts.tolist(), strict=True))
    drawn = {site: row[: count[site]] for site, row in orders.items()}
    return graph_of(drawn, ask.cohort)


def draw_orders(ask: Ask, rows: Rows, purpose: str) -> dict[SiteId, list[SiteId]]:
    """Every site's peers in an order that the site draws."""
    if not rows:
        return {}
    to: dict[SiteId, Answer] = {
        site: {"candidates": len(row)} for site, row in rows.items()
    }
    answers = ask.each("order", to=to, purpose=purpose)
    orders = {}
    for site, row in rows.items():
        positions = torch.as_tensor(answers[site]["order"])
        orders[site] = [row[j] for j in positions]
    return orders


def _send_models(ask: Ask, routes: Rows, to: Mapping[SiteId, Answer]) -> None:
    """A batch of models goes to those who try them, and they do."""
    ask.relay("model", routes)
    ask.keep("search", to={site: to[site] for site in routes})


def _collect_choices(
    choices: Mapping[SiteId, Answer], rows: Rows, sites: Sequence[SiteId]
) -> State:
    """What sites said of their choice, by the number of the site; 0 for one that made none."""

    def links(name: str) -> Tensor:
        """The candidates that a site marks under a name, (N, N)."""
        marked = {}
        for site, row in rows.items():
            positions = torch.as_tensor(choices[site][name]).nonzero()
            marked[site] = [row[j] for j in positions]
        return graph_of(marked, sites)

    trace: State = {"graph": links("chosen"), "refused": links("refused").any(0)}
    for name in ("evaluations", "conflicts", "broke", "guarded", "can_judge"):
        numbers = [0] * len(sites)
        for number, site in enumerate(sites):
            if site in choices:
                numbers[number] = int(torch.as_tensor(choices[site][name]))
        trace[name] = torch.tensor(numbers)
    return trace
