"""Nested structures as bytes (safetensors with a JSON header), without executing received code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

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


def pack(tree: object) -> bytes:
    """Encode a nested structure of dicts, lists, tensors and plain values as bytes.

    A tensor that occurs several times is written once and decoded as one tensor. Each node is a
    JSON object with one key: "#" the name of a tensor, "d" a dict, "l" a list, "v" a plain value.

    >>> import torch
    >>> unpack(pack({"a": torch.arange(3), "b": [1, None, "x"]}))
    {'a': tensor([0, 1, 2]), 'b': [1, None, 'x']}
    """
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def walk(node: object) -> dict[str, object]:
        if isinstance(node, Tensor):
            if id(node) not in names:
                name = str(len(tensors))
                names[id(node)] = name
                tensors[name] = node.detach().contiguous().clone()
            return {"#": names[id(node)]}
        if isinstance(node, dict):
            return {"d": {str(key): walk(value) for key, value in node.items()}}
        if isinstance(node, (list, tuple)):
            return {"l": [walk(value) for value in node]}
        return {"v": node}

    return save(tensors, {"tree": json.dumps(walk(tree), allow_nan=True)})


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
