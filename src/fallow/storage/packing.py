"""Nested structures as bytes: safetensors with a JSON header.  Nothing that is read is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

UNREADABLE = (
    SafetensorError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
)


MOST_HEADER = 2**20
"""Bytes of the header of a message.  Names and plain values stand there, which take 20 times their
bytes in memory; honest headers have some thousands."""

MOST_EMPTY = 2**24
"""The longest side of a tensor without numbers.  Any other is as long as what was sent; this one
costs nothing to send, and what is made of it can fill the memory."""


def pack(tree: object) -> bytes:
    """A nested structure of dicts, lists, tensors and plain values as bytes.  A tensor that stands
    in several places is written once, and is one tensor again when it is read.

    Each node is an object of JSON with one key: "#" the name of a tensor, "d" a dict, "l" a list,
    "v" a plain value.

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


def unpack(blob: bytes) -> Any:  # whoever packed it knows what it is
    """Return the structure that `pack` packed.  Raises ValueError for anything else."""
    try:
        size = int.from_bytes(blob[:8], "little")  # of the header, as safetensors has it
        header = json.loads(blob[8 : 8 + size])
        tree = json.loads(header["__metadata__"]["tree"])
        tensors = load(blob)
        for name, tensor in tensors.items():
            _check_empty(name, tensor)
        return _rebuild(tree, tensors=tensors)
    except UNREADABLE as error:
        raise ValueError(
            f"a message of {len(blob)} bytes could not be read: {error}"
        ) from error


def unpack_received(blob: bytes) -> Any:  # whoever packed it knows what it is
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
    """Raise ValueError for a tensor that has no numbers and a side longer than any of ours."""
    if not tensor.numel() and max(tensor.shape) > MOST_EMPTY:
        raise ValueError(
            f"tensor {name} has no numbers and the shape {tuple(tensor.shape)}"
        )


def _rebuild(node: Any, tensors: Mapping[str, Tensor]) -> Any:  # any value of JSON
    if "#" in node:
        return tensors[node["#"]]
    if "d" in node:
        return {key: _rebuild(value, tensors) for key, value in node["d"].items()}
    if "l" in node:
        return [_rebuild(value, tensors) for value in node["l"]]
    return node["v"]
