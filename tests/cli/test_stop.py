"""Ctrl-C and SIGTERM: the first stops cleanly, the second at once."""

from __future__ import annotations

import os
import signal
from threading import Event

import pytest

from fallow.cli.stop import STOP_SIGNALS, stopped_by_signals


@pytest.mark.parametrize("first", STOP_SIGNALS)
@pytest.mark.parametrize("second", STOP_SIGNALS)
def test_the_second_signal_interrupts_at_once(first: int, second: int) -> None:
    before = [signal.getsignal(which) for which in STOP_SIGNALS]
    stop = Event()
    with pytest.raises(KeyboardInterrupt), stopped_by_signals(stop.set):
        os.kill(os.getpid(), first)
        assert stop.is_set()
        os.kill(os.getpid(), second)
    assert [signal.getsignal(which) for which in STOP_SIGNALS] == before
