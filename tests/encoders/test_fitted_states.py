"""Checks of fitted encoder states before encoding, and of statistics before fitting."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fallow.core.client import declared
from fallow.core.messages import Request, Step
from fallow.core.refusal import Refusal
from fallow.core.streams import stream
from fallow.core.types import State, Values
from fallow.encoders import Convolution, EfficientNetLite0, Fourier
from fallow.encoders.base import encoder_digest
from fallow.encoders.encoding import DIGEST, Encoding
from fallow.transport.checks import ResponseCheck
from tests.encoders.asks import draw_pictures, find_wrong_state, fit_encoder
from tests.keys import key_of

PHOTO = (3, 8, 8)
BANKS = {
    "few filters": Convolution(filters=4, patch=3),
    "as many as numbers": Convolution(filters=40, patch=3),
}
TABLE = torch.randn(60, 5, generator=stream(0, "table")) * 3 + 7
TABLE[:, 2] = 1.0  # constant
FOURIER = Fourier(features=16)


def fitted(encoder: Convolution) -> State:
    return fit_encoder(
        encoder, [draw_pictures(30, *PHOTO), draw_pictures(9, *PHOTO, seed=1)]
    )


# -- at a site -------------------------------------------------------------------------


@pytest.mark.parametrize("name", BANKS)
@pytest.mark.parametrize("kind", ["pictures", "flat pictures", "one picture"])
def test_what_pictures_lead_to_is_taken(name: str, kind: str) -> None:
    encoder = BANKS[name]
    pictures = draw_pictures(30, *PHOTO)
    if kind == "flat pictures":
        pictures = torch.ones(30, *PHOTO) * torch.arange(30.0).view(-1, 1, 1, 1)
    if kind == "one picture":
        pictures = pictures[:1]
    assert find_wrong_state(encoder, PHOTO, fit_encoder(encoder, [pictures])) is None


@pytest.mark.parametrize("name", BANKS)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"filters": torch.zeros(4, 5)}, "filters has the shape (4, 5) and not"),
        ({"more": torch.zeros(3)}, "has the argument 'more', and accepts"),
        ({"contrast": torch.tensor(0.0)}, "contrast is 0, which is not above 0"),
        ({"contrast": torch.tensor(-1.0)}, "contrast is -1, which is not above 0"),
    ],
)
def test_other_parts_than_filters_are_refused(name: str, change: State, why: str) -> None:
    encoder = BANKS[name]
    assert why in str(find_wrong_state(encoder, PHOTO, {**fitted(encoder), **change}))


def test_what_tables_lead_to_is_taken() -> None:
    for encoder in (FOURIER, Fourier(features=16, units="none")):
        state = fit_encoder(encoder, [TABLE[:20], TABLE[20:]])
        assert find_wrong_state(encoder, (5,), state) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"length": torch.tensor(0.0)}, "length is 0, which is not above 0"),
        ({"length": torch.tensor(torch.inf)}, "length is NaN or infinite"),
        ({"spread": torch.tensor([1.0, 1, 0, 1, -1])}, "spread is below 0"),
        ({"length": torch.tensor([1.0, 1.0])}, "length has the shape (2,) and not ()"),
        ({"center": torch.zeros(4)}, "center has the shape (4,) and not (5,)"),
    ],
)
def test_other_parts_than_a_length_and_units_are_refused(change: State, why: str) -> None:
    state = fit_encoder(FOURIER, [TABLE])
    assert why in str(find_wrong_state(FOURIER, (5,), {**state, **change}))


def test_a_site_looks_before_it_encodes() -> None:
    encoding = Encoding(FOURIER, (5,))
    details: Values = {DIGEST: encoder_digest(FOURIER), **fit_encoder(FOURIER, [TABLE])}
    encoding.check("basel", details)
    with pytest.raises(Refusal, match="has another version"):
        encoding.check("basel", {**details, DIGEST: "0" * 32})
    without = {name: value for name, value in details.items() if name != "length"}
    with pytest.raises(Refusal, match="an example of zeros has no features"):
        encoding.check("basel", without)


# -- at the coordinator ----------------------------------------------------------------


def make_check(encoder: Any) -> ResponseCheck:
    """Return a coordinator of two sites with 60 examples each."""
    return ResponseCheck({"a": 60, "b": 60}, declared={"encoder": declared(encoder)})


def ask_for(function: str) -> Request:
    return Request(
        key_of("0/initial/encoder/0"), "encoder", 0, 0, (Step("sum", function, {}),)
    )


def moments_of_patches() -> Values:
    p = torch.randn(10, 4, generator=stream(0, "patches"), dtype=torch.float64)
    p = p / p.square().mean(1, keepdim=True).add(0.05).sqrt()
    second = p.T @ p
    at = torch.triu_indices(4, 4)
    return {"rows": 10.0, "patches": p.sum(0), "moments": second[at[0], at[1]]}


def moments_of_columns() -> Values:
    x = TABLE.double()
    return {"rows": 60.0, "columns": x.sum(0), "squares": x.square().sum(0)}


def moments_of_colors() -> Values:
    x = torch.rand(60, 3, 5, 5, generator=stream(0, "colors"), dtype=torch.float64) * 255
    return {
        "rows": 60.0,
        "columns": x.mean((2, 3)).sum(0),
        "squares": x.square().mean((2, 3)).sum(0),
    }


CONVOLUTION = Convolution()
FOURIER = Fourier()
PHOTOS = EfficientNetLite0()
PATCHES = moments_of_patches()
COLUMNS = moments_of_columns()
COLORS = moments_of_colors()


def test_moments_of_rows_are_taken() -> None:
    asked = ask_for("patches")
    assert make_check(Convolution()).check("a", asked, moments_of_patches())
    nothing: dict[str, Any] = {
        name: torch.zeros_like(torch.as_tensor(part))
        for name, part in moments_of_patches().items()
    }
    # a site whose examples were all withdrawn
    assert make_check(Convolution()).check("a", asked, nothing)
    assert make_check(Fourier()).check("a", ask_for("moments"), moments_of_columns())
    photos = make_check(EfficientNetLite0())
    assert photos.check("a", ask_for("colors"), moments_of_colors())


def test_what_a_chosen_gamma_leads_to_is_taken() -> None:
    encoder = Fourier(features=16, gamma="auto")
    typical = encoder.usual(fit_encoder(encoder, [TABLE]))
    assert find_wrong_state(encoder, (5,), typical) is None
    assert find_wrong_state(FOURIER, (5,), typical) is not None
