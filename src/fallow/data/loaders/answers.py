"""Conversion of the labels of multilabel examples: columns of 0 and 1, or lists of names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fallow.core.multilabel import MOST_LABELS, NO_ANSWER, read_answers, write_answers
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import nearest
from fallow.data.loaders.text_rules import is_empty, normal_name, number_in

SEPARATORS = re.compile(r"[;|,]")
"""Characters between the names in a cell."""
NOTHING = "none"
"""Cell of an example of which every label is absent."""
ANSWERS: Mapping[float | None, float] = {0.0: 0.0, 1.0: 1.0, -1.0: np.nan}
"""Answers by the number in a cell; -1 is unlabeled, as for classes."""
ABSENT = ("false", "no", "n", "absent", "negative")
PRESENT = ("true", "yes", "y", "present", "positive")
WORDS: Mapping[str, float] = {**dict.fromkeys(ABSENT, 0.0), **dict.fromkeys(PRESENT, 1.0)}
"""Answers by the word in a cell."""


def encode_answers(
    y: npt.NDArray[Any], labels: Sequence[str], name: str
) -> npt.NDArray[np.int64]:
    """Return the number of the answers of each example (`fallow.core.multilabel`).

    Parameters
    ----------
    y : array of shape (n, L) or (n,)
        0, 1, or -1, NaN or "" for unknown, of each label, or words such as "no" and "yes"; or texts
        that list the labels that are present, such as ``oedema;effusion``, ``none``, or "" for
        unlabeled.  With ``oedema=1;effusion=0``, labels that are not listed are unknown.
    labels : sequence of str
        Names of the labels.
    name : str
        Name of the data, for errors.

    Raises
    ------
    ValueError
        For a repeated name, an unknown label, or another value.

    Examples
    --------
    >>> encode_answers(np.array(["oedema", "none", ""]), ["oedema", "effusion"], "toy")
    array([ 1,  0, -1])
    """
    names = [normal_name(label) for label in labels]
    check_label_names(names, name)
    if y.ndim == 1 and y.dtype.kind == "U":
        texts: list[str] = y.tolist()
        with explain_errors(f"{name}: "):
            of_text = {text: read_list(text, names) for text in set(texts)}
        return np.array([of_text[text] for text in texts], dtype=np.int64)
    if y.ndim == 2 and y.shape[1] == len(names) and y.dtype.kind in "biufU":
        columns = [_read_column(y[:, at], label, name) for at, label in enumerate(names)]
        answers = torch.from_numpy(np.stack(columns, axis=1))
        numbers: npt.NDArray[np.int64] = write_answers(answers).numpy()
        return numbers
    raise ValueError(
        f"{name}: labels are {y.dtype} of shape {y.shape}; give one column of 0 and 1 for each of "
        f"{len(names)} labels, or texts that list them"
    )


def check_label_names(names: Sequence[str], name: str) -> None:
    """Raise ValueError for names of labels that are repeated or cannot be written in a cell."""
    if not 1 < len(names) <= MOST_LABELS:
        raise ValueError(
            f"{name}: the labels are {list(names)!r:.200}; name 2 to {MOST_LABELS}, or one column with "
            "--label (label=)"
        )
    for label in names:
        if names.count(label) > 1:
            raise ValueError(f"{name}: the label {label!r} is named twice; name each once")
        if is_empty(label) or SEPARATORS.search(label) or "=" in label:
            raise ValueError(
                f"{name}: {label!r} cannot be the name of a label, because cells list labels as "
                "'a;b' or 'a=1;b=0'; rename it"
            )


def check_variation(
    numbers: npt.NDArray[np.int64], labels: Sequence[str], name: str
) -> None:
    """Raise ValueError for a label with fewer than two different answers."""
    answers = read_answers(torch.from_numpy(numbers), len(labels)).numpy()
    for at, label in enumerate(labels):
        known = answers[:, at][~np.isnan(answers[:, at])]
        if len(known) == 0 or known.min() == known.max():
            which = f"only {known[0]:g}" if len(known) else "no answer"
            raise ValueError(
                f"{name}: the label {label!r} has {which}; give examples with 0 and with 1, or omit "
                "the label"
            )


def _read_column(cells: npt.NDArray[Any], label: str, name: str) -> npt.NDArray[np.float64]:
    """Return the answers in the column of a label, NaN for unknown."""
    if cells.dtype.kind != "U":
        cells = np.where(np.isnan(cells.astype(np.float64)), "", cells.astype(np.str_))
    of_text: dict[str, float] = {}
    for text in set(cells.tolist()):
        answer = _read_cell(text)
        if answer is None:
            row = int(np.flatnonzero(cells == text)[0])
            raise ValueError(
                f"{name}: the label {label!r} is {text!r:.40} in row {row + 1}; write 0 or no, 1 or "
                "yes, or nothing for unknown"
            )
        of_text[text] = answer
    return np.array([of_text[text] for text in cells.tolist()], dtype=np.float64)


def _read_cell(text: str) -> float | None:
    """Return the answer in the cell of a label, NaN for unknown; None for another text."""
    cell = text.strip()
    if is_empty(cell):
        return np.nan
    if cell.lower() in WORDS:
        return WORDS[cell.lower()]
    return ANSWERS.get(number_in(cell))


def join_answers(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the answers of each example as a list, from the cells of a column for each label.

    >>> join_answers({"oedema": ["1", ""], "effusion": ["0.0", "true"]})
    ['oedema=1;effusion=0', 'effusion=1']
    """
    lists: list[str] = []
    for cells in zip(*columns.values(), strict=True):
        parts = []
        for label, text in zip(columns, cells, strict=True):
            answer = _read_cell(text)
            if answer is None:  # refused later, with its row
                parts.append(f"{label}={text}")
            elif not np.isnan(answer):
                parts.append(f"{label}={answer:g}")
        lists.append(";".join(parts))
    return lists


def read_list(text: str, names: Sequence[str], *, with_hint: bool = True) -> int:
    """Return the number of the answers in a cell that lists labels.

    >>> read_list("effusion=1", ["oedema", "effusion"])  # oedema is unknown
    5
    >>> read_list("oedema;;effusion;", ["oedema", "effusion"])
    4
    """
    cell = normal_name(text)
    if is_empty(cell) and cell.lower() != NOTHING:
        return NO_ANSWER
    if cell.lower() == NOTHING:
        return 0
    wrong = f"{text!r:.80} is no list of labels; write each once, as 'a;b' or 'a=1;b=0'"
    parts = [part.strip() for part in SEPARATORS.split(cell) if part.strip()]
    if not parts:
        raise ValueError(wrong)
    has_answers = any("=" in part for part in parts)
    unlisted = np.nan if has_answers else 0.0
    answers = dict.fromkeys(names, unlisted)
    listed: set[str] = set()
    for part in parts:
        label = part
        answer: float | None = 1.0
        if has_answers:
            label, _, word = map(str.strip, part.partition("="))
            answer = _read_cell(word) if word else None
        if label not in answers:
            hint = nearest(label, list(names)) if with_hint else ""
            raise ValueError(f"label {label!r:.40} is not one of the labels{hint}")
        if label in listed or answer is None:
            raise ValueError(wrong)
        listed.add(label)
        answers[label] = answer
    numbers = write_answers(torch.tensor([list(answers.values())]))
    return int(numbers)
