"""Ctrl-C and SIGTERM for programs that stop cleanly."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` at the first signal, and raise KeyboardInterrupt at the second."""

    def stop_cleanly(number: int, frame: object) -> None:
        for which in STOP_SIGNALS:
            signal.signal(which, signal.default_int_handler)
        stop()

    before = [signal.signal(which, stop_cleanly) for which in STOP_SIGNALS]
    try:
        yield
    finally:
        for which, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(which, handler)
