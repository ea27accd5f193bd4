"""Weights with which labels that were drawn unevenly stand for the whole pool."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.strategies.parts.levelled import draw_by_softmax, level_weights

F64 = torch.float64


def test_evenly_drawn_rows_weigh_one() -> None:
    chance = 1 / torch.arange(60, 48, -1, dtype=F64)
    assert_close(level_weights(chance, 60), torch.ones(12, dtype=F64))


def test_a_whole_pool_weighs_one_each() -> None:
    assert level_weights(torch.tensor([0.7, 0.1, 1.0], dtype=F64), 3).tolist() == [1, 1, 1]


def test_the_weighted_mean_is_unbiased_by_enumeration() -> None:
    loss, share = (
        torch.tensor([1.0, 3.0, 8.0], dtype=F64),
        torch.tensor([0.6, 0.3, 0.1]).double(),
    )
    weighted = plain = 0.0
    for i in range(3):
        for j in {0, 1, 2} - {i}:
            pi = torch.stack([share[i], share[j] / (1 - share[i])])
            seen = torch.stack([loss[i], loss[j]])
            weighted += float(pi.prod() * (level_weights(pi, 3) * seen).mean())
            plain += float(pi.prod() * seen.mean())
    assert weighted == pytest.approx(4.0) and plain < 3.2


def test_drawing_what_is_unsure_biases_the_plain_mean_and_not_the_weighted_one() -> None:
    """A pool of 60, 12 draws that prefer small losses, as of an overconfident model."""
    loss = torch.rand(60, generator=stream(0, "loss"), dtype=F64).log().neg() * 2
    weighted, plain = [], []
    for seed in range(300):
        rows, chance = draw_by_softmax(-loss, 12, 4.0, stream(seed, "draws"))
        weighted.append((level_weights(chance, 60) * loss[rows]).mean())
        plain.append(loss[rows].mean())
    outcome, error = torch.stack(weighted), torch.stack(weighted).std() / 300**0.5
    assert abs(outcome.mean() - loss.mean()) < 3 * error
    assert torch.stack(plain).mean() < loss.mean() - 10 * error


def test_probabilities_are_those_of_the_draw() -> None:
    scores = torch.tensor([2.0, 0.0, -1.0], dtype=F64)
    rows, chance = draw_by_softmax(scores, 3, 0.5, stream(3))
    first = 0.9 * (scores / 0.5).softmax(0) + 0.1 / 3
    assert_close(chance[0], first[rows[0]])
    assert (
        chance[2] == pytest.approx(1)
        and chance[2] <= 1
        and sorted(rows.tolist()) == [0, 1, 2]
    )


def test_every_row_may_be_drawn_however_low_its_score() -> None:
    first = {
        int(draw_by_softmax(torch.tensor([900.0, 0.0]), 1, 1.0, stream(s))[0])
        for s in range(80)
    }
    assert first == {0, 1}


def test_rows_without_a_score_come_last_and_a_model_without_any_is_said() -> None:
    scores = torch.tensor([torch.nan, 1.0, torch.inf, 0.0])
    for seed in range(5):
        assert set(draw_by_softmax(scores, 2, 1.0, stream(seed))[0].tolist()) == {1, 3}
    assert len(set(draw_by_softmax(scores, 4, 1.0, stream(0))[0].tolist())) == 4
    with pytest.raises(ValueError, match="NaN or infinite"):
        draw_by_softmax(torch.full((3,), torch.nan), 1, 1.0, stream(0))
    assert draw_by_softmax(torch.zeros(0), 2, 1.0, stream(0))[0].tolist() == []
