"""Boosted decision trees as a network, so that they are stored, sent and exported like others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, final

import torch
from torch import Generator, Tensor, nn

from fallow.models.base import predict_by_head, row_shape

BINARY = 2
MOST_DEPTH = 8


@final
class Trees(nn.Module):
    """Sums of decision trees on the flattened example, grown by ``boosted-trees``.

    In each stage, all trees are complete binary trees of the same depth.  Node k has the children
    2 k + 1 and 2 k + 2.  An example goes to the second one if its ``column`` is above
    ``threshold``.  Two classes and regression have one sum of trees, and more classes one each.
    The embedding is these sums, and the head maps them to logits.

    Parameters
    ----------
    stages : int
        Number of trees in each sum.
    depth : int
        Number of decisions from the root of a tree to a leaf.
    """

    features_are_rows: ClassVar[bool] = True  # for query strategies

    def __init__(
        self, shape: Sequence[int], outputs: int, *, stages: int = 100, depth: int = 3
    ) -> None:
        super().__init__()
        if not 1 <= depth <= MOST_DEPTH or stages < 1:
            raise ValueError(
                f"Trees has {stages} stages of depth {depth}; it needs at least one stage, and a "
                f"depth from 1 to {MOST_DEPTH}"
            )
        self.width = math.prod(row_shape(shape))
        self.depth = depth
        sums = count_sums(outputs)
        nodes = 2**depth - 1
        self.head = nn.Linear(sums, outputs).requires_grad_(False)
        self.column = nn.Parameter(torch.zeros(stages, sums, nodes), requires_grad=False)
        self.threshold = nn.Parameter(torch.zeros(stages, sums, nodes), requires_grad=False)
        self.leaf = nn.Parameter(torch.zeros(stages, sums, nodes + 1), requires_grad=False)

    def embed(self, x: Tensor) -> Tensor:
        """Return the sums of trees.  x: (n, *shape) -> (n, sums)."""
        return self.list_values(x).sum(1)

    def list_values(self, x: Tensor) -> Tensor:
        """Return the value of each tree.  x: (n, *shape) -> (n, stages, sums)."""
        flat = x.flatten(1)
        stages, sums, nodes = self.column.shape
        trees = torch.arange(stages * sums, device=x.device)
        columns = self.column.flatten().long()
        thresholds = self.threshold.flatten()
        # the node within its level, (n, trees); with len(flat), an export would fix n
        node = torch.zeros_like(trees).expand(flat.shape[0], -1)
        for level in range(self.depth):
            at = trees * nodes + (2**level - 1) + node
            is_above = flat.gather(1, columns[at]) > thresholds[at]
            node = 2 * node + is_above.long()
        values = self.leaf.flatten()[trees * (nodes + 1) + node]
        return values.reshape(-1, stages, sums)

    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Set all trees to 0, which draws nothing."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.head.weight.copy_(head_weights(*self.head.weight.shape))


class TreeValues(NamedTuple):
    """Decisions (stages, sums, nodes) and leaves (stages, sums, nodes + 1) of `Trees`."""

    column: Tensor
    threshold: Tensor
    leaf: Tensor

    @staticmethod
    def zeros(stages: int, sums: int, depth: int) -> TreeValues:
        """Return trees that add nothing, in float64."""
        shape = (stages, sums, (1 << depth) - 1)
        leaf = torch.zeros(stages, sums, 1 << depth, dtype=torch.float64)
        return TreeValues(torch.zeros(shape).double(), torch.zeros(shape).double(), leaf)

    def flatten(self, baseline: Tensor, outputs: int) -> Tensor:
        """Return the weights of `Trees` as a flat vector: trees, then the head.

        baseline: (sums,) added to the sums of trees.
        """
        weight = head_weights(outputs, len(baseline)).double()
        parts = (self.column, self.threshold, self.leaf, weight, weight @ baseline)
        return torch.cat([part.flatten() for part in parts])


def count_sums(outputs: int) -> int:
    """Return the number of sums of trees of a model with so many outputs.

    >>> count_sums(1), count_sums(2), count_sums(3)
    (1, 1, 3)
    """
    return outputs if outputs > BINARY else 1


def head_weights(outputs: int, sums: int) -> Tensor:
    """Return the weights with which sums of trees are logits, (outputs, sums).

    >>> head_weights(2, 1).tolist()
    [[-0.5], [0.5]]
    """
    if outputs == BINARY:
        return torch.tensor([[-0.5], [0.5]])
    return torch.eye(outputs, sums)
