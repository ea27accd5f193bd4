"""`python -m bench.transports`: exchanges over Flower against HTTPS, with echo sites.

Both transports run at once, each with three site processes, and take turns. Flower spends
most of the time itself: a SuperNode polls every three seconds and starts a process for each
message. Its target is therefore that of an idle machine. Then site processes are added over
HTTPS alone, from 3 up to 200 or as many as memory allows. Writes ``bench/transports.json``
after each step.

`python -m bench.transports --nvflare` compares HTTPS and an NVFlare job in the same way and
adds the result to that file. ``FALLOW_NVFLARE`` is the Python interpreter with NVFlare.

``bytes_loopback`` counts all bytes on the loopback device during an exchange (Linux),
including TLS, local hops and idle polling. Less is transferred between two machines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Protocol

from bench.timing import WALL, Entry, Race, describe_machine
from tests.packages import INTEGRATIONS
from tests.transport.https.processes import processes_of

SITES = ("ash", "birch", "cedar")
SIZES = {"small": 1 << 10, "model": 1 << 20}  # bytes of a message, and of its reply
BARS = {"flower": 6.0, "https": 0.3}  # median seconds of a small exchange
MANY = (3, 10, 30, 60, 100, 150, 200)  # site processes, if memory allows
START = 300.0  # seconds until the first replies
EACH = 6.0  # additional seconds for each process to start
ROOM = 3.0  # GB left free for other programs
RESULTS = Path(__file__).with_name("transports.json")
DEVICES = Path("/proc/net/dev")
MEMORY = Path("/proc/meminfo")

Numbers = dict[str, float | int]


class Asked(Protocol):
    """Federation of sites that echo messages."""

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> dict[str, bytes]: ...


def compare(exchanges: int) -> dict[str, object]:
    """Time exchanges of each size over both transports in turn."""
    add_helpers("fallow-flower")
    from flower_federation import federation

    results: dict[str, object] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        federation(Path(folder) / "flower", SITES) as flower,
        processes_of(Path(folder) / "https", SITES) as (https, _),
    ):
        transports: dict[str, Asked] = {"flower": flower, "https": https}
        for transport in transports.values():
            transport.ask(dict.fromkeys(SITES, b"first"), START)
        for name, size in SIZES.items():
            results[name] = _take_turns(transports, size, exchanges)
    return results


def race_flower(is_quick: bool) -> Race:
    """Race HTTPS to Flower with three sites and messages of 1 kB."""
    add_helpers("fallow-flower")
    from flower_federation import federation

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flower = stack.enter_context(federation(folder / "flower", SITES))
        https, _ = stack.enter_context(processes_of(folder / "https", SITES))
        for transport in (flower, https):
            transport.ask(dict.fromkeys(SITES, b"first"), START)
        opened = stack.pop_all()

    def exchange(transport: Asked) -> float:
        return time_exchange(transport, SITES, 1, SIZES["small"])  # checks the replies

    return Race(
        lambda: exchange(flower), lambda: exchange(https), lambda: True, 5, opened.close
    )


def compare_nvflare(exchanges: int) -> dict[str, object]:
    """Time exchanges of each size over HTTPS and an NVFlare job in turn."""
    add_helpers("fallow-nvflare")
    from nvflare_federation import processes_over_nvflare

    results: dict[str, object] = {
        "machine": describe_machine(),
        "others_at_work": round(os.getloadavg()[2], 1),
        "exchanges": exchanges,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        processes_of(Path(folder) / "https", SITES) as (https, _),
        processes_over_nvflare(Path(folder) / "nvflare", SITES) as (carried, _),
    ):
        transports: dict[str, Asked] = {"https": https, "nvflare": carried}
        for transport in transports.values():
            transport.ask(dict.fromkeys(SITES, b"first"), START)
        for name, size in SIZES.items():
            results[name] = _take_turns(transports, size, exchanges)
    return results


def add_helpers(distribution: str) -> None:
    """Add the test modules of an integration to the import path."""
    sys.path.append(str(INTEGRATIONS / distribution / "tests"))


def _take_turns(
    transports: Mapping[str, Asked], size: int, exchanges: int
) -> dict[str, Numbers]:
    """Time exchanges of ``size`` bytes over each transport and count their bytes."""
    taken: dict[str, list[float]] = {name: [] for name in transports}
    crossed: dict[str, int] = dict.fromkeys(transports, 0)
    for number in range(exchanges):
        for name, transport in transports.items():
            before = loopback()
            taken[name].append(time_exchange(transport, SITES, number, size))
            crossed[name] += loopback() - before
    turns: dict[str, Numbers] = {}
    for name, seconds in taken.items():
        turns[name] = _describe(seconds)
        turns[name]["bytes_loopback"] = crossed[name] // exchanges
    return turns


def grow(
    counts: Sequence[int],
    exchanges: int,
    report: Callable[[list[Numbers]], None] = lambda rows: None,
) -> list[Numbers]:
    """Return a row for each number of site processes over HTTPS.

    The last is the largest multiple of ten that fits in memory.
    """
    rows: list[Numbers] = []
    for wanted in counts:
        count = wanted
        if rows:
            item = float(rows[-1]["megabytes_each"]) / 1000
            if item:  # 0: unknown
                fits = int((free() - ROOM) / item) // 10 * 10
                count = min(wanted, fits)
            if count <= rows[-1]["sites"]:
                break
        sites = [f"site-{number}" for number in range(count)]
        with (
            tempfile.TemporaryDirectory() as folder,
            processes_of(Path(folder), sites) as (https, running),
        ):
            https.ask(dict.fromkeys(sites, b"first"), START + EACH * count)
            seconds = []
            for number in range(exchanges):
                seconds.append(time_exchange(https, sites, number, SIZES["small"]))
            sizes = [memory_of(process.pid) for process in running.values()]
            rows.append(
                {
                    "sites": count,
                    **_describe(seconds),
                    "megabytes_each": round(median(sizes), 1),
                }
            )
            report(rows)
        if count < wanted:
            break
    return rows


def time_exchange(transport: Asked, sites: Sequence[str], number: int, size: int) -> float:
    """Return the seconds until all sites have replied."""
    message = number.to_bytes(4, "big") * (size // 4)
    began = time.perf_counter()
    replies = transport.ask(dict.fromkeys(sites, message), START)
    seconds = time.perf_counter() - began
    assert all(reply.endswith(message) for reply in replies.values())
    return seconds


def _describe(seconds: Sequence[float]) -> Numbers:
    return {
        "seconds": round(median(seconds), 3),
        "fastest": round(min(seconds), 3),
        "slowest": round(max(seconds), 3),
    }


def loopback() -> int:
    """Return the bytes received by the loopback device since boot; 0 if unknown."""
    if not DEVICES.exists():
        return 0
    for line in DEVICES.read_text().splitlines():
        device, received, *_ = line.split()
        if device == "lo:":
            return int(received)
    return 0


def free() -> float:
    """Return the available memory in GB, or a large number if unknown."""
    return _read_kilobytes(MEMORY, "MemAvailable") / 1e6 or 1000.0


def memory_of(pid: int) -> float:
    """Return the memory of a process in MB (proportional set size); 0 if unknown."""
    return _read_kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss") / 1000


def _read_kilobytes(file: Path, name: str) -> int:
    if not file.exists():
        return 0
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def measure(
    exchanges: int,
    counts: Sequence[int],
    save: Callable[[dict[str, object]], None] = lambda results: None,
) -> dict[str, object]:
    """Measure both parts and return whether the targets were met.

    The results so far are passed to ``save`` after each step.
    """
    results: dict[str, object] = {
        "machine": describe_machine(),
        "others_at_work": round(os.getloadavg()[2], 1),  # processes, in the last 15 minutes
        "exchanges": exchanges,
        "bar_seconds": BARS,
    }
    compared = compare(exchanges)
    small = compared["small"]
    assert isinstance(small, dict)
    is_met: dict[str, bool] = {}
    for name, bar in BARS.items():
        is_met[name] = small[name]["seconds"] <= bar
    results |= {**compared, "is_met": is_met}
    save(results)

    def save_rows(rows: list[Numbers]) -> None:
        results["sites_over_https"] = rows
        save(results)

    grow(counts, exchanges, save_rows)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.transports")
    parser.add_argument("--exchanges", type=int, default=11, help="of each kind")
    parser.add_argument("--most", type=int, default=MANY[-1], help="processes of sites")
    parser.add_argument("--nvflare", action="store_true", help="add a job of NVFlare")
    options = parser.parse_args(arguments)
    if options.nvflare:
        saved = json.loads(RESULTS.read_bytes())
        saved["over_nvflare"] = compare_nvflare(options.exchanges)
        RESULTS.write_text(json.dumps(saved, indent=2) + "\n")
        print(json.dumps(saved["over_nvflare"], indent=2))
        return 0

    def save(results: dict[str, object]) -> None:
        kept = None
        if RESULTS.exists():
            kept = json.loads(RESULTS.read_bytes()).get("over_nvflare")  # of an earlier run
        text = json.dumps({**results, "over_nvflare": kept}, indent=2)
        print(text, flush=True)
        RESULTS.write_text(text + "\n")

    counts = [count for count in MANY if count <= options.most]
    results = measure(options.exchanges, counts, save)
    is_met = results["is_met"]
    assert isinstance(is_met, dict)
    if not all(is_met.values()):
        return 1
    return 0


ENTRIES = (
    Entry(
        "flower",
        "a round trip of 1 kB with three sites over Flower, which polls every three seconds",
        bar=1.0,
        compared="each reply with its message",
        prepare=race_flower,
        clock=WALL,
        ceiling=BARS["https"],
    ),
)

if __name__ == "__main__":
    raise SystemExit(main())
