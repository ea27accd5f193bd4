"""Partitions at random, by natural sites, and by explicit counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.core.refusal import explain_errors
from fallow.core.suggestions import explain_constructor
from fallow.data.partition.base import (
    IntArray,
    class_rows,
    deal_class,
    finish_parts,
)


@explain_constructor
@final
@dataclass(frozen=True)
class IID:
    """Partition examples at random in equal parts (IID).

    Sizes differ by at most 1.  The partition is complete and supports any kind of label.

    >>> parts = IID().split(np.zeros(5, dtype=np.int64), 2, np.random.default_rng(0))
    >>> sorted(np.concatenate(parts).tolist()), [len(part) for part in parts]
    ([0, 1, 2, 3, 4], [3, 2])
    """

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        return finish_parts(np.array_split(rng.permutation(len(y)), sites), "IID")


@explain_constructor
@final
@dataclass(frozen=True)
class Natural:
    """Use the natural sites of the data (writers, patients, hospitals).

    The partition supports any kind of label and draws nothing.  With fewer ``sites`` than there are,
    the largest ones are used (see ``natural_sites``), and the partition is not complete;
    ``sites=0`` uses all of them.

    >>> natural = np.array([7, 9, 7, 9, 9])  # the patient of each row
    >>> parts = Natural().split(
    ...     np.zeros(5, dtype=np.int64), 0, np.random.default_rng(0), natural
    ... )
    >>> [part.tolist() for part in parts]
    [[0, 2], [1, 3, 4]]
    """

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        return [np.flatnonzero(natural == g) for g in natural_sites(natural, sites)]


def natural_sites(natural: npt.ArrayLike | None, sites: int = 0) -> IntArray:
    """Return the largest natural sites (ties to the lower id) by id; 0 = all of them.

    Raises ValueError for data without sites.

    >>> natural_sites(np.array([3, 5, 5, 0, 0]), 2).tolist()
    [0, 5]
    """
    if natural is None:
        raise ValueError(
            "the data name no sites, which the partition natural needs; name them with the data "
            "(--site, site= or sites=), or use another partition such as iid"
        )
    result, sizes = np.unique(np.asarray(natural), return_counts=True)
    if not 0 <= sites <= len(result):
        raise ValueError(
            f"{sites} sites are requested and the data has {len(result)} natural sites; "
            f"use 1 to {len(result)}, or 0 for all"
        )
    largest = np.argsort(-sizes, kind="stable")[: sites or len(result)]
    return np.sort(result[largest]).astype(np.int64)


@explain_constructor
@final
@dataclass(frozen=True)
class Counts:
    """Partition by explicit numbers of examples of each class at each site.

    The partition is not complete.

    Parameters
    ----------
    table : tuple of mappings
        One mapping {class id: number of examples} per site.

    Examples
    --------
    >>> two = Counts(({0: 2}, {0: 1, 1: 1}))
    >>> [
    ...     len(part)
    ...     for part in two.split(np.array([0, 0, 0, 1, 1]), 2, np.random.default_rng(0))
    ... ]
    [2, 2]
    """

    table: tuple[Mapping[int, int], ...]  # one {class id: number of examples} per site

    def __post_init__(self) -> None:
        for site, wanted in enumerate(self.table):
            if not all(isinstance(n, Integral) and n >= 0 for n in wanted.values()):
                raise ValueError(
                    f"Counts: site {site} has {dict(wanted)}; give whole numbers of "
                    "examples, 0 or more"
                )
            if sum(wanted.values()) < 1:
                raise ValueError(
                    f"Counts: site {site} has no example; give it at least one"
                )
        # class ids of an experiment configuration in a file are strings
        with explain_errors("Counts: a class ID is not a whole number: "):
            table = tuple({int(c): n for c, n in wanted.items()} for wanted in self.table)
        object.__setattr__(self, "table", table)

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        if sites != len(self.table):
            raise ValueError(
                f"Counts has {len(self.table)} sites and {sites} are requested; they must "
                "agree"
            )
        rows = class_rows(y, "Counts")
        parts: list[list[IntArray]] = [[] for _ in range(sites)]
        labels: set[int] = set()
        for wanted in self.table:
            labels |= wanted.keys()
        for label in sorted(labels):
            counts = np.array([wanted.get(label, 0) for wanted in self.table])
            of_class = rows.get(label, np.empty(0, dtype=np.int64))
            if counts.sum() > len(of_class):
                raise ValueError(
                    f"Counts needs {counts.sum()} examples of class {label}, which has "
                    f"{len(of_class)}; use fewer"
                )
            pieces = deal_class(counts, of_class, rng)
            for part, piece in zip(parts, pieces, strict=True):
                part.append(piece)
        return finish_parts([np.concatenate(part) for part in parts], "Counts")
