"""`python -m bench.flower_exchange`: an exchange over Flower with three sites that only echo.

Most of the time is Flower's: a SuperNode looks for messages every three seconds and starts a
process for each.  So this is no race against another implementation, but a bar: at most 6 seconds
on a machine that is idle otherwise.  Writes ``bench/flower_exchange.json``.

``bytes_loopback`` is all that crossed the loopback device meanwhile (Linux), TLS, Flower's own
hops inside a machine and its idle looks included; between two machines less would travel.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.timing import describe_machine
from tests.network.flower.federation import Federation, federation

SITES = ("ash", "birch", "cedar")
SIZES = {"small": 1 << 10, "model": 1 << 20}  # bytes of a message, and of its answer
BAR = 6.0  # seconds
START = 300.0  # seconds until the first answers are there
RESULTS = Path(__file__).with_name("flower_exchange.json")
DEVICES = Path("/proc/net/dev")


def measure(exchanges: int = 10) -> dict[str, Any]:
    """Median, fastest and slowest exchange of each size, and the bytes of one, up and down."""
    machine = describe_machine()
    with (
        tempfile.TemporaryDirectory() as folder,
        federation(Path(folder), SITES) as running,
    ):
        began = time.perf_counter()
        running.ask(dict.fromkeys(SITES, b"first"), START)
        found: dict[str, Any] = {
            "machine": machine,
            "start_seconds": round(time.perf_counter() - began, 1),
            "bar_seconds": BAR,
        }
        for name, size in SIZES.items():
            found[name] = _time_exchanges(running, size, exchanges)
    found["is_met"] = found["small"]["seconds"] <= BAR
    return found


def _time_exchanges(
    running: Federation, size: int, exchanges: int
) -> dict[str, float | int]:
    """Seconds and bytes of exchanges of messages of ``size`` bytes."""
    taken = []
    sent = 0
    received = 0
    before = loopback()
    for number in range(exchanges):
        message = number.to_bytes(4, "big") * (size // 4)
        began = time.perf_counter()
        answers = running.ask(dict.fromkeys(SITES, message), START)
        taken.append(time.perf_counter() - began)
        sent = len(message) * len(SITES)
        received = sum(map(len, answers.values()))
    found = {
        "seconds": round(median(taken), 2),
        "fastest": round(min(taken), 2),
        "slowest": round(max(taken), 2),
        "bytes_down": sent,
        "bytes_up": received,
    }
    crossed = (loopback() - before) // exchanges
    if crossed:
        found["bytes_loopback"] = crossed
    return found


def loopback() -> int:
    """Bytes that the loopback device has received since the machine started; 0 if not known."""
    if not DEVICES.exists():
        return 0
    for line in DEVICES.read_text().splitlines():
        device, received, *_ = line.split()
        if device == "lo:":
            return int(received)
    return 0


def main(arguments: Sequence[str] = ()) -> int:
    found = measure()
    print(json.dumps(found, indent=2))
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    if not found["is_met"]:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
