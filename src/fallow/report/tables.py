"""Final table as displayed, with its notes, and as CSV, Markdown, LaTeX and in a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.wording import count_noun
from fallow.report.blocks import Cells, Table, show
from fallow.report.final_table import FinalTable, Row, Spread, p_text, with_interval
from fallow.report.published import heading_of_published
from fallow.storage.plain import cell, markdown_text, one_line
from fallow.storage.validation import STRICT, Count

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class NumberColumn:
    """Column of numbers of the final table.

    Attributes
    ----------
    description : str
        Meaning of the numbers.
    path : str
        Attributes of a `Row` that lead to a number.
    short : str
        Name of the column in the data frame of a study, or "" if it is not there.
    """

    description: str
    path: str
    short: str = ""


NUMBERS: Mapping[str, NumberColumn] = {
    "mean": NumberColumn("mean score over seeds", "score.mean", "mean"),
    "sd": NumberColumn("standard deviation of the score", "score.sd", "sd"),
    "area": NumberColumn("mean area under the learning curve", "area.mean", "area"),
    "area sd": NumberColumn("standard deviation of the area", "area.sd"),
    "labels saved %": NumberColumn(
        "labels saved against random sampling, in percent", "saved", "saved"
    ),
    "difference": NumberColumn(
        "mean difference from the reference", "comparison.difference", "difference"
    ),
    "low": NumberColumn(
        "lower bound of its 95 % interval", "comparison.interval.low", "low"
    ),
    "high": NumberColumn(
        "upper bound of its 95 % interval", "comparison.interval.high", "high"
    ),
    "Hodges-Lehmann": NumberColumn(
        "Hodges-Lehmann estimate of the difference", "comparison.shift"
    ),
    "HL low": NumberColumn("lower bound of its interval", "comparison.shift_interval.low"),
    "HL high": NumberColumn(
        "upper bound of its interval", "comparison.shift_interval.high"
    ),
    "HL level": NumberColumn(
        "confidence level of this interval", "comparison.shift_interval.level"
    ),
    "paired t p": NumberColumn("p-value of the paired t-test", "comparison.t"),
    "paired t Holm p": NumberColumn(
        "p-value of the paired t-test with Holm's correction", "comparison.t_holm"
    ),
    "Wilcoxon p": NumberColumn(
        "p-value of the signed-rank test", "comparison.wilcoxon", "p"
    ),
    "Wilcoxon Holm p": NumberColumn(
        "p-value of the signed-rank test with Holm's correction",
        "comparison.holm",
        "p_holm",
    ),
    "wins": NumberColumn(
        "seeds with a better score than the reference", "comparison.wins", "wins"
    ),
    "ties": NumberColumn("seeds with the same score", "comparison.ties", "ties"),
    "losses": NumberColumn("seeds with a worse score", "comparison.losses", "losses"),
    "published": NumberColumn("published score", "published.mean"),
    "published sd": NumberColumn("published standard deviation", "published.sd"),
}
"""Columns of numbers, by their name in a CSV file."""

if TYPE_CHECKING:
    TableRow = dict[str, object]
else:
    TableRow = with_config(STRICT)(
        TypedDict(
            "TableRow",
            {
                "strategy": Annotated[str, Field(description="query strategy, or bound")],
                "kind": Annotated[
                    Literal["strategy", "reference", "bound"],
                    Field(description="role in the comparison"),
                ],
                "seeds": Annotated[Count, Field(description="number of seeds")],
                **{
                    name: Annotated[float | None, Field(description=column.description)]
                    for name, column in NUMBERS.items()
                },
                "other setting": Annotated[
                    str | None,
                    Field(description="differences to the setting of the published score"),
                ],
            },
        )
    )
"""Row of the final table: every number in a separate column; None is missing."""


def table_rows(table: FinalTable) -> list[TableRow]:
    """Return the rows of the table with their numbers, one for each strategy and bound."""
    rows = []
    for row in table.rows:
        numbers: TableRow = {
            "strategy": row.strategy,
            "kind": table.kind(row),
            "seeds": _read(row, "score.seeds") or 0,
        }
        for name, column in NUMBERS.items():
            numbers[name] = _read(row, column.path)
        numbers["other setting"] = None
        if row.published is not None:
            numbers["other setting"] = table.other_setting
        rows.append(numbers)
    return rows


FRAME = {
    "strategy": "strategy",
    "label": "label",
    "seeds": "score.seeds",
    "labels": "labels",
    **{column.short: column.path for column in NUMBERS.values() if column.short},
}
"""Columns of the data frame of a study, and their attributes of a `Row`."""


def frame_cells(row: Row) -> dict[str, object]:
    """Return the known cells of a row in the data frame of a study."""
    cells: dict[str, object] = {"seeds": 0}
    for name, path in FRAME.items():
        value = _read(row, path)
        if value is not None:
            cells[name] = value
    return cells


def _read(row: Row, path: str) -> object:
    """Return the value at a path of attributes, or None if a part of it is missing."""
    value: Any = row
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def to_csv(table: FinalTable) -> str:
    """Return the table as CSV, with one number per column; missing numbers are empty."""
    import pandas as pd

    columns = ["strategy", "kind", "seeds", *NUMBERS, "other setting"]
    frame = pd.DataFrame(table_rows(table), columns=columns)
    frame = frame.astype(dict.fromkeys(NUMBERS, "float64"))
    # texts must not become formulas of a spreadsheet
    frame["strategy"] = frame["strategy"].map(cell)
    return str(frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


# -- as displayed ---------------------------------------------------------------------------

AREA_MINUS = "Area minus reference's [95 %]"
AREA_P = "Area Holm p"
WIDE = (
    "Area under curve",
    "Hodges-Lehmann",
    "Paired t p",
    "Wilcoxon p",
    "Win/tie/loss",
    AREA_MINUS,
    AREA_P,
)
"""Columns that do not fit a terminal."""


def score_cells(row: Row, table: FinalTable) -> Cells:
    """Return the cells of a row about its score: accuracies with two decimals, errors with
    four digits.
    """

    def show_spread(spread: Spread) -> str:
        return spread.text(table.digits)

    labels = None
    if table.labels_differ:
        labels = show(row.labels, lambda n: f"{n:,.0f}")
    return {
        table.heading: row.name,
        f"Final {table.measure.heading}": show(row.score, show_spread),
        "Seeds": str(_read(row, "score.seeds") or 0),
        "Labels": labels,
        heading_of_published(table.other_setting): show(row.published, show_spread),
        "Area under curve": show(row.area, show_spread),
        "Labels saved": show(row.saved, lambda saved: f"{saved:+.0f} %"),
    }


def comparison_cells(row: Row, table: FinalTable) -> Cells:
    """Return the cells of a row about the tests against the reference."""
    test = row.comparison
    if test is None:
        return {}
    digits = table.digits
    areas = row.area_comparison
    return {
        f"Minus {table.reference_label} [95 %]": with_interval(
            test.difference, test.interval, digits
        ),
        "Hodges-Lehmann": with_interval(test.shift, test.shift_interval, digits),
        "Paired t p": p_text(test.t),
        "Wilcoxon p": p_text(test.wilcoxon),
        "Holm p": p_text(test.holm),
        "Win/tie/loss": f"{test.wins}/{test.ties}/{test.losses}",
        AREA_MINUS: show(areas, lambda c: with_interval(c.difference, c.interval, digits)),
        AREA_P: show(areas, lambda c: p_text(c.holm)),
    }


def displayed(table: FinalTable, left_out: Collection[str] = ()) -> Table:
    """Return all columns as they are displayed, without those ``left_out``."""
    rows = []
    for row in table.rows:
        cells = {**score_cells(row, table), **comparison_cells(row, table)}
        rows.append({name: text for name, text in cells.items() if name not in left_out})
    return Table.of(table.title, rows)


def footnotes(table: FinalTable, left_out: Collection[str] = ()) -> list[str]:
    """Return the notes of the table, one sentence each.

    ``left_out`` names columns that a format does not show.
    """
    rows = table.rows
    what = table.heading.lower()
    favors = ""
    if not table.measure.higher_is_better:
        favors = f"; a negative difference favors the {what}"
    tests = [row.comparison for row in rows if row.comparison]
    reasons = dict.fromkeys(test.note for test in tests)
    has_areas = any(row.area_comparison for row in rows)
    is_mixed = table.heading == "Strategy" and table.trainings_differ
    notes: list[tuple[object, str]] = [
        *((True, sentence) for sentence in table.training),
        (True, "Mean ± standard deviation over seeds (ddof = 1)."),
        (is_mixed, "Each strategy is a query strategy with its training algorithm."),
        (
            tests,
            f"Differences are {what} minus reference, paired by seed, with a 95 % Student "
            f"interval{favors}.",
        ),
        (
            tests and "Hodges-Lehmann" not in left_out,
            "Hodges-Lehmann is the median of the Walsh averages, with its exact interval of "
            "at least 95 % if the number of seeds allows one.",
        ),
        (
            tests,
            "Wilcoxon is the exact two-sided signed-rank test; Holm adjusts it over the "
            f"{count_noun(len(tests), 'comparison')} of this table.",
        ),
        (
            has_areas and AREA_P not in left_out,
            "The last two columns test the areas under the learning curve in the same way.",
        ),
        *((reason, f"{reason}.") for reason in reasons),
        (
            table.is_scaled,
            "Errors are divided by the variance of the training targets: predicting their "
            "mean has an error of about 1.",
        ),
        (
            table.labels_differ,
            "Labels: final number, including the initial labeled set. Strategies without an "
            "initial labeled set end with fewer labels: scores are compared by cycle, areas "
            "over the range of labels that all curves cover.",
        ),
        (
            any(row.has_diverged for row in rows),
            "Diverged: for at least one seed, the final model is not usable.",
        ),
        (
            any(row.one_class for row in rows),
            "One class: for at least one seed, the final model predicts the same class for "
            "every test example. Train longer (rounds, epochs), change the learning rate "
            "(lr), or buy more labels.",
        ),
        (
            any(row.same_as for row in rows),
            "Same as: both strategies have identical scores in every cycle and for every "
            "seed. They selected the same examples, or their selections did not change the "
            "model.",
        ),
        (table.untested, table.untested),
        *((True, sentence) for sentence in table.stopped),
        (
            any(row.saved is not None for row in rows),
            "Labels saved: labels that the strategy needs to reach the final score of "
            "random, compared with those that random needs. Mean curves are interpolated "
            "linearly. – means that the score is never reached, or that random has it from the first.",
        ),
        (table.published_in, f"Published: {table.published_in}."),
    ]
    return [sentence for is_shown, sentence in notes if is_shown]


def to_markdown(table: FinalTable) -> str:
    """Return the table as Markdown with its notes below; numbers are right-aligned."""
    lines = [*displayed(table).markdown(), ""]
    if table.trained:
        lines = [markdown_text(one_line(table.title)), "", *lines]
    for note in footnotes(table):
        lines.append(f"{markdown_text(one_line(note))}  ")  # two spaces break a line
    return "\n".join(lines) + "\n"


_TEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
}


def _tex(text: str) -> str:
    """Escape text for LaTeX; the sign of a number becomes a mathematical one."""
    escaped = one_line(text).translate(str.maketrans(_TEX))
    return re.sub(r"(?<![\w-])([+-])(?=\d)", r"$\1$", escaped)


def to_latex(table: FinalTable) -> str:
    """Return the table as a LaTeX ``table`` (package booktabs), bounds below a rule."""
    frame = displayed(table).frame().map(_tex)
    for at, row in enumerate(table.rows):
        if row.is_bound:  # a rule above the first bound
            frame.iloc[at, 0] = f"\\midrule\n{frame.iloc[at, 0]}"
            break
    styled = frame.style.hide(axis="index").format_index(_tex, axis="columns")
    body = styled.to_latex(
        hrules=True,
        column_format="l" + "r" * (len(frame.columns) - 1),
        caption=_tex(table.title),
        position_float="centering",
    )
    notes = [rf"\par\footnotesize {_tex(note)}" for note in footnotes(table)]
    end = r"\end{table}"
    return str(body).replace(end, "\n".join([*notes, end]))


def to_rich(table: FinalTable) -> RichTable:
    """Return the table for a rich console: the reference in bold, bounds dimmed.

    Columns that do not fit 80 characters are only in the page and in the other formats;
    ``footnotes(table, WIDE)`` are the notes on the displayed ones.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = displayed(table, WIDE)
    styles = {"bound": "dim", "reference": "bold", "strategy": ""}
    rich_table = RichTable(title=Text(one_line(table.title)))
    justify: Literal["left", "right"] = "left"  # the name; numbers are right-aligned
    for name in shown.header:
        rich_table.add_column(Text(one_line(name)), justify=justify, overflow="fold")
        justify = "right"
    for row, cells in zip(table.rows, shown.rows, strict=True):
        texts = [Text(one_line(text)) for text in cells]
        rich_table.add_row(*texts, style=styles[table.kind(row)])
    return rich_table
