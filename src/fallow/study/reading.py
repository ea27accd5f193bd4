"""Read a study directory: what tables, figures and pages are made from.

    study.json                              name, recipe, reference, queries, seeds, command ...
    cells/<query>/seed-<k>/records.jsonl    one evaluation per line
    cells/<query>/seed-<k>/partition.json   sites x classes, written once

A study that still runs can be read at any time: missing cells are missing, and a half-written
line is skipped and counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from fallow.experiment.record import Record
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Published
from fallow.storage.plain import one_line, plain
from fallow.storage.received import (
    check_depth,
    check_no_links_below,
    parse_json,
    read_regular,
)
from fallow.study.known import Known
from fallow.study.record_parts import (
    CHECKED,
    HUGE,
    LARGEST,
    WIDEST,
    find_wrong,
    find_wrong_part,
)
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


MOST_BYTES = 2**26
"""Of a study's description, which names each strategy and seed once."""
MOST_RUNS = 1_000_000
"""Strategies times seeds of a study: each is looked for in a file of its own."""
LONGEST = 500
"""Letters of a name of a site or class that are shown."""
LISTS = ("cohort", "per_class", "refused", "revealed")
MAPPINGS = (
    "per_site",
    "retained",
    "graph",
    "omega",
    "labelled_per_site",
    "versions",
    "notes",
    "pseudo_labels",
    "audit",
    "relayed",
)
COUNTS = (
    "labelled",
    "labels_validation",
    "pool",
    "seconds",
    "bytes_up",
    "bytes_down",
    "threads",
    "model_bytes",
)
NUMBERS = (
    *COUNTS,
    "seed",
    "cycle",
    "round",
    "accuracy",
    "balanced_accuracy",
    "mse",
    "accuracy_weighted",
    "variance",
    "worst_tenth",
    "evaluations",
    "conflicts",
    "guarded",
    "features",
    "penalty",
    "temperature",
    "left_out",
    "target_variance",
)
"""Fields of a record by the kind of their values; each may be None."""
PARTS: Mapping[str, object] = {
    "name": str,
    "recipe": Recipe | None,
    "reference": str | None,
    "command": str | None,
    "published": Published | None,
    "versions": dict[str, str] | None,
    "classes": list[str] | None,
}
"""The types of what is read of a study's description."""


def _records(path: Path) -> tuple[tuple[Record, ...], int]:
    """The readable records of a file, and how many lines were not.

    Raises ValueError for a record that no run wrote: of a line that was only begun nothing is read,
    but this one is whole, and means something else than it should.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return (), 0
    rows: list[Record] = []
    damaged = 0
    lines = content.decode(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            damaged += bool(line.strip())
            continue
        if not _is_record(row):
            damaged += 1
            continue
        wrong = find_wrong_part(row) or _find_depth(row)
        if wrong is not None:
            raise ValueError(
                f"{path}, line {number}: {wrong}; restore the file, or ask whoever sent it for "
                "the one that was written"
            )
        rows.append(cast("Record", row))
    return tuple(rows), damaged


def _find_depth(row: Mapping[str, object]) -> str | None:
    """What is wrong with a part of a record that has lists in lists in lists; None where none has."""
    for name, value in row.items():
        # the depth of others follows from their types
        if name in CHECKED or not isinstance(value, (dict, list)):
            continue
        try:
            check_depth(value)
        except ValueError as error:
            return f"{plain(name, WIDEST)} cannot be read: {error}"
    return None


def _is_record(row: object) -> bool:
    """Whether a line is a record: of a cycle, and with values of the right kinds."""
    if not isinstance(row, dict) or type(row.get("cycle")) is not int:
        return False
    for name in NUMBERS:
        value = row.get(name)
        if value is not None and not isinstance(value, (int, float)):
            return False
        if isinstance(value, int) and abs(value) > LARGEST:
            return False
        if isinstance(value, float) and HUGE < abs(value) < math.inf:
            return False
        if name in COUNTS and value is not None and not 0 <= value < math.inf:
            return False
    has_lists = all(isinstance(row.get(name) or [], list) for name in LISTS)
    has_mappings = all(isinstance(row.get(name) or {}, dict) for name in MAPPINGS)
    return has_lists and has_mappings


def _partition(path: Path) -> ClassCounts | None:
    try:
        raw: Any = parse_json(read_regular(path))  # Any: looked at below
        return ClassCounts(
            sites=tuple(str(name)[:LONGEST] for name in raw["sites"]),
            classes=tuple(str(name)[:LONGEST] for name in raw["classes"]),
            matrix=tuple(tuple(map(int, row)) for row in raw["matrix"]),
        )
    except (FileNotFoundError, KeyError, TypeError, ValueError, OverflowError):
        return None  # half-written: the cell is still running


def _study(path: Path, known: Known) -> StudyManifest:
    file = path / "study.json"
    if not file.is_file():
        raise ValueError(
            f"{path} is no study: it has no study.json; give the directory that "
            "'fallow compare --out' wrote"
        )
    try:
        raw: Any = parse_json(read_regular(file, MOST_BYTES))  # Any: looked at below
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged ({error}); restore it, or run the study again in another folder"
        ) from error
    try:
        _check_parts(raw)
        found = StudyManifest(
            name=raw["name"],
            recipe=raw.get("recipe") or {},
            reference=raw.get("reference"),
            queries=tuple(raw["queries"]),
            seeds=tuple(raw["seeds"]),
            command=raw.get("command") or "",
            published=raw.get("published"),
            versions=raw.get("versions") or {},
            classes=tuple(raw.get("classes") or ()),
            known=known,
        )
        _check_manifest(found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{file} is not a study's description (wrong or missing: {error}); "
            "give the directory that 'fallow compare --out' wrote"
        ) from error
    return found


def _check_parts(raw: object) -> None:
    """Raise ValueError for a description with a part of a type that no study wrote."""
    if not isinstance(raw, dict):
        raise ValueError("it is no table of names and values")
    for name in ("queries", "seeds"):  # which are looked at one by one
        if not isinstance(raw.get(name), list):
            raise ValueError(f"{name} is no list")
    for name, kind in PARTS.items():
        wrong = find_wrong(raw.get(name), kind, name)
        if wrong is not None:
            raise ValueError(wrong)


def _check_manifest(study: StudyManifest) -> None:
    """Raise ValueError for what no study wrote: strategies name folders and stand in tables."""
    named: tuple[object, ...] = study.queries  # as they stand in a file
    for query in named:
        is_name = isinstance(query, str) and query == one_line(query)
        if not is_name or query in ("", ".", ".."):
            raise ValueError(f"queries: {query!r:.80} is no strategy")
    for seed in study.seeds:
        if type(seed) is not int or not 0 <= seed <= LARGEST:
            raise ValueError(f"seeds: {seed!r:.80} is no seed")
    if len(study.queries) * len(study.seeds) > MOST_RUNS:
        raise ValueError(f"queries and seeds: more than {MOST_RUNS:,} runs")


def read_study(path: Path | str, known: Known = NOTHING) -> StudyRecords:
    """Everything a study directory holds so far; ``known``: what papers say of its strategies.

    Raises ValueError when the folder is no study, for links in it, and for a record with a wrong
    part, whose file, line and field it names.  Missing cells and damaged lines are no error: see
    ``StudyRecords.missing`` and ``StudyRecords.damaged``.
    """
    root = Path(path)
    study = _study(root, known)
    check_no_links_below(root / "cells")
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
