"""Measurement ``disclosure``: a run is attacked with what its coordinator holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fallow as fl
from fallow.api.runs import Run
from fallow.measurements.attacks import CosineFeatures, LinearFeatures, NetworkFeatures
from fallow.measurements.disclosure import (
    Aggregates,
    Observed,
    Phase,
    _compare,
    attack,
    find_levels,
)
from fallow.measurements.results import AttackResult, describe_attack

EXACT = {"training": fl.ClosedForm(unlabeled="off")}
NOISY = {
    "training": fl.ClosedForm(delta=1e-5),
    "privacy": fl.Privacy(epsilon=1.0),
}


def patients(n: int = 60) -> fl.Dataset:
    """Return a table of ``n`` patients with five measured columns and two classes."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((80, 5)) * [5, 20, 1, 0.3, 9] + [60, 130, 5, 0, 70]
    y = (x[:, 0] + draw.standard_normal(80) > 60).astype(int)
    rows = torch.from_numpy(x).float()
    labels = torch.from_numpy(y)
    return fl.Dataset(
        "patients", rows[:n], labels[:n], rows[60:], labels[60:], ("well", "ill")
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


def test_all_columns_are_read_where_as_many_as_rows_have_few_levels() -> None:
    draw = np.random.default_rng(1)
    codes = draw.integers(0, 2, (5, 4)) * 2 - 1.0
    rows = np.concatenate([codes, draw.standard_normal((5, 2))], 1)
    with_one = np.concatenate([rows, np.ones((5, 1))], 1)
    sums = Aggregates(5, with_one.T @ with_one, np.zeros((6, 1)))
    ones = np.ones(6)
    observed = Observed(
        LinearFeatures(ones, 0 * ones, 0 * ones), [Phase(sums, rows, np.zeros(5))]
    )
    read = []
    for levels in ((), find_levels(rows[:, :4]) + 2 * [np.zeros(0)]):
        read.append(attack(replace(observed, levels=levels))[0].result["read"])
    assert read == [0, 5]


def test_classes_are_columns_with_two_levels() -> None:
    draw = np.random.default_rng(1)
    labels = np.array([0, 1, 2, 1, 0])
    codes = np.array([[1.0, 1], [1, 1], [1, 1], [1, -1], [-1, 1]])
    rows = np.concatenate([codes, draw.standard_normal((5, 2))], 1)
    with_one = np.concatenate([rows, np.ones((5, 1))], 1)
    y = np.eye(3)[labels]
    sums = Aggregates(5, with_one.T @ with_one, rows.T @ y)
    ones = np.ones(4)
    levels = [*find_levels(rows[:, :2]), *[np.zeros(0)] * 2]
    features = LinearFeatures(ones, 0 * ones, 0 * ones)
    read = []
    for counts in (np.zeros(0), y.sum(0)):
        phase = Phase(sums._replace(counts=counts), rows, labels)
        first = attack(Observed(features, [phase], levels=levels))[0]
        read.append(first.result["read"])
    assert read == [2, 5]


def test_examples_of_one_site_are_read_from_the_model_of_all_sites() -> None:
    draw = np.random.default_rng(2)
    rows = draw.standard_normal((4, 3))
    w = draw.standard_normal((64, 3))
    features = CosineFeatures(w, draw.uniform(0, 6, 64), 1.0, np.zeros(64), np.ones(64))
    phi, _ = features.linearize(rows)
    y = np.eye(2)[[0, 1, 1, 0]] - 0.5
    head = phi.T @ np.linalg.solve(phi @ phi.T + np.eye(4), y)
    own = rows[:2]
    sums = Aggregates(9, np.zeros((1, 1)), np.zeros((64, 1)))  # of more rows than numbers
    phase = Phase(sums, own, np.zeros(2))
    read = {}
    for others in (3, 100):  # at most so many, of which 2 are real
        observed = Observed(features, [phase], head=head, others=others, seconds=5)
        last = attack(observed)[-1].result
        assert last["unknowns"] == (2 + others) * (3 + 1)
        read[others] = last["read"]
    assert read == {3: 2, 100: 0}


def test_folds_of_labels_are_read_where_all_labels_are_too_many() -> None:
    draw = np.random.default_rng(1)
    rows = draw.standard_normal((8, 2))
    labels = np.tile([0, 1], 4)
    w = draw.standard_normal((6, 2))
    features = CosineFeatures(w, draw.uniform(0, 6, 6), 1.0, np.zeros(6), np.ones(6))

    def add(of: Any) -> Phase:
        z, _ = features.linearize(rows[of])
        phi = np.concatenate([z, np.ones((len(z), 1))], 1)
        sums = Aggregates(len(z), phi.T @ phi, z.T @ np.eye(2)[labels[of]])
        return Phase(sums, rows[of], labels[of])

    folds = [add(slice(first, first + 2)) for first in (0, 2, 4, 6)]
    observed = Observed(features, [add(slice(0, 8))], folds, add(slice(0, 8)), seconds=2)
    read = {one.result["attack"]: one.result["read"] for one in attack(observed)}
    assert read["first products"] == read["products of all examples"] == 0
    assert read["folds of the last labels"] == 8


def test_self_training_sends_all_rows_of_a_small_table() -> None:
    federation = fl.Federation(patients(9), fl.IID(), sites=3)
    few: Any = {"initial": 2, "cycles": 0, "progress": False, "measure": ("disclosure",)}
    done = fl.run(federation, fl.Random(), encoder=fl.Fourier(features=20), **few)
    attacks = {one["attack"]: one for one in done.records["disclosure"].iloc[-1]}
    of_all = attacks["products of all examples"]
    assert (attacks["first products"]["rows"], of_all["rows"]) == (6, 9)
    assert of_all["read"] > 6  # also rows without a label


def test_a_rare_category_is_read_from_sums_of_columns() -> None:
    levels = np.repeat(["a", "b", "c"], [31, 28, 1])
    frame = pd.DataFrame(
        {"drug": levels, "age": np.arange(60) % 9, "ill": np.arange(60) % 2}
    )
    federation = fl.Federation(fl.from_frame(frame, label="ill"), sites=1)
    few: Any = {"initial": 40, "cycles": 0, "progress": False, "measure": ("disclosure",)}
    done = fl.run(federation, fl.Random(), encoder="identity", **few)
    first = done.records["disclosure"].iloc[-1][0]
    assert first["attack"] == "first products"
    assert first["read"] == 1


def test_only_images_are_compared_up_to_brightness_and_contrast() -> None:
    rows = np.array([[0.0, 1.0], [2.0, -1.0], [1.0, 1.0]])
    ones = np.ones(2)
    shapes = [(2,), (1, 2)]
    read = []
    for shape in shapes:
        network = torch.nn.Flatten()
        features = NetworkFeatures(network, shape, 0 * ones, ones, 0 * ones, ones)
        tried = _compare(Observed(features, []), "any", rows[:1] * 3, rows, 9, 0.0)
        read.append(tried.result["read"])
    assert read[0] == 0 < read[1]
