"""Limits of masked examples: every attack here succeeds, as docs/privacy.md states."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.models.orthogonal import haar, mix, unmix
from fallow.sites.store import Label
from fallow.strategies import FALE, Pivotal, Random
from fallow.strategies.parts.leverage import matrix
from fallow.training import MaskedSolve
from tests.simulations import Simulation
from tests.strategies.regression import (
    Overheard,
    draws,
    federation,
    labeled,
    overheard,
    shared,
    table,
    with_ones,
)

K = 6  # columns of `table` and the intercept


def run_query(mode: str, sites: dict[str, Tensor]) -> tuple[Simulation, Overheard]:
    simulation, channel = overheard(federation(sites, FALE(mode=mode)))  # type: ignore[arg-type]
    simulation.query(4)
    return simulation, channel


def two_sites() -> dict[str, Tensor]:
    return shared(draws(50, 5), (20, 30))


def rows_of(x: Tensor, channel: Overheard, function: str) -> Tensor:
    """Return a site's examples, scaled by the agreed values."""
    reply = {
        k: torch.as_tensor(v)
        for k, v in channel.asked(function)["a"].items()
        if k != "lead"
    }
    return with_ones(x - reply["mean"]) * reply["unit"]


# -- by one site -----------------------------------------------------------------------


def test_a_site_works_out_the_covariance_of_the_others_from_its_singular_vectors() -> None:
    sites = two_sites()
    simulation, channel = run_query("fedsvd", sites)
    own, other = (rows_of(sites[name], channel, "masked") for name in "ab")
    left = torch.as_tensor(channel.asked("unmask")["a"]["left"])
    u = unmix(left, simulation.members["a"].streams("mask", 0), K)
    c = torch.linalg.pinv(own) @ u  # V / Σ
    assert_close(
        torch.linalg.pinv(c @ c.T) - own.T @ own, other.T @ other, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("mode", ["gram", "tsqr"])
def test_a_site_works_out_the_covariance_of_the_others_from_the_basis(mode: str) -> None:
    sites = two_sites()
    simulation, channel = run_query(mode, sites)
    own, other = (rows_of(sites[name], channel, "score") for name in "ab")
    q = simulation.members["a"].memory["rotation/a"]["q"]
    w = q @ torch.as_tensor(channel.asked("score")["a"]["basis"])
    assert_close(
        torch.linalg.pinv(w @ w.T) - own.T @ own, other.T @ other, rtol=0, atol=1e-10
    )


# -- by the coordinator ----------------------------------------------------------------


@pytest.mark.parametrize(("mode", "function"), [("fedsvd", "masked"), ("tsqr", "triangle")])
def test_the_server_sees_the_products_of_every_site_but_for_a_rotation(
    mode: str, function: str
) -> None:
    sites = table()
    simulation, channel = run_query(mode, sites)
    q = simulation.members["b"].memory["rotation/a"]["q"]
    for name, reply in channel.answered(function).items():
        z = rows_of(sites[name], channel, function)
        m = reply["rows"]
        assert_close(m.T @ m, q.T @ z.T @ z @ q, rtol=0, atol=1e-12)
        sizes = torch.linalg.svdvals(z)
        assert_close(torch.linalg.svdvals(m)[: len(sizes)], sizes, rtol=0, atol=1e-12)


def run_solve(sizes: tuple[int, ...], y: Tensor) -> Overheard:
    """Return the messages of a ``masked-solve`` round, with all examples labeled."""
    sites = shared(draws(20, 5), sizes)
    targets = shared(y, sizes)
    simulation, channel = overheard(federation(sites, Random(), solver=MaskedSolve()))
    labeled(simulation, targets)
    begin = simulation.members["a"].parts.fresh(torch.Generator())
    MaskedSolve().round(begin, simulation.ask("training"))
    return channel


def test_the_server_reads_the_number_and_the_length_of_a_site_with_one_labeled_row() -> (
    None
):
    y = 3.0 * draws(20, name="y")
    channel = run_solve((12, 1, 7), y)
    seen = channel.answered("masked")["b"]
    assert float(seen["targets"].abs()) == pytest.approx(abs(float(y[12])), rel=1e-14)
    z = rows_of(draws(20, 5)[12:13], channel, "masked")
    assert float(seen["rows"].norm()) == pytest.approx(float(z.norm()), rel=1e-12)


def test_the_server_tells_the_column_of_ones_and_reads_the_mean_number_of_every_site() -> (
    None
):
    y = 3.0 * draws(20, name="y") + 1
    seen = run_solve((10, 3, 7), y).answered("masked")
    total = torch.stack([a["rows"].T @ a["rows"] for a in seen.values()]).sum(0)
    values, vectors = torch.linalg.eigh(total)
    ones = vectors[:, (values - 1).abs().argmin()]  # centered columns are orthogonal to it
    sums = torch.stack([(a["rows"] @ ones) @ a["targets"] for a in seen.values()])
    shares = torch.stack([(a["rows"] @ ones).square().sum() for a in seen.values()])
    expected = torch.stack([part.mean() for part in torch.split(y, [10, 3, 7])])
    assert_close((sums / shares / 20**0.5).abs(), expected.abs(), rtol=1e-9, atol=1e-9)


def test_a_rotation_that_is_used_again_is_found_from_a_few_known_rows() -> None:
    # Q is new in every query and cycle; with a fixed Q, new examples would show as
    # differences
    d = 6
    x = draws(40, d)
    known = draws(d, d, name="known")
    q = haar(d, stream(0, "q"))
    grams = []
    recovered = []
    for n in range(d + 1):  # masks are new, the rotation is not
        m = mix(torch.cat([x, known[:n]]) @ q, stream(n, "mask"), d)
        grams += [m.T @ m]
    for before, after in pairwise(grams):
        values, vectors = torch.linalg.eigh(after - before)
        recovered += [vectors[:, -1] * values[-1].sqrt()]  # ± Qᵀ x
    turned = torch.stack(recovered)
    signs = ((turned @ turned[0]) * (known @ known[0])).sign()
    guess = torch.linalg.solve(known, signs[:, None] * turned)
    assert_close(guess * (guess[0, 0] * q[0, 0]).sign(), q, rtol=0, atol=1e-10)


def test_public_rows_of_the_same_kind_show_the_rotation() -> None:
    mixing = torch.tensor([[1.0, 0.9, 0.2], [0.0, 0.5, 0.4], [0.0, 0.0, 0.9]]).double()
    x = draws(4000, 3) @ mixing
    public = draws(4000, 3, name="public") @ mixing
    simulation, channel = run_query("gram", shared(x, (1500, 2000, 500)))
    parts = [reply["products"] for reply in channel.answered("gram", 0).values()]
    # of QᵀGQ: an aggregate
    _, seen = torch.linalg.eigh(matrix(torch.stack(parts).sum(0), 4))
    standard = with_ones((public - public.mean(0)) / public.std(0))
    _, axes = torch.linalg.eigh(standard.T @ standard)
    q = simulation.members["b"].memory["rotation/a"]["q"]
    cosines = (axes * (q @ seen)).sum(0).abs()
    assert float(cosines.min()) > 0.999


# -- by the coordinator together with one site -----------------------------------------


def test_one_site_that_tells_the_rotation_opens_the_products_of_all_others() -> None:
    sites = table()
    simulation, channel = run_query("fedsvd", sites)
    rotation = simulation.members["b"].memory["rotation/a"][
        "q"
    ]  # from site b to the coordinator
    at = {
        k: torch.as_tensor(v)
        for k, v in channel.asked("masked")["a"].items()
        if k != "lead"
    }
    for name in "acd":
        m = channel.answered("masked")[name]["rows"] @ rotation.T / at["unit"]
        x = with_ones(sites[name] - at["mean"])
        assert_close(m.T @ m, x.T @ x, rtol=0, atol=1e-10)


def test_the_same_collusion_in_totals_opens_the_total_alone() -> None:
    sites = table()
    simulation, channel = run_query("gram", sites)
    rotation = simulation.members["b"].memory["rotation/a"]["q"]
    parts = [reply["products"] for reply in channel.answered("gram", 0).values()]
    z = torch.cat([rows_of(sites[name], channel, "gram") for name in "abcd"])
    total = rotation @ matrix(torch.stack(parts).sum(0), K) @ rotation.T
    assert_close(total, z.T @ z, rtol=0, atol=1e-12)


# -- by comparing two runs --------------------------------------------------------------


@pytest.mark.parametrize("strategy", [FALE(), Pivotal()])
def test_totals_of_two_runs_differ_by_the_examples_labeled_between(
    strategy: FALE | Pivotal,
) -> None:
    sites = table()
    simulation, channel = overheard(federation(sites, strategy))
    simulation.query(4)
    simulation.members["b"].buy([Label(2, 1.0, 0)])
    simulation.query(4)
    totals = []
    for which in (0, 1):
        replies = channel.answered("totals", which)
        totals.append(torch.stack([reply["columns"] for reply in replies.values()]).sum(0))
    assert_close(totals[0] - totals[1], sites["b"][2], rtol=0, atol=1e-9)
