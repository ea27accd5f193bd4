"""A user's own data: arrays, .npz files, and ``open_dataset`` for whatever a path leads to."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.build import nearest
from fallow.data.dataset import Dataset, check_leak
from fallow.data.holdout import hold_out
from fallow.data.named import CATALOGUE, load
from fallow.data.own_images import read_folder
from fallow.data.own_labels import TaskChoice, encode, encode_with
from fallow.data.own_table import read_table

Arrayish = npt.NDArray[Any] | Tensor | Sequence[Any]
TABLES = (".csv", ".parquet", ".pq")


def from_arrays(
    x: Arrayish,
    y: Arrayish,
    groups: Arrayish | None = None,
    *,
    x_test: Arrayish | None = None,
    y_test: Arrayish | None = None,
    groups_test: Arrayish | None = None,
    columns: Sequence[str] = (),
    ids: Sequence[str] | None = None,
    name: str = "arrays",
    task: TaskChoice = "auto",
    notes: Sequence[str] = (),
) -> Dataset:
    """A data set from arrays; also for frozen embeddings.

    x: (n, ...) numbers, used as they are.
    y: (n,) whole numbers or texts (classification; classes are their sorted values; -1 or "" is
    unlabelled) or other numbers (regression; NaN is unlabelled).
    groups: (n,) whole numbers or texts, the site of each row.
    Without a test set, 20 % of the labelled rows are held out: stratified, fixed by ``name``.
    Raises ValueError when shapes disagree, features are not finite, fewer than two values are
    among the labels, or a given test row is also a training row.

    >>> d = from_arrays([[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "yes", ""], name="toy")
    >>> d.classes, d.y.tolist(), d.y_test.tolist()
    (('no', 'yes'), [0, 1, -1], [1])
    """
    if (x_test is None) != (y_test is None):
        raise ValueError(f"{name}: a test set needs both x_test and y_test; give both or neither")
    features, sites = _features(x, "x", name), _strings(groups, name, "groups", len(x))
    coded, classes = encode(_array(y), task, name)
    if len(coded) != len(features):
        raise ValueError(f"{name}: {len(features)} rows but {len(coded)} labels; give one a row")
    names = tuple(str(i) for i in ids) if ids is not None else None
    if x_test is None or y_test is None:
        train, test = hold_out(name, features, coded)
        features_test, coded_test, sites_test = features[test], coded[test], _at(sites, test)
        features, coded, sites = features[train], coded[train], _at(sites, train)
        names = tuple(names[row] for row in train) if names is not None else None
    else:
        features_test = _features(x_test, "x_test", name)
        coded_test = encode_with(_array(y_test), classes, name)
        sites_test = _strings(groups_test, name, "groups_test", len(features_test))
    group_names, group, group_test = _grouped(sites, sites_test)
    dataset = Dataset(
        name,
        features,
        torch.from_numpy(coded),
        features_test,
        torch.from_numpy(coded_test),
        classes=classes,
        groups=group,
        groups_test=group_test,
        group_names=group_names,
        columns=tuple(columns),
        ids=names,
        notes=tuple(notes),
    )
    check_leak(dataset)
    return dataset


def from_npz(path: str | Path) -> Dataset:
    """A data set from a .npz file: x, y and perhaps groups, x_test, y_test, groups_test.

    Read without pickles, so texts must be text arrays, not object arrays.  See ``from_arrays``.
    """
    file = _existing(path)
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise ValueError(f"{file} could not be read as .npz without pickles: {error}") from error
    known = ("x", "y", "groups", "x_test", "y_test", "groups_test")
    for key in ("x", "y"):
        if key not in arrays:
            raise ValueError(f"{file} has no array {key!r}{nearest(key, list(arrays))}")
    return from_arrays(**{key: arrays[key] for key in known if key in arrays}, name=file.stem)


def from_table(
    path: str | Path,
    label: str,
    site: str | None = None,
    test: str | Path | None = None,
    *,
    ids: str = "id",
    task: TaskChoice = "auto",
) -> Dataset:
    """A data set from a CSV or Parquet file with one header line; ``test`` is a second such file.

    label: the column of labels; empty = unlabelled.  Texts and whole numbers are classes (sorted);
    other numbers are regression targets; ``task`` decides where whole numbers are targets.
    site: the column that says which site a row belongs to.  ids: the column of row names, used when
    there is one.  Every other column is a feature: numbers as they are, texts one-hot
    (``column=value``, said in ``notes``).  Features are raw: ``standardise`` scales them.
    Raises ValueError for an absent column (with the nearest name), missing or infinite features
    (with column and count), labels that are all missing or all the same, or row names among the
    features.
    """
    file, test_file = _existing(path), None if test is None else _existing(test)
    t = read_table(file, test_file, label, site, ids)
    n, m = t.rows, len(t.x)
    has_test = test_file is not None
    return from_arrays(
        t.x[:n],
        t.label[:n],
        t.site[:n] if t.site is not None else None,
        x_test=t.x[n:m] if has_test else None,
        y_test=t.label[n:m] if has_test else None,
        groups_test=t.site[n:m] if has_test and t.site is not None else None,
        columns=t.columns,
        ids=t.ids[:n] if t.ids is not None else None,
        name=file.stem,
        task=task,
        notes=t.notes,
    )


def from_folder(path: str | Path) -> Dataset:
    """A data set from images in ``site/class/*`` and ``site/unlabelled/*``, all of one size.

    Pixels become (pixel / 255 - 0.5) / 0.5; one channel if every image is grey, else three.
    Row names are the paths below the folder.  Needs pillow.  Raises ValueError that names the file when an
    image cannot be read or has another size.
    """
    folder = _existing(path)
    found = read_folder(folder)
    return from_arrays(
        found.x,
        np.array(found.labels, dtype=np.str_),
        np.array(found.sites),
        ids=found.names,
        name=folder.name,
        task="classification",
        notes=found.notes,
    )


def open_dataset(
    spec: str | Path,
    *,
    data_dir: str | Path | None = None,
    label: str | None = None,
    site: str | None = None,
    task: TaskChoice = "auto",
) -> Dataset:
    """The named data set, or a user's own: a .csv, .parquet or .npz file or a folder of images.

    ``label`` and ``site`` are column names of a table, and of nothing else.
    """
    file = Path(spec)
    if str(spec) in CATALOGUE or not file.exists():
        _refuse_columns(str(spec), label, site)
        if file.suffix or len(file.parts) > 1:
            _existing(file)
        return load(str(spec), data_dir)
    if file.suffix.lower() in TABLES:
        if label is None:
            raise ValueError(f"{file} is a table; name its column of labels with --label")
        return from_table(file, label, site, task=task)
    _refuse_columns(str(spec), label, site)
    if file.is_dir():
        return from_folder(file)
    if file.suffix.lower() == ".npz":
        return from_npz(file)
    raise ValueError(
        f"{file} is no data set Fallow can read; give a .csv, .parquet or .npz file "
        "or a folder of images"
    )


def _refuse_columns(spec: str, label: str | None, site: str | None) -> None:
    if label is not None or site is not None:
        raise ValueError(
            f"{spec} is not a table of your own, so it has no column "
            f"{label or site!r}; leave out --label and --site"
        )


def _existing(path: str | Path) -> Path:
    if not Path(path).exists():
        raise ValueError(f"there is no file or folder {str(path)!r}; give the path of one")
    return Path(path)


def _array(values: Arrayish) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _features(values: Arrayish, what: str, name: str) -> Tensor:
    array = _array(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: {what} holds {array.dtype} values; give numbers")
    if array.ndim < 2:
        raise ValueError(f"{name}: {what} has shape {array.shape}; give (n, features)")
    return torch.from_numpy(array.astype(np.float32))


def _strings(groups: Arrayish | None, name: str, what: str, rows: int) -> npt.NDArray[Any] | None:
    if groups is None:
        return None
    array = _array(groups)
    if array.dtype.kind not in "iuU" or array.shape != (rows,):
        raise ValueError(
            f"{name}: {what} are {array.dtype} of shape {array.shape}; give whole "
            f"numbers or texts, one a row ({rows})"
        )
    return array


def _at(values: npt.NDArray[Any] | None, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
    return None if values is None else values[rows]


def _grouped(
    train: npt.NDArray[Any] | None,
    test: npt.NDArray[Any] | None,
) -> tuple[tuple[str, ...], Tensor | None, Tensor | None]:
    """Names in sorted order, and each row's group id."""
    if train is None:
        return (), None, None
    both = train if test is None else np.concatenate([train, test])
    names, ids = np.unique(both, return_inverse=True)
    group = torch.from_numpy(ids.astype(np.int64))
    group_test = None if test is None else group[len(train) :]
    return tuple(str(name) for name in names), group[: len(train)], group_test
