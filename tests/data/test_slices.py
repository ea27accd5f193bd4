"""Places of slices in the volume of a DICOM series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fallow.data.loaders.slices import SliceLocation, order_slices
from tests.each import each_of

TILT = np.array([0.0, 0.6, 0.8])
"""Normal of the slices, which are oblique."""
DIRECTIONS = (1.0, 0.0, 0.0, 0.0, 0.8, -0.6)
NAMES = tuple("abcdefgh")


def locations(*positions: float) -> list[SliceLocation]:
    return [
        SliceLocation("1.2", tuple(TILT * at + (5, -7, 9)), DIRECTIONS, (0.5, 0.5))
        for at in positions
    ]


def test_slices_are_in_the_order_of_their_places_and_not_of_their_names() -> None:
    assert order_slices(locations(9, 3, 12.05, 6, 0), NAMES[:5]) == [4, 1, 3, 0, 2]
    assert order_slices(locations(2), NAMES[:1]) == [0]


OTHER = locations(3, 6, 9)
TURNED = [*OTHER[:2], replace(OTHER[2], directions=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0))]
STRETCHED = [*OTHER[:2], replace(OTHER[2], spacing=(0.5, 0.6))]


@each_of(
    "slices, sentence",
    [
        (
            locations(3, 6, 12, 15),
            "b and c are 6 mm apart, and others 3 mm; add 1 missing slice",
        ),
        (locations(3, 15, 6, 18), "c and b are 9 mm apart, .* add 2 missing slices"),
        (locations(3, 6, 10.2, 13.2), "b and c are 4.2 mm apart, and others 3 mm; keep"),
        (locations(3, 6, 6, 9), "b and c are at the same position"),
        (TURNED, "a and c have other directions"),
        (STRETCHED, "a has pixels of 0.5 x 0.5 mm and c of 0.5 x 0.6 mm"),
    ],
)
def test_what_is_no_volume_ends_in_one_sentence(
    slices: list[SliceLocation], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        order_slices(slices, NAMES[: len(slices)])
