"""Names of datasets, and their metadata."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from fallow.catalog.entries import ENTRIES
from fallow.catalog.entry import CatalogEntry
from fallow.catalog.folder import data_folder, find_files, list_missing, list_sources
from fallow.core.extensions import find_extension, list_extensions, require_extension
from fallow.core.names import OWN, ClassKind, load_class
from fallow.core.suggestions import require_known

GROUP = "fallow.datasets"
"""Entry points ``name = "module:ENTRIES"``, a mapping of names to `CatalogEntry`."""
DATASET = ClassKind("dataset", group=GROUP)
OWN_ENTRIES = {entry.name: entry for entry in ENTRIES}


def is_named(name: str) -> bool:
    """Return whether a dataset has this name, also in a distribution that is not installed.

    >>> is_named("digits"), is_named("femnist"), is_named("rows.csv")
    (True, True, False)
    """
    return name in OWN_ENTRIES or name in list_extensions(GROUP)


def find_entry(name: str) -> CatalogEntry:
    """Return the entry of a named dataset; ValueError with the nearest name for any other."""
    if name in OWN_ENTRIES:
        return OWN_ENTRIES[name]
    extensions = list_extensions(GROUP)
    require_known(name, {*OWN_ENTRIES, *extensions}, f"{name!r} is not a known dataset")
    entries: Mapping[str, CatalogEntry] = load_class(
        require_extension(DATASET, name), OWN, None
    )
    if name not in entries:
        raise ValueError(
            f"the installed distribution of the dataset {name!r} no longer has it; install "
            "the distribution again"
        )
    return entries[name]


def list_entries() -> list[CatalogEntry]:
    """Return all named datasets: Fallow's, then those of installed distributions."""
    extensions = list_extensions(GROUP)
    installed = [name for name in extensions if find_extension(DATASET, name)]
    entries = list(ENTRIES)
    for name in installed:
        with suppress(ValueError):  # of an outdated installation
            entries.append(find_entry(name))
    return entries


def find_by_path(path: Path) -> tuple[CatalogEntry, Path] | None:
    """Return the named images of which ``path`` is a file or folder, and their data folder.

    Return None for any other path, and where files of the dataset are missing.
    """
    for entry in list_entries():
        if len(entry.shape) != 3:  # no images
            continue
        folder = _find_base(entry, path)
        if folder is not None:
            return entry, folder
    return None


def name_of_data(data: str) -> str:
    """Return the name of the dataset at a path of published images, and else ``data`` itself.

    >>> name_of_data("digits"), name_of_data("rows.csv")
    ('digits', 'rows.csv')
    """
    if is_named(data):
        return data
    match = find_by_path(Path(data))
    if match is None:
        return data
    return match[0].name


def _find_base(entry: CatalogEntry, path: Path) -> Path | None:
    """Return the data folder in which ``path`` is a file or folder of a whole edition."""
    whole = path.absolute()
    for parts in _list_parts(entry):
        if whole.parts[-len(parts) :] != parts:
            continue
        base = whole.parents[len(parts) - 1]
        if _is_whole(entry, base):
            return base
    return None


def advise_name(path: Path) -> str:
    """Return how to load a published dataset of which ``path`` is a file or folder, "" for others.

    >>> advise_name(Path("cifar-10-batches-py"))
    "; it is named as a part of the dataset 'cifar10': 'fallow datasets cifar10' lists its files, \
    which are loaded by that name"
    >>> advise_name(Path("rows"))
    ''
    """
    parts_of_path = path.absolute().parts
    for entry in list_entries():
        pickles = [PurePosixPath(name).parts for name in entry.pickles]
        for parts in (*_list_parts(entry), *pickles):
            if parts_of_path[-len(parts) :] == parts:
                name = entry.name
                return (
                    f"; it is named as a part of the dataset {name!r}: 'fallow datasets {name}' "
                    "lists its files, which are loaded by that name"
                )
    return ""


def _list_parts(entry: CatalogEntry) -> list[tuple[str, ...]]:
    """Return the parts of the path of each file of a dataset, and of each folder of them."""
    names: list[str] = []
    for edition in entry.editions:
        for file in edition.files:
            names += [file.name, *file.members]
    paths = [PurePosixPath(name) for name in names]
    folders = [path.parent for path in paths]
    return [path.parts for path in (*paths, *folders) if path.parts]


def _is_whole(entry: CatalogEntry, folder: Path) -> bool:
    try:
        find_files(entry, folder)
    except ValueError:
        return False
    return True


def source_files(name: str, data_dir: str | Path | None = None) -> list[Path]:
    """Return the files of a named dataset in the data folder; none if one is missing.

    >>> source_files("digits"), source_files("no such set")
    ([], [])
    """
    if not is_named(name):
        return []
    try:
        return list_sources(find_files(find_entry(name), data_folder(data_dir)))
    except ValueError:
        return []


def missing_files(name: str, data_dir: str | Path | None = None) -> list[str]:
    """Return the required files of a named dataset that are missing in the data folder.

    >>> missing_files("cifar10", "/nowhere"), missing_files("digits")
    (['cifar-10-binary.tar.gz'], [])
    """
    folder = data_folder(data_dir)
    lists = [list_missing(edition, folder) for edition in find_entry(name).editions]
    if not all(lists):
        return []
    return [file.name for file in lists[0]]
