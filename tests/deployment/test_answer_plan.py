"""Test several annotations per example: the plan, the ledger and the rules."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.cli.coordinate_messages import describe_event
from fallow.core.streams import stream
from fallow.deployment.agreement import Agreement
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.ledger.label_requests import SelectedRow, TaskLimits
from fallow.deployment.site.agreement_text import (
    describe_agreement,
    list_agreed_disclosures,
)
from fallow.deployment.site.settings import PageLogin, Settings
from fallow.deployment.study_file import read_agreement, write_agreement
from fallow.report.live import read_live, site_columns
from fallow.report.page import write_report
from fallow.sites.store import Label
from tests.deployment import hosts
from tests.deployment.agreed import TABLE, agreed
from tests.deployment.ledgers import RUN, STEP, Open
from tests.deployment.simulations import NAMES, TINY, tiny
from tests.experiment.crash import start_child, wait_for_child

TWO = AnswerPlan(answers=2)
TENTH = AnswerPlan(double_share=0.1)
NUMBERS = replace(TABLE, task="regression", classes=())

# -- the plan ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan", [AnswerPlan(), TWO, AnswerPlan(5), TENTH, AnswerPlan(double_share=0.37)]
)
def test_a_budget_suffices_for_its_examples_and_for_no_more(plan: AnswerPlan) -> None:
    for budget in range(200):
        examples = plan.count_examples(budget)
        assert plan.count_annotations(examples) <= budget
        assert plan.count_annotations(examples + 1) > budget


def test_a_share_is_annotated_twice_on_average_and_never_beyond_the_budget() -> None:
    drawn = [TENTH.draw_answers(15, stream(seed, "answers")) for seed in range(400)]
    assert {sum(answers) for answers in drawn} == {16, 17}
    second = torch.tensor(drawn).double().mean(0) - 1  # share by position
    assert abs(float(second.mean()) - 0.1) < 0.005
    assert float((second - 0.1).abs().max()) < 5 * (0.1 * 0.9 / 400) ** 0.5
    assert TWO.draw_answers(3, stream(0, "answers")) == [2, 2, 2]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"answers": 0}, "federation.answers is 0; it must be at least 1"),
        ({"double_share": 1.5}, "federation.double_share is 1.5; it must be at least 0"),
        (
            {"answers": 2, "double_share": 0.1},
            "federation.answers is 2 and federation.double_share is 0.1; both set the number",
        ),
        ({"decided_by": "first"}, "is 'first', but every example has a single annotation"),
        (
            {"send_agreement": True},
            "send_agreement is True, but every example has a single",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        AnswerPlan(**wrong)


@pytest.mark.parametrize(
    ("plan", "more", "sentence"),
    [
        (AnswerPlan(2, decided_by="median"), {}, "'median', but the labels are classes"),
        (TWO, {"schema": NUMBERS}, "'majority', but the labels are numbers"),
        (AnswerPlan(25), {}, "20 annotations per site, but an example needs 25"),
    ],
)
def test_a_plan_that_does_not_fit_the_study_is_refused(
    plan: AnswerPlan, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        agreed("initial=20", "budget=20", plan=plan, **more)


def test_the_plan_is_agreed_and_read_again(tmp_path: Path) -> None:
    plan = AnswerPlan(3, decided_by="dawid-skene")
    two = agreed(plan=plan)
    assert len({agreed().digest, agreed(plan=TWO).digest, two.digest}) == 3
    file = tmp_path / "study.toml"
    write_agreement(file, two)
    assert read_agreement(file) == two
    file.write_text(file.read_text().replace("double_share = 0.0", "double_share = 0"))
    assert read_agreement(file).digest == two.digest


def test_a_site_with_too_few_annotators_says_so() -> None:
    def lines(agreement: Agreement, **own: Any) -> str:
        return "\n".join(describe_agreement(agreement, Settings("north", "x.csv", **own)))

    shortage = "this site has 1 annotator, but 2 must annotate an example"
    assert shortage in lines(agreed(plan=TWO)) and shortage in lines(agreed(plan=TENTH))
    assert "two annotations of 10 % of the examples" in lines(agreed(plan=TENTH))
    login = PageLogin(("ann", "bob"), ("127.0.0.1",), "label.example")
    for enough in (
        lines(agreed(plan=TWO), annotators=2),
        lines(agreed(plan=TWO), login=login),
        lines(agreed()),
    ):
        assert "this site has" not in enough
    with pytest.raises(ValueError, match="adjudicators names 'cy', who has no login"):
        Settings("north", "x.csv", adjudicators=("cy",), login=login)


def test_a_study_with_two_annotations_labels_half_as_many_examples(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, plan=TWO, annotators=("Ann", "Bob"))
    assert simulation.program().go()
    assert simulation.list_events("refused") == []
    assert simulation.bought(-1) == dict.fromkeys(NAMES[:3], 2)
    assert simulation.bought(0) == dict.fromkeys(NAMES[:3], 1)
    for ledger in simulation.ledgers.values():
        assert ledger.requests.asked == 2 * 2 + 2 * 1
        assert all(len(ledger.history(task.row)) == 2 for task in ledger.tasks())
    simulation.close()


@pytest.mark.long
def test_alpha_of_ten_examples_is_sent_and_of_fewer_is_not(tmp_path: Path) -> None:
    plan = AnswerPlan(2, send_agreement=True)
    config = replace(TINY, initial=10, budget=10)
    simulation = tiny(tmp_path, config, plan=plan, annotators=("Ann", "Bob"))
    assert simulation.program().go()
    assert simulation.list_events("refused") == []
    first, second = (event["sites"] for event in simulation.list_events("agreement"))
    assert first == dict.fromkeys(NAMES[:3])
    assert second == dict.fromkeys(NAMES[:3], 1.0)
    live = read_live(simulation.coordinator_folder)
    assert live is not None and live["sites"]["basel"]["alpha"] == 1.0
    assert site_columns(live)["Alpha"] == ["1.00"] * 3
    page = write_report([simulation.coordinator_folder]).read_text()
    assert ">Alpha</th>" in page and "a dash below 10 examples" in page
    assert (
        describe_event(simulation.list_events("agreement")[0], simulation.agreement) is None
    )
    sentence = describe_event(simulation.list_events("agreement")[1], simulation.agreement)
    assert sentence is not None and "basel 1.00, chur 1.00, davos 1.00" in sentence
    sent = [line.reveals for line in list_agreed_disclosures(simulation.agreement)]
    assert sum("Krippendorff's alpha" in reveals for reveals in sent) == 1
    other = list_agreed_disclosures(replace(simulation.agreement, plan=TWO))
    assert not any("alpha" in line.reveals for line in other)
    simulation.close()
    with pytest.raises(ValueError, match=r"send_agreement is true, .* without noise"):
        agreed("privacy.epsilon=1.0", plan=plan)


def test_a_site_refuses_a_request_beyond_the_plan(tmp_path: Path) -> None:
    agreement = hosts.agreement("strategy=entropy", plan=TWO)
    leader = hosts.Leader(hosts.folder(tmp_path, agreement, brought=range(6)))
    with pytest.raises(
        RuntimeError, match=r"3 labels .* the agreement allows 1 in 0/query"
    ):
        hosts.order_picks(leader)
    leader.ledger.close()


# -- the ledger ----------------------------------------------------------------------------


def close(ledger: Any, step: str = STEP) -> dict[int, float]:
    """End labeling, and return all labels by row."""
    ledger.requests.close(RUN, step, lambda labels: labels)
    labels: list[Label] = ledger.store.load_labels("north")
    return {label.row: label.value for label in labels}


def test_a_limit_counts_annotations_and_only_missing_ones_are_given_back(
    open_ledger: Open,
) -> None:
    ledger = open_ledger(rows=(4, 2, 9), answers=2, limit=5)
    assert [task.row for task in ledger.tasks()] == [4, 2]
    assert (ledger.requests.asked, ledger.requests.shown) == (4, 4)
    ledger.answer(4, 1, "ann")
    ledger.answer(2, 1, "ann")
    ledger.answer(2, 1, "bob")
    assert close(ledger) == {2: 1.0}
    assert (ledger.requests.asked, ledger.requests.shown) == (3, 4)
    asked = ledger.requests.ask(
        RUN,
        "1/query",
        cycle=1,
        allowed=3,
        deadline=None,
        rows=[SelectedRow(7, answers=2), SelectedRow(8), SelectedRow(9)],
        allowance=TaskLimits(shown=8),
    )
    assert asked == 1


def test_one_annotator_never_counts_twice(open_ledger: Open) -> None:
    ledger = open_ledger(answers=2)
    assert ledger.answer(2, 1, "ann").state == "open"
    assert ledger.answer(2, 1, "ann").state == "open"
    assert ledger.answer(2, 0, "ann").state == "open"  # a correction
    assert ledger.answer(2, 0, "bob").state == "answered"
    ledger.take_back("bob")
    assert [task.row for task in ledger.tasks(state="open")] == [4, 2, 9]


def test_an_annotation_survives_a_killed_process(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger(answers=2)

    def answers() -> None:
        open_ledger(answers=2).answer(2, 1, "ann")
        os.kill(os.getpid(), signal.SIGKILL)

    wait_for_child(start_child(answers))
    assert [task.needed for task in ledger.tasks()] == [2, 2, 2]
    assert ledger.requests.asked == 6
    assert ledger.answer(2, 1, "bob").value == 1.0


LABELS = {"ann": 2.0, "bob": 0.0, "cy": 0.0}


@pytest.mark.parametrize(
    ("rule", "label"), [("majority", 0.0), ("first", 2.0), ("median", 0.0)]
)
def test_a_rule_decides_labels_that_differ(
    open_ledger: Open, rule: str, label: float
) -> None:
    ledger = open_ledger(answers=3, rule=rule)
    for annotator, value in LABELS.items():
        task = ledger.answer(2, value, annotator)
    assert (task.state, task.value) == ("answered", label)
    assert close(ledger) == {2: label}


def test_the_first_annotator_stays_the_first_after_a_correction(open_ledger: Open) -> None:
    ledger = open_ledger(answers=2, rule="first")
    for annotator, value in (("ann", 2), ("bob", 0), ("ann", 1)):
        task = ledger.answer(2, value, annotator)
    assert task.value == 1.0 and close(ledger) == {2: 1.0}


def test_labels_that_no_rule_decides_are_a_conflict(open_ledger: Open) -> None:
    ledger = open_ledger(answers=2)
    ledger.answer(2, 1, "ann")
    assert ledger.answer(2, 0, "bob").state == "conflict"
    assert ledger.answer(2, 0, "cy").state == "answered"
    ledger.answer(4, None, "ann")
    assert ledger.answer(4, 1, "bob").state == "conflict"


def test_a_careless_annotator_is_outvoted_by_a_reliable_one(open_ledger: Open) -> None:
    """Ann and Bob agree, and Cy answers 0 always: where only Ann and Cy answer, Ann counts."""
    rows = tuple(range(12))
    ledger = open_ledger(rows=rows, answers=2, rule="dawid-skene")
    for row in rows:
        ledger.answer(row, row % 3, "ann")
        ledger.answer(row, 0, "cy")
        if row < 9:
            ledger.answer(row, row % 3, "bob")
    assert [task.state for task in ledger.tasks()] == 12 * ["answered"]
    assert ledger.tasks()[1].value is None
    assert close(ledger) == {row: float(row % 3) for row in rows}


def test_a_tie_of_the_estimate_is_adjudicated(open_ledger: Open) -> None:
    ledger = open_ledger(answers=2, rule="dawid-skene")
    ledger.answer(2, 1, "ann")
    ledger.answer(2, 0, "bob")
    assert close(ledger) == {}
    assert [task.row for task in ledger.tasks(state="conflict")] == [2]
    ledger.resolve(2, 1, "cy")
    assert close(ledger, "1/query") == {2: 1.0}
