"""Size of the messages of a Feather file in memory, without decompressing them.

pyarrow decompresses a batch as a whole, and zeros compress to a thousandth.  The sizes are in the
metadata, in the format of FlatBuffers: `Message.fbs` and `Schema.fbs` of the Arrow project.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

BATCHES = (2, 3)
"""Types of messages with data: dictionaries and record batches."""
COMPRESSED_HEAD = 8
"""Bytes before a compressed buffer, with its size; -1 if it is not compressed."""


def count_unpacked_bytes(message: Any) -> int:  # of pyarrow, which has no types
    """Return the bytes of all buffers of a message. Raises ValueError for a damaged one.

    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"a": pa.array([0.0] * 1000)})
    >>> message = pa.ipc.read_message(batch.serialize())
    >>> count_unpacked_bytes(message) >= 8000
    True
    """
    metadata = memoryview(message.metadata)
    body = message.body
    try:
        batch, is_compressed = _find_batch(metadata)
        if batch is None:
            return 0
        total = 0
        for offset, length in _list_buffers(metadata, batch):
            size = length
            if is_compressed and length >= COMPRESSED_HEAD:
                (size,) = struct.unpack_from("<q", body, offset)
                if size < 0:
                    size = length
            total += size
    except (struct.error, IndexError) as error:
        raise ValueError("a message in it is damaged") from error
    return total


def _find_batch(metadata: memoryview) -> tuple[int | None, bool]:
    """Return the position of the table of buffers, None without one, and if they are compressed."""
    (root,) = struct.unpack_from("<I", metadata, 0)
    kind_at = _find_field(metadata, root, 1)
    kind = metadata[kind_at] if kind_at else 0
    header = _follow(metadata, root, 2)
    if kind not in BATCHES or header is None:
        return None, False
    if kind == BATCHES[0]:  # a dictionary has its batch as second field
        header = _follow(metadata, header, 1)
        if header is None:
            return None, False
    return header, _find_field(metadata, header, 3) != 0


def _list_buffers(metadata: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each buffer in the body."""
    vector = _follow(metadata, batch, 2)
    if vector is None:
        return
    (count,) = struct.unpack_from("<I", metadata, vector)
    for number in range(count):
        offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * number)
        yield (offset, length)


def _find_field(metadata: memoryview, table: int, field: int) -> int:
    """Return the position of a field of a table, 0 if it is missing."""
    (back,) = struct.unpack_from("<i", metadata, table)
    layout = table - back
    (size,) = struct.unpack_from("<H", metadata, layout)
    at = 4 + 2 * field
    if at >= size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, layout + at)
    return table + offset if offset else 0


def _follow(metadata: memoryview, table: int, field: int) -> int | None:
    """Return the position of what a field refers to, None if it is missing."""
    at = _find_field(metadata, table, field)
    if not at:
        return None
    offset: int = struct.unpack_from("<I", metadata, at)[0]
    return at + offset
