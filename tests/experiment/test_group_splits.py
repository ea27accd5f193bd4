"""Runs whose data have groups: training, validation and evaluation set."""

from __future__ import annotations

from dataclasses import replace

import torch

from fallow.core.streams import stream
from fallow.data import from_arrays
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.experiment.steps import find_fresh, hold_back
from fallow.measurements.evaluation_set import EvaluationSet, has_new_group
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.strategies import Margin
from tests.simulations import simulation, tables

CONFIG = ExperimentConfig(
    "grouped",
    partition=Spec("iid"),
    sites=2,
    strategy=Spec("margin"),
    initial=8,
    budget=6,
    cycles=3,
    rounds=1,
    score_rounds=1,
    bounds=(),
    validation=0.4,
)


def test_no_group_is_in_training_and_validation_over_a_run() -> None:
    draw = stream(0, "rows")
    x = torch.randn(120, 3, generator=draw)
    y = (x[:, 0] > 0).long()
    dataset = from_arrays(x, y, groups=torch.randint(25, (120,), generator=draw))
    for config in (CONFIG, replace(CONFIG, evaluation_fraction=0.3)):
        event_log = EventLog()
        simulated = environment_of(config, 0, dataset, event_log)
        ExperimentRun(simulated, event_log).go()
        for site in simulated.members.values():
            assert site.groups is not None
            training = set(site.groups[site.labeled].tolist())
            validation = set(site.groups[site.validation].tolist())
            assert training and validation and not training & validation


def test_a_new_label_joins_the_earlier_ones_of_its_group() -> None:
    groups = torch.tensor([0, 0, 1, 1, 2, 3])
    earlier = [Label(0, 0.0, 0, is_validation=True), Label(2, 1.0, 0)]
    new = [Label(row, float(row % 2), 1) for row in (1, 3, 4, 5)]
    for seed in range(5):
        labels = hold_back(new, 0.5, True, seed, groups, earlier)
        is_out = {label.row: label.is_validation for label in labels}
        assert is_out[1] and not is_out[3]
        assert is_out[4] != is_out[5]
    one = hold_back(new[2:3], 0.5, True, 0, groups, earlier)
    assert not one[0].is_validation


def test_new_labels_that_validate_first_bring_the_labels_of_their_groups() -> None:
    labels = [Label(0, 0.0, 0), Label(1, 0.0, 1), Label(2, 1.0, 0), Label(4, 1.0, 1)]
    assert find_fresh(labels, 2, None) == [1, 4]
    assert find_fresh(labels, 2, torch.tensor([7, 7, 8, 8, 9])) == [0, 1, 4]


def test_an_evaluation_set_has_no_group_with_an_earlier_label() -> None:
    built = simulation(tables(rows=12, labels=4), Margin(), 0)
    site = built.members["a"]
    parts = site.parts
    parts.methods["evaluation_set"] = EvaluationSet(0.5)
    is_known = torch.arange(12) < 7  # of the pool, as the four labeled ones
    site.groups = torch.where(is_known, torch.arange(12) % 4, torch.arange(12))
    site.groups = torch.cat([site.groups, torch.arange(4)])
    view = SiteView(site, 0)
    assert has_new_group(view).tolist() == (~is_known).tolist()
    drawn = EvaluationSet(0.5).draw(view, 12, 6.0)
    assert sorted(drawn.rows.tolist()) == [7, 8, 9, 10, 11]
    assert drawn.probability is not None and float(drawn.probability.max()) == 1.0
