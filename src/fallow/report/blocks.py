"""Blocks of a section (tables, figures, notes) as values, which templates render."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, TypeVar

from fallow.storage.plain import cell as as_cell
from fallow.storage.plain import join_csv, markdown_cell, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

NOTHING = "–"
"""Placeholder of a missing cell."""
Cells = Mapping[str, str | None]
"""Cells of a row by the name of their column; None is missing."""
T = TypeVar("T")


def show(value: T | None, text: Callable[[T], str]) -> str | None:
    """Return a value as text, or None for a missing one."""
    if value is None:
        return None
    return text(value)


@dataclass(frozen=True)
class Table:
    """A captioned table.

    The first ``words`` columns are text (left), the others are numbers (right).
    ``classes`` is a CSS class per row, and ``swatches`` is a color per row.  ``numbers`` is
    the text of the CSV file behind the table, if it has more columns than the table.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    classes: Sequence[str] = ()
    swatches: Sequence[str] = ()
    numbers: str = ""
    kind: ClassVar[str] = "table"

    @staticmethod
    def of(
        caption: str,
        rows: Sequence[Cells],
        *,
        words: int = 1,
        classes: Sequence[str] = (),
        swatches: Sequence[str] = (),
        numbers: str = "",
    ) -> Table:
        """Return a table of rows by column, in the order of the longest row.

        Columns without a cell are omitted.
        """
        order = dict.fromkeys(chain(*sorted(rows, key=len, reverse=True)))
        known = []
        for row in rows:
            known.append({name: text for name, text in row.items() if text is not None})
        header = [name for name in order if any(name in row for row in known)]
        cells = [[row.get(name, NOTHING) for name in header] for row in known]
        return Table(caption, header, cells, words, classes, swatches, numbers)

    def frame(self) -> pd.DataFrame:
        """Return the cells as a data frame, as they are displayed."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(self.header))

    def markdown(self) -> list[str]:
        """Return the cells as the lines of a Markdown table, numbers to the right."""
        rule = "|---" * self.words + "|---:" * (len(self.header) - self.words) + "|"
        lines = []
        for row in [self.header, *self.rows]:
            lines.append(f"| {' | '.join(map(markdown_cell, row))} |")
        return [lines[0], rule, *lines[1:]]

    @property
    def csv(self) -> str:
        """Return the content of the CSV file behind the table."""
        if self.numbers:
            return self.numbers
        return join_csv([self.header, *self.rows], harmless, "\n")

    @property
    def link(self) -> str:
        """Return the file as a data URL."""
        # Without a byte-order mark, spreadsheets misread dashes and non-Latin letters.
        content = base64.b64encode(self.csv.encode("utf-8-sig")).decode("ascii")
        return f"data:text/csv;charset=utf-8;base64,{content}"

    @property
    def file(self) -> str:
        """Return the name of the file."""
        return f"{slug(self.caption)}.csv"


@dataclass(frozen=True)
class Figure:
    """A drawing with a caption that explains how to read it."""

    svg: str
    caption: str
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Note:
    """A paragraph in small type."""

    text: str
    kind: ClassVar[str] = "note"


@dataclass(frozen=True)
class Notes:
    """Sentences below a table, in small type."""

    items: Sequence[str]
    kind: ClassVar[str] = "notes"


@dataclass(frozen=True)
class Command:
    """Command that the user typed."""

    text: str
    kind: ClassVar[str] = "command"


@dataclass(frozen=True)
class CollapsibleBlock:
    """Blocks that are collapsed below a title."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    kind: ClassVar[str] = "fold"


Block = Table | Figure | Paragraph | Note | Notes | Command | CollapsibleBlock
Blocks = Sequence[Block]


def show_figure(figure: Drawing, key: str, caption: str, *, alt: str = "") -> Figure:
    """Return a figure with its caption.  ``key`` is the prefix of all its ids.

    ``alt`` is the text alternative for screen readers.  The default is the caption.
    """
    from fallow.report.figures.style import to_svg  # needs matplotlib, which a site lacks

    return Figure(to_svg(figure, key, alt or caption), caption)


def slug(text: str) -> str:
    """Return a text as part of a URL.

    >>> slug("Final score, %"), slug("±")
    ('final-score', 'part')
    """
    words = re.findall("[a-z0-9]+", text.lower())
    return "-".join(words[:8]) or "part"


NUMBER = re.compile(r"[+-]\d[^(|!=@'\";\t\r\n]*")
"""Cell that begins with a sign and contains a number, with its interval or unit, and
therefore no formula.
"""


def harmless(cell: object) -> str:
    """Return a cell that no spreadsheet evaluates, because tables contain texts from sites.

    >>> (
    ...     harmless("=1+1"),
    ...     harmless("-0.5"),
    ...     harmless("-0.5 [-1.0, +0.2]"),
    ...     harmless("-2+cmd|' /c'!A"),
    ... )
    ("'=1+1", '-0.5', '-0.5 [-1.0, +0.2]', "'-2+cmd|' /c'!A")
    """
    text = str(cell)
    if NUMBER.fullmatch(text):
        return text
    return str(as_cell(printable(text)))


def present(blocks: Iterable[Block | None]) -> list[Block]:
    """Return the blocks that are not None."""
    return [block for block in blocks if block is not None]
