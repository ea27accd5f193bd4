"""Evaluation sets drawn next to a query, and the accuracy that they estimate."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from scipy.stats import t

from fallow.core.streams import stream
from fallow.core.types import Values
from fallow.core.values import SenderFacts
from fallow.data import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.measurements.evaluation_set import (
    ErrorCounts,
    EvaluationCounts,
    EvaluationScore,
    EvaluationSet,
    describe_tallies,
    describe_tally,
)
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from fallow.strategies import Margin
from tests.simulations import Simulation, simulation, tables

SITES = ("a", "b", "c")
POOL = 24
SELECTED = 3
EXPERIMENT = ExperimentConfig(
    "evaluated",
    partition=Spec("iid"),
    sites=3,
    strategy=Spec("margin"),
    initial=4,
    budget=5,
    cycles=2,
    rounds=1,
    score_rounds=1,
    bounds=(),
    evaluation_fraction=0.4,
)


# -- a few sites with known classes ----------------------------------------------------


def built(seed: int = 0, method: EvaluationSet | None = None) -> Simulation:
    """Return sites with evaluation sets, a query's selections and known model outputs."""
    result = simulation(tables(rows=POOL), Margin(), seed)
    parts = next(iter(result.members.values())).parts
    parts.methods["evaluation_set"] = method or EvaluationSet(0.4)
    return result


def truth(simulation: Simulation) -> dict[str, torch.Tensor]:
    """Return the pool's classes, some of which the global model misclassifies."""
    hidden = {}
    for name, site in simulation.members.items():
        right = site.parts.hidden[name][:POOL]
        wrong = torch.rand(POOL, generator=stream(5, "wrong", name)) < 0.3
        hidden[name] = torch.where(wrong, (right + 1) % 3, right)
    return hidden


def true_accuracy(simulation: Simulation) -> float:
    """Return the accuracy of the global model on all examples of all pools."""
    hits = []
    for name, labels in truth(simulation).items():
        hits.append(simulation.members[name].parts.hidden[name][:POOL] == labels)
    return float(torch.cat(hits).double().mean())


def run_evaluation(
    simulation: Simulation,
    method: EvaluationSet,
    silent: dict[str, list[int]] | None = None,
) -> EvaluationScore:
    """Query, draw, label and count once; ``silent`` examples get no label."""
    budget = dict.fromkeys(SITES, SELECTED + 2)
    seed = simulation.members["a"].parts.seed
    counts = method.divide(budget, stream(seed, "audit", 0))
    simulation.query({site: budget[site] - counts[site] for site in SITES})
    method.draw_rows(simulation.ask("evaluation_set"), budget, counts)
    labels = truth(simulation)
    for name, site in simulation.members.items():
        rows = site.memory["selected"]["rows"].tolist()
        output = [row for row in rows if row not in (silent or {}).get(name, [])]
        site.buy([Label(row, float(labels[name][row]), 0) for row in output])
        site.forget(keep=("outlook",))
    unit = 2.5
    return describe_tallies(
        method.tally_errors(simulation.ask("evaluation_set"), unit), unit, None
    )


@pytest.fixture(scope="module")
def many() -> list[EvaluationScore]:
    """Return evaluation sets of the same sites for many seeds."""
    return [run_evaluation(built(seed), EvaluationSet(0.4)) for seed in range(150)]


def test_the_estimate_is_right_on_average_whatever_the_query_prefers(
    many: list[EvaluationScore],
) -> None:
    known = [result["score"] for result in many if result["score"] is not None]
    assert len(known) == len(many)
    spread = torch.tensor(known).std() / math.sqrt(len(known))
    expected = true_accuracy(built())
    assert fmean(known) == pytest.approx(expected, abs=3 * float(spread))
    assert spread < 0.015  # enough to detect a bias of five points


def test_rows_of_the_query_alone_would_say_something_else() -> None:
    """Check that queried examples alone are biased, since margin prefers certain errors."""
    result = built()
    labels = truth(result)
    hits = []
    for name, rows in result.selected(SELECTED).items():
        predicted = result.members[name].parts.hidden[name][rows]
        hits += (predicted == labels[name][rows]).tolist()
    assert abs(fmean(hits) - true_accuracy(result)) > 0.03


