"""Import of a data frame: columns by name, one-hot encoding of text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fallow.core.missing import find_text_columns, name_buckets
from fallow.core.suggestions import OF_FEDERATION, explain_function, nearest, nearest_column
from fallow.data.dataset import Dataset
from fallow.data.loaders.columns import hash_texts
from fallow.data.loaders.labels import TaskChoice, warn_of_nan
from fallow.data.loaders.open import from_assembled
from fallow.data.loaders.table import EMPTY, Wanted, assemble
from fallow.data.loaders.table_files import cells_of_frame

if TYPE_CHECKING:
    import pandas as pd

Features = npt.NDArray[np.float32]


@explain_function(OF_FEDERATION)
def from_frame(
    df: pd.DataFrame,
    label: str,
    site: str | None = None,
    id: str | None = None,
    *,
    test: pd.DataFrame | None = None,
    drop: Sequence[str] = (),
    columns: Sequence[str] = (),
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    name: str = "frame",
) -> Dataset:
    """Create a dataset from a pandas DataFrame.

    The rules are those of a table in a file; the index is ignored.

    Parameters
    ----------
    df : pandas.DataFrame
        Training examples.
    label : str
        Column of labels.  Text, integers and Booleans are classes (sorted); other numbers are
        regression targets.  A missing value is unlabeled.
    site : str, optional
        Column with the site ID.
    id : str, optional
        Column with names of examples.  None: the column "id", if present.
    test : pandas.DataFrame, optional
        Test examples with the same columns.  None: 20 % of the labeled examples are held out.
    drop : sequence of str
        Columns that are not features.
    columns : sequence of str
        Features.  Empty: every other column except ``drop``.  Numbers and Booleans are used as they
        are; text and categories are one-hot encoded, with names ``column=level``.  Columns with
        names, counters, dates, free text or constant values, and empty ones, are omitted unless
        listed here; ``notes`` mentions them.  Free text that is listed becomes hashed n-grams, for
        the encoder `HashedText`.
    task : {"auto", "classification", "regression"}
        Task, if integers are regression targets.
    classes : sequence of str
        Names of the classes, in order.
    drop_rows : bool
        Omit examples with missing or infinite features.  False: the sites impute missing cells
        together, from aggregates over their training examples, and mark them with indicator
        columns.
    name : str
        Name of the dataset.

    Raises
    ------
    ValueError
        For a missing column (with the nearest name), text among numbers (with its row), an infinite
        feature (with its column and count), and the errors of `from_arrays`.

    Examples
    --------
    >>> import fallow as fl, pandas as pd
    >>> df = pd.DataFrame({"age": [31, 54, 70, 22], "sick": ["no", "yes", "yes", "no"]})
    >>> d = fl.from_frame(df, label="sick")
    >>> d.classes, d.columns
    (('no', 'yes'), ('age',))
    """
    _check_frame(df, name)
    if test is not None:
        _check_frame(test, f"the test frame of {name}")
    wanted = Wanted(
        label=label,
        site=site,
        id=id,
        drop=tuple(str(column) for column in drop),
        only=tuple(str(column) for column in columns),
        drop_rows=drop_rows,
    )
    used = [column for column in (label, site, id) if column is not None]
    named = [*used, *wanted.drop, *wanted.only]
    for column in named:
        _check_column(df, column, name)
        if test is not None:
            _check_column(test, column, f"the test frame of {name}")
    if len(set(used)) < len(used):
        raise ValueError(f"{name}: label, site and id are {used}; name different columns")
    together = df
    if test is not None:
        _check_columns(df, test, name)
        together = _concatenate(df, test)
    y = _read_labels(together, label)
    warn_of_nan(y, name, stacklevel=4)
    sites = None
    if site is not None:
        sites = _read_sites(together, site, name)
    features = cells_of_frame(together, name, wanted.is_text)
    table = assemble(features, wanted, name, len(df), sites)

    # of both frames, without omitted examples
    kept = table.kept
    if sites is not None:
        sites = sites[kept]
    return from_assembled(
        table,
        y[kept],
        sites,
        has_test=test is not None,
        name=name,
        task=task,
        classes=tuple(classes),
    )


def _check_columns(df: pd.DataFrame, test: pd.DataFrame, name: str) -> None:
    for column in df.columns:
        _check_column(test, column, f"the test frame of {name}")


def _concatenate(df: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Concatenate both frames, with the columns of the first."""
    import pandas as pd

    return pd.concat([df, test[list(df.columns)]], ignore_index=True)


