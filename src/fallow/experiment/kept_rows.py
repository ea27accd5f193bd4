"""Rows of a large table, kept beside a study's runs, so that each seed need not read the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
TENSORS = ("x", "y", "x_test", "y_test", "groups", "groups_test")


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
            return _dataset(load_tree(kept, folder))
        found = read()
        save_tree(kept, _tree(found))
    return found


def _digest(path: Path, recipe: Recipe) -> str:
    h = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            h.update(block)
    about = [{name: getattr(recipe, name) for name in SETTINGS}, versions()]
    h.update(json.dumps(about, sort_keys=True, default=str).encode())
    return h.hexdigest()


def _tree(found: Dataset) -> dict[str, Any]:
    """A data set as tensors and plain values."""
    tree: dict[str, Any] = {name: getattr(found, name) for name in TENSORS}
    for name in ("name", "classes", "group_names", "columns", "ids", "notes"):
        value = getattr(found, name)
        tree[name] = list(value) if isinstance(value, tuple) else value
    tree["missing"] = None if found.missing is None else json.dumps(asdict(found.missing))
    tree["reading"] = None if found.reading is None else json.dumps(asdict(found.reading))
    return tree


def _dataset(tree: dict[str, Any]) -> Dataset:
    missing = None
    if tree["missing"] is not None:
        plain = json.loads(tree["missing"])
        levels = tuple((first, end) for first, end in plain["levels"])
        marks = tuple((feature, column) for feature, column in plain["marks"])
        missing = Missing(levels, marks)
    reading = None
    if tree["reading"] is not None:
        plain = json.loads(tree["reading"])
        columns = [{**each, "values": tuple(each["values"])} for each in plain["columns"]]
        reading = Reading(
            source=plain["source"],
            rows=plain["rows"],
            left_out=tuple(LeftOut(**each) for each in plain["left_out"]),
            columns=tuple(ColumnRead(**each) for each in columns),
        )
    return Dataset(
        **{name: tree[name] for name in ("name", *TENSORS)},
        classes=tuple(tree["classes"]),
        group_names=tuple(tree["group_names"]),
        columns=tuple(tree["columns"]),
        ids=None if tree["ids"] is None else tuple(tree["ids"]),
        notes=tuple(tree["notes"]),
        missing=missing,
        reading=reading,
    )
