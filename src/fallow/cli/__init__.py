"""Command line: ``fallow``."""

from fallow.cli.app import main

__all__ = ["main"]
