"""Peak memory of the kernels: no matrix of gradients, no matrix of all distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fallow.core.streams import stream
from fallow.strategies.parts.kcenter import FeatureVectors, Gradients, k_center
from fallow.strategies.parts.kmeans import k_means_pp, residuals

M, C, D, N = 3000, 10, 64, 40
Z = torch.randn(M, D, generator=stream(0, "sizes"))
Q = residuals(torch.randn(M, C, generator=stream(1, "sizes")).softmax(1))


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Records the size of the largest new tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.numel: int = 0

    # Any: torch kernels have arbitrary signatures
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        parts = made if isinstance(made, tuple | list) else [made]
        self.numel = max([self.numel, *(p.numel() for p in parts if torch.is_tensor(p))])
        return made


def largest(run: Callable[[], Tensor]) -> int:
    seen = Largest()
    with seen:
        run()
    return seen.numel


@pytest.mark.parametrize(
    "run",
    [
        lambda: k_means_pp(Gradients.of(Q, Z), N, stream(0, "draws")),
        lambda: k_center(Gradients.of(Q, Z), N, first=0),
        lambda: k_center(FeatureVectors.of(Z), N, first=0),
    ],
    ids=["badge", "k-center on gradients", "core-set"],
)
def test_no_tensor_is_larger_than_the_features(run: Callable[[], Tensor]) -> None:
    assert largest(run) <= M * D < M * C * D


def test_distances_to_labeled_rows_come_in_blocks() -> None:
    pool, anchors = Gradients.of(Q, Z), Gradients.of(Q, Z)
    assert largest(lambda: pool.nearest(anchors)) <= 1024 * M < M * M


def test_the_matrix_of_gradients_would_be_noticed() -> None:
    assert largest(lambda: torch.einsum("mc,md->mcd", Q, Z)) == M * C * D
