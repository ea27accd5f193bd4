"""Output formats of a final table: CSV, Markdown, LaTeX, and the terminal.

>>> from fallow.report.tables import FinalTable, to_markdown
>>> from fallow.study.records import ACCURACY
>>> print(to_markdown(FinalTable("tiny", ACCURACY, None, (), "No test.")).splitlines()[0])
| Strategy | Final accuracy, % | Seeds |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.report.columns import (
    AREA_MINUS,
    AREA_P,
    columns,
    comparison_columns,
    footnotes,
    p_text,
    score_columns,
)
from fallow.report.final_table import (
    FinalTable,
    Row,
    Sign,
    Spread,
    beside,
    final_table,
    signs,
)
from fallow.storage.plain import cell, markdown_cell, markdown_text, one_line
from fallow.storage.validation import STRICT, Count
from fallow.study.statistics import Comparison

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

__all__ = [
    "WIDE",
    "FinalTable",
    "Row",
    "Sign",
    "Spread",
    "TableRow",
    "beside",
    "columns",
    "comparison_columns",
    "final_table",
    "footnotes",
    "p_text",
    "score_columns",
    "signs",
    "table_rows",
    "to_csv",
    "to_frame",
    "to_latex",
    "to_markdown",
    "to_rich",
]

TESTS: Mapping[str, str] = {
    "difference": "mean difference from the reference",
    "low": "lower bound of its 95 % interval",
    "high": "upper bound of its 95 % interval",
    "Hodges-Lehmann": "Hodges-Lehmann estimate of the difference",
    "HL low": "lower bound of its interval",
    "HL high": "upper bound of its interval",
    "HL level": "confidence level of this interval",
    "paired t p": "p-value of the paired t-test",
    "paired t Holm p": "p-value of the paired t-test with Holm's correction",
    "Wilcoxon p": "p-value of the signed-rank test",
    "Wilcoxon Holm p": "p-value of the signed-rank test with Holm's correction",
    "wins": "seeds with a better score than the reference",
    "ties": "seeds with the same score",
    "losses": "seeds with a worse score",
}
"""Columns of a comparison, one number each."""
SCORES: Mapping[str, str] = {
    "mean": "mean score over seeds",
    "sd": "standard deviation of the score",
    "area": "mean area under the learning curve",
    "area sd": "standard deviation of the area",
    "labels saved %": "labels saved against the reference, in percent",
}
PUBLISHED: Mapping[str, str] = {
    "published": "published score",
    "published sd": "published standard deviation",
}


def _describe_columns(columns: Mapping[str, str]) -> dict[str, Any]:
    """Return columns of numbers as fields; a missing number is None."""
    return {
        name: Annotated[float | None, Field(description=text)]
        for name, text in columns.items()
    }


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
                **_describe_columns(SCORES),
                **_describe_columns(TESTS),
                **_describe_columns(PUBLISHED),
            },
        )
    )
"""Row of the final table: every number in a column of its own."""


def _test_numbers(test: Comparison | None) -> dict[str, float | None]:
    """Return a comparison by column, with None for missing numbers."""
    numbers: dict[str, float | None] = dict.fromkeys(TESTS)
    if test is None:
        return numbers
    numbers |= {
        "difference": test.difference,
        "low": test.interval.low,
        "high": test.interval.high,
        "Hodges-Lehmann": test.shift,
        "paired t p": test.t,
        "paired t Holm p": test.t_holm,
        "Wilcoxon p": test.wilcoxon,
        "Wilcoxon Holm p": test.holm,
        "wins": test.wins,
        "ties": test.ties,
        "losses": test.losses,
    }
    shift = test.shift_interval
    if shift is not None:
        numbers |= {"HL low": shift.low, "HL high": shift.high, "HL level": shift.level}
    return numbers


def _kind(row: Row, reference: str | None) -> str:
    if row.is_bound:
        return "bound"
    if row.strategy == reference:
        return "reference"
    return "strategy"


def _mean_and_sd(spread: Spread | None) -> tuple[float | None, float | None]:
    if spread is None:
        return None, None
    return spread.mean, spread.sd


def table_rows(table: FinalTable) -> list[TableRow]:
    """Return the rows of the table with their numbers, one for each strategy and bound."""
    return [_numbers(row, table.reference) for row in table.rows]


def _numbers(row: Row, reference: str | None) -> TableRow:
    """Return the numbers of one row, by column."""
    mean, sd = _mean_and_sd(row.score)
    area, area_sd = _mean_and_sd(row.area)
    published, published_sd = _mean_and_sd(row.published)
    seeds: int | None = 0
    if row.score:
        seeds = row.score.seeds
    return {
        "strategy": row.strategy,
        "kind": _kind(row, reference),
        "seeds": seeds,
        "mean": mean,
        "sd": sd,
        "area": area,
        "area sd": area_sd,
        "labels saved %": row.saved,
        **_test_numbers(row.comparison),
        "published": published,
        "published sd": published_sd,
    }


def to_frame(table: FinalTable) -> pd.DataFrame:
    """Return the rows of the table as a data frame; missing numbers are NaN."""
    import pandas as pd

    kinds = dict.fromkeys([*SCORES, *TESTS, *PUBLISHED], "float64")
    columns = ["strategy", "kind", "seeds", *kinds]
    return pd.DataFrame(table_rows(table), columns=columns).astype(kinds)


def to_csv(table: FinalTable) -> str:
    """Return the table as CSV, with one number per column; missing numbers are empty."""
    frame = to_frame(table)
    for name in frame.columns:
        if frame[name].dtype == object or str(frame[name].dtype) == "str":
            frame[name] = frame[name].map(
                cell
            )  # texts must not become formulas of a spreadsheet
    return str(frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def to_markdown(table: FinalTable) -> str:
    """Return the table as Markdown with its notes below; numbers are right-aligned."""
    shown = columns(table)
    rule = "|---|" + "---:|" * (len(shown) - 1)  # names to the left, numbers to the right
    heads = [markdown_cell(name) for name in shown]
    lines = [f"| {' | '.join(heads)} |", rule]
    if table.trained:
        lines = [markdown_text(one_line(table.title)), "", *lines]
    for cells in zip(*shown.values(), strict=True):
        escaped = [markdown_cell(cell) for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    lines.append("")
    for note in footnotes(table):
        lines.append(f"{markdown_text(one_line(note))}  ")  # two spaces break a line
    return "\n".join(lines) + "\n"


_TEX = {
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
    escaped = "".join(_TEX.get(ch, ch) for ch in one_line(text))
    return re.sub(r"(?<![\w-])([+-])(?=\d)", r"$\1$", escaped)


def to_latex(table: FinalTable) -> str:
    """Return the table as a LaTeX ``table`` (package booktabs), bounds below a rule."""
    import pandas as pd

    frame = pd.DataFrame(columns(table)).map(_tex)
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


def to_rich(table: FinalTable) -> Table:
    """Return the table for a rich console: the reference in bold, bounds dimmed.

    Columns that do not fit 80 characters are only in the page and in the other formats;
    ``footnotes(table, WIDE)`` are the notes on the displayed ones.
    """
    from rich.table import Table
    from rich.text import Text

    shown = {name: cells for name, cells in columns(table).items() if name not in WIDE}
    styles = {"bound": "dim", "reference": "bold", "strategy": ""}
    rich_table = Table(title=Text(one_line(table.title)))
    justify: Literal["left", "right"] = "left"  # the name; numbers are right-aligned
    for name in shown:
        rich_table.add_column(Text(one_line(name)), justify=justify, overflow="fold")
        justify = "right"
    for row, cells in zip(table.rows, zip(*shown.values(), strict=True), strict=True):
        texts = [Text(one_line(cell)) for cell in cells]
        rich_table.add_row(*texts, style=styles[_kind(row, table.reference)])
    return rich_table
