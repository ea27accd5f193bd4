"""Test the minimum number of new labels (``privacy.min_new_labels``). Until a site has this
number, it repeats its former contribution bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.deployment.site.agreement_text import (
    describe_small_budgets,
    describe_study,
    list_disclosures,
)
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import Contribution, Label, MemoryStore
from tests.deployment.loopback import Faults
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.deployment.test_closed_form import CLOSED, add_up, listen
from tests.deployment.test_closed_form_killed import EXPERIMENT, check
from tests.each import mark_long

pytest.importorskip("cryptography")
OPEN = Spec("closed-form", {"shown": "parts"})


def study(
    folder: Path, privacy: Privacy, training: Spec = OPEN, **settings: Any
) -> Federation:
    """Return three hospitals with a closed-form classifier; ``more``: for `federation`."""
    faults = settings.pop("faults", Faults())
    config = ExperimentConfig(
        "hospitals", **{**CLOSED, **settings}, training=training, privacy=privacy
    )
    return federation(folder, config, rows(NAMES[:3], classes=3), faults=faults)


def sent(
    messages: dict[str, dict[str, Any]], site: str, cycles: int
) -> list[dict[str, torch.Tensor]]:
    """Return the contribution of one site in each cycle, without secure aggregation."""
    answers = [messages[f"{cycle}/train/0/0"][site] for cycle in range(cycles)]
    return [
        {name: torch.as_tensor(value) for name, value in answer.items()}
        for answer in answers
    ]


def count_rows(contributions: list[dict[str, torch.Tensor]]) -> list[float]:
    return [float(part["rows"]) for part in contributions]


def check_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(second[name], value), name


def test_each_site_waits_for_new_labels_of_its_own(tmp_path: Path) -> None:
    simulation = study(tmp_path, Privacy(min_new_labels=10), initial=10, budget=4, cycles=4)
    messages = listen(simulation)
    assert simulation.program().go()
    parts = sent(messages, "basel", 5)
    assert count_rows(parts) == [10, 10, 10, 22, 22]
    check_same(parts[0], parts[1])
    check_same(parts[0], parts[2])
    check_same(parts[3], parts[4])
    assert simulation.bought(0) == {
        "basel": 4,
        "chur": 4,
        "davos": 4,
    }  # they are charged to the budget nevertheless
    simulation.close()


@pytest.mark.long
def test_a_site_with_fewer_labels_than_that_contributes_nothing(tmp_path: Path) -> None:
    simulation = study(tmp_path, Privacy(min_new_labels=10), initial=5, budget=4)
    messages = listen(simulation)
    assert simulation.program().go()
    assert count_rows(sent(messages, "basel", 2)) == [0, 0]
    assert not bool(sent(messages, "basel", 1)[0]["features"].any())
    simulation.close()


@pytest.mark.parametrize(
    ("budget", "expected"),
    mark_long([(4, [15, 27, 39]), (3, [15, 15, 33])], [(4, [15, 27, 39])]),
)
def test_with_secure_aggregation_labels_of_all_sites_are_counted(
    budget: int, expected: list[float], tmp_path: Path
) -> None:
    """Twelve new labels of three sites are enough; nine wait for the next cycle."""
    privacy = Privacy(secure_sum=True, min_new_labels=10)
    training = Spec("closed-form")
    simulation = study(tmp_path, privacy, training, budget=budget, cycles=2)
    messages = listen(simulation)
    assert simulation.program().go()
    totals = [add_up(messages[f"{cycle}/train/0/1"]) for cycle in range(3)]
    assert [round(float(total["rows"])) for total in totals] == expected
    counted = add_up(messages["1/train/new/1"])  # by a secure sum, before any contribution
    assert round(float(counted["labels"])) == 3 * budget

    simulated = environment_of(simulation.agreement.config, 0, simulation.data, EventLog())
    theirs = ExperimentRun(simulated, EventLog()).go()
    scores = [record["accuracy"] for record in simulation.records()]
    # here over all test examples together, there the mean over sites
    assert [record["accuracy"] for record in theirs] == pytest.approx(scores, abs=0.01)
    simulation.close()


@pytest.mark.long
def test_lost_messages_and_restarts_give_the_same_bits(tmp_path: Path) -> None:
    privacy = Privacy(secure_sum=True, min_new_labels=10)
    faults = Faults(lost=0.05, twice=0.05, dies_before=0.05, dies_after=0.05)
    contributed = []
    for name, kind in (("calm", Faults()), ("disturbed", faults)):
        simulation = study(
            tmp_path / name,
            privacy,
            Spec("closed-form"),
            budget=3,
            cycles=2,
            faults=kind,
        )
        assert simulation.program().go()
        stores = [simulation.ledgers[site].store for site in sorted(simulation.ledgers)]
        contributed.append(
            (
                [store.load_contribution("").labels for store in stores],
                [record["accuracy"] for record in simulation.records()],
            )
        )
        if kind is faults:
            assert simulation.transport.deaths > 3
        simulation.close()
    assert contributed[0] == contributed[1]
    assert sum(len(labels) for labels in contributed[0][0]) == 33


@pytest.mark.long
def test_a_site_killed_while_it_decides_ends_with_the_same_bits(tmp_path: Path) -> None:
    config = replace(EXPERIMENT, privacy=Privacy(secure_sum=True, min_new_labels=10))
    deaths = check(tmp_path, ("0/train/new", "1/train/new"), config)
    assert {"0/train/new/1", "0/train/new/2", "1/train/new/2"} <= set(deaths)


def test_a_withdrawal_between_two_attempts_at_one_decision_waits() -> None:
    """Otherwise a repeated instruction would contribute all but the withdrawn example."""
    labels = [Label(row, 1.0, -1) for row in range(4)]
    store = MemoryStore(labels={"basel": labels})
    config = ExperimentConfig(
        "hospitals",
        model=Spec("linear"),
        partition=Spec("natural"),
        sites=3,
        privacy=Privacy(secure_sum=True, min_new_labels=2),
    )
    site = environment_of(config, 0, rows(NAMES[:3]), store).members["basel"]
    assert site.count_new_labels() == 4
    site.contribute("0/train/new", 4)
    site.leave([2])
    site.contribute("0/train/new", 4)
    assert store.load_contribution("basel") == Contribution("0/train/new", tuple(labels))
    assert site.count_new_labels() == 0
    site.contribute("1/train/new", 1)
    assert len(store.load_contribution("basel").labels) == 4  # withdrawals wait too
    former = site.as_contributed()
    assert former.labeled.tolist() == [0, 1, 2, 3]
    site.contribute("2/train/new", 2)
    assert [label.row for label in store.load_contribution("basel").labels] == [0, 1, 3]


def test_a_new_run_does_not_forget_what_was_contributed(tmp_path: Path) -> None:
    simulation = study(tmp_path, Privacy(min_new_labels=2))
    store = simulation.ledgers["basel"].store
    labels = (Label(0, 1.0, 0), Label(3, 2.0, 0, 1.5, 0.25, is_validation=True))
    store.run = "first"
    store.contribute("basel", Contribution("2/train/new", labels))
    store.clear()
    store.run = "second"
    assert store.load_contribution("basel") == Contribution("", labels)
    simulation.close()


def test_the_terms_state_the_minimum(tmp_path: Path) -> None:
    simulation = study(tmp_path, Privacy(min_new_labels=7))
    shown = describe_study(simulation.sites["basel"])
    assert any("after 7 new labels of a site" in line for line in shown)
    listed = {
        function: what
        for _, function, what, *_ in list_disclosures(simulation.sites["basel"])
    }
    assert listed["totals"].endswith("; updated after 7 new labels")
    assert "new labels" not in listed["columns"]  # of all examples
    parts = {part for part, *_ in list_disclosures(simulation.sites["basel"])}
    assert "minimum number of new labels" not in parts  # each site counts separately
    simulation.close()


def test_a_study_agreement_has_ten_where_nothing_is_given(tmp_path: Path) -> None:
    from fallow.deployment.agreement import at_sites

    config = ExperimentConfig("a", strategy=Spec("ahfal"))
    real = at_sites(config, "a", 3, study(tmp_path, Privacy()).agreement.schema)
    assert real.privacy.min_new_labels == 10
    assert config.privacy.waits_for == 1
    assert "min_new_labels = 1" in (tmp_path / "study.toml").read_text()


@pytest.mark.parametrize(
    ("least", "secure", "budget", "smallest"),
    [(10, True, 3, 9), (10, True, 4, None), (10, False, 4, 4), (1, False, 4, None)],
)
def test_a_cycle_budget_below_the_minimum_is_stated(
    least: int, secure: bool, budget: int, smallest: int | None, tmp_path: Path
) -> None:
    """`fallow coordinate init` prints a note."""
    privacy = Privacy(secure_sum=secure, min_new_labels=least)
    agreement = study(tmp_path, privacy, budget=budget).agreement
    lines = describe_small_budgets(agreement)
    if smallest is None:
        assert lines == []
    else:
        (line,) = lines
        assert f"is {smallest} labels of" in line
        assert f"privacy.min_new_labels = {least}" in line
