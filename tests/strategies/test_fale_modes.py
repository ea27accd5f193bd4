"""FALE: aggregates, masked examples and triangles give the same scores and selections."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import ExchangeEntry
from fallow.data import load
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label
from fallow.strategies.fale import FALE
from fallow.transport.serialized import SerializingChannel
from tests.privacy.federation import SECURE, asking
from tests.simulations import Forgetful, Simulation
from tests.strategies.regression import (
    EPS,
    SIZES,
    draws,
    equal,
    federation,
    overheard,
    picked,
    shared,
    stacked,
    svd_leverage,
    table,
    with_ones,
)

DATA = os.environ.get("FALLOW_DATA", "")
GRAM, FEDSVD, TSQR = FALE(), FALE(mode="fedsvd"), FALE(mode="tsqr")
MODES = {
    "gram": GRAM,
    "fedsvd": FEDSVD,
    "tsqr": TSQR,
    "gram, not rotated": FALE(rotate=False),
    "fedsvd, not rotated": FALE(mode="fedsvd", rotate=False),
}
each_mode = pytest.mark.parametrize("strategy", MODES.values(), ids=MODES)


def tau(simulation: Simulation) -> Tensor:
    """Return the scores kept by the sites."""
    name = "unmask" if simulation.strategy.mode == "fedsvd" else "score"
    return torch.cat(
        [simulation.members[s].memory[name]["tau"] for s in sorted(simulation.members)]
    )


def scored(sites: dict[str, Tensor], strategy: FALE, **more: Any) -> tuple[Tensor, int]:
    """Return the scores of all examples, and the rank."""
    simulation = federation(sites, strategy, **more)
    rank: int = simulation.query(1)["notes"]["rank"]
    return tau(simulation), rank


def close(x: Tensor, gap: float) -> Tensor:
    """Return examples in which one column is nearly a copy of another."""
    x = x.clone()
    x[:, 3] = x[:, 2] + gap * x[:, 3]
    return x


N = sum(SIZES)
CASES: dict[str, Tensor] = {
    "full rank": draws(N, 6),
    "rank 8 of 12": draws(N, 8) @ draws(8, 12, name="mix"),
    "one-hot, and a column of zeros": torch.cat(
        [torch.eye(4).repeat(N // 4, 1).double(), draws(N, 2), torch.zeros(N, 1).double()],
        1,
    ),
    "columns of all scales": draws(N, 6) * 10.0 ** torch.arange(0, 12, 2),
    "far from zero": draws(N, 6) + 1e4,
    **{
        f"collinear up to 1e-{p}": close(draws(N, 6), 10.0**-p) for p in (3, 5, 7, 8, 9, 10)
    },
}


# -- the same scores -------------------------------------------------------------------


@each_mode
@pytest.mark.parametrize("x", CASES.values(), ids=CASES)
def test_scores_and_rank_are_those_of_all_rows_in_one_place(
    x: Tensor, strategy: FALE
) -> None:
    centered = with_ones(x - x.mean(0))
    expected, rank, condition = svd_leverage(centered)
    scores, ours = scored(shared(x, SIZES), strategy)
    assert ours == rank
    assert bool((scores >= 0).all() and (scores <= 1).all())
    assert float(scores.sum()) == pytest.approx(rank, rel=max(1e-8, EPS * condition))
    torch.testing.assert_close(
        scores, expected, rtol=0, atol=max(1e-10, 100 * EPS * condition)
    )


@each_mode
def test_without_an_intercept_nothing_is_centered(strategy: FALE) -> None:
    sites = table()
    expected, rank, _ = svd_leverage(stacked(sites))
    outcome, ours = scored(sites, replace(strategy, intercept=False))
    assert ours == rank
    torch.testing.assert_close(outcome, expected, rtol=0, atol=1e-12)


@each_mode
def test_a_ridge_gives_the_same_scores_in_all_modes(strategy: FALE) -> None:
    x = stacked(table())
    z = with_ones((x - x.mean(0)) / x.std(0, correction=0))
    inverse = torch.linalg.inv(z.T @ z + 0.7 * torch.eye(6).double())
    scores, _ = scored(table(), replace(strategy, ridge=0.7))
    torch.testing.assert_close(scores, (z @ inverse * z).sum(1), rtol=0, atol=1e-12)


@each_mode
def test_a_site_without_a_pool_does_not_matter(strategy: FALE) -> None:
    sites = {**table(), "e": draws(2, 5, name="more")}
    simulation = federation(sites, strategy)
    simulation.members["e"].buy([Label(0, 1.0, 0), Label(1, 1.0, 0)])
    simulation.query(1)
    torch.testing.assert_close(
        tau(simulation), scored(table(), strategy)[0], rtol=0, atol=1e-12
    )


def test_scores_are_the_same_behind_masks_of_sums() -> None:
    simulation = federation(table(), GRAM, privacy=SECURE)
    memo = GRAM.query(asking(simulation), dict.fromkeys("abcd", 4), {})
    torch.testing.assert_close(tau(simulation), scored(table(), GRAM)[0], rtol=0, atol=1e-9)
    assert memo["notes"]["warnings"] == []


def test_large_sites_are_masked_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.models.orthogonal.BLOCK", 10)
    x = draws(110, 3)
    expected, _, _ = svd_leverage(with_ones(x - x.mean(0)))
    scores, _ = scored({"a": x[:85], "b": x[85:]}, FEDSVD)  # a: blocks of 43 and 42 rows
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-12)


# -- equal selections ------------------------------------------------------------------


@pytest.mark.parametrize("allot", ["site", "federation"])
def test_masks_and_modes_do_not_change_a_pick(allot: Any) -> None:
    plain, *others = (
        picked(federation(table(), replace(s, allot=allot)), 4) for s in MODES.values()
    )
    assert all(equal(plain, other) for other in others)


@each_mode
def test_picks_are_the_same_as_bytes(strategy: FALE) -> None:
    ours, theirs = (
        picked(federation(table(), strategy, runtime=r), 4)
        for r in (InProcessChannel, SerializingChannel)
    )
    assert equal(ours, theirs)


# -- results of the decomposition ------------------------------------------------------


def rotation(simulation: Simulation) -> Tensor:
    return simulation.members["b"].memory["rotation/a"]["q"]


def test_masked_rows_decompose_into_those_of_all_sites_without_loss() -> None:
    sites, (simulation, channel) = table(), overheard(federation(table(), FEDSVD))
    simulation.query(4)
    mean, unit = (
        torch.as_tensor(channel.asked("masked")["a"][k]) for k in ("mean", "unit")
    )
    z = with_ones(stacked(sites) - mean) * unit
    masked = torch.cat([a["rows"] for a in channel.answered("masked").values()])
    _, size, right = torch.linalg.svd(masked, full_matrices=False)
    clear = torch.linalg.svdvals(z)
    torch.testing.assert_close(size, clear, rtol=0, atol=1e-12 * float(clear[0]))
    own = [torch.as_tensor(a["left"]) for a in channel.asked("unmask").values()]
    turned = torch.cat([simulation.members[s].memory["unmask"]["tau"] for s in "abcd"])
    torch.testing.assert_close(
        turned.sum(), torch.cat(own).square().sum(), rtol=0, atol=1e-12
    )
    v = rotation(simulation) @ right.T  # Q V'
    u = z @ v / size  # what sites have after P_iᵀ
    torch.testing.assert_close(u.square().sum(1), turned, rtol=0, atol=1e-12)
    torch.testing.assert_close(u * size @ v.T, z, rtol=0, atol=1e-12 * float(clear[0]))


def test_a_site_alone_with_a_row_is_a_warning() -> None:
    x = draws(20, 3)
    for strategy in (FEDSVD, TSQR):
        (output,) = federation({"a": x[:19], "b": x[19:]}, strategy).query(4)["notes"][
            "warnings"
        ]
        assert output.startswith("site b has one row") and "fale:mode=gram" in output
    assert federation({"a": x[:19], "b": x[19:]}, GRAM).query(4)["notes"]["warnings"] == []


def test_masks_and_the_rotation_are_fresh_in_every_query() -> None:
    simulation, channel = overheard(federation(table(), FEDSVD))
    seen = []
    for cycle in range(2):
        simulation.query(0, cycle)
        seen += [rotation(simulation)]
        for site in simulation.members.values():
            site.forget()
    assert float((seen[0] - seen[1]).abs().max()) > 0.1
    first, second = (channel.answered("masked", at)["a"]["rows"] for at in (0, 1))
    q = seen[0].T @ seen[1]
    assert float((first @ q - second).abs().max()) > 0.01  # P too


# -- messages --------------------------------------------------------------------------


def test_bytes_of_masked_rows_are_those_of_the_formula() -> None:
    simulation = federation(table(), FEDSVD)
    simulation.query(4)
    shown = {row["function"]: row for row in simulation.shown.rows()}
    n, k, r, sites = N, 6, 6, 4
    assert shown["masked"]["bytes"] == 8 * n * k
    assert shown["unmask"]["bytes_down"] == 8 * (n * r + sites)  # and the width of the rows
    assert shown["rotation"]["bytes"] == 8 * k * k * sites
    assert shown["unmask"]["description"] == "number of stored tensors"


def test_bytes_of_totals_are_those_of_the_formula() -> None:
    simulation = federation(table(), GRAM)
    simulation.query(4)
    shown = {row["function"]: row for row in simulation.shown.rows()}
    k, sites = 6, 4
    columns, name = (
        8 * (5 + k),
        1,
    )  # mean and scale of columns; the name of the site that drew the rotation
    assert shown["gram"]["bytes"] == 8 * sites * k * (k + 1)
    assert shown["gram"]["bytes_down"] == sites * (8 * k * k + 2 * (columns + name))
    assert shown["score"]["bytes_down"] == sites * (8 * k * k + columns + name)


def test_bytes_of_triangles_do_not_grow_with_rows() -> None:
    simulation = federation(table(), TSQR)
    simulation.query(4)
    (up,) = (
        row["bytes"] for row in simulation.shown.rows() if row["function"] == "triangle"
    )
    assert up == 8 * 6 * (6 + 6 + 3 + 6)  # one site has 3 examples


class Notes(Forgetful):
    """Event log that keeps every entry."""

    def __init__(self) -> None:
        self.entries: list[ExchangeEntry] = []

    def record(self, key: ExchangeKey, digest: str, entry: ExchangeEntry) -> None:
        self.entries.append(entry)


@each_mode
def test_the_server_never_holds_rows_rotations_or_masks(strategy: FALE) -> None:
    sites = table()
    sites["a"][0] = torch.tensor([0.0, 0.0, 5.0, 0.0, 0.0])
    simulation = federation(sites, strategy, runtime=SerializingChannel)
    ask, notes = simulation.ask(), Notes()
    ask.event_log = notes
    strategy.query(ask, dict.fromkeys("abcd", 4), {})
    replies = [reply for entry in notes.entries for reply in entry["replies"].values()]
    received = [torch.as_tensor(v) for reply in replies for v in reply.values()]
    x = with_ones(stacked(sites) - stacked(sites).mean(0))
    z = x / x.norm(dim=0)
    secret = [stacked(sites), x, z]
    if strategy.rotate:
        q = rotation(simulation)
        secret += [q, q.T, x @ q, z @ q]
    tables = [v for v in received if v.ndim == 2]
    assert len(tables) == (0 if strategy.mode == "gram" else 4)
    for seen in tables:
        for rows in (s for s in secret if s.shape[1] == seen.shape[1]):
            cosines = (seen / seen.norm(dim=1, keepdim=True)) @ (rows.T / rows.norm(dim=1))
            assert float(cosines.abs().max()) < 1 - 1e-6


@pytest.mark.long
@pytest.mark.skipif(not DATA, reason="FALLOW_DATA names no folder of data files")
def test_a_published_table_costs_megabytes_masked_and_kilobytes_in_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "fallow.models.orthogonal.BLOCK", 100
    )  # as when it was measured: a second
    try:
        x = load("protein").x[:36_584].double()
    except ValueError as error:
        pytest.skip(str(error))
    sites = shared(x, [len(part) for part in torch.tensor_split(x, 10)])
    expected, rank, _ = svd_leverage(with_ones(x - x.mean(0)))
    for strategy, function, size in ((FEDSVD, "masked", 2.93e6), (GRAM, "gram", 8.8e3)):
        simulation = federation(sites, replace(strategy, allot="site"))
        assert simulation.query(1)["notes"]["rank"] == rank == 10
        torch.testing.assert_close(tau(simulation), expected, rtol=0, atol=1e-12)
        (up,) = (
            row["bytes"] for row in simulation.shown.rows() if row["function"] == function
        )
        assert up == pytest.approx(size, rel=0.01)
