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

    >>> cosines, at = most_similar(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), k=1)
    >>> at.flatten().tolist()
    [1, 0, 0]
    """
    if len(x) < EXACT:
        x = x.double()
    rows = normalize(x)
    k = max(min(k, len(x) - 1), 0)
    cosines = [rows.new_empty(0, k)]
    places = [torch.empty(0, k, dtype=torch.int64)]
    for block in _cosines(rows, more):
        best, at = block.topk(k, 1)
        cosines.append(best)
        places.append(at)
    return torch.cat(cosines), torch.cat(places)


def _cosines(rows: Tensor, more: Tensor | None) -> Iterator[Tensor]:
    """Cosines of ``rows`` (m, d), of length 1, and then of ``more`` (n, d) with all ``rows``, block
    by block: (b, m); a row with itself is at -inf."""
    first = 0  # the position of the block's first row
    for block in torch.split(rows, CHUNK):
        cosine = block @ rows.T
        at = torch.arange(len(block))
        cosine[at, first + at] = -torch.inf
        yield cosine
        first += len(block)
    if more is not None:
        for block in torch.split(normalize(more.to(rows)), CHUNK):
            yield block @ rows.T
