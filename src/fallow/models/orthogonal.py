"""Random orthogonal matrices, and rows that are mixed with them (FedSVD; Chai et al., 2022).

Mixing keeps what rows span and how long their combinations are, and shows no row by itself.  It is
masking without a formal guarantee.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 1000  # rows that are mixed with one another at least, where there are as many


def haar(n: int, generator: torch.Generator) -> Tensor:
    """A uniformly random orthogonal matrix, (n, n) float64.

    The decomposition alone fixes signs by its own rule, and then Q is not uniform (Mezzadri, 2007).

    >>> q = haar(3, torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(q.T @ q, torch.eye(3).double()))
    True
    """
    normal = torch.randn(n, n, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    result: Tensor = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return result.contiguous()


def mix(rows: Tensor, generator: torch.Generator, width: int) -> Tensor:
    """P times rows, for a fresh P that is uniform in blocks of at least max(`BLOCK`, 10 width) rows
    or all of them.  (n, c) -> (n, c)

    width: the columns of what is hidden; a block of fewer rows than that would hide little.
    """
    return torch.cat([haar(len(part), generator) @ part for part in blocks(rows, width)])


def unmix(rows: Tensor, generator: torch.Generator, width: int) -> Tensor:
    """Pᵀ times rows, for the P that `mix` drew from an equal generator.  (n, c) -> (n, c)"""
    return torch.cat([haar(len(part), generator).T @ part for part in blocks(rows, width)])


def blocks(rows: Tensor, width: int) -> tuple[Tensor, ...]:
    """The rows that are mixed with one another."""
    return torch.tensor_split(rows, max(1, len(rows) // max(BLOCK, 10 * width)))
