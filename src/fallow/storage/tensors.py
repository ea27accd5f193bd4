"""The format of safetensors, for machines without that package: eight bytes for the length of a
header of JSON, the header, and the numbers of all tensors one behind the other."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import torch
from torch import Tensor

NAMES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
ORDER = ("I64", "F64", "F32", "I32", "BF16", "F16", "I16", "I8", "U8", "BOOL")
"""Tensors stand in a file by their kind, and of one kind by their names."""
META = "__metadata__"
PREFIX = 8  # bytes that say how long the header is


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Contiguous tensors of the CPU with a few words, as bytes.

    >>> load(save({"a": torch.arange(3)}, {"made": "here"}))
    {'a': tensor([0, 1, 2])}
    """
    header: dict[str, object] = {META: dict(metadata)}
    parts: list[bytes] = []
    first = 0
    for name in sorted(tensors, key=lambda name: (_rank(tensors[name]), name)):
        tensor = tensors[name]
        raw = _bytes_of(tensor)
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [first, first + len(raw)],
        }
        parts.append(raw)
        first += len(raw)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % PREFIX)  # so that numbers begin where computers read fast
    return b"".join([len(text).to_bytes(PREFIX, "little"), text, *parts])


def load(blob: bytes) -> dict[str, Tensor]:
    """The tensors that `save`, or the package, wrote.  Raises ValueError for anything else."""
    size = int.from_bytes(blob[:PREFIX], "little")
    start = PREFIX + size
    if len(blob) < PREFIX or start > len(blob):
        raise ValueError(f"{len(blob)} bytes are shorter than their own header")
    header = json.loads(blob[PREFIX:start])
    if not isinstance(header, dict):
        raise ValueError("the header is no object of JSON")
    header.pop(META, None)
    found: dict[str, Tensor] = {}
    end = 0  # tensors stand one behind the other, without gaps
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype = DTYPES[about["dtype"]]
        shape = about["shape"]
        first, last = about["data_offsets"]
        if not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
            raise ValueError(f"tensor {name!r} has a shape or a place that is no number")
        if first != end or last - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} does not stand where its shape says")
        if start + last > len(blob):
            raise ValueError(f"tensor {name!r} ends behind the last byte")
        found[name] = _tensor_of(blob[start + first : start + last], dtype, shape)
        end = last
    if start + end != len(blob):
        raise ValueError(f"{len(blob) - start - end} bytes belong to no tensor")
    return found


def _rank(tensor: Tensor) -> int:
    return ORDER.index(NAMES[tensor.dtype])


def _bytes_of(tensor: Tensor) -> bytes:
    if tensor.numel() == 0:
        return b""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def _tensor_of(raw: bytes, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if not raw:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
