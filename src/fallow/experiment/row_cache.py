"""Decoded examples of large tables and images, stored with a study.

Seeds and processes need not decode the files again, and all processes share one copy in
memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from fallow.catalog import source_files
from fallow.core.missing import Missing
from fallow.core.types import Tree
from fallow.data.dataset import Dataset
from fallow.data.loaders.scaling import PixelScale
from fallow.data.reading import Finding, Reading
from fallow.experiment.methods import versions
from fallow.settings.config import OF_FILES, ExperimentConfig
from fallow.storage.errors import StorageError
from fallow.storage.files import (
    FILE,
    load_tree,
    only_one,
    replacing,
    save_tree,
    sweep,
)
from fallow.storage.table_suffixes import TABLES
from fallow.storage.validation import adapter_of

LARGE = 8_000_000  # size of files in bytes above which reading takes as long as a short run
MANY = 1000
"""Number of files above which each is identified by its name, size and time, because
reading all of them takes too long.
"""
MOST_HELD = 2**28
"""Maximum size in bytes of examples that stay in memory between the seeds of a study."""


@final
@dataclass
class DatasetCache:
    """Dataset that a process read last, for the next seed of its study.

    Datasets above `MOST_HELD` bytes are not kept.
    """

    _known: dict[str, Dataset] = field(default_factory=dict)

    def read(self, config: ExperimentConfig, read: Callable[[], Dataset]) -> Dataset:
        """Return the result of ``read``, or an earlier result for the same data settings."""
        key = repr([getattr(config, name) for name in OF_FILES])
        if key in self._known:
            return self._known[key]
        self._known.clear()
        dataset = read()
        if dataset.x.nbytes + dataset.x_test.nbytes <= MOST_HELD:
            self._known[key] = dataset
        return dataset


NAMES = ("classes", "labels", "site_names", "columns", "ids")
"""Fields of a dataset with texts, and None for no IDs."""
AS_JSON: Mapping[str, Any] = {
    "missing": Missing,
    "reading": Reading,
    "scale": PixelScale,
    "findings": tuple[Finding, ...],
    "offsets": tuple[float, ...],
    "physical_range": tuple[float, float],
}
"""Fields of a dataset that are stored as JSON, with their types."""
PLAIN = ("name", "y", "y_test", "sites", "sites_test", "groups", "groups_test")


def read_once(
    config: ExperimentConfig,
    data_dir: Path | None,
    folder: Path,
    read: Callable[[], Dataset],
) -> Dataset:
    """Return the result of ``read``, or the copy of an earlier call in ``folder``.

    Small files are read again, as are data that are neither a table nor a named set of files. The
    name of a copy identifies the content, settings and versions, so that a copy is never used for
    other files. A damaged copy is replaced. A folder of `MANY` images is identified by the names,
    sizes and times of its files.
    """
    files = _find_sources(config, data_dir)
    if sum(file.stat().st_size for file in files) < LARGE:
        return read()
    name = f"rows-{_digest(files, config)}"
    with only_one(folder / "rows.lock"):
        copy = _load(folder, name)
        if copy is not None:
            return copy
        # other drafts may belong to a process that is writing them
        sweep(folder, "rows-*")
        dataset = read()
        _save(folder, name, dataset)
        return _load(folder, name) or dataset  # the copy, which all processes share


def _find_sources(config: ExperimentConfig, data_dir: Path | None) -> Sequence[Path]:
    path = Path(config.data)
    if path.suffix.lower() in TABLES and path.is_file():
        return [path]
    return source_files(config.data, data_dir)


def _digest(files: Sequence[Path], config: ExperimentConfig) -> str:
    digest = hashlib.sha256()
    if len(files) >= MANY:
        for path in files:
            status = path.stat()
            mark = (path.parts[-3:], status.st_size, status.st_mtime_ns)
            digest.update(repr(mark).encode())
        files = ()
    for path in files:
        if len(files) > 1:
            digest.update(repr((path.name, path.stat().st_size)).encode())
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    details = [{name: getattr(config, name) for name in OF_FILES}, versions()]
    digest.update(json.dumps(details, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _save(folder: Path, name: str, dataset: Dataset) -> None:
    """Write the arrays first, so that the main file exists only if everything does.

    The files are readable only by the owner, because the original files may be.
    """
    kept: Tree = {
        "x": save_array(folder / f"{name}.x.npy", dataset.x.numpy(), FILE),
        "x_test": save_array(folder / f"{name}.x_test.npy", dataset.x_test.numpy(), FILE),
    }
    for part in PLAIN:
        kept[part] = getattr(dataset, part)
    for part in (*NAMES, *AS_JSON):
        kept[part] = getattr(dataset, part)
        if part in AS_JSON and kept[part] is not None:
            kept[part] = adapter_of(AS_JSON[part]).dump_json(kept[part]).decode()
    save_tree(folder / f"{name}.safetensors", kept, FILE)


def _load(folder: Path, name: str) -> Dataset | None:
    """Return the copy with this name, or None if it is missing or damaged."""
    path = folder / f"{name}.safetensors"
    if not is_own_file(path):
        return None
    try:
        kept: Tree = load_tree(path, folder)
        arrays: dict[str, Any] = {}
        for part in ("x", "x_test"):
            array = map_array(folder / f"{name}.{part}.npy", str(kept[part]))
            if array is None:
                return None
            arrays[part] = torch.from_numpy(array)
        fields = {part: kept[part] for part in PLAIN}
        for part in (*NAMES, *AS_JSON):
            fields[part] = kept[part]
            if part in AS_JSON and fields[part] is not None:
                fields[part] = adapter_of(AS_JSON[part]).validate_json(fields[part])
            elif fields[part] is not None:
                fields[part] = tuple(fields[part])
        return Dataset(**arrays, **fields)
    # damaged, or from another dataset
    except (
        StorageError,
        KeyError,
        TypeError,
        ValueError,
    ):
        return None


Array = npt.NDArray[Any]
BLOCK = 1 << 24  # bytes per checksum update


def save_array(path: Path, array: Array, mode: int = 0o666) -> str:
    """Write an array by `fallow.storage.files.replacing`, and return the checksum of its values."""
    whole = np.ascontiguousarray(array)
    with replacing(path, mode) as file:
        np.lib.format.write_array(file, whole, allow_pickle=False)
    return checksum_of(whole)


def map_array(path: Path, mark: str) -> Array | None:
    """Memory-map the array of a file whose values have the checksum ``mark``.

    Processes that map the file share its pages and cannot change it. Returns None for a missing or
    damaged file, for another array, for a link, and for a file of another owner.
    """
    if not is_own_file(path):
        return None
    try:
        array: Array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(array, np.memmap) or checksum_of(array) != mark:
        return None
    return array


def is_own_file(path: Path) -> bool:
    """Return whether a path is a regular file of this process's owner.

    Otherwise another user could determine the content.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return stat.S_ISREG(status.st_mode) and is_own


def checksum_of(array: Array) -> str:
    """Return a checksum of dtype, shape and values of a contiguous array."""
    digest = hashlib.sha256()
    digest.update(repr((array.dtype.str, array.shape)).encode())
    values = array.reshape(-1).view(np.uint8)
    for begin in range(0, len(values), BLOCK):
        digest.update(values[begin : begin + BLOCK].data)
    return digest.hexdigest()
