"""A user's own data: arrays, files, folders, and ``open_dataset`` for whatever a path leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.missing import Missing
from fallow.core.terms import nearest
from fallow.data.catalog.named import CATALOG, load, load_outline
from fallow.data.dataset import BLOCK, Dataset, check_finite, check_leak, drop_leaks
from fallow.data.own.archive import read_arrays
from fallow.data.own.cells import TABLES, Say, say_nothing
from fallow.data.own.images import read_folder
from fallow.data.own.labels import TaskChoice, encode_labels, encode_test_labels
from fallow.data.own.pixels import Channels, as_features, describe_move, has_channels_last
from fallow.data.own.table import Table, Wanted, read_table
from fallow.data.partition.holdout import hold_out
from fallow.data.reading import Reading, count_at

ARRAYS = {
    "x": "x",
    "y": "y",
    "site": "groups",
    "groups": "groups",
    "x_test": "x_test",
    "y_test": "y_test",
    "site_test": "groups_test",
    "groups_test": "groups_test",
}
"""Arrays of a .npz file, and the argument of `from_arrays` that each is."""
BESIDE = ("columns", "ids", "files")
"""Further arrays of such a file: names of features, of rows, and of the images that they show."""
Arrayish = npt.NDArray[Any] | Tensor | Sequence[Any]


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
    channels: Channels = "auto",
    notes: Sequence[str] = (),
    leaves_out_leaks: bool = False,
) -> Dataset:
    """A data set from arrays; also for frozen embeddings.

    x: (n, ...) numbers, used as they are; images (n, c, h, w) of uint8 or uint16 are scaled to
    [0, 1], said in ``notes``.
    channels: "first" for images (n, c, h, w), "last" for (n, h, w, c), which are converted; "auto"
    decides by the shape, see `has_channels_last`, and says a conversion in ``notes``.
    y: (n,) whole numbers or texts (classification; classes are their sorted values; -1 or "" is
    unlabeled) or other numbers (regression; NaN is unlabeled).
    classes: their names in order, for sites that do not each have a label of every class.
    groups: (n,) whole numbers or texts, the site of each row.
    drop_rows: leave out rows with a NaN or infinite feature, said in ``notes``; none is filled in.
    leaves_out_leaks: test rows that are also training rows are left out, said in ``notes``.
    Without a test set, 20 % of the labeled rows are held out: stratified, fixed by ``name``.
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
    coded, known = encode_labels(_to_array(y), task, name, tuple(classes))
    features = _to_array(x)
    is_last = has_channels_last(features.shape, name, channels)
    if is_last and channels == "auto":
        notes = (*notes, describe_move(features.shape))
    rows = _check_rows(features, coded, groups, ids, name, is_last)
    notes = (*notes, *rows.notes)
    aside = None
    if x_test is not None and y_test is not None:
        coded_test = encode_test_labels(_to_array(y_test), known, name)
        aside = _check_rows(_to_array(x_test), coded_test, groups_test, None, name, is_last)
    reading = _count_rows(rows, aside, name)
    left_out: tuple[str, ...] = ()
    if drop_rows:
        rows, aside, reading, left_out = _keep_whole_rows(rows, aside, reading)
    details = _About(
        name=name,
        classes=known,
        columns=tuple(columns),
        notes=(*notes, *left_out),
        reading=reading,
    )
    return _build_dataset(rows, aside, details, leaves_out_leaks=leaves_out_leaks)


