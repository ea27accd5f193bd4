"""Groups at a real site: its own column, which no split of the site divides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.core.load_options import LoadOptions
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.rows import check_apart, read_rows, read_tests
from fallow.storage.errors import StorageError
from tests.data.test_own_images import dicom
from tests.deployment.hosts import Leader, agreement, folder
from tests.each import each_of

SCHEMA = Schema("table", "classification", "y", ("a", "b"), (Column("u"),))
ARRAYS = replace(SCHEMA, kind="arrays", columns=(), shape=(1,))


def table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["patient,u,y", *lines]) + "\n")
    return path


def test_a_table_has_the_groups_of_its_kept_rows(tmp_path: Path) -> None:
    file = table(tmp_path / "r.csv", "p2,1,a", "p1,,b", "p2,3,", "p9,4,a")
    rows = read_rows(file, SCHEMA, LoadOptions(drop_rows=True, group="patient"))
    assert rows.groups == ("p2", "p2", "p9")
    assert rows.group_numbers is not None
    assert rows.group_numbers.tolist() == [0, 0, 1]
    assert rows.x.tolist() == [[1.0], [3.0], [4.0]]
    roles = {column.name: column.role for column in rows.columns}
    assert roles["patient"] == "group"


def test_a_group_that_may_be_missing_is_a_note(tmp_path: Path) -> None:
    file = table(tmp_path / "r.csv", "NA,1,a", "NA,2,b", "p2,3,a")
    rows = read_rows(file, SCHEMA, LoadOptions(group="patient"))
    assert any("'NA' (2 rows) may mean a missing name" in note for note in rows.notes)


def test_an_array_file_has_its_groups_in_an_array(tmp_path: Path) -> None:
    file = tmp_path / "r.npz"
    np.savez(file, x=np.arange(3.0)[:, None], y=["a", "b", "a"], case=[7, 7, 8])
    assert read_rows(file, ARRAYS, LoadOptions(group="case")).groups == ("7", "7", "8")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a missing column": ({"group": "case"}, "column 'case' of groups is missing"),
    "the label": ({"group": "y"}, "'y' is the group of a row, and part of the agreement"),
    "a feature": ({"group": "u"}, "'u' is the group of a row, and part of the agreement"),
    "an empty cell": ({"group": "patient"}, "1 rows have no group in 'patient'"),
}


@each_of("what", WRONG)
def test_wrong_groups_are_refused(what: str, tmp_path: Path) -> None:
    options, sentence = WRONG[what]
    file = table(tmp_path / "r.csv", "p1,1,a", ",2,b", "p1,3,b")
    with pytest.raises(ValueError, match=sentence):
        read_rows(file, SCHEMA, LoadOptions(**options))


def test_a_group_of_the_data_has_no_test_rows(tmp_path: Path) -> None:
    rows = read_rows(
        table(tmp_path / "r.csv", "p1,1,a", "p2,2,b"), SCHEMA, LoadOptions(group="patient")
    )
    tests = read_rows(
        table(tmp_path / "t.csv", "p2,5,a"), SCHEMA, LoadOptions(group="patient")
    )
    with pytest.raises(ValueError, match=r"1 group of the test rows .* such as 'p2'"):
        check_apart(rows, tests, "t.csv")
    check_apart(replace(rows, groups=None), tests, "t.csv")


def test_labels_of_a_file_and_of_annotators_divide_no_group(tmp_path: Path) -> None:
    config = agreement("strategy=random", "validation=0.4")
    leader = Leader(folder(tmp_path, config, brought=range(0, 18, 4), group="ward"))
    assert leader.site.settings.group == "ward"
    leader.people("hello", "0/hello")
    leader.initial(4)
    groups = leader.host._local_site().groups
    assert groups is not None and len(set(groups.tolist())) == 6
    sides: dict[int, set[bool]] = {}
    for label in leader.ledger.store.load_labels(leader.site.name):
        sides.setdefault(int(groups[label.row]), set()).add(label.is_validation)
    assert all(len(side) == 1 for side in sides.values())
    assert set.union(*sides.values()) == {True, False}
    leader.ledger.close()


def test_other_groups_are_other_data(tmp_path: Path) -> None:
    made = folder(tmp_path, agreement("strategy=random"), group="ward")
    data = tmp_path / "rows.csv"
    data.write_text(data.read_text().replace("rows 0", "rows 1"))
    with pytest.raises(StorageError, match="not those with which site north"):
        _ = SiteFolder.open(made.path).rows


def test_agreed_classes_that_differ_in_writing_are_noted_with_their_counts(
    tmp_path: Path,
) -> None:
    schema = replace(SCHEMA, classes=("no", "No", "yes"))
    file = table(tmp_path / "r.csv", "p1,1,no", "p2,2,No", "p3,3,no", "p4,4,yes")
    (note,) = read_rows(file, schema, LoadOptions(group="patient")).notes
    assert "'no' (2 rows) and 'No' (1 row) differ only in their writing" in note


def test_equal_rows_of_a_table_with_few_distinct_values_are_chance(tmp_path: Path) -> None:
    rows = read_rows(
        table(tmp_path / "r.csv", "p1,1,a", "p2,1,b", "p3,2,a"),
        SCHEMA,
        LoadOptions(group="patient"),
    )
    tests = read_rows(
        table(tmp_path / "t.csv", "p5,1,a", "p6,3,b", "p7,4,b"),
        SCHEMA,
        LoadOptions(group="patient"),
    )
    check_apart(rows, tests, "t.csv")
    apart = read_rows(
        table(tmp_path / "r.csv", "p1,1,a", "p2,5,b", "p3,2,a"),
        SCHEMA,
        LoadOptions(group="patient"),
    )
    with pytest.raises(ValueError, match="1 of 3 test rows are also rows of the data"):
        check_apart(apart, tests, "t.csv")


def test_a_site_chooses_the_part_of_its_own_excel_file(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    book.create_sheet("data")
    for row in (["Ward A"], ["patient", "u", "y"], ["p1", 1, "a"], ["p2", 2, "b"]):
        book["data"].append(row)
    book.save(tmp_path / "r.xlsx")
    options = LoadOptions(group="patient", sheet="data", header_row=2)
    rows = read_rows(tmp_path / "r.xlsx", SCHEMA, options)
    assert rows.x.flatten().tolist() == [1.0, 2.0] and rows.groups == ("p1", "p2")
    file = table(tmp_path / "r.csv", "p1,1,a")
    with pytest.raises(ValueError, match=r"r\.csv is a text, .*: sheet='data'.*; omit"):
        read_rows(file, SCHEMA, options)


def test_pages_of_two_folders_are_no_common_group(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    for number, part in enumerate(("rows", "tests")):
        (tmp_path / part / "a").mkdir(parents=True)
        levels = [90 * number + 20 * page for page in range(3)]
        first, *others = [images.new("L", (2, 2), level) for level in levels]
        first.save(tmp_path / part / "a" / "1.tif", save_all=True, append_images=others)
    schema = Schema("images", "classification", "y", ("a", "b"), shape=(1, 2, 2))
    options = LoadOptions(pages="each")
    rows = read_rows(tmp_path / "rows", schema, options)
    tests = read_tests(tmp_path / "tests", schema, options)
    check_apart(rows, tests, "tests")
    assert rows.group_numbers is not None and rows.group_numbers.tolist() == [0, 0, 0]


@each_of(
    "group, groups", [("PatientID", ("p1", "p1", "p2")), (None, None), ("Name", ValueError)]
)
def test_dicom_images_have_the_group_of_their_patient(
    group: str | None, groups: Any, tmp_path: Path
) -> None:
    for number, patient in enumerate(("p1", "p1", "p2")):
        levels = np.full((2, 2), number, dtype=np.uint16)
        dicom(tmp_path / "a" / f"{number}.dcm", levels, 12, PatientID=patient)
    schema = Schema("images", "classification", "y", ("a", "b"), shape=(1, 2, 2))
    if groups is ValueError:
        with pytest.raises(ValueError, match="3 of 3 images have no 'Name'; give group="):
            read_rows(tmp_path, schema, LoadOptions(group=group))
        return
    rows = read_rows(tmp_path, schema, LoadOptions(group=group))
    assert rows.groups == groups
    is_told = any("set group='PatientID'" in note for note in rows.notes)
    assert is_told == (group is None)
