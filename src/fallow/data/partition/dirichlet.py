"""Three label partitions by a Dirichlet distribution; smaller alpha = more skew in all of them.

Dirichlet is the usual one (Hsu, Qi, Brown, 2019, and common code).  FedMADirichlet adds the mask of
the FedMA code (Wang et al., 2020).  ExactDirichlet gives every site the same number of examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import final

import numpy as np

from fallow.core.limits import PositiveFinite, PositiveInt, check_fields
from fallow.core.suggestions import explain_constructor
from fallow.data.partition.base import (
    IntArray,
    class_rows,
    cut_by_share,
    deal,
    finish_parts,
    largest_remainder,
)

MOST_DRAWS = 2000  # maximum number of draws until every site is large enough
BALANCING = 5  # alternations of rows and columns
# of 50,000 examples
KAFAL_SIZES = (
    5021,
    4556,
    5008,
    5014,
    5565,
    5826,
    5177,
    5186,
    4522,
    4125,
)
TINY = 1e-12  # a class that no site drew is spread evenly, to avoid division by 0


@explain_constructor
@final
@dataclass(frozen=True)
class Dirichlet:
    """Distribute each class over sites by Dir(alpha); smaller alpha = more skew.

    The partition is complete, with unequal sizes.  The counts of a class over N sites vary by std /
    mean = sqrt((N - 1) / (N alpha + 1)).

    Parameters
    ----------
    alpha : float
        Concentration of the Dirichlet distribution.
    min_size : int
        Minimum number of examples of a site.  The whole partition is drawn again until it is
        reached, at most 2000 times; then ValueError is raised.
    cap : bool
        A site with n / N examples gets none of later classes.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2], 100)
    >>> parts = Dirichlet(alpha=0.5, min_size=20).split(y, 5, np.random.default_rng(0))
    >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 20
    (300, True)
    """

    alpha: PositiveFinite = 0.1  # tuned in {0.05, 0.1, 0.3, 0.5, 1, 10}
    min_size: PositiveInt = 1  # minimum number of examples of a site
    cap: bool = False  # a site with n / N examples gets none of later classes

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        return cut_classes(
            y,
            sites,
            rng,
            alpha=self.alpha,
            min_size=self.min_size,
            cap=self.cap,
            rule="Dirichlet",
        )


@explain_constructor
@final
@dataclass(frozen=True)
class FedMADirichlet:
    """Distribute classes by Dir(alpha) with the mask of FedMA; smaller alpha = more skew.

    The partition is complete.  For a site with n / N examples or more, the share of the next class
    is set to 0 and the others are renormalized.  Classes are assigned in the order of their id, as
    in the public code, so later classes go to sites that are still small.

    Parameters
    ----------
    alpha : float
        Concentration of the Dirichlet distribution.
    min_size : int
        Minimum number of examples of a site.  The partition is drawn again until it is reached: 13
        to 84 times for 50,000 examples and 100 sites at alpha 0.1.  After 2000 draws, ValueError is
        raised.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2], 100)
    >>> parts = FedMADirichlet(alpha=0.5).split(y, 5, np.random.default_rng(0))
    >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 20
    (300, True)
    """

    alpha: PositiveFinite = 0.1
    min_size: PositiveInt = 20

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        return cut_classes(
            y,
            sites,
            rng,
            alpha=self.alpha,
            min_size=self.min_size,
            cap=True,
            rule="FedMADirichlet",
        )


@explain_constructor
@final
@dataclass(frozen=True)
class ExactDirichlet:
    """Draw the class shares of each site from Dir(alpha), with equal sizes of sites.

    Smaller alpha = more skew.  The partition is complete and needs no rejection loop.  Both margins
    are exact: every example is assigned, and sizes differ by at most 1 (the first n mod N sites
    have the additional example).  The moves that equalize sizes go through the classes in the order
    of their id.

    Parameters
    ----------
    alpha : float
        Concentration of the Dirichlet distribution.
    sizes : sequence of float, optional
        Relative sizes of the sites, exact to one example.  None: equal sizes.  ``sizes=KAFAL_SIZES,
        alpha=0.1`` resembles the partition that KAFAL's experiments read from a file without a
        published rule: its sizes, and approximately its skew.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2], 100)
    >>> parts = ExactDirichlet(alpha=0.1).split(y, 4, np.random.default_rng(0))
    >>> [len(part) for part in parts]
    [75, 75, 75, 75]
    >>> sizes = ExactDirichlet(sizes=[1, 1, 4])
    >>> [len(part) for part in sizes.split(y, 3, np.random.default_rng(0))]
    [50, 50, 200]
    """

    alpha: PositiveFinite = 0.1
    sizes: Sequence[float] | None = None  # relative sizes of the sites; None: equal

    def __post_init__(self) -> None:
        check_fields(self)
        is_positive = [
            isinstance(size, Real) and 0 < size < np.inf for size in self.sizes or ()
        ]
        if not all(is_positive):
            raise ValueError(
                f"ExactDirichlet's sizes are {self.sizes}; give positive finite numbers"
            )

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        sizes = np.ones(sites)
        if self.sizes is not None:
            sizes = np.array(self.sizes, dtype=np.float64)
        if len(sizes) != sites:
            raise ValueError(
                f"ExactDirichlet has sizes for {len(sizes)} sites and {sites} are "
                "requested; they must agree"
            )
        rows = list(class_rows(y, "ExactDirichlet").values())
        shares = np.maximum(rng.dirichlet(np.full(len(rows), self.alpha), size=sites), TINY)
        for _ in range(BALANCING):  # towards the sizes of sites, then of classes
            shares /= shares.sum(1, keepdims=True) / sizes[:, None]
            shares /= shares.sum(0, keepdims=True)
        columns = []
        for share, of_class in zip(shares.T, rows, strict=True):
            columns.append(largest_remainder(share, len(of_class)))
        counts = np.stack(columns, axis=1)  # (sites, classes)
        targets = largest_remainder(sizes, len(y))
        counts = _level_sizes(counts, targets)
        assert (counts.sum(1) == targets).all()  # noqa: S101 - precondition of the two steps below
        assert (counts.sum(0) == list(map(len, rows))).all()  # noqa: S101
        return finish_parts(deal(counts, rows, rng), "ExactDirichlet")


def cut_classes(
    y: IntArray,
    sites: int,
    rng: np.random.Generator,
    *,
    alpha: float,
    min_size: int,
    cap: bool,
    rule: str,
) -> list[IntArray]:
    """Distribute each class by Dir(alpha), until every site has ``min_size`` examples.

    cap: a site with n / N examples or more gets none of later classes.  rule: the name in errors.
    """
    if sites * min_size > len(y):
        raise ValueError(
            f"{len(y)} rows cannot give {sites} sites {min_size} rows each; lower "
            "min_size or use fewer sites"
        )
    rows = list(class_rows(y, rule).values())
    best = 0
    for _ in range(MOST_DRAWS):
        counts = _draw_counts(list(map(len, rows)), sites, rng, alpha, cap)
        smallest = int(counts.sum(1).min())
        if smallest >= min_size:
            return finish_parts(deal(counts, rows, rng), rule)
        best = max(best, smallest)
    raise ValueError(
        f"{rule}(alpha={alpha}) over {sites} sites and {len(y)} rows never gave every "
        f"site {min_size} rows in {MOST_DRAWS} draws (the best smallest site had {best}); "
        "raise alpha, lower min_size or use fewer sites, or ExactDirichlet if the labels "
        "are classes"
    )


def _draw_counts(
    class_sizes: list[int], sites: int, rng: np.random.Generator, alpha: float, cap: bool
) -> IntArray:
    """Draw the table of counts once: (sites, classes)."""
    sizes = np.zeros(sites, dtype=np.int64)
    columns = []
    for size in class_sizes:
        share = rng.dirichlet(np.full(sites, alpha))
        if cap:
            # there is always one: examples are left
            is_open = sizes < sum(class_sizes) / sites
            share = np.where(is_open, np.maximum(share, TINY), 0.0)
            share /= share.sum()
        columns.append(cut_by_share(share, size))
        sizes += columns[-1]
    return np.stack(columns, axis=1)


def _level_sizes(counts: IntArray, targets: IntArray) -> IntArray:
    """Move examples from too large to too small sites, by class, the largest surplus first.

    One pass is sufficient: a site has more examples than its surplus, and all of its classes are
    visited.
    """
    counts = counts.copy()
    surplus = counts.sum(1) - targets
    for c in range(counts.shape[1]):
        for giver in np.argsort(-surplus, kind="stable"):
            for taker in np.argsort(surplus, kind="stable"):
                moved = min(surplus[giver], counts[giver, c], -surplus[taker])
                if moved <= 0:
                    break
                counts[giver, c] -= moved
                counts[taker, c] += moved
                surplus[giver] -= moved
                surplus[taker] += moved
    return counts
