"""The bandit over strategies: its computations, and equality with a single arm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.contrib import Chooser, Coverage
from fallow.contrib.chooser import FLOOR, PENALTIES, RATE, draw_arm, mix, solve
from fallow.core.build import build
from fallow.core.streams import stream
from fallow.deployment.building import build_study
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.strategies import Margin, Typical
from fallow.study.study_run import Setup, StudyRun
from tests.deployment.simulations import federation as real_federation
from tests.deployment.simulations import rows
from tests.deployment.test_closed_form import CLOSED
from tests.experiment.crash import KILLED, WELL, load_outcome, points, tiny, work
from tests.simulations import Simulation, simulation, tables


@pytest.mark.parametrize("arm", [Typical(), Coverage(), Margin()], ids=str)
def test_with_one_arm_it_is_that_arm(arm: Any) -> None:
    name = type(arm).__name__.lower()
    sites = tables(rows=30)
    alone = simulation(sites, Chooser((name,)))
    plain = simulation(sites, arm)
    assert alone.selected(4) == plain.selected(4)
    assert set(alone.shown.entries) == set(plain.shown.entries)  # no other request


# -- selection of an arm ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_sum_to_1_and_none_dies_out(seed: int) -> None:
    logs = 30 * torch.randn(5, generator=stream(seed, "logs"), dtype=torch.float64)
    chances = mix(logs)
    assert float(chances.sum()) == pytest.approx(1)
    assert float(chances.min()) >= FLOOR / 5 - 1e-12


def test_arms_are_drawn_as_often_as_their_probabilities_say() -> None:
    chances = torch.tensor([0.5, 0.2, 0.3]).double()
    drawn = torch.rand(4000, 3, generator=stream(0, "draw"), dtype=torch.float64).sum(1)
    counts = torch.bincount(torch.tensor([draw_arm(chances, float(x)) for x in drawn]))
    assert counts / 4000 == pytest.approx(chances, abs=0.03)


def test_what_an_arm_is_worth_is_right_on_average_however_seldom_it_is_drawn() -> None:
    """Check that the expected increase of each weight equals the arm's reward."""
    chooser = Chooser(("margin", "entropy"))
    chances = torch.tensor([0.9, 0.1]).double()
    after = torch.tensor([0.3, 0.4]).double()  # losses after labels of each arm, 0.5 before
    grown = torch.zeros(2).double()
    for arm in range(2):
        last = {"arm": arm, "chance": float(chances[arm]), "loss": 0.5}
        memo = {"weights": [0.0, 0.0], "last": last}
        grown += chances[arm] * chooser.learn(memo, float(after[arm]))
    assert grown == pytest.approx(RATE / 2 * (1 - after / 0.5))


def test_a_loss_that_has_exploded_or_is_not_known_moves_weights_no_farther() -> None:
    chooser = Chooser(("margin", "entropy"))
    memo = {"weights": [0.5, 0.0], "last": {"arm": 0, "chance": 0.5, "loss": 0.1}}
    assert chooser.learn(memo, 1e9).tolist() == [0.5 - RATE, 0.0]
    assert chooser.learn(memo, None).tolist() == [0.5, 0.0]
    memo["last"] = {"arm": 0, "chance": 0.5, "loss": None}
    assert chooser.learn(memo, 0.2).tolist() == [0.5, 0.0]


def test_the_arm_that_labels_speak_for_is_drawn_more() -> None:
    sites = tables(rows=40)
    federation = simulation(sites, Chooser(("margin", "entropy")))
    memo: dict[str, Any] = {}
    outcome = []
    for cycle in range(3):
        before = memo
        budget = dict.fromkeys(sites, 3)
        memo = federation.strategy.query(federation.ask(cycle=cycle), budget, memo)
        outcome.append(memo["notes"])
        assert sum(memo["notes"]["chances"].values()) == pytest.approx(1)
        if before:
            arm = before["notes"]["arm"]
            is_better = memo["notes"]["loss"] < before["notes"]["loss"]
            moved = memo["notes"]["chances"][arm] - before["notes"]["chances"][arm]
            assert (moved > 0) is is_better
        selected = {
            name: site.memory["selected"] for name, site in federation.members.items()
        }
        federation.buy(
            {name: kept["rows"].tolist() for name, kept in selected.items()},
            label=1,
            cycle=cycle,
        )
    assert {record["arm"] for record in outcome} <= {"margin", "entropy"}


# -- the loss --------------------------------------------------------------------------


def refit(z: Tensor, y: Tensor, ridge: float) -> list[float]:
    """Return the leave-one-out squared error of each example by refitting."""
    penalized = torch.ones(z.shape[1], dtype=z.dtype)
    penalized[-1] = 0
    lost = []
    for row in range(len(z)):
        others = [at for at in range(len(z)) if at != row]
        a = z[others].T @ z[others] + ridge * penalized.diag()
        w = torch.linalg.solve(a, z[others].T @ y[others])
        lost.append(float((y[row] - z[row] @ w).square().sum()))
    return lost


def labeled(federation: Simulation) -> tuple[Tensor, Tensor]:
    """Return all sites' labeled features with a constant column, and one-hot classes."""
    zs = []
    ys = []
    for site in federation.members.values():
        x = site.x[site.labeled]
        zs.append(torch.cat([x, torch.ones_like(x[:, :1])], 1))
        ys.append(torch.nn.functional.one_hot(site.labels, 3).double())
    return torch.cat(zs), torch.cat(ys)


