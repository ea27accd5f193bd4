"""Keys of exchanges: one text for each position, and only positions of a run are valid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.exchange_key import IN_ROUND, STEPS, ExchangeKey, read_key
from tests.keys import key_of

FIELDS = ExchangeKey("train", "round", cycle=2, round=7, turn=1).to_dict()


def every_key() -> list[ExchangeKey]:
    """Return one key of each step, with numbers if it has any."""
    keys = []
    for phase, steps in STEPS.items():
        for step in steps:
            key = ExchangeKey(phase, step)
            if phase in ("train", "query", "evaluation"):
                key = replace(key, cycle=3)
            if step in IN_ROUND:
                key = replace(key, round=4)
            keys.append(key)
            if phase == "query" and step != "draw":
                keys.append(replace(key, part=1))
    return keys


@pytest.mark.parametrize(
    "text",
    [
        "0/hello/0",
        "0/initial/0",
        "0/initial/encode/2",
        "0/initial/close/0",
        "0/tuned/0",
        "0/tuned/targets/0",
        "2/train/targets/0",
        "2/train/7/0",
        "2/train/7/score/0",
        "2/train/7/0~1/deliver",
        "1/query/3",
        "1/query-2/ask/0",
        "1/query/evaluation/0",
        "1/evaluation/0",
        "model/finish/0~12",
        "progress/5",
    ],
)
def test_the_text_of_a_key_is_the_one_that_ledgers_and_digests_have(text: str) -> None:
    assert str(key_of(text)) == text


def test_no_two_steps_have_one_text() -> None:
    keys = every_key()
    assert len({key.step_name for key in keys}) == len(keys)
    assert len({str(replace(key, turn=2)) for key in keys}) == len(keys)


def test_fields_come_back_as_they_were() -> None:
    for key in every_key():
        assert read_key(key.to_dict()) == key


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"phase": "other"}, "phase is 'other'; it must be one of hello, describe"),
    ({"phase": ["train"]}, "phase is ['train']; it must be one of"),
    ({"phase": "query"}, "step is 'round'; the phase query has query, draw, ask, close"),
    ({"step": "finish"}, "step is 'finish'; the phase train has round"),
    ({"step": None}, "step is None; the phase train has round"),
    ({"cycle": -1}, "cycle is -1; it must be a whole number from 0"),
    (
        {"round": 10**9},
        "round is 1000000000; it must be a whole number from 0 to 999999999",
    ),
    ({"round": 10**5000}, "round is beyond all numbers; it must be a whole number"),
    ({"turn": True}, "turn is True; it must be a whole number"),
    ({"turn": "1"}, "turn is '1'; it must be a whole number"),
    ({"cycle": 1.0}, "cycle is 1.0; it must be a whole number"),
    ({"retry": torch.tensor(1)}, "retry is tensor(1); it must be a whole number"),
    ({"is_delivery": 1}, "is_delivery is 1; it must be true or false"),
    ({"part": 1}, "part is 1; the step round of the phase train has none"),
    ({"step": "targets"}, "round is 7; the step targets of the phase train has none"),
    ({"more": 1}, "'more' is not a field of the key of an exchange"),
]


def name_case(value: Any) -> str:
    """Return the text that names a case."""
    return value[:30] if isinstance(value, str) else ""


@pytest.mark.parametrize(("wrong", "sentence"), HOSTILE, ids=name_case)
def test_fields_that_are_no_position_are_refused_in_a_sentence(
    wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:
        read_key({**FIELDS, **wrong})
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("tree", ["2/train/7/1", None, [], 3, {"phase": "train"}])
def test_a_key_that_is_no_table_of_all_fields_is_refused(tree: Any) -> None:
    with pytest.raises(ValueError, match="the key of an exchange"):
        read_key(tree)