def from_npz(
    path: str | Path,
    *,
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    channels: Channels = "auto",
) -> Dataset:
    """A data set from a .npz file: x, y and perhaps site, x_test, y_test, site_test, ids, columns;
    or train_images, train_labels, val_..., test_..., as files of MedMNIST have them.

    site: of each row; "groups" is another word for it.  columns: names of the features.
    Read without pickles, so texts must be text arrays, not object arrays.  See ``from_arrays``.
    Raises ValueError for a file without x or y, and for one with arrays of other names.
    """
    file = _existing(path)
    arrays = read_arrays(file)
    if "train_images" in arrays and "x" not in arrays:
        return _read_medmnist(file, arrays, classes, channels)
    words = {**ARRAYS, **dict.fromkeys(BESIDE, "")}
    for key in ("x", "y"):
        if key not in arrays:
            raise ValueError(f"{file} has no array {key!r}{nearest(key, list(arrays))}")
    unknown = []
    for key in arrays:
        if key not in words:
            hint = nearest(key, list(words), "unknown").removeprefix("; ").rstrip()
            unknown.append(repr(key) if hint == "unknown" else f"{key!r} ({hint})")
    if unknown:
        raise ValueError(
            f"{file} has unknown arrays, {', '.join(unknown)}; rename them or leave them out (known: "
            f"{', '.join(words)})"
        )
    npz: dict[str, npt.NDArray[Any]] = {}
    for key, word in ARRAYS.items():
        if key in arrays and word in npz:
            raise ValueError(
                f"{file} says twice where rows are from; give one of site and groups"
            )
        if key in arrays:
            npz[word] = arrays[key]
    ids = None
    if "ids" in arrays:
        ids = [str(row_name) for row_name in arrays["ids"]]
    return from_arrays(
        npz["x"],
        npz["y"],
        npz.get("groups"),
        x_test=npz.get("x_test"),
        y_test=npz.get("y_test"),
        groups_test=npz.get("groups_test"),
        columns=[str(column) for column in arrays.get("columns", ())],
        ids=ids,
        name=file.stem,
        classes=classes,
        drop_rows=drop_rows,
        channels=channels,
    )


def _read_medmnist(
    file: Path,
    arrays: dict[str, npt.NDArray[Any]],
    classes: Sequence[str],
    channels: Channels,
) -> Dataset:
    """A file of MedMNIST: images (n, h, w) or (n, h, w, 3) of uint8, labels (n, 1)."""
    parts = {}
    for part in ("train", "val", "test"):
        pair = (f"{part}_images", f"{part}_labels")
        absent = [name for name in pair if name not in arrays]
        if absent == list(pair) and part == "val":
            continue
        if absent:
            raise ValueError(
                f"{file} is laid out as files of MedMNIST are, and has no array {absent[0]!r}"
            )
        images, labels = (arrays[name] for name in pair)
        labels = labels.reshape(len(labels), -1)
        if labels.shape[1] != 1:
            raise ValueError(
                f"{file} has {labels.shape[1]} labels for each image, and Fallow takes one: save "
                "one column of the labels as y, and the images as x, with numpy.savez"
            )
        if images.ndim == 3:
            images = images[:, None]
        parts[part] = (images, labels[:, 0])
    x, y = parts["train"]
    notes = []
    if "val" in parts:
        x = np.concatenate([x, parts["val"][0]])
        y = np.concatenate([y, parts["val"][1]])
        notes.append(
            f"{len(parts['val'][1]):,} validation images joined the training images; "
            "validation=0.1 holds some back"
        )
    return from_arrays(
        x,
        y,
        x_test=parts["test"][0],
        y_test=parts["test"][1],
        name=file.stem,
        classes=classes,
        channels=channels,
        notes=notes,
        leaves_out_leaks=True,
    )


def from_table(
    path: str | Path,
    label: str,
    site: str | None = None,
    test: str | Path | None = None,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    only: Sequence[str] = (),
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    say: Say = say_nothing,
) -> Dataset:
    """A data set from a table with one header line: text (.csv, .tsv), Parquet, Feather or
    Excel; ``test`` is a second such file.

    Encoding, separator, quotes, decimal comma and thousands of a text file are found out, and said
    in ``notes`` where they are not the usual ones.
    label: the column of labels; empty = unlabeled.  Texts and whole numbers are classes (sorted);
    other numbers are regression targets; ``task`` decides where whole numbers are targets.
    site: the column that says which site a row belongs to.  id: the column of row names; None: the
    one called "id", if there is one.
    only: the columns that are features; (): every other one but those of ``drop``.  Numbers are
    used as they are, texts one-hot (``column=value``).  A column that names rows, counts them,
    holds dates or free text, is empty or the same in every row is left out, unless ``only`` names
    it.  All of that is said in ``notes``.  Features are raw: ``standardize`` scales them.
    Missing cells are NaN until the sites fill them in (``Dataset.missing``), and are marked by
    columns of their own, ``column_missing``.  drop_rows: leave such rows out instead, and those
    with an infinite feature.
    classes: see ``from_arrays``.  say: is told how much of a text file has been read.
    Raises ValueError for an absent column (with the nearest name), a text among numbers (with its
    row), infinite features (with column and count), labels that are all missing or all the same.
    """
    file = _existing(path)
    test_file = None
    if test is not None:
        test_file = _existing(test)
    wanted = Wanted(label, site, id, tuple(drop), tuple(only), drop_rows)
    table, labels, sites = read_table(file, test_file, wanted, say)
    groups = None
    if sites is not None:
        groups = np.array(sites, dtype=np.str_)
    return from_assembled(
        table,
        np.array(labels, dtype=np.str_),
        groups,
        has_test=test_file is not None,
        name=file.stem,
        task=task,
        classes=tuple(classes),
    )


