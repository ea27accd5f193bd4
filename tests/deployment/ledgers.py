"""A ledger with a few labeling tasks, for tests of labeling."""

from __future__ import annotations

from collections.abc import Callable

from fallow.deployment.ledger import Ledger
from fallow.sites.store import Label

RUN, STEP = "run", "0/query"
Open = Callable[..., Ledger]


def close(ledger: Ledger, step: str = STEP) -> list[Label]:
    """Close a step and return all labels, without their folds."""
    ledger.requests.close(RUN, step, lambda labels: labels)
    labels = ledger.store.load_labels("north")
    return [label._replace(fold=None) for label in labels]


def state(ledger: Ledger, row: int) -> str:
    return {question.row: question.state for question in ledger.tasks()}[row]


def values(ledger: Ledger) -> dict[int, float]:
    return {label.row: label.value for label in ledger.store.load_labels("north")}
