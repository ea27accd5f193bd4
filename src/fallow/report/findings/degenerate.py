"""Runs whose scores say little: a model that predicts one class only, strategies that agree in
everything."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from fallow.core.words import join_some
from fallow.study.records import RunRecords, StudyRecords

ROUNDING = 1e-9
STILL_FALLING = 0.01
"""Decrease of the loss per round, relative to a constant model, that means no convergence."""


def predicts_one_class(cell: RunRecords) -> bool:
    """Whether the last model of a run gives every test row the same class.

    Then all rows of one class are right and none of any other, which nothing else brings about.
    """
    last = None
    for row in cell.records:
        if row.get("final") and row.get("per_class"):
            last = row["per_class"]
    if last is None:
        return False
    recalls = sorted(recall for recall in last if recall is not None)
    return len(recalls) > 1 and recalls[-1] == 1.0 and not any(recalls[:-1])


def find_one_class(study: StudyRecords) -> Mapping[str, list[int]]:
    """Query -> the seeds whose last model predicts one class only, where there are any."""
    one_class: dict[str, list[int]] = {}
    for cell in study.cells:
        if predicts_one_class(cell):
            one_class.setdefault(cell.strategy, []).append(cell.seed)
    return one_class


def describe_baseline(study: StudyRecords) -> str:
    """A sentence where no strategy beats predicting the majority class, or the mean; "" elsewhere."""
    finals = [study.final(strategy) for strategy in study.strategies]
    means = [fmean(by_seed.values()) for by_seed in finals if by_seed]
    if not means:
        return ""
    if study.higher_is_better:
        shares = []
        for cell in study.cells:
            share = cell.records[-1].get("majority") if cell.records else None
            if share is not None:
                shares.append(share)
        if not shares or max(means) > fmean(shares) + ROUNDING:
            return ""
        what = f"the majority class ({100 * fmean(shares):.1f} %)"
    else:
        if not study.is_scaled or min(means) < 1:
            return ""
        what = "the mean (an error of 1)"
    return f"No strategy beats predicting {what}: training, not selection, is the problem."


def describe_convergence(study: StudyRecords) -> str:
    """A sentence where training losses still fall at the end of the last cycle; "" elsewhere."""
    falls = {}
    for strategy in study.strategies:
        fall = _find_fall(study, strategy)
        if fall is not None and fall > STILL_FALLING:
            falls[strategy] = fall
    if not falls:
        return ""
    which = "all strategies"
    if len(falls) < len(study.strategies):
        which = join_some(list(falls))
    return (
        f"Training has not converged: the training loss of {which} still falls by "
        f"{100 * max(falls.values()):.0f} % of its start a round; raise rounds, epochs or lr."
    )


def _find_fall(study: StudyRecords, strategy: str) -> float | None:
    """Return the final decrease of the training loss per round, relative to a constant model.

    The result is the mean over seeds, or None if the loss was measured less than twice.
    """
    falls = []
    for cell in study.of(strategy):
        losses = {}
        for record in cell.records:
            loss = record.get("training_loss")
            if record["cycle"] == cell.cycles[-1] and loss is not None:
                losses[record["round"]] = loss
        first = min(losses, default=0)
        last = max(losses, default=0)
        if first < last:
            falls.append((losses[first] - losses[last]) / (last - first))
    return fmean(falls) if falls else None


def find_equals(study: StudyRecords) -> Mapping[str, str]:
    """Strategy -> the first one in the study whose scores are the same to the last digit, in every
    cycle and under every seed.  Two scores at least, the first cycle aside: there nothing is
    chosen yet."""
    equals: dict[str, str] = {}
    first_with: dict[tuple[tuple[int, int, float], ...], str] = {}
    for strategy in study.strategies:
        scores = []
        for cycle, by_seed in study.curve(strategy).items():
            scores += [(cycle, seed, score) for seed, score in sorted(by_seed.items())]
        chosen = [score for score in scores if score[0] > 0]
        if len(chosen) < 2:
            continue
        earlier = first_with.setdefault(tuple(scores), strategy)
        if earlier != strategy:
            equals[strategy] = earlier
    return equals
