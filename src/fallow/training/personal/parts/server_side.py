"""Server side of the selection of collaborators: models are sent in batches.

The client side consists of the client functions ``model`` (which is sent), ``order``, ``search``,
``choices`` and ``weigh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.client import ClientCall
from fallow.core.methods import Load
from fallow.core.suggestions import require_known
from fallow.core.types import SiteId, State, Values
from fallow.training.personal.parts import graphs
from fallow.training.personal.parts.graphs import Reach, graph_of, peers

Rows = Mapping[SiteId, Sequence[SiteId]]


class ChoiceLimits(NamedTuple):
    """Limits of the selection.

    ``room``: (N,) maximum number of peers of a site; ``batch``: number of models that a site
    receives at a time.
    """

    room: Tensor
    batch: Mapping[SiteId, int]

    @staticmethod
    def check(budget: int | Sequence[int] | None, counts_self: bool) -> None:
        """Raise ValueError unless every budget is a valid number of models."""
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
        """Build limits from one budget for all sites, one for each, or None."""
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


class ChoiceFunctions(NamedTuple):
    """Client functions by which sites choose collaborators."""

    order: ClientCall
    model: ClientCall
    search: ClientCall
    choices: ClientCall
    weigh: ClientCall


def batches(rows: Rows, batch: Mapping[SiteId, int]) -> Iterator[Rows]:
    """Yield some senders for every receiver, until each receiver has had all of its own.

    >>> list(batches({"a": ["b", "c"], "b": ["a"]}, {"a": 1, "b": 3}))
    [{'a': ['b'], 'b': ['a']}, {'a': ['c']}]
    """
    left = dict(rows)
    while left:
        yield _first_of_each(left, batch)
        left = _rest_of_each(left, batch)


def _first_of_each(rows: Rows, batch: Mapping[SiteId, int]) -> Rows:
    """Return the next senders of every receiver."""
    return {site: row[: batch[site]] for site, row in rows.items()}


def _rest_of_each(
    rows: Rows, batch: Mapping[SiteId, int]
) -> dict[SiteId, Sequence[SiteId]]:
    """Return the remaining senders, for receivers that have any."""
    rest = {site: row[batch[site] :] for site, row in rows.items()}
    return {site: row for site, row in rest.items() if row}


def search(
    ask: Ask, functions: ChoiceFunctions, among: Tensor, limits: ChoiceLimits, turn: int
) -> State:
    """Run Algorithm 3, or 2 if all candidates fit in one batch; returns the graph (N, N) and
    traces.

    A site without budget receives no models, and one that has spent its budget receives no more.
    """
    rows = peers(among & (limits.room > 0)[:, None], ask.cohort)
    room = dict(zip(ask.cohort, limits.room.tolist(), strict=True))
    to: dict[SiteId, Values] = {
        site: {"candidates": len(row), "room": room[site], "turn": turn}
        for site, row in rows.items()
    }
    many = {site: row for site, row in rows.items() if len(row) > limits.batch[site]}
    for routes in batches(many, limits.batch):  # pass 1: Y
        _send_models(ask, functions, routes, to)

    queue: Rows = {**rows, **draw_orders(ask, functions, many, f"ggc order {turn}")}
    choices: dict[SiteId, Values] = {}
    while queue:  # pass 2: X meets Y
        routes = _first_of_each(queue, limits.batch)
        _send_models(ask, functions, routes, to)
        choices |= ask.each(functions.choices, to={site: {} for site in routes})
        left = _rest_of_each(queue, limits.batch)
        queue = {site: row for site, row in left.items() if not choices[site]["full"]}
    return _collect_choices(choices, rows, ask.cohort)


def load(
    graph: str, reach: Tensor, limits: ChoiceLimits, rounds: int, period: int, reuses: bool
) -> Load:
    """Return the maximum cost of the selection, for candidates and ``rounds`` of the main loop.

    reach: (N,) number of sites from which each may receive; ``reuses``: rounds without a selection
    average the last one again.

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

    averages = 0  # models sent again: the average of GGC is available after a selection
    if graph != "ggc":
        averages += searches
    if reuses:
        averages += rounds - searches
    weighed = 0  # links added in both directions are ordered by reward
    if graph == "symmetric-or":
        weighed = searches * int(reach.sum())

    models = candidates.models + searches * choice.models + averages * int(few.sum())
    evaluations = candidates.evaluations + searches * choice.evaluations
    return Load(models + weighed, evaluations + weighed)


