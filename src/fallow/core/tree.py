"""Sums as a tree: sites send their addends to edge coordinators, which send on what these come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fallow.core.exact import LARGEST, Digits, add_digits, round_total, write_in_digits
from fallow.core.totals import align_answers, check_addend
from fallow.core.types import Answer, SiteId


@dataclass(frozen=True)
class Tree:
    """Which edge coordinator each site belongs to, for a whole run.

    >>> Tree.of(["a", "b", "c", "d", "e"], edges=2).branches(["a", "d", "e"])
    [('a',), ('d', 'e')]
    """

    edge_of: Mapping[SiteId, int]

    @staticmethod
    def of(sites: Sequence[SiteId], edges: int) -> Tree:
        """Sites in sorted order, in ``edges`` blocks whose sizes differ by one at most."""
        ordered = sorted(sites)
        edge_of = {}
        for position, site in enumerate(ordered):
            edge_of[site] = position * edges // len(ordered)
        return Tree(edge_of)

    def branches(self, sites: Iterable[SiteId]) -> list[tuple[SiteId, ...]]:
        """The sites of each edge among ``sites``; edges without any are left out."""
        found: dict[int, list[SiteId]] = {}
        for site in sorted(sites):
            found.setdefault(self.edge_of[site], []).append(site)
        return [tuple(found[edge]) for edge in sorted(found)]


@dataclass(frozen=True)
class BranchTotal:
    """All that an edge sends on of a sum: exact totals of its sites, and how many these are.

    ``fields``: the digits and the shape of each field.
    """

    fields: Mapping[str, tuple[Digits, tuple[int, ...]]]
    sites: int

    @property
    def size(self) -> int:
        """Bytes of the digits."""
        size = 0
        for digits, _ in self.fields.values():
            size += sum(digit.nbytes for digit in digits.values())
        return size


def add_branch(
    answers: Mapping[SiteId, Answer], verb: str, bound: float | None
) -> BranchTotal:
    """What an edge makes of its sites' answers.  Raises ValueError for an addend that is not finite
    or beyond its bound, with the site and the field."""
    parts = align_answers(answers, verb)
    largest = LARGEST if bound is None else bound
    for site, fields in parts.items():
        for name, addend in fields.items():
            check_addend(site, verb, name, addend, largest)
    first = next(iter(parts.values()))
    totals = {}
    for name, example in first.items():
        stacked = torch.stack([part[name] for part in parts.values()])  # (sites, *shape)
        digits = write_in_digits(stacked)
        totals[name] = (digits, tuple(example.shape))
    return BranchTotal(totals, len(parts))


def add_branches(branches: Sequence[BranchTotal]) -> Answer:
    """What the server makes of the totals of branches: float64, rounded once, and ``sites``."""
    result: Answer = {}
    for name, (_, shape) in branches[0].fields.items():
        digits = add_digits(branch.fields[name][0] for branch in branches)
        result[name] = round_total(digits, shape)
    n_sites = sum(branch.sites for branch in branches)
    result["sites"] = torch.tensor(float(n_sites), dtype=torch.float64)
    return result


def sum_by_tree(
    answers: Mapping[SiteId, Answer], verb: str, bound: float | None, tree: Tree
) -> Answer:
    """The key-wise total of all sites by way of their edges.  It is the same for every tree."""
    align_answers(answers, verb)  # also across branches all have the same fields and shapes
    totals = []
    for sites in tree.branches(answers):
        own = {site: answers[site] for site in sites}
        totals.append(add_branch(own, verb, bound))
    return add_branches(totals)
