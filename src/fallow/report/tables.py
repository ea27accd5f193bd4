"""Ways to write a final table: CSV, Markdown, LaTeX, and the terminal.

>>> from fallow.report.tables import FinalTable, to_markdown
>>> print(to_markdown(FinalTable("tiny", "accuracy", None, (), "No test.")).splitlines()[0])
| Query | Final accuracy, % | Seeds |
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

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
from fallow.storage.plain import cell
from fallow.study.statistics import Comparison, Interval

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "WIDE",
    "FinalTable",
    "Row",
    "Sign",
    "Spread",
    "beside",
    "columns",
    "comparison_columns",
    "final_table",
    "footnotes",
    "p_text",
    "score_columns",
    "signs",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_rich",
    "to_text",
]

HEADER = (
    "query",
    "kind",
    "seeds",
    "mean",
    "sd",
    "area",
    "area sd",
    "labels saved %",
    "difference",
    "low",
    "high",
    "Hodges-Lehmann",
    "HL low",
    "HL high",
    "HL level",
    "paired t p",
    "paired t Holm p",
    "Wilcoxon p",
    "Wilcoxon Holm p",
    "wins",
    "ties",
    "losses",
    "published",
    "published sd",
)
"""Columns of the CSV file: everything the table knows, one number each."""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _spread_numbers(spread: Spread | None) -> list[str]:
    return [_number(spread.mean), _number(spread.sd)] if spread else ["", ""]


def _test_numbers(c: Comparison | None) -> list[str]:
    if c is None:
        return [""] * 14
    hl: Interval | None = c.shift_interval
    bounds = [_number(hl.low), _number(hl.high), _number(hl.level)] if hl else [""] * 3
    return [
        _number(c.difference),
        _number(c.interval.low),
        _number(c.interval.high),
        _number(c.shift),
        *bounds,
        *(f"{p:.6g}" for p in (c.t, c.t_holm, c.wilcoxon, c.holm)),
        str(c.wins),
        str(c.ties),
        str(c.losses),
    ]


def _kind(row: Row, reference: str | None) -> str:
    return "bound" if row.is_bound else "reference" if row.query == reference else "query"


def to_csv(table: FinalTable) -> str:
    """The table as CSV, every number in its own column; empty where there is none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for row in table.rows:
        seeds = row.score.seeds if row.score else 0
        writer.writerow(
            [
                cell(row.query),
                _kind(row, table.reference),
                seeds,
                *_spread_numbers(row.score),
                *_spread_numbers(row.area),
                _number(row.saved),
                *_test_numbers(row.comparison),
                *_spread_numbers(row.published),
            ]
        )
    return out.getvalue()


def to_markdown(table: FinalTable) -> str:
    """The table as Markdown with its notes below; numbers are right-aligned."""
    shown = columns(table)
    lines = [
        "| " + " | ".join(shown) + " |",
        "|" + "|".join("---" if i == 0 else "---:" for i in range(len(shown))) + "|",
    ]
    for cells in zip(*shown.values(), strict=True):
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join([*lines, "", *(f"{note}  " for note in footnotes(table))]) + "\n"


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
    """Escape for LaTeX; the sign of a number becomes a mathematical one."""
    escaped = "".join(_TEX.get(ch, ch) for ch in text)
    return re.sub(r"(?<![\w-])([+-])(?=\d)", r"$\1$", escaped)


def to_latex(table: FinalTable) -> str:
    """The table as a LaTeX ``table`` (package booktabs), bounds below a rule."""
    shown = columns(table)
    body = []
    for row, cells in zip(table.rows, zip(*shown.values(), strict=True), strict=True):
        if row.is_bound and r"\midrule" not in body:
            body.append(r"\midrule")
        body.append(" & ".join(map(_tex, cells)) + r" \\")
    return (
        "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(table.name)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(shown) - 1)}}}",
                r"\toprule",
                " & ".join(map(_tex, shown)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *(rf"\par\footnotesize {_tex(note)}" for note in footnotes(table)),
                r"\end{table}",
            ]
        )
        + "\n"
    )


WIDE = (
    *("Area under curve", "Hodges-Lehmann", "Paired t p", "Wilcoxon p", "Win/tie/loss"),
    *(AREA_MINUS, AREA_P),
)
"""Columns for which a terminal has no room."""


def to_rich(table: FinalTable) -> Table:
    """The table for a rich console: the reference in bold, bounds dimmed.

    Columns that do not fit 80 characters are left to the page and to the other forms;
    ``footnotes(table, WIDE)`` are the notes about the others.
    """
    from rich.table import Table
    from rich.text import Text

    shown = {name: cells for name, cells in columns(table).items() if name not in WIDE}
    made = Table(title=Text(table.name))
    for i, name in enumerate(shown):
        made.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    for row, cells in zip(table.rows, zip(*shown.values(), strict=True), strict=True):
        style = "dim" if row.is_bound else "bold" if row.query == table.reference else ""
        made.add_row(*(Text(c) for c in cells), style=style)
    return made


def to_text(table: FinalTable) -> str:
    """The table as aligned plain text, for a log or a terminal without rich."""
    shown = columns(table)
    width = [max(map(len, (name, *cells))) for name, cells in shown.items()]
    lines = [list(shown), ["-" * w for w in width], *zip(*shown.values(), strict=True)]
    text = [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, width, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*text, "", *footnotes(table)]) + "\n"
