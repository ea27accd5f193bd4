"""Parse keys of exchanges from text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fallow.core.exchange_key import IN_ROUND, STEPS, TEXT_OF, ExchangeKey

NAMES: dict[str, Any] = {text: name for name, text in TEXT_OF.items()}


def step_of(text: str) -> ExchangeKey:
    """Return the first key of a step, such as ``2/train/7/score``."""
    cycle, phase, *rest = text.split("/")
    if text == "model/finish":
        return ExchangeKey("finish", "finish")
    phase, _, part = phase.partition("-")
    details: dict[str, Any] = {"cycle": int(cycle), "part": int(part or 0)}
    if phase == "train" and rest[0].isdecimal():
        details["round"] = int(rest.pop(0))
        step = rest[0] if rest else "round"
        assert step in IN_ROUND
    else:
        step = NAMES.get(rest[0], rest[0]) if rest else STEPS[phase][0]  # type: ignore[index]
    key = ExchangeKey(phase, step, **details)  # type: ignore[arg-type]
    assert key.step_name == text
    return key


def key_of(text: str) -> ExchangeKey:
    """Return the key of an exchange, such as ``2/train/7/score/0~1``."""
    before = text.removesuffix("/deliver")
    asked, _, retry = before.partition("~")
    step, _, turn = asked.rpartition("/")
    if step == "progress":
        key = ExchangeKey("progress", "progress", turn=int(turn))
    else:
        key = replace(step_of(step), turn=int(turn), retry=int(retry or 0))
    key = replace(key, is_delivery=before != text)
    assert str(key) == text
    return key
