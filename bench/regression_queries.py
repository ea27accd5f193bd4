"""The run of `bench.regression_run` with Core-Set: 300 queries, 11 phases."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.regression_run import RECIPE, TINY, seconds, write_rows
from bench.timing import Entry, Race

ROWS = 36_584  # as many as in the protein table


def prepare(is_quick: bool) -> Race:
    recipe = RECIPE
    rows = ROWS
    if is_quick:
        recipe = TINY
        rows = 400
    # deleted with the last function that refers to it
    folder = tempfile.TemporaryDirectory()
    write_rows(Path(folder.name) / "table.npz", rows)
    errors: dict[str, float] = {}  # mean squared error at the end

    def theirs() -> None:
        table = Path(folder.name) / "table.npz"
        _, errors["theirs"] = seconds(recipe, table, "core-set", "loop")

    def ours() -> None:
        table = Path(folder.name) / "table.npz"
        _, errors["ours"] = seconds(recipe, table, "core-set", "stacked")

    def are_equal() -> bool:
        return abs(errors["theirs"] - errors["ours"]) <= 1e-8

    return Race(theirs, ours, are_equal, runs=1)


ENTRY = Entry(
    "regression-queries",
    "the same queries, and sites that train one after the other, step by step; one run",
    bar=1.0,
    compared="the mean squared error at the end of the run that was timed, in float64: 1e-8",
    prepare=prepare,
    ceiling=23.5,  # half of the duration of an earlier version
)