def test_most_intervals_hold_what_is_true(many: list[EvaluationScore]) -> None:
    expected = true_accuracy(built())
    inside = []
    for result in many:
        assert result["low"] is not None
        assert result["high"] is not None
        inside.append(result["low"] <= expected <= result["high"])
    assert fmean(inside) >= 0.93


def test_no_row_is_chosen_and_drawn_and_all_are_of_the_pool() -> None:
    result = built()
    method = EvaluationSet(0.4)
    budget = dict.fromkeys(SITES, SELECTED + 2)
    result.query(dict.fromkeys(SITES, SELECTED))
    chosen = {
        name: site.memory["selected"]["rows"] for name, site in result.members.items()
    }
    method.draw_rows(result.ask("evaluation_set"), budget, dict.fromkeys(SITES, 2))
    for name, site in result.members.items():
        selected = site.memory["selected"]
        assert selected["rows"][:SELECTED].tolist() == chosen[name].tolist()
        assert selected["beside"].tolist() == [False] * SELECTED + [True] * 2
        assert len(set(selected["rows"].tolist())) == SELECTED + 2
        assert selected["rows"].max() < POOL
        drawn = selected["probability"][SELECTED:].tolist()
        assert drawn == pytest.approx([2 / (POOL - SELECTED)] * 2)
        assert selected["probability"][:SELECTED].isnan().all()


@pytest.mark.long
def test_every_row_that_is_left_is_drawn_equally_often() -> None:
    times = torch.zeros(POOL)
    for seed in range(150):
        result = built(seed)
        result.query({"a": SELECTED})
        EvaluationSet(0.4).draw_rows(result.ask("evaluation_set"), {"a": 5}, {"a": 2})
        selected = result.members["a"].memory["selected"]
        times[selected["rows"][selected["beside"]]] += 1
    result.query({"a": SELECTED})
    chosen = result.members["a"].memory["selected"]["rows"]
    assert times[chosen].sum() == 0
    left = times[[row for row in range(POOL) if row not in chosen.tolist()]]
    expected = 300 / (POOL - SELECTED)
    # chi-squared with 20 degrees of freedom
    assert float((left - expected).square().sum() / expected) < 45


def test_labels_are_compared_with_what_was_said_before_anybody_answered() -> None:
    """Check that a model that changes in between does not change the counts."""
    one = built()
    other = built()
    method = EvaluationSet(0.4)
    before = run_evaluation(one, method)
    budget = dict.fromkeys(SITES, SELECTED + 2)
    counts = method.divide(budget, stream(0, "audit", 0))
    other.query({site: budget[site] - counts[site] for site in SITES})
    method.draw_rows(other.ask("evaluation_set"), budget, counts)
    labels = truth(other)
    for name, site in other.members.items():
        rows = site.memory["selected"]["rows"].tolist()
        site.buy([Label(row, float(labels[name][row]), 0) for row in rows])
        site.remember("global", {"w": torch.zeros(1), "stats": torch.zeros(0)})
    after = describe_tallies(
        method.tally_errors(other.ask("evaluation_set"), 2.5), 2.5, None
    )
    assert after == before


def test_who_was_away_when_rows_were_drawn_tells_nothing() -> None:
    outcome = built()
    replies = EvaluationSet(0.4).tally_errors(outcome.ask("evaluation_set", cycle=1), 1.0)
    assert all(set(reply.values()) == {0.0} for reply in replies.values())
    run_evaluation(outcome, EvaluationSet(0.4))
    late = EvaluationSet(0.4).tally_errors(
        outcome.ask("evaluation_set", cycle=1), 1.0
    )  # of another cycle
    assert all(set(reply.values()) == {0.0} for reply in late.values())


def test_a_row_without_an_answer_counts_as_the_others_of_its_kind() -> None:
    whole = built()
    run_evaluation(whole, EvaluationSet(0.4))
    rows = whole.members["a"].memory["outlook"]["rows"].tolist()
    some = run_evaluation(built(), EvaluationSet(0.4), silent={"a": rows[:1]})
    none = run_evaluation(built(), EvaluationSet(0.4), silent={"a": rows})
    # three sites selected three each: one of them represents two
    assert some["chosen"] == 9
    assert none["per_site"]["a"]["score"] is None
    assert none["per_site"]["b"] == some["per_site"]["b"]


