"""Attacks on sums of features: what decides is numbers against unknowns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fallow as fl
from fallow.measurements.attacks import (
    TOLERANCE,
    Array,
    ClippedFeatures,
    CosineFeatures,
    FeatureMap,
    LinearFeatures,
    NetworkFeatures,
    Search,
    WithConstant,
    rank_by_distance,
    read_columns,
    read_head,
    read_products,
    read_sum,
)
from fallow.measurements.disclosure import differentiate, match_rows, units_of
from tests.each import each_of

COLUMNS = 4
ROWS = np.random.default_rng(7).standard_normal((8, COLUMNS))


def waves(width: int) -> CosineFeatures:
    """Return random Fourier features of four columns."""
    draw = np.random.default_rng(width)
    w = draw.standard_normal((width, COLUMNS)) / math.sqrt(2)
    c = draw.uniform(0, 2 * math.pi, width)
    return CosineFeatures(w, c, math.sqrt(2 / width), np.zeros(width), np.ones(width))


def phi(features: FeatureMap, rows: Array) -> Array:
    return features.linearize(rows)[0]


def count_read(candidates: Array, rows: Array) -> int:
    farthest, _ = match_rows(candidates, rows)
    return int((farthest <= TOLERANCE).sum())


def network() -> NetworkFeatures:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(COLUMNS, 6), nn.Tanh())
    ones = np.ones(COLUMNS)
    return NetworkFeatures(
        net, (COLUMNS,), 0.3 * ones, 2 * ones, np.zeros(6), np.full(6, 3.0)
    )


LINEAR = LinearFeatures(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), np.zeros(4))
MAPS: tuple[FeatureMap, ...] = (
    waves(16),
    LINEAR,
    network(),
    ClippedFeatures(LINEAR, 0.9),
    ClippedFeatures(LinearFeatures(np.full(4, 0.01), np.zeros(4), np.zeros(4)), 0.9),
    WithConstant(waves(16), 0.5),
)


@each_of("features", MAPS)
def test_a_gradient_is_that_of_finite_differences(features: FeatureMap) -> None:
    rows = ROWS[:2]
    values, pull_back = features.linearize(rows)
    weights = np.random.default_rng(1).standard_normal(values.shape)
    gradient = pull_back(weights)
    for column in range(COLUMNS):
        step = np.zeros(COLUMNS)
        step[column] = 1e-3
        higher = (phi(features, rows + step) * weights).sum(1)
        lower = (phi(features, rows - step) * weights).sum(1)
        np.testing.assert_allclose(gradient[:, column], (higher - lower) / 2e-3, atol=2e-3)


def test_products_are_their_rows() -> None:
    features = waves(96)
    z = phi(features, ROWS)
    candidates = read_products(features, z.T @ z, len(ROWS), Search())
    assert count_read(candidates, ROWS) == len(ROWS)


def test_a_column_that_no_feature_depends_on_hides_no_row() -> None:
    features = waves(96)
    features.w[:, 3] = 0
    constant = np.array([1.0, 1.0, 1.0, 0.0])  # the last column has its mean everywhere
    z = phi(features, ROWS * constant)
    candidates = read_products(features, z.T @ z, len(ROWS), Search())
    assert count_read(candidates, ROWS * constant) == len(ROWS)


def test_a_column_that_is_constant_at_one_site_is_unknown_as_well() -> None:
    mean, unit = units_of(np.array([[5.0, 0.0], [7.0, 0.0]]), (2,))
    assert (mean.tolist(), unit.tolist()) == ([6.0, 0.0], [1.0, 1.0])
    fourier = fl.Fourier(features=8)
    state = {
        "center": torch.zeros(2),
        "spread": torch.ones(2),  # over all sites, the second column varies
        "length": torch.ones(()),
    }
    features = differentiate(fourier, state, None, (2,), mean, unit)
    assert features.varies.all()


def test_similar_examples_are_ranked_by_their_distance_to_the_products() -> None:
    features = waves(96)
    z = phi(features, ROWS[:2])
    _, directions = np.linalg.eigh(z.T @ z)
    order = rank_by_distance(features, directions[:, -2:], ROWS)
    assert set(order[:2].tolist()) == {0, 1}


def test_rows_are_found_one_after_another_and_reported() -> None:
    features = waves(96)
    z = phi(features, ROWS)
    reports: list[tuple[int, int]] = []
    search = Search(notify=lambda read, rows: reports.append((read, rows)))
    read_products(features, z.T @ z, len(ROWS), search)
    assert reports[-1] == (8, 8)
    assert reports == sorted(reports)


@each_of("width, rows, read", [(48, 3, 3), (48, 6, 6), (6, 3, 0)])
def test_a_sum_of_more_numbers_than_unknowns_is_its_rows(
    width: int, rows: int, read: int
) -> None:
    features = waves(width)
    total = phi(features, ROWS[:rows]).sum(0)
    candidates = read_sum(features, total, rows, Search(seconds=20 if read else 0.3))
    assert count_read(candidates, ROWS[:rows]) == read


@each_of("width, rows, read", [(64, 3, 3), (8, 3, 0)])
def test_a_model_of_more_numbers_than_unknowns_is_its_rows(
    width: int, rows: int, read: int
) -> None:
    features = waves(width)
    z = phi(features, ROWS[:rows])
    y = np.eye(2)[np.arange(rows) % 2]
    gram = z.T @ z + 1e-3 * np.eye(width)
    head = np.linalg.solve(gram, z.T @ (y - y.mean(0)))
    candidates = read_head(features, head, rows, Search(seconds=20 if read else 0.3))
    assert count_read(candidates, ROWS[:rows]) == read


def test_a_rare_category_in_exact_products_is_its_row() -> None:
    data = np.array(
        [[1.0, 0, 3, 7], [0, 1, 4, 8], [0, 0, 5, 9], [0, 0, 6, 1], [0, 0, 7, 2]]
    )
    mean, std = data.mean(0), data.std(0)
    rows = (data - mean) / std
    features = LinearFeatures(np.ones(4), np.zeros(4), -mean / std)
    z = phi(WithConstant(features), rows)
    candidates = read_columns(features, z.T @ z, 1.0)
    assert count_read(candidates, rows) == 2  # those that alone have a 1 in a column


def test_noise_in_products_leaves_no_row() -> None:
    features = waves(96)
    z = phi(features, ROWS)
    draw = np.random.default_rng(3)
    noise = draw.standard_normal((96, 96))
    candidates = read_products(
        features, z.T @ z + noise + noise.T, len(ROWS), Search(starts=40)
    )
    assert count_read(candidates, ROWS) == 0


def test_a_search_ends_when_its_time_is_spent() -> None:
    features = waves(16)
    search = Search(seconds=0)
    assert read_sum(features, phi(features, ROWS).sum(0), 8, search).shape == (1, COLUMNS)


def pictures() -> tuple[NetworkFeatures, Array]:
    """Return the features of pictures of 8 x 8 pixels, and two pictures in standard units."""
    encoder = fl.Convolution(filters=16)
    draw = torch.Generator().manual_seed(0)
    state = {
        "contrast": torch.tensor(0.1),
        "filters": torch.randn(16, 9, generator=draw, dtype=torch.float64),
        "bias": torch.zeros(16, dtype=torch.float64),
    }
    width = encoder.width((1, 8, 8))
    features = NetworkFeatures(
        encoder.network((1, 8, 8), state),
        (1, 8, 8),
        mean=np.full(64, 0.5),
        std=np.full(64, 0.3),
        center=np.zeros(width),
        scale=np.ones(width),
    )
    return features, torch.randn(2, 64, generator=draw).double().numpy()


@pytest.mark.long
def test_pictures_are_read_up_to_brightness_and_contrast() -> None:
    features, rows = pictures()
    z = phi(features, rows)
    similar = rows + 0.3 * np.random.default_rng(0).standard_normal(rows.shape)
    search = Search(starts=4, steps=150, similar=similar)
    candidates = features.align(read_products(features, z.T @ z, 2, search), rows)
    _, root = match_rows(candidates, rows)
    assert (root < 0.1).all()


def test_a_picture_in_another_contrast_is_the_same_picture() -> None:
    features, rows = pictures()
    brighter = 0.5 * rows + 1.0
    np.testing.assert_allclose(features.align(brighter, rows), rows, atol=1e-9)


def test_features_of_pictures_with_gradients_are_those_of_sites() -> None:
    features, rows = pictures()
    images = torch.from_numpy(rows * 0.3 + 0.5).view(-1, 1, 8, 8).float()
    with torch.no_grad():
        sent = features.network(images)
    np.testing.assert_allclose(phi(features, rows), sent.numpy(), atol=1e-6)
