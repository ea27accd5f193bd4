"""Order of the slices of a volume by their positions in DICOM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from fallow.core.wording import count_noun

TURNED = 1e-3
"""Largest difference between directions, which are unit vectors, of slices of a volume."""
STRETCHED = 1e-3
"""Largest relative difference between pixel spacings of slices of a volume."""
UNEVEN = 0.1
"""Largest relative difference between distances of neighboring slices."""


@final
@dataclass(frozen=True)
class SliceLocation:
    """Location of a slice in the coordinates of its scanner.

    Attributes
    ----------
    series : str
        SeriesInstanceUID.
    corner : tuple of float
        Position of the first pixel in mm, (3,).
    directions : tuple of float
        Directions of rows and columns, (6,).
    spacing : tuple of float
        Distances of pixels in mm, (2,).
    """

    series: str
    corner: tuple[float, ...]
    directions: tuple[float, ...]
    spacing: tuple[float, ...]


def order_slices(locations: Sequence[SliceLocation], names: Sequence[str]) -> list[int]:
    """Return the order of the slices of a series along their normal.

    names: of the slices, for messages.  Raises ValueError for slices of several directions or pixel
    spacings, for two at one position, and for a missing one.

    >>> first = SliceLocation("1", (0, 0, 3), (1, 0, 0, 0, 1, 0), (1, 1))
    >>> second = SliceLocation("1", (0, 0, 1), (1, 0, 0, 0, 1, 0), (1, 1))
    >>> order_slices([first, second], ["a", "b"])
    [1, 0]
    """
    directions = np.array([location.directions for location in locations])  # (n, 6)
    spacing = np.array([location.spacing for location in locations])  # (n, 2)
    is_turned = np.abs(directions - directions[0]).max(axis=1) > TURNED
    if is_turned.any():
        other = names[int(is_turned.argmax())]
        raise ValueError(
            f"{names[0]} and {other} have other directions (ImageOrientationPatient); keep the "
            "slices of one volume"
        )
    is_stretched = np.abs(spacing / spacing[0] - 1).max(axis=1) > STRETCHED
    if is_stretched.any():
        at = int(is_stretched.argmax())
        raise ValueError(
            f"{names[0]} has pixels of {_show(spacing[0])} mm and {names[at]} of "
            f"{_show(spacing[at])} mm (PixelSpacing); keep the slices of one volume"
        )
    normal = np.cross(directions[0, :3], directions[0, 3:])
    positions = np.array([location.corner for location in locations]) @ normal  # (n,)
    order: list[int] = positions.argsort(kind="stable").tolist()
    _check_gaps(np.diff(positions[order]), [names[at] for at in order])
    return order


def _check_gaps(
    gaps: np.ndarray[tuple[int], np.dtype[np.float64]], names: Sequence[str]
) -> None:
    """Raise ValueError if distances between neighbors, (n - 1,), are not equal."""
    if not len(gaps):
        return
    usual = float(np.median(gaps))
    smallest = int(gaps.argmin())
    if gaps[smallest] <= UNEVEN * usual or usual == 0:
        raise ValueError(
            f"{names[smallest]} and {names[smallest + 1]} are at the same position "
            "(ImagePositionPatient); remove one"
        )
    at = int(np.abs(gaps - usual).argmax())
    if abs(gaps[at] - usual) <= UNEVEN * usual:
        return
    n_missing = round(gaps[at] / usual) - 1
    advice = "keep slices of equal distance"
    if n_missing > 0:
        advice = f"add {count_noun(n_missing, 'missing slice')}"
    raise ValueError(
        f"{names[at]} and {names[at + 1]} are {gaps[at]:g} mm apart, and others {usual:g} mm; "
        f"{advice}"
    )


def _show(spacing: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    return " x ".join(f"{number:g}" for number in spacing)
