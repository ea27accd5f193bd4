"""Memory of this process."""

from __future__ import annotations

from pathlib import Path

STATUS = Path("/proc/self/status")  # Linux; its numbers are in KiB
MB_PER_KIB = 1024 / 1e6


def read_memory(field: str) -> float:
    """Return a field of this process's status in MB, and NaN where the system has none.

    `VmRSS` is the memory now, `VmHWM` the peak so far, `RssAnon` the memory now without files.
    """
    if not STATUS.exists():
        return float("nan")
    for line in STATUS.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * MB_PER_KIB
    raise ValueError(f"{STATUS} has no {field}")
