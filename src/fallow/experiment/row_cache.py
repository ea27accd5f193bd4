"""Decoded examples of large tables and images, stored with a study.

Seeds and processes need not decode the files again, and all processes share one copy in
memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict, final

import torch
from torch import Tensor

from fallow import data
from fallow.core.missing import Missing
from fallow.data.dataset import Dataset
from fallow.data.loaders.table_files import TABLES
from fallow.data.reading import ColumnRead, OmittedExamples, Reading
from fallow.experiment.methods import versions
from fallow.settings.recipe import Recipe
from fallow.storage.arrays import is_own_file, map_array, save_array
from fallow.storage.errors import StorageError
from fallow.storage.files import FILE, load_tree, only_one, save_tree, sweep

LARGE = 8_000_000  # size of files in bytes above which reading takes as long as a short run
MANY = 1000
"""Number of files above which each is identified by its name, size and time, because
reading all of them takes too long.
"""
SETTINGS = (
    "data",
    "label",
    "site",
    "id",
    "drop",
    "columns",
    "task",
    "drop_rows",
    "channels",
)
"""Settings that determine, with the files, which examples are read."""


MOST_HELD = 2**28
"""Maximum size in bytes of examples that stay in memory between the seeds of a study."""


@final
@dataclass
class DeviceCache:
    """Dataset that a process read last, for the next seed of its study.

    Datasets above `MOST_HELD` bytes are not kept.
    """

    _known: dict[str, Dataset] = field(default_factory=dict)

    def read(self, recipe: Recipe, read: Callable[[], Dataset]) -> Dataset:
        """Return the result of ``read``, or an earlier result for the same data settings."""
        key = repr([getattr(recipe, name) for name in SETTINGS])
        if key in self._known:
            return self._known[key]
        self._known.clear()
        values = read()
        if values.x.nbytes + values.x_test.nbytes <= MOST_HELD:
            self._known[key] = values
        return values


class CachedRows(TypedDict):
    """Dataset in a file: tensors and plain values, and JSON texts for the rest.

    ``x`` and ``x_test`` are the checksums of arrays in separate files, which are
    memory-mapped.
    """

    x: str
    y: Tensor
    x_test: str
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


def read_once(
    recipe: Recipe, data_dir: Path | None, folder: Path, read: Callable[[], Dataset]
) -> Dataset:
    """Return the result of ``read``, or the copy of an earlier call in ``folder``.

    Small files are read again, as are data that are neither a table nor a named set of files. The
    name of a copy identifies the content, settings and versions, so that a copy is never used for
    other files. A damaged copy is replaced. A folder of `MANY` images is identified by the names,
    sizes and times of its files.
    """
    files = _find_sources(recipe, data_dir)
    if sum(file.stat().st_size for file in files) < LARGE:
        return read()
    name = f"rows-{_digest(files, recipe)}"
    with only_one(folder / "rows.lock"):
        once = _load(folder, name)
        if once is not None:
            return once
        # other drafts may belong to a process that is writing them
        sweep(folder, "rows-*")
        once = read()
        _save(folder, name, once)
        return _load(folder, name) or once  # which all processes share


def _find_sources(recipe: Recipe, data_dir: Path | None) -> Sequence[Path]:
    path = Path(recipe.data)
    if path.suffix.lower() in TABLES and path.is_file():
        return [path]
    return data.source_files(recipe.data, data_dir)


def _digest(files: Sequence[Path], recipe: Recipe) -> str:
    h = hashlib.blake2b(digest_size=16)
    if len(files) >= MANY:
        for path in files:
            about_file = path.stat()
            mark = (path.parts[-3:], about_file.st_size, about_file.st_mtime_ns)
            h.update(repr(mark).encode())
        files = ()
    for path in files:
        if len(files) > 1:
            h.update(repr((path.name, path.stat().st_size)).encode())
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                h.update(block)
    details = [{name: getattr(recipe, name) for name in SETTINGS}, versions()]
    h.update(json.dumps(details, sort_keys=True, default=str).encode())
    return h.hexdigest()


def _save(folder: Path, name: str, dataset: Dataset) -> None:
    """Write the arrays first, so that the main file exists only if everything does.

    The files are readable only by the owner, because the original files may be.
    """
    x = save_array(folder / f"{name}.x.npy", dataset.x.numpy(), FILE)
    x_test = save_array(folder / f"{name}.x_test.npy", dataset.x_test.numpy(), FILE)
    save_tree(folder / f"{name}.safetensors", _as_kept(dataset, x, x_test), FILE)


def _load(folder: Path, name: str) -> Dataset | None:
    """Return the copy with this name, or None if it is missing or damaged."""
    path = folder / f"{name}.safetensors"
    if not is_own_file(path):
        return None
    try:
        kept: CachedRows = load_tree(path, folder)
        x = map_array(folder / f"{name}.x.npy", str(kept["x"]))
        x_test = map_array(folder / f"{name}.x_test.npy", str(kept["x_test"]))
        if x is None or x_test is None:
            return None
        return _from_kept(kept, torch.from_numpy(x), torch.from_numpy(x_test))
    except (
        StorageError,
        KeyError,
        TypeError,
        ValueError,
    ):  # damaged, or from another dataset
        return None


def _as_kept(dataset: Dataset, x: str, x_test: str) -> CachedRows:
    kept: CachedRows = {
        "x": x,
        "y": dataset.y,
        "x_test": x_test,
        "y_test": dataset.y_test,
        "groups": dataset.groups,
        "groups_test": dataset.groups_test,
        "name": dataset.name,
        "classes": list(dataset.classes),
        "group_names": list(dataset.group_names),
        "columns": list(dataset.columns),
        "ids": None,
        "notes": list(dataset.notes),
        "missing": None,
        "reading": None,
    }
    if dataset.ids is not None:
        kept["ids"] = list(dataset.ids)
    if dataset.missing is not None:
        kept["missing"] = json.dumps(asdict(dataset.missing))
    if dataset.reading is not None:
        kept["reading"] = json.dumps(asdict(dataset.reading))
    return kept


def _from_kept(kept: CachedRows, x: Tensor, x_test: Tensor) -> Dataset:
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
        x=x,
        y=kept["y"],
        x_test=x_test,
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
    """Return the `Missing` of a JSON text, whose pairs are lists."""
    plain = json.loads(text)
    levels = tuple((first, end) for first, end in plain["levels"])
    marks = tuple((feature, column) for feature, column in plain["marks"])
    return Missing(levels, marks)


def _read_reading(text: str) -> Reading:
    """Return the `Reading` of a JSON text."""
    plain = json.loads(text)
    left_out = [
        OmittedExamples(why=entry["why"], rows=entry["rows"]) for entry in plain["left_out"]
    ]
    columns = []
    for entry in plain["columns"]:
        column = ColumnRead(
            name=entry["name"],
            kind=entry["kind"],
            values=tuple(entry["values"]),
            missing=entry["missing"],
            why=entry["why"],
            missing_at=entry["missing_at"],
        )
        columns.append(column)
    return Reading(
        source=plain["source"],
        rows=plain["rows"],
        left_out=tuple(left_out),
        columns=tuple(columns),
    )
