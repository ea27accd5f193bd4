"""The few types that everything shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SiteId = str
"""Who holds data (the papers' client)."""

Value = Tensor | float | int | bool | str | None
Answer = dict[str, Value]
"""What a verb takes and returns: a flat dictionary of tensors and plain values."""

State = dict[str, Tensor]
"""A model as flat vectors: ``w`` (d,) parameters, ``stats`` (s,) float statistics."""

Tree = dict[str, Any]
"""An object of JSON, or of tensors and JSON (`fallow.storage.packing`): what stands in it is known
once somebody has looked."""

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}
"""What a recipe may compute in, by its name."""
