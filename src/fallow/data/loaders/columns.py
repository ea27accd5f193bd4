"""Recognition of the columns of a table: numbers, categories, texts, or omitted columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from fallow.core.missing import BUCKETS, CHARACTERS, WORDS, name_buckets, name_marks
from fallow.core.wording import join_some
from fallow.data.loaders.dialect import Dialect
from fallow.data.loaders.table_files import EMPTY, ColumnCells, Numbers, number_in
from fallow.data.reading import ColumnRead, Kind

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer

BLOCK = 1024  # number of texts per block, to limit memory
NGRAMS = (3, 5)  # characters, within words


def hash_texts(
    texts: Sequence[str], out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Return the hashed n-grams of each text, (n, BUCKETS); an empty text has zeros.

    Hashing needs no vocabulary, so each site computes the same features on its own.  A feature is a
    sum of signed counts.  `fallow.encoders.HashedText` weights them by inverse document frequency.

    out: array to write into.

    >>> x = hash_texts(["cough since monday", ""])
    >>> x.shape, float(abs(x[0, :2048]).sum()), float(abs(x[1]).sum())
    ((2, 4096), 3.0, 0.0)
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=WORDS, norm=None, dtype=np.float32)
    characters = HashingVectorizer(
        n_features=CHARACTERS,
        analyzer="char_wb",
        ngram_range=NGRAMS,
        norm=None,
        dtype=np.float32,
    )
    if out is None:
        out = np.empty((len(texts), BUCKETS), dtype=np.float32)
    tokens_in = words.build_analyzer()
    for begin in range(0, len(texts), BLOCK):
        block = [text.lower() for text in texts[begin : begin + BLOCK]]
        rows = out[begin : begin + len(block)]
        rows[:, :WORDS] = hash_parts(words, [tokens_in(text) for text in block])
        rows[:, WORDS:] = hash_parts(characters, [text.split() for text in block])
    return out


def hash_parts(
    vectorizer: HashingVectorizer, parts: Sequence[Sequence[str]]
) -> npt.NDArray[np.float32]:
    """Return the hashed features of texts, (n, features), as sums over their parts.

    Each different part of the texts is hashed once.  Counts are whole numbers, so the sums are
    exact.  parts: those of each text, such as words.
    """
    from scipy.sparse import csr_array

    places: dict[str, int] = {}
    index = [places.setdefault(part, len(places)) for text in parts for part in text]
    if not places:
        return np.zeros((len(parts), vectorizer.n_features), dtype=np.float32)
    ends = np.cumsum([0, *map(len, parts)])
    ones = np.ones(len(index), dtype=np.float32)
    counts = csr_array((ones, index, ends), shape=(len(parts), len(places)))
    features: npt.NDArray[np.float32] = (counts @ vectorizer.transform(places)).toarray()
    return features


MOST_LEVELS = 50  # maximum number of texts of a category; columns with more contain names or sentences
FEW_VALUES = 12  # maximum number of values of categories that include numbers
ENOUGH = 20  # minimum number of rows for a rule about nearly every row
DIFFERENT_TEXTS = "different texts in"  # of a column that could be a text column
MANY = 100  # minimum number of rows for the detection of counters
NEARLY = 0.9  # share of the non-empty rows
IDS = re.compile(
    r"(.*[\W_])?(id|ids|nr|no|number|key|uuid|guid|index|mrn|rowid)|unnamed: 0", re.I
)
"""Names of identifier columns, if no two rows are equal."""
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
)


@final
@dataclass(frozen=True, eq=False)
class RecognizedColumn:
    """One column, recognized: numbers (n,) with NaN where a cell is empty, levels, or texts.

    codes: (n,) int32, the level of each cell, -1 for an empty cell. texts: n texts of a
    text column, "" for an empty cell. A column that only appears to be an identifier is
    left out, and keeps its numbers: see `keep_at_least_one`.
    """

    read: ColumnRead
    numbers: Numbers | None = None
    codes: npt.NDArray[np.int32] | None = None
    texts: tuple[str, ...] | None = None
    infinite: int = 0

    def __len__(self) -> int:
        if self.codes is not None:
            return len(self.codes)
        if self.texts is not None:
            return len(self.texts)
        assert self.numbers is not None  # noqa: S101 - a used column is one of both
        return len(self.numbers)

    @property
    def is_used(self) -> bool:
        return self.read.is_feature

    @property
    def features(self) -> tuple[str, ...]:
        """Features of the column: itself, ``name=level`` for each level, or those of a text."""
        if self.texts is not None:
            return name_buckets(self.read.name)
        if self.codes is None:
            return (self.read.name,)
        return tuple(f"{self.read.name}={level}" for level in self.read.values)

    @property
    def is_missing(self) -> npt.NDArray[np.bool_]:
        """Return which cells are empty: (n,).  An empty text is a text."""
        if self.texts is not None:
            return np.zeros(len(self.texts), dtype=np.bool_)
        if self.codes is not None:
            return self.codes < 0
        if self.numbers is not None and not self.read.missing:
            return np.zeros(len(self.numbers), dtype=np.bool_)
        assert self.numbers is not None  # noqa: S101 - a used column is one of both
        return np.isnan(self.numbers)


def names_rows(name: str) -> bool:
    """Return whether the name of a column is common for identifiers.

    >>> names_rows("patient_id"), names_rows("Nr."), names_rows("humid")
    (True, True, False)
    """
    return IDS.fullmatch(name.strip().rstrip(".")) is not None


def keep_at_least_one(columns: Sequence[RecognizedColumn]) -> list[RecognizedColumn]:
    """Return the columns; if none of them is used, counters become numbers, such as a time."""
    if any(column.is_used for column in columns):
        return list(columns)
    kept = []
    for column in columns:
        if column.numbers is not None:  # it was left out because it is a counter
            read = replace(column.read, kind="number", role="feature", reason="")
            column = replace(column, read=read)
        kept.append(column)
    return kept


def recognize_column(
    name: str,
    cells: ColumnCells,
    file: str,
    *,
    must: bool = False,
    dialect: Dialect | None = None,
) -> RecognizedColumn:
    """Recognize a column.

    must: the column was requested, so it is used or an error.  A requested column of free text is a
    text column.  Raises ValueError for text among numbers, with its row and a fix, and for a
    requested column that cannot be used.
    """
    if cells.numbers is not None:
        return _recognize_numbers(name, cells.numbers, must)
    assert cells.texts is not None  # noqa: S101 - a column is one of both
    texts = cells.texts
    levels = sorted({text for text in set(texts) if text.lower() not in EMPTY})
    code_of = {level: code for code, level in enumerate(levels)}
    codes = np.array([code_of.get(text, -1) for text in texts], dtype=np.int32)
    missing = int((codes < 0).sum())
    value = len(texts) - missing
    if not levels:
        return RecognizedColumn(
            ColumnRead(name, "empty", "left out", missing=missing, reason="it is empty")
        )
    if cells.is_date or are_dates(levels):
        return _leave_out(name, "date", missing, describe_dates(levels), must, file)
    if not cells.is_category:
        spelling = dialect or Dialect()
        as_number = [number_in(spelling.number(level)) for level in levels]
        if None not in as_number:
            return _recognize_number_texts(name, codes, levels, as_number, must)
        _check_mixed(name, texts, codes, as_number, file)
    if len(levels) == 1 and not missing and not must:
        why = f"every row has {levels[0]!r}"
        return RecognizedColumn(ColumnRead(name, "constant", "left out", reason=why))
    reason = explain_many_texts(len(levels), value)
    if reason is not None and must:
        return _recognize_text(name, codes, levels)
    if reason is not None:
        return _leave_out(name, "identifier", missing, reason, must, file)
    read = ColumnRead(name, "category", values=tuple(levels), missing=missing)
    return RecognizedColumn(read, codes=codes)


def summarize_texts(
    cells: Sequence[str], enough: int = ENOUGH
) -> tuple[list[str], str | None]:
    """Return the different texts of a column, sorted, and why it is not a feature, or None.

    Numbers and empty columns have no reason.  enough: see `explain_many_texts`.
    """
    filled = [cell for cell in cells if cell.lower() not in EMPTY]
    levels = sorted(set(filled))
    if are_numbers(levels):
        return levels, None
    if are_dates(levels):
        return levels, describe_dates(levels)
    return levels, explain_many_texts(len(levels), len(filled), enough)


def are_numbers(levels: Sequence[str]) -> bool:
    """Return whether all of these texts are numbers."""
    return all(number_in(level) is not None for level in levels)


def describe_dates(levels: Sequence[str]) -> str:
    """Explain that a column of dates is not a feature."""
    return f"it contains dates or times ({levels[0]!r}, ...)"


def explain_many_texts(n_levels: int, n_values: int, enough: int = ENOUGH) -> str | None:
    """Explain that a column with too many different texts is not a feature, or return None.

    n_values: number of non-empty cells. enough: minimum number of texts for the rule that
    texts which differ in nearly every row are identifiers.

    >>> explain_many_texts(30, 30)
    'it is an identifier (30 different texts in 30 rows)'
    >>> explain_many_texts(4, 30) is None
    True
    """
    counted = f"({n_levels:,} {DIFFERENT_TEXTS} {n_values:,} rows)"
    if names_every_row(n_levels, n_values, enough):
        return f"it is an identifier {counted}"
    if n_levels > MOST_LEVELS:
        return f"it is free text {counted}"
    return None


def names_every_row(n_levels: int, n_values: int, enough: int = ENOUGH) -> bool:
    """Return whether the texts differ in nearly every row, like identifiers; arguments as
    above.
    """
    return n_levels >= NEARLY * n_values and n_values >= enough


def _recognize_text(
    name: str, codes: npt.NDArray[np.int32], levels: Sequence[str]
) -> RecognizedColumn:
    """Return the column as texts, empty ones included."""
    known = (*levels, "")  # the code -1 is the last
    texts = tuple(known[code] for code in codes.tolist())
    return RecognizedColumn(ColumnRead(name, "text"), texts=texts)


def _leave_out(
    name: str, kind: Kind, missing: int, reason: str, must: bool, file: str
) -> RecognizedColumn:
    """Leave the column out, or raise ValueError if it was requested."""
    if must:
        raise ValueError(
            f"{file}: column {name!r} cannot be a feature: {reason}; omit it, or declare it "
            "as the identifier with --id (id=)"
        )
    return RecognizedColumn(
        ColumnRead(name, kind, "left out", missing=missing, reason=reason)
    )


def _recognize_number_texts(
    name: str,
    codes: npt.NDArray[np.int32],
    levels: Sequence[str],
    as_number: Sequence[float | None],
    must: bool,
) -> RecognizedColumn:
    """Convert texts that are all numbers, from an identifier or label column, to numbers."""
    value = int((codes >= 0).sum())
    missing = len(codes) - value
    if names_rows(name) and not must and len(levels) == value and value >= ENOUGH:
        why = f"it is an identifier ({len(levels):,} different numbers in {value:,} rows)"
        read = ColumnRead(name, "identifier", "left out", missing=missing, reason=why)
        return RecognizedColumn(read)
    table = np.array([*as_number, np.nan], dtype=np.float64)  # the code -1 is the last
    with np.errstate(over="ignore"):
        numbers = table[codes].astype(np.float32)
    return _recognize_numbers(name, numbers, must)


def _recognize_numbers(name: str, numbers: Numbers, must: bool) -> RecognizedColumn:
    flat = np.ascontiguousarray(numbers)  # which may be a column of an array
    is_missing = np.isnan(flat)
    missing = int(is_missing.sum())
    value = flat
    if missing:
        value = flat[~is_missing]
    if not len(value):
        read = ColumnRead(name, "empty", "left out", missing=missing, reason="it is empty")
        return RecognizedColumn(read)
    low = float(value.min())
    high = float(value.max())
    is_constant = low == high and bool(np.isfinite(low))
    if is_constant and not missing and not must:
        return RecognizedColumn(
            ColumnRead(name, "constant", "left out", reason=f"every row has {low:g}")
        )
    if not must and not missing and len(value) >= MANY and _counts_rows(value):
        why = f"it is a counter ({low:g}, {low + 1:g}, ... {high:g})"
        return RecognizedColumn(
            ColumnRead(name, "counter", "left out", reason=why), numbers=numbers
        )
    infinite = 0
    if not np.isfinite([low, high]).all():
        infinite = int(np.isinf(value).sum())
    read = ColumnRead(name, "number", missing=missing)
    return RecognizedColumn(read, numbers=numbers, infinite=infinite)


def _counts_rows(numbers: Numbers) -> bool:
    """Return whether each row is the previous one plus one, starting at 0 or 1."""
    if numbers[0] not in (0, 1):
        return False
    return bool((np.diff(numbers) == 1).all())


def are_dates(levels: Sequence[str]) -> bool:
    """Return whether nearly all of these texts are dates or times.

    >>> are_dates(["2024-01-31", "2024-02-01 10:30"]), are_dates(["1", "2"])
    (True, False)
    """
    matching = sum(DATE.fullmatch(level) is not None for level in levels[:1000])
    return matching >= 0.95 * min(len(levels), 1000)


def _check_mixed(
    name: str,
    texts: Sequence[str],
    codes: npt.NDArray[np.int32],
    as_number: Sequence[float | None],
    file: str,
) -> None:
    """Raise ValueError for text among numbers, unless the values are few enough for
    categories.

    texts, codes: one per row.  as_number: one per level, None for text.
    """
    counts = np.bincount(codes[codes >= 0], minlength=len(as_number))  # rows per level
    is_text = np.array([number is None for number in as_number])
    as_texts = int(counts[is_text].sum())
    as_numbers = int(counts.sum()) - as_texts
    if as_numbers <= as_texts:
        return
    often = max(2, 0.01 * len(texts))
    if len(as_number) <= FEW_VALUES and counts[is_text].min() >= often:
        return
    row = next(r for r, code in enumerate(codes) if code >= 0 and is_text[code])
    more = ""
    if as_texts > 1:
        more = f", the first of {as_texts} such cells"
    raise ValueError(
        f"{file}: column {name!r}, row {row + 1}: {texts[row]!r} is not a number{more}, "
        f"and the other {as_numbers:,} are; correct it, leave the cell empty if the value "
        f"is unknown, or omit the column with --drop {name!r} (drop=)"
    )


@final
@dataclass(frozen=True, eq=False)
class EncodedColumns:
    """Columns as input of a model.

    x: (n, d) float32, NaN for empty cells. levels: range (first, last + 1) of the features
    of each category. marks: indicator features of empty cells, with the index of their
    column.
    """

    x: Numbers
    names: tuple[str, ...]
    levels: tuple[tuple[int, int], ...]
    marks: tuple[tuple[str, str], ...]


def encode_columns(columns: list[RecognizedColumn]) -> EncodedColumns:
    """Return the features of the used columns; the list is emptied in the process, to save
    memory.

    After each column with empty cells there is a feature ``name_missing``, 1 for an empty
    cell. The features of texts are the last ones.
    """
    written = [column for column in columns if column.texts is not None]
    columns[:] = [column for column in columns if column.texts is None]
    n = len((columns or written)[0])
    names = [feature for column in columns for feature in column.features]
    marked = [column.read.name for column in columns if column.read.missing]
    marks = name_marks(names, marked)
    names += [feature for feature, _ in marks]
    n_plain = len(names)
    names += [feature for column in written for feature in column.features]
    x = np.empty((n, len(names)), dtype=np.float32)
    levels: list[tuple[int, int]] = []
    at = 0  # first feature of the next column
    mark_at = n_plain - len(marked)  # and index of its indicator
    columns.reverse()  # the last is popped
    while columns:
        column = columns.pop()
        width = len(column.features)
        if column.codes is None:
            x[:, at] = column.numbers
        else:
            levels.append((at, at + width))
            for code in range(width):
                x[:, at + code] = column.codes == code
            x[column.codes < 0, at : at + width] = np.nan
        if column.read.missing:
            x[:, mark_at] = column.is_missing
            mark_at += 1
        at += width
    for number, column in enumerate(written):
        first = n_plain + number * BUCKETS
        hash_texts(column.texts or (), x[:, first : first + BUCKETS])
    return EncodedColumns(x, tuple(names), tuple(levels), marks)


def explain(column: ColumnRead) -> str:
    """Explain why a column is not a feature, and how a column of texts becomes one."""
    if DIFFERENT_TEXTS in column.reason:
        return f"{column.reason}; name it with --columns (columns=) to use it as text"
    return column.reason


def describe_columns(columns: Sequence[ColumnRead]) -> list[str]:
    """Return notes about the columns."""
    outcome: list[str] = []
    for column in columns:
        if not column.is_feature:
            outcome.append(f"column {column.name!r} was left out: {explain(column)}")
        elif column.kind == "category":
            outcome.append(
                f"column {column.name!r} contains texts and became {len(column.values)} "
                "one-hot columns"
            )
        elif column.kind == "text":
            outcome.append(
                f"column {column.name!r} is free text and became {BUCKETS:,} hashed features of words "
                "and characters"
            )
    holes = {c.name: c.missing for c in columns if c.missing and c.is_feature}
    if holes:
        counted = join_some([f"{name} {count:,}" for name, count in holes.items()])
        outcome.append(f"empty cells: {sum(holes.values()):,} ({counted})")
    return outcome
