"""Greedy k-center: pick, again and again, the row that is farthest from all picks so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

CHUNK = 4096  # rows of a distance block: an m x n matrix is never built


class Points(Protocol):
    """Rows in some space: half squared Euclidean distances, never all at once."""

    def to(self, j: int) -> Tensor: ...  # (m,) from every row to row j
    def nearest(self, other: Points) -> Tensor: ...  # (m,) to the nearest row of ``other``
    def half_norms(self) -> Tensor: ...  # (m,) half squared norms


@final
@dataclass(frozen=True)
class Features:
    """Rows of a matrix.  x: (m, d)."""

    x: Tensor
    half: Tensor

    @staticmethod
    def of(x: Tensor) -> Features:
        return Features(x, x.square().sum(1) / 2)

    def half_norms(self) -> Tensor:
        return self.half

    def to(self, j: int) -> Tensor:
        return torch.addmv(self.half, self.x, self.x[j], alpha=-1).add_(self.half[j])

    def nearest(self, other: Points) -> Tensor:
        assert isinstance(other, Features)
        blocks = zip(torch.split(self.x, CHUNK), torch.split(self.half, CHUNK), strict=True)
        found = [(other.half - x @ other.x.T).amin(1) + half for x, half in blocks]
        return torch.cat(found)


@final
@dataclass(frozen=True)
class Gradients:
    """Rows q ⊗ z, kept as their two factors.  q: (m, c), z: (m, d).

    ||q⊗z - q'⊗z'||² = |q|²|z|² + |q'|²|z'|² - 2 <q,q'><z,z'>: no m x (c d) matrix is built.
    """

    q: Tensor
    z: Tensor
    half: Tensor

    @staticmethod
    def of(q: Tensor, z: Tensor) -> Gradients:
        return Gradients(q, z, q.square().sum(1) * z.square().sum(1) / 2)

    def half_norms(self) -> Tensor:
        return self.half

    def to(self, j: int) -> Tensor:
        inner = (self.q @ self.q[j]).mul_(self.z @ self.z[j])
        return (self.half + self.half[j]).sub_(inner).clamp_min_(0)

    def nearest(self, other: Points) -> Tensor:
        assert isinstance(other, Gradients)
        parts = (torch.split(part, CHUNK) for part in (self.q, self.z, self.half))
        found = [
            (other.half - (q @ other.q.T).mul_(z @ other.z.T)).amin(1) + half
            for q, z, half in zip(*parts, strict=True)
        ]
        return torch.cat(found)


def k_center(
    points: Points, n: int, nearest: Tensor | None = None, first: int | None = None
) -> Tensor:
    """``n`` picks; each is farthest from the anchors (``nearest``) and all earlier picks.

    nearest: (m,) half squared distance to the nearest anchor; ``first``: the first pick, where
    there is no anchor.  A row is never picked twice, also when rows are equal.
    """
    half = points.half_norms()
    left = torch.full_like(half, torch.inf) if nearest is None else nearest.clone()
    picks: list[int] = []
    for _ in range(min(n, len(half))):
        j = first if first is not None and not picks else int(left.argmax())
        torch.minimum(left, points.to(j), out=left)
        left[j] = -torch.inf
        picks.append(j)
    return torch.tensor(picks, dtype=torch.int64)
