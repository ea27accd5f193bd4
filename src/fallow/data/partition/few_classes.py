"""Partitions with few classes per site: Patho (DPFL's protocol), Shards, ClassWindows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from fallow.core.limits import (
    Finite,
    NonNegativeFinite,
    PositiveFinite,
    PositiveInt,
    check_fields,
)
from fallow.core.suggestions import explain_constructor
from fallow.data.partition.base import (
    FloatArray,
    IntArray,
    class_rows,
    cut_by_share,
    deal,
    finish_parts,
)

MOST_DRAWS = 20_000
_log = logging.getLogger(__name__)


@explain_constructor
@final
@dataclass(frozen=True)
class Patho:
    """Draw a few classes for each site, and divide each class by Dir(alpha) over its sites.

    The partition is complete.  Smaller alpha = more skew in the sizes; fewer ``classes`` = more
    skew in the labels.  Classes are drawn again until each class has a site.

    Parameters
    ----------
    classes : int
        Number of classes per site.
    alpha : float
        Concentration of the Dirichlet distribution.
    min_rule : {"floor", "reject"}
        "floor" assigns ``min_samples`` first and divides the rest, without a loop.  "reject" draws
        again, as the public code does, which makes the partition more balanced; after 20,000 draws
        it falls back to "floor" and logs this.
    min_samples : int
        Minimum number of examples of a class at each of its sites.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> parts = Patho(classes=2).split(y, 4, np.random.default_rng(0))
    >>> [len(np.unique(y[part])) for part in parts], sum(len(part) for part in parts)
    ([2, 2, 2, 2], 400)
    """

    classes: PositiveInt = 3
    alpha: PositiveFinite = 0.5
    min_rule: Literal["floor", "reject"] = "floor"
    min_samples: PositiveInt = 10

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        rows = class_rows(y, "Patho")
        _check_holders("Patho", self.classes, sites, len(rows))
        holds = self._holders(sites, len(rows), rng)
        counts = np.zeros((sites, len(rows)), dtype=np.int64)
        for column, (label, of_class) in enumerate(rows.items()):
            holders = np.flatnonzero(holds[:, column])
            counts[holders, column] = self._share_out(
                label, len(of_class), len(holders), rng
            )
        return finish_parts(deal(counts, list(rows.values()), rng), "Patho")

    def _holders(
        self, sites: int, n_classes: int, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Draw the classes of each site: (sites, classes), ``self.classes`` ones per row."""
        for _ in range(MOST_DRAWS):
            ranks = rng.random((sites, n_classes)).argsort(1).argsort(1)
            holds: npt.NDArray[np.bool_] = ranks < self.classes
            if holds.any(0).all():
                return holds
        raise ValueError(
            f"Patho: {sites} sites with {self.classes} classes each did not cover all "
            f"{n_classes} classes in {MOST_DRAWS} draws; use Shards"
        )

    def _share_out(
        self, label: int, size: int, holders: int, rng: np.random.Generator
    ) -> IntArray:
        spare = size - holders * self.min_samples
        if spare < 0:
            raise ValueError(
                f"Patho: class {label} has {size} examples for {holders} sites with at "
                f"least {self.min_samples} each; lower min_samples or use fewer sites"
            )
        if self.min_rule == "reject":
            for _ in range(MOST_DRAWS):
                counts = cut_by_share(self._draw(holders, rng), size)
                if counts.min() >= self.min_samples:
                    return counts
            _log.info(
                "Patho: class %d kept its minimum by the floor rule, after %d draws",
                label,
                MOST_DRAWS,
            )
        return self.min_samples + cut_by_share(self._draw(holders, rng), spare)

    def _draw(self, holders: int, rng: np.random.Generator) -> FloatArray:
        return rng.dirichlet(np.full(holders, self.alpha))


