"""The evaluated model is the deployed model."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

import fallow as fl
from fallow.engine import predict
from fallow.experiment.evaluate import collaborators, pseudo_labels, redundancy
from fallow.experiment.event_log import EventLog
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, build_environment
from fallow.settings.config import config_from
from fallow.sites.view import SiteView
from tests.experiment.test_personal_environment import run_config, scores_of_sites

TINY = {
    "name": "tiny",
    "data": "digits",
    "rows": 120,
    "test_rows": 60,
    "sites": 3,
    "rounds": 2,
    "cycles": 0,
    "score_rounds": 1,
}


def records(**changes: object) -> list[Record]:
    config = config_from({**TINY, **changes})
    event_log = EventLog()
    return ExperimentRun(build_environment(config, 0, event_log), event_log).go()


def test_one_model_for_all_has_no_scores_by_site() -> None:
    (row,) = records(model="linear")
    assert row["per_site"] is None
    assert row["accuracy"] is not None and 0 <= row["accuracy"] <= 1


def test_with_statistics_that_stay_at_sites_each_site_is_scored() -> None:
    (row,) = records(model="tests.experiment.norm:Norm", training="fedavg:bn=local")
    by_site = scores_of_sites(row)
    assert set(by_site) == {"site-0", "site-1", "site-2"}
    assert len(set(by_site.values())) > 1
    assert row["accuracy"] == fmean(by_site.values())
    assert row["per_class"] is not None and len(row["per_class"]) == 10


def test_pseudo_labels_are_judged_by_the_hidden_ones() -> None:
    event_log = EventLog()
    config = config_from({**TINY, "model": "linear", "cycles": 1})
    simulation = build_environment(config, 0, event_log)
    run = ExperimentRun(simulation, event_log)
    run.first_phase()
    hits = 0
    rows = 0
    for name, site in simulation.members.items():
        x = site.x[site.pool]
        guess = predict(
            simulation.model, simulation.layout, site.memory["local"], x
        ).argmax(1)
        hits += int((guess == simulation.oracle.hidden[name][site.pool]).sum())
        rows += len(x)
    values = pseudo_labels(simulation)
    assert values is not None
    assert (
        values["accuracy"] == pytest.approx(hits / rows) and len(values["per_class"]) == 10
    )
    first, last = run.go()
    assert first["pseudo_labels"] == values
    assert last["pseudo_labels"] is None  # no query follows the last phase


def test_numbers_to_predict_have_no_pseudo_labels() -> None:
    (row, _) = records(data="diabetes", model="linear", cycles=1, partition="iid")
    assert row["pseudo_labels"] is None


def test_where_nothing_is_trained_before_rows_are_chosen_there_are_no_pseudo_labels() -> (
    None
):
    event_log = EventLog()
    config = config_from({**TINY, "model": "linear", "cycles": 1, "strategy": "typical"})
    simulation = build_environment(config, 0, event_log)
    row = ExperimentRun(simulation, event_log).one_pass(1)[0]
    assert row["labeled"] > 0
    assert row["pseudo_labels"] is None


QUICK: dict[str, Any] = {
    "cycles": 0,
    "initial": 0.2,
    "rounds": 3,
    "score_rounds": 2,
    "progress": False,
}


def test_the_training_loss_is_that_of_the_model_on_the_labeled_examples() -> None:
    simulation = fl.Federation("iris", fl.IID(), sites=3)
    run = fl.run(simulation, "random", training="fedavg", model="mlp", **QUICK)
    true_rows = simulation.rows()
    shares = []
    for site, rows in run.labels.groupby("site"):
        x = simulation.dataset.x[true_rows[site]][rows["row"].tolist()]
        outputs = run.model(x)  # type: ignore[operator]
        shares += cross_entropy(
            outputs, torch.tensor(rows["value"].tolist()).long(), reduction="none"
        ).tolist()
    expected = sum(shares) / len(shares) / math.log(3)
    assert run.records["training_loss"].iloc[-1] == pytest.approx(expected, rel=1e-5)
    counts = torch.bincount(simulation.dataset.y_test)
    assert run.records["majority"].iloc[-1] == pytest.approx(
        float(counts.max()) / len(simulation.dataset.y_test)
    )


@pytest.mark.long
def test_models_that_are_solved_for_have_none() -> None:
    run = fl.run("iris", "random", cycles=0, sites=3, progress=False)
    assert run.records["training_loss"].isna().all()


def test_a_run_that_learns_nothing_has_the_majority_in_its_repr() -> None:
    simulation = fl.Federation("diabetes", fl.IID(), sites=3)
    run = fl.run(simulation, "random", training="fedavg", lr=1e-9, **QUICK)
    assert "predicting the mean has 1" in repr(run)
    assert run.records["training_loss"].iloc[-1] > 0.9


def run_with_queries(training: str) -> tuple[SimulatedEnvironment, list[Record]]:
    return run_config(
        training=training, cycles=1, initial=6, budget=3, rounds=3, restart="continue"
    )


def make_simulation_with_picks(training: str = "dpfl:graph=full") -> SimulatedEnvironment:
    simulation, _ = run_with_queries(training)
    for k, site in enumerate(simulation.members.values()):
        site.remember("selected", {"rows": site.pool[k : k + 2]})
    return simulation


def test_it_is_the_mean_of_the_largest_cosines_to_rows_of_collaborators() -> None:
    simulation = make_simulation_with_picks()
    result = []
    for name, site in simulation.members.items():
        others = [other for other in simulation.members if other != name]
        assert collaborators(site) == others
        view = SiteView(site, 0)
        known = torch.cat(
            [simulation.members[o].seen[simulation.members[o].bought] for o in others]
        )
        z = view.look(site.memory["average"], known)[0].double()
        for row in site.memory["selected"]["rows"]:
            mine = view.look(site.memory["average"], site.seen[row][None])[0].double()
            result.append(float(cosine_similarity(mine, z).max()))
    assert redundancy(simulation) == pytest.approx(sum(result) / len(result), abs=1e-6)


def test_what_a_collaborator_has_labeled_itself_is_as_redundant_as_can_be() -> None:
    simulation = make_simulation_with_picks()
    first, second, *_ = simulation.members.values()
    rows = first.memory["selected"]["rows"]
    second.x[second.bought.nonzero()[:2, 0]] = first.x[rows]
    for site in simulation.members.values():
        if site is not first:
            site.remember("selected", None)
    assert redundancy(simulation) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.long
def test_without_collaborators_there_is_none() -> None:
    assert redundancy(make_simulation_with_picks("local")) is None
    assert redundancy(make_simulation_with_picks("dpfl:budget=1")) is None
    simulation = make_simulation_with_picks()
    for site in simulation.members.values():
        site.remember("selected", None)
    assert redundancy(simulation) is None


def test_records_have_it_for_every_query() -> None:
    for training, is_known in (("dpfl:graph=full", True), ("local", False)):
        _, rows = run_with_queries(training)
        first = rows[0]["pseudo_labels"]
        last = rows[-1]["pseudo_labels"]
        assert isinstance(first, dict) and last is None
        assert (first["redundancy"] is not None) == is_known