def from_assembled(
    table: Table,
    y: npt.NDArray[Any],
    groups: npt.NDArray[Any] | None,
    *,
    has_test: bool,
    name: str,
    task: TaskChoice,
    classes: tuple[str, ...],
) -> Dataset:
    """A data set from a table whose columns were recognized, and its labels and sites.

    y, groups: of all rows of the table.  has_test: those from ``table.rows`` on are test rows.
    """
    n = table.rows
    x = torch.from_numpy(table.x)
    coded, known = encode_labels(y[:n], task, name, classes)
    ids = None
    if table.ids is not None:
        ids = table.ids[:n]
    sites = None
    sites_test = None
    if groups is not None:
        sites = groups[:n]
        sites_test = groups[n:]
    rows = _Rows(x[:n], coded, sites, ids)
    aside = None
    if has_test:
        aside = _Rows(x[n:], encode_test_labels(y[n:], known, name), sites_test, None)
    details = _About(
        name=name,
        classes=known,
        columns=table.columns,
        notes=table.notes,
        reading=table.reading,
        missing=table.missing,
    )
    return _build_dataset(rows, aside, details)


def from_folder(
    path: str | Path, *, classes: Sequence[str] = (), say: Say = say_nothing
) -> Dataset:
    """A data set from images in ``site/class/*`` and ``site/unlabeled/*``, or without sites in
    ``class/*`` and ``unlabeled/*``: PNG, JPEG and whatever pillow reads, and DICOM (by pydicom).

    Pixels are divided by 255, those of 16 bits by 65,535, as in arrays; one channel if every image
    is gray, else three.  Images of other sizes than most are resized to that one, said in
    ``notes``.  Row names are the paths below the folder.  ``say`` is told how many bytes of all files
    have been read.  Needs pillow.
    A table in the folder with the columns ``file`` and ``target``, and perhaps ``site``, has
    regression targets: images are then the files that it lists; an empty target is unlabeled.
    Raises ValueError that names the file when an image cannot be read.
    """
    folder = _existing(path)
    result = read_folder(folder, say)
    groups = None
    if result.sites is not None:
        groups = np.array(result.sites)
    labels: npt.NDArray[Any] = np.asarray(result.labels)
    task: TaskChoice = "classification"
    if labels.dtype.kind == "f":
        task = "regression"
    return from_arrays(
        result.x,
        labels,
        groups,
        ids=result.names,
        name=folder.name,
        task=task,
        classes=classes,
        notes=result.notes,
    )


@final
@dataclass(frozen=True)
class Choice:
    """Which columns of a table are what; see `from_table`.  For other data there is none."""

    label: str | None = None
    site: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """The options that were given, by their names, each with its first column."""
        first = {
            "label": self.label,
            "site": self.site,
            "id": self.id,
            "drop": next(iter(self.drop), None),
            "columns": next(iter(self.columns), None),
        }
        return {option: name for option, name in first.items() if name is not None}


