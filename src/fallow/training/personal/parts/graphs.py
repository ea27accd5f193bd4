"""Directed graphs over sites, (N, N) bool: graph[k, j] means that site k receives from site j."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fallow.core.types import SiteId

Reach = str | Sequence[Sequence[int]]
"""``"all"``, ``"ring-k"``, ``"random-k"``, or the indices of the reachable sites for every site."""


def everyone(n: int) -> Tensor:
    """Return all links between n sites, (n, n), without self-links."""
    return ~torch.eye(n, dtype=torch.bool)


def ring(n: int, k: int) -> Tensor:
    """Link the k nearest sites on either side of a ring, (n, n).

    >>> ring(5, 1)[0].int()
    tensor([0, 1, 0, 0, 1], dtype=torch.int32)
    """
    steps = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    return (torch.minimum(steps, n - steps) <= k) & everyone(n)


def reachable(reach: Reach, n: int) -> Tensor:
    """Return the graph of a deterministic rule, (n, n)."""
    if isinstance(reach, str):
        kind, k = parse(reach)
        if kind == "ring":
            return ring(n, k)
        return everyone(n)
    _check_lists(reach, n)
    graph = torch.zeros(n, n, dtype=torch.bool)
    for k, row in enumerate(reach):
        graph[k, list(row)] = True
    return graph & everyone(n)


def _check_lists(reach: Sequence[Sequence[int]], n: int) -> None:
    """Raise ValueError unless there is a list of site indices for each of n sites."""
    wrong = [j for row in reach for j in row if not 0 <= j < n]
    if len(reach) == n and not wrong:
        return
    lists = f"{len(reach)} sites"
    if wrong:
        lists += f" and the number {wrong[0]}"
    raise ValueError(
        f"reach lists {lists}; give one list for each of the {n} sites, of numbers from 0 to {n - 1}"
    )


def count_reachable(reach: Reach, n: int) -> Tensor:
    """Count the sites that each of n sites reaches, (n,).

    >>> count_reachable("ring-1", 5), count_reachable("random-9", 3)
    (tensor([2, 2, 2, 2, 2]), tensor([2, 2, 2]))
    """
    kind, k = parse(reach)
    if kind == "random":
        return torch.full((n,), min(k, n - 1))
    return reachable(reach, n).sum(1)


def parse(reach: Reach) -> tuple[str, int]:
    """Return the kind of a rule and its number (0 for none); ValueError for an unknown rule.

    >>> parse("ring-2"), parse("all"), parse([[1], [0]])
    (('ring', 2), ('all', 0), ('lists', 0))
    """
    if not isinstance(reach, str):
        return "lists", 0
    kind, _, number = reach.partition("-")
    if reach == "all" or (kind in ("ring", "random") and number.isdecimal()):
        return kind, int(number or 0)
    raise ValueError(
        f"reach is {reach!r}; use 'all', 'ring-K', 'random-K' or a list for each site"
    )


def peers(graph: Tensor, sites: Sequence[SiteId]) -> dict[SiteId, list[SiteId]]:
    """Return the senders of each receiver, without receivers that have none.

    >>> peers(torch.tensor([[False, True], [False, False]]), ["a", "b"])
    {'a': ['b']}
    """
    rows = {}
    for site, row in zip(sites, graph, strict=True):
        senders = [sites[j] for j in row.nonzero().flatten()]
        if senders:
            rows[site] = senders
    return rows


def graph_of(rows: Mapping[SiteId, Sequence[SiteId]], sites: Sequence[SiteId]) -> Tensor:
    """Return the graph of receivers and senders, (N, N); the inverse of `peers`."""
    graph = torch.zeros(len(sites), len(sites), dtype=torch.bool)
    for site, row in rows.items():
        graph[sites.index(site), [sites.index(peer) for peer in row]] = True
    return graph