def read_features(
    df: pd.DataFrame,
    columns: Sequence[str],
    name: str = "frame",
    marks: Sequence[Sequence[str]] = (),
) -> Features:
    """Return the features on which a model was trained: (n, d); NaN for missing values.

    columns: names of features, ``column=level`` for one level of a text column.  Other columns are
    ignored.  marks: indicator features of empty cells, with their columns.  Raises ValueError for a
    missing column and for text that the model does not know.
    """
    column_of = {str(column): column for column in df.columns}  # names may be numbers
    written = find_text_columns(columns)
    hashed = {feature for column in written for feature in name_buckets(column)}
    blocks = []  # (n,) each
    marked = {mark[0]: mark[1] for mark in marks}
    for feature in columns:
        if feature in hashed:
            continue
        if feature in marked and marked[feature] in column_of:
            is_empty = df[column_of[marked[feature]]].isna().to_numpy(dtype=bool)
            blocks.append(is_empty.astype(np.float32))
            continue
        column, is_level, level = feature.rpartition("=")
        if feature in column_of:
            numbers = _read_numbers(df[column_of[feature]])
            if numbers is None:
                raise ValueError(
                    f"{name}: column {feature!r} contains texts, and the model was "
                    "trained on numbers"
                )
            blocks.append(numbers)
        elif is_level and column in column_of:
            values = df[column_of[column]]
            blocks.append(_encode_level(values, column, level, columns, name))
        else:
            lacking = feature
            if is_level:
                lacking = column
            raise ValueError(
                f"{name} has no column {lacking!r}{nearest(lacking, list(column_of))}"
            )
    for column in written:  # whose features are the last
        if column not in column_of:
            raise ValueError(
                f"{name} has no column {column!r}{nearest(column, list(column_of))}"
            )
        blocks += list(hash_texts(_read_texts(df[column_of[column]])).T)
    return np.stack(blocks, axis=1)


def _read_texts(values: pd.Series[Any]) -> list[str]:
    """Return the texts of a column, "" for empty cells, as in training."""
    texts = []
    for text, is_missing in zip(values, values.isna(), strict=True):
        written = "" if is_missing else str(text).strip()
        texts.append("" if written.lower() in EMPTY else written)
    return texts


def _encode_level(
    values: pd.Series[Any], column: str, level: str, columns: Sequence[str], name: str
) -> Features:
    """Return (n,) 1 for cells with this text, else 0; NaN for empty cells."""
    is_missing = values.isna().to_numpy(dtype=bool)
    texts = values.astype(str).to_numpy(dtype=object)
    known: set[str] = set()  # the levels of this column in training
    for feature in columns:
        feature_column, _, feature_level = feature.rpartition("=")
        if feature_column == column:
            known.add(feature_level)
    unknown = sorted({str(text) for text in texts[~is_missing]} - known)
    if unknown:
        raise ValueError(
            f"{name}: column {column!r} holds {unknown[0]!r}, none of the texts that the model was "
            f"trained with: {', '.join(map(repr, sorted(known)))}"
        )
    block: Features = (texts == level).astype(np.float32)
    block[is_missing] = np.nan
    return block


def _read_numbers(values: pd.Series[Any]) -> Features | None:
    """Return (n,) float32 with NaN for missing values; None for a column of text."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not (is_numeric_dtype(values.dtype) or is_bool_dtype(values.dtype)):
        return None
    with np.errstate(over="ignore"):  # beyond 3.4e38 counts as infinite
        wide: npt.NDArray[np.float64] = values.to_numpy(np.float64, na_value=np.nan)
        return wide.astype(np.float32)


def _read_labels(df: pd.DataFrame, label: str) -> npt.NDArray[Any]:
    """Return labels for `from_arrays`: text ("" for unlabeled) or numbers (NaN)."""
    from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

    values = df[label]
    is_missing = values.isna().to_numpy(dtype=bool)
    is_text = is_bool_dtype(values.dtype) or not is_numeric_dtype(values.dtype)
    if is_text:
        texts = values.astype(object).where(~is_missing, "")
        return np.array([str(value) for value in texts], dtype=np.str_)
    if is_integer_dtype(values.dtype) and not is_missing.any():
        whole: npt.NDArray[np.int64] = values.to_numpy(np.int64)
        return whole
    numbers: npt.NDArray[np.float64] = values.to_numpy(np.float64, na_value=np.nan)
    return numbers


def _read_sites(df: pd.DataFrame, column: str, name: str) -> npt.NDArray[np.str_]:
    """Return the site of each example as text; ValueError if one is missing."""
    missing = int(df[column].isna().sum())
    if missing:
        raise ValueError(
            f"{name}: {missing} rows have no site in column {column!r}; fill them in"
        )
    return np.array([str(value) for value in df[column]], dtype=np.str_)


def _check_frame(df: object, name: str) -> None:
    import pandas as pd

    if not isinstance(df, pd.DataFrame):
        raise ValueError(
            f"{name} is a {type(df).__name__}, not a DataFrame; make one, such as "
            "pandas.DataFrame(columns) or pandas.read_csv(path)"
        )
    if df.empty:
        raise ValueError(
            f"{name} has {len(df)} rows and {len(df.columns)} columns; give some"
        )


def _check_column(df: pd.DataFrame, column: object, name: str) -> None:
    if not isinstance(column, Hashable):
        raise ValueError(
            f"{column!r} is a {type(column).__name__}; give the name of a column"
        )
    if column not in df.columns:
        known = [str(item) for item in df.columns]
        raise ValueError(
            f"{name} has no column {column!r}{nearest_column(str(column), known)}"
        )
