"""Loss of digits: numbers are shifted before they become float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fallow as fl
from fallow.data.loaders.numbers import choose_offset
from tests.data.kinds import column_of, quietly, sentences
from tests.each import each_of

rng = np.random.default_rng(2)
N = 60
SPREAD = rng.random(N)
LARGE = {
    "seconds since 1970": 1_700_000_000 + (600 * SPREAD).round(),
    "milliseconds": 1_700_000_000_000 + (600_000 * SPREAD).round(),
    "nanoseconds": 1.7e18 + (6e11 * SPREAD),
    "coordinates": 47.37 + SPREAD / 1e5,
    "Swiss coordinates": 2_600_000 + 10 * SPREAD,
    "cents": 123_456_700_000 + (500 * SPREAD).round(),
    "pressure": 101_325.0 + SPREAD / 100,
    "Julian days": 2_460_000.5 + SPREAD,
    "negative": -1e9 - SPREAD,
}
USUAL = {
    "ages": 20 + 60 * SPREAD,
    "years": 2000 + (20 * SPREAD).round(),
    "kelvin": 273 + 10 * SPREAD,
    "millions": 1e6 * SPREAD,
    "small": 1e-9 * SPREAD,
    "negative": -SPREAD,
    "one outlier": np.r_[SPREAD[1:], 1e9],
}


@each_of("kind", LARGE)
def test_differences_of_large_numbers_are_kept(kind: str) -> None:
    values = LARGE[kind]
    offset = choose_offset(values, values.min(), values.max())
    kept = (values - offset).astype(np.float32).astype(np.float64)
    wanted = values - values.mean()
    assert offset != 0 and np.abs(kept - kept.mean() - wanted).max() < 1e-4 * values.std()
    column = column_of([repr(float(value)) for value in values])
    assert column.read.offset == offset and "was subtracted" in sentences(column)


def test_a_column_of_float32_becomes_the_same_features_as_one_of_float64() -> None:
    large = np.float32(16_000_000.0) + np.arange(200, dtype=np.float32) ** 1.2
    frame = pd.DataFrame({"t": large, "u": np.sqrt(large), "y": ["a", "b"] * 100})
    frame.loc[3, "u"] = np.nan
    narrow = fl.load(frame, label="y")
    wide = fl.load(frame.astype({"t": np.float64, "u": np.float64}), label="y")
    assert narrow.offsets == wide.offsets and any(narrow.offsets)
    assert torch.equal(narrow.x.nan_to_num(-1.0), wide.x.nan_to_num(-1.0))


@each_of("kind", USUAL)
def test_other_numbers_are_used_as_they_are(kind: str) -> None:
    values = USUAL[kind]
    assert choose_offset(values, values.min(), values.max()) == 0.0


def learnable(values: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    late = values > np.median(values)
    frame = pd.DataFrame(
        {"at": values, "noise": SPREAD[::-1], "y": np.where(late, "b", "a")}
    )
    return frame, late


@each_of("kind", ["seconds since 1970", "milliseconds", "coordinates", "cents"])
def test_a_model_learns_from_large_numbers_and_predicts_raw_ones(
    kind: str, tmp_path: Path
) -> None:
    frame, late = learnable(LARGE[kind])
    data = quietly(lambda: fl.from_frame(frame, label="y", columns=["at", "noise"]))
    run = fl.run(
        fl.Federation(data, sites=2), "random", initial=15, cycles=0, progress=False
    )
    wanted = np.where(late, "b", "a")
    assert (run.predict(frame) == wanted).mean() > 0.9
    raw = frame[["at", "noise"]].to_numpy()
    predicted = run.predict(raw)
    assert (predicted == wanted).mean() > 0.9
    run.save(tmp_path / kind)
    assert (fl.load_model(tmp_path / kind).predict(raw) == predicted).all()
    assert len(run.predict(data.x_test)) == len(data.x_test)


def test_arrays_and_npz_files_keep_the_differences_too(tmp_path: Path) -> None:
    x = np.stack([LARGE["seconds since 1970"], SPREAD], axis=1)
    y = np.arange(N) % 2
    data = fl.from_arrays(x, y)
    np.savez(tmp_path / "t.npz", x=x, y=y)
    for read in (data, fl.load(tmp_path / "t.npz")):
        assert read.offsets[0] != 0 and read.offsets[1] == 0
        both = torch.cat([read.x, read.x_test])[:, 0].double() + read.offsets[0]
        assert sorted(both.tolist()) == sorted(x[:, 0].tolist())
        assert any("float32 would lose digits" in note for note in read.notes)


@each_of("kind", ["seconds since 1970", "cents", "Julian days"])
def test_targets_keep_their_digits(kind: str) -> None:
    y = LARGE[kind] + np.where(SPREAD > 0.5, 0.25, 0)
    data = fl.from_arrays(SPREAD[:, None], y)
    assert data.y.dtype == torch.float64
    assert sorted(torch.cat([data.y, data.y_test]).tolist()) == sorted(y.tolist())
    run = fl.run(
        fl.Federation(data, sites=2), "random", initial=15, cycles=0, progress=False
    )
    error = run.predict(SPREAD[:, None]) - y
    assert np.abs(error).max() < 3 * y.std()


@each_of("cells", [["9007199254740993", "9007199254740995"], ["12345678901234567", "3"]])
def test_digits_beyond_float64_are_a_warning(cells: list[str]) -> None:
    column = column_of(cells * 3)
    assert any(f.severity == "warning" and "2^53" in f.sentence for f in column.findings)


def test_long_identifiers_keep_all_digits(tmp_path: Path) -> None:
    ids = [str(9007199254740993 + row) for row in range(N)]
    rows = [
        f"{name},{value:.3f},{at % 2}"
        for at, (name, value) in enumerate(zip(ids, SPREAD, strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["id,dose,y", *rows]))
    data = fl.load(tmp_path / "t.csv", label="y")
    assert data.ids is not None and set(data.ids) <= set(ids)
    assert data.columns == ("dose",)
    with pytest.warns(UserWarning, match="beyond 2"):
        fl.load(tmp_path / "t.csv", label="y", columns=["id", "dose"])


@each_of("factor, is_told", [(1e-50, True), (1e-40, True), (1e-30, False), (0.0, False)])
def test_arrays_below_float32_are_a_warning(factor: float, is_told: bool) -> None:
    x = factor * np.random.default_rng(0).uniform(1, 9, (40, 3))
    x[:, 0] = np.arange(40)
    data = quietly(lambda: fl.from_arrays(x, np.arange(40) % 2))
    assert any("in x are smaller than" in note for note in data.notes) is is_told


def test_codes_and_small_numbers_in_test_files_are_named() -> None:
    draw = np.random.default_rng(0)
    train = pd.DataFrame({"a": draw.normal(50, 9, 60).round(2), "y": ["n", "y"] * 30})
    test = train.assign(a=draw.normal(50, 9, 60).round(2))
    test.loc[::5, "a"] = -9
    test.loc[1, "a"] = 1e-50
    data = quietly(lambda: fl.from_frame(train, test=test, label="y"))
    output = " | ".join(data.notes)
    assert "-9 in 12 cells" in output and "are smaller than" in output
