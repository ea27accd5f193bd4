import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import fallow as fl
from fallow.cli.app import build_app
from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.methods import Budget, Memo
from fallow.core.view import SelectedExamples, View
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.models.scores import entropy
from fallow.settings.config import with_settings
from fallow.sites.store import MemoryStore
from fallow.strategies import Entropy, OracleHistogram, Random
from fallow.strategies.parts.density import typicality
from tests.experiment.crash import tiny
from tests.simulations import Table, Tables, simulation, tables


def truth(table: Table) -> Tensor:
    return table.hidden()[: len(table.local)]


def shares_of_all(sites: Tables) -> Tensor:
    counts = [torch.bincount(table.hidden(), minlength=3) for table in sites.values()]
    total = torch.stack(counts).sum(0)
    return total / total.sum()


def site_with(pool: list[int], labels: Sequence[int], seed: int = 0) -> Table:
    """Return a site of these true classes, which its global model predicts correctly."""
    made = tables(seed, sites=1, rows=len(pool))["a"]
    return Table(made.local, 9.0 * torch.eye(3, dtype=torch.float64)[pool], labels)


# -- the quota of each true class ------------------------------------------------------


def test_each_class_gets_what_the_labels_lack_to_the_true_shares() -> None:
    # 40 examples at both sites: 10, 20 and 10 of a class; site a may end with 10 labels:
    # 2.5, 5, 2.5
    a = site_with([0] * 5 + [1] * 9 + [2] * 2, [0, 0, 0, 1])
    b = site_with([0] * 2 + [1] * 10 + [2] * 8, [])
    selected = simulation({"a": a, "b": b}, OracleHistogram()).selected({"a": 6, "b": 8})
    got = {n: truth(s)[selected[n]].bincount(minlength=3) for n, s in (("a", a), ("b", b))}
    assert got["a"].tolist() == [0, 4, 2]  # needs 0, 4, 2.5: class 2 has two examples
    assert got["b"].tolist() == [2, 4, 2]


def test_a_class_with_too_few_rows_leaves_its_share_to_the_other_lacking_classes() -> None:
    a = site_with([0] * 30 + [1] * 1 + [2] * 9, [0] * 10)
    b = site_with([1] * 30, [])
    selected = simulation({"a": a, "b": b}, OracleHistogram()).selected({"a": 10, "b": 0})[
        "a"
    ]
    # of 80 examples 40, 31, 9: the site needs 0, 7.75 and 2.25 labels and has one of class
    # 1
    assert truth(a)[selected].bincount(minlength=3).tolist() == [0, 1, 9]


def test_what_no_class_lacks_is_spread_over_the_rest() -> None:
    a, b = site_with([0] * 4 + [2] * 4, [0, 0, 2, 2, 2]), site_with([1] * 50, [])
    selected = simulation({"a": a, "b": b}, OracleHistogram()).selected({"a": 4, "b": 0})[
        "a"
    ]
    assert truth(a)[selected].bincount(minlength=3).tolist() == [
        2,
        0,
        2,
    ]  # it lacks only class 1


def test_labels_come_closer_to_the_truth_than_with_the_plain_heuristic() -> None:
    sites = tables(3, rows=80, labels=8)
    goal, gaps = shares_of_all(sites), {}
    for strategy in (OracleHistogram(), Entropy()):
        selected = simulation(sites, strategy).selected(20)
        for name, table in sites.items():
            labels_after = [*table.labels, *truth(table)[selected[name]].tolist()]
            share = torch.tensor(labels_after).bincount(minlength=3) / len(labels_after)
            gaps[strategy, name] = float((share - goal).abs().sum() / 2)
    assert all(gaps[OracleHistogram(), name] <= gaps[Entropy(), name] for name in sites)
    assert sum(gaps[OracleHistogram(), name] for name in sites) < 0.1 * len(sites)


# -- examples within a class -----------------------------------------------------------


