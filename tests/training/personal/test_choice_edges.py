"""Choice of collaborators: the reward, random draws at their threshold, NaN losses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.engine import predict
from fallow.sites.view import SiteView
from fallow.training.personal.dpfl import reward
from fallow.training.personal.parts import greedy
from fallow.training.personal.parts.greedy import Member, ggc
from tests.training.personal.collaborators import dpfl, federation

F64 = torch.float64


def at(*w: float) -> Member:
    return Member(torch.tensor(w, dtype=F64), 1)


def near(w: Tensor) -> float:
    return -float(w @ w)


def test_the_reward_is_minus_the_mean_over_all_validation_rows_however_they_are_batched() -> (
    None
):
    result = federation(dpfl(), rows=(6, 6), labels_of_site=700).rounds(
        0
    )  # forward passes use 512 examples
    site = result.members["a"]
    rows = site.validation
    w = site.memory["local"]["w"]
    outputs = predict(
        site.parts.model, site.parts.layout, site.memory["local"], site.x[rows]
    )
    loss = cross_entropy(outputs, site.targets(rows), reduction="none")
    assert_close(
        torch.as_tensor(reward(SiteView(site, 0))(w)), -loss.mean(), rtol=0, atol=1e-12
    )


def test_the_reward_reads_no_row_that_trains_and_no_row_of_the_pool() -> None:
    outcome = federation(dpfl(), rows=(6, 6), labels_of_site=5).rounds(0)
    site = outcome.members["a"]
    w = site.memory["local"]["w"]
    before = float(reward(SiteView(site, 0))(w))
    assert isinstance(site.seen, torch.Tensor)
    rows = site.seen.clone()
    rows[site.labeled] = torch.nan
    site.seen = rows
    assert float(reward(SiteView(site, 0))(w)) == before


def test_of_rivals_the_first_is_taken_with_a_chance_of_exactly_nine_in_ten() -> None:
    """The probability of the first is 4 / (4 + 4/9)."""
    own = at(2)
    rivals = [at(-2), at(-2)]
    order = torch.tensor([0, 1])
    for coin, taken in ((0.9 - 1e-9, [True, False]), (0.9 + 1e-9, [False, True])):
        outcome = ggc(own, rivals, near, order, torch.tensor([coin, 0.5], dtype=F64))
        assert outcome.chosen.tolist() == taken
        assert_close(outcome.gains[0], torch.tensor([4, 4 / 9], dtype=F64))


def test_with_the_rule_that_turns_away_who_gains_nothing_the_group_would_never_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = at(0, 1)
    peers = [at(5, 0), at(-5, 0)]
    coins = torch.tensor([0.5, 0.5], dtype=F64)
    orders = [torch.tensor(order) for order in ([0, 1], [1, 0])]
    assert all(ggc(own, peers, near, order, coins).chosen.all() for order in orders)
    accepting = greedy.chance
    monkeypatch.setattr(greedy, "chance", lambda a, b: accepting(a, b) if a + b else 0.0)
    assert not any(ggc(own, peers, near, order, coins).chosen.any() for order in orders)


def test_where_both_choices_lead_from_no_number_to_one_a_coin_decides() -> None:
    """The loss is NaN alone and with all peers, and finite with either one."""
    own = at(0.0)
    peers = [at(1.0)]

    def reward_of(w: Tensor) -> float:
        return next(values)

    for coin, joins in ((0.49, True), (0.51, False)):
        values = iter([torch.nan, torch.nan, -1.0, -1.0])
        result = ggc(
            own, peers, reward_of, torch.tensor([0]), torch.tensor([coin], dtype=F64)
        )
        assert result.chosen.tolist() == [joins]


@pytest.mark.parametrize("gate", [0.0, 0.5])
@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
def test_a_model_whose_loss_is_not_a_number_stays_outside(gate: float, bad: float) -> None:
    """Its weights are finite, but all averages with it have a NaN loss."""
    wild = at(1e9)
    tame = at(0.5)
    draw = stream(0, "rows")
    noise = 0.01 * torch.randn(12, generator=draw, dtype=F64)

    def reward_of(w: Tensor) -> Tensor:
        return torch.full_like(noise, bad) if float(w) > 1e6 else noise - (w - 0.4).abs()

    for order in ([0, 1], [1, 0]):
        coins = torch.tensor([0.5, 0.5], dtype=F64)
        result = ggc(
            at(0.0), [wild, tame], reward_of, torch.tensor(order), coins, gate=gate
        )
        assert result.chosen.tolist() == [False, True]
