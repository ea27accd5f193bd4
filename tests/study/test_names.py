from __future__ import annotations

from typing import Any

import pytest

from fallow.configs.papers import load_paper_results, load_papers
from fallow.settings.variants import ParsedStrategy
from fallow.study import names as words


def label(*args: Any, **options: Any) -> str:
    return words.label(*args, known=load_paper_results(), **options)


def labels(*args: Any, **options: Any) -> dict[str, str]:
    return words.labels(*args, known=load_paper_results(), **options)


def trainer_label(*args: Any, **options: Any) -> str:
    return words.trainer_label(*args, known=load_paper_results(), **options)


NAMES = {"ksas": "KAFAL", "ksas@training=kcfu": "KAFAL, full"}


@pytest.mark.parametrize(
    ("strategy", "shown"),
    [
        ("entropy", "entropy"),
        ("ksas", "KAFAL"),
        ("ksas@training=kcfu", "KAFAL, full"),
        ("ahfal@training=fedprox:mu=0.1", "ahfal + FedProx:mu=0.1"),
        (
            "ksas@local_source=finetune@training=kcfu",
            "KAFAL + local_source=finetune + kcfu",
        ),
        ("fallow_papers.ahfal.codes:NaNKSAS", "NaNKSAS (code)"),
        ("fallow_papers.ahfal.codes:NaNKSAS@training=kcfu", "NaNKSAS (code) + kcfu"),
        ("bound:all-labels", "all labels"),
        ("bound:all-labels@training=server-solve", "all labels + server-solve"),
        ("random@training=server-solve", "random + server-solve"),
        ("random@trainer=10x25", "random + 10 rounds x 25 epochs"),
        ("random@trainer=1x1", "random + 1 round x 1 epoch"),
        ("random@protocol=one_pass", "random + one pass"),
        ("fale@training=server-solve", "FALE"),
        ("fale@training=server-solve@initial=0@protocol=one_pass", "FALE"),
        ("fale@training=server-solve@initial_by=query", "FALE + initial labels"),
        ("fale@training=server-solve:ridge=0.001", "FALE + server-solve:ridge=0.001"),
        ("fale:weights=none@training=server-solve", "FALE, no weights"),
        ("fale:mode=fedsvd@training=server-solve", "FALE, mode=fedsvd"),
        ("fale:weights=none@training=fedavg@protocol=one_pass", "FALE-local"),
        ("fale:weights=none@trainer=10x25", "FALE-local + 10 rounds x 25 epochs"),
        ("fale@training=fedavg", "FALE, trained at the sites"),
        ("fale", "FALE, trained at the sites"),
        ("odd@", "odd + "),
    ],
)
def test_a_strategy_is_called_as_a_reader_would(strategy: str, shown: str) -> None:
    assert label(strategy, NAMES) == shown


def test_the_longest_published_name_counts() -> None:
    printed = {"logo@local_source=last_round": "LoGo", "logo": "LoGo from scratch"}
    shown = label("logo@local_source=last_round@trainer=10x25", printed)
    assert shown == "LoGo + 10 rounds x 25 epochs"
    assert label("logo@trainer=2x1", printed) == "LoGo from scratch + 2 rounds x 1 epoch"


def test_fale_is_called_by_how_the_study_trains() -> None:
    assert label("fale", {}, "server-solve") == "FALE"
    assert label("fale:weights=none", {}, "ServerSolve") == "FALE, no weights"
    assert label("fale", {"fale": "leverage"}, "fedavg") == "leverage"


@pytest.mark.parametrize(
    ("strategy", "shown"),
    [
        ("random", "FedAvg"),
        ("random@training=local", "Local"),
        ("random@training=Fed-Avg-FT", "FedAvg+FT"),
        ("random@training=p-fed-graph:alpha=0.5", "pFedGraph, alpha=0.5"),
        ("random@training=dpfl", "DPFL"),
        ("random@training=dpfl:budget=5", "DPFL, 5 models"),
        ("random@training=dpfl:budget=1", "DPFL, 1 model"),
        ("random@training=dpfl:budget=[1,3]", "DPFL, 1 to 3 models"),
        ("random@training=dpfl:graph=static:budget=5", "DPFL, random graph, 5 models"),
        ("random@training=dpfl:period=2@rounds=7", "DPFL, period=2 + rounds=7"),
        ("random@training=their.code:Method", "their.code:Method"),
        ("random@training=unheard-of", "unheard-of"),
        ("ksas", "KAFAL"),
        ("bound:all-labels", "all labels"),
    ],
)
def test_where_nothing_is_chosen_a_strategy_is_called_by_its_training(
    strategy: str, shown: str
) -> None:
    assert trainer_label(strategy, NAMES) == shown


def test_by_training_no_two_strategies_share_a_name() -> None:
    strategies = ["random", "random@training=fedavg", "random@training=ditto"]
    assert list(labels(strategies, {}, by_training=True).values()) == [
        "random",
        "random + FedAvg",
        "Ditto",
    ]


def test_the_training_of_the_study_and_of_a_strategy_are_spelled_alike() -> None:
    closed = list(labels(["random", "random@training=fedavg"], {}, "closed-form").values())
    fedavg = list(labels(["random@training=closed-form", "random"], {}, "fedavg").values())
    assert closed == fedavg == ["random + closed-form", "random + FedAvg"]


def test_no_two_strategies_of_a_study_share_a_name() -> None:
    strategies = [
        "fale:weights=none",
        "fale:weights=none@training=fedavg@initial=0",
        "random",
    ]
    assert list(labels(strategies, {}).values()) == [
        "FALE-local",
        "FALE-local + FedAvg + no initial labels",
        "random",
    ]
    assert len(set(labels(["fale", "fale:weights=importance", "FALE"], {}).values())) == 3


def test_every_class_of_published_code_stands_for_a_strategy_that_there_is() -> None:
    from fallow import strategies
    from fallow.core.build import find

    codes = [code for paper in load_papers() for code in paper.codes]
    assert codes
    for code in codes:
        assert find(strategies, code.of).contract.title
        assert code.load().__name__ == code.name


def test_a_text_of_another_form_is_a_name_as_a_whole() -> None:
    assert ParsedStrategy.parse("a:b=1:c").spec.name == "a:b=1:c"
    assert ParsedStrategy.parse("module:Class:k=3@training=kcfu").spec.fields == {"k": 3}
