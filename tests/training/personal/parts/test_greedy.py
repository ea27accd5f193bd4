"""The greedy choice of peers on examples with known solutions, and its two equal forms."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.training.personal.parts.greedy import (
    Greedy,
    Member,
    Reward,
    average_chosen,
    ggc,
    mean,
    stay_alone_if_better,
)

F64 = torch.float64


def at(*w: float) -> Member:
    return Member(torch.tensor(w, dtype=F64), 1)


def near(w: Tensor) -> float:
    """Return the reward of these examples: -||w||²."""
    return -float(w @ w)


SYNERGY = at(0, 1), [at(5, 0), at(-5, 0)]
RIVALS = at(2), [at(-2), at(-2)]


def choose(
    own: Member,
    peers: list[Member],
    seed: int,
    room: int | None = None,
    reward: Reward = near,
) -> Greedy:
    m = len(peers)
    draw = stream(seed, "toy")
    order = torch.randperm(m, generator=draw)
    return ggc(own, peers, reward, order, torch.rand(m, dtype=F64, generator=draw), room)


@pytest.mark.long
def test_a_group_that_helps_together_only_is_always_found() -> None:
    for seed in range(1000):
        chosen = choose(*SYNERGY, seed)
        assert chosen.chosen.all()
        assert_close(chosen.x_reward, torch.tensor(-1 / 9, dtype=F64))
        assert_close(
            chosen.gains[chosen.order[0]], torch.zeros(2, dtype=F64)
        )  # gains are 0 and 0


def test_with_room_for_one_the_choice_is_worse_than_staying_alone() -> None:
    for seed in range(200):
        chosen = choose(*SYNERGY, seed, room=1)
        assert chosen.chosen.sum() == 1
        assert float(chosen.x_reward) == -6.5 < float(chosen.alone) == -1
        assert chosen.broke and chosen.evaluations == 4


@pytest.mark.long
def test_of_two_peers_that_spoil_each_other_exactly_one_is_taken() -> None:
    taken: Counter[bool] = Counter()
    for seed in range(1000):
        draw = stream(seed, "rivals")
        coins = torch.rand(2, dtype=F64, generator=draw)
        outcome = ggc(*RIVALS, near, torch.tensor([0, 1]), coins)
        assert outcome.chosen.sum() == 1 and outcome.x_reward == 0
        taken[bool(outcome.chosen[0])] += 1
        assert outcome.conflicts == (1 if coins[0] < 1 else 0)
    assert abs(taken[True] / 1000 - 0.9) < 0.04  # 4 / (4 + 4/9)


def on_sets(table: dict[tuple[int, ...], float]) -> tuple[Member, list[Member], Reward]:
    """Return models and a reward that gives each set of peers the value in a table."""
    peers = [at(1.0, 0.0), at(0.0, 1.0)]
    averages = {(): (0.0, 0.0), (1,): (0.5, 0.0), (2,): (0.0, 0.5), (1, 2): (1 / 3, 1 / 3)}

    def reward(w: Tensor) -> float:
        near_to = {
            s: float((w - torch.tensor(v, dtype=F64)).abs().sum())
            for s, v in averages.items()
        }
        return table[min(near_to, key=near_to.__getitem__)]

    return at(0.0, 0.0), peers, reward


def test_without_a_budget_too_it_may_end_below_staying_alone() -> None:
    own, peers, reward = on_sets({(): 0.0, (1,): -2.0, (2,): -2.0, (1, 2): -1.0})
    for seed in range(50):
        chosen = choose(own, peers, seed, reward=reward)
        assert chosen.chosen.all() and chosen.x_reward == -1 < chosen.alone


def test_the_guard_leaves_a_site_alone_that_would_lose() -> None:
    own, peers = SYNERGY
    lost = choose(own, peers, 0, room=1)
    won = choose(own, peers, 0)
    kept = stay_alone_if_better(lost, own)
    assert not kept.chosen.any() and kept.x_reward == -1
    assert torch.equal(average_chosen(kept, own), own.w)
    assert stay_alone_if_better(won, own) is won


def instance(seed: int, peers: int = 9, d: int = 6) -> tuple[Member, list[Member], Reward]:
    """Return random models and a random convex loss of their average."""
    draw = stream(seed, "instance")
    w = torch.randn(peers + 1, d, generator=draw)
    n = torch.randint(1, 20, (peers + 1,), generator=draw).tolist()
    target = torch.randn(d, generator=draw, dtype=F64)
    members = [Member(row, count) for row, count in zip(w, n, strict=True)]
    return members[0], members[1:], lambda v: -float((v.float() - target).square().sum())


def streams(seed: int, m: int) -> tuple[Tensor, Tensor]:
    draw = stream(seed, "streams")
    return torch.randperm(m, generator=draw), torch.rand(m, dtype=F64, generator=draw)


@pytest.mark.long
@pytest.mark.parametrize("batch", [2, 3, 7, 10])
@pytest.mark.parametrize("room", [None, 1, 4])
def test_batches_end_as_all_at_once_bit_for_bit(batch: int, room: int | None) -> None:
    for seed in range(20):
        own, peers, reward = instance(seed)
        order, coins = streams(seed, len(peers))
        whole = ggc(own, peers, reward, order, coins, room)
        parts = ggc(own, peers, reward, order, coins, room, batch=batch)
        for one, other in zip(whole, parts, strict=True):
            assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def naive(
    own: Member, peers: list[Member], reward: Reward, order: Tensor, coins: Tensor
) -> tuple[list[int], int]:
    """Run Algorithm 2 as published: four full averages for every candidate."""
    x: list[int] = []
    y = list(range(len(peers)))
    evaluations = 0

    def count_reward(group: list[int]) -> float:
        nonlocal evaluations
        evaluations += 1
        members = [own, *(peers[i] for i in group)]
        total = sum(member.n for member in members)
        average = sum((m.w * (m.n / total) for m in members), torch.zeros_like(own.w))
        return float(reward(average))

    for j, coin in zip(order.tolist(), coins.tolist(), strict=True):
        a = max(count_reward([*x, j]) - count_reward(x), 0)
        b = max(count_reward([i for i in y if i != j]) - count_reward(y), 0)
        if coin < (1 if a + b == 0 else a / (a + b)):
            x = [*x, j]
        else:
            y = [i for i in y if i != j]
    return sorted(x), evaluations


@pytest.mark.long
def test_running_sums_choose_what_averages_from_nothing_choose_with_half_the_evaluations() -> (
    None
):
    for seed in range(100):
        own, peers, reward = instance(seed)
        order, coins = streams(seed, len(peers))
        calls = 0

        def count_calls(w: Tensor, reward: Reward = reward) -> float:
            nonlocal calls
            calls += 1
            return float(reward(w))

        outcome = ggc(own, peers, count_calls, order, coins)
        group, evaluations = naive(own, peers, reward, order, coins)
        assert outcome.chosen.nonzero().flatten().tolist() == group
        assert calls == outcome.evaluations == 2 + 2 * len(peers)
        assert evaluations == 4 * len(peers)


@pytest.mark.long
def test_without_a_budget_it_ends_at_least_as_well_as_averaging_everybody() -> None:
    for seed in range(100):
        own, peers, reward = instance(seed)
        values = ggc(own, peers, reward, *streams(seed, len(peers)))
        total = sum((p.share for p in peers), own.share)
        everybody = total / (own.n + sum(p.n for p in peers))
        assert float(values.x_reward) >= reward(everybody) - 1e-6
        assert_close(
            values.x_reward, values.y_reward, rtol=0, atol=1e-5
        )  # X and Y have been compared


def test_the_best_of_a_larger_set_is_at_least_as_good() -> None:
    own, peers, reward = instance(3, peers=6)
    best = []
    for n in (3, 6):
        sets = [c for size in range(n + 1) for c in combinations(range(n), size)]
        best.append(max(reward(mean(own, [peers[i] for i in s]).double()) for s in sets))
    assert best[1] >= best[0]


def test_a_peer_whose_model_is_not_finite_is_refused_and_the_others_are_chosen_as_without_it() -> (
    None
):
    own, peers, reward = instance(0, peers=4)
    broken = [*peers, Member(torch.full_like(own.w, torch.nan), 5)]
    coins = torch.rand(5, dtype=F64, generator=stream(0, "coins"))
    with_it = ggc(own, broken, reward, torch.tensor([4, 2, 0, 3, 1]), coins)
    without = ggc(own, peers, reward, torch.tensor([2, 0, 3, 1]), coins[1:])
    assert with_it.refused.tolist() == [False] * 4 + [True]
    assert with_it.chosen.tolist() == [*without.chosen.tolist(), False]
    assert torch.equal(with_it.x, without.x)
    assert with_it.evaluations == without.evaluations


def test_a_reward_that_is_not_a_number_is_the_lowest() -> None:
    chosen = choose(*SYNERGY, 0, reward=lambda w: float("nan") if float(w[0]) > 0 else 0.0)
    assert chosen.x_reward == 0


def test_where_nothing_is_earned_peers_join_until_there_is_no_room() -> None:
    own, peers, _ = instance(0)
    for room in (None, 0, 1, 3):
        chosen = choose(own, peers, 1, room, reward=lambda w: 0.0)
        assert int(chosen.chosen.sum()) == (len(peers) if room is None else room)


def test_tiny_gains_count_as_none_if_told_so() -> None:
    own, peers, reward = on_sets({(): 0.0, (1,): 1e-9, (2,): -1.0, (1, 2): -1.0})
    order = torch.tensor([1, 0])
    coins = torch.tensor([0.5, 0.5], dtype=F64)
    assert ggc(own, peers, reward, order, coins).chosen.tolist() == [True, False]
    chosen = ggc(own, peers, reward, order, coins, tol=2.0)
    assert chosen.chosen.all() and not chosen.gains.any()


def test_a_site_without_labels_weighs_nothing_beside_its_peers() -> None:
    own = Member(torch.tensor([9.0]), 0)
    peers = [Member(torch.tensor([1.0]), 2), Member(torch.tensor([4.0]), 1)]
    chosen = ggc(own, peers, near, torch.tensor([0, 1]), torch.tensor([0.0, 0.0]))
    assert chosen.alone == -81
    assert (
        chosen.chosen.tolist() == [True, False]
        and float(average_chosen(chosen, own)) == 1.0
    )
    assert torch.equal(average_chosen(ggc(own, [], near, *streams(0, 0)), own), own.w)


def test_an_average_in_the_loop_is_a_row_of_the_matrix_product() -> None:
    draw = stream(0, "bank")
    bank = torch.randn(5, 7, generator=draw, dtype=F64)
    n = torch.tensor([3.0, 1, 4, 1, 5]).double()
    graph = torch.rand(5, 5, generator=draw) < 0.5
    graph.fill_diagonal_(False)
    m = (graph + torch.eye(5)) * n
    product = (m / m.sum(1, keepdim=True)) @ bank
    members = [Member(row, float(count)) for row, count in zip(bank, n, strict=True)]
    for k, row in enumerate(graph):
        peers = [members[j] for j in row.nonzero().flatten()]
        assert_close(mean(members[k], peers), product[k], rtol=0, atol=1e-12)


# -- gains beyond chance ---------------------------------------------------------------


def by_row(rows: int, spread: float) -> Reward:
    """Return -||w||² as a mean over validation examples that differ by ``spread``."""
    tilt = torch.linspace(-1, 1, rows, dtype=F64)

    def of(w: Tensor) -> Tensor:
        return -float(w.square().sum()) + spread * tilt * float(w.norm())

    return of


def choose_behind_gate(gate: float, rows: int = 8, spread: float = 0.0) -> Greedy:
    """Return a site at 2 with peers at 0, which lowers the mean loss, and 5."""
    own = Member(torch.tensor([2.0]), 1)
    peers = [Member(torch.tensor([w]), 1) for w in (0.0, 5.0)]
    order = torch.tensor([0, 1])
    coins = torch.tensor([0.5, 0.5])
    return ggc(own, peers, by_row(rows, spread), order, coins, gate=gate)


def test_a_gate_of_zero_is_the_paper_s_rule_whether_rewards_are_by_row_or_one() -> None:
    assert (
        choose_behind_gate(0.0).chosen.tolist()
        == choose_behind_gate(0.0, rows=1).chosen.tolist()
        == [True, False]
    )
    assert choose_behind_gate(0.0, spread=500.0).chosen.tolist() == [True, False]


def test_a_clear_gain_passes_the_gate_and_one_within_chance_counts_as_none() -> None:
    assert choose_behind_gate(2.0).chosen.tolist() == [True, False]
    noisy = choose_behind_gate(2.0, spread=500.0)
    assert noisy.gains.tolist() == [[0, 0], [0, 0]]
    assert noisy.chosen.tolist() == [True, True]  # both join without a required gain


def test_from_fewer_than_eight_rows_no_gain_is_clear_so_all_candidates_are_averaged() -> (
    None
):
    assert choose_behind_gate(0.5, rows=7).chosen.tolist() == [True, True]
    assert choose_behind_gate(0.5, rows=8).chosen.tolist() == [True, False]
