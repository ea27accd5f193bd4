"""Test each tracker with the real package in local mode; `make adapters` installs them."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.core.extensions import OFFICIAL
from fallow.study.callbacks import load_tracker
from fallow_trackers import MLflow, TensorBoard, WandB
from tests.cli.conftest import Command
from tests.integrations.conftest import QUICK, fallow, folder, simulation

__all__ = ["fallow", "folder", "simulation"]  # fixtures

STRATEGIES = ["random", "entropy"]


@pytest.mark.parametrize("name", OFFICIAL["fallow.callbacks"])
def test_a_missing_package_is_one_sentence_that_names_the_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="which is not installed") as error:
        load_tracker(name, tmp_path)
    assert f"pip install 'fallow-trackers[{name}]'" in str(error.value)
    assert not list(tmp_path.iterdir())


# -- MLflow --------------------------------------------------------------------------------


def test_mlflow_keeps_settings_scores_and_the_page_of_one_run(
    simulation: fl.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow_client(tmp_path, monkeypatch)
    run = fl.run(simulation, "entropy", callbacks=[MLflow()], **QUICK)
    (kept,) = mlflow_runs(client)
    assert kept.info.run_name == "entropy, seed 0"
    assert kept.info.status == "FINISHED"
    assert kept.data.params["strategy"] == "entropy"
    assert kept.data.params["training_config.batch_size"] == "16"
    history = client.get_metric_history(kept.info.run_id, "accuracy")
    assert [(point.step, point.value) for point in history] == list(
        enumerate(run.records["accuracy"])
    )
    assert kept.data.metrics["bytes_up"] == run.records["bytes_up"].iloc[-1]
    page = client.download_artifacts(kept.info.run_id, "report.html", str(tmp_path))
    assert "entropy" in Path(page).read_text()


def test_mlflow_keeps_the_runs_of_a_comparison_side_by_side(
    simulation: fl.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow_client(tmp_path, monkeypatch)
    fl.compare(simulation, STRATEGIES, seeds=2, jobs=2, callbacks=[MLflow()], **QUICK)
    kept = mlflow_runs(client)
    assert sorted(run.info.run_name for run in kept) == [
        "entropy, seed 0",
        "entropy, seed 1",
        "random, seed 0",
        "random, seed 1",
        "report",
    ]
    (report,) = [run for run in kept if run.info.run_name == "report"]
    assert [file.path for file in client.list_artifacts(report.info.run_id)] == [
        "report.html"
    ]


def test_a_server_of_mlflow_that_is_away_is_a_warning(
    simulation: fl.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.warns(RuntimeWarning, match="MLflow receives no more events of this study"):
        run = fl.run(simulation, callbacks=[MLflow("http://127.0.0.1:9")], **QUICK)
    assert len(run.records) == 2


def mlflow_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # untyped package
    """Yield a client of a folder in which MLflow keeps runs until the test ends."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (folder / "mlruns").as_uri())
    return mlflow.tracking.MlflowClient()


def mlflow_runs(client: Any) -> list[Any]:
    (experiment,) = [item for item in client.search_experiments() if item.name != "Default"]
    return list(client.search_runs([experiment.experiment_id]))


# -- TensorBoard ---------------------------------------------------------------------------


def test_tensorboard_reads_scores_and_settings_back(
    simulation: fl.Federation, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    tracker = TensorBoard(tmp_path / "events")
    study = fl.compare(simulation, STRATEGIES, seeds=1, callbacks=[tracker], **QUICK)
    for strategy in STRATEGIES:
        scores = tensorboard_events(tmp_path / "events" / strategy / "seed-0")
        points = scores.Scalars("accuracy")
        records = study.records[study.records["strategy"] == strategy]
        assert [point.step for point in points] == [0, 1]
        assert [point.value for point in points] == pytest.approx(
            records["accuracy"].tolist()
        )
        settings = scores.Tensors("parameters/text_summary")[0].tensor_proto.string_val[0]
        assert f"| strategy | {strategy} |" in settings.decode()
    page = tensorboard_events(tmp_path / "events").Tensors("report/text_summary")
    assert page[0].tensor_proto.string_val[0].endswith(b"report.html")


def tensorboard_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.glob("events.out.*")
    return EventAccumulator(str(file)).Reload()


def test_the_command_writes_for_tensorboard_into_the_studys_folder(
    fallow: Command, folder: Path
) -> None:
    pytest.importorskip("tensorboard")
    ended = fallow("run", "tiny.toml", "--out", "a", "--track", "tensorboard")
    assert ended.code == 0, ended.err
    values = tensorboard_events(folder / "a/tensorboard/random/seed-0")
    assert len(values.Scalars("labeled")) == 2


# -- Weights & Biases ----------------------------------------------------------------------


def test_wandb_keeps_a_run_offline_and_looks_at_nothing_of_this_machine(
    simulation: fl.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staged"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    run = fl.run(simulation, "entropy", callbacks=[WandB()], **QUICK)
    kept = wandb_records(tmp_path)
    (begun,) = [record.run for record in kept if record.HasField("run")]
    assert begun.display_name == "entropy, seed 0"
    assert begun.run_group == run.config.name
    settings = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert settings["strategy"] == "entropy"
    points = []
    for record in kept:
        if record.HasField("history"):
            items = {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            points.append((items["cycle"], items["accuracy"], items["labeled"]))
    wanted = run.records[["cycle", "accuracy", "labeled"]].itertuples(index=False)
    assert points == [tuple(row) for row in wanted]
    artifacts = [record.artifact for record in kept if record.HasField("artifact")]
    assert [entry.path for entry in artifacts[0].manifest.contents] == ["report.html"]
    assert not any(record.HasField("output_raw") for record in kept)
    assert not any(record.HasField("stats") for record in kept)
    serialized = b"".join(record.SerializeToString() for record in kept)
    assert sys.argv[0].encode() not in serialized
    assert platform.node() not in begun.host


BLOCK = 32768  # block size in bytes of a LevelDB log, which W&B writes
HEAD = 7  # header bytes of each piece of a record: checksum, length and type
LAST = (1, 4)  # types of a complete record and of its last piece


def wandb_records(folder: Path) -> list[Any]:
    """Return the messages that W&B recorded for its only run."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.rglob("run-*.wandb")
    content = file.read_bytes()
    at = HEAD  # the file starts with a magic number
    kept = []
    whole = b""
    while at + HEAD <= len(content):
        if (
            BLOCK - at % BLOCK < HEAD
        ):  # not enough space for a piece: the rest of the block is padding
            at += BLOCK - at % BLOCK
            continue
        size = int.from_bytes(content[at + 4 : at + 6], "little")
        whole += content[at + HEAD : at + HEAD + size]
        if content[at + 6] in LAST:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            kept.append(record)
            whole = b""
        at += HEAD + size
    return kept
