"""``fallow describe``: page, text and JSON of a data sheet, and wrong inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tests.data.test_own_images import dicom
from tests.each import each_of

OWN = ("patients.csv", "--label", "sick", "--site", "ward")


def test_the_page_is_named_after_the_data_and_the_terminal_has_the_sentence(
    fallow: Command, folder: Path
) -> None:
    output = fallow("describe", *OWN)
    assert output.code == 0, output.err
    assert "examples at 3 natural sites" in output.out
    assert "Wrote patients-data.html" in output.out
    page = (folder / "patients-data.html").read_text()
    assert "Look at these first" in page
    assert "east" in page


def test_json_has_the_values_of_the_page(fallow: Command, folder: Path) -> None:
    output = fallow("describe", *OWN, "--out", "sub/own.html", "--json")
    sheet = json.loads(output.out)
    page = (folder / "sub" / "own.html").read_text()
    for column in sheet["columns"]:
        assert f"<strong>{column['name']}</strong>" in page
    for finding in sheet["findings"]:
        assert finding["sentence"].split("'")[0] in page


@each_of(
    "words, problem",
    [
        (("missing.csv",), "no file or folder 'missing.csv'"),
        (("patients.csv",), "set its column of labels with --label"),
        (("patients.csv", "--label", "sik"), "no column 'sik'"),
        (("digits", "--label", "sick"), "is a named dataset"),
        ((*OWN, "--out", "page.txt"), "does not end in .html"),
    ],
)
def test_a_wrong_input_is_one_sentence(
    fallow: Command, folder: Path, words: tuple[str, ...], problem: str
) -> None:
    output = fallow("describe", *words)
    assert output.code == 2
    assert problem in " ".join(output.err.split())
    assert output.err.count("error:") == 1


def test_a_sheet_of_excel_and_its_header_are_options(fallow: Command, folder: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    book.create_sheet("data")
    for row in [
        ["Study 2024"],
        [],
        ["age", "sick"],
        *([i, "ny"[i % 2]] for i in range(30)),
    ]:
        book["data"].append(row)
    book.save(folder / "study.xlsx")
    words = ("study.xlsx", "--label", "sick", "--sheet", "data", "--header-row", "3")
    output = fallow("describe", *words, "--json")
    assert output.code == 0, output.err
    sheet = json.loads(output.out)
    assert [column["name"] for column in sheet["columns"]] == ["sick", "age"]
    started = fallow("init", "study.toml", "--data", *words)
    assert started.code == 0, started.err
    text = (folder / "study.toml").read_text()
    assert 'sheet = "data"' in text and "header_row = 3" in text


def test_a_physical_range_is_an_option(fallow: Command, folder: Path) -> None:
    pytest.importorskip("pydicom")
    for number in range(6):
        values = np.array([[0, 100], [200, 300 + number]], dtype=np.uint16)
        file = folder / "scans" / "ab"[number % 2] / f"{number}.dcm"
        dicom(file, values, 12, slope=1.0, intercept=-100.0)
    output = fallow("describe", "scans", "--physical-range", "-100,300")
    assert output.code == 0, output.err
    assert "values from -100 to 300" in output.out


def test_the_terminal_names_the_options_that_change_a_guess(
    fallow: Command, folder: Path
) -> None:
    output = fallow("describe", *OWN)
    text = " ".join(output.out.split())
    assert "became 2 one-hot columns; change it with --drop kind" in text
    assert "drop=" not in text


def test_an_option_given_twice_is_refused(fallow: Command, folder: Path) -> None:
    output = fallow("describe", "patients.csv", "--label", "sick", "--label", "kind")
    assert output.code == 2
    assert output.says() == "--label is given twice; give it once"
