"""Malformed messages: valid ones with a change, and random data."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from fallow.privacy.signing import SIGNATURE, sign
from fallow.storage.packing import pack, unpack

WORDS = ("", "a", "0/query/0", "request", "deliver", "progress", "../..", "\x00", "ż" * 300)
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    -(2**63),
    2**64,
    10**300,
    0.5,
    float("nan"),
    float("inf"),
    True,
    None,
)


def odd_value(draw: np.random.Generator, depth: int = 0) -> Any:
    """Return a tensor, a string, a number, or nested lists and dicts of them."""
    kind = draw.integers(0, 6 if depth < 3 else 4)
    if kind == 0:
        return WORDS[draw.integers(len(WORDS))]
    if kind == 1:
        return NUMBERS[draw.integers(len(NUMBERS))]
    if kind in (2, 3):
        dtypes = (
            torch.float64,
            torch.float16,
            torch.int64,
            torch.uint8,
            torch.bool,
            torch.int8,
        )
        shape = tuple(draw.integers(0, 4, size=draw.integers(0, 3)).tolist())
        values = torch.full(shape, float(draw.choice([0.0, 1.0, -3.0])))
        return values.to(dtypes[draw.integers(len(dtypes))])
    many = int(draw.integers(0, 4))
    if kind == 4:
        return [odd_value(draw, depth + 1) for _ in range(many)]
    return {
        WORDS[draw.integers(len(WORDS))]: odd_value(draw, depth + 1) for _ in range(many)
    }


def change_one(tree: Any, draw: np.random.Generator) -> Any:
    """Return the tree with one element replaced, dropped, added or duplicated."""
    if isinstance(tree, dict) and tree and draw.random() < 0.8:
        name = list(tree)[draw.integers(len(tree))]
        match draw.integers(0, 6):
            case 0:
                return {k: v for k, v in tree.items() if k != name}
            case 1:
                return {**tree, "more": odd_value(draw)}
            case _:
                return {**tree, name: change_one(tree[name], draw)}
    if isinstance(tree, list) and tree and draw.random() < 0.8:
        at = int(draw.integers(len(tree)))
        return [
            *tree[:at],
            change_one(tree[at], draw),
            *tree[at + int(draw.integers(0, 2)) :],
        ]
    if isinstance(tree, torch.Tensor) and tree.dtype == torch.uint8 and tree.numel() > 100:
        return within(tree, draw)
    return odd_value(draw)


def within(content: torch.Tensor, draw: np.random.Generator) -> Any:
    """Change bytes that contain a packed message, either as a message or byte by byte."""
    blob = content.numpy().tobytes()
    try:
        damaged = (
            broken(blob, draw)
            if draw.random() < 0.3
            else pack(change_one(unpack(blob), draw))
        )
    # a tree that cannot be packed is not a message
    except (ValueError, TypeError, OverflowError):
        damaged = broken(blob, draw)
    return torch.tensor(list(damaged), dtype=torch.uint8)


def broken(blob: bytes, draw: np.random.Generator) -> bytes:
    """Flip a bit, truncate or duplicate the bytes, or change the length in the header."""
    at = int(draw.integers(max(len(blob), 1)))
    match draw.integers(0, 5):
        case 0:
            return blob[:at]
        case 1:
            return blob + blob[at:]
        case 2:
            return (2**60).to_bytes(8, "little") + blob[8:]
        case 3:
            return draw.bytes(at)
    return blob[:at] + bytes([blob[at] ^ (1 << int(draw.integers(8)))]) + blob[at + 1 :]


def malformed(signed: bytes, secret: bytes, draw: np.random.Generator) -> bytes:
    """Damage a valid message, usually before signing, so that its signature verifies."""
    content = signed[SIGNATURE:]
    match draw.integers(0, 8):
        case 0:
            return broken(signed, draw)
        case 1:
            return sign(secret, broken(content, draw))
        case 2:
            return sign(secret, nest_deeply(draw))
    try:
        return sign(secret, pack(change_one(unpack(content), draw)))
    except (ValueError, TypeError, OverflowError):
        return sign(secret, broken(content, draw))


def nest_deeply(draw: np.random.Generator) -> bytes:
    """Return a deeply nested tree, a tensor that occurs many times, or a wrong header."""
    blob = pack({"x": torch.zeros(3)})
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    match draw.integers(0, 4):
        case 0:
            tree = '{"l": [' * 50_000 + '{"v": 1}' + "]}" * 50_000
        case 1:
            tree = json.dumps({"d": {str(i): {"#": "0"} for i in range(5000)}})
        case 2:
            tree = json.dumps({"d": {"x": {"#": "none"}}})
        case _:
            tree = header["__metadata__"]["tree"]
            header["0"]["shape"] = [2**40]
            header["0"]["data_offsets"] = [0, 2**42]
    header["__metadata__"]["tree"] = tree
    header_bytes = json.dumps(header).encode()
    return len(header_bytes).to_bytes(8, "little") + header_bytes + blob[8 + size :]
