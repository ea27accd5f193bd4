"""How large the columns of a Parquet file are once they are unpacked, by their pages.

The end of such a file says how many rows and bytes it has, and nothing there has to be true.  What
is unpacked is decided by the head of each page alone, in Thrift's compact form: parquet.apache.org,
"Data Pages"; github.com/apache/thrift, "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

Fields = dict[int, "int | Fields"]
"""Fields of a page header: number -> a 32-bit integer, or nested fields."""

CELL = 8
"""Bytes of a number in memory, and at least of a reference to a text."""
MOST_PAGES = 20_000
LONGEST = 1 << 14  # bytes of the head of a page
DEEPEST = 4  # parts of parts of a head
# of a page: its kind -> the field that tells of such a page, and where its encoding stands there
KINDS = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
SIZE = 2
PACKED_SIZE = 3
# plain, or numbers of a list of values: of the others, some grow by rules of their own
ENCODINGS = (0, 2, 8)


@dataclass(frozen=True)
class Extent:
    """Rows of the longest column, and bytes of all columns together when they are unpacked."""

    rows: int
    n_bytes: int


def estimate_bytes(metadata: FileMetaData) -> int:
    """How many bytes a file has in memory, as its end has it: one value that stands in many rows takes
    a few bytes there, and as many cells as rows in memory.  For files of one's own."""
    unpacked = sum(
        metadata.row_group(group).total_byte_size
        for group in range(metadata.num_row_groups)
    )
    n_bytes: int = unpacked + CELL * metadata.num_rows * metadata.num_columns
    return n_bytes


def measure_columns(file: Path, metadata: FileMetaData, columns: Sequence[str]) -> Extent:
    """How large some columns of a file are; nothing is unpacked for it.

    metadata: what the end of the file says.  Raises ValueError for a file with more pages than
    anybody needs, and one that is damaged or packed in a way that bounds nothing.
    """
    if metadata.num_row_groups > MOST_PAGES:
        raise ValueError(f"it has more than {MOST_PAGES:,} groups of rows")
    # behind a column of old versions of that program pyarrow reads on, where nobody has looked
    if "parquet-mr" in str(metadata.created_by).lower():
        raise ValueError("it was written by another program")
    rows = dict.fromkeys(columns, 0)
    n_bytes = 0
    n_pages = 0
    with file.open("rb") as stream:
        for group in range(metadata.num_row_groups):
            of_group = metadata.row_group(group)
            for at in range(of_group.num_columns):
                column = of_group.column(at)
                name = column.path_in_schema
                if name not in rows:
                    continue
                rows[name] += max(column.num_values, of_group.num_rows, 0)
                for size in _sizes_of_pages(stream, column):
                    n_bytes += size
                    n_pages += 1
                    if n_pages > MOST_PAGES:
                        raise ValueError(f"it has more than {MOST_PAGES:,} pages")
    return Extent(max(rows.values(), default=0), n_bytes)


def _sizes_of_pages(stream: IO[bytes], column: ColumnChunkMetaData) -> Iterator[int]:
    """The bytes of each page of a column when it is unpacked; at least those that it takes as it is."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    end = start + column.total_compressed_size
    while start < end:
        stream.seek(start)
        head, length = read_fields(stream.read(LONGEST))
        kind = head.get(1)
        size = head.get(SIZE)
        packed = head.get(PACKED_SIZE)
        if not isinstance(size, int) or not isinstance(packed, int) or packed < 0:
            raise ValueError("a page of it has no size")
        _check_encoding(kind, head)
        start += length + packed
        yield max(size, packed)


def _check_encoding(kind: object, head: Fields) -> None:
    """Raise ValueError for a page that may unpack to more than its size."""
    if not isinstance(kind, int) or kind not in KINDS:
        raise ValueError("it has a page of an unknown kind")
    details, at = KINDS[kind]
    value = head.get(details)
    if not isinstance(value, dict) or value.get(at) not in ENCODINGS:
        raise ValueError("a page of it is encoded in another way than Fallow writes")


def read_fields(head: bytes) -> tuple[Fields, int]:
    """The fields at the start of some bytes, and how many bytes they take.

    Raises ValueError for what is no head of a page, and for a field that stands there twice.

    >>> read_fields(bytes([0x15, 4, 0x15, 6, 0x2C, 0x15, 8, 0, 0]))
    ({1: 2, 2: 3, 4: {1: 4}}, 9)
    """
    try:
        return _read_part(head, 0, DEEPEST)
    except IndexError as error:
        raise ValueError("the head of a page has no end") from error


# kinds of fields
TRUTH = (1, 2)  # the value is the kind
BYTE = 3
NUMBERS = (4, 5, 6)  # of 16, 32 and 64 bits
NUMBER = 5
DOUBLE = 7
TEXT = 8
PART = 12


def _read_part(head: bytes, at: int, deepest: int) -> tuple[Fields, int]:
    """The fields of a part from a place on, and the place behind them."""
    if not deepest:
        raise ValueError("the head of a page has parts in parts in parts")
    part: Fields = {}
    seen: set[int] = set()
    field = 0
    while True:
        first = head[at]
        at += 1
        if first == 0:
            return part, at
        kind = first & 15
        step = first >> 4
        if step:
            field += step
        else:
            field, at = _read_number(head, at)
        # readers differ in which of two they take
        if field in seen:
            raise ValueError("a field stands twice in the head of a page")
        seen.add(field)
        if kind == PART:
            part[field], at = _read_part(head, at, deepest - 1)
        elif kind in NUMBERS:
            value, at = _read_number(head, at)
            if kind == NUMBER:
                part[field] = value
        elif kind == TEXT:
            length, at = _read_varint(head, at)
            at += length
        elif kind == DOUBLE:
            at += 8
        elif kind == BYTE:
            at += 1
        elif kind not in TRUTH:
            raise ValueError("the head of a page has a field of an unknown kind")


def _read_number(head: bytes, at: int) -> tuple[int, int]:
    """A whole number of 32 bits at most, whose sign is its last bit, and the place behind it."""
    value, at = _read_varint(head, at)
    return (value >> 1) ^ -(value & 1), at


def _read_varint(head: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first, until a byte has no eighth; and the place behind it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = head[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 32:
                break
            return value, at
    raise ValueError("a number in the head of a page has more than 32 bits")
