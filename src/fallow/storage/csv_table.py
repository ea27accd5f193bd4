"""Tables in CSV format, for spreadsheets and other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fallow.storage.plain import cell


def csv_content(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Return a table of plain values as CSV (UTF-8, with a header, line ends of RFC 4180).

    ``names``: column names. ``rows``: one value per column, None for an empty cell. `cell` escapes
    text that a spreadsheet would execute as a formula.

    >>> csv_content(["id", "score"], [["=1+1", 0.5], ["b", None]])
    b"id,score\\r\\n'=1+1,0.5\\r\\nb,\\r\\n"
    """
    heads = [cell(name) for name in names]
    cells = [[_fill_cell(value) for value in row] for row in rows]
    # dtype object: otherwise integers with a missing value become floats
    table = pd.DataFrame(cells, columns=heads, dtype=object)
    text: str = table.to_csv(index=False, lineterminator="\r\n")
    return text.encode()


def _fill_cell(value: object) -> object:
    """Escape a cell as `cell` does; NaN is written as text, because pandas would leave it empty."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return cell(value)
