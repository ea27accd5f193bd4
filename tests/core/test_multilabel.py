"""Answers to several labels as one number."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from fallow.core.multilabel import MOST_LABELS, name_answers, read_answers, write_answers
from fallow.core.streams import stream


@pytest.mark.parametrize("n_labels", [2, 5, MOST_LABELS])
def test_answers_are_what_was_written_also_through_float64(n_labels: int) -> None:
    draw = stream(0, "answers")
    digits = torch.randint(3, (50, n_labels), generator=draw)
    digits[0] = 2
    digits[1] = 1
    answers = digits.double().masked_fill(digits == 2, torch.nan)
    numbers = write_answers(answers)
    assert int(numbers[0]) == -1
    assert_close(numbers >= 0, (digits < 2).any(1))
    assert_close(read_answers(numbers.double().long(), n_labels), answers, equal_nan=True)


def test_answers_in_words_omit_what_is_unknown() -> None:
    assert name_answers(-1, ("a", "b")) == ""
    assert name_answers(3 * 2 + 1, ("a", "b")) == "a=1"