def test_under_secure_sums_no_site_is_known_alone() -> None:
    method = EvaluationSet(0.4, secure_sum=True)
    assert "per_site" not in run_evaluation(built(method=method), method)
    single = run_evaluation(built(), EvaluationSet(0.4))
    total = run_evaluation(built(method=method), method)
    assert total["score"] == pytest.approx(single["score"])


# -- numbers of drawn examples ---------------------------------------------------------


def test_each_site_draws_its_share_on_average_and_all_together_always() -> None:
    budget = {"a": 7, "b": 3, "c": 0, "d": 21}
    method = EvaluationSet(0.1)
    total = dict.fromkeys(budget, 0)
    for k in range(2000):
        counts = method.divide(budget, stream(k, "audit"))
        assert sum(counts.values()) in (3, 4)  # 3.1 on average
        for site, n in counts.items():
            assert abs(n - 0.1 * budget[site]) < 1
            total[site] += n
    for site, n in total.items():
        assert n / 2000 == pytest.approx(0.1 * budget[site], abs=0.05)
    assert total["c"] == 0


# -- worked example --------------------------------------------------------------------


def test_an_estimate_and_its_interval_by_hand() -> None:
    # 10 of 80 examples are drawn, so each represents 8. Two were wrong, with an uncertainty
    # of 0.1 in each.
    beyond = [8 * 0.9] * 2 + [8 * -0.1] * 8
    tally = ErrorCounts(
        chosen=20,
        wrong=6,
        left=80,
        doubt=8,
        drawn=10,
        beyond=sum(beyond),
        squares=sum(value**2 for value in beyond),
    )
    outcome = describe_tally(tally, None)
    error = (6 + 8 + 8) / 100  # queried examples, uncertainties, and the remaining error
    assert outcome["score"] == pytest.approx(1 - error)
    more = torch.tensor([*beyond, 8.0, 8.0, 0.0, 0.0], dtype=torch.float64)
    half = float(t.ppf(0.975, 13)) * 10 * float(more.std()) / math.sqrt(14) / 100
    assert outcome["low"] == pytest.approx(1 - error - half)
    assert outcome["high"] == pytest.approx(min(1 - error + half, 1))


def test_numbers_have_an_interval_from_two_rows_on() -> None:
    two = ErrorCounts(left=10, drawn=2, beyond=5.0 * (1 + 3), squares=25.0 * (1 + 9))
    tally = describe_tally(two, 0.5)
    assert tally["score"] == pytest.approx(0.5 * 2)
    half = float(t.ppf(0.975, 1)) * 0.5 * 2 * math.sqrt(50 / 2) / 10
    assert tally["low"] == 0.0  # an error is never below that
    assert tally["high"] == pytest.approx(1 + half)
    one = describe_tally(ErrorCounts(left=10, drawn=1, beyond=10.0, squares=100.0), 1.0)
    assert (one["score"], one["low"]) == (1.0, None)


def test_where_every_row_has_a_label_nothing_is_estimated() -> None:
    tally = describe_tally(ErrorCounts(chosen=4, wrong=1), None)
    assert (tally["low"], tally["score"], tally["high"]) == (0.75, 0.75, 0.75)
    assert describe_tally(ErrorCounts(), None)["score"] is None
    assert describe_tally(ErrorCounts(chosen=4, wrong=1, left=9), None)["score"] is None


def test_sites_add_up() -> None:
    a: Values = {
        "chosen": 3.0,
        "wrong": 1.0,
        "left": 20.0,
        "doubt": 2.0,
        "drawn": 2.0,
        "beyond": 0.5,
        "squares": 4.0,
    }
    both = describe_tallies({"a": a, "b": a}, 2.0, None)
    assert both["drawn"] == 4
    assert both["rows"] == 46
    assert both["score"] == pytest.approx(both["per_site"]["a"]["score"])


# -- in a run --------------------------------------------------------------------------


