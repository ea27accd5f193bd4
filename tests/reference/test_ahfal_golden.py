"""AHFAL against worked values: budgets over classes, hybrid scores, spreads."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.models.scores import entropy
from fallow.settings.budgets import allocate_budget
from fallow.strategies import AHFAL
from fallow.strategies.ahfal import moments
from fallow.strategies.parts.top import apportion, fill
from tests.simulations import Table, simulation, tables

EQ4 = {  # labels per class, budget, examples per pseudo-class -> budget per class
    "G1": ((0, 0, 5, 20), 10, (100, 100, 100, 100), (5, 4, 1, 0)),
    "G2": ((0, 1, 2, 4), 10, (3, 100, 100, 100), (3, 4, 2, 1)),
    "G3": ((0, 0, 5, 20), 10, (0, 4, 100, 100), (0, 4, 5, 1)),
    "G4": (
        (376, 14, 0, 0, 0, 12, 0, 0, 55, 5),
        250,
        (3376, 121, 0, 0, 0, 104, 0, 0, 493, 48),
        (3, 82, 0, 0, 0, 96, 0, 0, 21, 48),
    ),
    "G5": ((50,) * 10, 25, (100,) * 10, (3, 3, 3, 3, 3, 2, 2, 2, 2, 2)),
    "G6": ((0, 0, 0), 7, (100, 100, 100), (3, 2, 2)),
    "G7": ((10, 10, 10), 7, (1, 1, 1), (1, 1, 1)),
    "G8": ((500,), 20, (100,), (20,)),
}
golden = pytest.mark.parametrize(
    ("counts_at_site", "n", "caps", "expected"), EQ4.values(), ids=EQ4
)
Counts = tuple[int, ...]


def eq4(counts_at_site: Counts, n: int) -> Tensor:
    """Return the class weights of a site with ``counts_at_site`` labels per class."""
    return AHFAL().weights(
        tensor(counts_at_site, dtype=torch.float64), torch.zeros(len(counts_at_site)), n
    )


@golden
def test_budgets_over_classes_are_the_golden_ones(
    counts_at_site: Counts, n: int, caps: Counts, expected: Counts
) -> None:
    assert fill(n, eq4(counts_at_site, n), tensor(caps)).tolist() == list(expected)


@golden
def test_a_site_picks_the_golden_numbers_of_each_pseudo_class(
    counts_at_site: Counts, n: int, caps: Counts, expected: Counts
) -> None:
    label = torch.repeat_interleave(torch.arange(len(caps)), tensor(caps))
    draw = stream(0, "golden")
    local, common = torch.rand(
        2, len(label), len(caps), generator=draw, dtype=torch.float64
    )
    local[torch.arange(len(label)), label] += 2
    labels = [c for c, k in enumerate(counts_at_site) for _ in range(k)]
    site = Table(
        local, common if labels else local, labels
    )  # G6: the global model is used instead
    federation = simulation({"a": site, "b": Table(local[:1], common[:1], [0])}, AHFAL())
    low = tensor(federation.query(n)["notes"]["low"])
    rows = federation.members["a"].memory["selected"]["rows"]
    picked = label[rows]
    assert torch.bincount(picked, minlength=len(caps)).tolist() == list(expected)
    mixed = (entropy(site.local) + entropy(site.common)) / 2
    score = torch.where(low[label], mixed, entropy(site.local))
    for c in range(len(caps)):  # and the most uncertain of each class, in order
        best = score[label == c].sort(descending=True).values[: expected[c]]
        assert_close(score[rows[picked == c]], best)


@pytest.mark.parametrize(
    ("case", "before"),
    [
        ("G2", (4, 3, 2, 1)),
        ("G3", (5, 4, 1, 0)),
        ("G4", (0, 3, 47, 47, 47, 4, 46, 46, 1, 9)),
    ],
)
def test_before_capacities_the_budget_follows_equation_four(
    case: str, before: Counts
) -> None:
    counts_at_site, n, _, _ = EQ4[case]
    assert apportion(n, eq4(counts_at_site, n)).tolist() == list(before)


def test_two_passes_of_redistribution_settle_the_large_example() -> None:
    counts_at_site, n, caps, expected = EQ4["G4"]
    weight, room = eq4(counts_at_site, n), tensor(caps)
    quota = torch.minimum(apportion(n, weight), room)
    passes = 0
    while (missing := n - int(quota.sum())) > 0:
        quota = torch.minimum(quota + apportion(missing, weight * (quota < room)), room)
        passes += 1
    assert (passes, quota.tolist()) == (2, list(expected))


def test_the_hybrid_score_is_the_mean_of_two_entropies() -> None:  # G11
    p_local, p_common = (tensor([p]).double() for p in ((0.6, 0.3, 0.1), (0.2, 0.5, 0.3)))
    h, g = entropy(p_local.log()).item(), entropy(p_common.log()).item()
    assert (h, g) == pytest.approx((0.897946, 1.029653), abs=1e-6)
    assert (h + g) / 2 == pytest.approx(0.963799, abs=1e-6)


P = tensor([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.0, 0.4, 0.6]], dtype=torch.float64)
SIGMA = tensor([0.339935, 0.169967, 0.205480], dtype=torch.float64)


def test_mean_and_spread_of_three_sites() -> None:  # G12
    replies = [AHFAL().post(10 * p) for p in P]
    total = {
        k: sum((torch.as_tensor(a[k]) for a in replies), tensor(0.0)) for k in replies[0]
    }
    assert_close(total["share"], torch.ones(3).double())
    assert_close(total["square"], tensor([0.68, 0.42, 0.46]).double(), atol=1e-7, rtol=0)
    mean, spread = moments(total["share"], total["square"], total["one"])
    assert_close(mean, torch.full((3,), 1 / 3).double())
    assert_close(spread, SIGMA, atol=1e-6, rtol=0)
    assert AHFAL(tau=12).low(mean, spread, total).tolist() == [False, False, False]
    assert AHFAL(tau=20).low(mean, spread, total).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("tau", "low"), [(12.0, [False] * 3), (20.0, [False, True, False])]
)
def test_the_same_sites_as_a_federation(tau: float, low: list[bool]) -> None:  # G12
    blank = torch.zeros(2, 3, dtype=torch.float64)
    labels = [
        [c for c, k in enumerate((10 * p).round().int().tolist()) for _ in range(k)]
        for p in P
    ]
    sites = {
        name: Table(blank, blank, counts_at_site)
        for name, counts_at_site in zip("abc", labels, strict=True)
    }
    notes = simulation(sites, AHFAL(tau=tau)).query(1)["notes"]
    assert notes["low"] == low
    assert notes["sigma"] == pytest.approx((100 * SIGMA).tolist(), abs=1e-4)


@pytest.mark.parametrize(  # G17
    ("rows", "labels"),
    [
        *((50000, 250), (73257, 366), (60000, 300), (17023, 85)),
        *((15907, 79), (20428, 102), (97477, 487), (7007, 35)),
    ],
)
def test_five_percent_for_ten_sites_after_rounding_to_hundreds(
    rows: int, labels: int
) -> None:
    sizes = {str(i): rows // 10 + (i < rows % 10) for i in range(10)}
    assert set(allocate_budget(0.05, "equal_rounded", sizes).values()) == {labels}


def test_the_equal_budget_rounds_the_share_of_each_site_up() -> None:  # G17
    sizes = {str(i): 5000 for i in range(10)}
    assert set(allocate_budget(0.05, "equal", sizes).values()) == {250}
    assert set(allocate_budget(0.05, "equal", {**sizes, "9": 5001}).values()) == {251}


def test_the_proportional_budget_exceeds_the_share_by_less_than_one_row_a_site() -> (
    None
):  # G17
    sizes = {str(i): 4990 + 7 * i for i in range(10)}
    given_ = allocate_budget(0.05, "proportional", sizes)
    assert all(given_[s] == -(-n // 20) for s, n in sizes.items())
    assert 0 <= sum(given_.values()) - 0.05 * sum(sizes.values()) < 10


# -- properties ------------------------------------------------------------------------


@st.composite
def label_counts(draw: st.DrawFn) -> list[list[int]]:
    """Return labels per class of some sites, each with at least one."""
    classes = draw(st.integers(2, 6))
    row = st.lists(st.integers(0, 40), min_size=classes, max_size=classes).filter(any)
    return draw(st.lists(row, min_size=1, max_size=12))


def secure_total(contributions: list[Tensor]) -> Tensor:
    """Compute a secure aggregate: fixed point at 2^40 in 64-bit integers, masked."""
    scale = 2.0**40
    ring = [(a * scale).round().long() for a in contributions]
    draw = stream(0, "masks")
    span = (-(2**62), 2**62)
    masks = [torch.randint(*span, a.shape, generator=draw) for a in contributions]
    masked = [a + masks[i] - masks[i - 1] for i, a in enumerate(ring)]  # intended overflow
    total = masked[0]
    for share in masked[1:]:
        total = total + share
    return total.double() / scale


@pytest.mark.long
@given(label_counts(), st.sampled_from([0.5, 5.0, 10.0, 12.0, 15.0, 20.0]))
def test_spreads_from_masked_totals_route_as_the_plain_formula_does(
    counts: list[list[int]], tau: float
) -> None:
    replies = [AHFAL().post(tensor(c, dtype=torch.float64)) for c in counts]
    total = {k: secure_total([torch.as_tensor(a[k]) for a in replies]) for k in replies[0]}
    mean, spread = moments(total["share"], total["square"], total["one"])
    shares = torch.stack([torch.as_tensor(a["share"]) for a in replies])
    plain = shares.std(0, correction=0)
    assert_close(spread, plain, atol=1e-5, rtol=0)
    clear = (plain - tau / 100).abs() > 2e-6
    low = AHFAL(tau=tau).low(mean, spread, total)
    assert torch.equal(low[clear], (100 * plain < tau)[clear])


@pytest.mark.long
@given(label_counts(), st.sampled_from([0.5, 5.0, 10.0, 12.0, 15.0, 20.0]))
def test_spreads_from_plain_totals_route_as_exact_fractions_do(
    counts: list[list[int]], tau: float
) -> None:
    replies = [AHFAL().post(tensor(c, dtype=torch.float64)) for c in counts]
    total = {
        k: sum((torch.as_tensor(a[k]) for a in replies), tensor(0.0)) for k in replies[0]
    }
    mean, spread = moments(total["share"], total["square"], total["one"])
    for c, low in enumerate(AHFAL(tau=tau).low(mean, spread, total).tolist()):
        p = [Fraction(site[c], sum(site)) for site in counts]
        variance = sum(x**2 for x in p) / len(p) - (sum(p) / len(p)) ** 2
        assert low == (variance < (Fraction(tau) / 100) ** 2)


@given(st.integers(0, 10**6), st.integers(2, 8), st.sampled_from([10.0, 12.0, 15.0]))
def test_with_equal_numbers_of_labels_percent_and_count_scales_route_identically(
    seed: int, sites: int, tau: float
) -> None:
    n, draw = 40, stream(seed, "labels")
    drawn = torch.randint(5, (sites, n), generator=draw)
    percent, count = AHFAL(tau), AHFAL(tau * n / 100, "count")
    routed = []
    for strategy in (percent, count):
        replies = [
            strategy.post(torch.bincount(row, minlength=5).double()) for row in drawn
        ]
        total = {
            k: sum((torch.as_tensor(a[k]) for a in replies), tensor(0.0))
            for k in replies[0]
        }
        mean, spread = moments(total["share"], total["square"], total["one"])
        routed.append(strategy.low(mean, spread, total).tolist())
    assert routed[0] == routed[1]


@pytest.mark.long
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 15))
def test_a_site_buys_its_budget_or_its_pool_and_no_class_gives_more_than_it_has(
    seed: int, n: int, rows: int
) -> None:
    sites = tables(seed, sites=2, rows=rows, classes=4)
    for rows_of in simulation(sites, AHFAL(), seed).selected(n).values():
        assert len(set(rows_of)) == len(rows_of) == min(n, rows)
