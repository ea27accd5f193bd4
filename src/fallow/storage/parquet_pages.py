"""Unpacked size of the columns of a Parquet file, from its page headers.

The metadata at the end of the file declares numbers of rows and bytes, which may be wrong. Only the
page headers determine how much is unpacked. They use Thrift's compact format: parquet.apache.org,
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
"""Bytes of a number in memory, and the minimum for a reference to a text."""
MOST_PAGES = 20_000
LONGEST = 1 << 14  # maximum bytes of a page header
DEEPEST = 4  # maximum nesting of a page header
# page kind -> field with the header of that kind, and its field with the encoding
KINDS = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
SIZE = 2
PACKED_SIZE = 3
# plain, or numbers of a dictionary; some of the others can expand
ENCODINGS = (0, 2, 8)


@dataclass(frozen=True)
class Extent:
    """Number of rows of the longest column, and unpacked bytes of all columns."""

    rows: int
    n_bytes: int


def estimate_bytes(metadata: FileMetaData) -> int:
    """Estimate the size of a file in memory from its metadata; only for trusted files.

    A repeated value takes a few bytes in the file but one cell per row in memory.
    """
    unpacked = sum(
        metadata.row_group(group).total_byte_size
        for group in range(metadata.num_row_groups)
    )
    n_bytes: int = unpacked + CELL * metadata.num_rows * metadata.num_columns
    return n_bytes


def measure_columns(file: Path, metadata: FileMetaData, columns: Sequence[str]) -> Extent:
    """Measure the unpacked size of some columns without unpacking them.

    ``metadata``: the metadata at the end of the file. Raises ValueError for a file with too many
    pages, and for one that is damaged or encoded without a bound on its size.
    """
    if metadata.num_row_groups > MOST_PAGES:
        raise ValueError(f"it has more than {MOST_PAGES:,} row groups")
    # after columns of old versions of that program, pyarrow reads further bytes that are not
    # checked
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
    """Yield the unpacked bytes of each page of a column, at least its packed bytes."""
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
            raise ValueError("it has a page without a size")
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
        raise ValueError("it has a page with an encoding that Fallow does not write")


def read_fields(head: bytes) -> tuple[Fields, int]:
    """Return the fields at the start of some bytes, and the number of bytes read.

    Raises ValueError for an invalid page header, and for a repeated field.

    >>> read_fields(bytes([0x15, 4, 0x15, 6, 0x2C, 0x15, 8, 0, 0]))
    ({1: 2, 2: 3, 4: {1: 4}}, 9)
    """
    try:
        return _read_part(head, 0, DEEPEST)
    except IndexError as error:
        raise ValueError("a page header is incomplete") from error


# types of fields
TRUTH = (1, 2)  # the type is the value
BYTE = 3
NUMBERS = (4, 5, 6)  # 16, 32 and 64 bits
NUMBER = 5
DOUBLE = 7
TEXT = 8
PART = 12


def _read_part(head: bytes, at: int, deepest: int) -> tuple[Fields, int]:
    """Return the fields of a nested structure from a position on, and the position after them."""
    if not deepest:
        raise ValueError("a page header has too many nested structures")
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
        # readers differ in which of two they use
        if field in seen:
            raise ValueError("a page header repeats a field")
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
            raise ValueError("a page header has a field of an unknown type")


def _read_number(head: bytes, at: int) -> tuple[int, int]:
    """Decode a zigzag integer of at most 32 bits; return it and the position after it."""
    value, at = _read_varint(head, at)
    return (value >> 1) ^ -(value & 1), at


def _read_varint(head: bytes, at: int) -> tuple[int, int]:
    """Decode a variable-length integer; return it and the position after it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = head[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 32:
                break
            return value, at
    raise ValueError("a number in a page header has more than 32 bits")
