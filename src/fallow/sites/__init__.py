"""One site in this process: its examples, its view for client functions, and its memory."""

from fallow.sites.in_process import InProcessChannel, Simulated
from fallow.sites.site import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore, PeerMessage, Store

__all__ = [
    "InProcessChannel",
    "Label",
    "LocalSite",
    "MemoryStore",
    "PeerMessage",
    "RunComponents",
    "Simulated",
    "Store",
]
