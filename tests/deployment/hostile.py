"""A site that sends altered replies, signed with its own key, during a whole study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fallow.transport.envelope import open_reply, sign_message
from tests.deployment.simulations import Federation

Change = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Function from the key of an exchange and the honest reply to the reply that is sent."""


def turn(simulation: Federation, site: str, change: Change) -> None:
    """Apply ``change`` to all further replies of a site, also after a restart."""
    keys = simulation.sites[site].keys
    honest = simulation.transport.alive[site]

    def handle(blob: bytes) -> bytes:
        reply = open_reply(keys.verify, honest(blob) or b"", site)
        if reply.refused is not None:
            return sign_message(keys.sign, reply)
        return sign_message(
            keys.sign, replace(reply, body=change(str(reply.key), dict(reply.body)))
        )

    simulation.transport.alive[site] = handle
