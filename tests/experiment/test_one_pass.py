"""The protocol of FALE: independent budgets, scaling of tables, and shared budgets."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data import load
from fallow.data.loaders.frame import from_frame
from fallow.experiment.event_log import EventLog
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.record import Record
from fallow.experiment.rows import open_data
from fallow.experiment.run import ExperimentRun
from fallow.experiment.scale import is_standardized
from fallow.experiment.simulation import SimulatedEnvironment, build_environment
from fallow.settings.config import ExperimentConfig, config_from, with_settings
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from fallow.study.preparation import open_study, prepare_study
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from fallow.study.trained import predict_file
from tests.experiment.crash import KILLED, WELL, exchanges, work
from tests.experiment.test_personal_environment import error_of
from tests.training.test_scaling import rows_of

FALE = "fale@training=server-solve@initial=0"


@pytest.fixture
def config(tmp_path: Path) -> ExperimentConfig:
    """Return 90 examples of 3 features on different scales, with a linear target."""
    draw = np.random.default_rng(0)
    x = draw.standard_t(3, size=(120, 3)) * [1.0, 100.0, 0.01] + [0.0, 1e4, 5.0]
    y = 3e3 + x @ [1.0, 0.05, 300.0] + draw.normal(size=120)
    np.savez(
        tmp_path / "numbers.npz",
        x=x[:90],
        y=y[:90],
        x_test=x[90:],
        y_test=y[90:],
    )
    return ExperimentConfig(
        name="numbers",
        data=str(tmp_path / "numbers.npz"),
        partition=Spec("iid"),
        sites=3,
        training_config=TrainingConfig((TrainingStage(25),), 32, Optimizer("adam", 0.01)),
        rounds=1,
        score_rounds=1,
        initial=2,
        budget=5,
        cycles=2,
        bounds=(),
    )


def run_query(config: ExperimentConfig, strategy: str, seed: int = 0) -> list[Record]:
    event_log = EventLog()
    run = ExperimentRun(
        build_environment(variant(config, strategy), seed, event_log), event_log
    )
    return run.go()


def run_and_read(
    config: ExperimentConfig, strategy: str, out: Path
) -> list[dict[str, Any]]:
    cell = StudyRun(strategy, 0)
    run_one(Setup(config, out), cell)
    lines = (cell.folder(out) / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def list_bought_rows(out: Path, strategy: str, cycle: int) -> list[tuple[str, int]]:
    event_log = EventLog(
        StudyRun(strategy, 0).folder(out) / f"budget-{cycle}" / "event_log.sqlite"
    )
    bought_rows = [
        (site, label.row)
        for site in ("site-0", "site-1", "site-2")
        for label in event_log.load_labels(site)
    ]
    event_log.close()
    return bought_rows


def test_a_strategy_that_chooses_once_starts_anew_for_every_budget(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    rows = run_and_read(config, FALE, tmp_path / "out")
    assert [row["cycle"] for row in rows] == [1, 2]
    assert [row["labeled"] for row in rows] == [
        15,
        30,
    ]  # 5 per site and cycle, and no initial labels
    small, large = (
        set(list_bought_rows(tmp_path / "out", FALE, cycle)) for cycle in (1, 2)
    )
    assert not small <= large


@pytest.mark.long
def test_first_labels_are_random_or_the_strategys_own(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    beside = run_and_read(config, "fale@training=server-solve", tmp_path / "a")
    own = run_and_read(
        config, "fale@training=server-solve@initial_by=query", tmp_path / "b"
    )
    assert [r["labeled"] for r in beside] == [r["labeled"] for r in own] == [21, 36]
    weights = [label.weight for label in _labels(tmp_path / "a", 1)]
    assert weights.count(1.0) == 6
    assert all(
        label.weight != 1.0 for label in _labels(tmp_path / "b", 1, by_strategy=True)
    )


def _labels(out: Path, cycle: int, by_strategy: bool = False) -> list[Any]:
    strategy = "fale@training=server-solve"
    if by_strategy:
        strategy += "@initial_by=query"
    event_log = EventLog(
        StudyRun(strategy, 0).folder(out) / f"budget-{cycle}" / "event_log.sqlite"
    )
    outcome = [label for i in range(3) for label in event_log.load_labels(f"site-{i}")]
    event_log.close()
    return outcome


@pytest.mark.long
def test_a_budget_that_is_done_is_not_run_again(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    whole = run_and_read(config, FALE, tmp_path / "whole")
    first = Setup(config, tmp_path / "count")
    cell = StudyRun(FALE, 0)
    assert work(first, cell) == WELL
    moments = int((first.out / "points").read_text())
    killed = Setup(config, tmp_path / "killed")
    deaths = [work(killed, cell, deadly) for deadly in range(3, moments, moments // 8)]
    assert KILLED in deaths
    again = run_and_read(config, FALE, tmp_path / "killed")
    assert [drop_seconds(row) for row in again] == [drop_seconds(row) for row in whole]
    asked = [key for key in exchanges(killed.out) if key.startswith("0/query")]
    assert len(asked) < 3 * len(
        [k for k in exchanges(first.out) if k.startswith("0/query")]
    )


def drop_seconds(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "seconds"}


def test_a_shared_budget_goes_where_the_scores_are(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    (row, _) = run_and_read(config, FALE, tmp_path)
    bought = [counts[0] for counts in row["labeled_per_site"].values()]
    assert sum(bought) == 15 and bought != [5, 5, 5]


def test_a_strategy_that_looks_at_a_model_cannot_choose_from_nothing(
    config: ExperimentConfig,
) -> None:
    with pytest.raises(
        ValueError, match="core-set needs a model, and under protocol=one_pass"
    ):
        prepare_study(Setup(config, Path()), ["core-set@protocol=one_pass"], 0)
    with pytest.raises(ValueError, match="which requires protocol=one_pass"):
        prepare_study(Setup(config, Path()), ["random@initial_by=query"], 0)
    assert not is_one_pass(variant(config, "fale@protocol=cycles"))


def test_a_run_may_begin_without_any_label(config: ExperimentConfig) -> None:
    rows = run_query(config, "random@initial=0")
    assert [row["labeled"] for row in rows] == [0, 15, 30]
    assert error_of(rows[0]) > error_of(rows[-1])


def test_a_cycle_buys_its_budget_in_parts(config: ExperimentConfig) -> None:
    event_log = EventLog()
    run = ExperimentRun(
        build_environment(replace(config, queries_per_cycle=3), 0, event_log), event_log
    )
    assert [row["labeled"] for row in run.go()] == [6, 21, 36]
    steps = ("0/query", "0/query-1", "0/query-2", "1/query", "1/query-1", "1/query-2")
    assert all(event_log.load_step(step) for step in steps)
    bought = [label.row for label in event_log.load_labels("site-0")]
    assert len(bought) == len(set(bought)) == 12


def test_units_of_columns_are_agreed_on_and_test_rows_follow(
    config: ExperimentConfig,
) -> None:
    event_log = EventLog()
    run = ExperimentRun(build_environment(config, 0, event_log), event_log)
    run.initial()
    raw = open_data(config, 0)
    assert isinstance(run.simulation, SimulatedEnvironment)
    seen = torch.cat([rows_of(site) for site in run.simulation.members.values()])
    assert torch.allclose(seen.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(seen.std(0, correction=0), torch.ones(3), atol=1e-5)
    mean = raw.x.double().mean(0)
    std = raw.x.double().std(0, correction=0)
    assert torch.allclose(
        run.simulation.dataset.x_test, ((raw.x_test - mean) / std).float(), atol=1e-4
    )
    shown = {row["function"]: row for row in run.initial()["revealed"]}
    assert {"columns", "spread"} <= set(shown)


def test_units_of_numbers_come_from_labels_that_were_bought(
    config: ExperimentConfig,
) -> None:
    event_log = EventLog()
    run = ExperimentRun(build_environment(config, 0, event_log), event_log)
    run.first_phase()
    bought = [label.value for i in range(3) for label in event_log.load_labels(f"site-{i}")]
    targets = run.simulation.targets
    assert targets is not None and len(bought) == 6
    assert float(targets["mean"]) == pytest.approx(np.mean(bought), rel=1e-12)
    assert float(targets["std"]) == pytest.approx(np.std(bought), rel=1e-9)


@pytest.mark.long
def test_scores_do_not_depend_on_the_units_of_the_data(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    arrays = dict(np.load(config.data))
    for name in ("y", "y_test"):
        arrays[name] = arrays[name] * 1000 - 7
    np.savez(tmp_path / "other.npz", **arrays)
    other = replace(config, data=str(tmp_path / "other.npz"))
    for strategy in ("random", "random@training=server-solve"):
        a, b = (error_of(run_query(r, strategy)[-1]) for r in (config, other))
        assert a == pytest.approx(b, rel=1e-3)
        assert 0 < a < 1.5


def test_a_trainer_on_raw_columns_is_worse_than_on_agreed_ones(
    config: ExperimentConfig,
) -> None:
    agreed = run_query(config, "random")[-1]
    raw = run_query(config, "random@standardize=none")[-1]
    assert error_of(agreed) < error_of(raw)


def test_predictions_are_in_the_units_of_the_data(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    arrays = dict(np.load(config.data))
    table = tmp_path / "table.csv"
    rows = np.hstack([arrays["x"], arrays["y"][:, None]])
    np.savetxt(table, rows, delimiter=",", header="a,b,c,y", comments="")
    own = replace(
        config,
        data=str(table),
        label="y",
        training=Spec("server-solve"),
        initial=1.0,
        cycles=0,
    )
    setup, _ = prepare_study(Setup(own, tmp_path / "out"), ["random"], 0)
    open_study(setup, [StudyRun("random", 0)], "test", resume=False)
    run_one(setup, StudyRun("random", 0))
    new = tmp_path / "new.csv"
    np.savetxt(new, arrays["x_test"], delimiter=",", header="a,b,c", comments="")
    path = predict_file(setup.out, new).path
    predictions = np.array(
        [float(r["prediction"]) for r in csv.DictReader(path.read_text().splitlines())]
    )
    assert np.mean((predictions - arrays["y_test"]) ** 2) < 2.5  # the noise has variance 1


def test_trainer_is_a_short_form(config: ExperimentConfig) -> None:
    long = variant(config, "random@trainer=10x3")
    assert (long.rounds, long.training_config.epochs) == (10, 3)
    with pytest.raises(ValueError, match="trainer=10 is not of the form ROUNDSxEPOCHS"):
        variant(config, "random@trainer=10")


def test_a_bound_may_have_settings_of_its_own(config: ExperimentConfig) -> None:
    best = run_query(config, "bound:all-labels@training=server-solve")
    assert [row["labeled"] for row in best] == [90]
    bought = run_query(config, "random@training=server-solve")
    assert error_of(best[0]) <= error_of(bought[-1])
    with pytest.raises(ValueError, match="is not an upper bound"):
        variant(config, "bound:most-labels")


def test_other_test_rows_for_every_seed(config: ExperimentConfig) -> None:
    again = replace(config, resplit=True)
    a = open_data(again, 0)
    b = open_data(again, 1)
    c = open_data(again, 0)
    assert torch.equal(a.x_test, c.x_test) and not torch.equal(a.x_test, b.x_test)
    assert (len(a.x), len(a.x_test)) == (90, 30)
    everything = torch.cat([a.y, a.y_test]).sort().values
    assert torch.equal(everything, torch.cat([b.y, b.y_test]).sort().values)


def test_rows_may_be_what_a_frozen_model_sees() -> None:
    digits = ExperimentConfig(
        "d", data="digits", features=Spec("mlp", {"hidden": [7]}), rows=30
    )
    assert open_data(digits, 0).x.shape == (30, 7)
    assert torch.equal(open_data(digits, 0).x_test, open_data(digits, 1).x_test)


def test_the_new_settings_are_settings(config: ExperimentConfig) -> None:
    made = config_from(
        {"name": "a", "initial": 0, "protocol": "one_pass", "features": "lenet"}
    )
    assert (made.initial, made.protocol, made.features) == (0, "one_pass", Spec("lenet"))
    assert with_settings(made, {"queries_per_cycle": "30"}).queries_per_cycle == 30
    with pytest.raises(ValueError, match="budget is 0"):
        config_from({"name": "a", "budget": 0})


def test_one_pass_without_a_cycle_is_refused(config: ExperimentConfig) -> None:
    with pytest.raises(ValueError, match="and cycles is 0; set cycles=1 or more"):
        is_one_pass(replace(config, cycles=0, protocol="one_pass"))


def test_a_table_of_the_user_is_scaled_whatever_its_name() -> None:
    frame = pd.DataFrame({"age": np.arange(12) * 1.5, "sick": ["no", "yes"] * 6})
    for name in ("mine", "wine"):
        data = from_frame(frame, label="sick", name=name)
        assert is_standardized(ExperimentConfig("a", data=name), data)
    assert not is_standardized(ExperimentConfig("a", data="wine"), load("wine"))
