"""A study: results do not depend on its processes, and runs fail independently."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.core.events import Event
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from fallow.study.preparation import open_study, prepare_study
from fallow.study.reading import read_study
from fallow.study.study import find_context, list_runs, run_one, run_study
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import load_outcome, tiny

STRATEGIES = ("random", "ahfal")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tiny(tmp_path), tmp_path / "study")


def open_new_study(
    setup: Setup, seeds: tuple[int, ...] = (0,), resume: bool = False
) -> list[StudyRun]:
    cells = list_runs(setup.config, STRATEGIES, seeds)
    open_study(setup, cells, "fallow compare tiny", resume)
    return cells


@pytest.mark.long
def test_two_processes_give_bit_for_bit_what_one_gives(
    setup: Setup, tmp_path: Path
) -> None:
    one = setup
    two = replace(setup, out=tmp_path / "two")
    cells = open_new_study(one)
    events: list[Event] = []
    assert run_study(one, cells, jobs=1) == []
    assert run_study(two, open_new_study(two), jobs=2, notify=events.append) == []
    assert [load_outcome(two, cell) for cell in cells] == [
        load_outcome(one, cell) for cell in cells
    ]
    assert sum(event["event"] == "done" for event in events) == len(cells)


@pytest.mark.skipif(sys.platform != "linux", reason="copies of a process are for Linux")
@pytest.mark.parametrize(("threads", "started"), [(1, "fork"), (2, "spawn")])
def test_processes_of_one_thread_are_copies_that_import_nothing(
    threads: int, started: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    context = find_context(replace(setup, threads=threads))
    assert context is not None
    assert context.get_start_method() == started


def test_a_cell_that_fails_is_reported_and_the_others_finish(setup: Setup) -> None:
    cells = [
        StudyRun("random", 0),
        StudyRun("tests.experiment.crash:Nothing", 0),
        StudyRun("ahfal", 0),
    ]
    events: list[Event] = []
    (failure,) = run_study(setup, cells, notify=events.append)
    assert failure.cell == cells[1]
    assert "'tests.experiment.crash:Nothing' could not be loaded" in failure.reason
    assert "Traceback" in failure.trace
    assert [e["strategy"] for e in events if e["event"] == "done"] == ["random", "ahfal"]
    assert [e["reason"] for e in events if e["event"] == "failed"] == [failure.reason]


def test_training_that_diverges_is_said_to_with_its_site(setup: Setup) -> None:
    wild = TrainingConfig((TrainingStage(3),), 8, Optimizer(lr=3e38, momentum=0.9))
    (failure,) = run_study(
        replace(setup, config=replace(setup.config, training_config=wild)),
        [StudyRun("random", 0)],
    )
    assert (
        "site site-0 replied to 'upload' with w that is NaN or infinite" in failure.reason
    )
    assert "diverged" in failure.reason


def test_a_study_says_what_it_is(setup: Setup) -> None:
    open_new_study(setup, (0, 1))
    description = json.loads((setup.out / "study.json").read_text())
    assert description["strategies"] == ["random", "ahfal"]
    assert description["seeds"] == [0, 1]
    assert description["reference"] == "random"
    assert description["digest"] == setup.config.digest
    assert read_study(setup.out).study.name == "tiny"


def test_a_resumed_study_can_grow(setup: Setup) -> None:
    open_new_study(setup, (0,))
    bounded = replace(setup, config=replace(setup.config, bounds=("pooled",)))
    open_study(bounded, list_runs(bounded.config, ("entropy",), [3]), "again", resume=True)
    description = json.loads((setup.out / "study.json").read_text())
    assert description["strategies"] == ["random", "ahfal", "entropy", "bound:pooled"]
    assert description["seeds"] == [0, 3]


def test_a_study_is_not_opened_twice_by_accident(setup: Setup) -> None:
    open_new_study(setup)
    with pytest.raises(ValueError, match="already contains a study; add --resume"):
        open_new_study(setup)


def test_a_study_is_not_resumed_with_other_settings(setup: Setup) -> None:
    open_new_study(setup)
    before = (setup.out / "study.json").read_bytes()
    other = replace(setup, config=replace(setup.config, rounds=9, name="else"))
    with pytest.raises(ValueError, match=r"started with other settings \(rounds differ\)"):
        open_new_study(other, resume=True)
    assert (setup.out / "study.json").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"configuration": {}}', b"\xff\xfe", b'{"configuration": 3}']
)
def test_a_damaged_description_is_reported(setup: Setup, content: bytes) -> None:
    open_new_study(setup)
    (setup.out / "study.json").write_bytes(content)
    with pytest.raises(
        StorageError, match=r"study\.json is damaged .*: choose another folder"
    ):
        open_new_study(setup, resume=True)


def test_a_run_is_not_resumed_on_data_that_have_changed(setup: Setup) -> None:
    run_one(setup, StudyRun("random", 0))
    (StudyRun("random", 0).folder(setup.out) / "model.safetensors").unlink()
    content = bytearray(Path(setup.config.data).read_bytes())
    tiny(Path(setup.config.data).parent)
    run_one(setup, StudyRun("random", 0))  # the same data, written again
    import numpy as np

    with np.load(setup.config.data) as arrays:
        changed = {**arrays, "x": arrays["x"] + 1}
    np.savez(setup.config.data, **changed)
    (StudyRun("random", 0).folder(setup.out) / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has changed since"):
        run_one(setup, StudyRun("random", 0))
    Path(setup.config.data).write_bytes(content)


def test_a_damaged_checkpoint_stops_its_run_and_no_other(setup: Setup) -> None:
    cells = open_new_study(setup)
    assert run_study(setup, cells) == []
    folder = cells[0].folder(setup.out)
    (folder / "model.safetensors").unlink()
    (folder / "checkpoints" / "cycle-1.safetensors").write_bytes(b"no longer a model")
    (failure,) = run_study(setup, cells)
    assert failure.cell == cells[0]
    assert "cycle-1.safetensors is damaged" in failure.reason
    assert f"delete the folder {folder} and run again with --resume" in failure.reason


def test_whatever_cannot_work_is_found_before_a_file_is_written(setup: Setup) -> None:
    config = setup.config
    for wrong, sentence in [
        (replace(config, data="digts"), "did you mean 'digits'"),
        (replace(config, model=Spec("lenett")), "did you mean 'lenet'"),
        (replace(config, partition=Spec("dirichlet", {"alpha": 0})), "alpha"),
        (
            replace(config, sites=61, initial=0.5),
            "60 examples cannot be distributed over 61 sites",
        ),
        (replace(config, sites=1), "ahfal compares sites and needs at least 2"),
        (
            replace(config, partition=Spec("natural"), sites=0),
            "the data name no sites, which the partition natural needs",
        ),
        (
            replace(config, executor="stacked", model=Spec("tests.cli.models:Own")),
            "'stacked' trains",
        ),
    ]:
        with pytest.raises(ValueError, match=sentence):
            prepare_study(replace(setup, config=wrong), ["ahfal"], 0)
    pictures = replace(
        config, data="digits", model=Spec("resnet8"), training=Spec("dpfl"), validation=0.5
    )
    with pytest.raises(ValueError, match=r"dpfl .* batch norm, .*such as lenet"):
        prepare_study(replace(setup, config=pictures), ["random"], 0)
    for strategy, sentence in [
        ("ahfl", "did you mean 'ahfal'"),
        ("ahfal:tua=3", "did you mean 'tau'"),
        ("ahfal:tau=high", "tau is 'high'; it must be a number"),
        ("ahfal:toggle=perhaps", "toggle is 'perhaps'"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            prepare_study(setup, ["random", strategy], 0)
    assert not setup.out.exists()


def test_every_natural_site_is_counted_where_none_is(tmp_path: Path) -> None:
    lines = [f"{['north', 'south', 'east'][i % 3]},{i % 7},{i % 2}" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["ward,x,sick", *lines]))
    config = ExperimentConfig(
        "a",
        data=str(tmp_path / "a.csv"),
        label="sick",
        site="ward",
        partition=Spec("natural"),
        sites=0,
    )
    setup, simulation = prepare_study(Setup(config, tmp_path / "study"), ["random"], 0)
    assert setup.config.sites == 3
    assert list(simulation.members) == ["east", "north", "south"]


def test_regression_runs_without_what_needs_classes(tmp_path: Path) -> None:
    config = ExperimentConfig(
        "d", data="diabetes", partition=Spec("iid"), sites=3, rounds=2, cycles=1
    )
    setup, _ = prepare_study(Setup(config, tmp_path / "study"), ["random"], 0)
    assert setup.config.bounds == ("all-labels",)
    with pytest.raises(
        ValueError, match="entropy requires classes and diabetes is a regression"
    ):
        prepare_study(Setup(config, tmp_path / "study"), ["random", "entropy"], 0)
    run_one(setup, StudyRun("random", 0))
    lines = (
        (StudyRun("random", 0).folder(setup.out) / "records.jsonl").read_text().splitlines()
    )
    record = json.loads(lines[-1])
    assert record["mse"] > 0
    assert record["accuracy"] is record["per_class"] is record["labeled_per_class"] is None
