"""The sections of a report about numbers to predict: errors by labels, costs, divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.core.words import listed, size
from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.costs import ends, mean_text
from fallow.report.final_table import Spread, digits_of, label_of, rank_queries
from fallow.report.findings.checkpoints import at_labels, checkpoints, is_even
from fallow.report.findings.diverged import FAR, find_diverged, has_diverged_at
from fallow.study.names import heading, training_of, training_tags
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd

COLUMNS = 5
"""So many checkpoints have a column in the table of errors."""

MARK = " †"


# -- divergence -------------------------------------------------------------------------------


def warnings(study: StudyRecords) -> list[str]:
    """Which runs diverged, and what to do about it; nothing when none did."""
    found = find_diverged(study)
    steps = {q: k for q, k in found.items() if not is_solved(study, q)}
    solved = {q: k for q, k in found.items() if is_solved(study, q)}
    said = []
    if steps:
        said.append(
            f"Diverged: {_who(study, steps)}. Their error is more than {FAR:g} times that of "
            "predicting the mean, or not a number. Scale the features, or lower the learning rate "
            "(plan.optimiser.lr)."
        )
    if solved:
        trained = sorted({training_of(study.study, q) for q in solved})
        said.append(
            f"Diverged: {_who(study, solved)}. Least squares on few labels leave directions of the "
            f"features to chance. Buy more labels, or use training={trained[0]}:ridge=0.001."
        )
    return said


def is_solved(study: StudyRecords, query: str) -> bool:
    """Whether the models of a strategy are solved for and not trained step by step."""
    return "least-squares" in training_tags(study.study, query)


def _who(study: StudyRecords, found: Mapping[str, Mapping[int, int]]) -> str:
    """``random (seeds 0 and 2, from cycle 1)``, for each strategy."""
    said = []
    for query, seeds in found.items():
        which = (
            f"seed{'s' if len(seeds) > 1 else ''} {listed([str(k) for k in sorted(seeds)])}"
        )
        said.append(
            f"{label_of(query, study.study)} ({which}, first in cycle {min(seeds.values())})"
        )
    return listed(said)


# -- errors -----------------------------------------------------------------------------------


def errors(study: StudyRecords, key: str) -> Blocks:
    """Errors at a few checkpoints: cycle by cycle, and at equal numbers of labels."""
    cycles = checkpoints(study, COLUMNS)
    if not cycles:
        return []
    order = rank_queries(study)
    even = is_even(study)
    what = heading(study.study)
    rows = [
        [label_of(q, study.study), *(_error(study, q, c) for c in cycles)] for q in order
    ]
    bought = study.labels(order[0])
    header = [
        f"{bought[c]:,.0f} labels" if even and c in bought else f"Cycle {c}" for c in cycles
    ]
    parts = [
        Table("Error by labels bought" if even else "Error by cycle", [what, *header], rows)
    ]
    if not even:
        parts.append(_at_equal_labels(study, cycles))
    text = "Mean ± standard deviation over seeds; lower is better."
    if any(cell.endswith(MARK) for row in rows for cell in row):
        text += f"{MARK}: a seed has diverged there."
    return [*parts, Note(text)]


def _error(study: StudyRecords, query: str, cycle: int) -> str:
    mark = MARK if has_diverged_at(study, query, cycle) else ""
    return _spread(study, study.curve(query).get(cycle, {})) + mark


def _spread(study: StudyRecords, scores: Mapping[int, float]) -> str:
    return (
        Spread(*mean_sd([*scores.values()])).text(digits_of(study)) if scores else NOTHING
    )


def _at_equal_labels(study: StudyRecords, cycles: Sequence[int]) -> Table:
    """All strategies at the labels of the one that bought the fewest."""
    bought = [study.labels(q) for q in study.strategies if cycles[-1] in study.labels(q)]
    least = min(bought, key=lambda labels: labels[cycles[-1]])
    columns = [least[c] for c in cycles if c in least]
    rows = [
        [
            label_of(q, study.study),
            *(_spread(study, at_labels(study, q, n)) for n in columns),
        ]
        for q in rank_queries(study)
    ]
    caption = "Error by labels bought, first labels among them (curves joined linearly)"
    header = [heading(study.study), *(f"{n:,.0f} labels" for n in columns)]
    return Table(caption, header, rows)


# -- costs ------------------------------------------------------------------------------------


def costs(study: StudyRecords, key: str) -> Blocks:
    """The error at the end beside what crossed between server and sites to get there."""
    shown = [q for q in rank_queries(study) if study.final(q)]
    if not shown:
        return []
    rows = [
        [
            label_of(q, study.study),
            _spread(study, study.final(q)),
            mean_text(ends(study, q, "labelled"), lambda n: f"{n:,.0f}"),
            mean_text(_exchanges(study, q), lambda n: f"{n:,.0f}"),
            mean_text(ends(study, q, "bytes_up"), size),
            mean_text(ends(study, q, "bytes_down"), size),
        ]
        for q in shown
    ]
    header = [
        heading(study.study),
        "Error",
        "Labels",
        "Exchanges",
        "Sites to server",
        "Server to sites",
    ]
    return [
        Table("At the last checkpoint, mean over seeds", header, rows),
        Note(
            "Exchanges are round trips between the server and all sites: models, totals and orders "
            "together. Bytes are of all sites. Over a network the exchanges cost seconds each."
        ),
    ]


def _exchanges(study: StudyRecords, query: str) -> list[float]:
    """Round trips of a whole run, one number per seed whose records count them."""
    told = [cell.records[-1].get("revealed") for cell in study.of(query) if cell.records]
    return [
        float(sum(e.get("exchanges") or 0 for e in entries)) for entries in told if entries
    ]
