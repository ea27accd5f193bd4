"""Digits rotated by their own angle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fallow.data import load
from fallow.data.catalog.files import DIGITS_MEAN, DIGITS_STD
from fallow.data.partition.partitions import Natural
from fallow_papers.datasets.digit_angle import turn


def test_a_turn_of_90_degrees_is_counter_clockwise_and_its_corners_are_blank() -> None:
    blank = -DIGITS_MEAN / DIGITS_STD
    x = torch.full((1, 1, 8, 8), blank)
    x[0, 0, 3:5, 7] = 2.0  # on the right
    turned = turn(x, torch.tensor([90.0]))
    expected = torch.full((8, 8), blank)
    expected[0, 3:5] = 2.0  # now at the top
    torch.testing.assert_close(turned[0, 0], expected, atol=1e-5, rtol=0)
    full = torch.full((1, 1, 8, 8), 2.0)
    assert turn(full, torch.tensor([45.0]))[0, 0, 0, 0] == pytest.approx(blank)
    torch.testing.assert_close(turn(x, torch.zeros(1)), x)


def test_digit_angle_is_a_regression_set_of_images_with_a_site_for_each_digit() -> None:
    d = load("digit_angle")
    digits = load("digits")
    assert d.task == "regression" and d.classes == () and d.x.shape == digits.x.shape
    assert d.y.abs().max() < 45 and abs(float(d.y.mean())) < 2 and d.y.std() > 24
    assert len(set(d.y.tolist())) == len(d.y)
    assert d.sites is not None and torch.equal(d.sites, digits.y)
    torch.testing.assert_close(d.x[:5], turn(digits.x[:5], d.y[:5]))
    parts = Natural().split(d.y.numpy(), 0, np.random.default_rng(0), d.sites.numpy())
    assert len(parts) == 10 and d.site_names[3] == "digit 3"


def test_the_angle_can_be_learned_from_the_pixels() -> None:
    d = load("digit_angle")
    ones = torch.ones(len(d.x), 1)
    a = torch.cat([d.x.flatten(1), ones], 1)
    b = torch.cat([d.x_test.flatten(1), ones[: len(d.x_test)]], 1)
    gram = a.double().T @ a.double() + torch.eye(65, dtype=torch.float64)
    theta = torch.linalg.solve(gram, a.double().T @ d.y.double())
    error = (b.double() @ theta - d.y_test).square().mean() / d.y_test.var()
    assert error < 0.6
