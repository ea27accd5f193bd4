"""Conversion of labels to class ids or regression targets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fallow.core.suggestions import nearest
from fallow.data.loaders.columns import are_dates, names_every_row

TaskChoice = Literal["auto", "classification", "regression"]
MOST_CLASSES = 100  # maximum number of distinct integers without an explicit task
Labels = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]


def encode_labels(
    y: Labels, task: TaskChoice, name: str, classes: tuple[str, ...] = ()
) -> tuple[Labels, tuple[str, ...]]:
    """Return (class ids or float32 targets, class names; () for regression).

    The class names are ``classes`` if given, else the labels that occur, sorted (numbers as
    numbers). Texts that are all numbers count as numbers. "" and NaN are unlabeled. So is
    -1 among integers, except with the task "regression".

    >>> encode_labels(np.array(["10", "9", "", "10"]), "auto", "toy")
    (array([ 1,  0, -1,  1]), ('9', '10'))
    """
    if y.ndim != 1 or y.dtype.kind not in "biufU":
        raise ValueError(
            f"{name}: labels are {y.dtype} of shape {y.shape}; give one per row"
        )
    if classes and task == "regression":
        raise ValueError(f"{name}: regression has no classes; omit task or classes")
    numbers = _as_numbers(y)
    is_real = numbers is not None and not _are_whole(numbers)
    if task == "regression" or (task == "auto" and is_real and not classes):
        targets = _read_targets(y, name)
        if len(np.unique(targets[~np.isnan(targets)])) < 2:
            raise ValueError(
                f"{name}: targets are constant or all missing; give two values or more"
            )
        return targets, ()
    known = classes or _list_classes(y, numbers, task, name)
    return _encode_classes(y, known, name), known


def encode_test_labels(y: Labels, classes: tuple[str, ...], name: str) -> Labels:
    """Return the labels of a test set with the classes of the training examples; () =
    regression.

    Raises ValueError for a test example without a label or with an unknown class.
    """
    if classes:
        coded = _encode_classes(y, classes, name)
        is_missing = coded == -1
    else:
        coded = _read_targets(y, name)
        is_missing = np.isnan(coded)
    missing = int(is_missing.sum())
    if missing:
        raise ValueError(f"{name}: {missing} test examples have no label; remove them")
    return coded


def _list_classes(
    y: Labels, numbers: Numbers | None, task: TaskChoice, name: str
) -> tuple[str, ...]:
    """Return the names of the classes among the labels, sorted; at least two."""
    if numbers is None:
        known = [str(text) for text in np.unique(np.char.strip(y)) if text]
        if task == "auto":
            _check_texts(known, y, name)
    else:
        values = np.unique(numbers[~np.isnan(numbers)])
        known = [_format_number(value) for value in values]
        if task == "auto" and len(known) > MOST_CLASSES:
            raise ValueError(
                f"{name}: the labels are {len(known)} different integers; set "
                "task='classification' or task='regression'"
            )
    if len(known) < 2:
        classes = "no label at all"
        if known:
            classes = f"only the class {known[0]!r}"
        raise ValueError(
            f"{name}: the labels contain {classes}; label examples of at least two classes"
        )
    return tuple(known)


def _check_texts(known: Sequence[str], y: Labels, name: str) -> None:
    """Raise ValueError for labels that look like those of the wrong column.

    known: the distinct texts among the labels ``y``.
    """
    value = int((np.char.strip(y) != "").sum())
    if known and are_dates(known):
        looks = f"{len(known)} different dates or times ({known[0]!r}, ...)"
    elif names_every_row(len(known), value):
        looks = f"{len(known)} different texts in {value} rows ({known[0]!r}, ...)"
    else:
        return
    raise ValueError(
        f"{name}: the labels are {looks}; set the column of labels with --label (label=), "
        "or set task=classification if each of these is a class"
    )


def _encode_classes(y: Labels, classes: tuple[str, ...], name: str) -> Labels:
    """Return class ids, -1 = unlabeled."""
    number = {text: i for i, text in enumerate(classes)} | {"": -1}
    texts: list[str] = []
    if y.dtype.kind == "U":
        texts = np.char.strip(y).tolist()
    numbers = _as_numbers(y)
    has_names = y.dtype.kind == "U" and number.keys() >= set(texts)
    if numbers is not None and not has_names:
        texts = [_format_number(value) for value in numbers]  # "1.0" is "1"
    unknown = sorted(set(texts) - number.keys())
    if unknown:
        hint = nearest(unknown[0], list(classes))
        raise ValueError(f"{name}: label {unknown[0]!r} is not one of the classes{hint}")
    return np.array([number[text] for text in texts], dtype=np.int64)


def _as_numbers(y: Labels) -> Numbers | None:
    """Return float64, NaN for unlabeled; None if a text is not a number."""
    if y.dtype.kind != "U":
        numbers = y.astype(np.float64)
        if y.dtype.kind in "iu":
            numbers[numbers == -1] = np.nan
        return numbers
    stripped = np.char.strip(y)
    is_given = stripped != ""
    numbers = np.full(len(y), np.nan)
    try:
        numbers[is_given] = [float(text) for text in stripped[is_given]]
    except ValueError:
        return None
    if not np.isfinite(numbers[is_given]).all():
        return None  # a text such as "nan" or "inf" is a word, not a number
    return numbers


def _are_whole(numbers: Numbers) -> bool:
    value = numbers[~np.isnan(numbers)]
    return bool((value == np.floor(value)).all() and np.isfinite(value).all())


def _read_targets(y: Labels, name: str) -> npt.NDArray[np.float32]:
    """Return (n,) regression targets, NaN for missing ones."""
    if y.dtype.kind in "iu":
        y = y.astype(np.float64)  # a target of -1 is not a missing label
    numbers = _as_numbers(y)
    if numbers is None:
        raise ValueError(
            f"{name}: regression needs numbers and some labels are texts; correct them"
        )
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise ValueError(f"{name}: {infinite} targets are infinite; correct them")
    return numbers.astype(np.float32)


def _format_number(value: float) -> str:
    """Return a number as the name of a class; "" for NaN."""
    if np.isnan(value):
        return ""
    if value == np.floor(value):
        return str(int(value))
    return str(value)


def warn_of_nan(labels: npt.NDArray[Any], name: str, stacklevel: int) -> None:
    """Warn that examples with the label NaN count as unlabeled."""
    if labels.dtype.kind != "f":
        return
    missing = int(np.isnan(labels).sum())
    if 0 < missing < len(labels):
        warnings.warn(
            f"{name}: {missing} of {len(labels)} labels are NaN; these examples are treated as "
            "unlabeled",
            stacklevel=stacklevel,
        )