@pytest.mark.parametrize("score", ["entropy", "typicality"])
def test_inside_a_class_the_heuristic_chooses(
    score: Literal["entropy", "typicality"],
) -> None:
    site = site_with([0] * 20 + [1] * 20, [0, 1])
    selected = simulation({"a": site}, OracleHistogram(score=score)).selected(6)["a"]
    features = torch.cat([site.local, site.common], 1)  # of the tests' linear model
    value = entropy(site.local) if score == "entropy" else typicality(features)
    best = [c * 20 + int(r) for c in (0, 1) for r in value[c * 20 :][:20].topk(3).indices]
    assert selected == best


def test_at_random_it_draws_without_looking_at_a_model() -> None:
    nan = torch.full((30, 3), torch.nan, dtype=torch.float64)
    site = replace(site_with([0] * 15 + [1] * 15, [0, 1]), local=nan)
    strategy = OracleHistogram(score="random")
    drawn = [
        simulation({"a": site}, strategy, seed).selected(10)["a"] for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 10
    assert truth(site)[drawn[2]].bincount(minlength=3).tolist() == [5, 5, 0]


def test_rows_without_a_score_have_no_class_and_come_last() -> None:
    site = site_with([0] * 6 + [1] * 2, [0] * 9)
    local = site.local.clone()
    local[6:] = torch.nan  # the two examples of the class that is needed
    selected = simulation({"a": replace(site, local=local)}, OracleHistogram()).selected(7)[
        "a"
    ]
    assert set(selected[:6]) == set(range(6))


# -- simulations only ------------------------------------------------------------------


class Curious:
    """A strategy that reads hidden labels and does not say so."""

    contract = Contract("Curious", "-", 0)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select)
        return memo

    @client.keep("number of selected examples", takes={})
    def select(self, view: View) -> SelectedExamples:
        return SelectedExamples(view.hidden.argsort())


def test_a_strategy_that_does_not_say_so_cannot_read_hidden_labels() -> None:
    with pytest.raises(
        RuntimeError, match="site a provides hidden labels only to a strategy with"
    ):
        simulation(tables(), Curious()).query(3)


def test_a_site_that_does_not_know_the_hidden_labels_says_so() -> None:
    federation = simulation(tables(), OracleHistogram())
    member = federation.members["a"]
    member.parts = replace(member.parts, hidden={})
    with pytest.raises(RuntimeError, match="site a has no labels of its unlabeled pool"):
        federation.query(3)


def test_a_study_gives_hidden_labels_to_this_strategy_alone(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    for name in ("random", "entropy", "ahfal"):
        asked = with_settings(config, {"strategy": name})
        site = build_environment(asked, 0, MemoryStore()).members["site-0"]
        assert site.parts.hidden == {}
    made = build_environment(
        with_settings(config, {"strategy": "oracle-histogram"}), 0, MemoryStore()
    )
    assert made.members["site-0"].parts.hidden == made.oracle.hidden


def test_a_run_says_that_it_is_a_simulation_and_buys_from_the_oracle_as_any_other(
    tmp_path: Path,
) -> None:
    config = with_settings(tiny(tmp_path), {"strategy": "oracle-histogram", "cycles": "1"})
    event_log = EventLog()
    made = build_environment(config, 0, event_log)
    records = ExperimentRun(made, event_log).go()
    shown = {row["function"]: row["description"] for row in records[-1]["revealed"]}
    assert shown["histogram"].startswith("simulation only")
    for name, site in made.members.items():
        assert torch.equal(site.labels, made.oracle.hidden[name][site.labeled])
    assert not Random.contract.simulator_only


def test_every_list_of_methods_says_so() -> None:
    listed = CliRunner().invoke(build_app(), ["algorithms", "--json"]).output
    only = {row["name"] for row in json.loads(listed) if row["simulator_only"]}
    assert only == {"oracle-histogram"}
    assert all(
        what.startswith("simulation only")
        for what in OracleHistogram.contract.disclosures.values()
    )


def test_it_runs_in_double_precision() -> None:
    simulation = fl.Federation(fl.load("iris"), fl.IID(), sites=3)
    run = fl.run(
        simulation,
        strategy=OracleHistogram(),
        training="fedavg",
        model="mlp",
        cycles=1,
        rounds=1,
        dtype="float64",
    )
    assert run.records["accuracy"].notna().all()
