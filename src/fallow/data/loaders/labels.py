"""Conversion of labels to class ids or regression targets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fallow.core.suggestions import nearest
from fallow.data.loaders.columns import are_dates, names_every_row
from fallow.data.loaders.table_files import EMPTY

TaskChoice = Literal["auto", "classification", "regression"]
TASK_CHOICES: tuple[TaskChoice, ...] = get_args(TaskChoice)
MOST_CLASSES = 100  # maximum number of distinct integers without an explicit task
EXACT = 2.0**53
"""Whole numbers below are exact as float64. Larger ones are classes by their digits."""
UNLABELED = "-1"
"""Number of an unlabeled example, among numbers that are classes."""
Labels = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]


def encode_labels(
    y: Labels, task: TaskChoice, name: str, classes: tuple[str, ...] = ()
) -> tuple[Labels, tuple[str, ...]]:
    """Return (class ids or float32 targets, class names; () for regression).

    The class names are ``classes`` if given, else the labels that occur, sorted (numbers as
    numbers). Texts that are all numbers count as numbers. "" and NaN are unlabeled. Among
    numbers, so are the texts for a missing cell and, without the task "regression", -1
    unless it is one of ``classes``.

    >>> encode_labels(np.array(["10", "9", "NA", "-1"]), "auto", "toy")
    (array([ 1,  0, -1, -1]), ('9', '10'))
    """
    if task not in TASK_CHOICES:
        raise ValueError(
            f"{name}: task is {task!r}; give one of {', '.join(map(repr, TASK_CHOICES))}"
        )
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
    texts = _spell_classes(y, classes)
    known = classes or _list_classes(texts, task, name, numbers)
    return _encode_classes(texts, known, name), known


def encode_test_labels(y: Labels, classes: tuple[str, ...], name: str) -> Labels:
    """Return the labels of a test set with the classes of the training examples; () =
    regression.

    Raises ValueError for a test example without a label or with an unknown class.
    """
    if classes:
        coded = _encode_classes(_spell_classes(y, classes), classes, name)
        is_missing = coded == -1
    else:
        coded = _read_targets(y, name)
        is_missing = np.isnan(coded)
    missing = int(is_missing.sum())
    if missing:
        raise ValueError(f"{name}: {missing} test examples have no label; remove them")
    return coded


def _spell_classes(y: Labels, classes: tuple[str, ...]) -> list[str]:
    """Return the class of each example by name, "" for unlabeled; 1.0 and "1.0" are "1"."""
    is_text = y.dtype.kind == "U"
    texts: list[str] = y.astype(np.str_).tolist()
    if is_text:
        texts = [text.strip() for text in texts]
    numbers = _as_numbers(y)
    if numbers is None or (is_text and {*classes, ""} >= set(texts)):
        return texts
    is_exact = y.dtype.kind == "f" or bool(
        (np.abs(numbers[~np.isnan(numbers)]) < EXACT).all()
    )
    spelled = []
    for text, number in zip(texts, numbers.tolist(), strict=True):
        if is_exact or np.isnan(number):
            text = _format_number(number)
        if text == UNLABELED and UNLABELED not in classes:
            text = ""
        spelled.append(text)
    return spelled


def _list_classes(
    texts: Sequence[str], task: TaskChoice, name: str, numbers: Numbers | None
) -> tuple[str, ...]:
    """Return the names of the classes among the labels, sorted; at least two.

    numbers: the labels, if all are numbers.
    """
    known = sorted(set(texts) - {""})
    remark = ""
    if numbers is not None:
        known.sort(key=float)
        if bool((numbers == float(UNLABELED)).any()):
            remark = f" ({UNLABELED} is unlabeled, unless classes= lists it)"
        if task == "auto" and len(known) > MOST_CLASSES:
            raise ValueError(
                f"{name}: the labels are {len(known)} different integers; set "
                "task='classification' or task='regression'"
            )
    elif task == "auto":
        _check_texts(known, texts, name)
    if len(known) < 2:
        classes = "no label at all"
        if known:
            classes = f"only the class {known[0]!r}"
        raise ValueError(
            f"{name}: the labels contain {classes}{remark}; label examples of at least two classes"
        )
    return tuple(known)


def _check_texts(known: Sequence[str], texts: Sequence[str], name: str) -> None:
    """Raise ValueError for labels that look like those of the wrong column.

    known: the distinct ones among the labels ``texts``.
    """
    value = sum(text != "" for text in texts)
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


def _encode_classes(texts: Sequence[str], classes: tuple[str, ...], name: str) -> Labels:
    """Return class ids, -1 = unlabeled."""
    number = {text: i for i, text in enumerate(classes)} | {"": -1}
    unknown = sorted(set(texts) - number.keys())
    if unknown:
        hint = nearest(unknown[0], list(classes))
        raise ValueError(f"{name}: label {unknown[0]!r} is not one of the classes{hint}")
    return np.array([number[text] for text in texts], dtype=np.int64)


def _as_numbers(y: Labels) -> Numbers | None:
    """Return float64, NaN for unlabeled; None if a text is not a number.

    Among numbers, a text such as "NA" is a missing label. Otherwise it may be a class.
    """
    if y.dtype.kind != "U":
        return y.astype(np.float64)
    stripped = np.char.strip(y)
    is_number = ~np.isin(np.char.lower(stripped), list(EMPTY))
    numbers = np.full(len(y), np.nan)
    try:
        numbers[is_number] = [float(text) for text in stripped[is_number]]
    except ValueError:
        return None
    has_words = not is_number.any() and bool((stripped != "").any())
    if has_words or not np.isfinite(numbers[is_number]).all():
        return None  # a text such as "nan" or "inf" is a word, not a number
    return numbers


def _are_whole(numbers: Numbers) -> bool:
    value = numbers[~np.isnan(numbers)]
    return bool((value == np.floor(value)).all() and np.isfinite(value).all())


def _read_targets(y: Labels, name: str) -> npt.NDArray[np.float32]:
    """Return (n,) regression targets, NaN for missing ones."""
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
