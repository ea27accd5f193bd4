"""Named random streams: draws do not depend on the order of execution."""

from __future__ import annotations

import hashlib

import torch


def seed_of(seed: int, *name: str | int) -> int:
    """Return a 63-bit seed for the stream ``name`` of the run ``seed``.

    >>> seed_of(0, "select", 3, "north") == seed_of(0, "select", 3, "north")
    True
    >>> seed_of(0, "select", 3, "north") == seed_of(0, "select", "3n", "orth")
    False
    """
    words = "\x1f".join(
        [str(int(seed)), *(f"{type(part).__name__}:{part}" for part in name)]
    )
    return (
        int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "big") >> 1
    )


def stream(seed: int, *name: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose, e.g. ``stream(seed, "select", cycle, site)``.

    It is for simulation: noise, masks and keys never come from a seed.
    """
    return torch.Generator().manual_seed(seed_of(seed, *name))
