"""Exchanges that require replies from all sites of the cohort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from fallow.core.ask import Ask, Masking
from fallow.core.client import ClientCall
from fallow.core.refusal import Halted
from fallow.core.types import Answer, SiteId


def sum_of_all(
    ask: Ask, function: ClientCall, bound: float | None = None, **args: Any
) -> dict[str, Tensor]:
    """Run `Ask.sum` with contributions from all sites.

    A transport waits for the last site until its timeout.  Raises Halted if a site did not reply.
    The exchange is then not recorded, so a resumed run repeats it.
    """
    masking = ask.masking
    with _all(ask):
        if masking is None:
            with ask.journal.transaction():
                total = ask.sum(function, bound, **args)
                _check(int(total["sites"]), len(ask.cohort), function.__name__)
            return total
        ask.masking = _OfAll(masking, len(ask.cohort))
        try:
            return ask.sum(function, bound, **args)
        finally:
            ask.masking = masking


def each_of_all(ask: Ask, function: ClientCall, **args: Any) -> dict[SiteId, Answer]:
    """Run `Ask.each` with replies from all sites, like `sum_of_all`."""
    with _all(ask), ask.journal.transaction():
        answers = ask.each(function, **args)
        _check(len(answers), len(ask.cohort), function.__name__)
    return answers


def keep_at_all(ask: Ask, function: ClientCall, **args: Any) -> None:
    """Run `Ask.keep` of one state at all sites, like `sum_of_all`."""
    with _all(ask), ask.journal.transaction():
        kept = ask.keep(function, **args)
        _check(kept, len(ask.cohort), function.__name__)


@contextmanager
def _all(ask: Ask) -> Iterator[None]:
    before = ask.needs_all
    ask.needs_all = True
    try:
        yield
    finally:
        ask.needs_all = before


@final
@dataclass(frozen=True)
class _OfAll:
    """Secure aggregation without a retry among fewer sites."""

    masking: Masking
    sites: int

    def check(self, sites: Sequence[SiteId], verb: str) -> None:
        _check(len(sites), self.sites, verb)
        self.masking.check(sites, verb)

    def total(
        self, answers: Mapping[SiteId, Answer], owner: str, verb: str, bound: float | None
    ) -> Answer:
        return self.masking.total(answers, owner, verb, bound)


def _check(there: int, wanted: int, verb: str) -> None:
    if there < wanted:
        raise Halted(
            f"{there} of {wanted} sites replied to {verb!r}, and all are needed; run "
            "again with --resume when they are connected (coordinate start resumes "
            "without the option)"
        )