@explain_constructor
@final
@dataclass(frozen=True)
class Shards:
    """Assign a few classes to each site, in equal parts; fewer ``classes`` = more skew.

    The partition is complete.  Each class has floor or ceil of sites * classes / n_classes sites.
    Every site takes the classes with the most open places (ties at random), which always succeeds
    (Gale and Ryser), so no draw is repeated.

    Parameters
    ----------
    classes : int
        Number of classes per site.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> parts = Shards(classes=2).split(y, 4, np.random.default_rng(0))
    >>> [len(np.unique(y[part])) for part in parts], [len(part) for part in parts]
    ([2, 2, 2, 2], [100, 100, 100, 100])
    """

    classes: PositiveInt = 2

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        rows = class_rows(y, "Shards")
        _check_holders("Shards", self.classes, sites, len(rows))
        places, extra = divmod(sites * self.classes, len(rows))
        left = np.full(len(rows), places)
        left[rng.permutation(len(rows))[:extra]] += 1
        counts = np.zeros((sites, len(rows)), dtype=np.int64)
        for site in rng.permutation(sites):
            order = rng.permutation(len(rows))  # ties at random
            taken = order[np.argsort(-left[order], kind="stable")[: self.classes]]
            counts[site, taken] = 1
            left[taken] -= 1
        for column, (label, of_class) in enumerate(rows.items()):
            holders = rng.permutation(np.flatnonzero(counts[:, column]))
            if len(of_class) < len(holders):
                raise ValueError(
                    f"Shards: class {label} has {len(of_class)} examples for "
                    f"{len(holders)} sites; use fewer sites"
                )
            item, more = divmod(len(of_class), len(holders))
            counts[holders, column] = item
            counts[holders[:more], column] += 1
        return finish_parts(deal(counts, list(rows.values()), rng), "Shards")


@explain_constructor
@final
@dataclass(frozen=True)
class ClassWindows:
    """Assign consecutive classes to each site, with equally many examples of each.

    Site u has the classes u, u+1, ... u+``classes``-1 (modulo their number).  Its size is drawn
    from exp(N(mu, sigma)) + ``least``.  The partition is not complete.  No example is used twice:
    if a class is exhausted, later sites have fewer examples of it.  Sizes follow the public FEMNIST
    generator of DPFL's comparison.

    Parameters
    ----------
    classes : int
        Number of classes per site.
    least : int
        Minimum size of a site.
    mu, sigma : float
        Mean and standard deviation of the logarithm of the size.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 1000)
    >>> parts = ClassWindows(classes=2).split(y, 4, np.random.default_rng(0))
    >>> [np.unique(y[part]).tolist() for part in parts]
    [[0, 1], [1, 2], [2, 3], [0, 3]]
    """

    classes: PositiveInt = 3
    least: PositiveInt = 100
    mu: Finite = 4.0
    sigma: NonNegativeFinite = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.least < self.classes:
            raise ValueError(
                f"least is {self.least} for sites with {self.classes} classes; use at "
                "least one example per class"
            )

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        rows = list(class_rows(y, "ClassWindows").values())
        _check_holders("ClassWindows", self.classes, sites, len(rows))
        sizes = rng.lognormal(self.mu, self.sigma, sites) + self.least
        left = np.array([len(of_class) for of_class in rows])
        counts = np.zeros((sites, len(rows)), dtype=np.int64)
        for site, size in enumerate(sizes):
            classes = (site + np.arange(self.classes)) % len(rows)
            counts[site, classes] = np.minimum(int(size) // self.classes, left[classes])
            left -= counts[site]
            if not counts[site].any():
                raise ValueError(
                    f"ClassWindows: no examples are left for site {site} of {sites}; use "
                    "fewer sites, or lower least"
                )
        return finish_parts(deal(counts, rows, rng), "ClassWindows")


def _check_holders(rule: str, classes: int, sites: int, n_classes: int) -> None:
    if classes > n_classes:
        raise ValueError(
            f"{rule}: {classes} classes per site, but the labels have {n_classes}; use 1 "
            f"to {n_classes}"
        )
    if sites * classes < n_classes:
        raise ValueError(
            f"{rule}: {sites} sites with {classes} classes each cannot have all "
            f"{n_classes} classes; use more sites or more classes per site"
        )
