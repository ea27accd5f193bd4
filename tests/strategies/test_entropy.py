"""Entropy sampling, worked examples."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from fallow.strategies import Entropy
from tests.simulations import Table, simulation

P = tensor([[0.98, 0.01, 0.01], [0.5, 0.5, 0.0], [0.4, 0.3, 0.3], [0.6, 0.3, 0.1]]).double()


def test_the_flattest_predictions_are_picked_first() -> None:
    site = Table(P.log().clamp_min(-1e4), torch.zeros(4, 3).double(), [0])
    assert simulation({"a": site}, Entropy()).selected(4) == {
        "a": [2, 3, 1, 0]
    }  # 1.09, .90, .69, .11


def test_the_global_model_is_read_when_it_is_asked_for() -> None:
    site = Table(P.log().clamp_min(-1e4), P.flip(0).log().clamp_min(-1e4), [0])
    assert simulation({"a": site}, Entropy(model="global")).selected(2) == {"a": [1, 0]}


def test_a_site_without_labels_has_no_model_of_its_own_and_uses_the_global_one() -> None:
    site = Table(P.log().clamp_min(-1e4), P.flip(0).log().clamp_min(-1e4))
    assert simulation({"a": site}, Entropy()).selected(2) == {"a": [1, 0]}


def test_a_row_whose_prediction_is_not_a_number_is_picked_last() -> None:
    logits = P.log().clamp_min(-1e4)
    logits[2] = torch.nan
    assert (
        simulation({"a": Table(logits, logits, [0])}, Entropy()).selected(4)["a"][-1] == 2
    )


def test_a_model_that_diverged_is_named_with_its_site() -> None:
    site = Table(torch.full((3, 2), torch.nan).double(), torch.zeros(3, 2).double(), [0])
    with pytest.raises(RuntimeError, match=r"Entropy\.select failed at site a .* diverged"):
        simulation({"a": site}, Entropy()).query(1)
