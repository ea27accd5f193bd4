"""Old words for what public codes do: ``fallow.compat:NAME``.

Studies name classes by these words on disk, so they stay; the classes live with their paper.
"""

from __future__ import annotations

import importlib
from typing import Any

from fallow.core.terms import nearest

VERSION = 1
"""Of the table below: raised when a class moves again."""

MOVED = {
    "NaNKSAS": "fallow.papers.ahfal.codes",
    "PixelBADGE": "fallow.papers.ahfal.codes",
    "PlainFEAL": "fallow.papers.ahfal.codes",
    "PlainLoGo": "fallow.papers.ahfal.codes",
    "PlainNoise": "fallow.papers.ahfal.codes",
    "RatioAHFAL": "fallow.papers.ahfal.codes",
}
"""Class -> the module where it lives now."""

__all__ = [*MOVED]


def __getattr__(name: str) -> Any:
    """The class of an old word.  Raises AttributeError, which names the nearest, for another."""
    if name not in MOVED:
        raise AttributeError(
            f"no class of a public code is called so{nearest(name, [*MOVED])}"
        )
    return getattr(importlib.import_module(MOVED[name]), name)
