"""Conversion of labels to class ids or regression targets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final, get_args

import numpy as np
import numpy.typing as npt

from fallow.core.suggestions import nearest
from fallow.core.wording import count_noun
from fallow.data.loaders.answers import check_variation, encode_answers
from fallow.data.loaders.extra_rows import SUMMARY
from fallow.data.loaders.numbers import (
    SMALLEST,
    choose_offset,
    count_too_small,
    warn_of_sentinels,
)
from fallow.data.loaders.text_rules import (
    EXACT,
    are_dates,
    describe_merged,
    has_leading_zero,
    is_empty,
    is_perhaps_empty,
    merge_names,
    names_every_row,
    normal_name,
    number_in,
    split_unit,
    warn_of_dates,
    warn_of_garbled_names,
    warn_of_similar_names,
)
from fallow.data.reading import Finding, note, warning

TaskChoice = Literal["auto", "classification", "regression"]
TASK_CHOICES: tuple[TaskChoice, ...] = get_args(TaskChoice)
MOST_CLASSES = 100  # maximum number of distinct integers without an explicit task
UNLABELED = "-1"
"""Number of an unlabeled example, among numbers or texts that are classes."""
WHOLE = re.compile(r"[+-]?\d+\.0+")
SIGNS = frozenset({"0", "1"})
"""Classes beside which -1 may be a class too."""
Labels = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class EncodedLabels:
    """Labels as a model takes them.

    Attributes
    ----------
    y : array of shape (n,)
        int64 class ids, -1 for unlabeled; or targets, NaN for unlabeled: float32, or float64 if
        float32 would lose their digits.
    classes : tuple of str
        Class names by id; empty for other tasks.
    findings : tuple of Finding
        Guesses about the labels.
    merged : mapping
        Classes of the names that were merged.
    unit : str
        Unit that all targets had in their cells; "" without one.
    labels : tuple of str
        Names of several labels of an example; empty for other tasks.
    """

    y: Labels
    classes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    labels: tuple[str, ...] = ()


def encode_labels(
    y: Labels,
    task: TaskChoice,
    name: str,
    classes: tuple[str, ...] = (),
    *,
    labels: tuple[str, ...] = (),
    merge: bool = False,
    is_missing_meant: bool = False,
) -> EncodedLabels:
    """Return class ids, targets, or with ``labels`` the answers to several labels.

    The class names are ``classes`` if given, else the labels that occur, sorted (numbers as
    numbers). "" and NaN are unlabeled. Among numbers, so are the texts for a missing cell.  Without
    the task "regression", so is -1 beside numbers or texts, unless it is one of ``classes``.  merge:
    names that differ only in their writing are one class.

    >>> labels = encode_labels(np.array(["10", "9", "NA", "-1"]), "auto", "toy")
    >>> labels.y, labels.classes
    (array([ 1,  0, -1, -1]), ('9', '10'))
    """
    if labels:
        names = tuple(map(normal_name, labels))
        answers = encode_answers(y, names, name)
        check_variation(answers, names, name)
        return EncodedLabels(answers, labels=names)
    if task not in TASK_CHOICES:
        raise ValueError(
            f"{name}: task is {task!r}; give one of {', '.join(map(repr, TASK_CHOICES))}"
        )
    if y.dtype.kind == "b":
        y = y.astype(np.str_)  # "False" and "True"
    if y.ndim != 1 or y.dtype.kind not in "iufU":
        raise ValueError(
            f"{name}: labels are {y.dtype} of shape {y.shape}; give one per row"
        )
    if classes and task == "regression":
        raise ValueError(f"{name}: regression has no classes; omit task or classes")
    unit, bare = _strip_unit(y)
    numbers = _as_numbers(bare)
    is_real = numbers is not None and not _are_whole(numbers)
    findings = [] if is_missing_meant else _find_nan(y)
    if task == "regression" or (task == "auto" and is_real and not classes):
        targets, lost = _encode_targets(bare, name)
        if unit:
            findings.append(note(f"all targets are numbers in {unit!r}"))
        return EncodedLabels(targets, (), (*findings, *lost), unit=unit)
    if unit:  # whole numbers with a unit are names
        numbers = None
    raw = _as_texts(y)
    classes = tuple(map(normal_name, classes))
    texts = _spell_classes(raw, y, classes)
    merged: dict[str, str] = {}
    if merge and not classes:
        merged = merge_names(Counter(text for text in texts if text))
        texts = [merged.get(text, text) for text in texts]
        findings += describe_merged("classes", merged)
    known = classes or _list_classes(texts, task, name, numbers)
    findings += _find_in_classes(Counter(raw), Counter(texts), classes)
    if task == "auto" and not classes:
        findings += _find_measurements(known, unit)
    y = _encode_classes(texts, known, name)
    return EncodedLabels(y, known, tuple(findings), merged)


def _find_nan(y: Labels) -> list[Finding]:
    """Return a warning if some labels are NaN, which often is a mistake."""
    if y.dtype.kind != "f":
        return []
    missing = int(np.isnan(y).sum())
    if not 0 < missing < len(y):
        return []
    return [
        warning(
            f"{missing} of {len(y)} labels are NaN; these examples are treated as unlabeled"
        )
    ]


def encode_test_labels(y: Labels, train: EncodedLabels, name: str) -> Labels:
    """Return the labels of a test set in the form of the training labels.

    Raises ValueError for a test example without a label or with an unknown class.
    """
    if train.labels:
        coded = encode_answers(y, train.labels, name)
        is_missing = coded == -1
    elif train.classes:
        texts = _spell_classes(_as_texts(y), y, train.classes)
        texts = [train.merged.get(text, text) for text in texts]
        coded = _encode_classes(texts, train.classes, name)
        is_missing = coded == -1
    else:
        unit, bare = _strip_unit(y)
        if unit not in ("", train.unit):
            raise ValueError(
                f"{name}: test targets are in {unit!r}, and those of training in "
                f"{train.unit or 'no unit'!r}; convert them"
            )
        coded = _read_targets(bare, name).astype(train.y.dtype)
        is_missing = np.isnan(coded)
    missing = int(is_missing.sum())
    if missing:
        raise ValueError(f"{name}: {missing} test examples have no label; remove them")
    return coded


# -- classes --------------------------------------------------------------------------------


def _as_texts(y: Labels) -> list[str]:
    """Return each label as text, "" for NaN."""
    if y.dtype.kind == "U":
        texts: list[str] = y.tolist()
        return texts
    distinct, codes = np.unique(y, return_inverse=True)
    names = ["" if value != value else str(value) for value in distinct.tolist()]
    return [names[code] for code in codes.tolist()]


def _spell_classes(texts: Sequence[str], y: Labels, classes: tuple[str, ...]) -> list[str]:
    """Return the class of each example by name, "" for unlabeled.

    Names stay as they are, in the composed form of Unicode.  If all labels are numbers with a
    decimal point, as spreadsheets and pandas write them, 1.0 is "1".
    """
    distinct = {text: normal_name(text) for text in set(texts)}
    names = set(distinct.values())
    are_known = y.dtype.kind == "U" and {*classes, ""} >= names
    number_of = {name: number_in(name) for name in names if not is_empty(name)}
    if are_known or not _are_numbers(number_of, names):
        if is_unlabeled_among(names, classes):
            distinct = {
                t: "" if name == UNLABELED else name for t, name in distinct.items()
            }
        return [distinct[text] for text in texts]
    # as arrays, spreadsheets and pandas write whole numbers
    has_points = y.dtype.kind == "f" or all(map(WHOLE.fullmatch, number_of))
    for text, name in distinct.items():
        number = number_of.get(name)
        is_unlabeled = number == float(UNLABELED) and UNLABELED not in classes
        if number is None or is_unlabeled:
            distinct[text] = ""
        elif has_points and abs(number) < EXACT:
            distinct[text] = _format_number(number)
    return [distinct[text] for text in texts]


def is_unlabeled_among(names: Collection[str], classes: Sequence[str]) -> bool:
    """Return whether -1 is no class of its own beside two or more texts, but unlabeled.

    >>> (
    ...     is_unlabeled_among({"no", "yes", "-1"}, ()),
    ...     is_unlabeled_among({"0", "a", "-1"}, ()),
    ... )
    (True, False)
    """
    others = {*names} - {"", UNLABELED}
    are_texts = all(number_in(name) is None for name in others)
    return UNLABELED not in classes and len(others) > 1 and are_texts


def _are_numbers(number_of: dict[str, float | None], names: set[str]) -> bool:
    """Return whether labels are numbers: those that are not empty, and at least one."""
    has_words = not number_of and bool(names - {""})
    numbers = number_of.values()
    return not has_words and None not in numbers and not any(map(_is_infinite, numbers))


def _is_infinite(number: float | None) -> bool:
    return number is not None and np.isinf(number)


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
        if sum(map(_is_measurement, known)) > len(known) / 2:
            looks += ", most of them numbers: write the numbers alone for regression"
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


BOUND = re.compile(r"(<|>|<=|>=|≤|≥|~|ca\.?)\s*(?P<number>\S.*)")
"""Number that was not measured exactly, such as ``<0.5`` below a limit of detection."""


def _is_measurement(name: str) -> bool:
    """Return whether a label is a number, with or without a unit.

    >>> _is_measurement("7 mg"), _is_measurement("0.5"), _is_measurement("<0.5")
    (True, True, False)
    """
    return number_in(name) is not None or split_unit(name) is not None


def _find_measurements(known: Sequence[str], unit: str) -> list[Finding]:
    """Return a warning of classes that are measurements, such as ``7 %`` or ``<0.5``.

    Bounds alone, such as ``<5`` and ``>=5``, are classes.  unit: that of all classes, or "".
    """
    if all(number_in(name) is not None for name in known):
        return []
    measured = [name for name in known if _is_measurement(name)]
    bounds = [name for name in known if BOUND.fullmatch(name)]
    bounds = [name for name in bounds if _is_measurement(BOUND.sub(r"\g<number>", name))]
    if len(measured) < 2 or len(measured) + len(bounds) <= len(known) / 2:
        return []
    odd = next(name for name in known if number_in(name) is None)
    sentence = f"the classes are {len(known)} texts around numbers, such as {odd!r}"
    if not unit:
        sentence += "; for regression, write the numbers alone"
    fix = "task='classification' if each of these is a class"
    if unit:
        fix = f"task='regression' to predict numbers in {unit!r}, or {fix}"
    return [warning(sentence, fix)]


def _strip_unit(y: Labels) -> tuple[str, Labels]:
    """Return the unit that all labels have, and the labels without it; "" if they have none."""
    if y.dtype.kind != "U":
        return "", y
    texts: list[str] = y.tolist()
    parts = {
        text: split_unit(text.strip()) for text in set(texts) if not is_empty(text.strip())
    }
    units = {part[1] for part in parts.values() if part is not None}
    if len(units) != 1 or None in parts.values():
        return "", y
    number_of = {text: part[0] for text, part in parts.items() if part is not None}
    if any(number_in(number) is None for number in number_of.values()):
        return "", y
    return units.pop(), np.array([number_of.get(text, "") for text in texts], dtype=np.str_)


CODES = ("-9", "-99", "-999", "99", "999", "9999")
"""Codes of unknown labels."""
SHORT_CODES = ("8", "9")
MOST_BEFORE = 5
"""Such codes of one digit, and the largest other class beside which they are codes."""


def _find_odd_classes(counts: Counter[str], classes: tuple[str, ...]) -> Iterator[Finding]:
    """Yield warnings of classes that may be the row of a total, or a code of unknown labels."""
    if classes:
        return
    for name in counts:
        if counts[name] == 1 and SUMMARY.fullmatch(name):
            sentence = f"the class {name!r} has one row, which may be that of a total"
            yield warning(sentence, "remove the row")
        others = [number_in(other) for other in counts if other not in CODES]
        limit = 10
        if name in SHORT_CODES:
            others = [number_in(other) for other in counts if other != name]
            limit = MOST_BEFORE + 1
        is_code = name in (*CODES, *SHORT_CODES) and len(others) >= 2
        if is_code and all(number is not None and 0 <= number < limit for number in others):
            yield warning(
                f"the class {name!r} ({count_noun(counts[name], 'row')}) may be the code of an "
                "unknown label",
                "leave the cell empty if the label is unknown",
            )


def _find_in_classes(
    raw: Counter[str], counts: Counter[str], classes: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield what may be wrong with labels that are classes.

    raw, counts: number of rows of each label as written, and of each class.
    """
    n = raw.total()
    counts = Counter(counts)
    counts.pop("", None)
    if not classes:
        yield from warn_of_similar_names("classes", counts, "merge=True, or classes=[...]")
    minus_one = raw["-1"] + raw["-1.0"]
    if minus_one and UNLABELED not in counts:
        # -1, 0 and 1 are often three classes, such as moods
        are_numbers = all(number_in(name) is not None for name in counts)
        state = note if are_numbers and not set(counts) <= SIGNS else warning
        others = "numbers" if are_numbers else "labels"
        yield state(
            f"{count_noun(minus_one, 'label')} {UNLABELED} beside other {others} count as "
            "unlabeled",
            f"classes=['{UNLABELED}', ...]",
        )
    words = {
        text: times
        for text, times in raw.items()
        if text.strip() and is_empty(text.strip())
    }
    lost = {text: times for text, times in words.items() if text.strip() not in counts}
    if lost:
        yield warning(
            f"{sum(lost.values()):,} of {n:,} labels are {' or '.join(sorted(lost))}; these "
            "examples are treated as unlabeled",
            "classes=[...]",
        )
    yield from _find_odd_classes(counts, classes)
    if not classes:
        yield from warn_of_dates("the labels", sorted(counts))
        yield from warn_of_garbled_names("classes", counts)
    kept = sorted(name for name in counts if is_empty(name) or is_perhaps_empty(name))
    if kept:
        listed = ", ".join(f"{name!r} ({count_noun(counts[name], 'row')})" for name in kept)
        yield warning(
            f"the texts {listed} are classes, although they may mean a missing label",
            "leave the cell empty if the label is unknown",
        )
    codes = sorted(name for name in counts if has_leading_zero(name))
    if codes:
        yield note(f"classes are codes with leading zeros, such as {codes[0]!r}")


