"""Tables in common formats are read correctly or refused with a clear error."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fallow as fl
from fallow.core.load_options import LoadOptions
from fallow.data import Dataset, from_npz, open_dataset
from fallow.data.example_spec import describe_examples
from fallow.data.loaders.features import read_features
from fallow.data.loaders.table_files import read_file
from tests.data.kinds import spec_of

ROWS = [(20.5 + i, ("mild", "grave")[i % 2], ("no", "yes")[i // 2 % 2]) for i in range(24)]


def written(separator: str = ",", decimal: str = ".", quote: str = "") -> str:
    lines = [separator.join(("age", "kind", "sick"))]
    for age, kind, sick in ROWS:
        shown = f"{age}".replace(".", decimal)
        lines.append(
            separator.join((shown, f"{quote}{kind}{quote}", f"{quote}{sick}{quote}"))
        )
    return "\n".join(lines) + "\n"


def is_as_meant(d: Dataset) -> bool:
    """Check that the data set has the examples of ROWS, in any order."""
    ages = torch.cat([d.x, d.x_test])[:, 0].sort().values
    meant = torch.tensor(sorted(row[0] for row in ROWS), dtype=torch.float32)
    return d.columns == ("age", "kind=grave", "kind=mild") and torch.equal(ages, meant)


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        (written(), "utf-8", None),
        (written(), "utf-8-sig", None),
        (written(), "utf-16", "t.csv was read as UTF-16"),
        (written(), "utf-16-le", "t.csv was read as UTF-16-LE"),
        (written(";"), "utf-8", "cells are separated by semicolons"),
        (written("\t"), "utf-8", "cells are separated by tabs"),
        (written("|"), "utf-8", "cells are separated by vertical bars"),
        (written(";", ","), "utf-8", "numbers have a decimal comma"),
        (written(quote="'"), "utf-8", "texts are in ' quotes"),
        (written(quote='"'), "utf-8", None),
        (written().replace("\n", "\r\n"), "utf-8", None),
        ("\n\n" + written(), "utf-8", None),
    ],
)
def test_a_text_file_is_read_however_it_is_written(
    tmp_path: Path, text: str, encoding: str, message: str | None
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    d = open_dataset(path, label="sick")
    assert is_as_meant(d), d.columns
    about_file = [note for note in d.notes if "t.csv" in note]
    if message is None:
        assert about_file == []
    else:
        assert any(message in note for note in about_file), d.notes


def test_latin_letters_are_read_and_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(written().replace("mild", "m\xe9dium").encode("latin-1"))
    d = open_dataset(path, label="sick")
    assert d.columns == ("age", "kind=grave", "kind=m\xe9dium")
    assert any("was read as Latin-1 (Windows-1252)" in note for note in d.notes)


@pytest.mark.parametrize(
    ("cells", "value", "message"),
    [
        (("1,234.5", "2,000.0", "12,345,678.25"), 1234.5, "separated by commas"),
        (("1.234,5", "2.000,0", "12.345.678,25"), 1234.5, "separated by points"),
        (("1 234.5", "2 000.0", "12 345 678.25"), 1234.5, "separated by gaps"),
        (("1,234", "2,000", "845"), 1234.0, "separated by commas"),
        (("1,5", "2,25", "3,125"), 1.5, "decimal comma"),
        (("0,137", "3,215", "2,137"), 3.215, "decimal comma"),
        (("-0,137", "0,215", "0,137"), -0.137, "decimal comma"),
        (("0.137", "1,234.5", "2,000.0"), 1234.5, "separated by commas"),
        (("1.234", "2.5", "3.125"), 1.234, None),
    ],
)
def test_decimal_marks_and_thousands_are_found_out(
    tmp_path: Path, cells: tuple[str, ...], value: float, message: str | None
) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{cells[i % 3]};{i * i};{'ab'[i % 2]}" for i in range(30)]
    path.write_text("\n".join(["dose;n;y", *rows]) + "\n", encoding="utf-8")
    d = open_dataset(path, label="y")
    assert float(np.float32(value)) in d.x[:, 0].tolist()
    assert len(d.columns) == 2
    assert message is None or any(message in note for note in d.notes)


def test_a_text_far_below_among_numbers_is_named_by_its_row(tmp_path: Path) -> None:
    lines = [f"{i * 0.5},{i % 2}" for i in range(900)]
    lines[700] = "high,1"
    (tmp_path / "t.csv").write_text("\n".join(["dose,y", *lines]) + "\n")
    with pytest.raises(
        ValueError, match=r"column 'dose', row 701: 'high' is not a number, and the"
    ):
        open_dataset(tmp_path / "t.csv", label="y")
    # and may be omitted if another column is left
    (tmp_path / "u.csv").write_text(
        "\n".join(["dose,n,y", *(f"{a},{i % 7},{i % 2}" for i, a in enumerate("ab" * 9))])
    )
    assert open_dataset(tmp_path / "u.csv", label="y", drop=("dose",)).columns == ("n",)


def test_categories_some_of_which_are_numbers_stay_categories(tmp_path: Path) -> None:
    cells = ["1", "2", "3", "late"] * 10
    (tmp_path / "t.csv").write_text(
        "\n".join(["stage,y", *(f"{c},{i % 2}" for i, c in enumerate(cells))])
    )
    d = open_dataset(tmp_path / "t.csv", label="y")
    assert d.columns[:3] == ("stage=1", "stage=2", "stage=3")


@pytest.mark.parametrize("ending", ["parquet", "feather", "xlsx", "tsv"])
def test_files_of_other_kinds_are_the_same_data_set(tmp_path: Path, ending: str) -> None:
    df = pd.DataFrame(ROWS, columns=["age", "kind", "sick"])
    df.loc[3, "age"] = np.nan
    df.loc[4, "kind"] = None
    path = tmp_path / f"t.{ending}"
    if ending == "xlsx":
        pytest.importorskip("openpyxl")
        df.to_excel(path, index=False)
    elif ending == "tsv":
        df.to_csv(path, index=False, sep="\t")
    else:
        pytest.importorskip("pyarrow")
        getattr(df, f"to_{ending}")(path)
    read = open_dataset(path, label="sick")
    frame = fl.from_frame(df, label="sick", name="t")
    assert (read.columns, read.missing, read.classes) == (
        frame.columns,
        frame.missing,
        frame.classes,
    )
    assert torch.equal(read.x.nan_to_num(-7), frame.x.nan_to_num(-7))
    assert torch.equal(read.y, frame.y)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    for name, output in (
        ("t.xlsx", "t.xlsx could not be read as Excel"),
        ("t.feather", "t.feather could not be read as Feather"),
        ("t.parquet", "t.parquet could not be read as Parquet"),
    ):
        pytest.importorskip("openpyxl" if name.endswith("xlsx") else "pyarrow")
        (tmp_path / name).write_text("no such thing")
        with pytest.raises(ValueError, match=output):
            open_dataset(tmp_path / name, label="y")


def test_columns_that_are_no_features_are_left_out_and_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 240
    df = pd.DataFrame(
        {
            "Unnamed: 0": np.arange(n),
            "patient_no": rng.permutation(n) + 20_000_001,
            "seen": pd.date_range("2024-01-01", periods=n).strftime("%d.%m.%Y"),
            "words": [f"came with {i} and {i % 7}" for i in range(n)],
            "remark": [f"remark {i % 90}" for i in range(n)],
            "country": "ch",
            "nothing": "",
            "dose": rng.normal(size=n).round(3),
            "y": np.arange(n) % 2,
        }
    )
    df.to_csv(tmp_path / "t.csv", index=False)
    d = open_dataset(tmp_path / "t.csv", label="y")
    assert d.columns == ("dose",)
    notes = "\n".join(d.notes)
    for column, why in (
        ("Unnamed: 0", "it is a counter (0, 1, ... 239)"),
        ("patient_no", "it is an identifier (240 different numbers in 240 rows)"),
        ("seen", "it contains dates or times ('01.01.2024', ...)"),
        ("words", "it is an identifier (240 different texts in 240 rows)"),
        ("remark", "it is free text (90 different texts in 240 rows)"),
        ("country", "every row has 'ch'"),
        ("nothing", "it is empty"),
    ):
        assert f"column {column!r} was left out: {why}" in notes
    # requested columns are used or refused
    forced = open_dataset(tmp_path / "t.csv", label="y", columns=("patient_no", "dose"))
    assert forced.columns == ("patient_no", "dose")
    with pytest.raises(ValueError, match="'seen' cannot be a feature: it contains dates"):
        open_dataset(tmp_path / "t.csv", label="y", columns=("seen",))
    named = open_dataset(tmp_path / "t.csv", label="y", id="patient_no")
    assert named.ids is not None and len(named.ids[0]) == 8
    assert (
        "column 'patient_no' has the names of examples and is not a feature" in named.notes
    )
    with pytest.raises(ValueError, match="no column 'dosis'"):
        open_dataset(tmp_path / "t.csv", label="y", drop=("dosis",))


def test_a_time_that_counts_rows_stays_where_it_is_all_there_is(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{i % 2}" for i in range(150))
    (tmp_path / "t.csv").write_text(f"day,y\n{rows}\n")
    assert open_dataset(tmp_path / "t.csv", label="y").columns == ("day",)


def test_two_files_agree_on_what_a_column_is(tmp_path: Path) -> None:
    """Check that a column with numbers in one file and text in another is text."""
    from fallow.data import from_table

    (tmp_path / "a.csv").write_text("grade,z,y\n" + "1,3,no\n2,4,yes\n1,5,no\n" * 4)
    (tmp_path / "b.csv").write_text("grade,z,y\n" + "a,6,no\nb,7,yes\n" * 9)
    d = from_table(tmp_path / "a.csv", LoadOptions(label="y"), test=tmp_path / "b.csv")
    assert d.columns == ("grade=1", "grade=2", "grade=a", "grade=b", "z")


def test_arrays_of_unknown_names_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(4), y=np.arange(4) % 2, sites=np.zeros(4), labels=np.ones(4))
    with pytest.raises(
        ValueError, match=r"arrays, 'sites', 'labels'; rename .*; did you mean 'site'"
    ):
        from_npz(path)
    np.savez(path, x=np.eye(4), y=np.arange(4) % 2, site=np.array(["a", "b"] * 2))
    assert from_npz(path).site_names == ("a", "b")


def test_the_marks_of_a_file_are_detected_from_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;2\n")
    marks = read_file(path).marks
    assert (marks.decimal, marks.thousands) == (",", "")


def test_reading_says_how_many_bytes_of_the_file_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow.data.loaders.delimited.BLOCK", 200)
    path = tmp_path / "rows.csv"
    lines = ["a,b,y", *(f"{i * 37 % 101},{i}.25,{i % 2}" for i in range(4000))]
    path.write_text("\n".join(lines) + "\n")
    output: list[tuple[int, int]] = []
    open_dataset(path, label="y", notify=lambda done, total: output.append((done, total)))
    size = path.stat().st_size
    done = [item for item, _ in output]
    assert {total for _, total in output} == {size}
    assert done == sorted(done) and done[-1] == size
    middle = done[len(done) // 2]  # a proper, non-empty part of it
    assert 0.2 * size < middle < 0.9 * size


@pytest.mark.parametrize("kind", ["date32", "timestamp"])
def test_a_date_beyond_all_calendars_is_refused_in_a_sentence(
    kind: str, tmp_path: Path
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    if kind == "date32":
        days = arrow.array([2**31 - 1, -(2**31)], arrow.date32())
    else:
        days = arrow.array([2**62, -(2**62)], arrow.timestamp("us"))
    parquet.write_table(
        arrow.table({"age": [1.0, 2.0], "day": days}), tmp_path / "t.parquet"
    )
    with pytest.raises(ValueError, match=r"t\.parquet: column 'day' cannot be read"):
        read_file(tmp_path / "t.parquet").texts("day")


def test_two_columns_of_one_name_are_named_in_a_typed_file_too(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    numbers = arrow.array([1.0, 2.0])
    table = arrow.Table.from_arrays([numbers, numbers], ["age", "age"])
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="more than one column 'age'"):
        read_file(tmp_path / "t.parquet")


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet", "feather"])
def test_a_pipe_is_no_table(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"t.{ending}").symlink_to(os.devnull)  # a pipe would block
    with pytest.raises(ValueError, match="is not a file but a pipe or a device"):
        read_file(tmp_path / f"t.{ending}")


def make_frames() -> dict[str, Any]:
    """Return one table with missing cells as frames of pandas, polars and Arrow."""
    arrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    columns = {
        "id": [f"p{row}" for row in range(40)],
        "age": [None if row == 3 else 20.5 + row for row in range(40)],
        "visits": [row % 7 for row in range(40)],
        "smokes": [row % 3 == 0 for row in range(40)],
        "insured": [None if row == 5 else row % 2 == 0 for row in range(40)],
        "kind": [None if row == 4 else ("mild", "grave")[row % 2] for row in range(40)],
        "seen": [datetime(2024, 1, 1 + row % 28) for row in range(40)],
        "ward": [1 + row % 3 for row in range(40)],
        "sick": [None if row > 35 else ("no", "yes")[row // 2 % 2] for row in range(40)],
    }
    table = arrow.table(columns)
    frames = {
        "arrow": table,
        "pandas": table.to_pandas(),
        "pandas with types of Arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": polars.DataFrame(columns),
    }
    frames["pandas with categories"] = frames["pandas"].astype({"kind": "category"})
    return frames


def test_frames_of_every_library_are_the_same_data_set() -> None:
    frames = make_frames()
    first = fl.from_frame(frames["pandas"], label="sick", site="ward")
    assert first.columns[:4] == ("age", "visits", "smokes", "insured")
    for library, frame in frames.items():
        data = fl.from_frame(frame, label="sick", site="ward")
        assert (data.columns, data.classes, data.site_names, data.ids) == (
            first.columns,
            first.classes,
            first.site_names,
            first.ids,
        ), library
        assert (data.notes, data.missing) == (first.notes, first.missing), library
        for name in ("x", "y", "x_test", "y_test", "sites"):
            torch.testing.assert_close(
                getattr(data, name), getattr(first, name), rtol=0, atol=0, equal_nan=True
            )
        assert data.missing is not None
        features = read_features(frame, describe_examples(data))
        assert features.shape == (40, len(data.columns))
        assert np.isnan(features).sum() == 4  # age, insured, and both levels of kind


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_frames_of_every_library_are_refused_in_the_same_sentences(library: str) -> None:
    frame = make_frames()[library]
    with pytest.raises(ValueError, match="frame has no column 'sik'; did you mean 'sick'"):
        fl.from_frame(frame, label="sik")
    with pytest.raises(ValueError, match="1 rows have no site in column 'kind'; fill"):
        fl.from_frame(frame, label="sick", site="kind")
    with pytest.raises(ValueError, match="'kind', row 1: 'mild' is a text, and the model"):
        read_features(frame, spec_of((2,), ["age", "kind"]))
    with pytest.raises(ValueError, match="'kind', row 2: 'grave' is not one of the texts"):
        read_features(frame, spec_of((2,), ["age", "kind=mild"]))
    with pytest.raises(ValueError, match=r"frame has 0 rows and 9 columns; give some"):
        fl.from_frame(frame[:0], label="sick")


def test_a_model_predicts_frames_of_every_library() -> None:
    frames = make_frames()
    data = fl.from_frame(frames["pandas"], label="sick", site="ward", drop=["kind", "seen"])
    run = fl.run(data, "random", cycles=0, initial=5)
    expected = run.predict(frames["pandas"])
    for frame in frames.values():
        assert run.predict(frame).tolist() == expected.tolist()


def test_a_test_frame_may_have_further_columns() -> None:
    frame = pd.DataFrame({"dose": [0.5, 1.5, 2.0, 3.0], "sick": ["no", "yes"] * 2})
    test = pd.DataFrame({"more": [1.0], "sick": ["yes"], "dose": [9.0]})
    data = fl.from_frame(frame, label="sick", test=test)
    assert data.columns == ("dose",) and data.x_test.tolist() == [[9.0]]
    with pytest.raises(ValueError, match="the test frame of frame has no column 'dose'"):
        fl.from_frame(frame, label="sick", test=test.drop(columns="dose"))


def test_a_sheet_is_read_without_empty_rows_and_with_errors_as_empty_cells(
    tmp_path: Path,
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([])
    sheet.append(["age", None, "smokes", "sick"])
    sheet.append([20, "a", True, "no"])
    sheet.append([])
    sheet.append(["#N/A", 1, False, "yes"])
    book.create_sheet("notes")
    book.save(tmp_path / "t.xlsx")
    read = read_file(tmp_path / "t.xlsx")
    assert list(read.columns) == ["age", "column 2", "smokes", "sick"]
    np.testing.assert_array_equal(read.numbers("age"), [20, np.nan])
    np.testing.assert_array_equal(read.numbers("smokes"), [1, 0])
    assert read.texts("column 2") == ["a", "1"]
    assert "only the first of 2 sheets, 'Sheet'" in read.findings[0].sentence
    sheet.append([30, "a", True, "no", "beyond"])
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match="row 3 has 5 cells and the header 4"):
        read_file(tmp_path / "t.xlsx")