def found_loss(federation: Simulation) -> float:
    chooser = federation.strategy
    ask = federation.ask()
    loss = chooser.find_loss(ask, ask.sum(chooser.products))
    assert loss is not None
    return float(loss)


def ridge_of(z: Tensor, y: Tensor) -> float:
    """Return the chooser's λ as a sum of squares."""
    head = solve(z.T @ z, z.T @ y, float(y.square().sum()), len(z))
    usual = float((z.T @ z).diagonal()[:-1].mean()) / len(z)
    penalized = torch.ones(z.shape[1], dtype=z.dtype)
    penalized[-1] = 0
    for penalty in PENALTIES:
        ridge = penalty * len(z) * usual
        if torch.allclose(
            torch.linalg.inv(z.T @ z + ridge * penalized.diag()), head.inverse
        ):
            return ridge
    raise AssertionError("the head is of no penalty")


def test_the_loss_is_that_of_fits_without_the_row() -> None:
    federation = simulation(tables(labels=12), Chooser(("margin", "entropy")))
    z, y = labeled(federation)
    expected = refit(z, y, ridge_of(z, y))
    assert found_loss(federation) == pytest.approx(sum(expected) / len(expected))


def test_rows_of_a_known_chance_count_alone_and_by_its_inverse() -> None:
    federation = simulation(tables(labels=12), Chooser(("margin", "entropy")))
    for name, chance in (("a", 0.1), ("b", 0.4)):
        drawn = [Label(row, 1.0, 1, 1.0, chance) for row in (2, 5)]
        federation.members[name].buy(drawn)
    z, y = labeled(federation)
    expected = refit(z, y, ridge_of(z, y))
    chances = torch.cat([SiteView(site, 1).chances for site in federation.members.values()])
    is_known = chances.isfinite()
    assert int(is_known.sum()) == 4
    weight = 1 / chances[is_known]
    mean = weight @ torch.tensor(expected).double()[is_known] / weight.sum()
    assert found_loss(federation) == pytest.approx(float(mean))


def test_a_chance_is_forgotten_with_its_label() -> None:
    site = simulation(tables(), Chooser()).members["a"]
    site.buy([Label(0, 1.0, 0, 1.0, 0.25)])
    assert float(site.chance[0]) == 0.25
    site.reread([])
    assert bool(site.chance.isnan().all())


# -- complete runs ---------------------------------------------------------------------


CELL = StudyRun('chooser:arms=["margin", "prices"]', 0)


def test_a_run_that_is_killed_and_resumed_makes_the_same_choices(tmp_path: Path) -> None:
    """Kill a run while the first reward is computed and resume it."""
    config = replace(
        tiny(tmp_path), evaluation_fraction=0.3, cycles=2, rounds=1, score_rounds=1
    )
    whole = Setup(config, tmp_path / "whole")
    assert work(whole, CELL) == WELL
    deadly = 3 * points(whole.out) // 4
    again = Setup(config, tmp_path / "killed")
    assert work(again, CELL, deadly) == KILLED
    assert work(again, CELL) == WELL
    assert load_outcome(again, CELL) == load_outcome(whole, CELL)


# -- refused settings ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arms", "why"),
    [
        ((), "list names of strategies"),
        ("margin", "list names of strategies"),
        (("margin", "margin"), "name a strategy twice"),
        (("margn",), "did you mean 'margin'"),
        (("tests.toys:Own",), "is not part of Fallow"),
        (("margin", "chooser"), "names that the chooser uses"),
        (("margin", "fairfal"), "trained from scratch"),
        (("margin", "ifal"), "trains its own models"),
        (("margin", "pivotal"), "within each site's budget"),
        (("margin", "oracle-histogram"), "in each cycle"),
        (
            ("typical", "typical-unsure"),
            "two arms of Chooser reply differently to 'counts'",
        ),
    ],
)
def test_arms_that_cannot_be_are_refused_in_a_sentence(arms: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Chooser(arms)


def test_it_is_built_from_a_recipe_with_its_arms() -> None:
    import fallow.strategies

    spec = Spec.parse('chooser:arms=["margin", "typical"]')
    chooser = build(fallow.strategies, spec.name, **spec.fields)
    assert chooser == Chooser(("margin", "typical"))
    assert Spec.of(chooser).name == "chooser"


def test_real_sites_need_secure_sums_or_agree_to_what_is_shown(tmp_path: Path) -> None:
    secure = Privacy(secure_sum=True)
    config = ExperimentConfig(
        "hospitals",
        **{**CLOSED, "strategy": Spec("chooser")},
        training=Spec("closed-form", {"shown": "parts"}),
        privacy=secure,
    )
    agreed = real_federation(tmp_path, config, rows(classes=3)).agreement
    build_study(agreed)
    plain = replace(agreed, config=replace(config, privacy=Privacy()))
    with pytest.raises(ValueError, match="those of a single example reveal it"):
        build_study(plain)
    shown = replace(plain.config, strategy=Spec("chooser", {"shown": "parts"}))
    build_study(replace(plain, config=shown))
