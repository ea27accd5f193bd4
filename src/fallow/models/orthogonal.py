"""Random orthogonal matrices, and mixing of examples with them (FedSVD; Chai et al., 2022).

Mixing preserves the span of the examples and the lengths of their combinations, and hides single
examples.  It is masking without a formal guarantee.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 1000  # minimum number of examples mixed with each other, if there are as many


def haar(n: int, generator: torch.Generator) -> Tensor:
    """Draw a uniformly random orthogonal matrix, (n, n) float64.

    Signs are corrected, because those of the decomposition alone are not uniform (Mezzadri, 2007).

    >>> q = haar(3, torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(q.T @ q, torch.eye(3).double()))
    True
    """
    normal = torch.randn(n, n, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    result: Tensor = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return result.contiguous()


def mix(rows: Tensor, generator: torch.Generator, width: int) -> Tensor:
    """Multiply examples by a random P.  (n, c) -> (n, c)

    P is uniform in blocks of at least max(`BLOCK`, 10 width) examples, or all of them.  width:
    number of columns of the hidden data; a block with fewer examples would hide little.
    """
    return torch.cat([haar(len(part), generator) @ part for part in blocks(rows, width)])


def unmix(rows: Tensor, generator: torch.Generator, width: int) -> Tensor:
    """Multiply by Pᵀ, for the P that `mix` drew from an equal generator.  (n, c) -> (n, c)"""
    return torch.cat([haar(len(part), generator).T @ part for part in blocks(rows, width)])


def blocks(rows: Tensor, width: int) -> tuple[Tensor, ...]:
    """Return the blocks of examples that are mixed with each other."""
    return torch.tensor_split(rows, max(1, len(rows) // max(BLOCK, 10 * width)))
