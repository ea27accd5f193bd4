"""A site's ledger: what was asked, answered, sent and spent, in one SQLite file."""

from fallow.federation.ledger.ledger import Ledger

__all__ = ["Ledger"]
