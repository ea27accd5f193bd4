"""Datasets whose examples are features computed by a frozen module."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fallow.data.dataset import Dataset


def embed_rows(dataset: Dataset, module: nn.Module, *, batch: int = 256) -> Dataset:
    """Return the dataset with each example replaced by ``module.embed(row)``, or
    ``module(row)``.

    Examples become (n, d) float32, with further dimensions flattened. Labels, sites and
    example names are kept, and column names are dropped, with a note. A copy of the module
    runs in evaluation mode without gradients, on its own device and with its own type,
    ``batch`` examples at a time. Raises ValueError for a batch below 1 and for features
    that are not finite.

    >>> d = Dataset("toy", torch.eye(3), torch.rand(3), torch.zeros(0, 3), torch.zeros(0))
    >>> embed_rows(d, nn.Linear(3, 2)).x.shape
    torch.Size([3, 2])
    """
    if dataset.missing is not None:
        raise ValueError(
            f"{dataset.name} has empty cells, which a frozen model does not support; omit "
            "such rows with drop_rows=true"
        )
    if batch < 1:
        raise ValueError(f"the batch is {batch}; give at least 1 row")
    frozen = copy.deepcopy(module).eval()
    embed: Callable[[Tensor], Tensor] = getattr(frozen, "embed", frozen)
    like = next(frozen.parameters(), dataset.x)

    @torch.no_grad()
    def features(x: Tensor) -> Tensor:
        blocks = [
            embed(block.to(like)).flatten(1).float().cpu()
            for block in torch.split(x, batch)
        ]
        return torch.cat(blocks)

    x = features(dataset.x)
    x_test = x.new_zeros(0, x.shape[1])
    if len(dataset.x_test):
        x_test = features(dataset.x_test)
    note = f"rows are the {x.shape[1]} features of a frozen {type(module).__name__}"
    return dataclasses.replace(
        dataset, x=x, x_test=x_test, columns=(), notes=(*dataset.notes, note)
    )
