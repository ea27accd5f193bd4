"""Datasets by name, and datasets from arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fallow.api.arrays import as_array
from fallow.api.objects import plain
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import OF_FEDERATION, explain_function
from fallow.data import Dataset, open_dataset
from fallow.data import from_arrays as from_plain_arrays
from fallow.data import load as load_named
from fallow.data.catalog.named import is_named
from fallow.data.loaders.labels import TaskChoice, warn_of_nan
from fallow.data.loaders.pixels import Channels, describe_move, has_channels_last
from fallow.storage.table_suffixes import TABLES


@explain_function(OF_FEDERATION)
def load(name: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """Load a dataset.

    Bundled datasets need no files.  The command ``fallow datasets`` lists all names.

    Parameters
    ----------
    name : str or Path
        Name such as ``"digits"`` or ``"cifar10"``, or the path of a folder of images or of an
        ``.npz`` file (MedMNIST files included).
    data_dir : str or Path, optional
        Folder with the files of the dataset.  Default: the environment variable ``FALLOW_DATA``.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If the name is unknown (the message suggests the closest one) or a file is missing (the
        message says where to get it).

    Examples
    --------
    >>> import fallow as fl
    >>> digits = fl.load("digits")
    >>> tuple(digits.x.shape), digits.task
    ((1438, 1, 8, 8), 'classification')
    """
    path = Path(name)
    is_path = bool(path.suffix) or path.exists()
    if is_path and not is_named(str(name)):
        return open_path(path)
    return load_named(str(name), data_dir)


def open_path(path: Path) -> Dataset:
    """Load a dataset from a path, with errors in terms of the Python API."""
    if path.suffix.lower() in TABLES:
        raise ValueError(
            f"{path} is a table, and its column of labels is unknown; read it with pandas "
            "and give fl.from_frame(table, label='...', site='...')"
        )
    dataset = open_dataset(path)
    for note in dataset.notes:
        if "channels last" in note:
            warnings.warn(f"{dataset.name}: {note}", stacklevel=4)
    return dataset


@explain_function(OF_FEDERATION)
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
    """Create a dataset from arrays, tensors, lists or DataFrame columns.

    Parameters
    ----------
    x : array-like of shape (n, ...)
        Features, embeddings or images, converted to float32 without further changes.
    y : array-like of shape (n,)
        Class labels (integers, strings or Booleans) or regression targets (floats).  Classes are
        sorted.  The values -1, "", None and NaN mark unlabeled examples (targets: NaN).
    sites : array-like of shape (n,), optional
        Site of each example, as integers or strings.  Default: a partition assigns the examples.
    x_test, y_test : array-like, optional
        Test examples and their labels.  Default: a stratified 20 % of the labeled examples, always
        the same for the same ``name``.
    sites_test : array-like, optional
        Site of each test example.
    columns : sequence of str, optional
        Feature names.
    ids : sequence, optional
        Example IDs.  The index of a DataFrame is ignored.
    name : str, default="arrays"
        Name of the dataset.
    task : {"auto", "classification", "regression"}, default="auto"
        Task.  Set it to "regression" if integer labels are targets.
    classes : sequence, optional
        Class names in order, if ``y`` does not contain all of them.
    drop_rows : bool, default=False
        Whether to drop examples with a NaN or infinite feature.  Values are never imputed.
    channels : {"auto", "first", "last"}, default="auto"
        Position of the channel dimension of images: (n, channels, height, width) or
        (n, height, width, channels), which is converted.  "auto" treats a last dimension of 1, 3
        or 4 after larger ones as channels, with a warning.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If lengths or shapes disagree, a feature is not finite, an example has no site, ``y`` has
        fewer than two distinct values, or a test example is also a training example.

    Examples
    --------
    >>> import fallow as fl
    >>> d = fl.from_arrays(
    ...     [[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "yes", None], name="toy"
    ... )
    >>> d.classes, d.y.tolist()
    (('no', 'yes'), [0, 1, -1])
    """
    if y is None:
        raise ValueError(
            f"{name}: y is None; give one label per example, with None or -1 if it is "
            "unknown"
        )
    warn_of_nan(as_array(y, f"{name}: labels"), name, stacklevel=4)
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
            f"{name}: {describe_move(shape)}; give channels='last' to confirm", stacklevel=3
        )
    return from_plain_arrays(
        x,
        as_labels(y, f"{name}: labels"),
        sites,
        x_test=x_test,
        y_test=y_test,
        sites_test=sites_test,
        columns=[str(column) for column in columns],
        ids=ids,
        name=name,
        task=task,
        classes=tuple(str(plain(label)) for label in classes),
        drop_rows=drop_rows,
        channels=channels,
    )


def _features(data: Any) -> Any:
    """Convert an array of objects, such as a column of mixed types, to numbers."""
    if hasattr(data, "to_numpy"):
        data = data.to_numpy()
    if isinstance(data, list | tuple):
        with explain_errors("x is not an array: "):
            data = np.asarray(data)
    if isinstance(data, np.ndarray) and data.dtype == object:
        with explain_errors(
            "x contains values that are not numbers (",
            after="); fl.from_frame one-hot encodes texts",
            of=(TypeError, ValueError),
        ):
            return data.astype(np.float64)
    return data


def as_labels(data: Any, what: str) -> npt.NDArray[Any]:
    """Convert labels to numbers or strings of shape (n,); "" or NaN marks a missing label.

    >>> as_labels(["no", None], "labels").tolist()
    ['no', '']
    """
    labels = as_array(data, what)
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


def as_sites(data: Any, what: str) -> npt.NDArray[Any]:
    """Convert site IDs to integers or strings of shape (n,), and reject missing ones."""
    sites = as_array(data, what)
    if sites.dtype.kind in "iuU":
        return sites
    values = sites.tolist()
    if missing := sum(is_absent(value) for value in values):
        raise ValueError(f"{what}: {missing} examples have none; fill them in")
    return np.array([_site_name(value) for value in values], dtype=np.str_)


def _site_name(value: object) -> str:
    """Return the name of a site; 3.0 is site 3, since pandas stores gaps as floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_absent(value: object) -> bool:
    """Return whether a value is missing: None, NaN or a missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value
