"""The few types that everything shares."""

from __future__ import annotations

from torch import Tensor

SiteId = str
"""Who holds data (the papers' client)."""

Value = Tensor | float | int | bool | str | None
Answer = dict[str, Value]
"""What a verb takes and returns: a flat dictionary of tensors and plain values."""

State = dict[str, Tensor]
"""A model as flat vectors: ``w`` (d,) parameters, ``stats`` (s,) float statistics."""
