"""Predict: new examples are read as those of training, or refused with the difference."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

import fallow as fl
from fallow.data.loaders.pixels import as_features
from fallow.data.loaders.scaling import scale_as_trained
from fallow.experiment.predict import predict_with
from fallow.experiment.trained import Trained
from tests.each import each_of
from tests.simulations import PLAIN

rng = np.random.default_rng(5)
DIGITS = sklearn.datasets.load_digits()
PIXELS = DIGITS.images[:200].astype(np.uint8)[:, None]  # 0 to 16
CLASSES = DIGITS.target[:200]


def train(data: Any, **settings: Any) -> fl.Run:
    federation = fl.Federation(data, sites=2)
    quick = {"training": PLAIN, "cycles": 0, "progress": False}
    return fl.run(federation, "random", **{**quick, **settings})


@functools.cache
def digits() -> fl.Run:
    return train(fl.load("digits"), initial=200)


@functools.cache
def shares() -> fl.Run:
    return train(fl.from_arrays(PIXELS / 16, CLASSES), initial=60)


def agreement(run: fl.Run, pixels: np.ndarray[Any, Any]) -> float:
    return float((run.predict(pixels) == CLASSES.astype(str)).mean())


@each_of("kind", [np.uint8, np.int64, np.uint16])
def test_whole_pixels_are_normalized_as_the_named_dataset(kind: type) -> None:
    assert agreement(digits(), PIXELS.astype(kind)) > 0.9


def test_normalized_pixels_are_used_as_they_are() -> None:
    normal = ((PIXELS / 16 - 0.3053) / 0.3760).astype(np.float32)
    assert agreement(digits(), normal) > 0.9
    assert agreement(shares(), PIXELS / 16) > 0.8


@each_of(
    "model, pixels, output",
    [
        (
            digits,
            PIXELS / 16,
            "between 0 and 1, and those of the training data between -0.8",
        ),
        (digits, PIXELS * 1.0, "between 0 and 16, and those of the training data"),
        (
            digits,
            PIXELS.astype(np.int64) * 16,
            "go up to 256, and those of the training data",
        ),
        (
            shares,
            PIXELS * 1.0,
            "between 0 and 16, and those of the training data between 0",
        ),
        (shares, PIXELS * 16.0, "divide them by the same number"),
        (shares, PIXELS / 16 - 5, "between -5 and -4"),
    ],
)
def test_pixels_on_another_scale_are_refused(model: Any, pixels: Any, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        model().predict(pixels)


LEVELS = np.clip(PIXELS.astype(np.float64) * 15.9, 0, 255).astype(np.uint8)  # 0 to 254


@functools.cache
def trained_on(kind: str) -> fl.Run:
    data = fl.from_arrays(SCALES[kind], CLASSES)
    return train(data, initial=60)


SCALES: dict[str, np.ndarray[Any, Any]] = {
    "uint8": LEVELS,
    "uint16": LEVELS.astype(np.uint16) * 257,
    "0..255": LEVELS.astype(np.float32),
    "0..1": LEVELS / 255,
    "-1..1": LEVELS / 127.5 - 1,
    "uint16 of 8 bits": LEVELS.astype(np.uint16),
    "uint16 of 12 bits": LEVELS.astype(np.uint16) * 16,
}


def read_as_trained(trained: str, new: str) -> Any:
    """Return pixels of training, and others as its model reads them."""
    x, _ = as_features(SCALES[trained], "train")
    pixel_range = (float(x.min()), float(x.max()))
    return x, *scale_as_trained(SCALES[new], (1, 8, 8), "new", None, pixel_range)


@each_of(
    "trained, new",
    [
        ("uint8", "uint16"),
        ("uint8", "0..1"),
        ("uint16", "uint8"),
        ("0..255", "uint8"),
        ("0..255", "uint16 of 8 bits"),
    ],
)
def test_the_same_pixels_of_another_type_are_read_alike(trained: str, new: str) -> None:
    x, numbers, finding = read_as_trained(trained, new)
    assert numbers == pytest.approx(x, abs=1e-4)
    assert finding is None


@each_of(
    "trained, new",
    [
        ("uint8", "uint16 of 8 bits"),
        ("uint8", "-1..1"),
        ("0..255", "0..1"),
        ("0..255", "uint16"),
        ("-1..1", "uint8"),
        ("-1..1", "0..255"),
    ],
)
def test_pixels_that_were_divided_otherwise_are_refused(trained: str, new: str) -> None:
    with pytest.raises(ValueError, match="and those of the training data between"):
        read_as_trained(trained, new)


@each_of(
    "trained, new",
    [("uint8", "uint16 of 12 bits"), ("-1..1", "0..1"), ("0..1", "uint16 of 12 bits")],
)
def test_pixels_that_may_be_on_another_scale_are_a_warning(trained: str, new: str) -> None:
    _, _, finding = read_as_trained(trained, new)
    assert finding.severity == "warning"
    assert "and those of the training data between" in finding.sentence


def test_a_warning_of_pixels_reaches_the_user(tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", x=SCALES["uint16 of 12 bits"])
    for rows in (SCALES["uint16 of 12 bits"], tmp_path / "new.npz"):
        with pytest.warns(UserWarning, match="and those of the training data between"):
            shares().predict(rows)


@each_of("new", ["0..255", "uint16 of 8 bits", "-1..1"])
def test_test_images_on_another_scale_are_a_warning(new: str) -> None:
    x_test = SCALES[new][100:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = fl.from_arrays(
            LEVELS[:100], CLASSES[:100], x_test=x_test, y_test=CLASSES[100:]
        )
    assert any("pixels of the test examples are between" in note for note in data.notes)


def test_a_saved_model_keeps_the_scale(tmp_path: Path) -> None:
    digits().save(tmp_path / "model")
    saved = fl.load_model(tmp_path / "model")
    assert (saved.predict(PIXELS) == digits().predict(PIXELS)).all()
    with pytest.raises(ValueError, match="those of the training data"):
        saved.predict(PIXELS / 16)


N = 80
FRAME = pd.DataFrame(
    {
        "age": (40 + 20 * rng.normal(size=N)).round(1),
        "ward": np.array(["A", "B", None])[rng.integers(0, 3, N)],
        "dose": [f"{value:.2f} mg" for value in rng.random(N)],
        "smokes": rng.integers(0, 2, N).astype(bool),
        "at": 1_700_000_000 + rng.integers(0, 600, N),
    }
)
FRAME["sick"] = np.where(FRAME["age"] + 10 * rng.normal(size=N) > 40, "yes", "no")


@functools.cache
def table() -> fl.Run:
    return train(fl.from_frame(FRAME, label="sick"), initial=20)


def write(frame: pd.DataFrame, container: str, folder: Path) -> Any:
    """Return the frame in a container."""
    if container == "csv":
        frame.to_csv(folder / "t.csv", index=False)
        return pd.read_csv(folder / "t.csv", dtype=str, keep_default_na=False)
    if container == "strings":
        return frame.astype("string")
    return frame.convert_dtypes() if container == "nullable" else frame


VARIANTS = {
    "as in training": lambda frame: frame,
    "reordered": lambda frame: frame[sorted(frame.columns, reverse=True)],
    "without the label": lambda frame: frame.drop(columns="sick"),
    "with more columns": lambda frame: frame.assign(more=1, remark="x"),
    "shuffled index": lambda frame: frame.set_index(np.arange(N)[::-1] * 7),
    "doses without a unit": lambda frame: frame.assign(
        dose=frame["dose"].str.removesuffix(" mg").astype(float)
    ),
}


@each_of(
    "variant, container",
    [
        (variant, container)
        for variant in VARIANTS
        for container in ("pandas", "csv", "strings", "nullable")
    ],
)
def test_a_table_is_predicted_alike_however_it_comes(
    variant: str, container: str, tmp_path: Path
) -> None:
    expected = table().predict(FRAME)
    container_of_rows = write(VARIANTS[variant](FRAME), container, tmp_path)
    assert table().predict(container_of_rows).tolist() == expected.tolist()


@each_of(
    "change, output",
    [
        (
            {"dose": [f"{value:.1f} g" for value in range(N)]},
            "'dose', row 1: '0.0 g' is a text",
        ),
        ({"ward": ["C"] * N}, "'C' is not one of the texts"),
        ({"age": ["old"] * N}, "'age', row 1: 'old' is a text"),
        ({"age": ["10_20"] * N}, "'10_20' is a text"),
        ({"age": [np.inf] * N}, "infinite"),
    ],
)
def test_other_values_are_refused_by_row(change: dict[str, Any], output: str) -> None:
    with pytest.raises(ValueError, match=output):
        table().predict(FRAME.assign(**change))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'dose'"):
        table().predict(FRAME.drop(columns="dose"))


def test_masked_cells_are_missing() -> None:
    mask = np.zeros(PIXELS.shape, dtype=np.bool_)
    pixels = np.ma.masked_array(PIXELS / 16, mask=mask)
    assert (shares().predict(pixels) == shares().predict(PIXELS / 16)).all()
    mask[0] = True
    pixels = np.ma.masked_array(PIXELS / 16, mask=mask)
    with pytest.raises(ValueError, match="1 of 200 examples have a missing"):
        shares().predict(pixels)


# -- tables of another format or scale ------------------------------------------------------


DOSES = rng.normal(size=60) * 2 + 5


def write_table(path: Path, cells: list[str], *, separator: str = ";") -> Path:
    rows = [
        f"{cell}{separator}{'no' if at % 2 else 'yes'}" for at, cell in enumerate(cells)
    ]
    path.write_text("\n".join([f"dose{separator}sick", *rows]), encoding="utf-8")
    return path


@functools.cache
def german() -> fl.Run:
    """Return a run on a file with decimal commas, and a model of their mean."""
    with tempfile.TemporaryDirectory() as folder:
        cells = [f"{dose:.2f}".replace(".", ",") for dose in DOSES]
        path = write_table(Path(folder) / "train.csv", cells)
        return train(fl.load(path, label="sick"), initial=20)


@each_of(
    "cells, same",
    [
        (["3,215", "4,125"], [3.215, 4.125]),  # ambiguous: as in training
        (["3.215", "4.125"], None),  # then thousands
        (["3.25", "4.125"], [3.25, 4.125]),  # evident
        (["3,2", "4,125"], [3.2, 4.125]),
    ],
)
def test_ambiguous_numbers_are_read_as_those_of_training(
    cells: list[str], same: list[float] | None, tmp_path: Path
) -> None:
    german().save(tmp_path / "model")
    path = write_table(tmp_path / "new.csv", cells)
    for model in (german(), fl.load_model(tmp_path / "model")):
        if same is None:
            with pytest.warns(UserWarning, match="'dose' goes from 3215 to 4125"):
                model.predict(path)
            continue
        expected = model.predict_proba(pd.DataFrame({"dose": same}))
        assert model.predict_proba(path).tolist() == expected.tolist()


@each_of("container", ["frame", "parquet"])
def test_texts_of_a_frame_are_predicted_by_the_decimal_mark_of_training(
    container: str, tmp_path: Path
) -> None:
    whole = 1000 + 100 * np.arange(60) // 3
    texts = [f"{number // 1000}.{number % 1000:03d}" for number in whole]
    frame = pd.DataFrame({"dose": texts, "sick": ["no", "yes"] * 30})
    run = train(fl.load(frame, label="sick", decimal=","), initial=20)
    rows: Any = frame
    if container == "parquet":
        rows = tmp_path / "t.parquet"
        frame.to_parquet(rows)
    expected = run.predict_proba(pd.DataFrame({"dose": whole}))
    assert run.predict_proba(rows).tolist() == expected.tolist()
    evident = pd.DataFrame({"dose": ["1.25", "1.234"]})
    expected = run.predict_proba(evident.astype(float))
    assert run.predict_proba(evident).tolist() == expected.tolist()


def test_the_decimal_mark_in_a_model_file_is_checked(tmp_path: Path) -> None:
    german().save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    text = config.read_text()
    assert '"decimal": ","' in text
    config.write_text(text.replace('"decimal": ","', '"decimal": "x"'))
    with pytest.raises(ValueError, match=r"numbers.decimal is 'x'; it must be"):
        fl.load_model(tmp_path / "model")


def test_a_workbook_is_read_as_that_of_training(tmp_path: Path) -> None:
    path = tmp_path / "doses.xlsx"
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        pd.DataFrame({"dose": 50 - DOSES}).to_excel(book, sheet_name="2023", index=False)
        labeled = pd.DataFrame({"dose": DOSES, "sick": ["no", "yes"] * 30})
        labeled.to_excel(book, sheet_name="2024", index=False, startrow=2)
    run = train(fl.load(path, label="sick", sheet="2024", header_row=3), initial=20)
    run.save(tmp_path / "model")
    expected = run.predict_proba(labeled)
    for model in (run, fl.load_model(tmp_path / "model")):
        assert model.predict_proba(path).tolist() == expected.tolist()
    only = tmp_path / "only.xlsx"
    labeled.to_excel(only, sheet_name="2025", index=False, startrow=2)
    with pytest.warns(
        UserWarning, match="no sheet '2024', .* only sheet, '2025', was read"
    ):
        assert run.predict_proba(only).tolist() == expected.tolist()
    with pd.ExcelWriter(tmp_path / "new.xlsx", engine="openpyxl") as book:
        for sheet in ("2025", "2026"):
            labeled.to_excel(book, sheet_name=sheet, index=False, startrow=2)
    with pytest.raises(ValueError, match="has no sheet '2024'"):
        run.predict(tmp_path / "new.xlsx")


def test_merged_texts_are_predicted_as_in_training(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"sex": ["M", "m", "F", "f", "M", "F"] * 10, "sick": ["no", "yes"] * 30}
    )
    frame["dose"] = DOSES
    run = train(fl.load(frame, label="sick", merge=True), initial=20)
    run.save(tmp_path / "model")
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = run.predict_proba(frame.assign(sex=frame["sex"].str.upper())).tolist()
    for model in (run, fl.load_model(tmp_path / "model")):
        assert model.predict_proba(frame).tolist() == expected
        assert model.predict_proba(tmp_path / "t.csv").tolist() == expected
    with pytest.raises(ValueError, match="'x' is not one of the texts"):
        run.predict(frame.assign(sex="x"))


@each_of("category", ["train", "test"])
def test_a_category_and_texts_of_the_test_frame_are_one_column(category: str) -> None:
    frames = {"train": FRAME, "test": FRAME.assign(age=FRAME["age"] + 0.5)}
    frames[category] = frames[category].astype({"ward": "category"})
    data = fl.from_frame(frames["train"], label="sick", test=frames["test"])
    assert {"ward=A", "ward=B"} <= {*data.columns}
    at = data.columns.index("ward=A")
    assert data.x[:, at].nansum() == data.x_test[:, at].nansum() > 0


def test_features_of_arrays_are_ordered_by_their_names(tmp_path: Path) -> None:
    x = np.stack([DOSES, 100 * DOSES, DOSES**2], axis=1)
    data = fl.from_arrays(x, ["no", "yes"] * 30, columns=("a", "b", "c"))
    run = train(data, initial=20)
    expected = run.predict_proba(x)
    np.savez(tmp_path / "new.npz", x=x[:, [2, 0, 1]], columns=np.array(["c", "a", "b"]))
    assert run.predict_proba(tmp_path / "new.npz").tolist() == expected.tolist()
    np.savez(tmp_path / "others.npz", x=x, columns=np.array(["c", "a", "d"]))
    with pytest.raises(ValueError, match=r"others\.npz has no column 'b'"):
        run.predict(tmp_path / "others.npz")
    np.savez(tmp_path / "fewer.npz", x=x, columns=np.array(["c", "a"]))
    with pytest.raises(ValueError, match="columns names 2 features"):
        run.predict(tmp_path / "fewer.npz")


@each_of("factor, is_told", [(1000, True), (0.001, True), (1, False), (1.5, False)])
def test_a_column_in_another_unit_is_a_warning(factor: float, is_told: bool) -> None:
    frame = pd.DataFrame({"dose": DOSES * factor})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        german().predict(frame)
    sentences = [str(warning.message) for warning in caught]
    assert bool(sentences) == is_told
    if is_told:
        assert (
            "column 'dose' goes from" in sentences[0]
            and "a mean of about 5" in sentences[0]
        )


@each_of(
    "change, column",
    [
        ({"age": FRAME["age"] * 365}, "age"),
        ({"age": FRAME["age"] * 0.001}, "age"),
        ({"at": FRAME["at"] * 1000}, "at"),
        ({"at": FRAME["at"] - 10**9}, "at"),
    ],
)
def test_each_column_on_another_scale_is_named(change: dict[str, Any], column: str) -> None:
    with pytest.warns(UserWarning, match=f"column '{column}' goes from"):
        table().predict(FRAME.assign(**change))


@each_of(
    "cells, number", [([1, 2] * 5, "2"), ([0, 9] * 5, "9"), ([0.0, 1.0], ""), ([1], "")]
)
def test_other_codes_than_zero_and_one_are_a_warning(
    cells: list[float], number: str
) -> None:
    frame = FRAME.head(len(cells)).assign(smokes=cells)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        table().predict(frame)
    sentence = f"column 'smokes' has {number}, and in training it had only 0 and 1"
    assert [sentence in str(one.message) for one in issued] == [True] * bool(number)


@each_of("rows", [1, 5, 40])
def test_usual_examples_are_predicted_without_a_warning(rows: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table().predict(FRAME.head(rows))
        table().predict(FRAME.assign(ward="A").head(rows))


def test_columns_beside_texts_are_compared() -> None:
    words = [
        f"{'pain' if at % 2 else 'rash'} {'low' if at % 3 else 'high'}" for at in range(60)
    ]
    remarks = [f"{word}, day {at}" for at, word in enumerate(words)]
    frame = pd.DataFrame({"dose": DOSES, "remark": remarks, "sick": ["no", "yes"] * 30})
    data = fl.load(frame, label="sick", columns=["dose", "remark"])
    run = train(data, initial=20, encoder="hashed-text")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.predict(frame)
    with pytest.warns(UserWarning, match="column 'dose' goes from"):
        run.predict(frame.assign(dose=DOSES * 1000))


def test_a_file_is_predicted_with_the_differences_from_training(tmp_path: Path) -> None:
    path = write_table(tmp_path / "new.csv", [f"{1000 * dose:.1f}" for dose in DOSES])
    run = german()
    model = Trained(run.config, {**run.saved, "state": run.state_of()}, run.state_of())
    (sentence,) = predict_with(model, path).warnings
    assert "'dose' goes from" in sentence


@each_of("code", [999.0, -9.0])
def test_codes_of_missing_values_to_predict_are_a_warning(code: float) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": draw.normal(5, 1, 60).round(2), "sick": ["n", "y"] * 30})
    run = train(fl.load(frame, label="sick"), initial=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.predict(frame)
    frame.loc[::7, "dose"] = code
    with pytest.warns(UserWarning, match=f"column 'dose': {code:g} in 9 cells"):
        run.predict(frame)
