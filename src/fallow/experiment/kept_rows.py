"""Rows of a large table, kept beside a study's runs, so that each seed need not read the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict, final

from torch import Tensor

from fallow.core.missing import Missing
from fallow.data.dataset import Dataset
from fallow.data.own.cells import TABLES
from fallow.data.reading import ColumnRead, LeftOut, Reading
from fallow.experiment.versions import versions
from fallow.settings.recipe import Recipe
from fallow.storage.files import load_tree, only_one, save_tree

LARGE = 8_000_000  # bytes of a file from which on reading it takes as long as a short run
SETTINGS = ("data", "label", "site", "id", "drop", "columns", "task", "drop_rows")
"""What decides, beside the file, what is read from it."""


MOST_HELD = 2**28
"""Bytes of rows that stay in memory between the seeds of a study."""


@final
@dataclass
class HeldRows:
    """The data set that a process read last, which the next seed of its study need not read again.

    Those above `MOST_HELD` bytes are not held.
    """

    _known: dict[str, Dataset] = field(default_factory=dict)

    def read(self, recipe: Recipe, read: Callable[[], Dataset]) -> Dataset:
        """What ``read`` gives, or what it gave for a recipe with the same data."""
        key = repr([getattr(recipe, name) for name in SETTINGS])
        if key in self._known:
            return self._known[key]
        self._known.clear()
        found = read()
        if found.x.nbytes + found.x_test.nbytes <= MOST_HELD:
            self._known[key] = found
        return found


class KeptRows(TypedDict):
    """A data set as the file keeps it: tensors and plain values, the rest as texts of JSON."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    groups: Tensor | None
    groups_test: Tensor | None
    name: str
    classes: list[str]
    group_names: list[str]
    columns: list[str]
    ids: list[str] | None
    notes: list[str]
    missing: str | None
    reading: str | None


def read_once(recipe: Recipe, folder: Path, read: Callable[[], Dataset]) -> Dataset:
    """What ``read`` gives, or what an earlier call kept in ``folder`` for the same file.

    A small file and whatever is no table are read anew.  The name of what is kept says which
    content, settings and versions it is of, so that another file is never taken for it.
    """
    path = Path(recipe.data)
    is_table = path.suffix.lower() in TABLES and path.is_file()
    if not is_table or path.stat().st_size < LARGE:
        return read()
    kept = folder / f"rows-{_digest(path, recipe)}.safetensors"
    with only_one(folder / "rows.lock"):
        if kept.exists():
            return _from_kept(load_tree(kept, folder))
        found = read()
        save_tree(kept, _as_kept(found))
    return found


def _digest(path: Path, recipe: Recipe) -> str:
    h = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            h.update(block)
    about = [{name: getattr(recipe, name) for name in SETTINGS}, versions()]
    h.update(json.dumps(about, sort_keys=True, default=str).encode())
    return h.hexdigest()


def _as_kept(found: Dataset) -> KeptRows:
    kept: KeptRows = {
        "x": found.x,
        "y": found.y,
        "x_test": found.x_test,
        "y_test": found.y_test,
        "groups": found.groups,
        "groups_test": found.groups_test,
        "name": found.name,
        "classes": list(found.classes),
        "group_names": list(found.group_names),
        "columns": list(found.columns),
        "ids": None,
        "notes": list(found.notes),
        "missing": None,
        "reading": None,
    }
    if found.ids is not None:
        kept["ids"] = list(found.ids)
    if found.missing is not None:
        kept["missing"] = json.dumps(asdict(found.missing))
    if found.reading is not None:
        kept["reading"] = json.dumps(asdict(found.reading))
    return kept


def _from_kept(kept: KeptRows) -> Dataset:
    ids = None
    if kept["ids"] is not None:
        ids = tuple(kept["ids"])
    missing = None
    if kept["missing"] is not None:
        missing = _read_missing(kept["missing"])
    reading = None
    if kept["reading"] is not None:
        reading = _read_reading(kept["reading"])
    return Dataset(
        name=kept["name"],
        x=kept["x"],
        y=kept["y"],
        x_test=kept["x_test"],
        y_test=kept["y_test"],
        classes=tuple(kept["classes"]),
        groups=kept["groups"],
        groups_test=kept["groups_test"],
        group_names=tuple(kept["group_names"]),
        columns=tuple(kept["columns"]),
        ids=ids,
        notes=tuple(kept["notes"]),
        missing=missing,
        reading=reading,
    )


def _read_missing(text: str) -> Missing:
    """What JSON made of a `Missing`: its pairs are lists there."""
    plain = json.loads(text)
    levels = tuple((first, end) for first, end in plain["levels"])
    marks = tuple((feature, column) for feature, column in plain["marks"])
    return Missing(levels, marks)


def _read_reading(text: str) -> Reading:
    """What JSON made of a `Reading`."""
    plain = json.loads(text)
    left_out = [LeftOut(why=each["why"], rows=each["rows"]) for each in plain["left_out"]]
    columns = []
    for each in plain["columns"]:
        column = ColumnRead(
            name=each["name"],
            kind=each["kind"],
            values=tuple(each["values"]),
            missing=each["missing"],
            why=each["why"],
            missing_at=each["missing_at"],
        )
        columns.append(column)
    return Reading(
        source=plain["source"],
        rows=plain["rows"],
        left_out=tuple(left_out),
        columns=tuple(columns),
    )
