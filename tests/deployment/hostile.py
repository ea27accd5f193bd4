"""A site of a whole study that answers what it wants, under its own signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fallow.transport.envelope import open_reply, sign_message
from tests.deployment.worlds import Federation

Change = Callable[[str, dict[str, Any]], dict[str, Any]]
"""From the key of an exchange and the honest answer to what is sent."""


def turn(world: Federation, site: str, change: Change) -> None:
    """From now on a site sends what ``change`` makes of its answers, also after a restart."""
    keys = world.sites[site].keys
    honest = world.transport.alive[site]

    def handle(blob: bytes) -> bytes:
        reply = open_reply(keys.verify, honest(blob) or b"", site)
        if reply.refused is not None:
            return sign_message(keys.sign, reply)
        return sign_message(
            keys.sign, replace(reply, answer=change(str(reply.key), dict(reply.answer)))
        )

    world.transport.alive[site] = handle
