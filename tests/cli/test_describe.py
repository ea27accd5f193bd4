"""``fallow describe``: page, text and JSON of a data sheet, and wrong inputs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command
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
        (("digits", "--label", "sick"), "is not a table"),
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
