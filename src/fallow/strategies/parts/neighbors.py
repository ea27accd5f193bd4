"""Nearest neighbors by cosine similarity, without the matrix of all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fallow.core.products import to_device
from fallow.strategies.parts.kcenter import CHUNK, EXACT

CELLS = 2**24  # cosines of a block: 64 MB in single precision
SAMPLE = 2048  # sampled cosines of an example, for a bound on its largest
FEW = 50  # number below which no sample is used
ROOM = 3.0  # standard deviations of a count in the sample
PAIRED = 8192  # examples; from here on each pair is multiplied once
TILE = 512  # examples; the cosines of two tiles fit in the cache of the CPU
SPARE = (
    4  # multiple of requested pairs that are stored for a tile before the best are selected
)

Array = npt.NDArray[Any]
Passed = tuple[Array, Array, Array]  # rows of a tile, places of their neighbors, cosines


def most_similar(x: Tensor, k: int, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the ``k`` examples of ``x`` most similar to each example of ``x`` and of ``more``.

    x: (m, d); more: (n, d) -> cosines and positions in ``x``, both (m + n, k'), the most similar
    first, with k' = min(k, m - 1).  An example of ``x`` is not in its own list, but its duplicates
    are.  Time is proportional to (m + n) m, memory to m.

    >>> cosines, at = most_similar(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), k=1)
    >>> at.flatten().tolist()
    [1, 0, 0]
    """
    rows = _unit_rows(x)
    k = max(min(k, len(x) - 1), 0)
    if k >= FEW and len(x) >= PAIRED and rows.is_cpu:
        blocks = [_search_pairs(rows, k)]
    else:
        blocks = list(_best_of_blocks(_cosines(rows), k))
    if more is not None:
        blocks += _best_of_blocks(_cosines_of_others(rows, more), k)
    cosines = [best for best, _ in blocks]
    places = [at for _, at in blocks]
    return torch.cat(cosines), torch.cat(places)


