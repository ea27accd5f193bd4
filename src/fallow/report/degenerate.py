"""Runs with uninformative scores: constant predictions, identical results, divergence."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from fallow.core.wording import join_some
from fallow.experiment.record import Record
from fallow.study.records import StudyRecords

ROUNDING = 1e-9
STILL_FALLING = 0.01
"""Minimum decrease of the loss per round, relative to a constant model, that means no
convergence.
"""


def find_one_class(study: StudyRecords) -> Mapping[str, list[int]]:
    """Return strategy -> seeds whose last model predicts the same class for every test example.

    Then the accuracy is 1 for this class and 0 for every other class, which has no other
    cause.
    """
    one_class: dict[str, list[int]] = {}
    for cell in study.cells:
        last: list[float | None] = []
        for row in cell.records:
            if row.get("final"):
                last = row.get("per_class") or last
        recalls = sorted(recall for recall in last if recall is not None)
        if len(recalls) > 1 and recalls[-1] == 1.0 and not any(recalls[:-1]):
            one_class.setdefault(cell.strategy, []).append(cell.seed)
    return one_class


def describe_baseline(study: StudyRecords) -> str:
    """Describe that no strategy beats predicting the majority class or the mean; ""
    otherwise.
    """
    if study.metric is not None:
        return ""
    finals = [study.final(strategy) for strategy in study.strategies]
    means = [fmean(by_seed.values()) for by_seed in finals if by_seed]
    if not means:
        return ""
    what = "the mean (an error of 1)"
    is_beaten = not study.is_scaled or min(means) < 1
    if study.higher_is_better:
        known = [cell.last.get("majority") for cell in study.cells]
        shares = [share for share in known if share is not None]
        share = fmean(shares or [0.0])
        what = f"the majority class ({100 * share:.1f} %)"
        is_beaten = not shares or max(means) > share + ROUNDING
    if is_beaten:
        return ""
    return (
        f"No strategy beats predicting {what}: the training is the problem, not the "
        "selection."
    )


def describe_convergence(study: StudyRecords) -> str:
    """Describe that training losses still decrease at the end of the last cycle; ""
    otherwise.
    """
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
        f"Training has not converged: the training loss of {which} still decreases by "
        f"{100 * max(falls.values()):.0f} % of its initial value per round; raise rounds, "
        "epochs or lr."
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
    if not falls:
        return None
    return fmean(falls)


def find_equals(study: StudyRecords) -> Mapping[str, str]:
    """Return strategy -> first strategy in the study with identical scores in every cycle
    and seed.

    At least two scores must be equal, without the first cycle, where nothing is selected
    yet.
    """
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


FAR = 10.0
"""Ten times the variance of the training targets."""


def has_diverged(row: Record) -> bool:
    """Return whether a record reports divergence, or its error implies it (in target
    variances).
    """
    if row.get("diverged"):
        return True
    error = row.get("mse")
    if error is None or not row.get("final"):
        return False
    is_scaled = row.get("target_variance") is not None
    return is_scaled and not error <= FAR  # NaN counts as diverged, too


def find_diverged(study: StudyRecords) -> Mapping[str, Mapping[int, int]]:
    """Return strategy -> seed -> first cycle in which the run diverged, for diverged runs."""
    diverged: dict[str, dict[int, int]] = {}
    for cell in study.cells:
        cycles = [int(row["cycle"]) for row in cell.records if has_diverged(row)]
        if cycles:
            diverged.setdefault(cell.strategy, {})[cell.seed] = cycles[0]
    return diverged


def ends_diverged(study: StudyRecords, strategy: str) -> bool:
    """Return whether a seed of the strategy has no usable model at its end."""
    return any(has_diverged(cell.last) for cell in study.of(strategy))


def has_diverged_at(study: StudyRecords, strategy: str, cycle: int) -> bool:
    """Return whether a seed of the strategy has no usable model in this cycle."""
    rows = filter(None, (cell.last_of(cycle) for cell in study.of(strategy)))
    return any(map(has_diverged, rows))
