"""Federated active learning: many sites, few labels."""

from __future__ import annotations

from fallow._face import WHERE
from fallow._face import __dir__ as __dir__
from fallow._face import __getattr__ as __getattr__
from fallow._version import __version__

__all__ = ["__version__", *WHERE]
