"""Federated active learning: many sites, few labels."""

from importlib.metadata import version

__version__ = version("fallow")

__all__ = ["__version__"]
