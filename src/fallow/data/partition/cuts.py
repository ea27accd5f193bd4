"""What the partitioners share: their interface, their checks, and dealing rows from a table."""

from __future__ import annotations

from numbers import Real
from typing import Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Partition(Protocol):
    """How training rows are spread over sites."""

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        groups: IntArray | None = None,
    ) -> list[IntArray]:
        """Row numbers of each site: ``sites`` sorted, disjoint, non-empty arrays.

        y: (n,) class ids (targets where the partitioner says so); groups: (n,) natural sites.
        The same ``rng`` state gives the same answer.  Raises ValueError when it cannot be done.
        """
        ...


def check_sites(y: npt.NDArray[np.generic], sites: int) -> None:
    """Refuse a number of sites that cannot all have a row."""
    if sites < 1:
        raise ValueError(f"{sites} sites asked for; ask for at least 1")
    if len(y) < sites:
        raise ValueError(
            f"{len(y)} rows cannot be spread over {sites} sites; ask for fewer sites"
        )


def check_positive(name: str, value: float) -> None:
    """Refuse a concentration or ratio that is not a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    if not 0 < value < np.inf:
        raise ValueError(f"{name} is {value}; give a positive finite number")


def class_rows(y: IntArray, rule: str) -> dict[int, IntArray]:
    """Class id -> its row numbers, for every class that has rows, in order of the id.

    >>> {c: rows.tolist() for c, rows in class_rows(np.array([2, 0, 2]), "IID").items()}
    {0: [1], 2: [0, 2]}
    """
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"{rule} splits by class and the labels are {y.dtype} (regression "
            "targets); use TargetDirichlet, IID or Natural"
        )
    if len(y) and y.min() < 0:
        raise ValueError(
            f"{rule} splits by class and {int((y < 0).sum())} rows are unlabeled; "
            "use IID or Natural"
        )
    return {int(c): np.flatnonzero(y == c) for c in np.unique(y)}


def deal(
    counts: IntArray, rows: list[IntArray], rng: np.random.Generator
) -> list[IntArray]:
    """Deal shuffled rows from a table: the rows of each site.

    counts: (sites, classes), rows: one array of row numbers a class.
    """
    parts: list[list[IntArray]] = [[] for _ in range(len(counts))]
    for of_sites, of_class in zip(counts.T, rows, strict=True):
        pieces = deal_class(of_sites, of_class, rng)
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def deal_class(
    counts: IntArray, rows: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Shuffled ``rows`` cut in pieces of the given sizes; what is left over goes to nobody."""
    return np.split(rng.permutation(rows), np.cumsum(counts))[: len(counts)]


def finish_parts(parts: list[IntArray], rule: str) -> list[IntArray]:
    """The parts sorted, refused when a site has nothing."""
    empty = [site for site, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise ValueError(
            f"{rule} leaves {len(empty)} of {len(parts)} sites without rows (for "
            f"example site {empty[0]}); ask for fewer sites or a milder split"
        )
    return [np.sort(part).astype(np.int64) for part in parts]


def largest_remainder(shares: FloatArray, total: int) -> IntArray:
    """Whole numbers that sum to ``total`` and lie within 1 of ``total * shares / sum(shares)``.

    Remainders are compared after rounding to 1e-9, so that exact ties go to the lower index
    whatever the last bits say.

    >>> largest_remainder(np.array([1.0, 1.0, 1.0]), 7).tolist()
    [3, 2, 2]
    """
    exact = shares / shares.sum() * total
    whole: IntArray = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(-np.round(exact - whole, 9), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def cut_by_share(shares: FloatArray, total: int) -> IntArray:
    """Sizes of the pieces when ``total`` rows are cut at floor(cumsum(shares) * total)."""
    edges = np.floor(np.cumsum(shares) * total + 1e-9).astype(np.int64)
    edges[-1] = total
    sizes: IntArray = np.diff(edges, prepend=0)
    return sizes
