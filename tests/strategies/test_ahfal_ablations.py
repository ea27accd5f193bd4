"""Ablations of AHFAL, and the number of classes that its threshold routes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fallow.data import open_dataset
from fallow.data.partition.base import Partition
from fallow.data.partition.partitions import ExactDirichlet
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.strategies import AHFAL, Entropy, LeastConfidence, Margin
from fallow.strategies.ahfal import moments
from tests.simulations import simulation, tables

SITES = 10


@pytest.mark.parametrize("seed", range(5))
def test_without_toggling_and_balance_it_is_entropy_sampling(seed: int) -> None:
    sites = tables(seed)
    plain = simulation(sites, AHFAL(toggle="never", balance="none"), seed).selected(5)
    assert plain == simulation(sites, Entropy(), seed).selected(5)


def test_the_three_ablations_pick_three_different_sets() -> None:
    sites = tables(0, rows=20)
    full, balanced, bare = (
        {
            name: frozenset(rows)
            for name, rows in simulation(sites, strategy).selected(6).items()
        }
        for strategy in (
            AHFAL(tau=30),
            AHFAL(toggle="never"),
            AHFAL(toggle="never", balance="none"),
        )
    )
    assert full != balanced and full != bare and balanced != bare


def test_always_toggling_is_an_infinite_tau_and_never_toggling_is_tau_zero() -> None:
    sites = tables(5)
    same = [
        (AHFAL(toggle="always"), AHFAL(tau=math.inf)),
        (AHFAL(toggle="never"), AHFAL(tau=0.0)),
    ]
    for toggled, routed in same:
        assert simulation(sites, toggled).selected(5) == simulation(sites, routed).selected(
            5
        )


def test_with_two_classes_all_scores_of_one_model_agree() -> None:
    """Compare scores of one model; means over two models may differ in order."""
    sites = tables(6, classes=2)
    for balance in ("inverse_count", "none"):
        selected = [
            simulation(sites, AHFAL(score=score, toggle="never", balance=balance)).selected(
                5
            )
            for score in ("entropy", "margin", "least_confidence")
        ]
        assert selected[0] == selected[1] == selected[2]
    selected = [
        simulation(sites, strategy()).selected(5)
        for strategy in (Entropy, Margin, LeastConfidence)
    ]
    assert selected[0] == selected[1] == selected[2]


def test_a_mix_of_one_is_the_local_score() -> None:
    sites = tables(7)
    assert simulation(sites, AHFAL(mix=1, toggle="always")).selected(5) == (
        simulation(sites, AHFAL(toggle="never")).selected(5)
    )


# -- the threshold on skewed partitions ------------------------------------------------


def low_classes(strategy: AHFAL, y: np.ndarray, rule: Partition, seed: int) -> int:
    """Return classes below the threshold with a random tenth of the examples labeled."""
    n, rng = len(y) // 10 // SITES, np.random.default_rng([seed, 1])
    parts = rule.split(y, SITES, np.random.default_rng(seed))
    drawn = [torch.from_numpy(y[rng.permutation(rows)[:n]]).long() for rows in parts]
    classes = int(y.max()) + 1
    replies = [strategy.post(torch.bincount(d, minlength=classes).double()) for d in drawn]
    total = {
        k: torch.stack([torch.as_tensor(a[k]) for a in replies]).sum(0) for k in replies[0]
    }
    mean, spread = moments(total["share"], total["square"], total["one"])
    return int(strategy.low(mean, spread, total).sum())


@pytest.mark.parametrize(
    ("alpha", "least", "maximum"),
    [(0.1, 0, 2), (0.3, 2, 5), (0.5, 6, 10), (1.0, 8, 10), (10.0, 9, 10)],
)
def test_twelve_points_split_the_classes_as_the_published_thresholds_do(
    alpha: float, least: int, maximum: int
) -> None:
    """Compare with the published 0-1, 5, 7-9, 9-10 and 10 of 10 classes.

    The partition with exact margins is slightly more skewed: 3.3 instead of 5 at 0.3.
    """
    y = np.repeat(np.arange(10), 1000)
    low = [low_classes(AHFAL(), y, ExactDirichlet(alpha), seed) for seed in range(5)]
    assert least <= np.mean(low) <= maximum


def test_on_counts_twelve_is_below_the_spread_of_every_class_of_a_skewed_partition() -> (
    None
):
    y = np.repeat(np.arange(10), 5000)
    literal = AHFAL(tau_scale="count")
    assert [low_classes(literal, y, ExactDirichlet(a), 0) for a in (0.1, 0.5, 1.0)] == [
        0,
        0,
        0,
    ]


def test_with_a_hundred_classes_twelve_points_put_every_class_below_and_the_cv_scale_does_not() -> (
    None
):
    y = np.repeat(np.arange(100), 100)
    skewed = ExactDirichlet(0.1)
    assert low_classes(AHFAL(), y, skewed, 0) == 100
    assert low_classes(AHFAL(tau=1.2, tau_scale="cv"), y, skewed, 0) < 50


def test_thresholds_of_ten_twelve_and_fifteen_points_route_different_classes_of_digits() -> (
    None
):
    y = open_dataset("digits").y.numpy()
    low = [low_classes(AHFAL(tau), y, ExactDirichlet(0.3), 0) for tau in (10.0, 12.0, 15.0)]
    assert low[0] < low[1] < low[2]


# -- in a run --------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_queries_once_per_cycle_however_many_rounds_it_trains() -> None:
    config = ExperimentConfig(
        "digits",
        rows=300,
        test_rows=50,
        sites=3,
        rounds=4,
        cycles=2,
        score_rounds=1,
        strategy=Spec("ahfal"),
    )
    event_log = EventLog()
    records = ExperimentRun(build_environment(config, 0, event_log), event_log).go()
    event_log.close()
    exchanges = {row["function"]: row["exchanges"] for row in records[-1]["revealed"]}
    first = 1  # the random initial labels are selected by the same interface
    assert exchanges == {"select": first + 2, "share": 2, "upload": 3 * 4}
