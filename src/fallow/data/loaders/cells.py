"""Cells of one column in Arrow: texts, numbers and distinct values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fallow.data.loaders.marks import Marks
from fallow.data.loaders.text_rules import (
    EMPTY,
    EXACT,
    TRUTH_DIGITS,
    is_empty,
    normal_name,
    number_in,
    split_unit,
)

Numbers = npt.NDArray[np.float64]
EMPTY_CELLS = pa.array(
    sorted({*EMPTY, *map(str.upper, EMPTY), *map(str.capitalize, EMPTY), "NaN", "NaT"})
)
"""Spellings of empty cells that are found without a look at each distinct text."""
PLAIN = Marks()
"""Format of numbers in Python."""


class Levels(NamedTuple):
    """Distinct texts of a column."""

    names: list[str]  # sorted, without the empty ones
    codes: npt.NDArray[np.int32]  # (n,) number of the name; -1 for an empty cell
    words: dict[str, int]  # texts that count as empty, with their number of rows


def is_textual(cells: pa.ChunkedArray) -> bool:
    """Return whether cells are texts whose meaning their type does not tell."""
    return bool(pa.types.is_string(cells.type))


def is_category(cells: pa.ChunkedArray) -> bool:
    """Return whether the type of the cells is a category."""
    return bool(pa.types.is_dictionary(cells.type))


def is_numeric(cells: pa.ChunkedArray) -> bool:
    """Return whether cells are numbers or Booleans by their type."""
    kind = cells.type
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def simplify(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells in one of the few types that are read.

    These are string, dictionary of strings, numbers, Booleans, dates and times, and nested types.
    The same value has the same type from every container.
    """
    kind = cells.type
    if isinstance(kind, pa.BaseExtensionType):
        cells = pa.chunked_array(
            [chunk.storage for chunk in cells.chunks], kind.storage_type
        )
        return simplify(cells)
    if pa.types.is_dictionary(kind):
        return _texts_of_values(cells).dictionary_encode()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return cells.cast(pa.string())
    if _is_binary(kind):
        return cells.cast(pa.binary()).cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return cells.cast(pa.float64())
    if pa.types.is_null(kind):
        return cells.cast(pa.string())
    return cells


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def cells_of_values(values: Sequence[object]) -> pa.ChunkedArray:
    """Return values of any types as cells; None, NaN, NaT and masked values are empty."""
    known = [value for value in values if not is_absent(value)]
    if known and all(isinstance(value, bool | np.bool_) for value in known):
        return _to_arrow(values, bool, pa.bool_())
    if known and all(_is_number(value) for value in known):
        return _to_arrow(values, float, pa.float64())
    return _to_arrow(values, format_value, pa.string())


def _to_arrow(
    values: Sequence[object], convert: Callable[..., object], kind: pa.DataType
) -> pa.ChunkedArray:
    cells = [None if is_absent(value) else convert(value) for value in values]
    return pa.chunked_array([pa.array(cells, kind)])


def is_absent(value: object) -> bool:
    """Return whether a value is missing: None, NaN, a mask, or a missing value of pandas."""
    if value is None or value is np.ma.masked:
        return True
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number | Decimal) and not isinstance(
        value, bool
    )


