"""Features of a trained model or an agreement, from the columns of any table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.core.missing import BUCKETS, find_text_columns, name_buckets
from fallow.core.suggestions import require_known
from fallow.data.example_spec import ExampleSpec
from fallow.data.loaders.cells import (
    Levels,
    Numbers,
    find_levels,
    is_category,
    is_textual,
    read_written,
)
from fallow.data.loaders.hashing import hash_texts
from fallow.data.loaders.table_files import PERCENT, Table
from fallow.data.loaders.text_rules import is_empty, merge_names, number_in

Features = npt.NDArray[np.float32]


def encode_features(table: Table, spec: ExampleSpec, *, merge: bool = False) -> Features:
    """Return the features (n, d) of a table, NaN for empty cells.

    merge: texts that differ from a level only in their writing are that level.
    """
    columns = spec["columns"]
    marked = {mark[0]: mark[1] for mark in spec.get("marks", ())}
    offsets = spec.get("offsets", ())
    units = spec.get("units", {})
    written = find_text_columns(columns)
    hashed = {feature for column in written for feature in name_buckets(column)}
    known_levels: dict[str, dict[str, int]] = {}  # column -> level -> index of the feature
    features = np.empty((table.n_rows, len(columns)), dtype=np.float32)
    for index, feature in enumerate(columns):
        if feature in hashed:
            continue
        if feature in marked:
            features[:, index] = find_empty(table, marked[feature])
        elif feature in table.columns or "=" not in feature:
            offset = offsets[index] if offsets else 0.0
            with np.errstate(over="ignore"):  # beyond 3.4e38 is infinite
                features[:, index] = (
                    _encode_numbers(table, feature, units.get(feature, "")) - offset
                )
        else:
            column, level = _split_level(feature, table.columns)
            known_levels.setdefault(column, {})[level] = index
    for column, levels in known_levels.items():
        features[:, list(levels.values())] = _encode_texts(
            table, column, list(levels), merge=merge
        )
    for number, column in enumerate(written):  # whose features are the last
        texts = ["" if is_empty(text) else text for text in table.texts(column)]
        first = len(columns) - (len(written) - number) * BUCKETS
        hash_texts(texts, features[:, first : first + BUCKETS])
    return features


def _split_level(feature: str, known_columns: Mapping[str, object]) -> tuple[str, str]:
    """Return the column and the level of a feature ``column=level``.

    Both may contain "=", as in ``age=>=65``. The longest column of the table decides.
    """
    ends = [at for at, letter in enumerate(feature) if letter == "="]
    known = [at for at in ends if feature[:at] in known_columns]
    at = known[-1] if known else ends[0]
    return feature[:at], feature[at + 1 :]


def find_empty(table: Table, column: str) -> npt.NDArray[np.bool_]:
    """Return which cells of a column are empty: (n,)."""
    numbers = table.numbers(column)
    if numbers is not None:
        return np.isnan(numbers)
    return np.array([is_empty(text) for text in table.texts(column)], dtype=np.bool_)


def read_numbers(
    table: Table, column: str, explain: Callable[[int, str], str], unit: str = ""
) -> Numbers:
    """Return the numbers in a column (n,), NaN for an empty cell.

    Raises ValueError with the sentence of ``explain`` for the first row with a text; its arguments
    are the index of the row and the text. unit: a unit that cells may have.
    """
    numbers = table.numbers(column)
    if numbers is not None:
        return numbers * _check_format(table, column, unit)
    levels = levels_of(table, column)
    written = read_written(levels, table.marks.of(column))
    if written is not None and written.unit in ("", unit):
        return written.numbers
    is_text = np.array([*(number_in(name) is None for name in levels.names), False])
    row = int(is_text[levels.codes].argmax())
    raise ValueError(explain(row, levels.names[levels.codes[row]]))


def _check_format(table: Table, column: str, unit: str) -> float:
    """Return the factor of numbers of Excel, whose format may have the unit: 100 for percent.

    Raises ValueError for a number format with another unit.
    """
    shown = table.units.get(column, ())
    if unit == PERCENT and shown == (PERCENT,):
        return 100.0
    others = [one for one in shown if one != unit]
    if unit and others:
        raise ValueError(
            f"{table.name}: column {column!r} has the unit {others[0]!r} in the number format of "
            f"its cells, and should be in {unit!r}; convert the numbers"
        )
    return 1.0


def levels_of(table: Table, column: str) -> Levels:
    """Return the distinct texts of a column of any type."""
    require_known(column, table.columns, f"{table.name} has no column {column!r}")
    cells = table.columns[column]
    if not is_textual(cells) and not is_category(cells):
        cells = pa.chunked_array([pa.array(table.texts(column), pa.string())])
    return find_levels(cells)


def encode_levels(
    levels: Levels, known: Sequence[str], explain: Callable[[int, str], str]
) -> Features:
    """Return (n, known) 1 for cells with a known text, else 0; NaN for empty cells.

    Raises ValueError with the sentence of ``explain`` for the first row with another text.
    """
    # a known text may look like an empty cell, such as "none"
    number_of = {name: number for number, name in enumerate(known)}
    numbers = np.array([*(number_of.get(name, -2) for name in levels.names), -1])
    codes = numbers[levels.codes]
    if (codes == -2).any():
        row = int((codes == -2).argmax())
        raise ValueError(explain(row, levels.names[levels.codes[row]]))
    block = np.zeros((len(codes), len(known)), dtype=np.float32)
    for number in range(len(known)):
        block[:, number] = codes == number
    block[codes == -1] = np.nan
    return block


def _encode_numbers(table: Table, column: str, unit: str) -> Numbers:
    def explain(row: int, text: str) -> str:
        return (
            f"{table.name}: column {column!r}, row {row + 1}: {text!r} is a text, and the model "
            "was trained on numbers"
        )

    return read_numbers(table, column, explain, unit)


def _encode_texts(
    table: Table, column: str, known: Sequence[str], *, merge: bool
) -> Features:
    def explain(row: int, text: str) -> str:
        return (
            f"{table.name}: column {column!r}, row {row + 1}: {text!r} is not one of the texts "
            f"that the model was trained with: {', '.join(map(repr, known))}"
        )

    levels = levels_of(table, column)
    if merge:
        levels = levels._replace(names=_merge_with(levels.names, known))
    return encode_levels(levels, known, explain)


def _merge_with(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the known name for each that differs from it only in writing.

    >>> _merge_with(["m", "F", "x"], ["F", "M"])
    ['M', 'F', 'x']
    """
    counts = dict.fromkeys(names, 0) | dict.fromkeys(known, 1)
    merged = merge_names(counts)
    return [merged.get(name, name) for name in names]
