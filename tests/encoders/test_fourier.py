"""Fourier features against their definition in NumPy and the kernel they approximate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fallow.core.streams import stream
from fallow.encoders import Fourier
from fallow.encoders.base import encode_rows
from fallow.encoders.fourier import GAMMAS
from tests.encoders.asks import cut_rows, fit_encoder


def draw_rows(n: int = 300, d: int = 4) -> torch.Tensor:
    draw = stream(0, "rows")
    x = torch.randn(n, d, generator=draw) * torch.tensor([1.0, 20.0, 0.01, 3.0])[:d]
    return x + torch.tensor([0.0, 500.0, 1.0, -2.0])[:d]


def round_binary(values: np.ndarray) -> np.ndarray:
    """Round to twelve binary digits by another method than the encoder."""
    with np.errstate(divide="ignore"):
        power = np.floor(np.log2(np.abs(values))) + 1
    step = 2.0 ** (power - 12)
    return np.where(values == 0, 0.0, np.round(values / step) * step)


def encode_by_definition(x: np.ndarray, encoder: Fourier, *, divides: bool) -> np.ndarray:
    """Compute z = sqrt(2 / D) cos(W (x - c) / s + phase) as in the paper."""
    x = x.reshape(len(x), -1).astype(np.float64)
    deviation = round_binary(x.std(0))
    spread = deviation if divides else np.ones_like(deviation)
    center = np.round(x.mean(0) / deviation + 0.1234) * deviation
    pairs = 2 * ((deviation / spread) ** 2).sum()
    length = round_binary(np.sqrt(np.array(encoder.gamma * pairs)))
    draw = stream(encoder.seed, "fourier", encoder.features, x.shape[1])
    w = torch.randn(
        encoder.features, x.shape[1], generator=draw, dtype=torch.float64
    ).numpy()
    phase = torch.rand(encoder.features, generator=draw, dtype=torch.float64).numpy()
    inner = ((x - center) / spread) @ (w / length).T + 2 * math.pi * phase
    return np.asarray(math.sqrt(2 / encoder.features) * np.cos(inner))


@pytest.mark.parametrize("units", ["columns", "none"])
def test_features_are_those_of_the_definition(units: str) -> None:
    x = draw_rows()
    encoder = Fourier(features=64, gamma=0.5, seed=3, units=units)  # type: ignore[arg-type]
    z = encode_rows(encoder, x, fit_encoder(encoder, cut_rows(x, 3, seed=0)))
    wanted = encode_by_definition(x.numpy(), encoder, divides=units == "columns")
    assert z.dtype == torch.float32
    np.testing.assert_allclose(z.numpy(), wanted, atol=2e-5)


def test_inner_products_are_near_the_gaussian_kernel() -> None:
    x = draw_rows(60)
    encoder = Fourier(features=20_000)
    z = encode_rows(encoder, x, fit_encoder(encoder, [x])).double().numpy()
    scaled = x.double().numpy() / x.double().numpy().std(0)
    apart = ((scaled[:, None] - scaled[None]) ** 2).sum(2)  # (n, n)
    kernel = np.exp(-apart / (2 * 0.25 * apart.mean()))
    assert np.abs(z @ z.T - kernel).max() < 0.05
    assert kernel[apart > 0].max() > 0.5, "all rows are far apart: nothing was compared"


def test_pictures_are_taken_as_they_are_and_columns_of_tables_are_divided() -> None:
    x = draw_rows()
    table = fit_encoder(Fourier(features=8), [x])
    assert torch.allclose(
        table["spread"].float(), x.std(0, correction=0), rtol=2**-11, atol=0
    )
    picture = fit_encoder(Fourier(features=8), [x.reshape(-1, 1, 2, 2)])
    assert torch.equal(picture["spread"], torch.ones(4, dtype=torch.float64))


def test_a_constant_column_changes_nothing() -> None:
    x = draw_rows()
    more = torch.cat([x, torch.full((len(x), 1), 1e6)], 1)
    encoder = Fourier(features=16)
    state = fit_encoder(encoder, cut_rows(more, 4, seed=1))
    assert state["spread"][4] == 0
    assert state["length"] == fit_encoder(encoder, [x])["length"]
    away = more.clone()
    away[:, 4] = -3.0
    assert torch.equal(encode_rows(encoder, away, state), encode_rows(encoder, more, state))


def test_rows_that_are_all_the_same_are_refused() -> None:
    same = torch.ones(12, 3)
    with pytest.raises(ValueError, match="all examples of all sites are equal"):
        fit_encoder(Fourier(), [same[:5], same[5:]])


def test_a_gamma_in_words_is_auto_or_nothing() -> None:
    with pytest.raises(ValueError, match="gamma is 'best'; it must be a number or 'auto'"):
        Fourier(gamma="best")  # type: ignore[arg-type]
    assert Fourier(gamma="auto").is_tuned
    assert not Fourier().is_tuned


def test_every_candidate_is_what_its_gamma_would_be_fitted_to() -> None:
    x = draw_rows()
    auto = Fourier(features=8, gamma="auto")
    state = fit_encoder(auto, [x])
    for gamma, candidate in zip(GAMMAS, auto.candidates(state), strict=True):
        wanted = fit_encoder(Fourier(features=8, gamma=gamma), [x])
        assert float(candidate["gamma"]) == gamma
        assert torch.allclose(candidate["length"], wanted["length"], rtol=2**-11, atol=0)
        assert torch.equal(candidate["spread"], wanted["spread"])
    assert float(auto.usual(state)["gamma"]) == 0.25


def test_unknown_units_are_refused() -> None:
    with pytest.raises(ValueError, match="units is 'metres'"):
        Fourier(units="metres")  # type: ignore[arg-type]
