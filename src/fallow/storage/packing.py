"""Nested structures as bytes: safetensors with a JSON header.  Nothing that is read is executed."""

from __future__ import annotations

import json
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


def pack(tree: Any) -> bytes:
    """A nested structure of dicts, lists, tensors and plain values as bytes.  A tensor that stands
    in several places is written once, and is one tensor again when it is read.

    >>> import torch
    >>> unpack(pack({"a": torch.arange(3), "b": [1, None, "x"]}))
    {'a': tensor([0, 1, 2]), 'b': [1, None, 'x']}
    """
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, Tensor):
            if id(node) not in names:
                names[id(node)] = name = str(len(tensors))
                tensors[name] = node.detach().contiguous().clone()
            return {"#": names[id(node)]}
        if isinstance(node, dict):
            return {"d": {str(k): walk(v) for k, v in node.items()}}
        if isinstance(node, (list, tuple)):
            return {"l": [walk(v) for v in node]}
        return {"v": node}

    return save(tensors, {"tree": json.dumps(walk(tree), allow_nan=True)})


def unpack(blob: bytes) -> Any:
    """What `pack` packed.  Raises ValueError for anything else."""
    try:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        tree, tensors = json.loads(header["__metadata__"]["tree"]), load(blob)
        return _rebuild(tree, tensors)
    except UNREADABLE as error:
        raise ValueError(
            f"a message of {len(blob)} bytes could not be read: {error}"
        ) from error


def _rebuild(node: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    if "#" in node:
        return tensors[node["#"]]
    if "d" in node:
        return {k: _rebuild(v, tensors) for k, v in node["d"].items()}
    if "l" in node:
        return [_rebuild(v, tensors) for v in node["l"]]
    return node["v"]
