"""Digests of instructions, by which the event log and sites recognize an exchange."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from torch import Tensor

from fallow.core.messages import Step, To
from fallow.core.types import Answer, SiteId


def digest_exchange(
    steps: Sequence[tuple[Step, To | None]],
    cohort: Sequence[SiteId],
    bound: float | None = None,
    routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
) -> str:
    """Return a digest of instructions and recipients, to detect changes under the same key."""
    ways = sorted((to, list(senders)) for to, senders in (routes or {}).items())
    h = hashlib.sha256(repr((list(cohort), bound, ways)).encode())
    for step, to in steps:
        asked = None
        if to is not None:
            asked = sorted(to)
        h.update(repr((step.kind, step.verb, step.training_config, asked)).encode())
        masked = step.masked
        if masked is not None:
            h.update(repr((str(masked.exchange), masked.attempt, masked.bound)).encode())
            _hash_args(h, dict(masked.keys))
        _hash_args(h, step.args)
        if to is not None:
            for site in sorted(to):
                _hash_args(h, to[site])
    return h.hexdigest()


def _hash_args(h: hashlib._Hash, args: Answer) -> None:
    for name in sorted(args):
        value = args[name]
        h.update(f"|{name}=".encode())
        if isinstance(value, Tensor):
            h.update(str((value.dtype, tuple(value.shape))).encode())
            h.update(value.detach().contiguous().numpy().tobytes())
        else:
            h.update(repr(value).encode())
