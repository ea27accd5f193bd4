"""A data file gives the same run on the command line and in Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fallow as fl
from fallow.settings.config import ExperimentConfig, config_from
from tests.cli.conftest import Command

QUICK = ("--set", "cycles=1", "--seeds", "2", "--jobs", "1")
FIELDS = ("strategy", "seed", "cycle", "accuracy", "mse", "labeled", "labeled_per_site")
OF_THE_FILE = ("data", "label", "site")
"""Settings that say where the data are, which Python has in memory."""


def read_settings(study: str) -> ExperimentConfig:
    described = json.loads((Path(study) / "study.json").read_text())
    return replace(config_from(described["config"]), data="rows", label=None, site=None)


def read_records(study: str) -> list[dict[str, Any]]:
    records = []
    for file in sorted(Path(study).rglob("records.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            records.append({name: record.get(name) for name in FIELDS})
    return records


def write_groups(folder: Path) -> None:
    """Write an archive that names the site of each example."""
    arrays = dict(np.load(folder / "blobs.npz"))
    np.savez(
        folder / "grouped.npz",
        **arrays,
        site=np.arange(60) % 3,
        site_test=np.arange(30) % 3,
    )


def open_federation(file: str) -> fl.Federation:
    if file.endswith(".npz"):
        return fl.Federation(file)
    frame = pd.read_csv(file)
    return fl.Federation(fl.from_frame(frame, label="sick", site="ward", name="patients"))


@pytest.mark.long
@pytest.mark.filterwarnings("default:.*the training is the problem:RuntimeWarning")  # tiny
@pytest.mark.parametrize(
    ("file", "options", "partition", "strategies", "encoder"),
    [
        pytest.param(
            *("patients.csv", ("--label", "sick", "--site", "ward"), "natural", None, None),
            marks=pytest.mark.long,
        ),
        ("blobs.npz", (), "iid", "random,margin", "identity"),
        pytest.param(
            *("grouped.npz", (), "natural", None, "identity"), marks=pytest.mark.long
        ),
    ],
)
def test_a_data_file_runs_what_python_runs(
    file: str,
    options: tuple[str, ...],
    partition: str,
    strategies: str | None,
    encoder: str | None,
    fallow: Command,
    folder: Path,
) -> None:
    write_groups(folder)
    named = () if strategies is None else ("--strategy", strategies)
    more: dict[str, Any] = (
        {} if encoder is None else {"encoder": encoder}
    )  # faster than the default
    chosen = [word for name in more for word in ("--set", f"{name}={encoder}")]
    ended = fallow("compare", file, *options, *named, *chosen, *QUICK, "--out", "shell")
    assert ended.code == 0, ended
    names = None if strategies is None else strategies.split(",")
    fl.compare(open_federation(file), names, cycles=1, seeds=2, out="python", **more)
    shell = read_settings("shell")
    python = read_settings("python")
    assert shell.digest == python.digest
    assert str(shell.training) == "closed-form"
    assert shell.partition.name == partition
    assert shell.bounds == python.bounds == ()
    assert read_records("shell") == read_records("python")


@pytest.mark.long
def test_one_run_of_a_data_file_is_that_of_python(fallow: Command, folder: Path) -> None:
    assert fallow("run", "blobs.npz", "--set", "cycles=1", "--out", "shell").code == 0
    fl.run("blobs.npz", cycles=1, out="python")
    assert read_settings("shell").digest == read_settings("python").digest
    assert read_records("shell") == read_records("python")


@pytest.mark.long
def test_without_a_number_both_compare_seven_seeds(fallow: Command) -> None:
    assert "14 runs" in fallow("compare", "blobs.npz", "--dry-run").out


@pytest.mark.long
def test_explicit_settings_replace_the_sites_in_the_data(
    fallow: Command, folder: Path
) -> None:
    write_groups(folder)
    chosen = ("--set", "partition=iid", "--set", "sites=2", "--set", "encoder=identity")
    assert fallow("compare", "grouped.npz", *chosen, *QUICK, "--out", "a").code == 0
    config = read_settings("a")
    assert (str(config.partition), config.sites) == ("iid", 2)


@pytest.mark.long
def test_a_network_needs_its_training_algorithm(fallow: Command) -> None:
    says = fallow("compare", "blobs.npz", "--set", "rounds=2").says()
    assert "rounds is a setting of networks" in says
    ended = fallow(
        *("compare", "blobs.npz", "--set", "training=fedavg", "--set", "rounds=1"),
        *(*QUICK, "--out", "a"),
    )
    assert ended.code == 0, ended
    assert (
        read_settings("a").training_config
        == config_from(
            {"name": "a", "training": "fedavg", "training_config": {}}
        ).training_config
    )


@pytest.mark.long
def test_a_named_dataset_takes_the_place_of_a_file(fallow: Command) -> None:
    ended = fallow(
        "run", "iris", "-q", "random", "--set", "cycles=1", "--out", "study", "--json"
    )
    assert ended.code == 0, ended.err
    assert json.loads(Path("study/study.json").read_text())["config"]["data"] == "iris"
    assert "did you mean 'iris'?" in fallow("run", "iriss").says()
