"""Who carries verbs to sites."""

from fallow.runtimes.bytes import Bytes
from fallow.runtimes.inprocess import InProcess
from fallow.runtimes.site import Parts, Site
from fallow.runtimes.store import Label, Letter, MemoryStore, Store

__all__ = ["Bytes", "InProcess", "Label", "Letter", "MemoryStore", "Parts", "Site", "Store"]
