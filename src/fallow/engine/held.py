"""Copies of examples on a device, made once."""

from __future__ import annotations

import weakref
from typing import final

import torch
from torch import Tensor

from fallow.core.types import SiteId

Key = tuple[SiteId, str]


@final
class HeldRows:
    """Examples that stay on a device until others replace them.

    Examples are identified by the tensor object and its version, because comparing numbers
    would take as long as copying them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._of_sites: dict[Key, tuple[Tensor, int, Tensor]] = {}
        self._of_tests: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def copy_of(self, site: SiteId, name: str, rows: Tensor) -> Tensor:
        """Return the copy of a site's examples under a name; it replaces an earlier copy."""
        if rows.device == self.device:
            return rows
        known = self._of_sites.get((site, name))
        if known is not None and known[0] is rows and known[1] == rows._version:
            return known[2]
        self._of_sites.pop((site, name), None)  # release memory before it is needed again
        copy = rows.to(self.device)
        self._of_sites[site, name] = (rows, rows._version, copy)
        return copy

    def copy_of_tests(self, rows: Tensor) -> Tensor:
        """Return the copy of examples that are used repeatedly, for one tensor at a time."""
        if rows.device == self.device:
            return rows
        known = self._of_tests
        if known is not None and known[0]() is rows and known[1] == rows._version:
            return known[2]
        self._of_tests = None
        copy = rows.to(self.device)
        self._of_tests = (weakref.ref(rows), rows._version, copy)
        return copy

    def forget(self) -> None:
        """Release the memory."""
        self._of_sites.clear()
        self._of_tests = None
