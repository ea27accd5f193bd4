"""Counts of a dry run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.estimate import Estimate, add_up, count_labels_by_phase, estimate, measure
from fallow.study.study import list_runs
from fallow.study.study_run import Setup, StudyRun
from tests.each import mark_long
from tests.experiment.crash import load_outcome, tiny, work


def test_rows_in_training_are_counted_once_for_a_shared_phase(tmp_path: Path) -> None:
    # 60 examples: 6, 12 and 18 labels in three phases of three rounds
    config = tiny(tmp_path)
    assert count_labels_by_phase(config, 60) == [6, 12, 18]
    setup = Setup(config, tmp_path / "study")
    one = estimate(setup, list_runs(config, ["random"], [0]), 1)
    two = estimate(setup, list_runs(config, ["random", "entropy"], [0]), 2)
    assert (one.runs, one.rows, one.jobs) == (1, 3 * 36, 1)
    assert (two.runs, two.rows, two.jobs) == (2, 3 * 36 + 3 * 30, 2)
    assert one.seconds > 0
    assert not setup.out.exists()


def test_the_upper_bounds_are_counted_as_they_run(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path), bounds=("all-labels", "pooled"))
    both = estimate(Setup(config, tmp_path), list_runs(config, ["random"], [0]), 1)
    assert both.rows == 3 * 36 + 3 * 60 + 3 * 36


@pytest.mark.long
@pytest.mark.parametrize("initial", [2, 0.1])
def test_bytes_are_those_of_the_run(tmp_path: Path, initial: float) -> None:
    config = replace(tiny(tmp_path), initial=initial)
    setup = Setup(config, tmp_path / "study")
    expected = estimate(setup, [StudyRun("random", 0)], 1).bytes
    assert work(setup, StudyRun("random", 0)) == 0
    last = load_outcome(setup, StudyRun("random", 0)).records[-1]
    assert expected == pytest.approx(last["bytes_up"] + last["bytes_down"], rel=0.3)


def test_an_estimate_is_one_sentence() -> None:
    sentence = Estimate(2, 12345, 75.0, 3_120_000, 1).sentence()
    assert sentence == (
        "2 runs: 12,345 training examples in all, about 1 min 15 s in 1 process on this machine, "
        "3.1 MB between coordinator and sites. Nothing was started."
    )


def test_labels_per_site_are_counted_at_every_site() -> None:
    config = ExperimentConfig("a", sites=4, initial=5, budget=2, cycles=2)
    assert count_labels_by_phase(config, 400) == [20, 28, 36]


# -- strategies with different training ------------------------------------------------


def of_training(tmp_path: Path, training: str, **changes: Any) -> tuple[Setup, StudyRun]:
    config = replace(
        tiny(tmp_path), validation=0.25, initial=8, rounds=4, cycles=1, **changes
    )
    return Setup(config, tmp_path / "study"), StudyRun(f"random@training={training}", 0)


@pytest.mark.long
def test_strategies_that_train_otherwise_share_no_phase(tmp_path: Path) -> None:
    setup, cell = of_training(tmp_path, "ditto")
    alone = estimate(setup, [cell], 1).rows
    others = [cell, StudyRun("random", 0), StudyRun("entropy", 0)]
    both = estimate(setup, others, 1)
    assert both.rows == 2 * alone + (alone - 24 * setup.config.rounds)


@pytest.mark.long
@pytest.mark.parametrize(
    "training",
    mark_long(
        ["fedavg", "local", "ditto", "fed-rep", "p-fed-graph", "robust", "fedavg-ft"],
        ["local", "fed-rep", "robust", "fedavg-ft"],
    ),
)
def test_bytes_are_those_of_the_training_method(tmp_path: Path, training: str) -> None:
    setup, cell = of_training(tmp_path, training)
    expected = estimate(setup, [StudyRun("random", 0), cell], 1)
    usual = estimate(setup, [StudyRun("random", 0)], 1)
    assert work(setup, cell) == 0
    last = load_outcome(setup, cell).records[-1]
    assert expected.bytes - usual.bytes == pytest.approx(
        last["bytes_up"] + last["bytes_down"], rel=0.2
    )
    assert expected.relayed == expected.tried == 0


def count_rows_together_and_alone(tmp_path: Path, setting: str) -> tuple[int, int]:
    """Count training examples of a study of two strategies, one with its own setting.

    The second number is the sum over two studies of one strategy each.
    """
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    usual = StudyRun("random", 0)
    other = StudyRun(f"random@{setting}", 0)
    measured = measure(setup, [usual, other])
    both = add_up(setup, [usual, other], 1, measured).rows
    alone = sum(add_up(setup, [cell], 1, measured).rows for cell in (usual, other))
    return both, alone


@pytest.mark.long
@pytest.mark.parametrize(
    "setting",
    [
        "model=mlp:hidden=[4]",
        "encoder=fourier:features=5",
        "head=exact",
        "initial=0.2",
        "budget_allocation=proportional",
        "dtype=float64",
        "executor=loop",
        "privacy.secure_sum=true",
    ],
)
def test_what_decides_the_first_phase_makes_it_another_one(
    tmp_path: Path, setting: str
) -> None:
    both, alone = count_rows_together_and_alone(tmp_path, setting)
    assert both == alone


@pytest.mark.parametrize("setting", ["restart=continue", "cycles=1", "budget=0.2"])
def test_what_comes_after_the_first_phase_makes_no_other_one(
    tmp_path: Path, setting: str
) -> None:
    both, alone = count_rows_together_and_alone(tmp_path, setting)
    shared = 6 * 3  # labels, rounds
    assert both == alone - shared


@pytest.mark.long
@pytest.mark.parametrize(
    "setting",
    mark_long(
        [
            "model=mlp:hidden=[32]",
            "encoder=fourier:features=40",
            "head=exact",
            "dtype=float64",
        ],
        ["head=exact", "dtype=float64"],
    ),
)
def test_bytes_are_those_of_the_model_that_a_strategy_trains(
    tmp_path: Path, setting: str
) -> None:
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    cell = StudyRun(f"random@{setting}", 0)
    usual = estimate(setup, [StudyRun("random", 0)], 1).bytes
    both = estimate(setup, [StudyRun("random", 0), cell], 1).bytes
    assert work(setup, cell) == 0
    last = load_outcome(setup, cell).records[-1]
    crossed = last["bytes_up"] + last["bytes_down"]
    assert both - usual == pytest.approx(crossed, rel=0.3)


@pytest.mark.long
def test_a_study_whose_rows_are_encoded_is_estimated(tmp_path: Path) -> None:
    encoder = Spec("fourier", {"features": 40})
    setup = Setup(replace(tiny(tmp_path), encoder=encoder), tmp_path / "study")
    cell = StudyRun("random", 0)
    expected = estimate(setup, [cell], 1)
    assert work(setup, cell) == 0
    last = load_outcome(setup, cell).records[-1]
    assert expected.rows == 3 * 36
    assert expected.bytes == pytest.approx(last["bytes_up"] + last["bytes_down"], rel=0.3)


@pytest.mark.long
@pytest.mark.parametrize("restart", ["fresh", "continue"])
@pytest.mark.parametrize("training", ["dpfl", "dpfl:budget=2", "dpfl:graph=full"])
def test_what_goes_from_site_to_site_and_what_is_tried_is_counted(
    tmp_path: Path, training: str, restart: Any
) -> None:
    setup, cell = of_training(tmp_path, training, restart=restart)
    expected = estimate(setup, [cell], 1)
    assert work(setup, cell) == 0
    record = load_outcome(setup, cell).records[-1]
    relayed = sum(e["bytes"] for e in record["revealed"] if e["kind"] == "relay")
    # a site sends its number of labels with its model
    assert relayed <= 1.1 * expected.relayed
    assert expected.relayed < 2 * relayed
    assert (expected.tried == 0) == ("full" in training)
    assert expected.tried >= record.get("evaluations", 0)


def test_choosing_takes_time(tmp_path: Path) -> None:
    setup, cell = of_training(tmp_path, "dpfl:period=1")
    many = replace(setup, config=replace(setup.config, rounds=400))
    usual = StudyRun("random", 0)
    measured = measure(many, [cell, usual])  # measured once, since two measurements differ
    chosen = add_up(many, [cell], 1, measured)
    plain = add_up(many, [usual], 1, measured)
    assert chosen.rows == plain.rows
    assert chosen.seconds > plain.seconds + chosen.tried * 1e-5


def test_labels_that_validate_first_need_two_rounds_in_a_run_and_none_in_an_estimate(
    tmp_path: Path,
) -> None:
    setup, cell = of_training(tmp_path, "dpfl", fresh_first=True)
    assert estimate(setup, [cell], 1).runs == 1


def test_an_estimate_says_what_choosing_takes() -> None:
    sentence = Estimate(1, 100, 60.0, 1000, 1, tried=1234, relayed=5_000_000).sentence()
    assert (
        "100 training examples in all, up to 1,234 models evaluated on validation examples, about"
        in sentence
    )
    assert (
        "1.0 kB between coordinator and sites and up to 5.0 MB between sites. Nothing"
        in sentence
    )


@pytest.mark.long
def test_many_sites_each_have_labels_in_what_is_timed(tmp_path: Path) -> None:
    config = ExperimentConfig(
        "many", data="digits", sites=200, partition=Spec("iid"), initial=3, cycles=0
    )
    setup = Setup(config, tmp_path / "study")
    assert (
        estimate(setup, [StudyRun("random", 0)], 1).rows
        == 600 * config.rounds * config.training_config.epochs
    )
