"""The most similar rows by cosine, without ever building the matrix of all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fallow.core.products import place
from fallow.queries.parts.kcenter import CHUNK, EXACT

CELLS = 2**24  # cosines of a block: 64 MB in single precision
SAMPLE = 2048  # cosines of a row that tell where its largest begin
FEW = 50  # as few are found at once
ROOM = 4.0  # standard deviations of a count in the sample


def most_similar(x: Tensor, k: int, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The ``k`` rows of ``x`` that are most similar to each row of ``x``, and to those of ``more``.

    x: (m, d); more: (n, d) -> cosines and positions in ``x``, both (m + n, k'), most similar first,
    with k' = min(k, m - 1).  A row of ``x`` is left out of its own list, as itself and not as the
    nearest one: its copies stay.  Time grows as (m + n) m, memory as m.

    >>> cosines, at = most_similar(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), k=1)
    >>> at.flatten().tolist()
    [1, 0, 0]
    """
    blocks = list(similar_blocks(x, k, more))
    cosines = [best for best, _ in blocks]
    places = [at for _, at in blocks]
    return torch.cat(cosines), torch.cat(places)


def similar_blocks(
    x: Tensor, k: int, more: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """What `most_similar` finds, (b, k') of some rows after the other: who needs the first rows
    alone pays for those."""
    if len(x) < EXACT:
        x = x.double()
    rows = normalize(place(x))
    k = max(min(k, len(x) - 1), 0)
    for block in _cosines(rows, more):
        best, at = _largest(block, k)
        yield best.cpu(), at.cpu()


def _cosines(rows: Tensor, more: Tensor | None) -> Iterator[Tensor]:
    """Cosines of ``rows`` (m, d), of length 1, and then of ``more`` (n, d) with all ``rows``, block
    by block: (b, m), valid until the next one; a row with itself is at -inf."""
    size = max(1, min(CHUNK, CELLS // max(len(rows), 1)))
    # One piece of memory for all blocks: so much of it anew takes longer than what is in it.
    memory = rows.new_empty(size, len(rows))
    first = 0  # the position of the block's first row
    for block in torch.split(rows, size):
        cosine = torch.mm(block, rows.T, out=memory[: len(block)])
        at = torch.arange(len(block))
        cosine[at, first + at] = -torch.inf
        yield cosine
        first += len(block)
    if more is not None:
        for block in torch.split(normalize(more.to(rows)), size):
            yield torch.mm(block, rows.T, out=memory[: len(block)])


def _largest(block: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest of each row, descending, and where they are.  (b, m) -> (b, k) twice.

    Where many of very many are wanted, a sample tells first above what they lie, and only what does
    is sorted; rows of which the sample told too much are sorted whole.  A device finds them whole as
    fast.
    """
    m = block.shape[1]
    if k < FEW or m < EXACT or not block.is_cpu:
        largest: tuple[Tensor, Tensor] = block.topk(k, 1)
        return largest
    sample = block[:, :: m // SAMPLE]
    share = k / m * sample.shape[1]
    bound = math.ceil(share + ROOM * math.sqrt(share))
    least = sample.topk(bound, 1).values[:, -1:]
    row, column = _nonzero(block >= least)
    counts = torch.bincount(row, minlength=len(block))
    rank = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]  # within its row
    found = block.new_full((len(block), max(int(counts.max()), k)), -torch.inf)
    found[row, rank] = block[row, column]
    places = torch.zeros(found.shape, dtype=torch.int64)
    places[row, rank] = column
    best, at = found.topk(k, 1)
    at = places.gather(1, at)
    short = (counts < k).nonzero().squeeze(1)
    best[short], at[short] = block[short].topk(k, 1)
    return best, at


def _nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of what is true in (b, m), row by row.  NumPy's search is four times faster."""
    at = torch.from_numpy(mask.numpy().ravel().nonzero()[0])
    return at // mask.shape[1], at % mask.shape[1]
