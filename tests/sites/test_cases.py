"""Cases: rows that are selected and annotated together."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import fallow as fl
from fallow.experiment.event_log import EventLog
from fallow.experiment.methods import list_untrained
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.cases import Cases
from fallow.sites.seen_rows import seen_rows
from fallow.sites.view import SiteView
from fallow.storage.features import FeatureStore
from fallow.study.estimate import estimate
from fallow.study.study_run import Setup, StudyRun
from tests.each import each_of

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
SHARES = np.random.default_rng(1).dirichlet([1, 1], size=40).astype(np.float32)
LABELS = ["yes" if share > 0.5 else "no" for share in SHARES[:, 1]]
PATIENTS = np.random.default_rng(2).integers(0, 12, size=40)
NAMES = list(dict.fromkeys(PATIENTS.tolist()))  # in the order of their first rows
ROWS = [torch.as_tensor(patient == PATIENTS) for patient in NAMES]
COLUMNS = ["a", "b", "c", "prediction:no", "prediction:yes"]
DATA = fl.from_arrays(
    np.column_stack([X, SHARES]),
    LABELS,
    columns=COLUMNS,
    groups=PATIENTS,
    x_test=[[0, 0, 0, 1, 0]],
    y_test=["no"],
    groups_test=[99],
)
CASES = ExperimentConfig(
    "toy",
    training=Spec("none", {"cases": "group"}),
    encoder=Spec("identity"),
    standardize="none",
    partition=Spec("iid"),
    sites=1,
    initial=0,
    budget=2,
    cycles=1,
    rounds=1,
    score_rounds=1,
)


def select(config: ExperimentConfig) -> tuple[SimulatedEnvironment, list[int]]:
    event_log = EventLog()
    run = ExperimentRun(environment_of(config, 0, DATA, event_log), event_log)
    run.go()
    simulation = cast(SimulatedEnvironment, run.simulation)
    return simulation, [label.row for label in event_log.load_labels("site-0")]


@each_of("strategy", list_untrained("features", "predictions"))
def test_each_strategy_selects_cases_within_the_budget(strategy: str) -> None:
    _, selected = select(replace(CASES, strategy=Spec(strategy)))
    assert len(set(selected)) == 2
    assert max(selected) < len(NAMES)


def test_a_case_has_mean_and_maximum_of_its_rows_and_their_mean_prediction() -> None:
    simulation, selected = select(replace(CASES, strategy=Spec("margin")))
    x = torch.as_tensor(X)
    expected = [torch.cat([x[at].mean(0), x[at].amax(0)]) for at in ROWS]
    view = SiteView(simulation.members["site-0"], 0)
    assert_close(view.rows("all"), torch.stack(expected))
    margins = [abs(float(SHARES[at].mean(0) @ [1, -1])) for at in ROWS]
    assert sorted(selected) == sorted(np.argsort(margins)[:2].tolist())


def test_features_of_cases_are_those_of_the_slices_in_use() -> None:
    training = Spec("none", {"cases": "group", "every": 2, "central": 1})
    simulation, _ = select(replace(CASES, training=training))
    x = torch.as_tensor(X)
    middle = [x[at][(int(at.sum()) - 1) // 2] for at in ROWS if at.sum() < 4]
    expected = torch.stack(middle).repeat(1, 2)
    small = torch.tensor([bool(at.sum() < 4) for at in ROWS])
    z = SiteView(simulation.members["site-0"], 0).rows("all")
    assert len(z) == len(NAMES)
    assert_close(z[small], expected)
    with pytest.raises(ValueError, match="every and central are for slices of cases"):
        fl.NoTraining(every=2)


def test_features_of_cases_are_scaled_over_all_sites() -> None:
    config = replace(CASES, standardize="federated", sites=2, strategy=Spec("core-set"))
    simulation, _ = select(config)
    views = [SiteView(site, 0) for site in simulation.members.values()]
    z = torch.cat([view.rows("all") for view in views]).double()
    assert z.shape == (len(NAMES), 6)
    assert_close(z.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-6, rtol=0)
    assert_close(z.square().sum(1).mean(), torch.tensor(1.0, dtype=torch.float64))


def test_an_encoder_is_fitted_to_the_rows_of_cases() -> None:
    encoder = Spec("tabular", {"features": 16, "gamma": 0.5})
    of_cases, _ = select(replace(CASES, encoder=encoder))
    of_rows, _ = select(replace(CASES, encoder=encoder, training=Spec("none")))
    assert of_cases.encoded_by is not None
    assert of_rows.encoded_by is not None
    assert_close(of_cases.encoded_by, of_rows.encoded_by)


def test_features_in_a_file_give_the_same_cases(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, memory=0)
    file = store.features("key", torch.as_tensor(X), 3, lambda rows: rows)
    assert not isinstance(file, torch.Tensor)
    cases = Cases.of_groups(torch.as_tensor(PATIENTS))
    rows = seen_rows(file, None, None, torch.float32)
    assert_close(cases.join_features(rows), cases.join_features(torch.as_tensor(X)))


def test_budgets_and_records_count_cases() -> None:
    def choose(**settings: Any) -> fl.Run:
        usual: dict[str, Any] = {"sites": 2, "initial": 0, "partition": "iid"}
        return fl.run(
            DATA,
            "typical",
            training="none:cases=group",
            encoder="identity",
            cycles=1,
            progress=False,
            **usual | settings,
        )

    last = choose(budget=0.5).records.iloc[-1]
    assert (last["pool"], last["labeled"]) == (len(NAMES), 6)
    assert last["distance"] < last["random_distance"]
    with pytest.raises(ValueError, match="than the unlabeled pool of 12 examples"):
        choose(budget=7)


def test_a_dry_run_counts_cases(tmp_path: Path) -> None:
    setup = Setup(CASES, tmp_path, dataset=DATA)
    expected = estimate(setup, [StudyRun("random", 0)], 1)
    assert (expected.runs, expected.rows) == (1, 2 * CASES.completed_training.epochs)


@each_of(
    "settings, sentence",
    [
        ({"data": "digits"}, "the rows have no groups; name their column with --group"),
        ({"training": "closed-form:cases=group"}, "no setting 'cases'"),
    ],
)
def test_cases_are_refused_where_they_have_no_effect(
    settings: dict[str, Any], sentence: str
) -> None:
    usual: dict[str, Any] = {"data": DATA, "training": "none:cases=group"}
    chosen = usual | settings
    with pytest.raises(ValueError, match=sentence):
        fl.run(chosen.pop("data"), sites=2, cycles=1, progress=False, **chosen)


def test_cases_without_an_encoder_are_refused() -> None:
    with pytest.raises(ValueError, match="set encoder=identity"):
        environment_of(replace(CASES, encoder=None), 0, DATA, EventLog())
