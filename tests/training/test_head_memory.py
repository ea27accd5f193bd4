"""Features are float32, and only a block of them is converted to float64 at a time."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.training.parts.adassp import sum_products
from fallow.training.parts.ridge import BLOCK, LinearHead, add_up, predict, sum_features
from tests.experiment.crash import start_child, wait_for_child

ROWS, FEATURES, CLASSES = 400_000, 64, 3
SPARE = 80 * 2**20  # bytes; all examples in float64 are 205 MB

Work = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
HEAD = LinearHead(
    torch.ones(FEATURES, CLASSES, dtype=torch.float64),
    torch.zeros(CLASSES, dtype=torch.float64),
)
WORKS: dict[str, Work] = {
    "add_up": lambda z, y, s: add_up(z, y, s),
    "sum_features": lambda z, y, s: sum_features(z, s),
    "predict": lambda z, y, s: predict(z, HEAD),
    "sum_products": lambda z, y, s: sum_products(z, y),
}


def peak() -> int:
    """Return the peak memory of this process, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("name", WORKS)
def test_memory_does_not_grow_with_rows(name: str) -> None:
    """Measure in a separate process, since peak memory never falls."""

    def work() -> None:
        z = torch.ones(ROWS, FEATURES)
        y = torch.ones(ROWS, CLASSES, dtype=torch.float64)
        s = torch.ones(ROWS, dtype=torch.float64)
        few = slice(0, BLOCK)
        WORKS[name](z[few], y[few], s[few])
        before = peak()
        WORKS[name](z, y, s)
        grown = peak() - before
        assert grown < SPARE, f"{grown:,} bytes more"

    assert wait_for_child(start_child(work)) == 0


def test_blocks_say_what_all_rows_at_once_say() -> None:
    draw = stream(0, "blocks")
    z = torch.randn(2 * BLOCK + 5, 3, generator=draw)
    s = torch.rand(len(z), generator=draw, dtype=torch.float64)
    head = LinearHead(torch.randn(3, 2, generator=draw, dtype=torch.float64), torch.ones(2))
    assert_close(sum_features(z, s), s @ z.double())
    assert_close(predict(z, head), z.double() @ head.weight + head.bias)
    few = slice(0, BLOCK)  # one block gives bitwise the same result as without blocks
    assert torch.equal(sum_features(z[few], s[few]), s[few] @ z[few].double())
    assert sum_features(z[:0], s[:0]).tolist() == [0, 0, 0]
    assert predict(z[:0], head).shape == (0, 2)
