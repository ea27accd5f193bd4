"""Long-tailed class counts (Cui et al., 2019), before the partition over sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, final

import numpy as np

from fallow.core.build import build
from fallow.core.limits import Limits, check_fields
from fallow.core.suggestions import explain_constructor
from fallow.data.partition import before_tail
from fallow.data.partition.base import (
    IntArray,
    Partition,
    class_rows,
    deal_class,
)


def longtail_counts(largest: int, classes: int, rho: float) -> IntArray:
    """Return class counts n_c = int(largest * (1 / rho)^(c / (C - 1))), class 0 first.

    >>> longtail_counts(5000, 10, 20).tolist()
    [5000, 3584, 2569, 1842, 1320, 946, 678, 486, 348, 250]
    """
    if classes < 2:
        raise ValueError(
            f"a long tail over {classes} classes is not defined; give at least 2"
        )
    exponents = np.arange(classes) / (classes - 1)  # 0 at the head, 1 at the tail
    counts = largest * (1 / rho) ** exponents
    # + 1e-9: largest / rho must not lose an example to rounding
    return np.floor(counts + 1e-9).astype(int)


RHO = Limits(
    ge=1, is_finite=True, meaning="the size of the largest class over the smallest"
)


@explain_constructor
@final
@dataclass(frozen=True)
class LongTail:
    """Keep a long-tailed subset, then partition it with ``inner``; larger rho = more skew.

    The partition is not complete: class c keeps exactly int(n_max (1/rho)^(c/(C-1))) examples,
    drawn at random.  The test set is unchanged.  Classes are 0..C-1, and class 0 is the largest.

    Parameters
    ----------
    rho : float
        Ratio of the largest to the smallest class.
    inner : str
        Name of the partition of the subset, such as "ExactDirichlet".
    inner_fields : mapping
        Fields of ``inner``, such as ``{"alpha": 0.1}``.
    n_max : int, optional
        Number of examples of the largest class.  None: number of examples / number of classes, or
        the largest number for which every class has enough examples.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2], 100)
    >>> parts = LongTail(rho=4).split(y, 2, np.random.default_rng(0))
    >>> np.bincount(y[np.concatenate(parts)]).tolist()
    [100, 50, 25]
    """

    rho: Annotated[float, RHO] = 20  # head / tail; 1 / rho is the public flag ``imb_ratio``
    inner: str = "IID"
    inner_fields: Mapping[str, Any] = field(default_factory=dict)
    n_max: int | None = (
        None  # examples of the largest class; None = examples / classes, at most
    )

    def __post_init__(self) -> None:
        check_fields(self)
        self._build_inner()

    def split(
        self,
        y: IntArray,
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        kept = self.rows(y, rng)
        if natural is not None:
            natural = natural[kept]
        parts = self._build_inner().split(y[kept], sites, rng, natural)
        return [kept[part] for part in parts]  # positions in the whole dataset

    def rows(self, y: IntArray, rng: np.random.Generator) -> IntArray:
        """Return the sorted positions of the long-tailed subset."""
        rows = class_rows(y, "LongTail")
        classes = max(rows, default=0) + 1
        have = np.array([len(rows.get(c, ())) for c in range(classes)])
        exponents = np.arange(classes) / max(classes - 1, 1)
        limit = int((have * self.rho**exponents).min())
        largest = self.n_max
        if largest is None:
            largest = min(len(y) // classes, limit)
        counts = longtail_counts(largest, classes, self.rho)
        cannot = (counts > have) | (counts == 0)
        if cannot.any():
            c = int(np.argmax(cannot))
            raise ValueError(
                f"LongTail(rho={self.rho}, n_max={largest}) needs {counts[c]} of the "
                f"{have[c]} examples of class {c}; set n_max between "
                f"{int(np.ceil(self.rho))} and {limit}, or lower rho"
            )
        kept = []
        for c, of_class in rows.items():
            (some,) = deal_class(counts[c : c + 1], of_class, rng)
            kept.append(some)
        return np.sort(np.concatenate(kept))

    def _build_inner(self) -> Partition:
        inner: Partition = build(before_tail, self.inner, **self.inner_fields)
        return inner
