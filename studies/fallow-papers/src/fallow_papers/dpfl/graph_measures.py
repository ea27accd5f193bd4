"""Measures of a collaboration graph, (N, N): rows are receivers, columns are senders."""

from __future__ import annotations

import torch
from torch import Tensor


def sparsity(graph: Tensor, with_self: bool = False) -> float:
    """Return the share of absent links.

    ``with_self`` counts self-links as present, as the paper's plots do.
    """
    n = len(graph)
    links = float(graph.sum())
    if with_self:
        return 1 - (links + n) / n**2
    return 1 - links / max(n * (n - 1), 1)


def agreement(graph: Tensor) -> float:
    """Return the share of pairs linked in both or in no direction; 1 without a pair.

    >>> agreement(torch.tensor([[False, True], [False, False]]))
    0.0
    """
    k, j = torch.triu_indices(len(graph), len(graph), 1)  # each pair once
    same = graph[k, j] == graph[j, k]
    if len(same) == 0:
        return 1.0
    return float(same.double().mean())


def reciprocity(graph: Tensor) -> float:
    """Return the share of links whose reverse exists; NaN without a link."""
    links = float(graph.sum())
    if links == 0:
        return float("nan")
    return float((graph & graph.T).sum()) / links


def churn(before: Tensor, after: Tensor) -> float:
    """Return the mean over sites of the Jaccard distance of their peers; 0 without any."""
    both = (before & after).sum(1).double()  # (N,) peers in both graphs
    either = (before | after).sum(1).double()
    distance = torch.where(either > 0, 1 - both / either.clamp_min(1), 0.0)
    return float(distance.mean())


def share_from(graph: Tensor, marked: Tensor) -> float:
    """Return the share of links from ``marked`` sites (N,) bool.

    The share is the mean over the other sites with links; NaN if none has any.
    """
    rows = graph[~marked].double()
    rows = rows[rows.sum(1) > 0]
    return float((rows[:, marked].sum(1) / rows.sum(1)).mean())
