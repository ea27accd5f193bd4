"""BAIT: 500 of 10,000 examples with 512 features, forward and backward."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.strategies.bait import forward_backward
from fallow.strategies.parts.posterior import SIGMA, TIED, LastLayer, Reduction, with_one

CERTAIN = 1e-12  # 1 - φ'Mφ of an example that is not removed


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return race(rows=300, features=12, selected=20)
    return race(rows=10_000, features=512, selected=500)


def race(rows: int, features: int, selected: int) -> Race:
    x = with_one(
        torch.randn(rows + selected, features, generator=stream(0, "bench features"))
    )
    layer = LastLayer(x[:rows], x[rows:], torch.arange(rows))
    results: dict[str, Tensor] = {}

    def theirs() -> None:
        results["theirs"] = plain_bait(layer, selected)

    def ours() -> None:
        reduction = Reduction.of(layer, SIGMA)
        results["ours"] = forward_backward(reduction, selected, 2 * selected)

    def are_equal() -> bool:
        return torch.equal(results["theirs"], results["ours"])

    return Race(theirs, ours, are_equal, runs=1)


def plain_bait(layer: LastLayer, n: int) -> Tensor:
    """Return Mφ and RMφ of all examples, updated in place for each selection."""
    z = layer.posterior(SIGMA)
    root = torch.linalg.qr(torch.cat([z.pool, z.labeled]), mode="r").R
    phi = z.pool.contiguous()
    m_phi = phi.clone()
    r_m_phi = phi @ root.T
    is_out = torch.zeros(len(phi), dtype=torch.bool)
    selected: list[int] = []
    for _ in range(2 * n):
        gain = r_m_phi.square().sum(1) / (1 + torch.linalg.vecdot(phi, m_phi))
        gain[is_out] = -torch.inf
        j = first_of(gain)
        label(j, 1, phi, m_phi, r_m_phi)
        is_out[j] = True
        selected.append(j)
    kept = torch.tensor(selected)
    phi = phi[kept]
    m_phi = m_phi[kept]
    r_m_phi = r_m_phi[kept]
    is_out = torch.zeros(len(phi), dtype=torch.bool)
    for _ in range(n):
        left = 1 - torch.linalg.vecdot(phi, m_phi)
        loss = r_m_phi.square().sum(1) / left
        loss[is_out | (left <= CERTAIN)] = torch.inf
        j = int(loss.argmin())
        label(j, -1, phi, m_phi, r_m_phi)
        is_out[j] = True
    return kept[~is_out]


def label(j: int, sign: int, phi: Tensor, m_phi: Tensor, r_m_phi: Tensor) -> None:
    """Add (1) or remove (-1) example ``j`` by the Sherman-Morrison formula."""
    step = m_phi @ phi[j]
    step /= sign + step[j]
    m_phi.addr_(step, m_phi[j].clone(), alpha=-1)
    r_m_phi.addr_(step, r_m_phi[j].clone(), alpha=-1)


def first_of(gain: Tensor) -> int:
    """Return the first index of the maximum, up to rounding."""
    return int((gain >= gain.max() * (1 - TIED)).nonzero()[0])


ENTRIES = (
    Entry(
        "bait",
        "Sherman and Morrison on Mφ and RMφ of all rows, in place, for each selection; one run",
        bar=3.0,
        compared="the selections that were timed: identical",
        prepare=prepare,
        ceiling=12.0,
    ),
)
