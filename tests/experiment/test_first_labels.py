"""Selection of the initial labeled set."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fallow.data import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

PLACES = 6
EXPERIMENT = ExperimentConfig(
    "few",
    partition=Spec("iid"),
    sites=3,
    strategy=Spec("random"),
    initial=2,
    initial_by="typical",
    budget=1,
    cycles=1,
    rounds=1,
    score_rounds=1,
    bounds=(),
)


def places(rows: int = 180) -> Dataset:
    """Return examples around six centers, half of them at one; the center is the class."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % (2 * PLACES)
    y = torch.where(y < PLACES, y, 0)
    x = 20.0 * torch.eye(PLACES)[y] + torch.randn(rows, PLACES, generator=draw)
    cut = rows * 2 // 3
    names = tuple("abcdef")
    return Dataset("places", x[:cut], y[:cut], x[cut:], y[cut:], classes=names)


def begin_run(config: ExperimentConfig, seed: int = 0) -> ExperimentRun:
    event_log = EventLog()
    run = ExperimentRun(environment_of(config, seed, places(), event_log), event_log)
    run.initial()
    return run


def classes_of(run: ExperimentRun) -> set[int]:
    simulation = run.simulation
    return {int(y) for site in simulation.members.values() for y in site.labels}  # type: ignore[attr-defined]


@pytest.mark.long
def test_typical_first_labels_find_all_places_and_random_ones_do_not() -> None:
    outcome = [len(classes_of(begin_run(EXPERIMENT, seed))) for seed in range(5)]
    drawn = [
        len(classes_of(begin_run(replace(EXPERIMENT, initial_by="random"), k)))
        for k in range(5)
    ]
    assert min(outcome) >= 5
    assert sum(outcome) > sum(drawn) + 3


def test_each_site_has_its_own_number_of_first_labels() -> None:
    run = begin_run(EXPERIMENT)
    assert [len(site.labels) for site in run.simulation.members.values()] == [2, 2, 2]  # type: ignore[attr-defined]


def test_a_cohort_and_seed_give_the_same_first_labels_again() -> None:
    one = begin_run(EXPERIMENT)
    other = begin_run(EXPERIMENT)
    for name, site in one.simulation.members.items():  # type: ignore[attr-defined]
        assert torch.equal(site.labeled, other.simulation.members[name].labeled)  # type: ignore[attr-defined]


def test_without_first_labels_nothing_is_asked() -> None:
    run = begin_run(replace(EXPERIMENT, initial=0))
    assert classes_of(run) == set()


def test_noise_on_counts_refuses_typical_first_labels_and_says_why() -> None:
    with pytest.raises(ValueError, match="initial_by=typical"):
        begin_run(replace(EXPERIMENT, privacy=Privacy(epsilon=1.0)))


def test_a_run_with_typical_first_labels_ends_and_names_what_left() -> None:
    run = begin_run(EXPERIMENT)
    records = run.go()
    assert records[-1]["labeled"] == 9
    functions = {entry["function"] for entry in records[0]["revealed"]}
    assert {"groups", "bids", "select"} <= functions


def test_the_word_is_part_of_a_digest_only_where_it_is_used() -> None:
    assert ExperimentConfig("a").digest == ExperimentConfig("a", initial_by="random").digest
    assert (
        ExperimentConfig("a").digest != ExperimentConfig("a", initial_by="typical").digest
    )
