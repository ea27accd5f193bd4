"""Nested structures as bytes (safetensors with a JSON header), without executing received code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor
from typing_extensions import Buffer

from fallow.core.refusal import explain_errors

UNREADABLE = (
    SafetensorError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
)


MOST_HEADER = 2**20
"""Maximum size of the header of a message.

The header contains names and plain values, which take 20 times their size in memory. Regular
headers have some thousand bytes.
"""

MOST_EMPTY = 2**24
"""Maximum dimension of an empty tensor.

The size of other tensors is limited by the message. An empty tensor takes no space in a message,
but tensors derived from it can fill the memory.
"""


DTYPES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Name of each type in safetensors, from the longest to the shortest."""


def pack(tree: object) -> bytes:
    """Encode a nested structure of dicts, lists, tensors and plain values as bytes.

    A tensor that occurs several times is written once and decoded as one tensor. Each node is a
    JSON object with one key: "#" the name of a tensor, "d" a dict, "l" a list, "v" a plain value.

    >>> unpack(pack({"a": torch.arange(3), "b": [1, None, "x"]}))
    {'a': tensor([0, 1, 2]), 'b': [1, None, 'x']}
    """
    return b"".join(list_parts(tree))


def list_parts(tree: object) -> list[Buffer]:
    """Return the parts of the result of `pack`, without copies of tensors."""
    tensors: list[Tensor] = []
    names: dict[int, str] = {}

    def walk(node: object) -> dict[str, object]:
        if isinstance(node, Tensor):
            if id(node) not in names:
                names[id(node)] = str(len(tensors))
                tensors.append(node)
            return {"#": names[id(node)]}
        if isinstance(node, dict):
            return {"d": {str(key): walk(value) for key, value in node.items()}}
        if isinstance(node, (list, tuple)):
            return {"l": [walk(value) for value in node]}
        return {"v": node}

    return _list_file_parts(tensors, json.dumps(walk(tree), allow_nan=True))


def _list_file_parts(tensors: list[Tensor], tree: str) -> list[Buffer]:
    """Return the parts of a safetensors file: length of the header, header, and tensors.

    Tensors of longer types come first, so that each is aligned.
    """
    header: dict[str, object] = {"__metadata__": {"tree": tree}}
    order = list(DTYPES)
    data: list[Buffer] = []
    end = 0
    for at in sorted(range(len(tensors)), key=lambda at: order.index(tensors[at].dtype)):
        tensor = tensors[at].detach().cpu().contiguous()
        flat = tensor.as_strided((tensor.numel(),), (1,))  # strides of single values differ
        content = flat.view(torch.uint8).numpy().data
        header[str(at)] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(content)],
        }
        data.append(content)
        end += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *data]


def unpack(blob: bytes) -> Any:  # the caller knows the type
    """Return the structure that `pack` packed.  Raises ValueError for anything else."""
    with explain_errors(
        f"a message of {len(blob)} bytes could not be read: ", of=UNREADABLE
    ):
        size = int.from_bytes(blob[:8], "little")  # length of the header in safetensors
        header = json.loads(blob[8 : 8 + size])
        tree = json.loads(header["__metadata__"]["tree"])
        tensors = load(blob)
        for name, tensor in tensors.items():
            _check_empty(name, tensor)
        return _rebuild(tree, tensors=tensors)


def unpack_received(blob: bytes) -> Any:  # the caller knows the type
    """Return a structure that another party packed with `pack`.

    Raises ValueError for anything else, and for a header above `MOST_HEADER` before reading it.
    """
    size = int.from_bytes(blob[:8], "little")
    if size > MOST_HEADER:
        raise ValueError(
            f"a message of {len(blob)} bytes could not be read: its header has {size} bytes, more "
            f"than {MOST_HEADER}"
        )
    return unpack(blob)


def _check_empty(name: str, tensor: Tensor) -> None:
    """Raise ValueError for an empty tensor with a dimension above `MOST_EMPTY`."""
    if not tensor.numel() and max(tensor.shape) > MOST_EMPTY:
        raise ValueError(f"tensor {name} is empty and has the shape {tuple(tensor.shape)}")


def _rebuild(node: Any, tensors: Mapping[str, Tensor]) -> Any:  # any value of JSON
    if "#" in node:
        return tensors[node["#"]]
    if "d" in node:
        return {key: _rebuild(value, tensors) for key, value in node["d"].items()}
    if "l" in node:
        return [_rebuild(value, tensors) for value in node["l"]]
    return node["v"]
