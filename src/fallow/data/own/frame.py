"""A user's own data frame: columns by name, texts as columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fallow.core.build import nearest
from fallow.data.dataset import Dataset
from fallow.data.own.labels import TaskChoice
from fallow.data.own.open import from_arrays
from fallow.data.own.table import MOST_LEVELS

if TYPE_CHECKING:
    import pandas as pd

Features = npt.NDArray[np.float32]


def from_frame(
    df: pd.DataFrame,
    label: str,
    site: str | None = None,
    id: str | None = None,
    *,
    test: pd.DataFrame | None = None,
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    name: str = "frame",
) -> Dataset:
    """A data set from a pandas DataFrame; the row index means nothing.

    label: the column of labels.  Texts, whole numbers and truth values are classes (sorted), other
    numbers are targets; a missing value is unlabelled.  ``task`` decides where whole numbers are
    targets.
    site: the column that says which site holds a row.  id: the column of row names.
    Every other column is a feature: numbers and truth values as they are, texts and categories
    one column of 0 and 1 for each level, named ``column=level``.
    test: a second frame with the same columns; without it 20 % of the labelled rows are held out.
    drop_rows: leave out rows that lack a feature; nothing is ever filled in.
    Raises ValueError for an absent column (with the nearest name), a missing or infinite feature
    (with its column and how many), and whatever `from_arrays` refuses.

    >>> import fallow as fl, pandas as pd
    >>> df = pd.DataFrame({"age": [31, 54, 70, 22], "sick": ["no", "yes", "yes", "no"]})
    >>> d = fl.from_frame(df, label="sick")
    >>> d.classes, d.columns
    (('no', 'yes'), ('age',))
    """
    for column in (label, site, id):
        if column is not None:
            _check_column(df, column, name)
    used = [column for column in (label, site, id) if column is not None]
    if len(set(used)) < len(used):
        raise ValueError(f"{name}: label, site and id are {used}; name different columns")
    named = [column for column in df.columns if column not in used]
    x, columns, notes = encode_features(df, named, name)
    sites = None if site is None else _texts(df, site, name)
    more: dict[str, Any] = {}
    if test is not None:
        for column in (label, *([site] if site else [])):
            _check_column(test, column, f"the test frame of {name}")
        more["x_test"] = read_features(test, columns, f"the test frame of {name}")
        more["y_test"] = _labels(test, label)
        if site is not None:
            more["groups_test"] = _texts(test, site, name)
    return from_arrays(
        x,
        _labels(df, label),
        sites,
        columns=columns,
        ids=None if id is None else [str(value) for value in df[id]],
        name=name,
        task=task,
        classes=classes,
        drop_rows=drop_rows,
        notes=notes,
        **more,
    )


def encode_features(
    df: pd.DataFrame, named: Sequence[Any], name: str
) -> tuple[Features, tuple[str, ...], tuple[str, ...]]:
    """The features of a frame: (n, d) numbers, the names of the d columns, notes.

    Raises ValueError where no column is left, and for a column of more than 50 different texts.
    """
    if not named:
        raise ValueError(f"{name} has no column of features; add one")
    blocks: list[Features] = []
    columns: list[str] = []
    notes: list[str] = []
    for column in named:
        numbers = _numbers(df[column])
        if numbers is not None:
            blocks.append(numbers[:, None])
            columns.append(str(column))
            continue
        values = df[column]
        is_missing = values.isna().to_numpy(dtype=bool)
        texts = values.astype(str).to_numpy(dtype=object)
        levels = sorted({str(text) for text in texts[~is_missing]})
        if len(levels) > MOST_LEVELS:
            raise ValueError(
                f"{name}: column {str(column)!r} holds {len(levels)} different texts, more than "
                f"{MOST_LEVELS}; leave it out, or name it as id="
            )
        block = (texts[:, None] == np.array(levels, dtype=object)).astype(np.float32)
        block[is_missing] = np.nan
        blocks.append(block)
        columns += [f"{column}={level}" for level in levels]
        notes.append(
            f"column {str(column)!r} holds texts and became {len(levels)} columns of 0 and 1"
        )
    return np.hstack(blocks), tuple(columns), tuple(notes)


def read_features(
    df: pd.DataFrame, columns: Sequence[str], name: str = "frame"
) -> Features:
    """The columns that a model was trained on: (n, d); NaN where a value is missing.

    columns: names of features, ``column=level`` for one level of a text column.  Columns beyond
    these are left aside.  Raises ValueError for an absent column and for a text the model does not
    know.
    """
    by_text = {str(column): column for column in df.columns}
    blocks = []
    for wanted in columns:
        column, is_level, level = wanted.rpartition("=")
        if wanted in by_text:
            numbers = _numbers(df[by_text[wanted]])
            if numbers is None:
                raise ValueError(
                    f"{name}: column {wanted!r} holds texts, and the model was trained on numbers"
                )
            blocks.append(numbers)
        elif is_level and column in by_text:
            blocks.append(_level(df[by_text[column]], column, level, columns, name))
        else:
            lacking = column if is_level else wanted
            raise ValueError(
                f"{name} has no column {lacking!r}{nearest(lacking, list(by_text))}"
            )
    return np.stack(blocks, axis=1)


def _level(
    values: pd.Series[Any], column: str, level: str, columns: Sequence[str], name: str
) -> Features:
    is_missing = values.isna().to_numpy(dtype=bool)
    texts = values.astype(str).to_numpy(dtype=object)
    known = {c.rpartition("=")[2] for c in columns if c.rpartition("=")[0] == column}
    unknown = sorted({str(text) for text in texts[~is_missing]} - known)
    if unknown:
        raise ValueError(
            f"{name}: column {column!r} holds {unknown[0]!r}, none of the texts that the model was "
            f"trained with: {', '.join(map(repr, sorted(known)))}"
        )
    block: Features = (texts == level).astype(np.float32)
    block[is_missing] = np.nan
    return block


def _numbers(values: pd.Series[Any]) -> Features | None:
    """(n,) float32 with NaN for missing values; None for a column of texts."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not (is_numeric_dtype(values.dtype) or is_bool_dtype(values.dtype)):
        return None
    with np.errstate(over="ignore"):  # beyond 3.4e38 counts as infinite
        wide: npt.NDArray[np.float64] = values.to_numpy(np.float64, na_value=np.nan)
        return wide.astype(np.float32)


