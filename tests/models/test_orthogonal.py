"""Random orthogonal matrices."""

from __future__ import annotations

import pytest
import torch

from fallow.core.streams import stream
from fallow.models.orthogonal import BLOCK, blocks, haar, mix, unmix


@pytest.mark.parametrize("n", [0, 1, 4, 60])
def test_columns_are_orthonormal(n: int) -> None:
    q = haar(n, stream(0, "q"))
    torch.testing.assert_close(q.T @ q, torch.eye(n).double(), rtol=0, atol=1e-12)


def test_no_direction_is_preferred() -> None:
    generator, draws = stream(0, "q"), 2000
    trace = torch.stack([haar(4, generator).trace() for _ in range(draws)])
    assert abs(float(trace.mean())) < 4 / draws**0.5  # E[trace] is 0 and E[trace²] is 1
    bare = torch.randn(draws, 4, 4, generator=generator, dtype=torch.float64)
    trace = torch.linalg.qr(bare).Q.diagonal(dim1=1, dim2=2).sum(1)
    # the decomposition alone is biased to one sign
    assert abs(float(trace.mean())) > 4 / draws**0.5


def test_a_matrix_of_one_number_is_a_sign() -> None:
    seen = {float(haar(1, stream(seed, "q"))) for seed in range(20)}
    assert seen == {-1.0, 1.0}


def test_what_is_mixed_has_the_same_products_and_other_rows() -> None:
    x = torch.randn(50, 3, generator=stream(0, "x"), dtype=torch.float64)
    mixed = mix(x, stream(1, "mask"), 3)
    torch.testing.assert_close(mixed.T @ mixed, x.T @ x, rtol=1e-12, atol=1e-12)
    assert float((mixed - x).abs().max()) > 0.1
    torch.testing.assert_close(unmix(mixed, stream(1, "mask"), 3), x, rtol=0, atol=1e-13)
    assert float((unmix(mixed, stream(2, "mask"), 3) - x).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("rows", "width", "sizes"),
    [
        (0, 5, [0]),
        (BLOCK, 5, [BLOCK]),
        (2 * BLOCK - 1, 5, [2 * BLOCK - 1]),  # a remainder of one row would not be masked
        (2 * BLOCK + 1, 5, [BLOCK + 1, BLOCK]),
        (2 * BLOCK + 1, BLOCK // 5, [2 * BLOCK + 1]),  # wide matrices need larger blocks
    ],
)
def test_no_block_of_a_mask_is_small(rows: int, width: int, sizes: list[int]) -> None:
    assert [len(part) for part in blocks(torch.zeros(rows, 1), width)] == sizes
