"""Rows that are no examples: totals and footnotes below a table, units above it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

import fallow as fl
from fallow.data.loaders.extra_rows import warn_of_extra_rows
from fallow.data.loaders.table_files import read_file, table_of_frame
from tests.data.kinds import column_of, quietly, sentences
from tests.each import each_of

HEADER = "kind,hue,age,sick"
ROWS = [f"{'ab'[i % 2]},{'rgb'[i % 3]},{i % 7},{'yn'[i % 2]}" for i in range(40)]
TEXTS = [f"{'ab'[i % 2]},{'rgb'[i % 3]},{'yn'[i % 2]}" for i in range(40)]
ODD: dict[str, tuple[Sequence[str], str]] = {
    "total": ([HEADER, *ROWS, "Total,,1998,"], "row 41 has 'Total' in column 'kind'"),
    "total with a label": ([HEADER, *ROWS, "a,Sum:,1998,y"], "row 41 has 'Sum:'"),
    "two summaries": ([HEADER, *ROWS, "Mean,,3,", "Median,,3,"], "row 41 has 'Mean'"),
    "German": ([HEADER, *ROWS, "Insgesamt,r,1998,"], "row 41 has 'Insgesamt'"),
    "all": ([HEADER, *ROWS, "All,r,1998,"], "row 41 has 'All'"),
    "source": ([HEADER, *ROWS, "Source: Office,,,"], "row 41 has only the cell 'Source"),
    "footnote": ([HEADER, *ROWS, "* estimated,,,"], "row 41 has only the cell"),
    "footnotes": ([HEADER, *ROWS, "* old,,,", "** new,,,"], "row 41 has only the cell"),
    "units": (["kind,hue,sick", "(type),(color),(yes/no)", *TEXTS], "row 1, which has"),
    "descriptions": (["kind,hue,sick", "Kind of it,Hue,Whether", *TEXTS], "row 1, which"),
    "units of some": ([HEADER, "(type),(color),,", *ROWS], "row 1, which has '(type)'"),
}


@each_of("lines, sentence", ODD.values())
def test_a_row_that_is_no_example_is_a_warning(
    lines: Sequence[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data = quietly(lambda: fl.load(tmp_path / "t.csv", label="sick"))
    named = [f.sentence for f in data.findings if f.severity == "warning"]
    assert any(sentence in text for text in named), named


@each_of("word, is_told", [("Subtotal", True), ("Zwischensumme", True), ("sum", False)])
def test_rows_of_subtotals_are_a_warning(word: str, is_told: bool) -> None:
    column = column_of([word if i % 10 == 9 else f"w{i // 10}" for i in range(60)])
    assert (f"'{word}' in 6 rows may summarize" in sentences(column)) is is_told


USUAL: dict[str, Sequence[str]] = {
    "none": [HEADER, *ROWS],
    "a level called mean": [HEADER, *ROWS, "mean,r,3,y", "mean,r,3,y"],
    "sparse rows": [HEADER, *["a,,,"] * 30, "b,,,"],
    "names of rows": ["name,hue,age,sick", *(f"p{i}{r[1:]}" for i, r in enumerate(ROWS))],
    "notes": ["note,hue,sick", *(f"note {i}{r[1:]}" for i, r in enumerate(TEXTS))],
    "a rare level first": ["kind,hue,sick", "rare,r,y", *TEXTS],
    "codes first": ["kind,hue,sick", "7,8,9", *TEXTS],
    "dates first": ["kind,hue,sick", "2024-01-01,2024-01-02,2024-01-03", *TEXTS],
    "few rows": ["kind,hue,sick", "(type),(color),(yes/no)", *TEXTS[:6]],
}


@each_of("lines", USUAL.values())
def test_usual_rows_are_no_warning(lines: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert not [*warn_of_extra_rows("t.csv", read_file(tmp_path / "t.csv").columns)]


@each_of("kind", ["category", "object"])
def test_rows_of_frames_are_searched(kind: str) -> None:
    frame = pd.DataFrame([row.split(",") for row in [*TEXTS, "Total,,"]])
    table = table_of_frame(frame.astype(kind), "frame")
    (finding,) = warn_of_extra_rows("frame", table.columns)
    assert "row 41 has 'Total' in column '0'" in finding.sentence


def test_a_row_with_one_cell_names_the_footnote(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join([HEADER, *ROWS, "Source: Office"]))
    with pytest.raises(
        ValueError, match=r"row 41 has 1 cells .*; remove it if it is a footnote"
    ):
        read_file(tmp_path / "t.csv")
