"""Available memory for the content of a compressed file."""

from __future__ import annotations

import os
from pathlib import Path

from fallow.core.words import size

AVAILABLE = Path("/proc/meminfo")  # Linux
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # a container with a limit
UNKNOWN = 2**34
"""Assumed available bytes if the system does not report them."""


def count_available_bytes() -> int:
    """Return the number of bytes that can be allocated.

    On Linux this is the available memory, elsewhere all memory of the machine; the limit of a
    container applies.
    """
    available_bytes = _read_available() or _count_physical() or UNKNOWN
    try:
        limit = int(CONTAINER.read_text())
    except (OSError, ValueError):  # no container, or no limit
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
        f"unpacks to {size(n_bytes)}, but {size(room)} of memory are available; "
        "provide fewer examples, or use a machine with more memory"
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
    """Return the memory of the machine; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
