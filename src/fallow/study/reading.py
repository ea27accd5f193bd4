"""Read a study directory: what tables, figures and pages are made from.

    study.json                              name, recipe, reference, strategies, seeds, command ...
    cells/<query>/seed-<k>/records.jsonl    one evaluation per line
    cells/<query>/seed-<k>/partition.json   sites x classes, written once

A study that still runs can be read at any time: missing cells are missing, and a half-written
line is skipped and counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, TypedDict, cast

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


RECORDS = "records.jsonl"
PARTITION = "partition.json"
RESTORE = "restore the file, or ask whoever sent it for the one that was written"
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
    "labeled_per_site",
    "versions",
    "notes",
    "pseudo_labels",
    "audit",
    "relayed",
)
COUNTS = (
    "labeled",
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
    """Return the readable records of a file, and the number of unreadable lines.

    An incomplete last line is skipped.  A complete but invalid record raises ValueError.
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
            raise ValueError(f"{path}, line {number}: {wrong}; {RESTORE}")
        rows.append(cast("Record", row))
    return tuple(rows), damaged


def _find_depth(row: Mapping[str, object]) -> str | None:
    """Return an error for a record with lists nested too deeply, or None."""
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
    """Return whether a line is a record with valid types."""
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


class _Counts(TypedDict):
    """Content of ``partition.json``; regression has no matrix."""

    sites: list[str]
    classes: list[str]
    matrix: list[list[int]]


def _partition(path: Path) -> ClassCounts | None:
    """Return the partition; None for a run that has none yet, or for regression.

    Raises ValueError for invalid counts.
    """
    try:
        raw: Any = parse_json(read_regular(path))  # Any: looked at below
    except (FileNotFoundError, ValueError):
        return None  # half-written
    if not isinstance(raw, dict) or not raw.keys() >= _Counts.__required_keys__:
        return None
    wrong = find_wrong(raw, _Counts) or _find_wrong_counts(raw["matrix"], raw)
    if wrong is not None:
        raise ValueError(f"{path}: {wrong}; {RESTORE}")
    return ClassCounts(
        sites=tuple(name[:LONGEST] for name in raw["sites"]),
        classes=tuple(name[:LONGEST] for name in raw["classes"]),
        matrix=tuple(tuple(map(int, row)) for row in raw["matrix"]),
    )


def _find_wrong_counts(matrix: list[list[int]], raw: Mapping[str, Sized]) -> str | None:
    """Return an error for a count matrix (sites x classes), or None."""
    n_sites = len(raw["sites"])
    n_classes = len(raw["classes"])
    if len(matrix) != n_sites:
        return f"matrix has {len(matrix)} rows, and there are {n_sites} sites"
    for at, of_site in enumerate(matrix):
        if len(of_site) != n_classes:
            return (
                f"matrix.{at} has {len(of_site)} counts, and there are {n_classes} classes"
            )
        if min(of_site, default=0) < 0:
            return f"matrix.{at} has a count below 0"
    if not any(map(any, matrix)):
        return "matrix says that no site holds a row"
    return None


def _check_classes(root: Path, cells: Sequence[RunRecords]) -> None:
    """Raise ValueError if runs differ in the number of classes, since results are compared by class."""
    known = 0
    for cell in cells:
        if is_bound(cell.strategy):  # which may have a partition of its own
            continue
        folder = _folder(root, cell.strategy, cell.seed)
        for file, n_classes in _count_classes(cell):
            known = known or n_classes
            if n_classes != known:
                raise ValueError(
                    f"{folder / file} has {n_classes} classes, and there are {known} in the files "
                    f"of the study before; {RESTORE}"
                )


def _count_classes(cell: RunRecords) -> Iterator[tuple[str, int]]:
    """Yield each file of a run that determines the number of classes, with that number."""
    if cell.partition is not None and cell.partition.classes:
        yield PARTITION, len(cell.partition.classes)
    for record in cell.records:
        scores = record.get("per_class")
        if scores:
            yield f"{RECORDS} (per_class in cycle {record['cycle']})", len(scores)


def _check_last(root: Path, cell: RunRecords) -> None:
    """Raise ValueError if a run has scores by site but its last record lacks the bytes by site."""
    if not any(record.get("variance") is not None for record in cell.records):
        return
    last = cell.records[-1]
    for name in ("labeled_per_site", "bytes_down"):
        if not last.get(name) and last.get(name) != 0:
            raise ValueError(
                f"{_folder(root, cell.strategy, cell.seed) / RECORDS}: {name} is missing in the last "
                f"record, and there are scores of sites; {RESTORE}"
            )


def _folder(root: Path, strategy: str, seed: int) -> Path:
    """Return the folder of a run."""
    return root / "cells" / strategy.replace("/", "_") / f"seed-{seed}"


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
        study_manifest = StudyManifest(
            name=raw["name"],
            recipe=raw.get("recipe") or {},
            reference=raw.get("reference"),
            strategies=tuple(raw["strategies"]),
            seeds=tuple(raw["seeds"]),
            command=raw.get("command") or "",
            published=raw.get("published"),
            versions=raw.get("versions") or {},
            classes=tuple(raw.get("classes") or ()),
            known=known,
        )
        _check_manifest(study_manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{file} is not a study's description (wrong or missing: {error}); "
            "give the directory that 'fallow compare --out' wrote"
        ) from error
    return study_manifest


def _check_parts(raw: object) -> None:
    """Raise ValueError for a manifest with an invalid type."""
    if not isinstance(raw, dict):
        raise ValueError("it is no table of names and values")
    for name in ("strategies", "seeds"):  # which are looked at one by one
        if not isinstance(raw.get(name), list):
            raise ValueError(f"{name} is no list")
    for name, kind in PARTS.items():
        wrong = find_wrong(raw.get(name), kind, name)
        if wrong is not None:
            raise ValueError(wrong)


def _check_manifest(study: StudyManifest) -> None:
    """Raise ValueError for an invalid manifest; strategies become folder names and table cells."""
    named: tuple[object, ...] = study.strategies  # as they stand in a file
    for strategy in named:
        is_name = isinstance(strategy, str) and strategy == one_line(strategy)
        if not is_name or strategy in ("", ".", ".."):
            raise ValueError(f"strategies: {strategy!r:.80} is no strategy")
    for seed in study.seeds:
        if type(seed) is not int or not 0 <= seed <= LARGEST:
            raise ValueError(f"seeds: {seed!r:.80} is no seed")
    if len(study.strategies) * len(study.seeds) > MOST_RUNS:
        raise ValueError(f"strategies and seeds: more than {MOST_RUNS:,} runs")


def read_study(path: Path | str, known: Known = NOTHING) -> StudyRecords:
    """Read all records in the folder of a study; ``known`` contains names of strategies in papers.

    Raises ValueError if the folder is not a study, contains links, or has an invalid record.  Missing
    runs and damaged lines are not errors: see ``StudyRecords.missing`` and ``StudyRecords.damaged``.
    """
    root = Path(path)
    study = _study(root, known)
    check_no_links_below(root / "cells")
    cells = []
    for strategy in study.strategies:
        for seed in study.seeds:
            folder = _folder(root, strategy, int(seed))
            records, damaged = _records(folder / RECORDS)
            if records or damaged:
                cells.append(
                    RunRecords(
                        strategy,
                        int(seed),
                        records,
                        _partition(folder / PARTITION),
                        damaged,
                    )
                )
    _check_classes(root, cells)
    for cell in cells:
        _check_last(root, cell)
    return StudyRecords(root, study, tuple(cells))
