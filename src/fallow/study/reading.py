"""Reading of a study directory, the source of tables, figures and pages.

    study.json                              name, config, reference, strategies, seeds, command ...
    cells/<query>/seed-<k>/records.jsonl    one evaluation per line
    cells/<query>/seed-<k>/partition.json   sites x classes, written once

A study that still runs can be read at any time: missing cells are missing, and a half-written
line is skipped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, get_type_hints

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.kinds import show_name, show_value
from fallow.core.refusal import explain_errors
from fallow.experiment.record import CompleteRecord, Record
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Published
from fallow.storage.plain import one_line
from fallow.storage.received import check_no_links_below, parse_json, read_regular
from fallow.storage.validation import (
    STRICT,
    Count,
    Number,
    Rule,
    find_error,
    find_error_in_json,
    is_usable,
)
from fallow.study.folder import MANIFEST, check_study
from fallow.study.known import PaperResults
from fallow.study.records import (
    BOUND,
    ClassCounts,
    RunRecords,
    StudyManifest,
    StudyRecords,
    is_bound,
)
from fallow.study.study_run import StudyRun

MAX_CHARACTERS = 10_000
"""Letters of a setting."""


def is_name(text: str) -> bool:
    """Return whether a text on one line can name a folder and a cell of a table."""
    return text == one_line(text) and text not in ("", ".", "..")


if TYPE_CHECKING:
    ConfigSettings = dict[str, Any]
else:
    ConfigSettings = with_config({"extra": "allow"})(
        TypedDict("ConfigSettings", get_type_hints(ExperimentConfig), total=False)
    )
"""Settings of an experiment configuration, possibly of another version."""


@with_config(STRICT)
class StudyFile(TypedDict):
    """Content of ``study.json``."""

    name: Annotated[str, Field(description="name of the study")]
    title: NotRequired[Annotated[str, Field(description="title of the study")]]
    config: NotRequired[
        Annotated[
            ConfigSettings | None,
            Field(description="settings of the experiment configuration"),
        ]
    ]
    digest: NotRequired[
        Annotated[str, Field(description="digest of the settings that affect results")]
    ]
    reference: NotRequired[
        Annotated[str | None, Field(description="strategy that others are compared with")]
    ]
    strategies: Annotated[
        list[Annotated[str, Rule(is_name, "the name of a strategy")]],
        Field(description="query strategies"),
    ]
    seeds: Annotated[list[Count], Field(description="seeds")]
    command: NotRequired[
        Annotated[str | None, Field(description="command that began the study")]
    ]
    versions: NotRequired[
        Annotated[dict[str, str] | None, Field(description="versions of packages")]
    ]
    published: NotRequired[
        Annotated[Published | None, Field(description="published results to compare with")]
    ]
    classes: NotRequired[
        Annotated[list[str] | None, Field(description="names of the classes at real sites")]
    ]
    labels: NotRequired[
        Annotated[
            list[str] | None, Field(description="names of several labels per example")
        ]
    ]


@with_config(STRICT)
class PartitionFile(TypedDict):
    """Content of ``partition.json``; regression has no counts by class."""

    sites: Annotated[list[str], Field(description="names of the sites")]
    classes: Annotated[list[str], Field(description="names of the classes")]
    flipped: NotRequired[Annotated[list[str], Field(description="sites with wrong labels")]]
    matrix: NotRequired[
        Annotated[list[list[Count]], Field(description="examples by site and class")]
    ]
    sizes: NotRequired[Annotated[list[Count], Field(description="examples by site")]]
    cv: NotRequired[
        Annotated[
            list[Number],
            Field(description="coefficient of variation over sites, by class"),
        ]
    ]
    sigma_pp: NotRequired[
        Annotated[
            list[Number],
            Field(
                description="standard deviation of shares over sites in points, by class"
            ),
        ]
    ]
    absent: NotRequired[
        Annotated[list[Count], Field(description="classes without examples, by site")]
    ]
    kl: NotRequired[
        Annotated[
            list[Number | None],
            Field(description="KL divergence from the pooled shares in nats, by site"),
        ]
    ]
    mean_kl: NotRequired[Annotated[Number, Field(description="mean of `kl`")]]


def check_settings(value: object, name: str) -> None:
    """Raise ValueError for a text or number in a setting that no page can display."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            check_settings(part, f"{name}.{show_name(key)}")
    elif isinstance(value, list):
        for at, part in enumerate(value):
            check_settings(part, f"{name}.{at}")
    elif isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise ValueError(
            f"{name} has {len(value):,} characters; it must have {MAX_CHARACTERS:,} or fewer"
        )
    elif isinstance(value, float | int) and (value != value or not is_usable(value)):
        raise ValueError(f"{name} is {show_value(value)}; it must be a number")


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


