"""Callbacks receive the events of a study, and their errors do not stop it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest

import fallow as fl
from fallow.cli.options import Track
from fallow.core.events import Event
from fallow.core.extensions import OFFICIAL
from fallow.core.training_config import TrainingConfig
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.study.callbacks import (
    Callback,
    CallbackList,
    TrackedRun,
    list_parameters,
)
from fallow.study.study_run import StudyRun
from tests.cli.conftest import Command
from tests.integrations.conftest import QUICK


@dataclass
class Notes(Callback):
    """Writes down what it hears."""

    messages: list[str] = field(default_factory=list)
    runs: list[TrackedRun] = field(default_factory=list)
    scores: list[Mapping[str, float]] = field(default_factory=list)
    page: Path | None = None

    def begin_run(self, run: TrackedRun) -> None:
        self.messages.append(f"begin {run.name}")
        self.runs.append(run)

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        self.messages.append(f"cycle {cycle}")
        self.scores.append(scores)

    def end_run(self, run: TrackedRun, reason: str | None) -> None:
        self.messages.append(f"end {run.name}: {reason}")

    def end(self, page: Path | None) -> None:
        self.messages.append("over")
        if page is not None:
            assert "<html" in page.read_text()[:500].lower()
        self.page = page


@dataclass
class Broken(Callback):
    """Fails whenever it hears of a score."""

    calls: int = 0

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        self.calls += 1
        raise ConnectionError("the server of the tracker is away")


@dataclass
class Counter(Callback):
    """Counts scores, and takes no page: none is drawn for it."""

    scores: int = 0

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        self.scores += 1


@pytest.mark.long
def test_a_callback_hears_a_run_from_its_settings_to_its_page(
    simulation: fl.Federation, tmp_path: Path
) -> None:
    notes = Notes()
    run = fl.run(simulation, "entropy", callbacks=[notes], out=tmp_path / "a", **QUICK)
    assert notes.messages == [
        "begin entropy, seed 0",
        "cycle 0",
        "cycle 1",
        "end entropy, seed 0: None",
        "over",
    ]
    assert notes.page == tmp_path / "a" / "report.html"
    last = run.records.iloc[-1]
    assert notes.scores[-1] == {
        "accuracy": last["accuracy"],
        "labeled": last["labeled"],
        "bytes_up": last["bytes_up"],
        "bytes_down": last["bytes_down"],
        "epsilon": 0.0,
    }
    (tracked,) = notes.runs
    assert tracked.is_alone
    assert tracked.parameters["strategy"] == "entropy"
    assert tracked.parameters["partition"] == "dirichlet:alpha=1.0"


@pytest.mark.long
def test_callbacks_hear_every_run_of_a_comparison_and_what_noise_has_cost(
    simulation: fl.Federation,
) -> None:
    notes = Notes()
    strategies = ["ahfal@privacy.epsilon=1", "random"]
    fl.compare(simulation, strategies, seeds=1, callbacks=[notes], **QUICK)
    assert sorted(line for line in notes.messages if line.startswith("end")) == [
        "end ahfal@privacy.epsilon=1, seed 0: None",
        "end random, seed 0: None",
    ]
    assert not any(run.is_alone for run in notes.runs)
    assert notes.runs[0].parameters["privacy.epsilon"] == 1
    assert [scores["epsilon"] for scores in notes.scores] == [0.0, 1.0, 0.0, 0.0]
    assert notes.messages[-1] == "over"


def test_a_callback_that_fails_is_one_warning_and_the_run_goes_on(
    simulation: fl.Federation,
) -> None:
    broken = Broken()
    counter = Counter()
    with pytest.warns(RuntimeWarning) as caught:
        run = fl.run(simulation, "random", callbacks=[broken, counter], **QUICK)
    assert [str(item.message) for item in caught] == [
        "Broken receives no more events of this study, which continues: "
        "the server of the tracker is away"
    ]
    assert broken.calls == 1
    assert len(run.records) == counter.scores == 2


def test_callbacks_hear_that_an_error_or_a_stop_has_ended_a_run() -> None:
    cells = [StudyRun("random", 0), StudyRun("random", 1)]
    notes = Notes()

    def stop() -> None:
        with CallbackList([notes], ExperimentConfig("mine"), cells, print) as output:
            output({"event": "query", "cycle": 0, "strategy": "random", "seed": 0})
            output(
                {"event": "failed", "reason": "no rows", "strategy": "random", "seed": 0}
            )
            output({"event": "query", "cycle": 0, "strategy": "random", "seed": 1})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert notes.messages == [
        "begin random, seed 0",
        "end random, seed 0: no rows",
        "begin random, seed 1",
        "end random, seed 1: stopped",
        "over",
    ]


def test_a_run_that_was_finished_before_is_not_told_again() -> None:
    notes = Notes()
    done: Event = {"event": "done", "cached": True, "strategy": "random", "seed": 0}
    with CallbackList(
        [notes], ExperimentConfig("mine"), [StudyRun("random", 0)], print
    ) as output:
        output(done)
    assert notes.messages == ["over"]


def test_the_folder_of_a_persons_data_is_no_parameter(tmp_path: Path) -> None:
    table = tmp_path / "ward of jane" / "patients.csv"
    table.parent.mkdir()
    table.write_text("age,sick\n1,no\n")
    parameters = list_parameters(
        config_from({"data": str(table)}, ExperimentConfig("mine"))
    )
    assert parameters["data"] == "patients.csv"
    assert not any("jane" in str(value) for value in parameters.values())


def test_trackers_get_the_learning_rate_of_the_model_family() -> None:
    config = ExperimentConfig("mine", model=Spec("mlp"), training_config=TrainingConfig())
    parameters = list_parameters(config)
    assert parameters["training_config.optimizer.lr"] == 0.1
    assert parameters["training_config.batch_size"] == 16


def test_a_parameter_is_a_number_or_a_text_whatever_the_setting() -> None:
    settings = {"budget": [0.1, 0.2], "cycles": 2, "drop": ["a", "b"]}
    config = config_from(settings, ExperimentConfig("mine"))
    parameters = list_parameters(config)
    assert all(isinstance(value, str | int | float) for value in parameters.values())
    assert parameters["budget"] == "[0.1, 0.2]"
    assert parameters["drop"] == '["a", "b"]'
    assert "seeds" not in parameters


def test_the_command_names_the_trackers_that_there_are(
    fallow: Command, folder: Path
) -> None:
    refused = fallow("run", "tiny.toml", "--out", "a", "--track", "mlfow")
    assert refused.says() == (
        "there is no tracker 'mlfow'; there are mlflow, tensorboard, wandb"
    )
    assert not (folder / "a").exists()
    help_ = str(get_args(Track)[1].help)
    assert all(name in help_ for name in OFFICIAL["fallow.callbacks"])
