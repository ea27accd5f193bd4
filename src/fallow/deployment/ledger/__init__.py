"""Ledger of a site: labeling tasks, labels, replies and privacy costs in one SQLite file."""

from fallow.deployment.ledger.ledger import Ledger

__all__ = ["Ledger"]
