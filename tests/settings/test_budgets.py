"""Worked values of the budget allocations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.experiment.simulation import build_environment
from fallow.settings.budgets import allocate_budget
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.settings.variants import variant
from fallow.sites.store import MemoryStore
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import tiny


def equal_sites(rows: int, sites: int = 10) -> dict[str, int]:
    return {f"{i:03}": rows // sites + (i < rows % sites) for i in range(sites)}


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (50_000, 250),  # CIFAR-10
        (73_257, 366),  # SVHN
        (60_000, 300),  # MNIST
        (17_023, 85),  # CIFAR10-LT
        (15_907, 79),  # CIFAR100-LT
        (20_428, 102),  # FMNIST-LT
        (97_477, 487),  # OctMNIST
        (7_007, 35),  # DermaMNIST
    ],
)
def test_rounded_totals_give_the_published_budgets(rows: int, labels: int) -> None:
    assert set(allocate_budget(0.05, "equal_rounded", equal_sites(rows)).values()) == {
        labels
    }


@pytest.mark.parametrize(
    ("rows", "labels"), [(50_000, 250), (73_257, 367), (8_000, 40), (61, 1)]
)
def test_equal_budgets_are_rounded_up(rows: int, labels: int) -> None:
    assert set(allocate_budget(0.05, "equal", equal_sites(rows)).values()) == {labels}


def test_a_share_that_is_whole_is_not_rounded_up_by_floating_point() -> None:
    assert allocate_budget(0.07, "equal", equal_sites(1000))["000"] == 7
    assert allocate_budget(0.07, "proportional", {"a": 100, "b": 300}) == {"a": 7, "b": 21}


def test_proportional_budgets_follow_the_sizes_and_slightly_exceed_the_total() -> None:
    sizes = {
        f"{i}": n
        for i, n in enumerate([4321, 5678, 4999, 5001, 5003, 4997, 3339, 6661, 10001])
    }
    bought = allocate_budget(0.1, "proportional", sizes)
    assert bought["0"] == 433
    exact = 0.1 * sum(sizes.values())
    assert exact <= sum(bought.values()) < exact + len(sizes)


def test_a_whole_number_is_labels_per_site_under_every_allocation() -> None:
    for allocation in ("equal", "equal_rounded", "proportional"):
        assert allocate_budget(7, allocation, {"a": 100, "b": 9}) == {"a": 7, "b": 7}


def test_a_site_never_buys_more_than_its_pool(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path), initial=19, budget=1, cycles=1)
    simulation = build_environment(config, 0, MemoryStore())
    bought = simulation.cap_budget(simulation.budget_for(config.initial))
    assert bought == {site: min(19, n) for site, n in simulation.sizes.items()}
    assert min(simulation.sizes.values()) < 19


def test_an_allocation_that_rounds_every_budget_to_nothing_is_refused(
    tmp_path: Path,
) -> None:
    config = replace(tiny(tmp_path), budget_allocation="equal_rounded", initial=0.01)
    with pytest.raises(ValueError, match="is less than one label per site"):
        build_environment(config, 0, MemoryStore()).budget_for(config.initial)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"initial": -1}, "initial is -1; it must be 0 or more"),
        ({"budget": -0.1}, "budget is -0.1; it must be above 0"),
        ({"budget": float("nan")}, "budget is nan"),
        ({"initial": 1.5}, "more than all examples"),
        ({"initial": 0.9, "budget": 0.1, "cycles": 2}, "more than the unlabeled pool"),
        ({"budget": (0.5, 0.5), "cycles": 2}, "more than the unlabeled pool"),
        (
            {"budget": (1, 2), "cycles": 3},
            "lists 2 numbers and cycles is 3; give one for each",
        ),
        ({"budget": (1, 0), "cycles": 2}, "budget is 0; it must be above 0"),
    ],
)
def test_a_budget_that_cannot_be_bought_is_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ExperimentConfig("a", **settings)


def test_labels_beyond_the_rows_of_the_data_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"is 90 labels at 3 sites, more than the unlabeled pool of 60"
    ):
        ExperimentConfig("a", sites=3, initial=10, budget=10, cycles=2).check_rows(60)
    with pytest.raises(ValueError, match="2 examples cannot be distributed over 3 sites"):
        ExperimentConfig("a", sites=3).check_rows(2)


def test_a_list_of_budgets_is_bought_in_turn(tmp_path: Path) -> None:
    config = with_settings(
        tiny(tmp_path), {"initial": "0", "budget": "[1,3,2]", "cycles": "3"}
    )
    run_one(Setup(config, tmp_path), StudyRun("random", 0))
    folder = StudyRun("random", 0).folder(tmp_path)
    lines = (folder / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    bought = {record["cycle"]: record["labeled"] for record in records}
    assert [bought[cycle] for cycle in range(4)] == [0, 3, 12, 18]


def test_equal_budgets_in_a_list_are_the_budget_of_every_cycle(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path), budget=2, cycles=2)
    listed = replace(config, budget=(2, 2))
    lines = []
    for name, of_it in (("one", config), ("list", listed)):
        cell = StudyRun("entropy", 1)
        run_one(Setup(of_it, tmp_path / name), cell)
        lines.append((cell.folder(tmp_path / name) / "model.safetensors").read_bytes())
    assert lines[0] == lines[1]


def test_the_bounds_of_a_list_of_budgets_buy_all_at_once_or_in_turn() -> None:
    config = ExperimentConfig("a", sites=3, budget=(1, 2), cycles=2)
    assert variant(config, "bound:all-labels").purchases == (1.0,)
    assert variant(config, "bound:pooled").budget == (3, 6)
