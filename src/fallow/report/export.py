"""Records and tables of a study in the forms other programs read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fallow.report.final_table import final_table
from fallow.report.paper import Paper, known_of
from fallow.report.tables import to_latex, to_markdown
from fallow.storage.files import write_whole
from fallow.storage.plain import cell
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
    path = (
        out
        or folder / f"{'table' if to in ('markdown', 'latex') else 'records'}.{SUFFIX[to]}"
    )
    if to == "parquet":
        content = _parquet(_rows(study))
    elif to == "csv":
        content = _csv(_rows(study))
    else:
        table = final_table(study)
        content = (to_markdown if to == "markdown" else to_latex)(table).encode()
    write_whole(path, content)
    return path


def _rows(study: StudyRecords) -> list[dict[str, Any]]:
    rows = [dict(record) for cell in study.cells for record in cell.records]
    if not rows:
        raise ValueError(f"{study.path} has no records yet; run the study first")
    return [
        {k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()}
        for row in rows
    ]


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ValueError("Parquet needs pyarrow: pip install 'fallow[tables]'") from error
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
