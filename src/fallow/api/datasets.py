"""Datasets by name, and datasets from arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from fallow.api.arrays import as_array
from fallow.api.objects import plain
from fallow.core.load_options import LoadKeywords, build_options, takes_options
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import OF_FEDERATION, explain_function
from fallow.data import Dataset, open_dataset
from fallow.data import from_arrays as from_plain_arrays
from fallow.data.dataset import warn_of_findings
from fallow.data.loaders.features import is_frame
from fallow.data.loaders.labels import TaskChoice
from fallow.data.loaders.pixels import Channels, describe_move, has_channels_last

if TYPE_CHECKING:
    import pyarrow as pa
    from narwhals.stable.v2.typing import IntoDataFrame


@explain_function(OF_FEDERATION)
@takes_options
def load(
    data: str | Path | IntoDataFrame,
    data_dir: str | Path | None = None,
    **options: Unpack[LoadKeywords],
) -> Dataset:
    """Load a dataset by its name, or from a file, a folder or a data frame.

    Bundled datasets need no files.  The command ``fallow datasets`` lists all names.

    In a table, numbers and Booleans are used as they are, and texts are one-hot encoded, with names
    ``column=level``.  Columns with names, counters, dates, free text or one value, and empty ones, are
    omitted unless ``columns`` lists them; free text that is listed becomes hashed n-grams, for the
    encoder `HashedText`.  Labels that are texts, integers or Booleans are classes, others are
    regression targets, and a missing one is unlabeled.  The sites impute missing cells together.

    Parameters
    ----------
    data : str, Path or DataFrame
        Name such as ``"digits"`` or ``"cifar10"``; path of a table (CSV, Excel, Parquet, Feather),
        of a folder of images, or of an ``.npz`` file (MedMNIST files included); or a data frame of
        pandas, polars or Arrow.
    data_dir : str or Path, optional
        Folder with the files of a named dataset.  Default: the environment variable
        ``FALLOW_DATA``.

    Returns
    -------
    Dataset
        ``findings`` and ``notes`` state every guess of the import; warnings among them are also
        issued as Python warnings.

    Raises
    ------
    ValueError
        If the name is unknown (the message suggests the closest one), a file is missing (the
        message says where to get it), or an option does not apply to the data.

    Examples
    --------
    >>> import fallow as fl, pandas as pd
    >>> digits = fl.load("digits")
    >>> tuple(digits.x.shape), digits.task
    ((1438, 1, 8, 8), 'classification')
    >>> df = pd.DataFrame({"age": [31, 54, 70, 22], "sick": ["no", "yes", "yes", "no"]})
    >>> fl.load(df, label="sick").classes
    ('no', 'yes')
    """
    if isinstance(data, str | Path):
        dataset = open_dataset(data, build_options(**options), data_dir=data_dir)
        warn_of_findings(dataset, stacklevel=4)
        return dataset
    if is_frame(data):
        from fallow.data.loaders.frame import from_frame

        return from_frame(data, **options)
    raise ValueError(
        f"data is a {type(data).__name__}; give a name, a path or a data frame, or call "
        "fl.from_arrays for arrays"
    )


@explain_function(OF_FEDERATION)
def from_arrays(
    x: Any,
    y: Any,
    sites: Any = None,
    *,
    x_test: Any = None,
    y_test: Any = None,
    sites_test: Any = None,
    groups: Any = None,
    groups_test: Any = None,
    columns: Sequence[str] = (),
    ids: Sequence[Any] | None = None,
    name: str = "arrays",
    task: TaskChoice = "auto",
    classes: Sequence[Any] = (),
    labels: Sequence[Any] = (),
    drop_rows: bool = False,
    channels: Channels = "auto",
    merge: bool = False,
) -> Dataset:
    """Create a dataset from arrays, tensors, lists or DataFrame columns.

    Parameters
    ----------
    x : array-like of shape (n, ...)
        Features, embeddings or images, converted to float32 without further changes.
    y : array-like of shape (n,) or (n, n_labels)
        Class labels (integers, strings or Booleans) or regression targets (floats).  Classes are
        sorted.  The values -1, "", None and NaN mark unlabeled examples (targets: NaN).  With
        ``labels``: 0, 1, or NaN for unknown, of each label; or strings that list the labels that are
        present, such as "oedema;effusion" or "none".
    sites : array-like of shape (n,), optional
        Site of each example, as integers or strings.  Default: a partition assigns the examples.
    x_test, y_test : array-like, optional
        Test examples and their labels.  Default: a stratified 20 % of the labeled examples, always
        the same for the same ``name``.
    sites_test : array-like, optional
        Site of each test example.
    groups : array-like of shape (n,), optional
        Group of each example, such as its patient, as integers or strings.  A group is never
        divided between training, validation and test examples, or between the sites of a partition.
    groups_test : array-like, optional
        Group of each test example.
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
    labels : sequence, optional
        Names of several labels that an example may have.
    drop_rows : bool, default=False
        Whether to drop examples with a NaN or infinite feature.  Values are never imputed.
    channels : {"auto", "first", "last"}, default="auto"
        Position of the channel dimension of images: (n, channels, height, width) or
        (n, height, width, channels), which is converted.  "auto" treats a last dimension of 1, 3
        or 4 after larger ones as channels, with a warning.
    merge : bool, default=False
        Whether to make one name of classes, sites or groups that differ only in their writing: the
        most frequent one.  Otherwise `Dataset.findings` warns of them.

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
    if x_test is not None:
        x_test = _features(x_test)
    if y_test is not None:
        y_test = _labels(y_test, labels, f"{name}: labels of the test rows")
    if sites_test is not None:
        sites_test = as_names(sites_test, f"{name}: sites of the test rows")
    if sites is not None:
        sites = as_names(sites, f"{name}: sites")
    if groups_test is not None:
        groups_test = as_names(groups_test, f"{name}: groups of the test rows")
    if groups is not None:
        groups = as_names(groups, f"{name}: groups")
    if ids is not None:
        ids = [str(value) for value in ids]
    x = _features(x)
    shape = np.shape(x)
    for what, names in (("site", sites), ("group", groups)):
        if names is not None and len(names) != len(x):
            raise ValueError(
                f"{name}: {what}s has {len(names)} values and x has {len(x)} rows; give the "
                f"{what} of each row"
            )
    if has_channels_last(shape, name, channels) and channels == "auto":
        warnings.warn(
            f"{name}: {describe_move(shape)}; give channels='last' to confirm", stacklevel=3
        )
    dataset = from_plain_arrays(
        x,
        _labels(y, labels, f"{name}: labels"),
        sites,
        x_test=x_test,
        y_test=y_test,
        sites_test=sites_test,
        groups=groups,
        groups_test=groups_test,
        columns=[str(column) for column in columns],
        ids=ids,
        name=name,
        task=task,
        classes=tuple(str(plain(label)) for label in classes),
        labels=tuple(str(plain(label)) for label in labels),
        drop_rows=drop_rows,
        channels=channels,
        merge=merge,
        is_missing_meant=bool(labels) or _has_none(y),
    )
    warn_of_findings(dataset, stacklevel=4)
    return dataset


