"""Records and tables of a study in the forms other programs read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fallow.experiment.record import Record
from fallow.report.final_table import final_table
from fallow.report.paper import Paper, known_of
from fallow.report.tables import to_latex, to_markdown
from fallow.storage.csv_table import csv_content
from fallow.storage.files import write_whole
from fallow.study.reading import StudyRecords, read_study

SUFFIX = {"csv": "csv", "parquet": "parquet", "markdown": "md", "latex": "tex"}


def export_study(
    folder: Path, to: str, out: Path | None = None, *, papers: Sequence[Paper] = ()
) -> Path:
    """Write all records (csv, parquet) or the final table (markdown, latex); returns the file.

    Nested values are JSON text in their column.  Raises ValueError when Parquet is asked for and
    pyarrow is not installed.
    """
    study = read_study(folder, known_of(papers))
    if to == "markdown":
        content = to_markdown(final_table(study)).encode()
    elif to == "latex":
        content = to_latex(final_table(study)).encode()
    else:
        content = _records(study, to)
    what = "table" if to in ("markdown", "latex") else "records"
    path = out or folder / f"{what}.{SUFFIX[to]}"
    write_whole(path, content)
    return path


def _records(study: StudyRecords, to: str) -> bytes:
    """All records as a file: a column for each key, in the order in which keys first occur."""
    rows = [_flat(record) for cell in study.cells for record in cell.records]
    if not rows:
        raise ValueError(f"{study.path} has no records yet; run the study first")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if to == "parquet":
        return _parquet(names, rows)
    return csv_content(names, [[row.get(name) for name in names] for row in rows])


def _flat(record: Record) -> dict[str, object]:
    """A record of plain values; nested ones are JSON text."""
    found: dict[str, object] = {}
    for name, value in record.items():
        is_nested = isinstance(value, dict | list)
        found[name] = json.dumps(value) if is_nested else value
    return found


def _parquet(names: list[str], rows: list[dict[str, object]]) -> bytes:
    # as objects: pyarrow sees the values themselves, so whole numbers with a gap stay whole
    table = pd.DataFrame(rows, columns=names, dtype=object)
    try:
        content: bytes = table.to_parquet(engine="pyarrow", index=False)
    except ImportError as error:
        raise ValueError("Parquet needs pyarrow: pip install 'fallow[tables]'") from error
    return content
