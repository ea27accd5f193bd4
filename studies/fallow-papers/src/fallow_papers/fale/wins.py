"""Wins, ties and losses of one strategy against others, as in FALE's Table 2.

At each checkpoint, a paired t-test over seeds decides whether the difference of two
strategies is significant at the level 0.05; otherwise the checkpoint is a tie.  Source:
Tang et al., 2025 (FALE).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from fallow.report.regression import at_labels, checkpoints
from fallow.settings.variants import ParsedStrategy
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, differences, paired_t

CHECKPOINTS = 10
"""Checkpoints at 10 %, 20 %, ..., 100 % of the cycles."""


class Counted(Protocol):
    """Object with wins, ties and losses, such as a published tally."""

    @property
    def win(self) -> int: ...
    @property
    def tie(self) -> int: ...
    @property
    def loss(self) -> int: ...


@dataclass(frozen=True)
class WinCounts:
    """Number of checkpoints won, tied and lost."""

    win: int = 0
    tie: int = 0
    loss: int = 0

    def __str__(self) -> str:
        return f"{self.win}/{self.tie}/{self.loss}"

    @property
    def total(self) -> int:
        return self.win + self.tie + self.loss


def total(counts: Iterable[Counted]) -> WinCounts:
    """Total number of checkpoints.

    >>> str(total([WinCounts(10, 0, 0), WinCounts(2, 8, 0)]))
    '12/8/0'
    """
    all_counts = list(counts)
    return WinCounts(
        win=sum(count.win for count in all_counts),
        tie=sum(count.tie for count in all_counts),
        loss=sum(count.loss for count in all_counts),
    )


def outcome(
    ours: Mapping[int, float],
    theirs: Mapping[int, float],
    *,
    higher_is_better: bool = False,
) -> WinCounts | None:
    """Return the outcome of one checkpoint, from seed -> score of both; ``None`` below two
    common seeds.

    A difference that is equal for all seeds is a win or a loss by its sign, and 0 is a tie.

    >>> outcome({0: 0.1, 1: 0.2}, {0: 0.3, 1: 0.4})
    WinCounts(win=1, tie=0, loss=0)
    """
    d = differences(ours, theirs)
    if len(d) < 2:
        return None
    if paired_t(d) > LEVEL:
        return WinCounts(tie=1)
    is_ahead = (fmean(d) > 0) is higher_is_better
    if is_ahead:
        return WinCounts(win=1)
    return WinCounts(loss=1)


@dataclass(frozen=True)
class Rival:
    """Counts of a subject against one other strategy, by cycle and at equal numbers of
    labels.

    Checkpoints that cannot be tested are not counted.
    """

    strategy: str
    count: WinCounts
    at_equal_labels: WinCounts


@dataclass(frozen=True)
class Matches:
    """Counts of one strategy against all others of a study."""

    subject: str
    rivals: tuple[Rival, ...]


def subjects(study: StudyRecords) -> tuple[str, ...]:
    """Return every FALE of a study, or else its reference."""
    result = tuple(q for q in study.strategies if ParsedStrategy.parse(q).key == "fale")
    if result:
        return result
    reference = study.study.reference
    if reference is not None and reference in study.strategies:
        return (reference,)
    return ()


def find_matches(study: StudyRecords) -> list[Matches]:
    """Return the counts of each subject that can be tested against any other strategy."""
    matches = []
    for subject in subjects(study):
        rivals = [_against(study, subject, q) for q in study.strategies if q != subject]
        rivals = [r for r in rivals if r.count.total]
        if rivals:
            matches.append(Matches(subject, tuple(rivals)))
    return matches


def _against(study: StudyRecords, subject: str, rival: str) -> Rival:
    by_cycle = []
    by_labels = []
    bought = study.labels(subject)
    better = study.higher_is_better
    for cycle in checkpoints(study, CHECKPOINTS):
        ours = study.curve(subject).get(cycle, {})
        theirs = study.curve(rival).get(cycle, {})
        by_cycle.append(outcome(ours, theirs, higher_is_better=better))
        if cycle in bought:
            level = at_labels(study, rival, bought[cycle])
            by_labels.append(outcome(ours, level, higher_is_better=better))
    return Rival(rival, total(filter(None, by_cycle)), total(filter(None, by_labels)))


def matches_by_subject(
    studies: Sequence[StudyRecords],
) -> dict[str, list[tuple[StudyRecords, Matches]]]:
    """Return subject -> its counts in each study, for subjects of several studies."""
    result: dict[str, list[tuple[StudyRecords, Matches]]] = {}
    for study in studies:
        for matches in find_matches(study):
            result.setdefault(matches.subject, []).append((study, matches))
    return {subject: rows for subject, rows in result.items() if len(rows) > 1}
