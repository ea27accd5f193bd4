"""Export of records and tables to other formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fallow.core.optional import import_optional
from fallow.recipes.papers import Paper, paper_results_of
from fallow.report.final_table import final_table
from fallow.report.tables import to_latex, to_markdown
from fallow.storage.files import write_whole
from fallow.storage.plain import csv_content, printable
from fallow.study.reading import StudyRecords, read_study

FILE = {
    "csv": "records.csv",
    "parquet": "records.parquet",
    "markdown": "table.md",
    "latex": "table.tex",
}
"""Names of the exported files in the study's folder, by format."""

Row = dict[str, object]
"""A record whose values are strings, numbers or None."""


def export_study(
    folder: Path,
    to: str,
    out: Path | None = None,
    *,
    metric: str | None = None,
    papers: Sequence[Paper] = (),
) -> Path:
    """Write all records (csv, parquet) or the final table (markdown, latex), and return the file.

    Nested values become JSON text.  ``metric``: of the setting ``metrics``, for the final table.
    Raises ValueError if the study lacks it, or if Parquet is requested without pyarrow.
    """
    study = replace(read_study(folder, paper_results_of(papers)), metric=metric)
    match to:
        case "parquet":
            content = _parquet(_rows(study))
        case "csv":
            content = _csv(_rows(study))
        case "markdown":
            content = to_markdown(final_table(study)).encode()
        case _:
            content = to_latex(final_table(study)).encode()
    path = out or folder / FILE[to]
    write_whole(path, content)
    return path


def _rows(study: StudyRecords) -> list[Row]:
    """Return each record as a flat row, with nested values as JSON text."""
    rows = []
    for of_run in study.cells:
        for record in of_run.records:
            rows.append({name: _flat(value) for name, value in record.items()})
    if not rows:
        raise ValueError(f"{study.path} has no records yet; run the study first")
    return rows


def _flat(value: object) -> object:
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return value


def _names(rows: Sequence[Row]) -> list[str]:
    """Return the columns: all keys of records, in order of first occurrence."""
    names: dict[str, None] = {}  # a set that keeps its order
    for row in rows:
        names |= dict.fromkeys(row)
    return list(names)


def _csv(rows: Sequence[Row]) -> bytes:
    names = _names(rows)
    lines = []
    for row in rows:
        lines.append([_shown(row.get(name)) for name in names])
    return csv_content([printable(name) for name in names], lines)


def _shown(value: object) -> object:
    """Return a value without control characters, because a file may be displayed in a
    terminal.
    """
    if isinstance(value, str):
        return printable(value)
    return value


def _parquet(rows: Sequence[Row]) -> bytes:
    # Object columns let pyarrow infer the types, so integers with missing values stay
    # integers.
    table = pd.DataFrame(list(rows), columns=_names(rows), dtype=object)
    import_optional("pyarrow", "pyarrow", "Parquet")
    content: bytes = table.to_parquet(engine="pyarrow", index=False)
    return content
