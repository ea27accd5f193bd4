"""Export of records and tables to other formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fallow.configs.papers import Paper, paper_results_of
from fallow.core.optional import import_optional
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


def export_study(
    folder: Path,
    to: str,
    out: Path | None = None,
    *,
    metric: str | None = None,
    papers: Sequence[Paper] = (),
) -> Path:
    """Write what `export_content` returns, and return the file."""
    path = out or folder / FILE[to]
    write_whole(path, export_content(folder, to, metric=metric, papers=papers))
    return path


def export_content(
    folder: Path, to: str, *, metric: str | None = None, papers: Sequence[Paper] = ()
) -> bytes:
    """Return all records (csv, parquet) or the final table (markdown, latex).

    Nested values become JSON text.  ``metric``: of the setting ``metrics``, for the final table.
    Raises ValueError if the study lacks it, or if Parquet is requested without pyarrow.
    """
    study = replace(read_study(folder, paper_results_of(papers)), metric=metric)
    match to:
        case "parquet":
            import_optional("pyarrow", "pyarrow", "Parquet")
            content: bytes = _frame(study).to_parquet(engine="pyarrow", index=False)
        case "csv":
            # a file may be displayed in a terminal
            frame = _frame(study).rename(columns=printable).map(_show)
            content = csv_content(list(frame), frame.to_numpy().tolist())
        case "markdown":
            content = to_markdown(final_table(study)).encode()
        case _:
            content = to_latex(final_table(study)).encode()
    return content


def _frame(study: StudyRecords) -> pd.DataFrame:
    """Return each record as a row, with nested values as JSON text.

    Columns are objects, so that integers stay integers where others are missing.
    """
    rows = []
    for cell in study.cells:
        for record in cell.records:
            rows.append({name: _flat(value) for name, value in record.items()})
    if not rows:
        raise ValueError(f"{study.path} has no records yet; run the study first")
    return pd.DataFrame(rows, dtype=object)


def _flat(value: object) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return value


def _show(value: object) -> object:
    """Return a value without control characters, and None for a missing one."""
    if isinstance(value, str):
        return printable(value)
    if value != value:  # NaN
        return None
    return value
