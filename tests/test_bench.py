"""Benchmarks run, compare outputs and write their results. No test here checks times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fallow as fl
from bench import device, encoders, leverage, linear_27, query_seconds, regression_run
from bench.__main__ import MODULES, entry, main, table, write
from bench.calibration import calibration_error
from bench.closed_form_widths import race
from bench.other_classes import half_of
from bench.timing import CPU, Result, Seconds, time_in_turn
from bench.trainers import RECIPE, TRAINERS
from fallow.recipes.find import find_recipe
from fallow.settings.recipe import recipe_from

NAMES = [module.replace("_", "-") for module in MODULES]
KEYS = {"name", "reference", "ratio", "bar", "outputs_equal"}


def result(name: str, ratio: float, is_equal: bool = True) -> Result:
    seconds = Seconds.of([1.0, 3.0, 2.0])
    return Result(
        name, "a loop", ratio, 2.0, is_equal, "weights", "CPU", 3, "here", seconds, seconds
    )


def test_a_quick_race_compares_outputs_and_has_every_column() -> None:
    found = entry("linear-27").run(is_quick=True)
    assert found.outputs_equal
    assert found.to_dict().keys() >= KEYS
    assert found.runs == 1


@pytest.mark.parametrize(
    "name",
    ["k-center", "badge", "bait", "feal", "ifal", "k-means", "coverage", "ggc", "leverage"],
)
def test_our_kernels_find_what_the_plain_ones_find(name: str) -> None:
    assert replace(entry(name), extra=None).run(is_quick=True).outputs_equal


def test_the_cost_of_a_query_is_told_beside_that_of_ahfal() -> None:
    found = query_seconds.rows(query_seconds.seconds(pool=40, labeled=20, picks=5, runs=1))
    assert {row["strategy"] for row in found} == {
        "entropy",
        "ahfal",
        "ksas",
        "core_set",
        "badge",
    }
    assert next(row["times_ahfal"] for row in found if row["strategy"] == "ahfal") == 1.0


def test_a_whole_run_of_regression_ends_alike_by_both_executors() -> None:
    found = regression_run.rows(regression_run.TINY, regression_run.TINY, 200)
    assert [row["strategy"] for row in found] == ["random", "core-set"]
    assert all(row["seconds"] > 0 and row["short_by_loop"] > 0 for row in found)


def test_outputs_that_differ_are_noticed() -> None:
    sides = replace(linear_27.TASK, tolerance=0.0).race(is_quick=True)
    assert not sides.outputs_equal()


@pytest.mark.parametrize("name", NAMES)
def test_every_race_says_what_it_is_against_and_what_it_compares(name: str) -> None:
    values = entry(name)
    assert values.name == name
    # ours does more than the reference there and may take up to twice as long
    does_more = name in ("own-table", "closed-form-totals", "closed-form-left-out")
    assert values.bar >= 1 or does_more
    assert values.reference and values.compared


def test_the_sides_run_in_turn() -> None:
    order: list[str] = []
    time_in_turn(lambda: order.append("reference"), lambda: order.append("ours"), 3, CPU)
    assert order == ["reference", "ours"] * 3


def test_seconds_are_a_median_and_a_spread() -> None:
    assert Seconds.of([5.0, 1.0, 2.0]) == Seconds(2.0, 1.0, 5.0)


def test_a_bar_is_met_by_speed_with_equal_outputs_only() -> None:
    assert result("lenet", 2.0).is_met
    assert not result("lenet", 1.9).is_met
    assert not result("lenet", 9.0, is_equal=False).is_met


def test_a_bar_is_met_within_the_limit_of_memory_only() -> None:
    assert replace(result("leverage", 2.0), extra=150.0, limit=200.0).is_met
    assert not replace(result("leverage", 2.0), extra=250.0, limit=200.0).is_met


def test_a_selection_needs_memory() -> None:
    assert 0 <= leverage.selection(40, 3) < 500


def test_results_are_a_list_in_which_one_race_replaces_its_own_row(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write([result("lenet", 1.0), result("linear-27", 3.0)], path)
    write([result("lenet", 4.0)], path)
    rows = json.loads(path.read_text())
    assert [(row["name"], row["ratio"]) for row in rows] == [
        ("linear-27", 3.0),
        ("lenet", 4.0),
    ]
    assert all(row.keys() >= KEYS for row in rows)


def test_the_command_prints_a_table_and_quickly_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    threads = torch.get_num_threads()
    before = _recorded()
    assert main(["linear-27", "--quick"]) == 0
    assert "linear-27" in capsys.readouterr().out
    assert _recorded() == before
    assert torch.get_num_threads() == threads == 1


def _recorded() -> str | None:
    path = Path(linear_27.__file__).with_name("results.json")
    return path.read_text() if path.exists() else None


def test_an_unknown_race_is_refused_with_the_names_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["linear"])
    assert end.value.code == 2
    assert "there is no race 'linear'; choose from linear-27" in capsys.readouterr().err


def test_the_table_says_where_outputs_differ() -> None:
    cells = list(table([result("lenet", 1.0, is_equal=False)]).columns[-1].cells)
    assert cells == ["[red]differ[/]"]


@pytest.mark.parametrize(
    "name", ["closed-form-totals", "closed-form-left-out", "closed-form-cycle"]
)
def test_the_closed_form_is_that_of_the_rows_of_all_sites(name: str) -> None:
    assert entry(name).run(is_quick=True).outputs_equal


def test_the_calibration_error_is_zero_where_confidence_is_the_accuracy() -> None:
    probabilities = torch.tensor([[0.75, 0.25]] * 4)
    truth = torch.tensor([0, 0, 0, 1])
    assert calibration_error(probabilities, truth) == pytest.approx(0)
    assert calibration_error(probabilities, 1 - truth) == pytest.approx(0.5)


def test_each_half_of_the_classes_has_rows_of_its_own_numbered_from_0() -> None:
    result = fl.load("digits")
    known = half_of(result, range(5), seed=0)
    new = half_of(result, range(5, 10), seed=0)
    assert new.classes == tuple("56789")
    assert set(new.y.tolist()) == {0, 1, 2, 3, 4}
    assert len(known.x) + len(new.x) == len(result.x)
    at = int((result.y == 7).nonzero()[0])
    same = (new.x == result.x[at]).flatten(1).all(1).nonzero().squeeze(1)
    assert new.y[same].tolist() == [2]


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_is_a_variant_of_the_recipe(name: str) -> None:
    recipe = recipe_from(TRAINERS[name], find_recipe(RECIPE))
    assert (recipe.training.name == "closed-form") == name.startswith("closed form")


def test_the_closed_form_is_timed_for_each_number_of_features() -> None:
    theirs, *ours = race([16, 24], rows=200, rounds=1, repeats=1)
    assert theirs > 0
    assert len(ours) == 2
    assert min(ours) > 0


@pytest.mark.parametrize("name", encoders.sides())
def test_the_reference_of_an_encoder_makes_the_same_features(name: str) -> None:
    assert encoders.race(name, rows=3).outputs_equal()


@pytest.mark.soak
def test_the_races_of_devices_come_to_equal_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"
    words = ["--quick", "--device", "cpu", "--precision", "float32", "--out", str(file)]
    assert device.main(words) == 0
    rows = json.loads(file.read_text())
    ways = ["plain PyTorch loop", "torch.func.vmap", "Fallow"]
    assert [row["way"] for row in rows] == ways
    assert all(row["is_same"] and row["images_per_second"] > 0 for row in rows)
    assert "| Fallow | CPU, " in capsys.readouterr().out
