"""Interface, checks and helpers of partitions."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Partition(Protocol):
    """Partition of training examples over sites."""

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        """Return the positions of the examples of each site: sorted, disjoint, non-empty arrays.

        Parameters
        ----------
        y : ndarray of shape (n,)
            Class IDs, or regression targets if they are supported.
        sites : int
            Number of sites.
        rng : numpy.random.Generator
            Its state determines the partition.
        natural : ndarray of shape (n,), optional
            Natural site of each example.

        Raises
        ------
        ValueError
            If it is not possible.
        """
        ...


def class_rows(y: IntArray, rule: str) -> dict[int, IntArray]:
    """Return class id -> positions of its examples, for every non-empty class, in order of the id.

    >>> {c: rows.tolist() for c, rows in class_rows(np.array([2, 0, 2]), "IID").items()}
    {0: [1], 2: [0, 2]}
    """
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"{rule} splits by class and the labels are {y.dtype} (regression "
            "targets); use TargetDirichlet, IID or Natural (in settings: "
            "partition=target-dirichlet, iid or natural)"
        )
    if len(y) and y.min() < 0:
        raise ValueError(
            f"{rule} splits by class and {int((y < 0).sum())} rows are unlabeled; "
            "use IID or Natural (in settings: partition=iid or natural)"
        )
    return {int(c): np.flatnonzero(y == c) for c in np.unique(y)}


def deal(
    counts: IntArray, rows: list[IntArray], rng: np.random.Generator
) -> list[IntArray]:
    """Distribute shuffled examples by a table of counts, one array per site.

    counts: (sites, classes), rows: one array of positions per class.
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
    """Divide shuffled ``rows`` into parts of these sizes; the rest is not assigned."""
    return np.split(rng.permutation(rows), np.cumsum(counts))[: len(counts)]


def finish_parts(parts: list[IntArray], rule: str) -> list[IntArray]:
    """Sort the parts; raise ValueError if a site has none."""
    empty = [site for site, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise ValueError(
            f"{rule} leaves {len(empty)} of {len(parts)} sites without examples (for "
            f"example site {empty[0]}); use fewer sites or less skew"
        )
    return [np.sort(part).astype(np.int64) for part in parts]


def largest_remainder(shares: FloatArray, total: int) -> IntArray:
    """Return integers with sum ``total`` within 1 of ``total * shares / sum(shares)``.

    Remainders are compared after rounding to 1e-9, so exact ties go to the lower index regardless
    of rounding errors.

    >>> largest_remainder(np.array([1.0, 1.0, 1.0]), 7).tolist()
    [3, 2, 2]
    """
    exact = shares / shares.sum() * total
    whole: IntArray = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(-np.round(exact - whole, 9), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def cut_by_share(shares: FloatArray, total: int) -> IntArray:
    """Return the sizes of parts when ``total`` is divided at floor(cumsum(shares) * total)."""
    edges = np.floor(np.cumsum(shares) * total + 1e-9).astype(np.int64)
    edges[-1] = total
    sizes: IntArray = np.diff(edges, prepend=0)
    return sizes
