"""Batch norm, and how many examples it needs in a batch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
BATCH_OF_ONE = (
    "batch_size is 1, and batch norm of the model needs two examples in each batch; set "
    "batch_size to 2 or more, or use a model without batch norm, such as nn.GroupNorm"
)
"""Error message for batches of one example."""


def needs_two_rows(model: nn.Module, row: Tensor) -> bool:
    """Return whether a batch of one example has a single value per channel of a batch norm.

    row: (1, *shape). The statistics of a single value are undefined, so PyTorch raises an
    error. Batch norm on the pixels of one image has several values.

    >>> needs_two_rows(nn.BatchNorm1d(4), torch.zeros(1, 4))
    True
    >>> needs_two_rows(nn.BatchNorm2d(3), torch.zeros(1, 3, 8, 8))
    False
    """
    norms = [part for part in model.modules() if isinstance(part, BATCH_NORMS)]
    if not norms:
        return False
    single: list[bool] = []

    def count_values(norm: nn.Module, args: tuple[Tensor, ...]) -> None:
        values = args[0]
        single.append(values.numel() == values.shape[1])

    probe = copy.deepcopy(model).eval()
    for part in probe.modules():
        if isinstance(part, BATCH_NORMS):
            part.register_forward_pre_hook(count_values)
    with torch.no_grad():
        probe(row)
    return any(single)
