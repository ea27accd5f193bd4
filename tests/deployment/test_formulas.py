"""Test that received text is not executed in a spreadsheet or browser."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.deployment.building import build_study
from fallow.deployment.model_card import CardFacts, card_text
from fallow.deployment.site.labels_files import read_lines, write_lines
from fallow.storage.plain import cell, cell_text, plain, printable
from tests.deployment.agreed import TABLE, agreed

FORMULAS = ["=1+1", "+1+1", "-cmd|'/c calc'!A1", "@SUM(A1)", "\t=1", "'=1", "''@x"]
HARMLESS = ["-3.5", "+2", "1e-3", "p1", "a=b", "'quoted'", "", "-inf"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_name_that_is_a_formula_is_text_in_a_table_and_comes_back(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    write_lines(file, [{"id": text, "label": "yes", "annotator": text}])
    with file.open(newline="") as opened:
        assert [row["id"][0] for row in csv.DictReader(opened)] == ["'"]
    ((_, cells),) = read_lines(file, "id")
    assert cells["id"] == cells["annotator"] == text.strip()
    assert cells["label"] == "yes"


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_and_numbers_stand_in_a_table_as_they_are(text: str) -> None:
    assert cell(text) == cell_text(text) == text
    assert cell(-3.5) == -3.5


def test_names_of_an_agreement_are_no_markup_in_a_model_card() -> None:
    image = "![x](http://evil.example/p.png)"
    schema = replace(TABLE, classes=("<script>alert(1)</script>", f"{image}$x$\n# no"))
    agreement = agreed(schema=schema)
    text = card_text(agreement, build_study(agreement).methods, CardFacts("site north"))
    assert "<script>" not in text and "&lt;script>" in text
    assert "](" not in text and "\n# no" not in text and r"\$x\$" in text


def test_a_model_card_does_not_show_small_numbers_of_labels() -> None:
    agreement = agreed()
    labels = {"north": {"labeled": 3, "validation": 1}, "south": {"labeled": 7}}
    facts = CardFacts("the coordinator", labels=labels)
    text = card_text(agreement, build_study(agreement).methods, facts)
    assert "Labels of north: <5, and <5 for the selection" in text
    assert "Labels of south: 7" in text


def test_what_is_shown_steers_no_terminal() -> None:
    wild = "\x1b]0;x\x07a\u202eb\nc\r\x9b31m"
    assert plain(wild) == "]0;xab c 31m"
    assert "\x1b" not in printable(wild) and "\n" in printable(wild)
    assert len(plain("x" * 10**6)) == 500
