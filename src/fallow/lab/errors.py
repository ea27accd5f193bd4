"""What can go wrong that is nobody's wrong use: exit code 1, not 2."""

from __future__ import annotations


class Failed(RuntimeError):
    """A run could not go on: a full disk, a damaged file, training that diverged."""
