"""Copies of rows on a device, made once."""

from __future__ import annotations

import weakref
from typing import final

import torch
from torch import Tensor

from fallow.core.types import SiteId

Key = tuple[SiteId, str]


@final
class HeldRows:
    """Rows that stand on a device until others take their place.

    Rows are known by being the same tensor, and unchanged since: comparing numbers would cost as
    much as copying them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._of_sites: dict[Key, tuple[Tensor, int, Tensor]] = {}
        self._of_tests: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def copy_of(self, site: SiteId, name: str, rows: Tensor) -> Tensor:
        """The rows that a site has under a name; they take the place of those before them."""
        if rows.device == self.device:
            return rows
        known = self._of_sites.get((site, name))
        if known is not None and known[0] is rows and known[1] == rows._version:
            return known[2]
        self._of_sites.pop(
            (site, name), None
        )  # its memory is free before it is needed again
        copy = rows.to(self.device)
        self._of_sites[site, name] = (rows, rows._version, copy)
        return copy

    def copy_of_tests(self, rows: Tensor) -> Tensor:
        """Rows that are looked at again and again, as long as they live; one set of them."""
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
        """Give the memory back."""
        self._of_sites.clear()
        self._of_tests = None
