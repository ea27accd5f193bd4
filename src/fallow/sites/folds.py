"""Folds of cross-validation, decided once for each label, when it arrives.

Folds that are drawn anew are sums over other examples each time, and the differences of these sums
are linear equations in few examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from fallow.core.streams import seed_of
from fallow.core.types import SiteId
from fallow.core.view import FOLDS
from fallow.sites.store import Label


@final
class FoldAssignment:
    """Folds of the labels of one site so far.

    A new label belongs to the fold with the fewest labels of its class at the site, or to that of
    its group.  Equal folds are decided by a hash of the row or the group, keyed by ``seed``.

    Parameters
    ----------
    seed : int
        Seed of the study.
    site : str
        Name of the site.
    classes : int
        Number of classes; 0 for regression, where all labels are of one class.
    groups : sequence of int, optional
        Group of each example of the site; None: each example is its own.

    Examples
    --------
    >>> assignment = FoldAssignment(seed=0, site="north", classes=2)
    >>> labels = assignment.assign([Label(row, 1.0, cycle=0) for row in range(5)])
    >>> sorted(label.fold for label in labels)
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self, seed: int, site: SiteId, classes: int, groups: Sequence[int] | None = None
    ) -> None:
        self._seed = seed
        self._site = site
        self._classes = classes
        self._groups = groups
        self._of_unit: dict[int, int] = {}
        self._sizes: dict[tuple[float, bool], list[int]] = {}

    def assign(self, labels: Iterable[Label]) -> list[Label]:
        """Return labels with their folds; one that a label already has is kept."""
        return [self._assign(label) for label in labels]

    def remember(self, places: Mapping[int, int]) -> None:
        """Keep the folds of rows, also of those whose label is gone, for their groups."""
        for row, fold in places.items():
            self._of_unit[self._find_unit(row)] = fold

    def _find_unit(self, row: int) -> int:
        """Return the group of a row, or the row."""
        return row if self._groups is None else self._groups[row]

    def _assign(self, label: Label) -> Label:
        unit = self._find_unit(label.row)
        kind = (label.value if self._classes else 0.0, label.is_validation)
        sizes = self._sizes.setdefault(kind, [0] * FOLDS)
        fold = label.fold
        if fold is None:
            fold = self._of_unit.get(unit)
        if fold is None:
            fold = self._choose(unit, sizes)
        self._of_unit[unit] = fold
        sizes[fold] += 1
        return label._replace(fold=fold)

    def _choose(self, unit: int, sizes: list[int]) -> int:
        """Return the smallest fold; the hash decides between equal ones."""
        smallest = min(sizes)
        equal = [fold for fold in range(FOLDS) if sizes[fold] == smallest]
        return equal[seed_of(self._seed, "fold", self._site, unit) % len(equal)]
