"""Exchanges that mean nothing unless every site of the cohort answers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.types import Answer, SiteId


def sum_of_all(ask: Ask, verb: str, bound: float | None = None, **args: Any) -> dict[str, Tensor]:
    """`Ask.sum`, where all sites must be in every total: the totals are used together.

    Raises RuntimeError where one did not answer.  Then nothing is recorded, so that a resumed run
    asks again.  Not for verbs that return a ``Release``: noise that has left a site is spent.
    """
    with ask.journal.transaction():
        total = ask.sum(verb, bound, **args)
        _check(ask, verb, int(total["sites"]))
    return total


def each_of_all(ask: Ask, verb: str, **args: Any) -> dict[SiteId, Answer]:
    """`Ask.each`, where all sites must answer; else as `sum_of_all`."""
    with ask.journal.transaction():
        answers = ask.each(verb, **args)
        _check(ask, verb, len(answers))
    return answers


def _check(ask: Ask, verb: str, there: int) -> None:
    if there < len(ask.cohort):
        raise RuntimeError(
            f"{there} of {len(ask.cohort)} sites answered {verb!r} and what follows needs all of "
            "them; run again with --resume when they are there"
        )