def _labels(values: Any, labels: Sequence[Any], what: str) -> npt.NDArray[Any]:
    """Convert one label per row, or the answers to several labels, (n, n_labels), to an array."""
    if not labels or np.ndim(values) == 1:
        return as_labels(values, what)
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    answers = np.asarray(values)
    if answers.dtype.kind != "O":
        return answers
    with explain_errors(f"{what} are not 0, 1 or missing: "):
        return answers.astype(np.float64)  # None becomes NaN


def _features(data: Any) -> Any:
    """Convert an array of objects, such as a column of mixed types, to numbers."""
    if hasattr(data, "tocsr"):  # of scipy
        raise ValueError(
            "x is a sparse matrix, and a model reads all features; give x.toarray(), or fewer "
            "features, for example by sklearn.decomposition.TruncatedSVD"
        )
    if isinstance(data, np.ma.MaskedArray):
        return np.ma.filled(data.astype(np.float64), np.nan)
    if hasattr(data, "to_numpy"):
        data = data.to_numpy()
    if isinstance(data, list | tuple):
        with explain_errors("x is not an array: "):
            data = np.asarray(data)
    if isinstance(data, np.ndarray) and data.dtype == object:
        from fallow.data.loaders.cells import is_absent

        is_missing = np.vectorize(is_absent, otypes=[bool])(data)
        with explain_errors(
            "x contains values that are not numbers (",
            after="); fl.from_frame one-hot encodes texts",
            of=(TypeError, ValueError),
        ):
            return np.where(is_missing, np.nan, data).astype(np.float64)
    return data


def as_labels(data: Any, what: str) -> npt.NDArray[Any]:
    """Convert labels to numbers or strings of shape (n,); "" or NaN marks a missing label.

    >>> (
    ...     as_labels(["no", None], "labels").tolist(),
    ...     as_labels([b"benign"], "labels").tolist(),
    ... )
    (['no', ''], ['benign'])
    """
    labels = as_array(data, what)
    if labels.dtype.kind in "iufU":
        return labels
    from fallow.data.loaders.cells import labels_of

    return labels_of(_cells(labels, what))


def _has_none(data: Any) -> bool:
    """Return whether some labels are None, which nobody writes by mistake, unlike NaN."""
    labels = as_array(data, "labels")
    return labels.dtype.kind == "O" and any(value is None for value in labels.tolist())


def as_names(data: Any, what: str) -> npt.NDArray[Any]:
    """Convert names of sites or groups to integers or strings (n,), and reject missing ones."""
    values = as_array(data, what)
    if values.dtype.kind in "iuU":
        return values
    from fallow.data.loaders.cells import texts_of

    names = texts_of(_cells(values, what))
    if missing := sum(not name for name in names):
        raise ValueError(f"{what}: {missing} examples have none; fill them in")
    return np.array(names, dtype=np.str_)


def _cells(values: npt.NDArray[Any], what: str) -> pa.ChunkedArray:
    """Return values of any type as cells of a table, by the rules of a data frame."""
    from fallow.data.loaders.cells import cells_of_values

    if values.dtype.kind in "Mm":  # dates, of which tolist() gives numbers
        dates = values.astype(np.str_).astype(object)
        dates[np.isnat(values)] = None
        values = dates
    with explain_errors(f"{what} cannot be read: "):
        return cells_of_values(values.tolist())