def open_dataset(
    spec: str | Path,
    *,
    data_dir: str | Path | None = None,
    label: str | None = None,
    site: str | None = None,
    id: str | None = None,
    drop: Sequence[str] = (),
    columns: Sequence[str] = (),
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    channels: Channels = "auto",
    outline: int | None = None,
    say: Say = say_nothing,
) -> Dataset:
    """The named data set, or a user's own: a table (text, Excel, Parquet, Feather), a .npz file or a
    folder of images.

    ``label``, ``site``, ``id``, ``drop`` and ``columns`` name columns of a table, and of nothing
    else, see ``from_table``; ``task`` matters to a table alone.  ``classes`` are the agreed class
    names of a user's own data, and ``drop_rows`` leaves out its rows with missing or infinite
    features, see ``from_arrays``; ``channels`` is of images in a .npz file.
    ``outline``: of a named data set whose pictures take long to unpack, so many stand for all, see
    ``load_outline``.  ``say`` is told how many bytes of a text file, or of a folder of images, have
    been read.
    """
    file = Path(spec)
    choice = Choice(label, site, id, tuple(drop), tuple(columns))
    if file.suffix.lower() in TABLES:
        _existing(file)
        if label is None:
            raise ValueError(f"{file} is a table; name its column of labels with --label")
        return from_table(
            file,
            label,
            site,
            id=choice.id,
            drop=choice.drop,
            only=choice.columns,
            task=task,
            classes=classes,
            drop_rows=drop_rows,
            say=say,
        )
    if choice.settings:
        named = next(iter(choice.settings.values()))
        options = ", ".join(f"--{option}" for option in choice.settings)
        raise ValueError(
            f"{spec} is not a table of your own, so it has no column {named!r}; leave out {options}"
        )
    if str(spec) in CATALOG or not file.exists():
        if file.suffix or len(file.parts) > 1:
            _existing(file)
        own = {
            "classes": classes,
            "rule for missing values (drop_rows)": drop_rows,
            "order of dimensions (channels)": channels != "auto",
        }
        for what, is_given in own.items():
            if is_given:
                raise ValueError(
                    f"the named data set {spec} has its own {what}; leave that out"
                )
        if outline is not None:
            return load_outline(str(spec), data_dir, outline)
        return load(str(spec), data_dir)
    if file.is_dir():
        return from_folder(file, classes=classes, say=say)
    if file.suffix.lower() == ".npz":
        return from_npz(file, classes=classes, drop_rows=drop_rows, channels=channels)
    raise ValueError(
        f"{file} is no data set Fallow can read; give a table ({', '.join(TABLES)}), a .npz file or "
        "a folder of images"
    )


def _existing(path: str | Path) -> Path:
    if not Path(path).exists():
        raise ValueError(f"there is no file or folder {str(path)!r}; give the path of one")
    return Path(path)


def _to_array(values: Arrayish) -> npt.NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # a type that NumPy lacks
            values = values.float()
        return values.numpy()
    return np.asarray(values)


class _Rows(NamedTuple):
    """Checked rows with what belongs to each."""

    x: Tensor
    y: npt.NDArray[Any]
    sites: npt.NDArray[Any] | None
    ids: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    def take(self, rows: npt.NDArray[np.int64]) -> _Rows:
        """A copy of some of the rows, by their numbers."""
        return _Rows(
            x=self.x[rows],
            y=self.y[rows],
            sites=self._sites_of(rows),
            ids=self._ids_of(rows),
            notes=self.notes,
        )

    def _sites_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
        if self.sites is None:
            return None
        return self.sites[rows]

    def _ids_of(self, rows: npt.NDArray[np.int64]) -> tuple[str, ...] | None:
        if self.ids is None:
            return None
        return tuple(self.ids[row] for row in rows)

    def part(
        self, train: npt.NDArray[np.int64], test: npt.NDArray[np.int64]
    ) -> tuple[_Rows, _Rows]:
        """Two parts, by their sorted row numbers.  The first takes the place of all rows, so that
        beside a large table there is never a second one; these rows are not to be used again."""
        aside = self.take(test)
        for begin in range(0, len(train), BLOCK):
            some = train[begin : begin + BLOCK]  # each moves up, or stays
            self.x[begin : begin + len(some)] = self.x[some]
        rest = _Rows(
            x=self.x[: len(train)],
            y=self.y[train],
            sites=self._sites_of(train),
            ids=self._ids_of(train),
            notes=self.notes,
        )
        return rest, aside

    @property
    def is_whole(self) -> npt.NDArray[np.bool_]:
        """Which rows have finite features alone: (n,)."""
        result: npt.NDArray[np.bool_] = self.x.isfinite().flatten(1).all(1).numpy()
        return result


@dataclass(frozen=True)
class _About:
    """Properties of all examples of a dataset."""

    name: str
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    reading: Reading
    missing: Missing | None = None


def _build_dataset(
    rows: _Rows, aside: _Rows | None, facts: _About, *, leaves_out_leaks: bool = False
) -> Dataset:
    """The data set: the rows that are given aside test, else some that are held out."""
    is_given = aside is not None
    if aside is None:
        if facts.missing is None:  # while all of them can be counted
            check_finite(facts.name, "rows", rows.x, facts.columns)
        train, test = hold_out(facts.name, rows.x, rows.y)
        rows, aside = rows.part(train, test)
    group_names, group, group_test = _number_groups(rows.sites, aside.sites)
    dataset = Dataset(
        name=facts.name,
        x=rows.x,
        y=torch.from_numpy(rows.y),
        x_test=aside.x,
        y_test=torch.from_numpy(aside.y),
        classes=facts.classes,
        groups=group,
        groups_test=group_test,
        group_names=group_names,
        columns=facts.columns,
        ids=rows.ids,
        notes=facts.notes,
        missing=facts.missing,
        reading=facts.reading,
    )
    if leaves_out_leaks:
        dataset, n_left_out = drop_leaks(dataset)
        if n_left_out and not len(dataset.x_test):
            raise ValueError(
                f"{facts.name}: all {n_left_out} test rows are also training rows; give other ones"
            )
    elif is_given:  # no copy of a row is ever held out alone
        check_leak(dataset)
    return dataset


