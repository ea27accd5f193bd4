"""Read a study directory: what tables, figures and pages are made from.

    study.json                              name, recipe, reference, queries, seeds, command ...
    cells/<query>/seed-<k>/records.jsonl    one evaluation per line
    cells/<query>/seed-<k>/partition.json   sites x classes, written once

A study that still runs can be read at any time: missing cells are missing, and a half-written
line is skipped and counted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from fallow.experiment.record import Record
from fallow.study.known import Known
from fallow.study.records import (
    BOUND,
    ClassCounts,
    RunRecords,
    StudyManifest,
    StudyRecords,
    is_bound,
)

__all__ = [
    "BOUND",
    "ClassCounts",
    "Record",
    "RunRecords",
    "StudyManifest",
    "StudyRecords",
    "is_bound",
    "read_study",
]


NOTHING = Known()
"""No paper says anything."""


def _records(path: Path) -> tuple[tuple[Record, ...], int]:
    """The readable records of a file, and how many lines were not."""
    if not path.exists():
        return (), 0
    rows: list[Record] = []
    damaged = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            damaged += bool(line.strip())
            continue
        if isinstance(row, dict) and isinstance(row.get("cycle"), int):
            rows.append(cast("Record", row))
        else:
            damaged += 1
    return tuple(rows), damaged


def _partition(path: Path) -> ClassCounts | None:
    if not path.exists():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return ClassCounts(
            sites=tuple(map(str, raw["sites"])),
            classes=tuple(map(str, raw["classes"])),
            matrix=tuple(tuple(map(int, row)) for row in raw["matrix"]),
        )
    except (json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None  # half-written: the cell is still running


def _study(path: Path, known: Known) -> StudyManifest:
    file = path / "study.json"
    if not file.is_file():
        raise ValueError(
            f"{path} is no study: it has no study.json; give the directory that "
            "'fallow compare --out' wrote"
        )
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        return StudyManifest(
            name=str(raw["name"]),
            recipe=raw.get("recipe") or {},
            reference=raw.get("reference"),
            queries=tuple(raw["queries"]),
            seeds=tuple(raw["seeds"]),
            command=raw.get("command") or "",
            published=raw.get("published"),
            versions=raw.get("versions") or {},
            classes=tuple(map(str, raw.get("classes") or ())),
            known=known,
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{file} is damaged ({error}); restore it, or run the study again in another folder"
        ) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file} is not a study's description (wrong or missing: {error}); "
            "give the directory that 'fallow compare --out' wrote"
        ) from error


def read_study(path: Path | str, known: Known = NOTHING) -> StudyRecords:
    """Everything a study directory holds so far; ``known``: what papers say of its strategies.

    Raises ValueError when the folder is no study.  Missing cells and damaged lines are no error:
    see ``StudyRecords.missing`` and ``StudyRecords.damaged``.
    """
    root = Path(path)
    study = _study(root, known)
    cells = []
    for query in study.queries:
        for seed in study.seeds:
            folder = root / "cells" / query.replace("/", "_") / f"seed-{seed}"
            records, damaged = _records(folder / "records.jsonl")
            if records or damaged:
                cells.append(
                    RunRecords(
                        query,
                        int(seed),
                        records,
                        _partition(folder / "partition.json"),
                        damaged,
                    )
                )
    return StudyRecords(root, study, tuple(cells))
