"""A site in this process: its rows, what verbs see of it, its memory, and who answers for it."""

from fallow.sites.in_process import InProcess
from fallow.sites.oracle import Simulated
from fallow.sites.site import LocalSite, Parts
from fallow.sites.store import Label, MemoryStore, RelayedMessage, Store

__all__ = [
    "InProcess",
    "Label",
    "LocalSite",
    "MemoryStore",
    "Parts",
    "RelayedMessage",
    "Simulated",
    "Store",
]
