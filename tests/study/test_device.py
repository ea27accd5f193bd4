"""A study on a device: its records, and its continuation after a device failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.preparation import open_study
from fallow.study.study import run_study
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import tiny
from tests.study.faulty import Faulty

CELL = StudyRun("ahfal", 0)


@pytest.fixture(autouse=True)
def whole() -> Any:
    Faulty.fails_at = None
    Faulty.passes = 0
    yield
    Faulty.fails_at = None


def on(device: str, config: ExperimentConfig) -> ExperimentConfig:
    return replace(config, device=device, dtype="float64")  # type: ignore[arg-type]


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (CELL.folder(folder) / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def scores(folder: Path) -> list[tuple[int, float, list[str]]]:
    return [(r["labeled"], r["accuracy"], r["notes"]) for r in records(folder)]


def test_records_say_on_what_they_were_made(tmp_path: Path) -> None:
    setup = Setup(on("cpu", tiny(tmp_path)), tmp_path / "study")
    assert run_study(setup, [CELL]) == []
    for record in records(setup.out):
        assert record["executor"] == "device"
        assert record["versions"]["device"] == "cpu"
        assert record["versions"]["precision"] == "float32"


def test_records_of_runs_without_a_device_are_as_ever(tmp_path: Path) -> None:
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    assert run_study(setup, [CELL]) == []
    assert "device" not in records(setup.out)[0]["versions"]


@pytest.mark.long
@pytest.mark.parametrize("after", ["cpu", "none"])
def test_a_run_whose_device_fails_goes_on_there_or_on_the_processor(
    tmp_path: Path, after: str
) -> None:
    own = replace(tiny(tmp_path), model=Spec("tests.study.faulty:Faulty"))
    undisturbed = Setup(on("none", own), tmp_path / "undisturbed")
    assert run_study(undisturbed, [CELL]) == []

    setup = Setup(on("cpu", own), tmp_path / "study")
    open_study(setup, [CELL], "fallow compare", resume=False)
    Faulty.fails_at = Faulty.passes * 3 // 2  # in the middle of the run
    (failure,) = run_study(setup, [CELL])
    assert "device cpu failed while it trained (CUDA error: unspecified" in failure.reason
    assert "continue with --resume, or on the CPU with --resume --set" in failure.reason

    Faulty.fails_at = None
    passes = Faulty.passes
    rest = replace(setup, config=on(after, own))
    open_study(rest, [CELL], "fallow compare", resume=True)
    assert run_study(rest, [CELL]) == []
    assert Faulty.passes > passes
    assert scores(rest.out) == scores(undisturbed.out)


def test_a_study_that_goes_on_elsewhere_is_the_same_in_everything_else(
    tmp_path: Path,
) -> None:
    setup = Setup(on("cpu", tiny(tmp_path)), tmp_path / "study")
    open_study(setup, [CELL], "fallow compare", resume=False)
    other = replace(setup, config=replace(on("none", setup.config), rounds=9))
    with pytest.raises(
        ValueError, match=r"started with other settings \(rounds, device differ"
    ):
        open_study(other, [CELL], "fallow compare", resume=True)


def test_a_digest_without_a_device_is_that_of_before(tmp_path: Path) -> None:
    plain = ExperimentConfig("a")
    assert plain.digest == ExperimentConfig("a", device="none", precision="float32").digest
    assert ExperimentConfig("a", device="cpu").digest != plain.digest
    assert plain.is_digested_as(
        ExperimentConfig("a", device="cuda", precision="tf32").digest
    )
    assert not plain.is_digested_as(ExperimentConfig("a", device="cuda", rounds=9).digest)
