"""Numbers in two units that their cells do not name: in one column, or at one of the sites."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from fallow.core.wording import count_noun, join_some
from fallow.data.loaders.text_rules import TIGHT
from fallow.data.reading import Finding, warning

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
SEARCHED = 10_000
"""Largest number of rows of a column that are searched."""
FEWEST_ROWS = 10
"""Smallest number of rows that show a unit."""
FEWEST_NUMBERS = 5
"""Smallest number of different numbers that are no codes."""
SMALLEST_GAP = 2.0
"""Smallest ratio between numbers in two units that are both in one column."""
SMALLEST_RATIO = 1.8
"""Smallest ratio of the medians of two sites with different units, such as kg and lb."""
CELSIUS = (34.0, 43.0)
"""Range of temperatures of the body."""
FEWEST_TEMPERATURES = 4
"""Smallest number of rows in which temperatures are looked for."""
MIDDLE = (0.05, 0.95)
"""Quantiles between which a part of the numbers lies, except for outliers."""
UNIT_COLUMN = re.compile(r"(.*[\W_])?(units?|einheit(en)?|unité|value_?uom)", re.IGNORECASE)
"""Names of columns with the units of numbers in another column."""
FIX = "convert all numbers to one unit"


@final
class Sites(NamedTuple):
    """Sites of the rows of a table, or its parts: where each is, and that of each row."""

    names: tuple[str, ...]  # such as "at site 'a'"
    codes: npt.NDArray[np.int64]  # (n,)

    @staticmethod
    def of(sites: npt.NDArray[Any] | None) -> Sites | None:
        """Return the sites from the name of the site of each row, or None without sites."""
        if sites is None:
            return None
        names, codes = np.unique(sites, return_inverse=True)
        where = tuple(f"at site {str(name)!r}" for name in names)
        return Sites(where, codes.astype(np.int64))

    @staticmethod
    def of_tests(n: int, total: int) -> Sites:
        """Return the two parts of a table whose first ``n`` rows are those of training."""
        codes = (np.arange(total) >= n).astype(np.int64)
        return Sites(("in the training table", "in the test table"), codes)


def warn_of_units(
    what: str, values: npt.NDArray[Any], sites: Sites | None = None
) -> list[Finding]:
    """Return a warning of a column whose numbers seem to have two units, if they do.

    what: such as "column 'age'".  values: (n,) NaN for empty cells.
    """
    rows = slice(None, None, max(1, -(-len(values) // SEARCHED)))
    some = values[rows].astype(np.float64)
    is_known = np.isfinite(some) & (some != 0)
    known = some[is_known]
    if not len(known) or known.min() < 0:
        return []
    findings = []
    if sites is not None:
        codes = sites.codes[rows][is_known]
        findings = _warn_of_other_unit(what, known, Sites(sites.names, codes))
    return findings or _warn_of_two_units(what, known) or _warn_of_temperatures(what, known)


def is_celsius(values: Numbers) -> Mask:
    """Return which numbers may be temperatures of the body in °C: (n,)."""
    low, high = CELSIUS
    result: Mask = (values >= low) & (values <= high)
    return result


def is_fahrenheit(values: Numbers) -> Mask:
    """Return which numbers may be temperatures of the body in °F: (n,).

    >>> is_fahrenheit(np.array([37.0, 98.6])).tolist()
    [False, True]
    """
    return is_celsius((values - 32) / 1.8)


def _warn_of_temperatures(what: str, values: Numbers) -> list[Finding]:
    """Return a warning of few temperatures of the body in °C and °F.

    Both parts have a fraction or two numbers, so that they are no codes or doses.
    """
    parts = (values[is_celsius(values)], values[is_fahrenheit(values)])
    n_found = sum(map(len, parts))
    if n_found < max(len(values), FEWEST_TEMPERATURES) or not all(
        map(_may_be_measured, parts)
    ):
        return []
    celsius, fahrenheit = (f"{part.min():g} to {part.max():g}" for part in parts)
    sentence = (
        f"{what} may have two units: {count_noun(len(parts[0]), 'number')} from {celsius} (°C), and "
        f"{len(parts[1]):,} from {fahrenheit} (°F)"
    )
    return [warning(sentence, FIX)]


def _may_be_measured(values: Numbers) -> bool:
    """Return whether numbers are no codes: some has a fraction, or two differ."""
    return bool((values % 1 != 0).any()) or len(np.unique(values)) > 1


def shows_measurements(values: Numbers) -> bool:
    """Return whether the numbers of a site are no codes: many, or some with fractions.

    >>> shows_measurements(np.array([36.5, 37.0])), shows_measurements(np.array([1.0, 2.0]))
    (True, False)
    """
    n_different = len(np.unique(values))
    has_fractions = bool((values % 1 != 0).any())
    return n_different >= FEWEST_NUMBERS or (n_different > 1 and has_fractions)


def _warn_of_two_units(what: str, values: Numbers) -> list[Finding]:
    """Return a warning of positive numbers in two parts that are far apart, as 1.7 and 170 are.

    The gap between the parts is wider than each of them, so that they may be one quantity.
    """
    numbers = np.unique(values)
    if len(numbers) < 2 * FEWEST_NUMBERS:
        return []
    gaps = numbers[1:] / numbers[:-1]
    at = int(gaps.argmax()) + 1  # first number above the largest gap
    parts = (values[values < numbers[at]], values[values >= numbers[at]])
    if not all(map(_shows_unit, parts)):
        return []
    widest = max(high / low for low, high in map(_find_middle, parts))
    if gaps[at - 1] < max(SMALLEST_GAP, widest):
        return []
    below, above = parts
    sentence = (
        f"{what} may have two units: {count_noun(len(below), 'number')} from "
        f"{below.min():g} to {below.max():g}, and {len(above):,} from {above.min():g} to "
        f"{above.max():g}"
    )
    return [warning(sentence, FIX)]


def _warn_of_other_unit(what: str, values: Numbers, sites: Sites) -> list[Finding]:
    """Return a warning of a site whose positive numbers are far from those of the others."""
    for code, name in reversed([*enumerate(sites.names)]):
        is_here = sites.codes == code
        here, others = values[is_here], values[~is_here]
        if not _shows_unit(here) or not _shows_unit(others):
            continue
        ratio = float(np.median(here) / np.median(others))
        (low, high), (other_low, other_high) = _find_middle(here), _find_middle(others)
        is_apart = low > other_high or high < other_low
        if is_apart and max(ratio, 1 / ratio) >= SMALLEST_RATIO:
            sentence = (
                f"{what} goes from {low:.3g} to {high:.3g} {name}, and from "
                f"{other_low:.3g} to {other_high:.3g} elsewhere (without outliers), which may be "
                "another unit"
            )
            return [warning(sentence, FIX)]
    return []


def _shows_unit(values: Numbers) -> bool:
    """Return whether there are enough different numbers."""
    return len(values) >= FEWEST_ROWS and len(np.unique(values)) >= FEWEST_NUMBERS


def _find_middle(values: Numbers) -> tuple[float, float]:
    low, high = np.quantile(values, MIDDLE)
    return float(low), float(high)


def warn_of_unit_column(name: str, counts: Mapping[str, int]) -> list[Finding]:
    """Return a warning of a column with several units, which other columns are in.

    counts: number of rows of each text in the column.

    >>> warn_of_unit_column("glucose_unit", {"mg/dL": 3, "mmol/L": 5})[0].fix
    'convert all numbers to one unit'
    >>> warn_of_unit_column("unit", {"ICU": 3, "ER": 5})
    []
    """
    if len(counts) < 2 or UNIT_COLUMN.fullmatch(name.strip()) is None:
        return []
    if not any("/" in text or text in TIGHT.split() for text in counts):
        return []
    listed = [f"{text!r} ({count_noun(n, 'row')})" for text, n in counts.items()]
    sentence = (
        f"column {name!r} has the units {join_some(listed)}, so that numbers in other columns have "
        "different units"
    )
    return [warning(sentence, FIX)]