NOTHING = PaperResults()
"""No paper says anything."""


RECORDS = "records.jsonl"
PARTITION = "partition.json"
RESTORE = "restore the file, or ask the sender for the original file"
MOST_BYTES = 2**26
"""Maximum size of a study's description, which names each strategy and seed once."""
MOST_RUNS = 1_000_000
"""Maximum number of runs of a study, each of which has its own file."""
LONGEST = 500
"""Maximum number of displayed characters of the name of a site or class."""


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
        wrong = find_error(CompleteRecord, row)
        if wrong is not None:
            raise ValueError(f"{path}, line {number}: {wrong}; {RESTORE}")
        rows.append(row)
    return tuple(rows), damaged


def _partition(path: Path) -> ClassCounts | None:
    """Return the partition; None for a run that has none yet, or for regression.

    Raises ValueError for invalid counts.
    """
    try:
        raw: Any = parse_json(read_regular(path))  # Any: checked below
    except (FileNotFoundError, ValueError):
        return None  # half-written
    if not isinstance(raw, dict) or "matrix" not in raw:
        return None
    wrong = find_error(PartitionFile, raw) or _find_wrong_counts(raw["matrix"], raw)
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
    if not any(map(any, matrix)):
        return "matrix contains no example"
    return None


def _check_classes(root: Path, cells: Sequence[RunRecords]) -> None:
    """Raise ValueError if runs differ in the number of classes, because results are
    compared by class.
    """
    known = 0
    for cell in cells:
        if is_bound(cell.strategy):  # which may have another partition
            continue
        counts: list[tuple[str, int]] = []  # of each file that determines the number
        if cell.partition is not None:
            counts.append((PARTITION, len(cell.partition.classes)))
        for record in cell.records:
            where = f"{RECORDS} (per_class in cycle {record['cycle']})"
            counts.append((where, len(record.get("per_class") or ())))
        for file, n_classes in counts:
            known = known or n_classes
            if n_classes != known and n_classes:
                raise ValueError(
                    f"{StudyRun(cell.strategy, cell.seed).folder(root) / file} has {n_classes} "
                    f"classes, and the previous files of the study have {known}; {RESTORE}"
                )


def _check_last(root: Path, cell: RunRecords) -> None:
    """Raise ValueError if a run has scores by site but its last record lacks the bytes by site."""
    if not any(record.get("variance") is not None for record in cell.records):
        return
    for name in ("labeled_per_site", "bytes_down"):
        if not cell.last.get(name) and cell.last.get(name) != 0:
            raise ValueError(
                f"{StudyRun(cell.strategy, cell.seed).folder(root) / RECORDS}: {name} is missing "
                f"in the last record, although there are scores of sites; {RESTORE}"
            )


def _study(path: Path, known: PaperResults) -> StudyManifest:
    file = check_study(path) / MANIFEST
    with explain_errors(
        f"{file} is damaged (",
        after="); restore it, or run the study again in another folder",
    ):
        raw: Any = parse_json(read_regular(file, MOST_BYTES))  # Any: checked below
    with explain_errors(
        f"{file} is not a study's description (wrong or missing: ",
        after="); give the directory that 'fallow compare --out' wrote",
    ):
        wrong = find_error_in_json(StudyFile, raw)
        if wrong is not None:
            raise ValueError(wrong)
        config = raw.get("config") or {}
        check_settings(config, "config")
        if len(raw["strategies"]) * len(raw["seeds"]) > MOST_RUNS:
            raise ValueError(f"strategies and seeds: more than {MOST_RUNS:,} runs")
    return StudyManifest(
        name=raw["name"],
        config=config,
        reference=raw.get("reference"),
        strategies=tuple(raw["strategies"]),
        seeds=tuple(raw["seeds"]),
        command=raw.get("command") or "",
        published=raw.get("published"),
        versions=raw.get("versions") or {},
        classes=tuple(raw.get("classes") or ()),
        labels=tuple(raw.get("labels") or ()),
        known=known,
    )


def read_study(path: Path | str, known: PaperResults = NOTHING) -> StudyRecords:
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
            folder = StudyRun(strategy, seed).folder(root)
            records, damaged = _records(folder / RECORDS)
            if records or damaged:
                partition = _partition(folder / PARTITION)
                cells.append(RunRecords(strategy, seed, records, partition, damaged))
    _check_classes(root, cells)
    for cell in cells:
        _check_last(root, cell)
    return StudyRecords(root, study, tuple(cells))
