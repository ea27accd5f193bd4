"""Benchmark as text: a table for each task, and verdicts on a strategy."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.blocks import Table, show
from fallow.report.final_table import p_text
from fallow.storage.plain import markdown_text, one_line
from fallow.study.benchmark import MARGIN, BenchmarkResult, TaskLine, Verdict
from fallow.study.statistics import Interval

OUTCOMES = {
    "better": "is better than {rival}, the best rival:",
    "worse": "is worse than {rival}, the best rival:",
    "not worse": f"is at most {100 * MARGIN:.1f} points worse than {{rival}}, the best rival:",
    "open": "against {rival}, the best rival: undecided with these seeds;",
}
INTRODUCTION = (
    "Area: mean accuracy over the logarithm of the number of labels. Holm p: the exact "
    "signed-rank test over seeds, corrected for all strategies of a table."
)


def _in_points(difference: float, interval: Interval, unit: str = "") -> str:
    """Return a difference of fractions, with its interval, in percentage points."""
    low = f"{100 * interval.low:+.2f}"
    return f"{100 * difference:+.2f}{unit} [{low}, {100 * interval.high:+.2f}]"


def task_table(title: str, lines: Sequence[TaskLine], reference: str) -> Table:
    """Return the results of the strategies on a task, with accuracies in percent."""
    rows = []
    for line in lines:
        area = f"{100 * line.area:.2f}"
        if line.area_sd is not None:
            area = f"{area} ± {100 * line.area_sd:.2f}"
        difference = None
        if line.difference is not None and line.interval is not None:
            difference = _in_points(line.difference, line.interval)
        rows.append(
            {
                "strategy": line.strategy,
                "area, %": area,
                "at 10 a class": f"{100 * line.few:.1f}",
                "at the end": f"{100 * line.final:.1f}",
                "worst class": f"{100 * line.worst:.1f}",
                f"minus {reference} [95 %]": difference,
                "Holm p": show(line.holm, p_text),
                "seeds": str(line.seeds),
            }
        )
    return Table.of(title, rows)


def describe_verdict(verdict: Verdict) -> str:
    """Describe a strategy against the best other strategy of a task, in one sentence.

    >>> from fallow.study.statistics import Interval
    >>> at = Interval(0.01, 0.03, 0.95)
    >>> sentence = describe_verdict(
    ...     Verdict("digits", "mine", "margin", 6, 0.02, at, 0.03, 0.001)
    ... )
    >>> sentence.partition(":")[2].partition(" over")[0]
    ' mine is better than margin, the best rival: +2.00 points [+1.00, +3.00]'
    """
    difference = _in_points(verdict.difference, verdict.interval, " points")
    return (
        f"{verdict.task}: {verdict.strategy} "
        f"{OUTCOMES[verdict.outcome].format(rival=verdict.rival)} {difference} over "
        f'{verdict.seeds} seeds (Holm p {p_text(verdict.holm)}, p of "worse by '
        f'{100 * MARGIN:.1f}" {p_text(verdict.not_worse)})'
    )


def to_markdown(result: BenchmarkResult, reference: str) -> str:
    """Return the whole benchmark as Markdown."""
    lines = ["# Benchmark", "", INTRODUCTION]
    for title, of_task in result.tables.items():
        table = task_table(title, of_task, reference)
        lines += ["", f"## {markdown_text(one_line(title))}", "", *table.markdown()]
    if result.verdicts:
        lines += ["", "## Against the best rival", ""]
        for verdict in result.verdicts:
            lines.append(f"* {markdown_text(one_line(describe_verdict(verdict)))}")
    return "\n".join(lines) + "\n"
