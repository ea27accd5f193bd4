"""From a user's labels to class ids or targets."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fallow.core.build import nearest

TaskChoice = Literal["auto", "classification", "regression"]
MOST_CLASSES = 100  # more whole numbers than this: ask which task is meant
Labels = npt.NDArray[Any]


def encode(y: Labels, task: TaskChoice, name: str) -> tuple[Labels, tuple[str, ...]]:
    """Labels -> (class ids or float32 targets, class names in sorted order; () for regression).

    Texts that are all numbers count as numbers, and sort as numbers.

    >>> encode(np.array(["10", "9", "", "10"]), "auto", "toy")
    (array([ 1,  0, -1,  1]), ('9', '10'))
    """
    if y.ndim != 1 or y.dtype.kind not in "biufU":
        raise ValueError(f"{name}: labels are {y.dtype} of shape {y.shape}; give one a row")
    numbers = _as_numbers(y)
    if task == "regression" or (task == "auto" and numbers is not None and not _are_whole(numbers)):
        return _targets(numbers, name), ()
    if numbers is None:
        values = np.char.strip(y)
        known = [str(v) for v in np.unique(values) if v]
    else:
        if y.dtype.kind in "biu":
            numbers = np.where(numbers == -1, np.nan, numbers)
        whole = np.unique(numbers[~np.isnan(numbers)])
        if task == "auto" and len(whole) > MOST_CLASSES:
            raise ValueError(
                f"{name}: the labels are {len(whole)} different whole numbers; say "
                "with task= 'classification' or 'regression' what they are"
            )
        values, known = _texts(numbers), [_text(v) for v in whole]
    if len(known) < 2:
        found = f"only the class {known[0]!r}" if known else "no label at all"
        raise ValueError(f"{name}: the labels hold {found}; at least two classes must occur")
    return _ids(values, tuple(known)), tuple(known)


def encode_with(y: Labels, classes: tuple[str, ...], name: str) -> Labels:
    """Labels of a test set with classes that are known; () = regression targets.

    Raises ValueError for a test row without a label or with a class that training does not know.
    """
    numbers = _as_numbers(y)
    if not classes:
        targets = _targets(numbers, f"{name} (test)")
        if np.isnan(targets).any():
            missing = int(np.isnan(targets).sum())
            raise ValueError(f"{name}: {missing} test rows have no label; remove them")
        return targets
    values = np.char.strip(y) if numbers is None else _texts(numbers)
    missing = int((values == "").sum())
    if missing:
        raise ValueError(f"{name}: {missing} test rows have no label; remove them")
    unknown = sorted(set(values.tolist()) - set(classes))
    if unknown:
        raise ValueError(
            f"{name}: test label {unknown[0]!r} is no class of the training rows"
            f"{nearest(unknown[0], list(classes))}"
        )
    return _ids(values, classes)


def _as_numbers(y: Labels) -> npt.NDArray[np.float64] | None:
    """float64 with NaN for an empty text, or None when a text is not a number."""
    if y.dtype.kind != "U":
        return y.astype(np.float64)
    stripped = np.char.strip(y)
    try:
        numbers = np.array([float(v) if v else np.nan for v in stripped], dtype=np.float64)
    except ValueError:
        return None
    # a text such as "nan" or "inf" is a word, not a number
    return numbers if np.isfinite(numbers[stripped != ""]).all() else None


def _are_whole(numbers: npt.NDArray[np.float64]) -> bool:
    given = numbers[~np.isnan(numbers)]
    return bool((given == np.floor(given)).all() and np.isfinite(given).all())


def _targets(numbers: npt.NDArray[np.float64] | None, name: str) -> Labels:
    if numbers is None:
        raise ValueError(
            f"{name}: regression needs numbers and some labels are texts; use "
            "task='classification' or correct them"
        )
    if np.isinf(numbers).any():
        infinite = int(np.isinf(numbers).sum())
        raise ValueError(f"{name}: {infinite} targets are infinite; correct them")
    if len(np.unique(numbers[~np.isnan(numbers)])) < 2 and "(test)" not in name:
        raise ValueError(f"{name}: targets are constant or all missing; give at least two values")
    return numbers.astype(np.float32)


def _text(value: float) -> str:
    return str(int(value)) if value == np.floor(value) else str(value)


def _texts(numbers: npt.NDArray[np.float64]) -> Labels:
    return np.array(["" if np.isnan(v) else _text(v) for v in numbers], dtype=np.str_)


def _ids(values: Labels, classes: tuple[str, ...]) -> Labels:
    number = {text: i for i, text in enumerate(classes)} | {"": -1}
    return np.array([number[str(value)] for value in values], dtype=np.int64)
