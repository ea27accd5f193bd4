"""A user's own data: arrays, .npz files, and ``open_dataset`` for whatever a path leads to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.build import nearest
from fallow.data.catalogue.named import CATALOGUE, load
from fallow.data.dataset import Dataset, check_finite, check_leak
from fallow.data.own.features import read_arrays
from fallow.data.own.images import read_folder
from fallow.data.own.labels import TaskChoice, encode, encode_test
from fallow.data.own.pixels import as_features
from fallow.data.own.table import read_table
from fallow.data.partition.holdout import hold_out

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
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    notes: Sequence[str] = (),
) -> Dataset:
    """A data set from arrays; also for frozen embeddings.

    x: (n, ...) numbers, used as they are; images (n, c, h, w) of uint8 or uint16 are scaled to
    [0, 1], said in ``notes``.
    y: (n,) whole numbers or texts (classification; classes are their sorted values; -1 or "" is
    unlabelled) or other numbers (regression; NaN is unlabelled).
    classes: their names in order, for sites that do not each have a label of every class.
    groups: (n,) whole numbers or texts, the site of each row.
    drop_rows: leave out rows with a NaN or infinite feature, said in ``notes``; none is filled in.
    Without a test set, 20 % of the labelled rows are held out: stratified, fixed by ``name``.
    Raises ValueError when shapes disagree, features are not finite (with column and count), fewer
    than two values are among the labels, or a given test row is also a training row.

    >>> d = from_arrays([[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "yes", ""], name="toy")
    >>> d.classes, d.y.tolist(), d.y_test.tolist()
    (('no', 'yes'), [0, 1, -1], [1])
    """
    if (x_test is None) != (y_test is None):
        raise ValueError(
            f"{name}: a test set needs both x_test and y_test; give both or neither"
        )
    coded, known = encode(_array(y), task, name, tuple(classes))
    rows = _rows(x, coded, groups, ids, name)
    notes = (*notes, *rows.notes)
    aside = None
    if x_test is not None and y_test is not None:
        aside = _rows(
            x_test, encode_test(_array(y_test), known, name), groups_test, None, name
        )
    rows, aside, left_out = _whole(rows, aside) if drop_rows else (rows, aside, ())
    if aside is None:
        rows, aside = _held_out(rows, name, tuple(columns))
    group_names, group, group_test = _grouped(rows.sites, aside.sites)
    dataset = Dataset(
        *(name, rows.x, torch.from_numpy(rows.y), aside.x, torch.from_numpy(aside.y)),
        classes=known,
        groups=group,
        groups_test=group_test,
        group_names=group_names,
        columns=tuple(columns),
        ids=rows.ids,
        notes=(*notes, *left_out),
    )
    check_leak(dataset)
    return dataset


def from_npz(
    path: str | Path, *, classes: Sequence[str] = (), drop_rows: bool = False
) -> Dataset:
    """A data set from a .npz file: x, y and perhaps groups, x_test, y_test, groups_test.

    Read without pickles, so texts must be text arrays, not object arrays.  See ``from_arrays``.
    """
    file = _existing(path)
    arrays = read_arrays(file)
    known = ("x", "y", "groups", "x_test", "y_test", "groups_test")
    for key in ("x", "y"):
        if key not in arrays:
            raise ValueError(f"{file} has no array {key!r}{nearest(key, list(arrays))}")
    given = {key: arrays[key] for key in known if key in arrays}
    return from_arrays(**given, name=file.stem, classes=classes, drop_rows=drop_rows)


def from_table(
    path: str | Path,
    label: str,
    site: str | None = None,
    test: str | Path | None = None,
    *,
    ids: str = "id",
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
) -> Dataset:
    """A data set from a CSV or Parquet file with one header line; ``test`` is a second such file.

    label: the column of labels; empty = unlabelled.  Texts and whole numbers are classes (sorted);
    other numbers are regression targets; ``task`` decides where whole numbers are targets.
    site: the column that says which site a row belongs to.  ids: the column of row names, used when
    there is one.  Every other column is a feature: numbers as they are, texts one-hot
    (``column=value``, said in ``notes``).  Features are raw: ``standardise`` scales them.
    classes: see ``from_arrays``.  drop_rows: leave out rows that lack a feature or have an infinite
    one, said in ``notes``; nothing is ever filled in.
    Raises ValueError for an absent column (with the nearest name), missing or infinite features
    (with column and count), labels that are all missing or all the same, or row names among the
    features.
    """
    file, test_file = _existing(path), None if test is None else _existing(test)
    t = read_table(file, test_file, label, site, ids, drop_rows)
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
        classes=classes,
        notes=t.notes,
    )


def from_folder(path: str | Path, *, classes: Sequence[str] = ()) -> Dataset:
    """A data set from images in ``site/class/*`` and ``site/unlabelled/*``, all of one size.

    Pixels become (pixel / 255 - 0.5) / 0.5; one channel if every image is grey, else three.
    Row names are the paths below the folder.  Needs pillow.
    Raises ValueError that names the file when an image cannot be read or has another size.
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
        classes=classes,
        notes=found.notes,
    )


def open_dataset(
    spec: str | Path,
    *,
    data_dir: str | Path | None = None,
    label: str | None = None,
    site: str | None = None,
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
) -> Dataset:
    """The named data set, or a user's own: a .csv, .parquet or .npz file or a folder of images.

    ``label`` and ``site`` are column names of a table, and of nothing else; ``task`` matters to a
    table alone.  ``classes`` are the agreed class names of a user's own data, and ``drop_rows``
    leaves out its rows with missing or infinite features, see ``from_arrays``.
    """
    file = Path(spec)
    if file.suffix.lower() in TABLES:
        _existing(file)
        if label is None:
            raise ValueError(f"{file} is a table; name its column of labels with --label")
        return from_table(
            file, label, site, task=task, classes=classes, drop_rows=drop_rows
        )
    if label is not None or site is not None:
        raise ValueError(
            f"{spec} is not a table of your own, so it has no column {label or site!r}; "
            "leave out --label and --site"
        )
    if str(spec) in CATALOGUE or not file.exists():
        if file.suffix or len(file.parts) > 1:
            _existing(file)
        own = {"classes": classes, "rule for missing values (drop_rows)": drop_rows}
        for what in (what for what, is_given in own.items() if is_given):
            raise ValueError(
                f"the named data set {spec} has its own {what}; leave that out"
            )
        return load(str(spec), data_dir)
    if file.is_dir():
        return from_folder(file, classes=classes)
    if file.suffix.lower() == ".npz":
        return from_npz(file, classes=classes, drop_rows=drop_rows)
    raise ValueError(
        f"{file} is no data set Fallow can read; give a .csv, .parquet or .npz file or a folder of "
        "images"
    )


def _existing(path: str | Path) -> Path:
    if not Path(path).exists():
        raise ValueError(f"there is no file or folder {str(path)!r}; give the path of one")
    return Path(path)


def _array(values: Arrayish) -> npt.NDArray[Any]:
    return (
        values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    )


class _Rows(NamedTuple):
    """Checked rows with what belongs to each."""

    x: Tensor
    y: npt.NDArray[Any]
    sites: npt.NDArray[Any] | None
    ids: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    def at(self, rows: npt.NDArray[np.int64]) -> _Rows:
        sites = None if self.sites is None else self.sites[rows]
        ids = None if self.ids is None else tuple(self.ids[row] for row in rows)
        return _Rows(self.x[rows], self.y[rows], sites, ids, self.notes)

    def whole(self) -> _Rows:
        """The rows whose features are all finite."""
        return self.at(np.flatnonzero(self.x.isfinite().flatten(1).all(1).numpy()))


def _held_out(rows: _Rows, name: str, columns: tuple[str, ...]) -> tuple[_Rows, _Rows]:
    check_finite(name, "rows", rows.x, columns)  # while all of them can be counted
    train, test = hold_out(name, rows.x, rows.y)
    return rows.at(train), rows.at(test)


def _whole(rows: _Rows, aside: _Rows | None) -> tuple[_Rows, _Rows | None, tuple[str, ...]]:
    """Both parts without the rows that have a feature that is not finite, and a note on them."""
    whole, whole_aside = rows.whole(), aside.whole() if aside else None
    left_out = len(rows.x) - len(whole.x)
    if aside and whole_aside:
        left_out += len(aside.x) - len(whole_aside.x)
    note = f"rows with NaN or infinite features left out: {left_out}"
    return whole, whole_aside, (note,) if left_out else ()


def _rows(
    x: Arrayish,
    y: npt.NDArray[Any],
    groups: Arrayish | None,
    ids: Sequence[str] | None,
    name: str,
) -> _Rows:
    features = _array(x)
    if features.dtype.kind not in "biuf":
        raise ValueError(f"{name}: x holds {features.dtype} values; give numbers")
    if features.ndim < 2:
        raise ValueError(f"{name}: x has shape {features.shape}; give (n, features)")
    n = len(features)
    sites = None if groups is None else _array(groups)
    if sites is not None and (sites.dtype.kind not in "iuU" or sites.shape != (n,)):
        raise ValueError(
            f"{name}: groups are {sites.dtype} of shape {sites.shape}; give whole numbers or "
            f"texts, one a row ({n})"
        )
    for what, values in (("labels", y), ("row names", ids)):
        if values is not None and len(values) != n:
            raise ValueError(f"{name}: {n} rows but {len(values)} {what}; give one a row")
    row_names = None if ids is None else tuple(str(row_name) for row_name in ids)
    numbers, said = as_features(features, name)
    notes = () if said is None else (said,)
    return _Rows(torch.from_numpy(numbers), y, sites, row_names, notes)


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