def _labels(df: pd.DataFrame, label: str) -> npt.NDArray[Any]:
    """Labels as `from_arrays` takes them: texts ("" is unlabelled) or numbers (NaN is)."""
    from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

    values = df[label]
    is_missing = values.isna().to_numpy(dtype=bool)
    is_text = is_bool_dtype(values.dtype) or not is_numeric_dtype(values.dtype)
    if is_text:
        texts = ["" if gone else str(v) for v, gone in zip(values, is_missing, strict=True)]
        return np.array(texts, dtype=np.str_)
    is_whole = is_integer_dtype(values.dtype) and not is_missing.any()
    kind = np.int64 if is_whole else np.float64
    found: npt.NDArray[Any] = values.to_numpy(kind, na_value=-1 if is_whole else np.nan)
    return found


def _texts(df: pd.DataFrame, column: str, name: str) -> npt.NDArray[np.str_]:
    if missing := int(df[column].isna().sum()):
        raise ValueError(
            f"{name}: {missing} rows have no site in column {column!r}; fill them in"
        )
    return np.array([str(value) for value in df[column]], dtype=np.str_)


def _check_column(df: pd.DataFrame, column: str, name: str) -> None:
    if column not in df.columns:
        raise ValueError(
            f"{name} has no column {column!r}{nearest(column, [str(c) for c in df.columns])}"
        )
