"""Federated active learning: many sites, few labels."""

from fallow._version import __version__

__all__ = ["__version__"]
