"""The most similar rows by cosine, without ever building the matrix of all pairs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fallow.queries.parts.kcenter import CHUNK, EXACT


def most_similar(x: Tensor, k: int, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The ``k`` rows of ``x`` that are most similar to each row of ``x``, and to those of ``more``.

    x: (m, d); more: (n, d) -> cosines and positions in ``x``, both (m + n, k'), most similar first,
    with k' = min(k, m - 1).  A row of ``x`` is left out of its own list, as itself and not as the
    nearest one: its copies stay.

    >>> most_similar(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 1)[
    ...     1
    ... ].flatten().tolist()
    [1, 0, 0]
    """
    exact = torch.float64 if len(x) < EXACT else x.dtype
    rows = normalize(x.to(exact))
    k = max(min(k, len(x) - 1), 0)
    others = () if more is None else torch.split(normalize(more.to(exact)), CHUNK)
    found = [block.topk(k, 1) for block in _among(rows)]
    found += [(block @ rows.T).topk(k, 1) for block in others]
    cosine = torch.cat([rows.new_empty(0, k), *(best for best, _ in found)])
    return cosine, torch.cat(
        [torch.empty(0, k, dtype=torch.int64), *(at for _, at in found)]
    )


def _among(rows: Tensor) -> Iterator[Tensor]:
    """Cosines of rows with all rows, block by block: (b, m), a row with itself at -inf."""
    first = 0
    for block in torch.split(rows, CHUNK):
        cosine, at = block @ rows.T, torch.arange(len(block))
        cosine[at, first + at] = -torch.inf
        yield cosine
        first += len(block)
