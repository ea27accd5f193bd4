"""Seconds and bytes of an exchange over Flower: three sites on this machine that only echo.

Run it with ``python -m bench.flower_exchange``.  Most of the time is Flower's: a SuperNode looks
for messages every three seconds and starts a process for each.  So this is no race against another
implementation, but a bar: at most 6 seconds on a machine that is idle otherwise.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.flower.federation import Federation, federation

SITES = ("ash", "birch", "cedar")
SIZES = {"small": 1 << 10, "model": 1 << 20}  # bytes of a message, and of its answer
BAR = 6.0  # seconds
START = 300.0  # seconds until the first answers are there


def measure(exchanges: int = 10) -> dict[str, Any]:
    """Median, fastest and slowest exchange of each size, and the bytes of one, up and down."""
    with tempfile.TemporaryDirectory() as folder, federation(Path(folder), SITES) as running:
        began = time.perf_counter()
        running.ask(dict.fromkeys(SITES, b"first"), START)
        found: dict[str, Any] = {
            "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "start_seconds": round(time.perf_counter() - began, 1),
            "bar_seconds": BAR,
        }
        for name, size in SIZES.items():
            found[name] = _timed(running, size, exchanges)
    found["is_met"] = found["small"]["seconds"] <= BAR
    return found


def _timed(running: Federation, size: int, exchanges: int) -> dict[str, Any]:
    taken, sent, received = [], 0, 0
    for number in range(exchanges):
        message = number.to_bytes(4, "big") * (size // 4)
        began = time.perf_counter()
        answers = running.ask(dict.fromkeys(SITES, message), START)
        taken.append(time.perf_counter() - began)
        sent, received = len(message) * len(SITES), sum(map(len, answers.values()))
    return {
        "seconds": round(median(taken), 2), "fastest": round(min(taken), 2),
        "slowest": round(max(taken), 2), "bytes_down": sent, "bytes_up": received,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
