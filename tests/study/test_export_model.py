"""An exported model file predicts as the run does, without Fallow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fallow as fl
from fallow.cli.app import build_app
from fallow.encoders.convolution import pool_matrix
from tests.each import mark_long
from tests.simulations import PLAIN

SETTINGS: dict[str, Any] = {
    "sites": 3,
    "cycles": 0,
    "training": PLAIN,
    "progress": False,
}


class TwoConvolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()
        )
        self.last = nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.body(x))
        return logits


def run_on_digits(**settings: Any) -> tuple[fl.Run, np.ndarray]:
    digits = fl.load("digits")
    if "rounds" in settings:
        settings["training"] = "fedavg"
    return fl.run(digits, "random", **{**SETTINGS, **settings}), digits.x_test.numpy()


def run_on_cells_that_are_empty(**settings: Any) -> tuple[fl.Run, np.ndarray]:
    import pandas as pd

    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    table["y"] = np.where(table["a"] + table["b"] > 0, "yes", "no")
    table.loc[::7, "b"] = np.nan
    run = fl.run(fl.from_frame(table, label="y"), "random", **{**SETTINGS, **settings})
    x = rng.normal(size=(20, run.saved["example_spec"]["shape"][0]))
    x[:, 3:] = 0  # indicators of empty cells
    x[::4, 1] = np.nan
    return run, x.astype(np.float32)


def embed_rows(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1).square()


HALF = "convolution, half precision"
"""Its features are rounded to eleven binary digits, and one may be rounded to the other side."""

CASES: dict[str, Callable[[], tuple[fl.Run, np.ndarray]]] = {
    "convolution, closed form": lambda: run_on_digits(encoder="convolution:filters=8"),
    HALF: lambda: run_on_digits(encoder=fl.Convolution(filters=8, half=True)),
    "tabular": lambda: run_on_digits(encoder="tabular:features=64"),
    "identity": lambda: run_on_digits(encoder="identity"),
    "network on features": lambda: run_on_digits(encoder="fourier", model="mlp", rounds=2),
    "network": lambda: run_on_digits(model="mlp", rounds=2),
    "own encoder": lambda: run_on_digits(encoder=embed_rows),
    "own encoder module": lambda: run_on_digits(encoder=nn.Conv2d(1, 2, 3)),
    "own module": lambda: run_on_digits(model=TwoConvolutions(), rounds=2),
    "table with empty cells": run_on_cells_that_are_empty,
    "trees": lambda: run_on_cells_that_are_empty(
        training=fl.BoostedTrees(stages=3), initial=0.5
    ),
}


def run_onnx(file: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"examples": x})
    return np.asarray(output)


LONG = (
    "convolution, closed form",
    "identity",
    "network on features",
    "own encoder module",
)
"""Cases of which another one has the model, and another one the encoder."""


@pytest.mark.long
@pytest.mark.parametrize("name", mark_long(CASES, LONG))
def test_the_files_say_what_the_run_says(name: str, tmp_path: Path) -> None:
    run, x = CASES[name]()
    expected = run.predict_proba(x)
    limit = 1e-5
    if name == HALF:
        limit = 2**-11  # a feature that is halfway may be rounded to its neighbor
    as_onnx = run_onnx(run.export(tmp_path / "model.onnx"), x)
    program = torch.export.load(run.export(tmp_path / "model.pt2"))
    as_torch = program.module()(torch.from_numpy(x)).numpy()
    assert np.abs(as_onnx - expected).max() < limit
    assert np.abs(as_torch - expected).max() < limit
    alone = run_onnx(tmp_path / "model.onnx", x[:1])
    assert np.abs(alone - expected[:1]).max() < limit


@pytest.mark.long
def test_numbers_are_in_the_units_of_the_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 4)) * [1, 10, 100, 1]
    y = 50 + 20 * x[:, 0] + x[:, 1]
    run = fl.run(fl.from_arrays(x, y), "random", **SETTINGS)
    expected = run.predict(x)
    predictions = run_onnx(run.export(tmp_path / "model.onnx"), x.astype(np.float32))
    assert predictions.shape == (150,)
    assert np.abs(predictions - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.long
def test_a_file_names_its_classes_and_columns(tmp_path: Path) -> None:
    run, _ = run_on_cells_that_are_empty()
    session = onnxruntime.InferenceSession(run.export(tmp_path / "model.onnx"))
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == ["no", "yes"]
    assert json.loads(metadata["columns"])[:3] == ["a", "b", "c"]
    extra = {"classes": "", "columns": ""}
    torch.export.load(run.export(tmp_path / "model.pt2"), extra_files=extra)
    assert json.loads(extra["classes"]) == ["no", "yes"]


@pytest.mark.parametrize(("size", "grid"), [(6, 4), (24, 4), (5, 5), (7, 3)])
def test_pooling_by_products_is_adaptive_pooling(size: int, grid: int) -> None:
    x = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    pool = pool_matrix(size, grid)
    expected = nn.functional.adaptive_avg_pool2d(x, grid)
    torch.testing.assert_close(pool @ x @ pool.T, expected)


def test_a_name_without_a_known_ending_is_refused(tmp_path: Path) -> None:
    run, _ = run_on_digits(model="linear", rounds=1)
    with pytest.raises(ValueError, match=r"ends in neither \.onnx nor \.pt2"):
        run.export(tmp_path / "model.bin")


@pytest.mark.long
def test_models_of_a_study_are_loaded_and_exported_by_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    digits = fl.load("digits")
    x = digits.x_test.numpy()
    run = fl.run(digits, "random", **SETTINGS, out=folder)
    loaded = fl.load_model(folder)
    assert (loaded.predict_proba(x) == run.predict_proba(x)).all()
    both = ["--onnx", str(tmp_path / "a.onnx"), "--torch", str(tmp_path / "a.pt2")]
    done = CliRunner().invoke(build_app(), ["export-model", str(folder), *both])
    assert done.exit_code == 0, done.output
    assert np.abs(run_onnx(tmp_path / "a.onnx", x) - run.predict_proba(x)).max() < 1e-5
    nothing = CliRunner().invoke(build_app(), ["export-model", str(folder)])
    assert "--onnx FILE.onnx, or --torch FILE.pt2" in str(nothing.exception)


def test_each_site_has_its_own_file_where_it_has_its_own_model(tmp_path: Path) -> None:
    digits = fl.load("digits")
    x = digits.x_test.numpy()
    settings = {**SETTINGS, "model": "linear", "rounds": 1, "training": "ditto"}
    run = fl.run(digits, "random", **settings, out=tmp_path / "study")
    with pytest.raises(ValueError, match="site="):
        run.export(tmp_path / "model.onnx")
    site = run.sites[1]
    file = run.export(tmp_path / "model.onnx", site=site)
    expected = run.predict_proba(x, site=site)
    assert np.abs(run_onnx(file, x) - expected).max() < 1e-5
    loaded = fl.load_model(tmp_path / "study", site=site)
    assert (loaded.predict_proba(x) == expected).all()


def test_a_folder_of_one_model_has_no_other_site_or_seed(tmp_path: Path) -> None:
    run, _ = run_on_digits(model="linear", rounds=1)
    run.save(tmp_path)
    with pytest.raises(ValueError, match="has one model; omit strategy, seed and site"):
        fl.load_model(tmp_path, seed=1)
