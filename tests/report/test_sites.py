"""Outcomes by site, from worked examples: two seeds, two or three sites."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fallow.experiment.record import Record
from fallow.report.personal import (
    bootstrap_interval,
    bytes_received,
    compare_sites,
    has_sites,
    outcomes,
    over_rounds,
)
from fallow.study.records import RunRecords, StudyManifest, StudyRecords

LOCAL = "random@training=local"
DPFL = "random@training=dpfl"


def row(scores: dict[str, float | None], round_: int = 1, final: bool = True) -> Record:
    """Return the fields of a record that describe sites."""
    known = [s for s in scores.values() if s is not None]
    relayed = {"kind": "relay", "bytes": 600, "received": {"a": 2, "c": 1}}
    output = {
        "cycle": 0,
        "round": round_,
        "final": final,
        "accuracy": float(np.mean(known)),
        "per_site": scores,
        "variance": 1e4 * float(np.var(known)),
        "worst_tenth": min(known),
        "accuracy_weighted": 0.5,
        "bytes_down": 800,
        "revealed": [relayed],
        "model_bytes": 40,
        "labeled_per_site": {site: [1] for site in "abcd"},
        "labeled": 4,
        "pool": 4,
    }
    return cast(Record, output)


def study(
    cells: dict[tuple[str, int], list[Record]], reference: str = DPFL
) -> StudyRecords:
    strategies = tuple(dict.fromkeys(strategy for strategy, _ in cells))
    seeds = tuple(sorted({seed for _, seed in cells}))
    config = {"training": {"name": "fedavg", "fields": {}}, "cycles": 0}
    study_manifest = StudyManifest(
        "tiny", config, reference, strategies, seeds, "", None, {}
    )
    made = tuple(
        RunRecords(strategy, seed, tuple(rows), None, 0)
        for (strategy, seed), rows in cells.items()
    )
    return StudyRecords(Path(), study_manifest, made)


@pytest.fixture
def four() -> StudyRecords:
    return study(
        {
            (LOCAL, 0): [row({"a": 0.5, "b": 0.7, "c": None})],
            (LOCAL, 1): [row({"a": 0.6, "b": 0.6})],
            (DPFL, 0): [
                row({"a": 0.4, "b": 0.4}, 0, final=False),
                row({"a": 0.6, "b": 0.7, "c": None}),
            ],
            (DPFL, 1): [row({"a": 0.5, "b": 0.9})],
        }
    )


def test_sites_count_the_same_and_seeds_count_the_same(four: StudyRecords) -> None:
    best, local = outcomes(four)
    assert (best.strategy, local.strategy) == (DPFL, LOCAL)
    assert best.accuracy == pytest.approx([65.0, 70.0])
    assert best.variance == pytest.approx((5.0**2 + 20.0**2) / 2)
    assert (best.lowest, best.worst_tenth) == pytest.approx((55.0, 55.0))


def test_who_would_be_better_off_alone_is_counted_by_seed_and_site(
    four: StudyRecords,
) -> None:
    best, local = outcomes(four)
    assert best.below_local == pytest.approx(100 / 4)  # site a of seed 1 only
    assert local.below_local is None


def test_what_a_site_receives_comes_from_the_server_and_from_others() -> None:
    assert bytes_received(row({"a": 0.5})) == {"a": 450.0, "b": 50.0, "c": 250.0, "d": 50.0}
    (outcome,) = outcomes(study({(DPFL, 0): [row({"a": 0.5})]}))
    assert (outcome.received, outcome.largest, outcome.models) == (200.0, 450.0, 5.0)


def test_pairs_are_the_same_site_under_the_same_seed(four: StudyRecords) -> None:
    (outcome,) = compare_sites(four)
    assert outcome.strategy == LOCAL
    assert outcome.difference == pytest.approx((-5.0 - 10.0) / 2)
    assert (outcome.better, outcome.level, outcome.worse, outcome.seeds) == (1, 1, 2, 2)
    assert outcome.interval.low < outcome.difference < outcome.interval.high


def test_an_interval_over_one_seed_is_over_its_sites_alone() -> None:
    values = bootstrap_interval([np.array([0.0, 1.0])])
    assert (values.low, values.high) == (0.0, 1.0)
    # drawn from a fixed random stream
    assert bootstrap_interval([np.array([0.0, 1.0])]) == values


def test_seeds_that_differ_widen_the_interval_beyond_that_of_their_sites() -> None:
    gen = np.random.default_rng(0)
    sites = gen.normal(0.0, 1.0, (2, 50))
    together = bootstrap_interval([np.concatenate(list(sites))])
    apart = bootstrap_interval([sites[0] - 5, sites[1] + 5])
    assert apart.high - apart.low > 5 * (together.high - together.low)


def test_seeds_of_other_sizes_count_the_same() -> None:
    result = bootstrap_interval([np.full(1, 4.0), np.full(30, 4.0)])
    assert (result.low, result.high) == (4.0, 4.0)


def test_rounds_are_those_that_were_scored(four: StudyRecords) -> None:
    assert over_rounds(four, DPFL) == {
        0: [40.0],
        1: [pytest.approx(65.0), pytest.approx(70.0)],
    }


def test_a_study_of_one_common_model_has_no_sites() -> None:
    plain = row({"a": 0.5})
    plain["per_site"] = None
    plain["variance"] = None
    assert not has_sites(study({("random", 0): [plain]}))


def test_a_common_model_on_common_test_rows_has_no_sites_even_where_each_scores_it() -> (
    None
):
    alike = row({"a": 0.5, "b": 0.5})
    assert alike["variance"] == 0
    assert not has_sites(study({("random", 0): [alike]}))
    assert has_sites(study({("random", 0): [row({"a": 0.4, "b": 0.6})]}))
