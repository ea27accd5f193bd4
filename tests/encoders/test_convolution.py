"""Random filters beside a computation patch by patch in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fallow.core import stream
from fallow.encoders import Convolution
from fallow.encoders.base import encode_rows
from tests.encoders.asks import cut_rows, draw_pictures, fit_encoder, make_sites, open_door


def patches_of(x: np.ndarray, p: int) -> np.ndarray:
    """All patches of pictures (n, c, h, w) -> (n, places high, places wide, c * p * p)."""
    seen = np.lib.stride_tricks.sliding_window_view(x, (p, p), axis=(2, 3))
    flat = seen.transpose(0, 2, 3, 1, 4, 5)
    return flat.reshape(*flat.shape[:3], -1).astype(np.float64)


def divide_by_contrast(patches: np.ndarray) -> np.ndarray:
    mean = patches.mean(-1, keepdims=True)
    spread: np.ndarray = np.sqrt(patches.var(-1, keepdims=True) + 0.05)
    found: np.ndarray = (patches - mean) / spread
    return found


def pool_parts(said: np.ndarray, grid: int) -> np.ndarray:
    """Means over the parts of maps (n, h, w, filters) -> (n, filters * grid * grid)."""
    n, h, w, filters = said.shape
    found = np.zeros((n, filters, grid, grid))
    for i in range(grid):
        for j in range(grid):
            high = slice(i * h // grid, -(-(i + 1) * h // grid))
            wide = slice(j * w // grid, -(-(j + 1) * w // grid))
            found[:, :, i, j] = said[:, high, wide].mean((1, 2))
    return found.reshape(n, -1)


def draw_weights(encoder: Convolution, d: int) -> np.ndarray:
    draw = stream(encoder.seed, "convolution", encoder.filters, d)
    size = (encoder.filters, d)
    weights: np.ndarray = torch.randn(*size, generator=draw, dtype=torch.float64).numpy()
    return weights


def test_grey_pictures_are_seen_through_filters_without_a_mean() -> None:
    x = draw_pictures(6, 1, 13, 12)
    encoder = Convolution(filters=5, patch=4, seed=2)
    assert fit_encoder(encoder, [x]) == {}
    w = draw_weights(encoder, 16)
    w = w - w.mean(1, keepdims=True)
    w = np.round(w / np.linalg.norm(w, axis=1, keepdims=True) * 4096) / 4096
    said = np.maximum(0, patches_of(x.numpy(), 4) @ w.T - 0.3)
    z = encode_rows(encoder, x, {})
    assert z.shape == (6, 5 * 4 * 4)
    np.testing.assert_allclose(z.numpy(), pool_parts(said, 4), atol=1e-5)


def test_colour_pictures_are_whitened_by_the_second_moments_of_all_patches() -> None:
    x = draw_pictures(9, 3, 10, 11)
    encoder = Convolution(filters=7, patch=3, seed=1)
    state = fit_encoder(encoder, cut_rows(x, 3, seed=0))
    p = divide_by_contrast(patches_of(x.numpy(), 3))  # (n, h, w, 27)
    flat = p.reshape(-1, 27)
    mean = flat.mean(0)
    cov = np.cov(flat.T, bias=True)
    e, u = np.linalg.eigh(cov + 0.1 * np.eye(27))
    directions = draw_weights(encoder, 27)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    filters = directions @ (u @ np.diag(e**-0.5) @ u.T)
    np.testing.assert_allclose(state["filters"].numpy(), filters, atol=1.01 * 2**-13)
    said = np.maximum(0, p @ filters.T - filters @ mean - 0.9)
    z = encode_rows(encoder, x, state)
    assert z.shape == (9, 7 * 3 * 3)
    np.testing.assert_allclose(z.numpy(), pool_parts(said, 3), atol=2e-3)
    assert float(z.max()) > 0.1, "no filter said anything: nothing was compared"


def test_the_settings_of_both_pilots_are_the_defaults() -> None:
    grey = Convolution().settle((1, 28, 28))
    assert (grey.filters, grey.patch, grey.whiten) == (64, 5, False)
    assert (grey.threshold, grey.grid, grey.width((1, 28, 28))) == (0.3, 4, 1024)
    colour = Convolution(512, patch=6).settle((3, 32, 32))
    assert (colour.whiten, colour.threshold, colour.grid) == (True, 0.9, 3)
    assert colour.width((3, 32, 32)) == 4608


def test_totals_are_sums_over_sites_and_hold_no_picture() -> None:
    x = draw_pictures(8, 3, 8, 8)
    encoder = Convolution(filters=2, patch=2)
    sites = make_sites(encoder, [x[:3], x[3:]])
    total = open_door(sites, "encoder").sum("patches")
    p = divide_by_contrast(patches_of(x.numpy(), 2)).reshape(8, -1, 12)
    assert total["rows"] == 8
    np.testing.assert_allclose(total["patches"].numpy(), p.mean(1).sum(0), atol=1e-10)
    upper = np.triu_indices(12)
    second = np.einsum("npi,npj->ij", p, p) / p.shape[1]
    np.testing.assert_allclose(total["moments"].numpy(), second[upper], atol=1e-10)


def test_without_whitening_sites_answer_nothing() -> None:
    assert Convolution(whiten=False).contract.verbs == {}
    assert Convolution().settle((1, 28, 28)).contract.verbs == {}
    assert set(Convolution().settle((3, 28, 28)).contract.verbs) == {"patches"}


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((30,), "encodes pictures, .* and a row is 30; use fourier"),
        ((1, 7, 28), "needs pictures of 8 pixels and more .* these are 1 x 7 x 28"),
    ],
)
def test_rows_that_are_no_such_pictures_are_refused(
    shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Convolution().width(shape)


def test_fields_are_checked() -> None:
    with pytest.raises(ValueError, match="filters is 0"):
        Convolution(filters=0)
    with pytest.raises(ValueError, match="whiten is 'perhaps'"):
        Convolution(whiten="perhaps")  # type: ignore[arg-type]
