"""Columns of a final table as they are displayed, and the notes below it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fallow.core.wording import count_noun
from fallow.report.final_table import FinalTable, Row, Spread, number
from fallow.study.statistics import Comparison, Interval

AREA_MINUS = "Area minus reference's [95 %]"
AREA_P = "Area Holm p"
NOTHING = "–"
"""Placeholder for a missing number."""


def p_text(p: float) -> str:
    """Return a p-value with three digits, never as 0.

    >>> p_text(0.03125), p_text(1e-7)
    ('0.031', '<0.001')
    """
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}"


def with_interval(value: float, interval: Interval | None, digits: int) -> str:
    """Return a difference with its interval, if it has one."""
    text = number(value, digits, "+")
    if interval is None:
        return text
    return f"{text} [{number(interval.low, digits, '+')}, {number(interval.high, digits, '+')}]"


Columns = dict[str, list[str]]
"""Column title -> one text per row."""


DIVERGED = " (diverged)"
"""Suffix of a strategy that has no usable model at the end for some seed."""


ONE_CLASS = " (one class)"
"""Suffix of a strategy whose final model predicts a single class for some seed."""


def score_columns(table: FinalTable) -> Columns:
    """Return name, final score and seeds, and if available labels, published, area and
    labels saved.
    """
    rows = table.rows
    always = {
        table.heading: [_row_name(row) for row in rows],
        f"Final {table.unit}": [_spread_text(row.score, table) for row in rows],
        "Seeds": [_seeds_text(row.score) for row in rows],
    }
    optional = {
        "Labels": _labels_column(table),
        "Published": [_spread_text(row.published, table) for row in rows],
        "Area under curve": [_spread_text(row.area, table) for row in rows],
        "Labels saved": [_saved_text(row.saved) for row in rows],
    }
    known = {name: cells for name, cells in optional.items() if set(cells) - {NOTHING}}
    return always | known


def _row_name(row: Row) -> str:
    name = row.label
    if row.is_bound:
        name += " (bound)"
    if row.has_diverged:
        name += DIVERGED
    if row.one_class:
        name += ONE_CLASS
    if row.same_as:
        name += f" (same as {row.same_as})"
    return name


def _spread_text(spread: Spread | None, table: FinalTable) -> str:
    if spread is None:
        return NOTHING
    return spread.text(table.digits)


def _seeds_text(spread: Spread | None) -> str:
    if spread is None:
        return "0"
    return str(spread.seeds)


def _saved_text(saved: float | None) -> str:
    if saved is None:
        return NOTHING
    return f"{saved:+.0f} %"


def _labels_text(labels: float | None) -> str:
    if labels is None:
        return NOTHING
    return f"{labels:,.0f}"


def _labels_column(table: FinalTable) -> list[str]:
    """Return the final number of labels, or no column if all strategies have the same
    number.
    """
    bought = set()
    for row in table.rows:
        if row.labels is not None and not row.is_bound:
            bought.add(round(row.labels))
    if len(bought) < 2:
        return [NOTHING for _ in table.rows]
    return [_labels_text(row.labels) for row in table.rows]


def comparison_columns(table: FinalTable) -> Columns:
    """Return differences to the reference and their tests, or no column without tests."""
    digits = table.digits
    name = "reference"
    reference = table.row(table.reference or "")
    if reference is not None:
        name = reference.label
    minus = f"Minus {name} [95 %]"
    texts: dict[str, Callable[[Comparison], str]] = {
        minus: lambda c: with_interval(c.difference, c.interval, digits),
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
    shown = {name: _column(tests, text) for name, text in texts.items()}
    if any(areas):
        shown[AREA_MINUS] = _column(areas, texts[minus])
        shown[AREA_P] = _column(areas, texts["Holm p"])
    return shown


def _column(
    tests: Sequence[Comparison | None], text: Callable[[Comparison], str]
) -> list[str]:
    cells = []
    for test in tests:
        cell = NOTHING
        if test is not None:
            cell = text(test)
        cells.append(cell)
    return cells


def columns(table: FinalTable) -> Columns:
    """Return all displayed columns: accuracies with two decimals, errors with four digits."""
    return score_columns(table) | comparison_columns(table)


def footnotes(table: FinalTable, left_out: Collection[str] = ()) -> list[str]:
    """Return the notes of the table, one sentence each.

    ``left_out`` names columns that a format does not show.
    """
    notes = [*table.training, "Mean ± standard deviation over seeds (ddof = 1)."]
    if table.heading == "Strategy" and table.trainings_differ:
        notes.append("Each strategy is a query strategy with its training algorithm.")
    notes += _about_tests(table, left_out)
    notes += _about_errors(table)
    notes += _about_degenerate(table)
    if table.untested:
        notes.append(table.untested)
    notes += table.stopped
    if any(row.saved is not None for row in table.rows):
        notes.append(
            "Labels saved: labels that the strategy needs to reach the final score of "
            "random, compared with those that random needs. Mean curves are interpolated "
            "linearly. – means that the score is never reached."
        )
    if table.published_in:
        notes.append(f"Published: {table.published_in}.")
    return notes


def _about_tests(table: FinalTable, left_out: Collection[str]) -> list[str]:
    """Return the notes on significance tests, or nothing without tests."""
    tests = [row.comparison for row in table.rows if row.comparison]
    if not tests:
        return []
    what = table.heading.lower()
    differences = (
        f"Differences are {what} minus reference, paired by seed, with a 95 % Student "
        "interval"
    )
    if not table.measure.higher_is_better:
        differences += f"; a negative difference favors the {what}"
    notes = [f"{differences}."]
    if "Hodges-Lehmann" not in left_out:
        notes.append(
            "Hodges-Lehmann is the median of the Walsh averages, with its exact interval "
            "of at least 95 % if the number of seeds allows one."
        )
    notes.append(
        "Wilcoxon is the exact two-sided signed-rank test; Holm adjusts it over the "
        f"{count_noun(len(tests), 'comparison')} of this table."
    )
    if any(row.area_comparison for row in table.rows) and AREA_P not in left_out:
        notes.append(
            "The last two columns test the areas under the learning curve in the same way."
        )
    reasons = dict.fromkeys(test.note for test in tests)
    notes += [f"{reason}." for reason in reasons if reason]
    return notes


def _about_degenerate(table: FinalTable) -> list[str]:
    """Return the notes on degenerate models."""
    notes = []
    if any(row.one_class for row in table.rows):
        notes.append(
            "One class: for at least one seed, the final model predicts the same class "
            "for every test example. Train longer (rounds, epochs), change the learning "
            "rate (lr), or buy more labels."
        )
    if any(row.same_as for row in table.rows):
        notes.append(
            "Same as: both strategies have identical scores in every cycle and for every "
            "seed. They selected the same examples, or their selections did not change "
            "the model."
        )
    return notes


def _about_errors(table: FinalTable) -> list[str]:
    """Return the notes on regression: units, different label counts, divergence."""
    notes = []
    if table.is_scaled:
        notes.append(
            "Errors are divided by the variance of the training targets: predicting "
            "their mean has an error of about 1."
        )
    if "Labels" in score_columns(table):
        notes.append(
            "Labels: final number, including the initial labeled set. Strategies without "
            "an initial labeled set end with fewer labels: scores are compared by cycle, "
            "areas over the range of labels that all curves cover."
        )
    if any(r.has_diverged for r in table.rows):
        notes.append("Diverged: for at least one seed, the final model is not usable.")
    return notes
