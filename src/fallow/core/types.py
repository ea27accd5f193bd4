"""Shared types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SiteId = str
"""Name of a site (a client in papers)."""

Value = Tensor | float | int | bool | str | None
Values = dict[str, Value]
"""Arguments and reply of a client function: a flat dictionary of tensors and plain values."""

State = dict[str, Tensor]
"""A model as flat vectors: ``w`` (d,) parameters, ``stats`` (s,) float statistics."""

Tree = dict[str, Any]
"""A JSON object, or one of tensors and JSON (`fallow.storage.packing`), with unvalidated content."""

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}
"""Supported precisions of an experiment configuration, by name."""
