"""Random filters against a patch-by-patch computation in NumPy."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from fallow.core import client
from fallow.core.composites import PatchMoments
from fallow.core.streams import stream
from fallow.core.types import Values
from fallow.core.view import View
from fallow.encoders import Convolution
from fallow.encoders.base import encode_rows
from tests.encoders.asks import cut_rows, draw_pictures, fit_encoder, make_sites, open_door


def patches_of(x: np.ndarray, p: int) -> np.ndarray:
    """Return all patches of images (n, c, h, w) -> (n, rows, columns, c * p * p)."""
    seen = np.lib.stride_tricks.sliding_window_view(x, (p, p), axis=(2, 3))
    flat = seen.transpose(0, 2, 3, 1, 4, 5)
    return flat.reshape(*flat.shape[:3], -1).astype(np.float64)


def divide_by_contrast(patches: np.ndarray, contrast: float) -> np.ndarray:
    mean = patches.mean(-1, keepdims=True)
    spread: np.ndarray = np.sqrt(patches.var(-1, keepdims=True) + contrast)
    normalized: np.ndarray = (patches - mean) / spread
    return normalized


def pool_parts(responses: np.ndarray, grid: int) -> np.ndarray:
    """Average parts of maps (n, h, w, filters) -> (n, filters * grid * grid)."""
    n, h, w, filters = responses.shape
    pooled = np.zeros((n, filters, grid, grid))
    for i in range(grid):
        for j in range(grid):
            high = slice(i * h // grid, -(-(i + 1) * h // grid))
            wide = slice(j * w // grid, -(-(j + 1) * w // grid))
            pooled[:, :, i, j] = responses[:, high, wide].mean((1, 2))
    return pooled.reshape(n, -1)


def draw_directions(encoder: Convolution, d: int) -> np.ndarray:
    filters = encoder.filters or 64
    draw = stream(encoder.seed, "convolution", filters, d)
    weights: np.ndarray = torch.randn(
        filters, d, generator=draw, dtype=torch.float64
    ).numpy()
    directions: np.ndarray = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    return directions


@pytest.mark.parametrize("channels", [1, 3])
def test_filters_are_whitened_by_the_second_moments_of_all_patches(channels: int) -> None:
    x = draw_pictures(9, channels, 10, 11)
    d = channels * 9
    encoder = Convolution(filters=7, patch=3, grid=3, seed=1)
    state = fit_encoder(encoder, cut_rows(x, 3, seed=0))
    p = patches_of(x.numpy(), 3)  # (n, h, w, d)
    contrast = 0.1 * p.var(-1).mean()
    assert float(state["contrast"]) == pytest.approx(contrast, rel=2**-12)
    p = divide_by_contrast(p, float(state["contrast"]))
    flat = p.reshape(-1, d)
    mean = flat.mean(0)
    cov = np.cov(flat.T, bias=True)
    e, u = np.linalg.eigh(cov + 0.1 * np.eye(d))
    filters = draw_directions(encoder, d) @ (u @ np.diag(e**-0.5) @ u.T)
    np.testing.assert_allclose(state["filters"].numpy(), filters, atol=1.01 * 2**-13)
    responses = np.maximum(0, p @ filters.T - filters @ mean - 0.5)
    z = encode_rows(encoder, x, state)
    assert z.shape == (9, 7 * 3 * 3)
    np.testing.assert_allclose(z.numpy(), pool_parts(responses, 3), atol=2e-3)
    assert float(z.max()) > 0.1, "no filter responded: nothing was compared"


@pytest.mark.parametrize("factor", [1 / 255, 0.3, 10.0, 255.0])
@pytest.mark.parametrize("offset", [0.0, -7.0, 1000.0])
def test_scale_and_offset_of_images_change_no_feature(factor: float, offset: float) -> None:
    x = draw_pictures(20, 3, 12, 12).double()
    encoder = Convolution(filters=8)

    def features(images: torch.Tensor) -> torch.Tensor:
        state = fit_encoder(encoder, cut_rows(images, 3, seed=0))
        return encode_rows(encoder, images, state)

    expected = features(x)
    assert float(expected.std()) > 0.05
    torch.testing.assert_close(features(factor * x + offset), expected, atol=2e-3, rtol=0)


def test_constant_images_have_finite_features() -> None:
    x = torch.ones(4, 1, 9, 9) * torch.arange(4.0).view(-1, 1, 1, 1)
    encoder = Convolution(filters=3)
    z = encode_rows(encoder, x, fit_encoder(encoder, [x]))
    assert bool(z.isfinite().all())


def test_defaults_follow_the_shape_of_images() -> None:
    small = Convolution().settle((1, 8, 8))
    assert (small.filters, small.patch, small.width((1, 8, 8))) == (64, 3, 1024)
    gray = Convolution().settle((1, 28, 28))
    assert (gray.filters, gray.patch, gray.width((1, 28, 28))) == (64, 5, 1024)
    color = Convolution().settle((3, 32, 32))
    assert (color.filters, color.patch, color.width((3, 32, 32))) == (128, 5, 2048)
    assert Convolution(256, patch=6).width((3, 32, 32)) == 4096


def test_totals_are_sums_over_sites_and_hold_no_image() -> None:
    x = draw_pictures(8, 3, 8, 8)
    encoder = Convolution(filters=2, patch=2)
    sites = make_sites(encoder, [x[:3], x[3:]])
    ask = open_door(sites, "encoder")
    p = patches_of(x.numpy(), 2).reshape(8, -1, 12)
    spread = ask.sum(encoder.contrast)
    assert spread["rows"] == 8
    assert float(spread["variance"]) == pytest.approx(p.var(-1).mean(1).sum(), rel=1e-9)
    total = ask.sum(encoder.patches, contrast=torch.tensor(0.02, dtype=torch.float64))
    p = divide_by_contrast(p, 0.02)
    assert total["rows"] == 8
    np.testing.assert_allclose(total["patches"].numpy(), p.mean(1).sum(0), atol=1e-10)
    upper = np.triu_indices(12)
    second = np.einsum("npi,npj->ij", p, p) / p.shape[1]
    np.testing.assert_allclose(total["moments"].numpy(), second[upper], atol=1e-10)


def test_impossible_moments_of_one_site_do_not_end_the_fit() -> None:
    class Lying(Convolution):  # type: ignore[misc] # a site may run any code
        @client.sum("moments that no image has", returns=PatchMoments())
        def patches(self, view: View, contrast: Tensor) -> Values:
            true = Convolution.patches(self, view, contrast)
            return {**true, "moments": -cast(Tensor, true["moments"])}

    state = fit_encoder(Lying(filters=2, patch=2), [draw_pictures(8, 1, 8, 8)])
    assert bool(state["filters"].isfinite().all())


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((30,), "encodes images, .* shape 30; use fourier"),
        ((1, 5, 28), "needs images of at least 6 pixels .* these are 1 x 5 x 28"),
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
    with pytest.raises(ValueError, match="patch is -1"):
        Convolution(patch=-1)