def places(rows: int = 150, is_number: bool = False) -> Dataset:
    """Return four features in three overlapping classes, or with regression targets."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % 3
    x = 1.5 * torch.eye(4)[y] + torch.randn(rows, 4, generator=draw)
    cut = rows * 2 // 3
    if is_number:
        target = x @ torch.tensor([1.0, 2.0, 3.0, 4.0]) + 50
        return Dataset("places", x[:cut], target[:cut], x[cut:], target[cut:])
    return Dataset("places", x[:cut], y[:cut], x[cut:], y[cut:], classes=("a", "b", "c"))


def records_of(
    config: ExperimentConfig, seed: int = 0, is_number: bool = False
) -> list[Record]:
    event_log = EventLog()
    return ExperimentRun(
        environment_of(config, seed, places(is_number=is_number), event_log), event_log
    ).go()


def test_every_cycle_with_a_query_has_an_audit_and_buys_no_more_labels() -> None:
    records = records_of(EXPERIMENT)
    plain = records_of(replace(EXPERIMENT, evaluation_fraction=0.0))
    assert [record["labeled"] for record in records] == [12, 27, 42]
    assert [record["labeled"] for record in plain] == [12, 27, 42]
    result = [record.get("evaluation_set") for record in records]
    assert result[2] is None
    for score in result[:2]:
        assert score is not None
        assert score["drawn"] == 6  # 0.4 of 5 labels at 3 sites
        assert score["chosen"] == 9
        assert set(score["per_site"]) == {"site-0", "site-1", "site-2"}
    first = result[0]
    second = result[1]
    assert first is not None
    assert second is not None
    assert (first["rows"], second["rows"]) == (88, 73)
    assert all("evaluation_set" not in record for record in plain)
    functions = {entry["function"] for entry in records[2]["revealed"]}
    assert {"draw", "outlook", "tally"} <= functions


def test_the_setting_is_part_of_a_digest_only_where_it_is_used() -> None:
    assert (
        ExperimentConfig("a").digest
        == ExperimentConfig("a", evaluation_fraction=0.0).digest
    )
    assert (
        ExperimentConfig("a").digest
        != ExperimentConfig("a", evaluation_fraction=0.1).digest
    )


def test_errors_of_numbers_are_in_units_of_their_variance() -> None:
    config = replace(EXPERIMENT, training=Spec("fedavg"), strategy=Spec("random"), rounds=8)
    result = records_of(config, is_number=True)
    score = result[1]["evaluation_set"]
    assert score["score"] is not None
    assert result[1]["mse"] is not None
    assert score["score"] == pytest.approx(result[1]["mse"], rel=0.9)
    assert score["high"] is not None


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan"), 3])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(
        ValueError, match=r"evaluation_fraction is .*; it is the fraction of each cycle's"
    ):
        ExperimentConfig("a", evaluation_fraction=share)


def test_what_does_not_go_together_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        ValueError, match="set queries_per_cycle=1 or evaluation_fraction=0"
    ):
        ExperimentConfig("a", evaluation_fraction=0.1, queries_per_cycle=2)
    with pytest.raises(ValueError, match="fale selects each budget from scratch"):
        is_one_pass(ExperimentConfig("a", strategy=Spec("fale"), evaluation_fraction=0.1))
    with pytest.raises(
        ValueError, match=r"evaluation_fraction=0.1 does not support local privacy"
    ):
        records_of(
            replace(EXPERIMENT, evaluation_fraction=0.1, privacy=Privacy(epsilon=1.0))
        )


@pytest.mark.parametrize(("classes", "bound"), [(2, 1.0), (0, 1e12)])
def test_errors_of_a_site_have_an_upper_bound(classes: int, bound: float) -> None:
    known = SenderFacts(sizes={"classes": classes}, rows=10, labels=10)
    counts = dict.fromkeys(("left", "doubt", "drawn", "beyond", "squares"), torch.zeros(()))
    counts["chosen"] = torch.tensor(2.0, dtype=torch.float64)
    for factor, is_refused in ((1, False), (1.1, True)):
        wrong = torch.tensor(2 * bound * factor, dtype=torch.float64)
        why = EvaluationCounts().find_fault({**counts, "wrong": wrong}, known)
        assert ("more than" in (why or "")) is is_refused
