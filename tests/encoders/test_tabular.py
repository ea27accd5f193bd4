"""Columns, normal scores and Fourier features, against their definitions in NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata

import fallow as fl
from fallow.core.streams import stream
from fallow.encoders import Fourier, Tabular
from fallow.encoders.base import encode_rows
from fallow.encoders.tabular import FAR, KNOTS, list_knots, score_knots
from fallow.experiment.scale import is_standardized
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.encoders.asks import cut_rows, find_wrong_state, fit_encoder

ENCODER = Tabular(features=16)


def draw_table(n: int = 400) -> torch.Tensor:
    """Return a normal, a skewed, a binary and a constant column."""
    draw = stream(0, "table")
    normal = torch.randn(n, generator=draw) * 20 + 500
    skewed = torch.randn(n, generator=draw).exp()
    binary = (torch.rand(n, generator=draw) > 0.7).float()
    return torch.stack([normal, skewed, binary, torch.full((n,), 3.0)], 1)


def encode(x: torch.Tensor, fitted: torch.Tensor | None = None) -> np.ndarray:
    parts = cut_rows(x if fitted is None else fitted, 3, seed=0)
    return encode_rows(ENCODER, x, fit_encoder(ENCODER, parts)).double().numpy()


def test_the_first_features_are_the_columns_in_standard_deviations() -> None:
    x = draw_table()
    z = encode(x)[:, :3]
    wanted = (x.double() - x.double().mean(0))[:, :3] / x.double().std(0, correction=0)[:3]
    away = z - z.mean(0)
    np.testing.assert_allclose(away, wanted.numpy() / np.sqrt(4 * 3), atol=2e-3)


def test_normal_scores_are_those_of_ranks() -> None:
    x = draw_table()
    scores = encode(x)[:, 4:6]
    for column in range(2):
        share = (rankdata(x[:, column].numpy()) - 0.5) / len(x)
        wanted = norm.ppf(share)
        assert np.corrcoef(scores[:, column], wanted)[0, 1] > 0.99
        order = np.argsort(x[:, column].numpy())
        assert (np.diff(scores[order, column]) >= -1e-6).all()


def test_scores_of_knots_follow_from_shares_below_them() -> None:
    counts = torch.zeros(2, KNOTS + 1, dtype=torch.float64)
    counts[0, 10] = counts[0, 50] = 5.0  # two values
    counts[1, 7] = 10.0  # one value
    scores = score_knots(counts)
    middle = scores[0, 11:49]
    torch.testing.assert_close(middle, torch.zeros_like(middle))
    assert float(scores[0, 9]) == pytest.approx(-float(scores[0, 50]))
    mean = (counts[0, [10, 50]] * (scores[0, [9, 49]] + scores[0, [10, 50]]) / 2).sum()
    assert float(mean) == pytest.approx(0)
    assert torch.isfinite(scores).all()


def test_columns_with_scores_weigh_as_much_as_fourier_features() -> None:
    squares = np.square(encode(draw_table())).sum(0)
    linear = squares[:8].sum() / 400
    assert linear == pytest.approx(0.5, abs=0.1)
    assert squares[8:].sum() / 400 == pytest.approx(0.5, abs=0.1)


def test_the_last_features_are_those_of_fourier() -> None:
    x = draw_table()
    alone = Fourier(features=16, units="columns")
    wanted = encode_rows(alone, x, fit_encoder(alone, [x])).double().numpy()
    np.testing.assert_allclose(encode(x)[:, 8:], wanted / np.sqrt(2), atol=1e-6)


def test_a_constant_column_has_no_features() -> None:
    x = draw_table()
    away = x.clone()
    away[:, 3] = -7.0
    z = encode(away, fitted=x)
    assert not z[:, [3, 7]].any()
    np.testing.assert_array_equal(z, encode(x))


def test_values_beyond_those_of_the_fit_are_clipped() -> None:
    x = draw_table()
    far = x[:2].clone()
    far[0, 0] = 1e9
    far[1, 0] = -1e9
    z = encode(far, fitted=x)
    assert z[0, 0] == pytest.approx(FAR / np.sqrt(12), rel=1e-6)
    assert z[0, 4] == pytest.approx(encode(x)[:, 4].max(), abs=0.1)
    assert z[1, 4] < z[0, 4]


def test_knots_are_symmetric_and_denser_near_the_mean() -> None:
    knots = list_knots()
    torch.testing.assert_close(knots, -knots.flip(0))
    assert float(knots.diff().max() / knots.diff().min()) > 20


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scores": torch.zeros(4, 3)}, r"scores has the shape \(4, 3\) and not \(4, 65\)"),
        ({"scores": torch.full((4, KNOTS), torch.nan)}, "scores is NaN or infinite"),
    ],
)
def test_a_site_refuses_other_scores(change: dict[str, torch.Tensor], why: str) -> None:
    state = fit_encoder(ENCODER, [draw_table()])
    assert find_wrong_state(ENCODER, (4,), state) is None
    assert re.search(why, str(find_wrong_state(ENCODER, (4,), {**state, **change})))


@pytest.mark.parametrize(
    ("standardize", "encoder", "expected"),
    [
        ("auto", "tabular", False),
        ("federated", "tabular", True),
        ("none", "tabular", False),
        ("auto", "fourier", True),
    ],
)
def test_scaling_leaves_its_weights_unless_it_is_requested(
    standardize: str, encoder: str, *, expected: bool
) -> None:
    config = ExperimentConfig("a", encoder=Spec(encoder), standardize=standardize)  # type: ignore[arg-type]
    data = fl.from_arrays(draw_table(20).numpy(), np.arange(20) % 2)
    assert is_standardized(config, data) is expected


def test_it_fits_what_columns_cannot_and_keeps_what_they_can() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(600, 6)).astype(np.float32)
    ring = fl.from_arrays(x, (np.square(x).sum(1) > 5.3).astype(int), name="ring")
    line = fl.from_arrays(x, (x[:, 0] > 0).astype(int), name="line")
    accuracy = {}
    for data in (ring, line):
        for encoder in ("identity", "tabular:features=128"):
            run = fl.run(
                fl.Federation(data, fl.IID(), sites=3),
                "random",
                training="closed-form",
                encoder=encoder,
                initial=60,
                cycles=0,
                progress=False,
            )
            accuracy[data.name, encoder] = run.records["accuracy"].iloc[-1]
    assert accuracy["ring", "tabular:features=128"] > accuracy["ring", "identity"] + 0.15
    assert accuracy["line", "tabular:features=128"] > accuracy["line", "identity"] - 0.05