def _count_rows(rows: _Rows, aside: _Rows | None, name: str) -> Reading:
    """How many rows each site has, of both parts."""
    n = len(rows.x)
    if aside is not None:
        n += len(aside.x)
    sites = _join_sites(rows, aside)
    return Reading(name, count_at(sites, np.ones(n, dtype=np.bool_)))


def _join_sites(rows: _Rows, aside: _Rows | None) -> npt.NDArray[Any] | None:
    """The site of each row of both parts; None where one of them names none."""
    if aside is None:
        return rows.sites
    if rows.sites is None or aside.sites is None:
        return None
    return np.concatenate([rows.sites, aside.sites])


def _keep_whole_rows(
    rows: _Rows, aside: _Rows | None, reading: Reading
) -> tuple[_Rows, _Rows | None, Reading, tuple[str, ...]]:
    """Both parts without the rows that have a feature that is not finite, and a note on them."""
    parts = [rows]
    if aside is not None:
        parts.append(aside)
    keep = np.concatenate([part.is_whole for part in parts])
    counts = count_at(_join_sites(rows, aside), ~keep)
    reading = reading.without("a feature is missing or infinite", counts)
    whole = rows.take(np.flatnonzero(rows.is_whole))
    whole_aside = None
    if aside is not None:
        whole_aside = aside.take(np.flatnonzero(aside.is_whole))
    left_out = int((~keep).sum())
    notes: tuple[str, ...] = ()
    if left_out:
        notes = (f"rows with NaN or infinite features left out: {left_out}",)
    return whole, whole_aside, reading, notes


def _check_rows(
    features: npt.NDArray[Any],
    y: npt.NDArray[Any],
    groups: Arrayish | None,
    ids: Sequence[str] | None,
    name: str,
    is_last: bool,
) -> _Rows:
    """The rows with what belongs to each; ValueError where types or numbers of rows disagree.

    is_last: images have their channels last.
    """
    if features.dtype.kind not in "biuf":
        if features.dtype.kind in "USTO":
            raise ValueError(
                f"{name}: x holds texts or other objects; give numbers (rows of texts: "
                "fl.texts_to_rows, columns of texts: fl.from_frame)"
            )
        raise ValueError(f"{name}: x holds {features.dtype} values; give numbers")
    if features.ndim < 2:
        raise ValueError(f"{name}: x has shape {features.shape}; give (n, features)")
    n = len(features)
    sites = None
    if groups is not None:
        sites = _to_array(groups)
    if sites is not None and (sites.dtype.kind not in "iuU" or sites.shape != (n,)):
        raise ValueError(
            f"{name}: groups are {sites.dtype} of shape {sites.shape}; give whole numbers or "
            f"texts, one a row ({n})"
        )
    for what, values in (("labels", y), ("row names", ids)):
        if values is not None and len(values) != n:
            raise ValueError(f"{name}: {n} rows but {len(values)} {what}; give one a row")
    row_names = None
    if ids is not None:
        row_names = tuple(str(row_name) for row_name in ids)
    if is_last and features.ndim == 4:
        features = np.moveaxis(features, 3, 1)
    numbers, output = as_features(features, name)
    notes: tuple[str, ...] = ()
    if output is not None:
        notes = (output,)
    return _Rows(torch.from_numpy(numbers), y, sites, row_names, notes)


def _number_groups(
    train: npt.NDArray[Any] | None,
    test: npt.NDArray[Any] | None,
) -> tuple[tuple[str, ...], Tensor | None, Tensor | None]:
    """Names in sorted order, and each row's group id."""
    if train is None:
        return (), None, None
    both = train
    if test is not None:
        both = np.concatenate([train, test])
    names, ids = np.unique(both, return_inverse=True)
    group = torch.from_numpy(ids.astype(np.int64))
    group_test = None
    if test is not None:
        group_test = group[len(train) :]
    return tuple(str(name) for name in names), group[: len(train)], group_test
