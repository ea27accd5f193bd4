"""Support for personalized training: validation labels, kept models, test examples."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from fallow import training
from fallow.core.build import build, find
from fallow.data.dataset import Dataset
from fallow.engine import predict
from fallow.experiment.event_log import EventLog
from fallow.experiment.metrics import of_accuracy
from fallow.experiment.record import Record
from fallow.experiment.rows import split_rows, split_tests
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import (
    SimulatedEnvironment,
    build_environment,
    partition_of,
)
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from fallow.sites.view import SiteView
from fallow.training import FedAvg, personal

TINY = {
    "name": "tiny",
    "data": "digits",
    "rows": 200,
    "test_rows": 80,
    "sites": 4,
    "rounds": 4,
    "cycles": 0,
    "initial": 1.0,
    "budget_allocation": "proportional",
    "partition": "patho:min_samples=2",
    "validation": 0.2,
    "test": "own",
    "score_rounds": 2,
}


def run_config(seed: int = 0, **changes: Any) -> tuple[SimulatedEnvironment, list[Record]]:
    event_log = EventLog()
    simulation = build_environment(config_from({**TINY, **changes}), seed, event_log)
    return simulation, ExperimentRun(simulation, event_log).go()


def scores_of_sites(row: Record) -> dict[str, float]:
    """Return the score of each site; all sites have one."""
    result = {}
    for name, score in (row["per_site"] or {}).items():
        assert score is not None
        result[name] = score
    return result


def error_of(row: Record) -> float:
    """Return the mean squared error of a regression run."""
    error = row["mse"]
    assert error is not None
    return error


@pytest.fixture(scope="module")
def fedavg() -> tuple[SimulatedEnvironment, list[Record]]:
    return run_config()


def test_every_site_is_scored_with_its_best_model_on_its_own_test_rows(
    fedavg: tuple[SimulatedEnvironment, list[Record]],
) -> None:
    simulation, (_, row) = fedavg
    assert simulation.tests is not None
    by_site = scores_of_sites(row)
    assert sorted(simulation.tests) == sorted(by_site) == sorted(simulation.members)
    hits = 0
    rows = 0
    for name, site in simulation.members.items():
        at = simulation.tests[name]
        x = simulation.dataset.x_test[at]
        y = simulation.dataset.y_test[at]
        guess = predict(simulation.model, simulation.layout, site.memory["best"], x).argmax(
            1
        )
        assert by_site[name] == pytest.approx(float((guess == y).double().mean()))
        hits = hits + int((guess == y).sum())
        rows = rows + len(y)
    scores = list(by_site.values())
    assert row["accuracy"] == pytest.approx(fmean(scores))
    assert row["accuracy_weighted"] == pytest.approx(hits / rows)
    assert row["variance"] == pytest.approx(1e4 * np.var(scores))
    assert row["worst_tenth"] == min(scores)
    assert row["point"] == "retained"
    assert [r["final"] for r in fedavg[1]] == [False, True]


def test_what_is_retained_validated_at_least_as_well_as_the_last_model(
    fedavg: tuple[SimulatedEnvironment, list[Record]],
) -> None:
    simulation, (_, row) = fedavg
    for name, site in simulation.members.items():
        best = site.memory["best"]
        guess = SiteView(site, 0).look(best, site.x[site.validation])[1].argmax(1)
        labels = simulation.oracle.hidden[name][site.validation]
        assert float(best["score"]) == pytest.approx(
            float((guess == labels).double().mean())
        )
        assert row["retained"][name] == int(best["turn"]) < 4


def test_labels_held_back_are_bought_and_train_nothing(
    fedavg: tuple[SimulatedEnvironment, list[Record]],
) -> None:
    simulation, (_, row) = fedavg
    for name, site in simulation.members.items():
        assert len(site.validation) == pytest.approx(0.2 * len(site.x), abs=3)
        assert not set(site.validation.tolist()) & set(site.labeled.tolist())
        assert len(site.pool) == 0
        assert (
            len(site.labels) == int(site.counts.sum()) == sum(row["labeled_per_site"][name])
        )
    assert row["labeled"] == 200
    assert row["labels_validation"] == sum(
        len(s.validation) for s in simulation.members.values()
    )
    per_class = row["labeled_per_class"]
    assert per_class is not None
    assert sum(per_class) == 200 - row["labels_validation"]


def test_every_purchase_of_a_run_is_split() -> None:
    simulation, rows = run_config(
        initial=5,
        budget=5,
        cycles=2,
        budget_allocation="equal",
        validation=0.4,
        rounds=1,
        score_rounds=1,
    )
    assert [row["labels_validation"] for row in rows] == [8, 16, 24]
    assert [row["labeled"] for row in rows] == [20, 40, 60]
    assert {len(site.validation) for site in simulation.members.values()} == {6}


def test_retention_is_evaluation_and_not_counted_among_the_bytes(
    fedavg: tuple[SimulatedEnvironment, list[Record]],
) -> None:
    _, plain = run_config(validation=0.0)
    assert fedavg[1][-1]["bytes_down"] == plain[-1]["bytes_down"]
    assert fedavg[1][-1]["bytes_up"] == plain[-1]["bytes_up"]
    assert plain[-1]["labels_validation"] == 0
    assert all(r["final"] for r in plain)


def test_one_model_for_all_is_scored_once_where_nothing_is_held_back() -> None:
    _, rows = run_config(validation=0.0, test="common")
    assert [row["point"] for row in rows] == ["post_agg"] * 2
    assert [rows[-1][key] for key in ("per_site", "accuracy_weighted", "variance")] == [
        None
    ] * 3


def test_a_model_of_each_site_is_scored_without_validation_too() -> None:
    simulation, rows = run_config(training="tests.experiment.alone:Alone", validation=0.0)
    assert [row["point"] for row in rows] == ["deployed"] * 2
    assert len(set(scores_of_sites(rows[-1]).values())) > 1
    models = [site.memory["local"]["w"] for site in simulation.members.values()]
    assert not torch.equal(models[0], models[1])


def test_after_its_last_word_a_method_is_scored_as_it_deploys() -> None:
    simulation, rows = run_config(training="tests.experiment.alone:Tuned")
    assert simulation.tests is not None
    assert [row["point"] for row in rows] == ["retained", "deployed"]
    assert [row["final"] for row in rows] == [False, True]
    for name, site in simulation.members.items():
        at = simulation.tests[name]
        assert not torch.equal(site.memory["tuned"]["w"], site.memory["best"]["w"])
        guess = predict(
            simulation.model,
            simulation.layout,
            site.memory["tuned"],
            simulation.dataset.x_test[at],
        )
        hits = (guess.argmax(1) == simulation.dataset.y_test[at]).double().mean()
        assert scores_of_sites(rows[-1])[name] == pytest.approx(float(hits))


def test_a_method_that_starts_at_the_best_model_needs_labels_held_back() -> None:
    with pytest.raises(ValueError, match="has no model 'best' to start training from"):
        run_config(training="tests.experiment.alone:Tuned", validation=0.0)


def test_a_method_that_predicts_in_its_own_way_is_scored_so() -> None:
    simulation, rows = run_config(training="tests.experiment.alone:Stubborn")
    assert simulation.tests is not None
    for name, site in simulation.members.items():
        majority = int(site.counts.argmax())
        share = (
            (simulation.dataset.y_test[simulation.tests[name]] == majority).double().mean()
        )
        assert scores_of_sites(rows[-1])[name] == pytest.approx(float(share))


def test_flipped_sites_learn_wrong_labels_and_are_not_scored() -> None:
    simulation, rows = run_config(flip=2)
    honest, _ = run_config(rounds=1, score_rounds=1)
    assert len(simulation.flipped) == 2
    assert partition_of(simulation)["flipped"] == list(simulation.flipped)
    assert partition_of(honest)["flipped"] == []
    assert set(scores_of_sites(rows[-1])) == set(simulation.members) - set(
        simulation.flipped
    )
    assert torch.equal(simulation.dataset.y_test, honest.dataset.y_test)
    for name, site in simulation.members.items():
        true = honest.oracle.hidden[name]
        expected = true
        if name in simulation.flipped:
            expected = 9 - true
        assert torch.equal(site.labels, expected[site.labeled])
        labels = SiteView(site, 0).validation_labels
        assert torch.equal(labels, expected[site.validation])


def test_own_test_rows_follow_the_classes_of_a_site_and_are_used_once(
    fedavg: tuple[SimulatedEnvironment, list[Record]],
) -> None:
    simulation, _ = fedavg
    assert simulation.tests is not None
    used = torch.cat([*simulation.tests.values()]).tolist()
    assert len(used) == len(set(used)) == 80
    for name, rows in simulation.tests.items():
        holds = set(simulation.oracle.hidden[name].tolist())
        assert set(simulation.dataset.y_test[rows].tolist()) <= holds


def group_rows(y: torch.Tensor, classes: tuple[str, ...]) -> Dataset:
    """Return six training and four test examples of three sites, the last untested."""
    return Dataset(
        "grouped",
        torch.randn(6, 2),
        y[:6],
        torch.randn(4, 2),
        y[6:],
        classes,
        torch.tensor([0, 0, 1, 1, 2, 2]),
        torch.tensor([1, 0, 1, 0]),
        ("x", "y", "z"),
    )


def test_natural_sites_are_tested_on_the_rows_of_their_group() -> None:
    config = ExperimentConfig("a", partition=Spec("natural"), sites=3, test="own")
    for y, classes in ((torch.arange(10) % 2, ("no", "yes")), (torch.randn(10), ())):
        outcome = group_rows(y, classes)
        tests = split_tests(config, outcome, split_rows(config, outcome, 0), 0)
        assert tests is not None
        assert [rows.tolist() for rows in tests.values()] == [[1, 3], [0, 2], []]


def test_numbers_without_natural_sites_have_no_test_rows_of_their_own() -> None:
    config = ExperimentConfig("a", partition=Spec("iid"), sites=2, test="own")
    rows = group_rows(torch.randn(10), ())
    with pytest.raises(ValueError, match="is a regression task; use test=common"):
        split_tests(config, rows, split_rows(config, rows, 0), 0)


def test_scores_over_sites_by_hand() -> None:
    guess = {"a": [0, 0], "b": [1], "c": [1, 0, 1, 1], "d": []}
    true = {"a": [0, 1], "b": [1], "c": [1, 1, 1, 0], "d": []}
    p, y = (
        {k: torch.tensor(v, dtype=torch.int64) for k, v in part.items()}
        for part in (guess, true)
    )
    row = of_accuracy(p, y, 2)
    assert row["per_site"] == {"a": 0.5, "b": 1.0, "c": 0.5, "d": None}
    assert row["accuracy"] == pytest.approx(2 / 3)
    assert row["accuracy_weighted"] == pytest.approx(4 / 7)
    assert row["variance"] == pytest.approx(1e4 / 18)
    assert row["worst_tenth"] == 0.5
    assert row["per_class"] == [0.5, 0.6]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"validation": 1.0}, "validation is 1.0; it is the fraction"),
        ({"validation": -0.1}, "validation is -0.1"),
        ({"flip": 4}, "flip is 4 of 4 sites"),
        ({"flip": -1}, "flip is -1"),
        ({"training_config": {"start": "warm"}}, "training_config.start is 'warm'"),
        ({"test": "mine"}, "test is 'mine'; it must be 'common' or 'own'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_from({**TINY, **settings})


def test_sites_that_the_data_names_are_counted_before_they_are_flipped() -> None:
    config = ExperimentConfig("a", partition=Spec("natural"), sites=0, flip=3)
    assert replace(config, sites=4).flip == 3
    with pytest.raises(ValueError, match="flip is 3 of 3 sites"):
        replace(config, sites=3)


def test_numbers_to_predict_cannot_be_flipped() -> None:
    with pytest.raises(ValueError, match="flip changes classes"):
        run_config(data="diabetes", partition="iid", test="common", flip=1)


def test_numbers_to_predict_are_validated_by_their_error() -> None:
    simulation, rows = run_config(
        data="diabetes", partition="iid", test="common", model="linear"
    )
    by_site = scores_of_sites(rows[-1])
    assert sorted(by_site) == sorted(simulation.members)
    assert rows[-1]["mse"] == pytest.approx(fmean(by_site.values()))
    assert all(
        float(site.memory["best"]["score"]) < 0 for site in simulation.members.values()
    )


def test_all_rows_in_one_place_are_a_bound_without_flips_or_own_test_rows() -> None:
    bound = variant(config_from({**TINY, "flip": 1}), "bound:pooled")
    assert (bound.sites, bound.flip, bound.test) == (1, 0, "common")


def test_training_methods_are_found_in_both_packages() -> None:
    assert find((training, personal), "fed-avg") is FedAvg
    with pytest.raises(
        ValueError, match="'fed-agv' is not one of the training algorithms; did you"
    ):
        build((training, personal), "fed-agv")


@pytest.mark.parametrize("seed", [0, 1])
def test_flipped_sites_that_stay_alone_are_those_of_the_seed(seed: int) -> None:
    settings = {"training": "dpfl:alone=flipped:graph=full", "flip": 2, "rounds": 4}
    simulation, rows = run_config(seed, score_rounds=4, **settings)
    receivers = {site for row in rows for site in row["graph"]}
    assert receivers == set(simulation.members) - set(simulation.flipped)