def format_value(value: object) -> str:
    """Return a value as text: an integer without a decimal point, bytes as UTF-8.

    >>> format_value(3.0), format_value(b"benign"), format_value(Decimal("1.10"))
    ('3', 'benign', '1.10')
    """
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _texts_of_values(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells of any type as names, each distinct value once."""
    chunks = []
    for names, indices in _name_values(cells):
        chunks.append(pa.array(names, pa.string()).take(indices))
    return pa.chunked_array(chunks, pa.string())


def _name_values(cells: pa.ChunkedArray) -> Iterator[tuple[list[str], pa.Array]]:
    """Yield the names of the distinct values of each chunk, and the index of each cell."""
    distinct = cells if is_category(cells) else cells.dictionary_encode()
    names: list[str] = []
    dictionary = None
    for chunk in distinct.unify_dictionaries().chunks:
        if dictionary is None or not chunk.dictionary.equals(dictionary):
            dictionary = chunk.dictionary
            names = [
                "" if value is None else normal_name(format_value(value))
                for value in dictionary.to_pylist()
            ]
        yield names, chunk.indices


def texts_of(cells: pa.ChunkedArray) -> list[str]:
    """Return each cell as a name, "" for an empty one."""
    names: list[str] = pc.fill_null(_texts_of_values(cells), "").to_pylist()
    return names


def names_of(cells: pa.ChunkedArray) -> npt.NDArray[np.str_]:
    """Return `texts_of` as an array (n,), for columns with few short texts."""
    chunks = [np.zeros(0, dtype=np.str_)]
    for names, indices in _name_values(cells):
        known = np.array([*names, ""], dtype=np.str_)
        chunks.append(known[_read_codes(indices, names)])
    return np.concatenate(chunks)


def _read_codes(indices: pa.Array, names: Sequence[str]) -> npt.NDArray[Any]:
    """Return the index of each name, and behind the last one for an empty cell: (n,)."""
    codes: npt.NDArray[Any] = indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
    return codes


def labels_of(cells: pa.ChunkedArray, marks: Marks = PLAIN) -> npt.NDArray[Any]:
    """Return labels: integers, numbers (NaN for unlabeled), or texts ("" for unlabeled)."""
    kind = cells.type
    has_marks = is_textual(cells) and not marks.is_plain
    if has_marks and numbers_of(cells, marks) is not None:
        cells = marks.plain_numbers(pc.utf8_trim_whitespace(cells))
    elif has_marks:
        return _plain_units(names_of(cells), marks)
    if pa.types.is_integer(kind) and not cells.null_count:
        whole: npt.NDArray[Any] = cells.to_numpy()
        dtype = np.uint64 if kind == pa.uint64() else np.int64
        return whole.astype(dtype)
    if is_numeric(cells) and not pa.types.is_boolean(kind):
        return _to_float64(cells)
    return names_of(cells)


def _plain_units(names: npt.NDArray[np.str_], marks: Marks) -> npt.NDArray[np.str_]:
    """Return names with numbers in Python's format, if all are numbers with a unit."""
    distinct, codes = np.unique(names, return_inverse=True)
    texts: list[str] = distinct.tolist()
    parts = {text: split_unit(text) for text in texts if not is_empty(text)}
    number_of = {text: part[0] for text, part in parts.items() if part is not None}
    if len(number_of) < len(parts):
        return names
    plain = plain_texts([number_of.get(text, "") for text in texts], marks)
    pairs = zip(texts, plain, strict=True)
    written = [text.replace(number_of.get(text, ""), number, 1) for text, number in pairs]
    return np.array(written, dtype=np.str_)[codes]


def find_levels(cells: pa.ChunkedArray) -> Levels:
    """Return the distinct texts of a column of texts or categories."""
    distinct = cells if is_category(cells) else cells.dictionary_encode()
    distinct = distinct.unify_dictionaries().combine_chunks()
    if isinstance(distinct, pa.ChunkedArray):  # more than one chunk is left
        distinct = distinct.chunk(0)
    raw = [normal_name(text or "") for text in distinct.dictionary.to_pylist()]
    names = sorted({text for text in raw if not is_empty(text)})
    code_of = {name: code for code, name in enumerate(names)}
    recode = np.array([*(code_of.get(text, -1) for text in raw), -1], dtype=np.int32)
    indices = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    words: dict[str, int] = {}
    if len(raw):
        counts = np.bincount(indices[indices >= 0], minlength=len(raw)).tolist()
        for text, count in zip(raw, counts, strict=True):
            if text and is_empty(text):
                words[text] = words.get(text, 0) + count
    return Levels(names, recode[indices], words)


def numbers_of(cells: pa.ChunkedArray, marks: Marks) -> Numbers | None:
    """Return the numbers in cells, (n,) with NaN for an empty cell; None if one is text.

    Numbers are those of CSV programs: ``1_0``, ``0x1F`` and full-width digits are text.
    """
    if is_numeric(cells):
        return _to_float64(cells)
    if not is_textual(cells):
        return None
    numbers = _cast(cells, marks)
    if numbers is None:
        trimmed = pc.utf8_trim_whitespace(cells)
        is_missing = pc.is_in(trimmed, value_set=EMPTY_CELLS)
        numbers = _cast(pc.if_else(is_missing, None, trimmed), marks)
    return numbers


def _cast(cells: pa.ChunkedArray, marks: Marks) -> Numbers | None:
    plain = marks.plain_numbers(cells)
    try:
        numbers = _to_float64(plain.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    is_nan = np.isnan(numbers)
    if int(is_nan.sum()) > cells.null_count:  # pyarrow takes "nan(1)" for NaN
        words = cells.filter(pa.array(is_nan)).drop_null()
        if not pc.all(pc.is_in(words, value_set=EMPTY_CELLS)).as_py():
            return None
    return numbers


def _to_float64(cells: pa.ChunkedArray) -> Numbers:
    if not pa.types.is_floating(cells.type):
        cells = cells.cast(pa.float64(), safe=False)
    numbers = np.empty(len(cells), dtype=np.float64)
    return _copy_chunks(cells, numbers)


def read_float32(cells: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the numbers of a column of float32, which are half the size of float64: (n,)."""
    return _copy_chunks(cells, np.empty(len(cells), dtype=np.float32))


def _copy_chunks(cells: pa.ChunkedArray, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy cells into an array, NaN for an empty one, and return it."""
    at = 0
    for chunk in cells.chunks:
        numbers[at : at + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
        at += len(chunk)
    return numbers


class Written(NamedTuple):
    """Numbers that are written as texts."""

    numbers: Numbers  # (n,) NaN for an empty cell
    unit: str  # of all cells, or ""
    is_truth: bool  # some were "true" or "false"


def read_written(levels: Levels, marks: Marks) -> Written | None:
    """Return Booleans, numbers with spaces, and numbers with one unit; None for other texts."""
    digits = [TRUTH_DIGITS.get(name.lower(), name) for name in levels.names]
    truths = [number_in(digit) for digit in digits]
    if digits != levels.names and set(truths) <= {0.0, 1.0}:
        return Written(_spread(truths, levels), "", is_truth=True)
    plain = [number_in(text) for text in plain_texts(levels.names, marks)]
    if None not in plain:
        return Written(_spread(plain, levels), "", is_truth=False)
    parts = [part for part in map(split_unit, levels.names) if part is not None]
    if len(parts) < len(levels.names) or len({unit for _, unit in parts}) != 1:
        return None
    measured = [number_in(text) for text in plain_texts([text for text, _ in parts], marks)]
    if None in measured:
        return None
    return Written(_spread(measured, levels), parts[0][1], is_truth=False)


def plain_texts(texts: Sequence[str], marks: Marks) -> list[str]:
    """Return texts with their numbers in Python's format."""
    cells = pa.chunked_array([pa.array(texts, pa.string())])
    plain: list[str] = marks.plain_numbers(cells).to_pylist()
    return plain


def _spread(values: Sequence[float | None], levels: Levels) -> Numbers:
    """Return the number of each cell from those of the levels: (n,), NaN for an empty one."""
    table = np.array([*values, np.nan], dtype=np.float64)  # the code -1 is the last
    return table[levels.codes]


def has_text_among(cells: pa.ChunkedArray, part: str, *, at_start: bool = False) -> bool:
    """Return whether some cell contains a text, or starts with it."""
    if not is_textual(cells):
        return False
    contains = pc.starts_with if at_start else pc.match_substring
    return bool(pc.any(contains(cells, pattern=part)).as_py())


def has_text_like(cells: pa.ChunkedArray, pattern: str) -> bool:
    """Return whether some cell contains a text with a pattern."""
    if not is_textual(cells):
        return False
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())


def count_distinct(cells: pa.ChunkedArray) -> int:
    """Count the different cells, also of whole numbers beyond the digits of float64."""
    if is_textual(cells):
        cells = pc.utf8_trim_whitespace(cells)
    return int(pc.count_distinct(cells).as_py())


def are_large_integers(cells: pa.ChunkedArray) -> bool:
    """Return whether a whole number has more digits than float64 keeps."""
    if not pa.types.is_integer(cells.type):
        return False
    extremes = pc.min_max(cells).as_py()
    bounds = [abs(value) for value in extremes.values() if value is not None]
    return bool(bounds) and max(bounds) > EXACT