# -- numbers --------------------------------------------------------------------------------


def _as_numbers(y: Labels) -> Numbers | None:
    """Return float64, NaN for unlabeled; None if a text is not a number.

    Among numbers, a text such as "NA" is a missing label. Otherwise it may be a class.
    """
    if y.dtype.kind != "U":
        return y.astype(np.float64)
    texts: list[str] = y.tolist()
    number_of = {text: number_in(text.strip()) for text in set(texts)}
    for text in number_of:
        if is_empty(text.strip()):
            number_of[text] = np.nan
    known = {text: number for text, number in number_of.items() if number == number}
    if not _are_numbers(known, {text.strip() for text in number_of}):
        return None  # a text such as "nan" or "inf" is a word, not a number
    return np.array([number_of[text] for text in texts], dtype=np.float64)


def _are_whole(numbers: Numbers) -> bool:
    value = numbers[~np.isnan(numbers)]
    return bool((value == np.floor(value)).all() and np.isfinite(value).all())


def _encode_targets(y: Labels, name: str) -> tuple[Labels, list[Finding]]:
    """Return targets, in float64 if float32 would lose their digits."""
    targets = _read_targets(y, name)
    known = targets[~np.isnan(targets)]
    if len(np.unique(known)) < 2:
        raise ValueError(
            f"{name}: targets are constant or all missing; give two values or more"
        )
    findings = warn_of_sentinels("the targets", known)
    if choose_offset(known, float(known.min()), float(known.max())):
        findings.append(
            note("targets are kept in float64, because float32 would lose digits")
        )
        return targets, findings
    n_small = count_too_small(known)
    if n_small:
        sentence = (
            f"{n_small:,} of {len(known):,} targets are smaller than {SMALLEST:.1g}, and lose "
            "their digits or become 0 in float32"
        )
        fix = "write their logarithms, or other units"
        if n_small == np.count_nonzero(known):
            raise ValueError(f"{name}: {sentence}; {fix}")
        findings.append(warning(sentence, fix))
    return targets.astype(np.float32), findings


def _read_targets(y: Labels, name: str) -> Numbers:
    """Return (n,) regression targets, NaN for missing ones."""
    numbers = _as_numbers(y)
    if numbers is None:
        raise ValueError(
            f"{name}: regression needs numbers and some labels are texts; correct them"
        )
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise ValueError(f"{name}: {infinite} targets are infinite; correct them")
    return numbers


def _format_number(value: float) -> str:
    """Return a number as the name of a class."""
    if value == np.floor(value):
        return str(int(value))
    return str(value)
