"""A finished model on a user's new rows."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.lab.cell import Cell, Setup
from fallow.lab.errors import Failed
from fallow.lab.opening import open_study
from fallow.lab.predict import predict_file
from fallow.lab.recipe import Recipe
from fallow.lab.scale import Scale
from fallow.lab.spec import Spec
from fallow.lab.study import run_cell, study_cells
from tests.lab.crash import tiny

ROWS = 80


def table(path: Path, label: bool = True) -> Path:
    """Sick is who is old and of kind b; ages are large numbers, so that scaling matters."""
    draw = np.random.default_rng(1)
    age, kind = draw.integers(20, 90, ROWS), draw.choice(["a", "b"], ROWS)
    sick = np.where((age > 50) & (kind == "b"), "yes", "no")
    lines = [
        f"{a},{k},{7}{',' + s if label else ''}" for a, k, s in zip(age, kind, sick, strict=True)
    ]
    path.write_text("\n".join([f"age,kind,ward{',sick' if label else ''}", *lines]))
    return path


def study(folder: Path, recipe: Recipe) -> Path:
    setup = Setup(recipe, folder / "study")
    open_study(setup, study_cells(recipe, ("random",), [0]), "", resume=False)
    run_cell(setup, Cell("random", 0))
    return setup.out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    recipe = replace(
        tiny(folder), data=str(table(folder / "patients.csv")), label="sick", initial=1.0,
        cycles=0, rounds=20, partition=Spec("iid"),
    )  # fmt: skip
    return study(folder, recipe)


def test_rows_are_encoded_and_scaled_as_in_training(trained: Path, tmp_path: Path) -> None:
    path, rows = predict_file(trained, table(tmp_path / "new.csv", label=False))
    assert path == tmp_path / "new-predictions.csv"
    said = list(csv.DictReader(path.read_text().splitlines()))
    truth = list(csv.DictReader(table(tmp_path / "truth.csv").read_text().splitlines()))
    assert rows == len(said) == ROWS
    right = [s["prediction"] == t["sick"] for s, t in zip(said, truth, strict=True)]
    assert sum(right) > 0.85 * ROWS
    assert all(0.5 <= float(s["probability"]) <= 1 for s in said)


def test_one_row_alone_gets_the_prediction_it_gets_among_others(
    trained: Path, tmp_path: Path
) -> None:
    many = table(tmp_path / "many.csv", label=False)
    head, first, *_ = many.read_text().splitlines()
    (tmp_path / "one.csv").write_text(f"{head}\n{first}\n")
    alone, _ = predict_file(trained, tmp_path / "one.csv")
    among, _ = predict_file(trained, many)
    assert alone.read_text().splitlines()[1] == among.read_text().splitlines()[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,kin,ward\n3,a,7\n", "has no column 'kind(=a)?'; did you mean 'kin'"),
        ("age,kind,ward\nold,a,7\n", "column 'age' holds a text"),
        ("age,kind,ward\n,a,7\n", "column 'age' has 1 missing values"),
        ("age,kind,ward\ninf,a,7\n", "NaN or infinite"),
        ("age,kind,ward\n", "has no rows"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    trained: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        predict_file(trained, tmp_path / "bad.csv")
    assert not (tmp_path / "bad-predictions.csv").exists()


def test_a_missing_file_run_or_study_is_named(trained: Path, tmp_path: Path) -> None:
    new = table(tmp_path / "new.csv", label=False)
    with pytest.raises(ValueError, match="there is no file"):
        predict_file(trained, tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"no finished run of ahfal .* its queries are random"):
        predict_file(trained, new, query="ahfal")
    with pytest.raises(ValueError, match="no finished run of random with seed 5"):
        predict_file(trained, new, seed=5)
    with pytest.raises(ValueError, match="is no study"):
        predict_file(tmp_path, new)


def test_a_model_with_one_changed_bit_is_not_used(trained: Path, tmp_path: Path) -> None:
    model = Cell("random", 0).folder(trained) / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    try:
        with pytest.raises(Failed, match=r"model\.safetensors is damaged"):
            predict_file(trained, table(tmp_path / "new.csv", label=False))
    finally:
        model.write_bytes(whole)


def test_embeddings_are_predicted_from_an_npz_file(tmp_path: Path) -> None:
    done = study(tmp_path, replace(tiny(tmp_path), cycles=0, initial=1.0, rounds=10))
    x = 3 * np.eye(3, 6)
    np.savez(tmp_path / "new.npz", x=x)
    path, rows = predict_file(done, tmp_path / "new.npz")
    said = csv.DictReader(path.read_text().splitlines())
    assert (rows, [line["prediction"] for line in said]) == (3, ["0", "1", "2"])
    np.savez(tmp_path / "wide.npz", x=np.eye(3, 7))
    with pytest.raises(ValueError, match=r"rows of shape \(7,\), the model takes \(6,\)"):
        predict_file(done, tmp_path / "wide.npz")


def test_a_constant_column_is_scaled_to_zero() -> None:
    scale = Scale(torch.tensor([2.0, 5.0]), torch.tensor([1.0, 0.0]))
    assert scale(torch.tensor([[3.0, 9.0]])).tolist() == [[1.0, 0.0]]


def test_sites_with_their_own_statistics_have_no_one_model(tmp_path: Path) -> None:
    recipe = replace(
        tiny(tmp_path), cycles=0, rounds=1, model=Spec("tests.lab.norm:Norm"),
        training=Spec("fedavg", {"bn": "local"}),
    )  # fmt: skip
    done = study(tmp_path, recipe)
    np.savez(tmp_path / "new.npz", x=np.eye(3, 6))
    with pytest.raises(ValueError, match="deploys a model of its own, so there is no one model"):
        predict_file(done, tmp_path / "new.npz")
