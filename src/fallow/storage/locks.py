"""One process at a time works on a folder, and a second one is told which one does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fallow.storage.errors import Failed
from fallow.storage.files import only_one


@contextmanager
def alone(lock: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock; Failed, with the sentence ``otherwise``, where another process holds it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(lock, wait=False))
        except Failed as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            raise Failed(otherwise) from error.__cause__
        yield


def is_held(lock: Path) -> bool:
    """Whether a process holds a lock now."""
    if not lock.exists():
        return False
    try:
        with only_one(lock, wait=False):
            return False
    except Failed as error:
        return isinstance(error.__cause__, BlockingIOError)
