"""Test schemas: inference from an example file, and validation of a site's examples."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.core.load_options import LoadOptions
from fallow.deployment.schema import Column, Schema, schema_from, schema_of
from fallow.deployment.site.rows import read_rows, read_tests
from tests.deployment.agreed import COLUMNS, TABLE, table
from tests.each import each_of
from tests.names import CountedName

NUMBERS = replace(TABLE, task="regression", classes=(), unit="mmHg")
ARRAYS = Schema("arrays", "classification", classes=("cat", "dog"), shape=(3,))


def gray(
    file: Path, size: tuple[int, int] = (4, 4), mode: str = "L", shade: int = 255
) -> None:
    image = pytest.importorskip("PIL.Image")
    file.parent.mkdir(parents=True, exist_ok=True)
    image.new(mode, size, shade if mode == "L" else (255, 0, 0)).save(file)


# -- inference from an example file --------------------------------------------------------


def test_an_example_table_says_columns_texts_and_classes(tmp_path: Path) -> None:
    result = schema_of(table(tmp_path / "example.csv"), "disease")
    plain = (Column("age"), Column("sex", values=("female", "male")), Column("chol"))
    assert result == replace(TABLE, columns=plain)
    assert result.features == ("age", "sex=female", "sex=male", "chol")


def test_the_names_of_many_columns_are_not_compared_pair_by_pair(tmp_path: Path) -> None:
    names = [CountedName(f"column {number}") for number in range(500)]
    columns = tuple(Column(name, low=0, high=9) for name in names)
    schema = replace(TABLE, columns=columns, shape=(len(names),))
    head = ",".join(["id", *names, "disease"])
    row = ",".join(["p1", *("1" for _ in names), "yes"])
    path = table(tmp_path / "wide.csv", row, head=head)
    CountedName.comparisons = 0
    assert len(read_rows(path, schema).ids) == 1
    assert CountedName.comparisons <= 50 * len(names)


def test_an_example_may_lack_cells_and_classes(tmp_path: Path) -> None:
    example = table(tmp_path / "example.csv", "1,,male,?,yes", "2,3,,1,")
    result = schema_of(example, "disease", classes=("no", "yes"))
    assert [column.name for column in result.columns] == ["age", "sex", "chol"]
    assert result.columns[1].values == ("male",)


def test_real_labels_are_numbers_to_predict(tmp_path: Path) -> None:
    example = table(tmp_path / "example.csv", "1,60,male,200,1.5", "2,61,male,200,2.5")
    assert schema_of(example, "disease").task == "regression"


def test_a_column_of_names_is_no_feature(tmp_path: Path) -> None:
    rows = [f"{i},{60 + i},name {i},200,{'ny'[i % 2]}" for i in range(60)]
    output: list[str] = []
    result = schema_of(
        table(tmp_path / "example.csv", *rows), "disease", notify=output.append
    )
    assert result.features == ("age", "chol")
    why = "it is an identifier (60 different texts in 60 rows)"
    hint = "name it with --text 'sex' to use it"
    assert output == [f"example.csv: column 'sex' was left out: {why}; {hint}"]


DATED = "id,age,sex,chol,seen,disease"


def test_a_column_of_dates_is_left_out_of_the_agreement_and_passed_over_at_sites(
    tmp_path: Path,
) -> None:
    rows = [
        f"{i},{60 + i % 9},{'fm'[i % 2]},{200 + i},2024-01-0{1 + i % 9},{'ny'[i % 2]}"
        for i in range(30)
    ]
    output: list[str] = []
    example = table(tmp_path / "example.csv", *rows, head=DATED)
    result = schema_of(example, "disease", notify=output.append)
    assert [column.name for column in result.columns] == ["age", "sex", "chol"]
    (sentence,) = output
    assert "'seen' was left out: it contains dates or times ('2024-01-01', ...)" in sentence
    at_site = read_rows(table(tmp_path / "rows.csv", *rows[:4], head=DATED), result)
    assert at_site.x.shape == (4, 4)
    assert at_site.columns[-1].reason == "it contains dates or times ('2024-01-01', ...)"


def test_a_table_of_nothing_but_names_is_refused_with_the_reason(tmp_path: Path) -> None:
    rows = [f"{i},name {i},{'ny'[i % 2]}" for i in range(30)]
    example = table(tmp_path / "example.csv", *rows, head="id,who,disease")
    with pytest.raises(ValueError, match=r"no feature column \(column 'who' was left out"):
        schema_of(example, "disease")


def test_an_example_of_arrays_or_images_says_shape_and_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "example.npz", x=np.zeros((2, 3)), y=np.array(["cat", "dog"]))
    assert schema_of(tmp_path / "example.npz") == ARRAYS
    gray(tmp_path / "example" / "cat" / "1.png")
    gray(tmp_path / "example" / "dog" / "2.png", mode="RGB")
    result = schema_of(tmp_path / "example")
    assert (result.kind, result.classes, result.shape) == (
        "images",
        ("cat", "dog"),
        (3, 4, 4),
    )


def test_a_schema_from_settings_counts_the_features_of_a_table() -> None:
    columns = [
        {"name": "age", "unit": "years", "low": 0, "high": 120},
        {"name": "sex", "values": ["female", "male"]},
        {"name": "chol", "unit": "mg/dl"},
    ]
    details = {"kind": "table", "task": "classification", "label": "disease"}
    assert schema_from({**details, "classes": ["no", "yes"], "columns": columns}) == TABLE


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"shape": [True, 2.0]}, "schema.shape.0 is True; it must be a whole number"),
        ({"shape": [3.0]}, "schema.shape.0 is 3.0; it must be a whole number"),
        ({"shape": ["3"]}, "schema.shape.0 is '3'; it must be a whole number"),
        ({"unit": date(2026, 1, 1)}, "schema: a value is a date or a time"),
    ],
)
def test_a_number_of_a_schema_is_neither_a_truth_nor_a_text(
    part: dict[str, Any], message: str
) -> None:
    details = {"kind": "arrays", "task": "regression", "shape": [3]}
    assert schema_from(details).shape == (3,)
    with pytest.raises(ValueError, match=message):
        schema_from({**details, **part})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"low": True}, "low is True; it must be a number or none"),
        ({"high": "120"}, "high is '120'; it must be a number or none"),
        ({"may_be_empty": 1}, "may_be_empty is 1; it must be true or false"),
        ({"may_be_empty": "no"}, "may_be_empty is 'no'; it must be true or false"),
        ({"values": "ab"}, "values is 'ab'; it must be a list of texts"),
        ({"low": math.nan}, "column 'age' has low = nan; give a number"),
    ],
)
def test_a_column_of_a_schema_is_taken_as_it_is_declared(
    part: dict[str, Any], message: str
) -> None:
    details = {"kind": "table", "task": "regression", "label": "disease"}
    with pytest.raises(ValueError, match=message):
        schema_from({**details, "columns": [{"name": "age", **part}]})


def test_limits_of_columns_are_no_part_of_the_digest_and_units_are() -> None:
    wider = (replace(COLUMNS[0], high=130.0), *COLUMNS[1:])
    months = (replace(COLUMNS[0], unit="months"), *COLUMNS[1:])
    assert replace(TABLE, columns=wider).digest == TABLE.digest
    assert replace(TABLE, columns=months).digest != TABLE.digest


def test_a_label_in_words_is_the_id_of_its_class() -> None:
    digits = replace(TABLE, classes=("0", "1"))
    assert [TABLE.value(" yes "), digits.value("1.0"), NUMBERS.value("-1")] == [
        1.0,
        1.0,
        -1.0,
    ]
    assert [TABLE.words(1.0), NUMBERS.words(2.5)] == ["yes", "2.5"]


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        (TABLE, "yess", "not one of the agreed classes; did you mean 'yes'"),
        (NUMBERS, "nan", "not a finite number (in mmHg)"),
        (NUMBERS, "high", "not a finite number (in mmHg)"),
    ],
)
def test_an_unknown_label_is_refused(schema: Schema, text: str, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        schema.value(text)
    assert reason in str(error.value)


# -- validation of a site's examples -------------------------------------------------------


def test_rows_are_features_labels_names_and_what_people_see(tmp_path: Path) -> None:
    rows = read_rows(table(tmp_path / "rows.csv"), TABLE)
    assert rows.x.tolist()[:2] == [[63.0, 0.0, 1.0, 233.0], [37.0, 1.0, 0.0, 250.5]]
    assert rows.labels == (1.0, 0.0, None, None)
    assert rows.ids == ("p1", "p2", "p3", "p4")
    assert rows.describe(1) == (
        ("age", "37", "years"),
        ("sex", "female", ""),
        ("chol", "250.5", "mg/dl"),
    )
    assert rows.notes == ()


def test_columns_may_stand_in_any_order_and_names_and_labels_be_absent(
    tmp_path: Path,
) -> None:
    file = table(tmp_path / "rows.csv", "male,233,63", head="sex,chol,age")
    rows = read_rows(file, TABLE)
    assert rows.x.tolist() == [[63.0, 0.0, 1.0, 233.0]]
    assert (rows.labels, rows.ids) == ((None,), ("1",))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            "p2,37,Female,250,no",
            "rows.csv: column 'sex', row 2: 'Female' is not one of the agreed",
        ),
        (
            "p2,old,female,250,no",
            "column 'age', row 2: 'old' is not a finite number; give one in ",
        ),
        ('p2,"37,5",female,250,no', "with a decimal point and no comma"),
        ("p2,37,female,1e40,no", "column 'chol', row 2"),
        ("p2,37,female,250,maybe", "rows.csv: row 2: label 'maybe'"),
        ("p2,,female,,no", "1 rows have missing features ('age' 1, 'chol' 1)"),
        ("p1,37,female,250,no", "the name 'p1' occurs in 2 rows"),
    ],
)
def test_a_wrong_cell_is_named_by_file_column_and_row(
    row: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as error:
        read_rows(table(tmp_path / "rows.csv", "p1,63,male,233,yes", row), TABLE)
    assert reason in str(error.value)


@each_of(
    "cells, decimal, first",
    [
        (("3,215", "4,125"), "auto", 3.215),
        (("3,215", "4,125"), ".", 3215.0),
        (("3.215", "4.125"), ",", 3215.0),
        (("3,25", "4,5"), "auto", 3.25),
    ],
)
def test_the_decimal_mark_of_a_site_is_that_of_its_settings_or_a_note(
    cells: tuple[str, str], decimal: Any, first: float, tmp_path: Path
) -> None:
    schema = Schema("table", "classification", "y", ("a", "b"), (Column("dose"),))
    file = tmp_path / "rows.csv"
    file.write_text(f"dose;y\n{cells[0]};a\n{cells[1]};b\n")
    rows = read_rows(file, schema, LoadOptions(decimal=decimal))
    assert rows.x[0, 0].item() == pytest.approx(first)
    is_told = any("set low = and high =" in note for note in rows.notes)
    assert is_told == (decimal == "auto" and cells[0] == "3,215")


def test_codes_of_missing_numbers_are_a_note_of_a_site(tmp_path: Path) -> None:
    schema = Schema("table", "regression", "y", (), (Column("dose"),))
    file = tmp_path / "rows.csv"
    lines = [f"{row},{row}.5" for row in range(12)] + ["-9,-999", "-9,-999", "-8,1", "-8,2"]
    file.write_text("\n".join(["dose,y", *lines]))
    output = " | ".join(read_rows(file, schema).notes)
    assert "column 'dose': -9 in 2 cells and -8 in 2 cells are far outside" in output
    assert "the targets: -999 in 2 cells is far outside" in output


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("id,age,sex,colesterol,disease", "the agreed column 'chol' is missing"),
        (
            "name,age,sex,chol,disease",
            "column 'name' is not part of the agreement; remove it",
        ),
        ("ID,age,sex,chol,disease", "column 'ID' is not part .* did you mean 'id'"),
        ("patient,age,sex,chol,disease", "are of one patient .* give --group patient"),
    ],
)
def test_other_columns_than_those_agreed_on_are_refused(
    head: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=reason):
        read_rows(table(tmp_path / "rows.csv", head=head), TABLE)


def test_rows_that_lack_features_are_left_out_where_that_was_agreed(tmp_path: Path) -> None:
    file = table(
        tmp_path / "rows.csv", "60,male,?,", "61,male,200,yes", head="age,sex,chol,disease"
    )
    rows = read_rows(file, TABLE, LoadOptions(drop_rows=True))
    assert (len(rows.x), rows.ids, rows.labels) == (
        1,
        ("2",),
        (1.0,),
    )  # the number in the file
    assert rows.notes == ("dropped rows with missing features: 1",)
    assert rows.describe(0)[0] == ("age", "61", "years")  # type: ignore[index]


def test_numbers_in_another_unit_are_noticed_and_kept(tmp_path: Path) -> None:
    rows = read_rows(table(tmp_path / "rows.csv", "1,756,male,233,yes"), TABLE)
    assert rows.x[0, 0] == 756
    assert rows.notes == (
        "column 'age': 1 of 1 numbers are outside 0 to 120 years; check that "
        "they are in the agreed unit",
    )


def test_a_test_row_has_its_label(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 test rows have no label, the first is 'p3'"):
        read_tests(table(tmp_path / "rows.csv"), TABLE)


def test_images_are_rows_in_the_order_of_their_names(tmp_path: Path) -> None:
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    for name in ("unlabeled/3.png", "dog/2.png", ".hidden/1.png"):
        gray(tmp_path / "rows" / name)
    rows = read_rows(tmp_path / "rows", schema)
    assert rows.ids == ("2.png", "3.png")
    assert rows.labels == (1.0, None)
    assert torch.equal(rows.x, torch.ones(2, 1, 4, 4))
    assert rows.describe(0) == tmp_path / "rows" / "dog" / "2.png"


def test_an_image_is_called_by_its_file_or_where_two_are_alike_with_its_folder(
    tmp_path: Path,
) -> None:
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    for name in ("unlabeled/scan-1.png", "unlabeled/scan-2.png", "dog/scan-2.png"):
        gray(tmp_path / "rows" / name)
    rows = read_rows(tmp_path / "rows", schema)
    assert rows.ids == ("scan-1.png", "dog/scan-2.png", "unlabeled/scan-2.png")


def test_an_image_that_is_moved_into_the_folder_of_its_class_is_the_same_row(
    tmp_path: Path,
) -> None:
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    for value, name in enumerate(("unlabeled/1.png", "dog/2.png", "unlabeled/3.png")):
        gray(tmp_path / "rows" / name, shade=value * 100)
    before = read_rows(tmp_path / "rows", schema)
    (tmp_path / "rows" / "cat").mkdir()
    (tmp_path / "rows" / "unlabeled" / "3.png").rename(tmp_path / "rows" / "cat" / "3.png")
    after = read_rows(tmp_path / "rows", schema)
    assert (after.ids, after.labels) == (before.ids, (None, 1.0, 0.0))
    assert torch.equal(after.x, before.x)


def test_rows_of_another_kind_are_told_before_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.toml").write_text("a = 1")
    images = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    for path, schema, wanted in (
        (tmp_path, TABLE, "a table, .csv or .parquet"),
        (tmp_path / "rows.toml", TABLE, "a table, .csv or .parquet"),
        (table(tmp_path / "rows.csv"), images, "a folder of images"),
        (tmp_path / "rows.csv", ARRAYS, r"arrays in a file \.npz"),
    ):
        with pytest.raises(
            ValueError, match=f"is not data of this study, which is {wanted}"
        ):
            read_rows(path, schema)


@pytest.mark.parametrize(
    ("name", "size", "mode", "reason"),
    [
        ("fox/1.png", (4, 4), "L", "is not one of the agreed classes"),
        ("cat/1.png", (5, 4), "L", "the agreed shape is"),
        ("cat/1.png", (4, 4), "RGB", "it has colors"),
    ],
)
def test_an_image_that_was_not_agreed_on_is_refused(
    name: str, size: tuple[int, int], mode: str, reason: str, tmp_path: Path
) -> None:
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    gray(tmp_path / "rows" / name, size, mode)
    with pytest.raises(ValueError, match=reason):
        read_rows(tmp_path / "rows", schema)


def test_arrays_are_rows_that_may_come_with_pictures_for_people(tmp_path: Path) -> None:
    details = {"ids": np.array(["a", "b"]), "files": np.array(["a.png", "b.png"])}
    x = np.eye(2, 3)
    y = np.array(["dog", ""])
    np.savez(tmp_path / "rows.npz", x=x, y=y, ids=details["ids"], files=details["files"])
    rows = read_rows(tmp_path / "rows.npz", ARRAYS)
    assert (rows.labels, rows.ids) == ((1.0, None), ("a", "b"))
    assert rows.describe(1) == tmp_path / "b.png"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_out_of_the_folder_of_images_is_refused(what: str, tmp_path: Path) -> None:
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    gray(tmp_path / "rows" / "dog" / "1.png")
    gray(tmp_path / "secret" / "2.png")
    if what == "file":
        (tmp_path / "rows" / "dog" / "2.png").symlink_to(tmp_path / "secret" / "2.png")
    else:
        (tmp_path / "rows" / "cat").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"2.png leads to .*secret/2.png, outside"):
        read_rows(tmp_path / "rows", schema)


def test_a_link_to_the_folder_of_images_and_within_it_is_none_out_of_it(
    tmp_path: Path,
) -> None:
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 4, 4))
    gray(tmp_path / "rows" / "dog" / "1.png")
    (tmp_path / "rows" / "dog" / "2.png").symlink_to("1.png")
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    assert len(read_rows(tmp_path / "link", schema).ids) == 2


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "link.png"])
def test_a_picture_of_arrays_that_is_not_beside_them_is_refused(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    gray(tmp_path / "secret.png")
    (tmp_path / "site" / "link.png").symlink_to(tmp_path / "secret.png")
    np.savez(tmp_path / "site" / "rows.npz", x=np.eye(1, 3), y=np.array([""]), files=[name])
    with pytest.raises(ValueError, match=r"secret.png, outside .*site"):
        read_rows(tmp_path / "site" / "rows.npz", ARRAYS)


def test_arrays_that_are_not_finite_are_refused_or_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.array([[1, 2, np.nan], [1, 2, 3]]))
    with pytest.raises(ValueError, match="1 rows have NaN or infinite features"):
        read_rows(tmp_path / "rows.npz", ARRAYS)
    rows = read_rows(tmp_path / "rows.npz", ARRAYS, LoadOptions(drop_rows=True))
    assert (rows.ids, rows.describe(0)) == (
        ("2",),
        (("x0", "1", ""), ("x1", "2", ""), ("x2", "3", "")),
    )


@pytest.mark.parametrize("text", ["nan", "inf", "1e39", "-3.5e38"])
def test_a_number_that_models_cannot_compute_with_is_no_label(text: str) -> None:
    schema = Schema("arrays", "regression", shape=(2,))
    with pytest.raises(ValueError, match="is not a finite number"):
        schema.value(text)
