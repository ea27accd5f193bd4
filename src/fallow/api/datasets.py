"""Data sets: named ones, and a person's own arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fallow.api.arrays import as_array
from fallow.api.objects import plain
from fallow.data import Dataset, open_dataset
from fallow.data import from_arrays as from_plain_arrays
from fallow.data import load as load_named
from fallow.data.catalog.named import CATALOG
from fallow.data.own.cells import TABLES
from fallow.data.own.labels import TaskChoice
from fallow.data.own.pixels import Channels, describe_move, has_channels_last


def load(name: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """A data set by its name: ``digits``, ``cifar10``, ... (``fallow datasets`` lists them).

    name: also the path of a folder of images, or of a .npz file, those of MedMNIST included.

    Bundled ones need nothing; the others lie in ``data_dir`` or in the folder that the environment
    variable ``FALLOW_DATA`` names.  Raises ValueError for an unknown name (with the nearest) and
    where the files are not there (with where to get them).

    >>> import fallow as fl
    >>> digits = fl.load("digits")
    >>> tuple(digits.x.shape), digits.task
    ((1438, 1, 8, 8), 'classification')
    """
    path = Path(name)
    is_path = bool(path.suffix) or path.exists()
    if is_path and str(name) not in CATALOG:
        return open_path(path)
    return load_named(str(name), data_dir)


def open_path(path: Path) -> Dataset:
    """A data set by its path; a table says in Python's words what it lacks."""
    if path.suffix.lower() in TABLES:
        raise ValueError(
            f"{path} is a table, which does not say which column holds the labels; read it with "
            "pandas and give fl.from_frame(table, label='...', site='...')"
        )
    dataset = open_dataset(path)
    for note in dataset.notes:
        if "channels last" in note:
            warnings.warn(f"{dataset.name}: {note}", stacklevel=3)
    return dataset


def from_arrays(
    x: Any,
    y: Any,
    sites: Any = None,
    *,
    x_test: Any = None,
    y_test: Any = None,
    sites_test: Any = None,
    columns: Sequence[str] = (),
    ids: Sequence[Any] | None = None,
    name: str = "arrays",
    task: TaskChoice = "auto",
    classes: Sequence[Any] = (),
    drop_rows: bool = False,
    channels: Channels = "auto",
) -> Dataset:
    """A data set from arrays, tensors, lists, or columns of a DataFrame; also for embeddings.

    x: (n, ...) numbers, used as they are, in float32.
    y: (n,) whole numbers, texts or truth values (classes are their sorted values; -1, "", None and
    NaN are unlabeled), or other numbers (targets; NaN is unlabeled).  ``task`` decides where
    whole numbers are targets.  classes: their names in order, where not all occur.
    sites: (n,) the site of each row, whole numbers or texts; None: a partition decides.
    x_test, y_test, sites_test: rows to test on; without them 20 % of the labeled rows are held
    out, stratified, always the same for one ``name``.
    columns: names of features.  ids: names of rows.  An index of pandas means nothing.
    drop_rows: leave out rows with a NaN or infinite feature; nothing is ever filled in.
    channels: "first" for images (n, channels, height, width), "last" for (n, height, width,
    channels), which are converted.  "auto" takes a last dimension of 1, 3 or 4 behind larger ones
    for the channels, with a warning.
    Raises ValueError in one sentence where lengths or shapes disagree, a feature is not finite
    (with its column and how many), a row has no site, the labels hold fewer than two values, and
    where a test row is also a training row.

    >>> import fallow as fl
    >>> d = fl.from_arrays(
    ...     [[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "yes", None], name="toy"
    ... )
    >>> d.classes, d.y.tolist()
    (('no', 'yes'), [0, 1, -1])
    """
    if y is None:
        raise ValueError(
            f"{name}: y is None; give one label for each row, None or -1 where it is unknown"
        )
    if x_test is not None:
        x_test = _features(x_test)
    if y_test is not None:
        y_test = as_labels(y_test, f"{name}: labels of the test rows")
    if sites_test is not None:
        sites_test = as_sites(sites_test, f"{name}: sites of the test rows")
    if sites is not None:
        sites = as_sites(sites, f"{name}: sites")
    if ids is not None:
        ids = [str(value) for value in ids]
    x = _features(x)
    shape = np.shape(x)
    if sites is not None and len(sites) != len(x):
        raise ValueError(
            f"{name}: sites has {len(sites)} values and x has {len(x)} rows; give the site of "
            "each row"
        )
    if has_channels_last(shape, name, channels) and channels == "auto":
        warnings.warn(
            f"{name}: {describe_move(shape)}; give channels='last' to confirm", stacklevel=2
        )
    return from_plain_arrays(
        x,
        as_labels(y, f"{name}: labels"),
        sites,
        x_test=x_test,
        y_test=y_test,
        groups_test=sites_test,
        columns=[str(column) for column in columns],
        ids=ids,
        name=name,
        task=task,
        classes=tuple(str(plain(label)) for label in classes),
        drop_rows=drop_rows,
        channels=channels,
    )


def _features(given: Any) -> Any:
    """An array of numbers where the caller has objects, such as a column of mixed types."""
    if hasattr(given, "to_numpy"):
        given = given.to_numpy()
    if isinstance(given, np.ndarray) and given.dtype == object:
        try:
            return given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"x holds values that are no numbers ({error}); fl.from_frame turns texts into "
                "columns of 0 and 1"
            ) from error
    return given


def as_labels(given: Any, what: str) -> npt.NDArray[Any]:
    """Labels as numbers or texts, (n,); "" or NaN where a row has none.

    >>> as_labels(["no", None], "labels").tolist()
    ['no', '']
    """
    labels = as_array(given, what)
    if labels.dtype.kind in "iufU":
        return labels
    values = labels.tolist()
    if labels.dtype.kind == "b":
        return np.array([str(value) for value in values], dtype=np.str_)
    known = [value for value in values if not is_absent(value)]
    if known and all(_is_number(value) for value in known):
        numbers = np.full(len(values), np.nan)
        for row, value in enumerate(values):
            if not is_absent(value):
                numbers[row] = value
        return numbers
    texts = []
    for value in values:
        texts.append("" if is_absent(value) else str(value))
    return np.array(texts, dtype=np.str_)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_sites(given: Any, what: str) -> npt.NDArray[Any]:
    """The site of each row, (n,) whole numbers or texts; ValueError where a row has none."""
    sites = as_array(given, what)
    if sites.dtype.kind in "iuU":
        return sites
    values = sites.tolist()
    if missing := sum(is_absent(value) for value in values):
        raise ValueError(f"{what}: {missing} rows have none; fill them in")
    return np.array([_site_name(value) for value in values], dtype=np.str_)


def _site_name(value: object) -> str:
    """3.0 is site 3: a column with an empty cell elsewhere is one of floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_absent(value: object) -> bool:
    """Whether a value stands for "nothing": None, NaN, or what pandas has for it."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value
