"""Lock of a folder for one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fallow.storage.errors import Failed
from fallow.storage.files import only_one


@contextmanager
def alone(lock: Path, otherwise: str) -> Iterator[None]:
    """Acquire a lock; raise Failed with the message ``otherwise`` if another process has it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(lock, wait=False))
        except Failed as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            raise Failed(otherwise) from error.__cause__
        yield


def is_held(lock: Path) -> bool:
    """Return whether a process has a lock now."""
    if not lock.exists():
        return False
    try:
        with only_one(lock, wait=False):
            return False
    except Failed as error:
        return isinstance(error.__cause__, BlockingIOError)
