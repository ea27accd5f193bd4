"""Fisher information of all sites against a reference implementation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fallow.contrib import Fisher
from fallow.contrib.fisher import FLAT, add_products, fold, lower_trace, unfold
from fallow.core.streams import stream
from fallow.deployment.building import build_study
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from tests.deployment.simulations import federation as real_federation
from tests.deployment.simulations import rows
from tests.deployment.test_closed_form import CLOSED
from tests.simulations import simulation, tables
from tests.strategies.regression import draws, federation, picked, stacked, table, with_ones


def plain_greedy(x: Tensor, u: Tensor, known: Tensor, wanted: Tensor, n: int) -> list[int]:
    """Compute the trace with a new inverse for every candidate."""
    selected: list[int] = []
    for _ in range(n):
        traces = []
        for row in range(len(x)):
            more = known + u[row] * torch.outer(x[row], x[row])
            trace = float((torch.linalg.inv(more) @ wanted).trace())
            traces.append(float("inf") if row in selected else trace)
        selected.append(min(range(len(x)), key=lambda row: traces[row]))
        best = selected[-1]
        known = known + u[best] * torch.outer(x[best], x[best])
    return selected


@pytest.mark.parametrize("seed", range(5))
def test_the_greedy_choice_is_the_plain_one(seed: int) -> None:
    x = draws(30, 4, seed=seed)
    u = draws(30, seed=seed, name="u").abs() + 0.1
    wanted = add_products(x, u) / 30
    known = 0.05 * torch.eye(4).double() + add_products(x[:2], u[:2])
    inverse = torch.linalg.inv(known)
    outcome = lower_trace(x, u, inverse, inverse @ wanted @ inverse, n=12)
    assert outcome.tolist() == plain_greedy(x, u, known, wanted, 12)


def test_products_pass_as_triangles() -> None:
    x = draws(9, 5)
    u = draws(9, name="u").abs()
    products = add_products(x, u)
    torch.testing.assert_close(
        products, sum(w * torch.outer(z, z) for w, z in zip(u, x, strict=True))
    )
    torch.testing.assert_close(fold(unfold(products)), products)


def test_one_row_a_part_over_one_site_is_the_plain_choice_from_all_its_rows() -> None:
    sites = {"a": table()["a"]}
    kept = picked(federation(sites, Fisher()), 8)["a"]
    x = with_ones(sites["a"])
    one = torch.ones(len(x)).double()
    wanted = add_products(x, one) / len(x)
    floor = 1e-2 * float(wanted.trace()) / 6 * torch.eye(6).double()
    assert kept["rows"].tolist() == plain_greedy(x, one, floor, wanted, 8)


def test_what_other_sites_have_labeled_is_known() -> None:
    """Check that site a ignores a direction in which site b has labels."""
    a = torch.tensor([[9.0, 0.0], [0.0, 8.0], [0.1, 0.1], [0.2, 0.1]]).double()
    b = torch.tensor([[9.0, 0.0], [8.0, 0.1], [0.1, 0.0]]).double()
    simulation_of_two = federation({"a": a, "b": b}, Fisher())
    assert picked(simulation_of_two, {"a": 1, "b": 0})["a"]["rows"].tolist() == [0]
    simulation_of_two = federation({"a": a, "b": b}, Fisher())
    simulation_of_two.members["b"].buy([Label(0, 1.0, 0), Label(1, 1.0, 0)])
    assert picked(simulation_of_two, {"a": 1, "b": 0})["a"]["rows"].tolist() == [1]


def test_rows_are_better_than_random_ones_by_what_they_leave_unknown() -> None:
    sites = table()
    x = with_ones(stacked(sites))
    wanted = x.T @ x / len(x)
    floor = 1e-2 * float(wanted.trace()) / 6 * torch.eye(6).double()
    strategy = Fisher()
    notes = federation(sites, strategy).query(4)["notes"]
    drawn = []
    for seed in range(50):
        some = torch.randperm(len(x), generator=stream(seed, "some"))[:15]  # c has 3 rows
        known = floor + x[some].T @ x[some]
        drawn.append(float((torch.linalg.inv(known) @ wanted).trace()))
    assert notes["trace"] < 0.7 * min(drawn)
    assert notes["trace"] < notes["trace before"]


def test_a_row_of_which_the_model_is_sure_tells_little() -> None:
    sites = tables()
    federated = simulation(sites, Fisher())
    federated.query(4)
    for name, site in federated.members.items():
        x = with_ones(torch.cat([sites[name].local, sites[name].common], 1))
        u = (1 - sites[name].common.softmax(1).square().sum(1)).clamp_min(FLAT)
        rows_of_site = site.memory["grow"]["rows"]
        expected = add_products(x[rows_of_site], u[rows_of_site])
        torch.testing.assert_close(site.memory["grow"]["products"], expected)


def test_a_ridge_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="Fisher's ridge is 0"):
        Fisher(ridge=0.0)


def test_real_sites_need_secure_sums_or_agree_to_what_is_shown(tmp_path: Path) -> None:
    secure = Privacy(secure_sum=True)
    config = ExperimentConfig(
        "hospitals",
        **{**CLOSED, "strategy": Spec("fisher")},
        training=Spec("closed-form", {"shown": "parts"}),
        privacy=secure,
    )
    agreed = real_federation(tmp_path, config, rows(classes=3)).agreement
    plain = replace(agreed, config=replace(config, privacy=Privacy()))
    with pytest.raises(ValueError, match="those of a single example reveal it") as refused:
        build_study(plain)
    assert 'strategy = "fisher:shown=parts"' in str(refused.value)
    shown = replace(plain.config, strategy=Spec("fisher", {"shown": "parts"}))
    build_study(replace(plain, config=shown))
