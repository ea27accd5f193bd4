"""Benchmark as text: a table for each task, and verdicts on a strategy."""

from __future__ import annotations

from fallow.report.columns import p_text
from fallow.storage.plain import markdown_cell, markdown_text, one_line
from fallow.study.benchmark import MARGIN, BenchmarkResult, TaskLine, Verdict

HEADS = (
    "strategy",
    "area, %",
    "at 10 a class",
    "at the end",
    "worst class",
    "minus {reference} [95 %]",
    "Holm p",
    "seeds",
)
OUTCOMES = {
    "better": "better",
    "worse": "worse",
    "not worse": f"at most {100 * MARGIN:.1f} points worse",
    "open": "undecided with these seeds",
}
ABOUT = (
    "Area: mean accuracy over the logarithm of the number of labels. Holm p: the exact "
    "signed-rank test over seeds, corrected for all strategies of a table."
)


def heads(reference: str) -> list[str]:
    """Return the column headings of `line_cells`."""
    return [head.format(reference=reference) for head in HEADS]


def line_cells(line: TaskLine) -> list[str]:
    """Return a strategy as cells of a table, with accuracies in per cent."""
    area = f"{100 * line.area:.2f}"
    if line.area_sd is not None:
        area = f"{area} ± {100 * line.area_sd:.2f}"
    difference = "–"
    holm = "–"
    if line.difference is not None and line.interval is not None:
        low = f"{100 * line.interval.low:+.2f}"
        high = f"{100 * line.interval.high:+.2f}"
        difference = f"{100 * line.difference:+.2f} [{low}, {high}]"
    if line.holm is not None:
        holm = p_text(line.holm)
    return [
        line.strategy,
        area,
        f"{100 * line.few:.1f}",
        f"{100 * line.final:.1f}",
        f"{100 * line.worst:.1f}",
        difference,
        holm,
        str(line.seeds),
    ]


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
    low = f"{100 * verdict.interval.low:+.2f}"
    high = f"{100 * verdict.interval.high:+.2f}"
    text = (
        f"{100 * verdict.difference:+.2f} points [{low}, {high}] over {verdict.seeds} seeds "
        f'(Holm p {p_text(verdict.holm)}, p of "worse by {100 * MARGIN:.1f}" '
        f"{p_text(verdict.not_worse)})"
    )
    heading = f"{verdict.task}: {verdict.strategy}"
    if verdict.outcome == "open":
        return (
            f"{heading} against {verdict.rival}, the best rival: {OUTCOMES['open']}; {text}"
        )
    joined = {"better": "is better than", "worse": "is worse than"}
    is_so = joined.get(verdict.outcome, f"is {OUTCOMES['not worse']} than")
    return f"{heading} {is_so} {verdict.rival}, the best rival: {text}"


def to_markdown(result: BenchmarkResult, reference: str) -> str:
    """Return the whole benchmark as Markdown."""
    lines = ["# Benchmark", "", ABOUT]
    for title, of_task in result.tables.items():
        lines += ["", f"## {markdown_text(one_line(title))}", ""]
        lines.append(f"| {' | '.join(heads(reference))} |")
        lines.append("|---|" + "---:|" * (len(HEADS) - 1))
        for line in of_task:
            cells = [markdown_cell(text) for text in line_cells(line)]
            lines.append(f"| {' | '.join(cells)} |")
    if result.verdicts:
        lines += ["", "## Against the best rival", ""]
        for verdict in result.verdicts:
            lines.append(f"* {markdown_text(one_line(describe_verdict(verdict)))}")
    return "\n".join(lines) + "\n"
