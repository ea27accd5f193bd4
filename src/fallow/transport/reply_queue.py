"""Queue of received replies, for all transports."""

from __future__ import annotations

from queue import Empty, Queue

from fallow.core.types import SiteId

Answers = Queue[tuple[SiteId, bytes]]
"""Received replies, oldest first."""


def collect_answers(waiting: Answers, seconds: float) -> list[tuple[SiteId, bytes]]:
    """Return all queued replies after waiting up to ``seconds`` for the first one."""
    answers: list[tuple[SiteId, bytes]] = []
    try:
        answers.append(waiting.get(timeout=max(seconds, 0.0)))
        while True:
            answers.append(waiting.get_nowait())
    except Empty:
        return answers