def similar_blocks(
    x: Tensor, k: int, more: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the result of `most_similar` in blocks, (b, k'), computed on demand."""
    rows = _unit_rows(x)
    k = max(min(k, len(x) - 1), 0)
    yield from _best_of_blocks(_cosines(rows), k)
    if more is not None:
        yield from _best_of_blocks(_cosines_of_others(rows, more), k)


def _best_of_blocks(blocks: Iterable[Tensor], k: int) -> Iterator[tuple[Tensor, Tensor]]:
    for block in blocks:
        best, at = _largest(block, k)
        yield best.cpu(), at.cpu()


def _unit_rows(x: Tensor) -> Tensor:
    """Scale examples to length 1, on the device of products; small sets in double precision."""
    if len(x) < EXACT:
        x = x.double()
    return normalize(to_device(x))


def _cosines(rows: Tensor) -> Iterator[Tensor]:
    """Yield cosines of ``rows`` (m, d), of length 1, with each other, in blocks (b, m).

    A block is valid until the next one; the cosine of an example with itself is -inf.
    """
    memory = _memory_of_block(rows)
    first = 0  # the position of the block's first row
    for block in torch.split(rows, len(memory)):
        cosine = torch.mm(block, rows.T, out=memory[: len(block)])
        at = torch.arange(len(block))
        cosine[at, first + at] = -torch.inf
        yield cosine
        first += len(block)


def _cosines_of_others(rows: Tensor, others: Tensor) -> Iterator[Tensor]:
    """Yield cosines of ``others`` (n, d) with ``rows`` (m, d), of length 1, as in `_cosines`."""
    memory = _memory_of_block(rows)
    for block in torch.split(normalize(others.to(rows)), len(memory)):
        yield torch.mm(block, rows.T, out=memory[: len(block)])


def _memory_of_block(rows: Tensor) -> Tensor:
    """Allocate one buffer for all blocks, because allocation takes longer than the products."""
    size = max(1, min(CHUNK, CELLS // max(len(rows), 1)))
    return rows.new_empty(size, len(rows))


def _largest(block: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` largest of each row, descending, and their positions.  (b, m) -> (b, k)
    twice.

    For large sets, a sample gives a lower bound first, and only larger values are sorted; rows with
    a wrong bound are sorted in full.  A device sorts in full as fast.
    """
    m = block.shape[1]
    if k < FEW or m < EXACT or not block.is_cpu:
        largest: tuple[Tensor, Tensor] = block.topk(k, 1)
        return largest
    least = _least_by_sample(block[:, :: m // SAMPLE], k / m)
    # NumPy's search is four times faster than PyTorch's.
    at = (block >= least[:, None]).numpy().ravel().nonzero()[0]
    passed = at // m, at % m, block.numpy().ravel()[at]
    best, places = _best_passed([passed], len(block), k)
    short = best[:, -1].isneginf().nonzero().squeeze(1)
    best[short], places[short] = block[short].topk(k, 1)
    return best, places


def _least_by_sample(sample: Tensor, share: float) -> Tensor:
    """Return a probable lower bound of the largest values of each row, from a sample.

    It is the quantile for ``share``, with a margin.  sample: (b, s), some cosines of each row ->
    (b,).
    """
    expected = share * sample.shape[1]
    rank = math.ceil(expected + ROOM * math.sqrt(expected))
    return sample.topk(min(rank, sample.shape[1]), 1).values[:, -1]


def _best_passed(passed: list[Passed], n: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` best candidates of each of ``n`` examples: cosines, descending, and
    positions.

    Rows with fewer candidates end in -inf.  -> (n, k) twice.
    """
    row = np.concatenate([part[0] for part in passed])
    listed = np.concatenate([part[1] for part in passed])
    cosine = np.concatenate([part[2] for part in passed])

    order = row.astype(np.uint16).argsort(kind="stable")  # of 16 bits: by counting
    row = row[order].astype(np.int64)
    counts = np.bincount(row, minlength=n)
    rank = np.arange(len(row)) - (counts.cumsum() - counts)[row]  # within its row

    shape = n, max(int(counts.max(initial=0)), k)
    cosines = np.full(shape, -np.inf, cosine.dtype)
    places = np.zeros(shape, np.int64)
    cell = row * shape[1] + rank
    cosines.ravel()[cell] = cosine[order]
    places.ravel()[cell] = listed[order]
    best, at = torch.from_numpy(cosines).topk(k, 1)
    return best, torch.from_numpy(places).gather(1, at)


def _search_pairs(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the result of `most_similar` for ``rows`` (m, d), with each pair multiplied once.

    A sample gives a bound on the k best of each example.  Tiles of examples are compared with each
    other, and a cosine is added to the lists of both examples for which it exceeds the bound.  Long
    lists are reduced to the k best, and the worst becomes the bound, so memory is proportional to m
    k regardless of the data.  Examples with a wrong bound are searched separately.
    """
    m = len(rows)
    sample = rows[:: m // SAMPLE].clone()
    bounds = []
    for block in torch.split(rows, CHUNK):
        bounds.append(_least_by_sample(block @ sample.T, k / m))
    # In the order of their bounds: rows of two tiles then share one bound, nearly.
    bound, order = torch.cat(bounds).sort()
    tiles = torch.split(rows[order], TILE)
    lists = [_List(part.numpy().copy(), k) for part in torch.split(bound, TILE)]

    values = []
    memory = rows.new_empty(TILE * TILE)
    for one in range(len(tiles)):
        for two in range(one, len(tiles)):
            shape = len(tiles[one]), len(tiles[two])
            tile = memory[: shape[0] * shape[1]].view(shape)
            torch.mm(tiles[one], tiles[two].T, out=tile)
            if one == two:
                tile.fill_diagonal_(-torch.inf)
            _share_pairs(tile.numpy(), lists, one, two)
        values.append(lists[one].take_best())

    best = torch.cat([cosines for cosines, _ in values])
    at = torch.cat([places for _, places in values])
    back = order.argsort()
    best = best[back]
    at = order.take(at)[back]
    short = best[:, -1].isneginf().nonzero().squeeze(1)
    for some in torch.split(short, CHUNK):
        cosine = rows[some] @ rows.T
        cosine[torch.arange(len(some)), some] = -torch.inf
        best[some], at[some] = cosine.topk(k, 1)
    return best, at


class _List:
    """Best pairs of the examples of a tile so far.

    bound: (t,) minimum cosine of the k best of an example.
    """

    def __init__(self, bound: Array, k: int) -> None:
        self.bound = bound
        self.k = k
        self.passed: list[Passed] = []
        self.n_passed = 0

    def add(self, row: Array, listed: Array, cosine: Array) -> None:
        """Add pairs of the examples of the tile that reach their bounds."""
        self.passed.append((row.astype(np.uint16), listed.astype(np.int32), cosine))
        self.n_passed += len(row)
        if self.n_passed > SPARE * self.k * len(self.bound):
            self._cut()

    def _cut(self) -> None:
        best, at = _best_passed(self.passed, len(self.bound), self.k)
        row, rank = best.isfinite().numpy().nonzero()
        kept = row.astype(np.uint16), at.numpy()[row, rank].astype(np.int32)
        self.passed = [(*kept, best.numpy()[row, rank])]
        self.n_passed = len(row)
        # An example with k neighbors needs a better one than the worst.
        worst = best[:, -1].numpy()
        above = np.nextafter(worst, worst.dtype.type(np.inf))
        self.bound = np.where(np.isfinite(worst), above, self.bound)

    def take_best(self) -> tuple[Tensor, Tensor]:
        """Return cosines and positions of the k best of each example, (t, k), and clear the list."""
        best = _best_passed(self.passed, len(self.bound), self.k)
        self.passed = []
        return best


def _share_pairs(tile: Array, lists: list[_List], one: int, two: int) -> None:
    """Add the cosines of two tiles to the lists of both.  tile: (a, b)"""
    mine = lists[one]
    theirs = lists[two]
    lower = np.minimum(mine.bound, theirs.bound.min())
    at = (tile >= lower[:, None]).ravel().nonzero()[0]
    cosine = tile.ravel()[at]
    row, column = np.divmod(at.astype(np.int32), np.int32(tile.shape[1]))

    is_mine = cosine >= mine.bound[row]
    mine.add(row[is_mine], column[is_mine] + two * TILE, cosine[is_mine])
    if one != two:
        is_theirs = cosine >= theirs.bound[column]
        theirs.add(column[is_theirs], row[is_theirs] + one * TILE, cosine[is_theirs])
