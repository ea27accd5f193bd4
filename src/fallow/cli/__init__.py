"""The ``fallow`` command."""

from fallow.cli.app import main

__all__ = ["main"]
