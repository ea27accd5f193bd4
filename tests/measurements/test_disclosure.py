"""Measurement ``disclosure``: a run is attacked with what its coordinator holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fallow as fl
from fallow.api.runs import Run
from fallow.measurements.attacks import LinearFeatures
from fallow.measurements.disclosure import Aggregates, Observed, Phase, attack
from fallow.measurements.results import AttackResult, describe_attack

EXACT = {"training": fl.ClosedForm()}
NOISY = {
    "training": fl.ClosedForm(delta=1e-5),
    "privacy": fl.Privacy(epsilon=1.0),
}


def patients() -> fl.Dataset:
    """Return a table of 60 patients with five measured columns and two classes."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((80, 5)) * [5, 20, 1, 0.3, 9] + [60, 130, 5, 0, 70]
    y = (x[:, 0] + draw.standard_normal(80) > 60).astype(int)
    rows = torch.from_numpy(x).float()
    labels = torch.from_numpy(y)
    return fl.Dataset(
        "patients", rows[:60], labels[:60], rows[60:], labels[60:], ("well", "ill")
    )


def run(**settings: Any) -> Run:
    """Run a study of three hospitals."""
    return fl.run(
        fl.Federation(patients(), fl.IID(), sites=3),
        fl.Random(),
        encoder=fl.Fourier(features=20),
        initial=4,
        budget=1,
        progress=False,
        **settings,
    )


def measure(**settings: Any) -> dict[str, AttackResult]:
    """Return the attacks on a run, by what the attacker sees."""
    records = run(measure=["disclosure"], **settings).records
    attacks: list[AttackResult] = records["disclosure"].iloc[-1]
    return {attack["attack"]: attack for attack in attacks}


def test_exact_sums_of_a_table_are_its_rows() -> None:
    attacks = measure(**EXACT, cycles=1)
    first = attacks["first products"]
    assert (first["rows"], first["read"]) == (12, 12)
    assert first["error"] is not None and first["error"] < 1e-3
    assert first["unknowns"] == 12 * 5
    assert attacks["difference of products"]["rows"] == 3
    assert attacks["difference of products"]["read"] == 3
    assert attacks["last products"]["read"] == 15


def test_releases_that_each_add_one_example_of_a_class_are_its_rows() -> None:
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((9, 4))
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0])
    ones = np.ones(4)
    phases = []
    for n in (6, 8, 9):
        phi = np.concatenate([rows[:n], np.ones((n, 1))], 1)
        classes = rows[:n].T @ np.eye(2)[labels[:n]]
        sums = Aggregates(n, phi.T @ phi, classes)
        phases.append(Phase(sums, rows[:n], labels[:n]))
    observed = Observed(LinearFeatures(ones, 0 * ones, 0 * ones), phases, seconds=3.0)
    read = {
        attempt.result["attack"]: attempt.result["read"] for attempt in attack(observed)
    }
    assert read["last products"] == 0
    assert read["all releases"] == 3


def test_secure_aggregation_does_not_hide_rows() -> None:
    attacks = measure(**EXACT, cycles=0, privacy=fl.Privacy(secure_sum=True))
    first = attacks["first products"]
    assert first["read"] == 12
    assert describe_attack(first).startswith(
        "first products: 12 of 12 examples read within"
    )


def test_no_row_is_read_from_sums_with_noise() -> None:
    attacks = measure(**NOISY, cycles=0)
    assert attacks["first products"]["rows"] == 12
    assert all(attack["read"] == 0 for attack in attacks.values())


def test_a_record_compares_exact_numbers_with_values_and_leaves_out_noise() -> None:
    exact = run(**EXACT, cycles=0).records["exposure"].iloc[-1]
    products = 20 * 21 // 2 + 20 + 2 * 20
    assert exact["largest"] >= products
    assert exact["numbers"] > exact["largest"]
    assert (exact["rows"], exact["values"]) == (4, 5)
    noisy = run(**NOISY, cycles=0).records["exposure"].iloc[-1]
    assert 0 < noisy["numbers"] < exact["largest"]


def test_other_training_is_refused() -> None:
    with pytest.raises(ValueError, match="attacks the sums of closed-form training"):
        measure(training=fl.FedAvg(), cycles=0)
