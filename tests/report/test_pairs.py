from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.configs.papers import load_paper_results
from fallow.report.comparisons import (
    StrategyPair,
    compare_final_scores,
    setting_pairs,
)
from fallow_papers.ahfal.code_pairs import code_pairs
from fallow_papers.ahfal.oracle import oracle_pairs
from fallow_papers.fairfal.sections import model_pairs
from fallow_papers.fale.sections import control_pairs
from tests.report.reading import read_study


def test_an_oracle_stands_beside_the_same_heuristic_under_the_same_settings() -> None:
    names = [
        "entropy",
        "typicality",
        "OracleHistogram",
        "oracle-histogram:score=typicality",
        "oracle_histogram@training=kcfu",
        "oracle-histogram:score=margin",
    ]
    assert oracle_pairs(names) == [
        StrategyPair("OracleHistogram", "entropy", "entropy"),
        StrategyPair("oracle-histogram:score=typicality", "typicality", "typicality"),
    ]


def test_the_global_model_stands_beside_the_local_one_with_equal_other_fields() -> None:
    names = [
        "entropy",
        "entropy:model=global",
        "core-set:model=local",
        "core-set:model=global",
        "badge:model=global",
        "entropy:model=global@training=kcfu",
    ]
    assert [(p.strategy, p.against) for p in model_pairs(names)] == [
        ("entropy:model=global", "entropy"),
        ("core-set:model=global", "core-set:model=local"),
    ]


def test_a_setting_stands_beside_the_strategy_without_it() -> None:
    names = ["ksas", "ksas@training=kcfu", "ahfal@training=kcfu"]
    assert setting_pairs(names) == [
        StrategyPair("ksas@training=kcfu", "ksas", "training=kcfu")
    ]


def test_a_strategy_that_has_a_setting_already_stands_beside_it_with_one_more() -> None:
    names = [
        "logo@local_source=last_round",
        "logo@local_source=last_round@trainer=10x25",
        "logo2",
    ]
    assert setting_pairs(names) == [StrategyPair(names[1], names[0], "trainer=10x25")]


def test_code_stands_beside_the_paper_and_never_beside_an_ablation() -> None:
    names = [
        "ahfal:toggle=never",
        "ahfal",
        "fallow_papers.ahfal.codes:RatioAHFAL",
        "fallow_papers.ahfal.codes:PixelBADGE",
    ]
    expected = [StrategyPair("fallow_papers.ahfal.codes:RatioAHFAL", "ahfal", "RatioAHFAL")]
    assert code_pairs(names, load_paper_results()) == expected


def test_a_code_by_its_new_word_is_the_same_code() -> None:
    names = ["ksas", "fallow_papers.ahfal.codes:NaNKSAS"]
    assert code_pairs(names, load_paper_results()) == [
        StrategyPair(names[1], "ksas", "NaNKSAS")
    ]


def test_the_code_of_a_strategy_with_fields_stands_beside_the_same_fields() -> None:
    names = ["noise_stability:draws=9", "fallow_papers.ahfal.codes:PlainNoise:draws=9"]
    assert code_pairs(names, load_paper_results())[0].against == names[0]


def test_fale_stands_beside_uniform_rows_and_missing_weights_with_the_same_training() -> (
    None
):
    names = [
        "random",
        "random@training=server-solve",
        "fale@training=server-solve",
        "fale:weights=none@training=server-solve",
        "fale:weights=none@training=fedavg",
        "fale:mode=fedsvd@training=masked-solve",
        "random@trainer=10x25",
    ]
    assert [(p.strategy, p.against) for p in control_pairs(names)] == [
        ("fale@training=server-solve", "random@training=server-solve"),
        ("fale@training=server-solve", "fale:weights=none@training=server-solve"),
        ("fale:weights=none@training=server-solve", "random@training=server-solve"),
        ("fale:weights=none@training=fedavg", "random"),
        ("fale:mode=fedsvd@training=masked-solve", "random@training=server-solve"),
    ]


def test_pairs_are_compared_in_points_and_holm_counts_them_all(study_dir: Path) -> None:
    study = read_study(study_dir)
    pairs = [StrategyPair("ahfal", "random", ""), StrategyPair("entropy", "random", "")]
    (pair, first), (_, second) = compare_final_scores(study, pairs)
    gaps = [100 * (study.final("ahfal")[k] - study.final("random")[k]) for k in range(6)]
    assert pair.strategy == first.strategy == "ahfal"
    assert first.difference == pytest.approx(sum(gaps) / 6)
    assert first.lowest == second.lowest == 2 / 32


def test_a_pair_with_one_common_seed_is_left_out(make_study: Callable[..., Path]) -> None:
    study = read_study(make_study(seeds=1))
    assert compare_final_scores(study, [StrategyPair("ahfal", "random", "")]) == []
