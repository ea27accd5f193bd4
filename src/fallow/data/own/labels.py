"""From a user's labels to class ids or targets."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fallow.core.build import nearest

TaskChoice = Literal["auto", "classification", "regression"]
MOST_CLASSES = 100  # more whole numbers than this: ask which task is meant
Labels = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]


def encode(
    y: Labels, task: TaskChoice, name: str, classes: tuple[str, ...] = ()
) -> tuple[Labels, tuple[str, ...]]:
    """Labels -> (class ids or float32 targets, class names; () for regression).

    The names are ``classes`` when given, else the labels that occur, sorted (numbers as numbers).
    Texts that are all numbers count as numbers.  "" and NaN: unlabelled; so is -1 among whole
    numbers, but with the task "regression", where it is a number like others.

    >>> encode(np.array(["10", "9", "", "10"]), "auto", "toy")
    (array([ 1,  0, -1,  1]), ('9', '10'))
    """
    if y.ndim != 1 or y.dtype.kind not in "biufU":
        raise ValueError(f"{name}: labels are {y.dtype} of shape {y.shape}; give one a row")
    if classes and task == "regression":
        raise ValueError(f"{name}: regression has no classes; leave out task or classes")
    numbers = _as_numbers(y)
    is_real = numbers is not None and not _are_whole(numbers)
    if task == "regression" or (task == "auto" and is_real and not classes):
        targets = _targets(y, name)
        if len(np.unique(targets[~np.isnan(targets)])) < 2:
            raise ValueError(
                f"{name}: targets are constant or all missing; give two values or more"
            )
        return targets, ()
    known = classes or _occurring(y, numbers, task, name)
    return _ids(y, known, name), known


def encode_test(y: Labels, classes: tuple[str, ...], name: str) -> Labels:
    """Labels of a test set with the classes of the training rows; () = regression targets.

    Raises ValueError for a test row without a label or with a class that is not known.
    """
    coded = _ids(y, classes, name) if classes else _targets(y, name)
    missing = int((coded == -1).sum() if classes else np.isnan(coded).sum())
    if missing:
        raise ValueError(f"{name}: {missing} test rows have no label; remove them")
    return coded


def _occurring(
    y: Labels, numbers: Numbers | None, task: TaskChoice, name: str
) -> tuple[str, ...]:
    """The names of the classes among the labels, sorted; at least two."""
    if numbers is None:
        known = [str(text) for text in np.unique(np.char.strip(y)) if text]
    else:
        given = np.unique(numbers[~np.isnan(numbers)])
        known = [_text(value) for value in given]
        if task == "auto" and len(known) > MOST_CLASSES:
            raise ValueError(
                f"{name}: the labels are {len(known)} different whole numbers; say with task= "
                "'classification' or 'regression' what they are"
            )
    if len(known) < 2:
        found = f"only the class {known[0]!r}" if known else "no label at all"
        raise ValueError(
            f"{name}: the labels hold {found}; label two classes: a row of another one is needed"
        )
    return tuple(known)


def _ids(y: Labels, classes: tuple[str, ...], name: str) -> Labels:
    """Class ids, -1 = unlabelled."""
    number = {text: i for i, text in enumerate(classes)} | {"": -1}
    texts = np.char.strip(y).tolist() if y.dtype.kind == "U" else None
    numbers = _as_numbers(y)
    if texts is None or (numbers is not None and not number.keys() >= set(texts)):
        assert numbers is not None  # noqa: S101 - labels that are no texts are numbers
        texts = [
            "" if np.isnan(value) else _text(value) for value in numbers
        ]  # "1.0" is "1"
    unknown = sorted(set(texts) - number.keys())
    if unknown:
        hint = nearest(unknown[0], list(classes))
        raise ValueError(f"{name}: label {unknown[0]!r} is not one of the classes{hint}")
    return np.array([number[text] for text in texts], dtype=np.int64)


def _as_numbers(y: Labels) -> Numbers | None:
    """float64, NaN where unlabelled; None when a text is not a number."""
    if y.dtype.kind != "U":
        numbers = y.astype(np.float64)
        return np.where(numbers == -1, np.nan, numbers) if y.dtype.kind in "iu" else numbers
    stripped = np.char.strip(y)
    try:
        numbers = np.array([float(text) if text else np.nan for text in stripped])
    except ValueError:
        return None
    # a text such as "nan" or "inf" is a word, not a number
    return numbers if np.isfinite(numbers[stripped != ""]).all() else None


def _are_whole(numbers: Numbers) -> bool:
    given = numbers[~np.isnan(numbers)]
    return bool((given == np.floor(given)).all() and np.isfinite(given).all())


def _targets(y: Labels, name: str) -> npt.NDArray[np.float32]:
    # a target of -1 is no missing label
    numbers = _as_numbers(y.astype(np.float64) if y.dtype.kind in "iu" else y)
    if numbers is None:
        raise ValueError(
            f"{name}: regression needs numbers and some labels are texts; correct them"
        )
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise ValueError(f"{name}: {infinite} targets are infinite; correct them")
    return numbers.astype(np.float32)


def _text(value: float) -> str:
    return str(int(value)) if value == np.floor(value) else str(value)
