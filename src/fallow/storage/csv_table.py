"""Tables as CSV, for spreadsheets and other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fallow.storage.plain import cell


def csv_content(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """A CSV file of plain values, UTF-8, with a header and lines that end as RFC 4180 has it.

    names: of the columns; rows: a value for each column, where None is an empty cell.  A text that
    a spreadsheet would run as a formula is written as `cell` has it.

    >>> csv_content(["id", "score"], [["=1+1", 0.5], ["b", None]])
    b"id,score\\r\\n'=1+1,0.5\\r\\nb,\\r\\n"
    """
    heads = [cell(name) for name in names]
    cells = [[_fill_cell(value) for value in row] for row in rows]
    # as objects: a column of whole numbers with a gap would turn into one of fractions
    table = pd.DataFrame(cells, columns=heads, dtype=object)
    text: str = table.to_csv(index=False, lineterminator="\r\n")
    return text.encode()


def _fill_cell(value: object) -> object:
    """`cell`, but for NaN: it was measured, and pandas would leave its cell empty."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return cell(value)
