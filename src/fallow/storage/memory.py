"""How much memory there is for what a file unpacks to."""

from __future__ import annotations

import os
from pathlib import Path

from fallow.core.words import size

AVAILABLE = Path("/proc/meminfo")  # of Linux
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # of a container, which may have less
UNKNOWN = 2**34
"""Bytes that are taken to be there where a system does not say."""


def count_available_bytes() -> int:
    """Bytes that can be filled without putting others out of memory: those that Linux calls
    available, elsewhere all of the machine's; no more than a container may have."""
    available_bytes = _read_available() or _count_physical() or UNKNOWN
    try:
        limit = int(CONTAINER.read_text())
    except (OSError, ValueError):  # no container, or one without a limit
        return available_bytes
    return min(available_bytes, limit)


def describe_lack(n_bytes: int, limit: int | None = None) -> str | None:
    """Return an error message for a file of this unpacked size, without its name; None if it fits.

    most: maximum number of bytes; None: the available memory.
    """
    room = limit
    if room is None:
        room = count_available_bytes()
    if n_bytes <= room:
        return None
    return (
        f"unpacks to {size(n_bytes)}, and {size(room)} of memory are available; give fewer rows, "
        "or read it where there is more"
    )


def _read_available() -> int:
    """Return the available memory of Linux; 0 if unknown."""
    try:
        lines = AVAILABLE.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _count_physical() -> int:
    """All memory of the machine; 0 where nothing says it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
