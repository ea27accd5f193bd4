"""Table-driven tests: one test for all rows, and rows and files of long tests."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]
StorageError = pytest.fail.Exception


def each_of(names: str, rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every row; several argument ``names`` are separated by commas.

    Each test of ``parametrize`` has an overhead of some milliseconds, so use that for slow
    rows and for rows without shared state. Rows of this test share its fixtures.
    """
    table = list(rows)
    columns = names.split(", ")
    assert table, "a table without rows tests nothing"

    def decorate(function: Test) -> Test:
        @wraps(function)
        def test(**fixtures: Any) -> None:
            failures: list[str] = []
            cause: BaseException | None = None
            for row in table:
                try:
                    function(**choose_arguments(columns, row), **fixtures)
                except (Exception, StorageError) as error:
                    failures.append(f"{str(row)[:80]}: {type(error).__name__}: {error}")
                    cause = cause or error
            if failures:
                head = f"{len(failures)} of {len(table)} rows fail"
                raise AssertionError("\n".join([head, *failures])) from cause

        signature = inspect.signature(function)
        others = [
            part for part in signature.parameters.values() if part.name not in columns
        ]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        test.__rows__ = len(table)  # type: ignore[attr-defined]  # for tables of tests
        return test

    return decorate


def mark_long(rows: Iterable[Any], long: Collection[Any]) -> list[Any]:
    """Return rows for ``parametrize``; run those of ``long`` in `make test-long` only."""
    table = list(rows)
    assert all(row in table for row in long), "a long row is not in the table"
    marked = []
    for row in table:
        values = row if isinstance(row, tuple) else (row,)
        marks = [pytest.mark.long] if row in long else []
        marked.append(pytest.param(*values, marks=marks))
    return marked


def in_sample(file: str, commit: str) -> bool:
    """Check if a file's long tests belong to the third that is run for a commit.

    Files are not split, since their tests share fixtures.
    """
    return zlib.crc32(file.encode()) % 3 == int(commit, 16) % 3


def choose_arguments(columns: Sequence[str], row: Any) -> dict[str, Any]:
    if len(columns) == 1:
        return {columns[0]: row}
    return dict(zip(columns, row, strict=True))
