"""Advice from a table of tasks: study data, counts of tasks, and missing advice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fallow.configs.few_labels import OURS, RIVALS, RULES, SCORES, SOLVED, TUNED, read_table
from fallow.core.names import spell_class
from fallow.settings.classes import classes_of
from fallow.study.advice import (
    COLUMNS,
    AdviceTable,
    Rules,
    SimulationFacts,
    advise,
    facts_of_counts,
    gains,
    read_facts,
    weigh_tasks,
)
from fallow.study.benchmark import read_score_file
from fallow.study.reading import read_study

PLAIN = Rules(reference="chance", usual="plain", trainer="solver")
LABELS = (20, 40, 80, 160)


def table_of(
    gained: dict[str, dict[str, float]], simulations: dict[str, SimulationFacts]
) -> AdviceTable:
    """Return tasks of 10 classes with these gains over the reference, over three seeds."""
    rows = []
    for task, gain_by_strategy in gained.items():
        for strategy, gain in {"chance": 0.0, **gain_by_strategy}.items():
            for seed in range(3):
                for labels in LABELS:
                    score = 0.5 + 0.01 * seed + 0.05 * math.log(labels) + gain
                    rows.append((task, strategy, seed, labels, score))
    return AdviceTable(pd.DataFrame(rows, columns=list(COLUMNS)), simulations)


ALIKE = SimulationFacts(10, 10, 0.0, 0.0)


def test_the_strategy_that_gained_on_tasks_like_the_study_is_advised() -> None:
    apart = SimulationFacts(10, 10, 1.0, 0.0)
    near = {"plain": 0.01, "mine": 0.05, "other": -0.02}
    far = {"plain": 0.01, "mine": -0.05, "other": 0.08}
    table = table_of(
        dict.fromkeys("abcd", near) | dict.fromkeys("efgh", far),
        dict.fromkeys("abcd", ALIKE) | dict.fromkeys("efgh", apart),
    )
    outcome = advise(table, ALIKE, 2, PLAIN)
    assert (outcome.strategy, outcome.is_known, outcome.trainer) == ("mine", True, "solver")
    assert advise(table, apart, 2, PLAIN).strategy == "other"
    first = outcome.of("mine")
    assert first is not None and [task for task, _ in first.tasks[:2]] == ["a", "b"]
    assert first.gain == pytest.approx(0.05, abs=0.002)
    sentences = outcome.sentences
    assert sentences[0] == "From 2 to 8 labels per class: mine, trained by solver."
    assert sentences[1].startswith("mine compared with chance: +5.0 points [")


def test_where_tasks_do_not_agree_the_usual_strategy_is_advised_and_that_is_said() -> None:
    table = table_of(
        {"a": {"plain": 0.0, "mine": 0.3}, "b": {"plain": 0.0, "mine": -0.1}},
        {"a": ALIKE, "b": ALIKE},
    )
    result = advise(table, ALIKE, 2, PLAIN)
    assert (result.strategy, result.is_known) == ("plain", False)
    assert result.sentences[0] == (
        "From 2 to 8 labels per class the benchmark is inconclusive; default: plain, trained by solver."
    )


def test_a_strategy_that_is_ahead_by_what_chance_may_give_is_not_gone_by() -> None:
    """Check a strategy that leads three tasks of four within chance."""
    ahead = {"plain": 0.02, "mine": 0.03}
    behind = {"plain": 0.02, "mine": 0.015}
    table = table_of(
        {"a": ahead, "b": ahead, "c": ahead, "d": behind}, dict.fromkeys("abcd", ALIKE)
    )
    advice = advise(table, ALIKE, 2, PLAIN)
    assert (advice.strategy, advice.is_known) == ("plain", False)
    assert advice.expected[0].strategy == "mine"


@pytest.mark.parametrize("labels", [16.0, 1000.0])
def test_beyond_the_budgets_of_all_tasks_nothing_is_known(labels: float) -> None:
    gained = {"plain": 0.0, "mine": 0.3}
    table = table_of({"a": gained, "b": gained}, {"a": ALIKE, "b": ALIKE})
    advice = advise(table, ALIKE, labels + 1, PLAIN)
    assert (advice.strategy, advice.is_known, advice.expected) == ("plain", False, ())


def test_one_task_alone_has_no_interval_and_is_not_gone_by() -> None:
    advice = advise(
        table_of({"a": {"plain": 0.0, "mine": 0.3}}, {"a": ALIKE}), ALIKE, 2, PLAIN
    )
    assert (advice.strategy, advice.is_known) == ("plain", False)
    first = advice.of("mine")
    assert first is not None and first.low is None
    assert "no interval" in first.sentence("chance")


def test_a_gain_is_the_mean_over_the_logarithm_of_labels_of_seeds_that_have_both() -> None:
    rows = []
    for labels, score in ((10, 0.4), (1000, 0.8)):
        rows.append(("a", "chance", 0, labels, 0.3))
        rows.append(("a", "mine", 0, labels, score))
        rows.append(("a", "mine", 1, labels, 0.9))
    scores = pd.DataFrame(rows, columns=list(COLUMNS))
    curves = AdviceTable(scores, {"a": ALIKE}).curves["a"]
    outcome = gains(curves, "mine", "chance", 10, 100)
    assert outcome == pytest.approx([0.2])  # from 0.1 to 0.3
    assert gains(curves, "mine", "chance", 2000, 4000) == []


def test_the_interval_is_students_where_tasks_weigh_the_same() -> None:
    values = [0.01, 0.03, -0.01, 0.05]
    of_tasks = {str(at): value for at, value in enumerate(values)}
    mean, half = weigh_tasks(of_tasks, dict.fromkeys(of_tasks, 0.3))
    quantile = 3.18245  # of three degrees of freedom, from a table
    assert mean == pytest.approx(0.02)
    assert half == pytest.approx(quantile * np.std(values, ddof=1) / 2, rel=1e-5)


# -- data read from a study ------------------------------------------------------------


def test_facts_do_not_take_chance_for_skew() -> None:
    draw = np.random.default_rng(0)
    alike = [
        facts_of_counts(draw.multinomial(20, [0.1] * 10, size=10).tolist())
        for _ in range(40)
    ]
    assert np.mean([facts.apart or 0.0 for facts in alike]) < 0.1
    assert np.mean([facts.uneven or 0.0 for facts in alike]) < 0.1
    own = facts_of_counts((20 * np.eye(10)).tolist())
    assert (own.apart, own.uneven) == (1.0, 0.0)
    assert facts_of_counts([[40, 2], [38, 4]]).uneven == pytest.approx(0.851, abs=0.01)
    assert facts_of_counts([[1, 0]]).apart is None


def test_a_study_tells_its_world_by_the_labels_of_its_largest_run(
    make_study: Callable[..., Path],
) -> None:
    study = read_study(make_study(strategies=("random",), seeds=1, cycles=2))
    facts, labels = read_facts(study)
    last = study.cells[0].records[-1]
    assert labels == last["labeled"] / 4
    assert facts == facts_of_counts(list(last["labeled_per_site"].values()))


def test_sites_that_tell_no_classes_leave_those_facts_unknown(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=("random",), seeds=1, cycles=2)
    for path in root.glob("cells/*/*/records.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["labeled_per_site"] = {
                k: [sum(v)] for k, v in row["labeled_per_site"].items()
            }
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts, _ = read_facts(read_study(root))
    assert (facts.classes, facts.apart, facts.uneven) == (4, None, None)


# -- the table in the package ----------------------------------------------------------


@pytest.mark.long
def test_the_shipped_table_is_the_published_one_of_strategies_with_enough_seeds() -> None:
    published = read_score_file(Path("studies/benchmark.csv"))
    shipped = pd.read_csv(SCORES)
    solved = {task.name for task in SOLVED} - set(TUNED)
    seeds = published.groupby(["task", "strategy"])["seed"].transform("nunique")
    is_there = published["strategy"].isin([*OURS, *RIVALS])
    enough = published["task"].isin(solved) & (seeds >= 15) & is_there
    published = published[enough].reset_index(drop=True)
    columns = ["task", "strategy", "seed", "labels"]
    pd.testing.assert_frame_equal(shipped[columns], published[columns], check_dtype=False)
    assert shipped["accuracy"].to_numpy() == pytest.approx(published["accuracy"], abs=1e-5)


def test_the_shipped_table_knows_the_worlds_of_its_tasks() -> None:
    table = read_table()
    assert (
        set(table.simulations)
        == set(table.scores["task"])
        <= {task.name for task in SOLVED}
    )


def test_advice_names_strategies_as_the_command_line_does() -> None:
    named = set(read_table().scores["strategy"])
    assert {RULES.reference, RULES.usual} <= named
    assert named <= {spell_class(cls) for cls in classes_of("strategy").values()}


def test_advice_for_few_labels_rests_on_the_shipped_table() -> None:
    advice = advise(read_table(), SimulationFacts(10, 10, 0.0, 0.0), 0, RULES)
    assert advice.trainer == "closed-form"
    assert (advice.start, advice.end) == (2.0, 8.0)
    first = advice.expected[0]
    assert first.low is not None and first.low <= first.gain
    assert sum(weight for _, weight in first.tasks) == pytest.approx(1)
