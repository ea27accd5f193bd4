"""Properties of every encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.methods import Encoder
from fallow.core.types import State
from fallow.encoders import Convolution, Fourier, Identity, Tabular
from fallow.encoders.base import encode_rows, encoder_digest, round_digits, round_to_grid
from fallow.experiment.encoding import build_encoder
from tests.encoders.asks import cut_rows, draw_pictures, fit_encoder, make_sites, open_door

ENCODERS: dict[str, Encoder] = {
    "identity": Identity(),
    "fourier": Fourier(features=32),
    "tabular": Tabular(features=32),
    "gray": Convolution(filters=4),
    "color": Convolution(filters=4, patch=3),
}


@dataclass(frozen=True)
class Odd:
    """An encoder that does what it is told to."""

    does: str = "well"

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="Odd")

    def width(self, shape: tuple[int, ...]) -> int:
        return 2

    def fit(self, ask: Ask, shape: tuple[int, ...]) -> State:
        return {}

    def encode(self, x: Tensor, state: State) -> Tensor:
        z = x.flatten(1)[:, :2].clone()
        if self.does == "nan":
            z[1, 0] = torch.nan
        return z[:, :1] if self.does == "narrow" else z


@pytest.mark.parametrize("name", ENCODERS)
def test_features_do_not_depend_on_who_holds_a_row(name: str) -> None:
    encoder = ENCODERS[name]
    x = draw_pictures(61, 3, 9, 9)
    whole = fit_encoder(encoder, [x])
    z = encode_rows(encoder, x, whole)
    for sites, seed in ((2, 0), (7, 1), (20, 2)):
        state = fit_encoder(encoder, cut_rows(x, sites, seed))
        assert encoder_digest(encoder, state) == encoder_digest(encoder, whole)
        assert torch.equal(encode_rows(encoder, x, state), z)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_site_all_of_whose_rows_left_changes_nothing_that_is_fitted(name: str) -> None:
    encoder = ENCODERS[name]
    x = draw_pictures(20, 3, 9, 9)
    whole = fit_encoder(encoder, [x])
    sites = make_sites(encoder, [x[:7], x[:3] + 5, x[7:]])
    sites["s1"].leave(range(3))
    state = encoder.fit(open_door(sites, "encoder"), (3, 9, 9))
    assert encoder_digest(encoder, state) == encoder_digest(encoder, whole)


@pytest.mark.parametrize("name", ENCODERS)
def test_features_are_as_wide_as_promised_and_not_all_alike(name: str) -> None:
    encoder = ENCODERS[name]
    x = draw_pictures(11, 3, 9, 9)
    z = encode_rows(encoder, x, fit_encoder(encoder, [x]))
    assert z.shape == (11, encoder.width((3, 9, 9)))
    assert z.dtype == torch.float32
    assert float(z.var(0).sum()) > 0
    assert encode_rows(encoder, x[:0], fit_encoder(encoder, [x])).shape == (0, z.shape[1])


@pytest.mark.parametrize("name", ENCODERS)
def test_a_row_has_the_same_features_in_any_company(name: str) -> None:
    encoder = ENCODERS[name]
    x = draw_pictures(40, 3, 9, 9)
    state = fit_encoder(encoder, [x])
    alone = torch.cat([encode_rows(encoder, x[i : i + 1], state) for i in range(40)])
    assert torch.allclose(alone, encode_rows(encoder, x, state), atol=1e-6)


def test_half_features_are_rounded_to_float16() -> None:
    x = draw_pictures(5, 2, 6, 6)
    full = encode_rows(Identity(), x, {})
    half = encode_rows(Identity(half=True), x, {})
    assert torch.equal(half, full.half().float())
    assert not torch.equal(half, full)


def test_a_digest_names_all_that_decides_the_features() -> None:
    state = {"length": torch.tensor(2.0)}
    known = [
        encoder_digest(Fourier(), state),
        encoder_digest(Fourier(), {"length": torch.tensor(2.5)}),
        encoder_digest(Fourier(), {"length": torch.tensor(2.0, dtype=torch.float64)}),
        encoder_digest(Fourier(), None),
        encoder_digest(Fourier(gamma=0.5), state),
        encoder_digest(Fourier(half=True), state),
        encoder_digest(Identity(), state),
    ]
    assert len(set(known)) == len(known)
    assert encoder_digest(Fourier(), dict(state)) == known[0]


def test_another_version_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = encoder_digest(Fourier())
    monkeypatch.setattr(Fourier, "version", 2)
    assert encoder_digest(Fourier()) != before


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            "nan",
            r"Odd returned NaN or infinite features for 1 examples, the first is row 2",
        ),
        (
            "narrow",
            r"Odd returned features of shape \(4, 1\) for 4 examples, and declared 2 per example",
        ),
    ],
)
def test_features_that_are_none_are_refused(does: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode_rows(Odd(does), draw_pictures(4, 3), {})


def test_features_beyond_float16_are_refused_where_it_was_asked_for() -> None:
    with pytest.raises(ValueError, match="infinite features for 4 examples"):
        encode_rows(Identity(half=True), torch.full((4, 2), 1e6), {})


def test_sites_see_features_once_they_were_handed_over() -> None:
    encoder = Fourier(features=4)
    x = draw_pictures(9, 3)
    sites = make_sites(encoder, [x[:4], x[4:]])
    assert torch.equal(torch.as_tensor(sites["s0"].seen[:]), x[:4])
    state = encoder.fit(open_door(sites, "encoder"), (3,))
    details = sites["s0"].parts.methods["encoding"]
    details.hand_over(open_door(sites, "encoding", "0/initial/encode"), state)
    assert torch.equal(sites["s1"].seen[:], encode_rows(encoder, x[4:], state))


def test_names_fields_and_shapes_are_checked_when_an_encoder_is_built() -> None:
    built = build_encoder("convolution", (3, 32, 32), filters=8)
    assert built == Convolution(8, patch=5)
    with pytest.raises(
        ValueError, match="'furier' is not one of the encoders; did you mean"
    ):
        build_encoder("furier", (3,))
    with pytest.raises(
        ValueError, match="has no setting 'feature'; did you mean 'features'"
    ):
        build_encoder("fourier", (3,), feature=3)
    with pytest.raises(ValueError, match="encodes images"):
        build_encoder("convolution", (3,))


@pytest.mark.parametrize("value", [0.1, -3.7, 1e-9, 12345.678, 0.0])
def test_rounding_keeps_twelve_binary_digits(value: float) -> None:
    result = float(round_digits(torch.tensor(value, dtype=torch.float64)))
    assert result == pytest.approx(value, rel=2**-12)
    again: Any = round_digits(torch.tensor(result * (1 + 1e-13), dtype=torch.float64))
    assert float(again) == result


def test_a_grid_has_one_step_for_all() -> None:
    assert round_to_grid(torch.tensor([0.0001, 1.0001]), digits=2).tolist() == [0.0, 1.0]


def test_more_features_than_anybody_can_keep_are_refused_before_any_is_made() -> None:
    with pytest.raises(
        ValueError, match=r"computes 1,000,000,000 features .* maximum of 65,536"
    ):
        build_encoder("fourier", (5,), features=10**9)
