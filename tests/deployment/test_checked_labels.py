"""Test checks of suspicious labels: the budget, the ledger, the page, and a study."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from fallow.core.events import Event
from fallow.core.methods import LABEL_RANKS
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.building import build_study
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.label_requests import SelectedRow, TaskLimits
from fallow.deployment.site.feature_space import FeatureSpace
from fallow.deployment.site.labels_io import import_labels, list_labels
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from fallow.training.parts.leave_one_out import leave_each_out, margins
from tests.deployment.agreed import agreed
from tests.deployment.label_queues import HEART, enter, make_queue, table_rows
from tests.deployment.ledgers import RUN, Open, close, values
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.deployment.test_closed_form_killed import EXPERIMENT as CLOSED_FORM
from tests.experiment.crash import start_child, wait_for_child

SCHEMA = replace(HEART, classes=("no", "yes", "unknown"))
CHECK = SelectedRow(2, {"predicted": 0.0, "by": "without"}, is_check=True)


def check(ledger: Ledger, *rows: SelectedRow, cycle: int = 1, **more: Any) -> int:
    return ledger.requests.ask(
        RUN,
        f"{cycle}/query",
        cycle=cycle,
        allowed=4,
        deadline=None,
        rows=rows or (CHECK,),
        **more,
    )


@pytest.fixture
def ledger(open_ledger: Open) -> Ledger:
    """Return a ledger whose rows 4, 2 and 9 have the label 1."""
    ledger = open_ledger()
    for row in (4, 2, 9):
        ledger.answer(row, 1, "ann")
    close(ledger)
    return ledger


# -- the ledger ----------------------------------------------------------------------------


def test_a_check_costs_one_annotation_and_an_expired_one_is_given_back(
    ledger: Ledger,
) -> None:
    assert check(ledger, allowance=TaskLimits(labels=3)) == 0
    close(ledger, "1/query")
    rows = (SelectedRow(7), CHECK, SelectedRow(4, is_check=True))
    assert check(ledger, *rows, cycle=2, allowance=TaskLimits(labels=5)) == 2
    assert (ledger.requests.asked, ledger.requests.shown) == (5, 5)
    assert [task.row for task in ledger.tasks(state="open")] == [7, 2]
    close(ledger, "2/query")
    assert (ledger.requests.asked, ledger.requests.shown) == (3, 5)
    assert values(ledger) == {4: 1.0, 2: 1.0, 9: 1.0}
    assert ledger.newest_tasks()[2].state == "answered"
    assert ledger.answer(2, 0, "ann").cycle == 0  # a correction of the label itself
    assert ledger.requests.find_checkable_rows() == {4, 9}


def test_the_earlier_label_is_seen_only_beside_a_new_one(ledger: Ledger) -> None:
    check(ledger)
    (task,) = ledger.tasks(state="open")
    assert (task.is_check, task.answers, task.value) == (True, (), None)
    task = ledger.answer(2, 1, "ann")
    assert (task.state, task.value) == ("answered", 1.0)
    assert [(answer.annotator, answer.kind) for answer in task.answers] == [
        ("", "earlier"),
        ("ann", "answer"),
    ]
    ledger.take_back("ann")
    assert [task.answers for task in ledger.tasks(state="open")] == [()]
    ledger.answer(2, 1, "bob")
    before = ledger.store.load_labels("north")
    close(ledger, "1/query")
    assert ledger.store.load_labels("north") == before
    assert check(ledger, cycle=2) == 0  # a label is checked once
    assert ledger.measure_agreement().examples == 0
    assert "earlier" not in {line.event for line in ledger.list_history()}
    assert ledger.list_annotators() == ["ann", "bob"]
    lines = list_labels(ledger, SCHEMA, table_rows())
    assert [(line["row"], line["annotator"]) for line in lines if line["row"] == 2] == [
        (2, "ann"),
        (2, "bob"),
    ]


def test_a_file_that_is_older_than_a_check_does_not_answer_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    check(ledger)
    sample = table_rows()
    file = tmp_path / "labels.csv"
    file.write_text(f"id,label\n{sample.ids[2]},{SCHEMA.classes[1]}\n")
    outcome = import_labels(ledger, SCHEMA, sample, file, "ann")
    assert (outcome.recorded, outcome.same, outcome.refused) == (0, 1, ())
    assert [task.row for task in ledger.tasks(state="open")] == [2]
    assert import_labels(ledger, SCHEMA, sample, file, "bob").recorded == 1
    assert ledger.tasks(state="open") == []


@pytest.mark.parametrize("annotator", ["ann", "bob"])
def test_a_label_that_differs_is_decided_and_replaces_the_earlier_one(
    ledger: Ledger, annotator: str
) -> None:
    check(ledger)
    assert ledger.answer(2, 0, annotator).state == "conflict"
    close(ledger, "1/query")
    assert values(ledger) == {4: 1.0, 2: 1.0, 9: 1.0}
    assert ledger.requests.find_excluded_rows() == []
    assert ledger.resolve(2, 0, "cy").state == "answered"
    labels = {label.row: label for label in close(ledger, "2/query")}
    assert labels[2] == Label(2, 0.0, cycle=0)
    assert check(ledger, cycle=3) == 0


def test_a_checked_example_that_nobody_can_label_leaves_the_training(
    ledger: Ledger,
) -> None:
    check(ledger)
    assert ledger.answer(2, None, "ann").state == "conflict"
    assert ledger.resolve(2, None, "ann").state == "declined"
    close(ledger, "1/query")
    assert values(ledger) == {4: 1.0, 9: 1.0}
    assert ledger.requests.find_excluded_rows() == [2]


def test_a_check_survives_a_killed_process(
    ledger: Ledger, open_ledger: Open, tmp_path: Path
) -> None:
    def answer() -> None:
        again = open_ledger()
        check(again)
        again.answer(2, 0, "ann")
        os.kill(os.getpid(), signal.SIGKILL)

    wait_for_child(start_child(answer))
    assert ledger.requests.asked == 4
    (task,) = ledger.tasks(state="conflict")
    assert (task.row, task.is_check) == (2, True)
    assert check(ledger) == 1  # the same step again creates no other task
    assert ledger.requests.asked == 4


def test_a_row_without_a_label_and_one_for_validation_are_not_checked(
    ledger: Ledger,
) -> None:
    ledger.store.write("north", [Label(7, 0.0, cycle=0, is_validation=True)])
    ledger.withdraw(4, "ann")
    assert ledger.requests.find_checkable_rows() == {2, 9}
    assert check(ledger, *(SelectedRow(row, is_check=True) for row in (4, 5, 7, 9))) == 1


# -- the page ------------------------------------------------------------------------------


def test_the_page_asks_again_without_the_earlier_label(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3, 1, 4))
    for row in (3, 1, 4):
        queue.ledger.answer(row, 1.0, "Ann")
    queue.ledger.requests.close(RUN, "0/query", lambda labels: labels)
    checks = [
        SelectedRow(row, {"predicted": 0.0, "by": "without"}, is_check=True)
        for row in (4, 3)
    ]
    check(queue.ledger, SelectedRow(5), *checks)
    ann, bo = enter(queue, "Ann"), enter(queue, "Bo")
    assert "patient-4 patient-3" in ann.get("/suspicious")
    assert "Suspicious labels 2" in ann.text
    assert "patient-1" in ann.get("/mine") and "patient-4" not in ann.text
    assert "Example patient-5" in ann.get()
    ann.send("/answer", value="1")
    assert (
        "Example patient-4" in ann.text
        and "Suspicious label, checked in cycle 1" in ann.text
    )
    assert "The model without this label predicts “healthy”." in ann.text
    assert "You chose" not in ann.text and "Label history" not in ann.text
    assert "The earlier label differs" in ann.send("/answer", value="0")
    assert "Example patient-3" in ann.text
    text = bo.get("/conflicts")
    assert "Earlier label: ill" in text and "Ann chose healthy" in text
    bo.send("/resolve", value="0")
    assert "All done for now" in ann.send("/answer", value="1")
    assert "Earlier label : ill" in ann.get("/sample/3")
    queue.ledger.requests.close(RUN, "1/query", lambda labels: labels)
    labels = {
        label.row: label.value for label in queue.ledger.store.load_labels("cleveland")
    }
    assert labels == {3: 1.0, 1: 1.0, 4: 0.0, 5: 1.0}
    queue.ledger.close()


# -- a study -------------------------------------------------------------------------------

EXPERIMENT = replace(
    CLOSED_FORM, training=Spec("closed-form", {"penalty": 0.01, "reveal": "path"}), cycles=2
)
CHECKS = 2


def rank_again(simulation: Federation) -> dict[str, list[int]]:
    """Return the suspicious labels of each site, by the labels of all sites in one place."""
    sites = {}
    for name in simulation.sites:
        site = FeatureSpace(simulation.sites[name], simulation.ledgers[name])._read_site()
        assert site is not None
        sites[name] = site
    z = torch.cat([torch.as_tensor(site.seen[site.labeled]) for site in sites.values()])
    labels = torch.cat([site.labels for site in sites.values()])
    is_class = bool(simulation.data.classes)
    y = one_hot(labels).double() if is_class else labels[:, None]
    left_out = leave_each_out(z, y, torch.ones(len(z)), 0.01)
    scores = -left_out.away.abs().squeeze(1)
    if is_class:
        scores = margins(left_out.outputs, labels)
    parts = torch.split(scores, [len(site.labeled) for site in sites.values()])
    ranks = {}
    for (name, site), own in zip(sites.items(), parts, strict=True):
        instruction = own.argsort()[: int((own < 0).sum())]
        ranks[name] = site.labeled[instruction].tolist()
    return ranks


@pytest.mark.parametrize("classes", [3, 0])
def test_sites_check_their_suspicious_labels_and_train_on_the_decisions(
    tmp_path: Path, classes: int
) -> None:
    """A fourth of the labels in the files is wrong."""
    data = rows(NAMES[:3], classes=classes)
    is_wrong = torch.arange(len(data.y)) % 4 == 0
    y = data.y + 50 * is_wrong
    if classes:
        y = (data.y + is_wrong) % classes
    wrong = replace(data, y=y.to(data.y.dtype))
    config = EXPERIMENT if classes else replace(EXPERIMENT, strategy=Spec("random"))
    simulation = federation(
        tmp_path,
        config,
        wrong,
        labeled=dict.fromkeys(NAMES[:3], 8),
        plan=AnswerPlan(checked_labels=CHECKS),
    )
    simulation.data = data  # annotators know the right labels
    checked: dict[str, list[int]] = {name: [] for name in simulation.sites}

    def notify(event: Event) -> None:
        simulation.events.append(event)
        if event["event"] != "labels":
            return
        expected = rank_again(simulation)
        for name, ledger in simulation.ledgers.items():
            tasks = ledger.tasks(state="open")
            checks = [task.row for task in tasks if task.is_check]
            if tasks and max(ledger.cycles()) >= 0:
                ranks = ledger.store.load_states(name)[LABEL_RANKS]
                assert ranks["rows"].tolist() == expected[name]
                left = [row for row in expected[name] if row not in checked[name]]
                assert checks == left[:CHECKS] and len(tasks) == 3
            checked[name] += checks
            for task in tasks:
                ledger.answer(task.row, simulation.truth(name, task.row), "Ann")
            for task in ledger.tasks(state="conflict"):
                ledger.resolve(task.row, simulation.truth(name, task.row), "Bob")

    assert simulation.program(notify).go()
    assert simulation.list_events("refused") == []
    n_corrected = 0
    for name, own in checked.items():
        assert len(own) > 1
        ledger = simulation.ledgers[name]
        assert ledger.requests.asked == 4 + 2 * 3
        labels = {label.row: label.value for label in ledger.store.load_labels(name)}
        assert len(labels) == 8 + 4 + 2 * 3 - len(own)
        for row in own:
            assert labels[row] == simulation.truth(name, row)
        n_corrected += sum(row < 8 for row in own)
    assert n_corrected > 0
    simulation.close()


def test_a_study_states_what_checks_need_and_disclose() -> None:
    plan = AnswerPlan(checked_labels=5)
    closed = ("training=closed-form:reveal=path:shown=parts", "model=linear")
    made = build_study(agreed(*closed, plan=plan))
    assert LABEL_RANKS in made.methods["training"].contract.disclosures
    assert (
        LABEL_RANKS
        not in build_study(agreed(*closed)).methods["training"].contract.disclosures
    )
    assert any("up to 5 suspicious labels" in line for line in plan.describe())
    with pytest.raises(ValueError, match=r"checked_labels needs .* training = fedavg"):
        build_study(agreed("training=fedavg", plan=plan))
    with pytest.raises(
        ValueError, match=r"checked_labels is 5, .* evaluation_fraction is 0.1"
    ):
        agreed(*closed, "evaluation_fraction=0.1", plan=plan)
    with pytest.raises(ValueError, match="checked_labels is -1; it must be 0 or more"):
        AnswerPlan(checked_labels=-1)