def _search_load(among: Tensor, limits: ChoiceLimits) -> Load:
    """Return the maximum cost of `search` for these numbers of candidates, (N,)."""
    n = torch.where(limits.room > 0, among, 0)
    batch = torch.tensor(list(limits.batch.values()))
    models = torch.where(n > batch, 2 * n, n)  # two passes, unless one batch is sufficient
    evaluations = torch.where(n > 0, 2 * n + 2, 0)  # two at the start, two per candidate
    return Load(int(models.sum()), int(evaluations.sum()))


def link_both_ways(
    ask: Ask,
    functions: ChoiceFunctions,
    chosen: Tensor,
    reach: Tensor,
    limits: ChoiceLimits,
) -> Tensor:
    """Add the reverse of every link.  (N, N) -> (N, N)

    Beyond the budget of a site, the added links with the largest rewards are kept.
    """
    free = limits.room - chosen.sum(1)  # (N,)
    has_room = (free > 0)[:, None]
    added = chosen.T & ~chosen & reach & has_room
    has_too_many = (added.sum(1) > free)[:, None]
    rows = peers(added & has_too_many, ask.cohort)

    earned: dict[SiteId, list[float]] = {site: [] for site in rows}
    for routes in batches(rows, limits.batch):
        ask.relay(functions.model, routes)
        replies = ask.each(functions.weigh, to={site: {} for site in routes})
        for site, reply in replies.items():
            earned[site] += torch.as_tensor(reply["rewards"]).tolist()

    for site, row in rows.items():
        k = ask.cohort.index(site)
        by_reward = torch.tensor(earned[site]).argsort(descending=True, stable=True)
        best = [row[i] for i in by_reward[: int(free[k])]]
        added[k] = graph_of({site: best}, ask.cohort)[k]
    return chosen | added


def reachable(
    ask: Ask, functions: ChoiceFunctions, reach: Reach, alone: Sequence[SiteId] = ()
) -> Tensor:
    """Return the graph of possible links, (N, N).

    For ``"random-k"`` every site draws its own row; rows of sites that stay ``alone`` are empty.
    """
    n = len(ask.cohort)
    kind, k = graphs.parse(reach)
    for site in alone:
        require_known(site, ask.cohort, f"alone names site {site!r}")
    receives = torch.tensor([site not in alone for site in ask.cohort])[:, None]  # (N, 1)
    if kind == "random":
        among = graphs.everyone(n) & receives
        return draw_peers(ask, functions, among, torch.full((n,), k), "reach")
    return graphs.reachable(reach, n) & receives


def draw_peers(
    ask: Ask, functions: ChoiceFunctions, among: Tensor, counts: Tensor, purpose: str
) -> Tensor:
    """Let each site draw ``counts`` peers.  (N, N), (N,) -> (N, N)"""
    orders = draw_orders(ask, functions, peers(among, ask.cohort), purpose)
    count = dict(zip(ask.cohort, counts.tolist(), strict=True))
    drawn = {site: row[: count[site]] for site, row in orders.items()}
    return graph_of(drawn, ask.cohort)


def draw_orders(
    ask: Ask, functions: ChoiceFunctions, rows: Rows, purpose: str
) -> dict[SiteId, list[SiteId]]:
    """Let each site draw the order of its peers."""
    if not rows:
        return {}
    to: dict[SiteId, Values] = {
        site: {"candidates": len(row)} for site, row in rows.items()
    }
    replies = ask.each(functions.order, to=to, purpose=purpose)
    orders = {}
    for site, row in rows.items():
        positions = torch.as_tensor(replies[site]["order"])
        orders[site] = [row[j] for j in positions]
    return orders


def _send_models(
    ask: Ask, functions: ChoiceFunctions, routes: Rows, to: Mapping[SiteId, Values]
) -> None:
    """Send a batch of models to the sites that evaluate them."""
    ask.relay(functions.model, routes)
    ask.keep(functions.search, to={site: to[site] for site in routes})


def _collect_choices(
    choices: Mapping[SiteId, Values], rows: Rows, sites: Sequence[SiteId]
) -> State:
    """Collect the replies about selections, by index of the site; 0 if there is none."""

    def links(name: str) -> Tensor:
        """Return the candidates that sites mark under a name, (N, N)."""
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
