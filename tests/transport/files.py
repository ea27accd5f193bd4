"""Exhaust the file descriptors of this process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FEW = 256


@contextmanager
def taking_all_files() -> Iterator[None]:
    """Run a block in which this process can open no file and accept no connection."""
    now, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FEW, now), hard_limit))
    try:
        with suppress(OSError):
            while True:
                files.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, hard_limit))
        for file in files:
            os.close(file)
