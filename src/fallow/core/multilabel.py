"""Answers to several labels of one example, as one whole number.

Each label is 0 (absent), 1 (present) or unknown.  One number per example passes through partitions,
ledgers and oracles like a class ID.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PRESENT = 1
UNKNOWN = 2
"""Digits of a label that is present, and of one whose answer is unknown."""
BASE = 3
NO_ANSWER = -1
"""Number of an example without any answer."""
MOST_LABELS = 32
"""Maximum number of labels: their numbers are exact in float64."""


def write_answers(answers: Tensor) -> Tensor:
    """Return the number of each example.

    Parameters
    ----------
    answers : Tensor
        (n, L) with 0 (absent), 1 (present) and NaN (unknown).

    Returns
    -------
    Tensor
        (n,) int64; -1 for an example without any answer.

    Examples
    --------
    >>> nan = float("nan")
    >>> write_answers(torch.tensor([[1.0, 0.0], [0.0, nan], [nan, nan]]))
    tensor([ 1,  6, -1])
    """
    digits = answers.nan_to_num(UNKNOWN).long()
    numbers = (digits * _powers(answers.shape[1], answers.device)).sum(1)
    is_unknown = answers.isnan().all(1)
    return numbers.masked_fill(is_unknown, NO_ANSWER)


def predict_answers(log_odds: Tensor) -> Tensor:
    """Return the number of the likeliest answers of each example, (n,), from log-odds (n, L).

    >>> predict_answers(torch.tensor([[2.0, -1.0], [-1.0, 3.0]]))
    tensor([1, 3])
    """
    return write_answers((log_odds > 0).double())


def read_answers(numbers: Tensor, n_labels: int) -> Tensor:
    """Return the answers (..., L) of numbers (...): 0, 1 or NaN for unknown, in float64.

    >>> read_answers(torch.tensor([1, 6, -1]), 2)
    tensor([[1., 0.],
            [0., nan],
            [nan, nan]], dtype=torch.float64)
    """
    digits = read_digits(numbers, n_labels)
    return digits.double().masked_fill(digits == UNKNOWN, torch.nan)


def read_digits(numbers: Tensor, n_labels: int) -> Tensor:
    """Return the answers (..., L) of numbers (...): 0, 1 or 2 for unknown, int64.

    -1 has the digits of an example without any answer, because division rounds down.
    """
    powers = _powers(n_labels, numbers.device)
    return torch.div(numbers.long()[..., None], powers, rounding_mode="floor") % BASE


def join_digits(digits: Sequence[int]) -> int:
    """Return the number of the digits of one example, of which one at least is not unknown.

    >>> join_digits([1, 0]), join_digits([0, 2])
    (1, 6)
    """
    return sum(digit * BASE**at for at, digit in enumerate(digits))


def _powers(n_labels: int, device: torch.device) -> Tensor:
    return BASE ** torch.arange(n_labels, dtype=torch.int64, device=device)


def name_answers(number: int, labels: tuple[str, ...]) -> str:
    """Return the answers in words, without those that are unknown.

    >>> name_answers(1, ("oedema", "effusion")), name_answers(6, ("oedema", "effusion"))
    ('oedema=1;effusion=0', 'oedema=0')
    """
    digits = read_digits(torch.tensor(number), len(labels)).tolist()
    pairs = zip(labels, digits, strict=True)
    return ";".join(f"{label}={digit}" for label, digit in pairs if digit != UNKNOWN)
