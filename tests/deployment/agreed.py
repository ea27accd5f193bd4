"""A small study of two or three sites, and matching data files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fallow.deployment.agreement import Agreement, Timeouts, at_sites
from fallow.deployment.schema import Column, Schema
from fallow.settings.config import ExperimentConfig, with_settings

COLUMNS = (
    Column("age", "years", low=0, high=120),
    Column("sex", values=("female", "male")),
    Column("chol", "mg/dl"),
)
TABLE = Schema("table", "classification", "disease", ("no", "yes"), COLUMNS, (4,))
HEAD = "id,age,sex,chol,disease"
ROWS = [
    "p1,63,male,233,yes",
    "p2,37,female,250.5,no",
    "p3,41,female,204,",
    "p4,56,male,236,",
]
TEST_ROWS = ["t1,64,male,231,yes", "t2,38,female,250,no"]


def agreed(
    *settings: str,
    schema: Schema = TABLE,
    sites: tuple[str, ...] = ("north", "south"),
    **more: Any,
) -> Agreement:
    """Return a small agreement, e.g. ``agreed("strategy=entropy", seed=3)``."""
    words = dict(pair.split("=", 1) for pair in ("cycles=1", "rounds=1", *settings))
    config = at_sites(
        with_settings(ExperimentConfig("tiny"), words), "hearts", len(sites), schema
    )
    agreement = Agreement(
        "hearts", config, schema, sites, b"k" * 32, waits=Timeouts(quorum=1)
    )
    return replace(agreement, **more)


def table(path: Path, *rows: str, head: str = HEAD) -> Path:
    """Write a CSV file with the given rows (default: the four of `ROWS`)."""
    path.write_text("\n".join([head, *(rows or ROWS)]) + "\n", encoding="utf-8")
    return path
