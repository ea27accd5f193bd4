"""Errors of numbers to predict, as what they are above the fit with all labels of the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.final_table import label_of, rank_queries
from fallow.report.findings.checkpoints import checkpoints, is_even
from fallow.report.regression import COLUMNS
from fallow.study.names import heading
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, differences, holm, wilcoxon_exact

Key = tuple[str, int]
"""A strategy and a cycle."""


@dataclass(frozen=True)
class Tally:
    """At how many checkpoints a strategy is better than the reference, neither, or worse."""

    better: int = 0
    same: int = 0
    worse: int = 0

    def __str__(self) -> str:
        return f"{self.better}/{self.same}/{self.worse}"


def excess(study: StudyRecords, key: str) -> Blocks:
    """The median over seeds at a few checkpoints, and tests against the reference."""
    cycles = checkpoints(study, COLUMNS)
    shown = [query for query in rank_queries(study) if study.excess(query)]
    if not cycles or not shown:
        return []

    reference = study.study.reference
    tallies: Mapping[str, Tally] = {}
    header = [heading(study.study), *(f"Cycle {cycle}" for cycle in cycles)]
    if is_even(study):
        bought = study.labels(shown[0])
        header = [
            heading(study.study),
            *(f"{bought[cycle]:,.0f} labels" for cycle in cycles),
        ]
    if reference is not None and study.excess(reference):
        tallies = tally({query: study.excess(query) for query in shown}, reference)
        header.append(f"Against {label_of(reference, study.study)}")

    rows = []
    for query in shown:
        found = study.excess(query)
        cells = [percent(found.get(cycle, {})) for cycle in cycles]
        row = [label_of(query, study.study), *cells]
        if tallies:
            row.append(str(tallies.get(query, NOTHING)))
        rows.append(row)
    text = (
        "Median over seeds of the error above that of the fit with all labels under the same seed "
        "and training, in per cent of it: what the choice of rows and their number cost."
    )
    if tallies:
        text += (
            " Against: cycles in which it is better, no different, and worse; exact signed-rank test "
            f"of pairs by seed, Holm over all cycles and strategies, {LEVEL:g}."
        )
    return [Table("Excess error", header, rows), Note(text)]


def percent(excesses: Mapping[int, float]) -> str:
    """Seed -> excess, as a text.

    >>> percent({0: 0.01, 1: 0.03, 2: 0.5})
    '3.00 %'
    """
    if not excesses:
        return NOTHING
    return f"{100 * median(excesses.values()):.2f} %"


def tally(
    excesses: Mapping[str, Mapping[int, Mapping[int, float]]], reference: str
) -> dict[str, Tally]:
    """Each strategy against the reference in every cycle that both have, Holm over all of them.

    excesses: strategy -> cycle -> seed -> excess; smaller is better.

    >>> base = {1: {seed: 0.5 + seed / 100 for seed in range(7)}}
    >>> less = {1: {seed: 0.3 for seed in range(7)}}
    >>> {name: str(found) for name, found in tally({"a": less, "b": base}, "b").items()}
    {'a': '1/0/0'}
    """
    pairs: dict[Key, list[float]] = {}
    for query, by_cycle in excesses.items():
        if query == reference:
            continue
        for cycle, ours in by_cycle.items():
            d = differences(ours, excesses[reference].get(cycle, {}))
            if len(d) >= 2:
                pairs[query, cycle] = d
    adjusted = holm([wilcoxon_exact(d) for d in pairs.values()])
    found: dict[str, Tally] = {}
    for ((query, _), d), p in zip(pairs.items(), adjusted, strict=True):
        before = found.get(query, Tally())
        if p > LEVEL:
            found[query] = Tally(before.better, before.same + 1, before.worse)
        elif median(d) < 0:
            found[query] = Tally(before.better + 1, before.same, before.worse)
        else:
            found[query] = Tally(before.better, before.same, before.worse + 1)
    return found
