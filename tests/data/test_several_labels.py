"""Reading several labels per example, from columns, lists and arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import fallow as fl
from fallow.core.multilabel import read_answers
from fallow.data.loaders.answers import read_list

LABELS = ["oedema", "effusion"]
ANSWERS: list[list[int | None]] = [
    [1, 0],
    [0, 1],
    [1, None],
    [None, None],
    [0, 0],
    [1, 1],
] * 4


def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    columns = {"age": draw.normal(size=24), "dose": draw.normal(size=24)}
    answers = np.array(ANSWERS, dtype=float)
    return pd.DataFrame(
        columns | {"oedema": answers[:, 0], "effusion": answers[:, 1]},
    )


def read_all(data: fl.Dataset) -> torch.Tensor:
    """Return the answers of the examples of both parts, in the order of their features."""
    x = torch.cat([data.x, data.x_test])[:, 0]
    answers = read_answers(torch.cat([data.y, data.y_test]), 2)
    return answers[x.argsort()]


def write(table: pd.DataFrame, folder: Path, **options: Any) -> fl.Dataset:
    table.to_csv(folder / "findings.csv", index=False)
    return fl.load(folder / "findings.csv", **options)


LISTS: dict[tuple[int | None, ...], str] = {
    (None, None): "",
    (1, 0): "oedema",
    (0, 1): "effusion",
    (0, 0): "none",
    (1, 1): "effusion; oedema",
}


def test_columns_lists_arrays_and_files_have_the_same_answers(tmp_path: Path) -> None:
    table = frame()
    data = fl.load(table, label=LABELS)
    assert data.task == "multilabel"
    assert data.labels == tuple(LABELS)
    assert data.columns == ("age", "dose")
    assert int((~data.is_labeled).sum()) == 4
    expected = torch.tensor(np.array(ANSWERS, dtype=float))
    expected = expected[torch.tensor(table["age"].to_numpy()).argsort()]
    assert_close(read_all(data), expected, equal_nan=True)

    texts = [LISTS.get(tuple(answers), "oedema=1") for answers in ANSWERS]
    listed = table.drop(columns=LABELS).assign(findings=texts)
    x = table[["age", "dose"]].to_numpy()
    others = [
        write(table, tmp_path, label=LABELS),
        fl.load(listed, label="findings", labels=LABELS),
        fl.from_arrays(x, np.array(ANSWERS, dtype=float), labels=LABELS),
        fl.from_arrays(x, np.array(ANSWERS, dtype=object), labels=LABELS),
    ]
    for other in others:
        assert_close(read_all(other), expected, equal_nan=True)


def test_words_for_answers_are_understood() -> None:
    table = frame()
    table["oedema"] = ["True", "false", "1.0", "-1", "NA", "0"] * 4
    answers = read_all(fl.load(table, label=LABELS))[:, 0]
    assert sorted(answers.nan_to_num(2).tolist()) == [0] * 8 + [1] * 8 + [2] * 8
    words = ["yes", "No", "Present", "negative", "N", "?"] * 4
    table["oedema"] = words
    answers = read_all(fl.load(table, label=LABELS))[:, 0]
    assert sorted(answers.nan_to_num(2).tolist()) == [0] * 12 + [1] * 8 + [2] * 4


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("oedema=yes;effusion=no", "oedema=1;effusion=0"),
        ("oedema = present", "oedema=1"),
        ("oedema=1;effusion=-1", "oedema=1"),
        ("oedema=?;effusion=n", "effusion=0"),
    ],
)
def test_a_list_may_have_words_as_answers(text: str, same: str) -> None:
    assert read_list(text, LABELS) == read_list(same, LABELS)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "value": ({"oedema": 2}, "the label 'oedema' is '2' in row 1; write 0 or no"),
    "text": ({"oedema": "perhaps"}, "is 'perhaps' in row 1"),
    "constant": (
        {"oedema": [1.0] * 24},
        "'oedema' has only 1; give examples with 0 and with 1",
    ),
    "empty": ({"oedema": [None] * 24}, "'oedema' has no answer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_cells_end_in_a_sentence(name: str) -> None:
    change, sentence = WRONG[name]
    table = frame()
    for column, value in change.items():
        cells = table[column].astype(object).tolist()
        table[column] = value if isinstance(value, list) else [value, *cells[1:]]
    with pytest.raises(ValueError, match=sentence):
        fl.load(table, label=LABELS)


@pytest.mark.parametrize("text", ["oedema;", "oedema;;effusion", "|effusion|oedema"])
def test_a_list_may_have_separators_without_a_name(text: str) -> None:
    names = [name for name in LABELS if name in text]
    assert read_list(text, LABELS) == read_list(";".join(names), LABELS)


WRONG_LISTS = {
    ";": "';' is no list of labels; write each once",
    "efusion": "label 'efusion' is not one of the labels; did you mean 'effusion'",
    "oedema;oedema": "'oedema;oedema' is no list of labels; write each once",
    "oedema=2": "'oedema=2' is no list of labels",
    "oedema=": "'oedema=' is no list of labels",
    "oedema=1;effusion=perhaps": "is no list of labels",
    "none;oedema": "label 'none' is not one of the labels",
    "oedema=1;effusion": "is no list of labels",
}


@pytest.mark.parametrize("text", WRONG_LISTS)
def test_wrong_lists_end_in_a_sentence(text: str) -> None:
    lists = [text, "oedema", "effusion", "none"] * 6
    with pytest.raises(ValueError, match=WRONG_LISTS[text]):
        fl.from_arrays(np.arange(24.0)[:, None], lists, labels=LABELS)


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"label": ["oedema", "oedema"]}, "'oedema' is both label and label"),
    ({"label": ["oedema"]}, r"the labels are \['oedema'\]; name 2 to 32"),
    ({"label": LABELS, "classes": ["a", "b"]}, "omit classes and task, or labels"),
    ({"label": LABELS, "task": "regression"}, "omit classes and task, or labels"),
    ({"label": LABELS, "labels": LABELS}, "labels are given too; omit one of them"),
    ({"label": LABELS, "drop": ["oedema"]}, "'oedema' is the label and is also dropped"),
    ({"label": ["oedema", "efusion"]}, "no column 'efusion'; did you mean 'effusion'"),
    ({"label": "oedema", "labels": ["a;b", "c"]}, "cannot be the name of a label"),
    ({"label": "oedema", "labels": ["NA", "c"]}, "'NA' cannot be the name of a label"),
    ({"label": "oedema", "labels": ["None", "c"]}, "'None' cannot be the name of"),
    ({"label": "oedema", "labels": ["a", "a"]}, "the label 'a' is named twice"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG_OPTIONS)
def test_wrong_names_of_labels_end_in_a_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fl.load(frame(), **options)


def test_examples_with_rare_combinations_of_labels_are_held_out() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, (50, 32))  # all combinations are different
    y[:20] = y[0]
    names = [f"label {at}" for at in range(32)]
    data = fl.from_arrays(draw.normal(size=(50, 2)), y, labels=names)
    answers = read_answers(data.y_test, 32)
    is_frequent = (answers == torch.from_numpy(y[0])).all(1)
    assert len(data.x_test) == 10
    assert int(is_frequent.sum()) == 4


def test_a_test_set_needs_an_answer_for_each_example() -> None:
    x = np.arange(24.0)[:, None]
    y = np.array(ANSWERS, dtype=float)
    with pytest.raises(ValueError, match="1 test examples have no label"):
        fl.from_arrays(x, y, x_test=[[99.0]], y_test=[[np.nan, np.nan]], labels=LABELS)
    data = fl.from_arrays(x, y, x_test=[[99.0]], y_test=[[1.0, np.nan]], labels=LABELS)
    assert int(data.y_test) == 1 + 2 * 3


WRONG_DATASETS: list[tuple[dict[str, Any], str]] = [
    ({"y": torch.tensor([0, 8])}, "not numbers from -1 to 7"),
    ({"y": torch.zeros(2), "y_test": torch.zeros(1)}, "not numbers from -1 to 7"),
    ({"y_test": torch.tensor([-1])}, "not numbers from 0 to 7"),
    ({"labels": ("a", "a")}, "not distinct"),
    ({"labels": ("a",)}, "give 2 to 32 labels"),
    ({"classes": ("c", "d")}, "and no class"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG_DATASETS)
def test_a_dataset_has_possible_answers(change: dict[str, Any], sentence: str) -> None:
    parts: dict[str, Any] = {
        "x": torch.eye(2),
        "y": torch.tensor([0, -1]),
        "x_test": torch.full((1, 2), 3.0),
        "y_test": torch.tensor([7]),
        "labels": ("a", "b"),
    }
    assert fl.Dataset("toy", **parts).n_outputs == 2
    with pytest.raises(ValueError, match=sentence):
        fl.Dataset("toy", **parts | change)


def test_images_of_medmnist_with_several_labels_are_read(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, n in (("train", 12), ("val", 4), ("test", 6)):
        arrays[f"{part}_images"] = draw.integers(0, 256, (n, 4, 4), dtype=np.uint8)
        arrays[f"{part}_labels"] = np.array([[0, 1], [1, 0]] * (n // 2), dtype=np.uint8)
    np.savez(tmp_path / "chest.npz", **arrays)
    data = fl.load(tmp_path / "chest.npz", labels=LABELS)
    assert len(data.x) == 16
    assert read_answers(data.y_test, 2).tolist() == [[0, 1], [1, 0]] * 3
    with pytest.raises(ValueError, match="has 2 labels for each image, and 0 are named"):
        fl.load(tmp_path / "chest.npz")


def test_summaries_count_the_examples_with_each_label() -> None:
    description = str(fl.describe(fl.load(frame(), label=LABELS)))
    assert (
        "2 labels ('oedema' and 'effusion'), of which an example may have several"
        in description
    )
