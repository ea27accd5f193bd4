"""Networks of photographs see every data set in the color scaling of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.client import declared
from fallow.core.contract import Contract
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.encoders import EfficientNetLite0
from fallow.encoders.base import Shape
from fallow.encoders.photos import (
    FAR,
    PHOTO_DEVIATION,
    PHOTO_MEAN,
    PhotoNetwork,
    color_totals,
    encode_photos,
    fit_colors,
)
from tests.encoders.asks import cut_rows, draw_pictures, find_wrong_state, fit_encoder

AS_IT_IS = PhotoNetwork(nn.Identity(), mean=(0.5, 0.4, 0.3), deviation=(0.2, 0.2, 0.1))


@dataclass(frozen=True)
class Seen:
    """An encoder that says what a network would be given."""

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="Seen")

    def width(self, shape: Shape) -> int:
        return 3 * 9 * 9

    def fit(self, ask: Ask, shape: Shape) -> State:
        return fit_colors(ask, self.colors)

    @client.sum("colors")
    def colors(self, view: View) -> Values:
        return color_totals(view)

    def encode(self, x: Tensor, state: State) -> Tensor:
        return encode_photos(AS_IT_IS, x, state, size=9, batch=4)


def see(x: Tensor, sites: int = 1) -> Tensor:
    """Return the network inputs for images (m, c, 9, 9): (m, 3 * 81)."""
    state = fit_encoder(Seen(), cut_rows(x, sites, seed=0))
    return Seen().encode(x, state)


def test_pictures_in_any_units_are_the_same_pictures() -> None:
    x = draw_pictures(20, 3, 9, 9)
    seen = see(x)
    assert seen.std() > 0.5
    assert torch.allclose(see(x * 50 + 128), seen, atol=0.01)
    assert torch.allclose(see(x / 7 - 3), seen, atol=0.01)


def test_photographs_arrive_as_the_network_was_trained_on_them() -> None:
    mean = torch.tensor(PHOTO_MEAN)[:, None, None]
    deviation = torch.tensor(PHOTO_DEVIATION)[:, None, None]
    x = draw_pictures(50, 3, 9, 9).double()
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), correction=0, keepdim=True)
    photos = (x * deviation + mean).float()
    own_mean = torch.tensor(AS_IT_IS.mean)[:, None, None]
    own_deviation = torch.tensor(AS_IT_IS.deviation)[:, None, None]
    wanted = ((photos - own_mean) / own_deviation).flatten(1)
    assert torch.allclose(see(photos), wanted, atol=0.01)


def test_sites_do_not_change_what_a_network_sees() -> None:
    x = draw_pictures(30, 3, 9, 9)
    assert torch.equal(see(x), see(x, sites=5))


def test_gray_pictures_and_colors_that_never_change() -> None:
    gray = draw_pictures(12, 1, 9, 9)
    assert see(gray).shape == (12, 3 * 81)
    flat = draw_pictures(12, 3, 9, 9)
    flat[:, 1] = 0.25
    seen = see(flat).reshape(12, 3, 81)
    assert seen.isfinite().all()
    middle = (PHOTO_MEAN[1] - AS_IT_IS.mean[1]) / AS_IT_IS.deviation[1]
    assert torch.allclose(seen[:, 1], torch.full((12, 81), middle), atol=0.01)


def test_a_pixel_that_is_far_off_is_cut() -> None:
    x = draw_pictures(40, 3, 9, 9)
    x[0, 0, 0, 0] = 1e6
    highest = FAR * PHOTO_DEVIATION[0] + PHOTO_MEAN[0]
    assert see(x).max() <= (highest - AS_IT_IS.mean[0]) / AS_IT_IS.deviation[0] + 1e-4


def test_without_normalizing_nothing_is_asked_and_pictures_stay() -> None:
    x = draw_pictures(5, 3, 9, 9)
    assert torch.equal(encode_photos(AS_IT_IS, x, {}, size=9, batch=4), x.flatten(1))
    assert [item.name for item in declared(EfficientNetLite0()).values()] == ["colors"]
    assert not declared(EfficientNetLite0(normalize=False))


def test_other_parts_than_colors_are_refused() -> None:
    good = {"mean": torch.zeros(3).double(), "deviation": torch.ones(3).double()}
    encoder = EfficientNetLite0()
    shape = (3, 9, 9)
    assert find_wrong_state(encoder, shape, good) is None
    # 0 in float32 because of the division
    nothing = torch.full((3,), 1e-320, dtype=torch.float64)
    for part, value, words in (
        ("deviation", torch.zeros(3).double(), "deviation is 0, which is not above 0"),
        ("deviation", nothing, "which is not above 0"),
        ("deviation", torch.ones(2).double(), "has the shape (2,) and not (3,)"),
        ("mean", torch.full((3,), torch.nan).double(), "mean is NaN or infinite"),
    ):
        assert words in str(find_wrong_state(encoder, shape, good | {part: value}))
    plain = EfficientNetLite0(normalize=False)
    assert "has the argument 'deviation'" in str(find_wrong_state(plain, shape, good))
