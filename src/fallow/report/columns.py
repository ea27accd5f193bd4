"""The columns of a final table as a reader sees them, and the notes below it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fallow.report.final_table import FinalTable, number
from fallow.study.statistics import Comparison, Interval

AREA_MINUS, AREA_P = "Area minus reference's [95 %]", "Area Holm p"
NOTHING = "–"
"""What stands where there is no number."""


def p_text(p: float) -> str:
    """A p-value to three digits, never as 0.

    >>> p_text(0.03125), p_text(1e-7)
    ('0.031', '<0.001')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def with_interval(value: float, interval: Interval | None, digits: int) -> str:
    """A difference with its interval, where it has one."""
    text = number(value, digits, "+")
    if interval is None:
        return text
    return f"{text} [{number(interval.low, digits, '+')}, {number(interval.high, digits, '+')}]"


Columns = dict[str, list[str]]
"""Column title -> one text per row."""


DIVERGED = " (diverged)"
"""What stands behind a strategy of which a seed has no usable model at the end."""


def score_columns(table: FinalTable) -> Columns:
    """Name, final score, seeds, and (where there are any) published, area, labels saved."""
    rows, final = table.rows, f"Final {table.unit}"
    spreads = {
        final: [r.score for r in rows],
        "Published": [r.published for r in rows],
        "Area under curve": [r.area for r in rows],
    }
    text = {
        name: [s.text(table.digits) if s else NOTHING for s in column]
        for name, column in spreads.items()
    }
    bought = {round(r.labels) for r in rows if r.labels is not None and not r.is_bound}
    more = {
        "Labels": [
            NOTHING if r.labels is None or len(bought) < 2 else f"{r.labels:,.0f}"
            for r in rows
        ],
        "Published": text["Published"],
        "Area under curve": text["Area under curve"],
        "Labels saved": [NOTHING if r.saved is None else f"{r.saved:+.0f} %" for r in rows],
    }
    return {
        table.heading: [
            r.label + " (bound)" * r.is_bound + DIVERGED * r.has_diverged for r in rows
        ],
        final: text[final],
        "Seeds": [str(r.score.seeds) if r.score else "0" for r in rows],
        **{name: cells for name, cells in more.items() if any(c != NOTHING for c in cells)},
    }


def comparison_columns(table: FinalTable) -> Columns:
    """Differences to the reference and their tests; no column when nothing was tested."""
    digits = table.digits
    reference = next(
        (r.label for r in table.rows if r.query == table.reference), "reference"
    )
    show: dict[str, Callable[[Comparison], str]] = {
        f"Minus {reference} [95 %]": lambda c: with_interval(
            c.difference, c.interval, digits
        ),
        "Hodges-Lehmann": lambda c: with_interval(c.shift, c.shift_interval, digits),
        "Paired t p": lambda c: p_text(c.t),
        "Wilcoxon p": lambda c: p_text(c.wilcoxon),
        "Holm p": lambda c: p_text(c.holm),
        "Win/tie/loss": lambda c: f"{c.wins}/{c.ties}/{c.losses}",
    }
    tests = [row.comparison for row in table.rows]
    areas = [row.area_comparison for row in table.rows]
    if not any(tests):
        return {}
    shown = {
        name: [text(c) if c else NOTHING for c in tests] for name, text in show.items()
    }
    if any(areas):
        by_area = {AREA_MINUS: f"Minus {reference} [95 %]", AREA_P: "Holm p"}
        for name, same in by_area.items():
            shown[name] = [show[same](c) if c else NOTHING for c in areas]
    return shown


def columns(table: FinalTable) -> Columns:
    """Every column that a readable form shows: accuracies with two decimals, errors with four
    digits."""
    return score_columns(table) | comparison_columns(table)


def footnotes(table: FinalTable, left_out: Collection[str] = ()) -> list[str]:
    """What a reader must know to read the table, one sentence each; ``left_out``: columns that a
    form does not show."""
    notes, what = (
        ["Mean ± standard deviation over seeds (ddof = 1)."],
        table.heading.lower(),
    )
    if what == "strategy":
        notes.append("A strategy is a query and how its models are trained.")
    tests = [r.comparison for r in table.rows if r.comparison]
    if tests:
        notes.append(
            f"Differences are {what} minus reference, seed by seed, with a 95 % Student interval"
            + (
                "."
                if table.measure == "accuracy"
                else f"; below zero the {what} is better."
            )
        )
        if "Hodges-Lehmann" not in left_out:
            notes.append(
                "Hodges-Lehmann is the median of the Walsh averages with its exact interval of at "
                "least 95 %, where the seeds allow one."
            )
        notes.append(
            "Wilcoxon is the exact two-sided signed-rank test; Holm adjusts it over the "
            f"{len(tests)} comparison{'s' if len(tests) > 1 else ''} of this table."
        )
        if any(r.area_comparison for r in table.rows) and AREA_P not in left_out:
            notes.append(
                "The last two columns test areas under the learning curve the same way."
            )
        notes.extend(dict.fromkeys(c.note + "." for c in tests if c.note))
    notes += _about_errors(table)
    if table.untested:
        notes.append(table.untested)
    if any(r.saved is not None for r in table.rows):
        notes.append(
            "Labels saved: labels needed to reach the final score of random, against "
            "what random itself needed, on mean curves joined linearly; – if never."
        )
    if table.published_in:
        notes.append(f"Published: {table.published_in}.")
    return notes


def _about_errors(table: FinalTable) -> list[str]:
    """What is said of numbers to predict alone: units, labels that differ, divergence."""
    notes = []
    if table.is_scaled:
        notes.append(
            "Errors are in units of the variance of the training targets: predicting their mean "
            "has an error of about 1."
        )
    if "Labels" in score_columns(table):
        notes.append(
            "Labels: bought by the end, first labels among them. Strategies that start without "
            "first labels end with fewer: scores are compared cycle by cycle, areas where all "
            "curves have labels."
        )
    if any(r.has_diverged for r in table.rows):
        notes.append("Diverged: at least one seed has no usable model at the end.")
    return notes
