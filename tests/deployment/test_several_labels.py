"""Studies with several labels per example at real sites."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.core.multilabel import read_answers, write_answers
from fallow.core.streams import stream
from fallow.data import Dataset
from fallow.deployment.answer_plan import AnswerPlan, Rule
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.forms import value_of
from fallow.deployment.labeling_page.languages import Mistake
from fallow.deployment.ledger.labeling_tasks import LabelAnswer, decide_state
from fallow.deployment.schema import Schema, schema_of
from fallow.deployment.site.labels_io import import_labels, list_labels
from fallow.deployment.site.rows import read_rows
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from tests.deployment.label_queues import HEART, close, enter, make_queue
from tests.deployment.simulations import NAMES, Federation, federation, rows, schema_for
from tests.deployment.test_closed_form_killed import check
from tests.deployment.test_program_cli import RunCommand, fallow  # noqa: F401 - a fixture

pytest.importorskip("cryptography")
LABELS = ("oedema", "effusion")
CONFIG = ExperimentConfig(
    "findings",
    model=Spec("linear"),
    training=Spec("closed-form"),
    encoder=Spec("identity"),
    strategy=Spec("margin", {"over": "max"}),
    privacy=Privacy(secure_sum=True, sums="exact"),
    metrics=("auroc",),
    initial=4,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
    dtype="float64",
)


def findings() -> Dataset:
    """Return examples at three sites, some of whose answers are unknown."""
    data = rows(NAMES[:3])
    draw = stream(4, "answers")
    slope = torch.randn(data.x.shape[1], len(LABELS), generator=draw)
    numbers = []
    for x in (data.x, data.x_test):
        answers = (x @ slope + torch.randn(len(x), 2, generator=draw) > 0).double()
        is_unknown = torch.rand(len(x), generator=draw) < 0.2
        answers[is_unknown, 1] = torch.nan
        numbers.append(write_answers(answers))
    return replace(data, y=numbers[0], y_test=numbers[1], classes=(), labels=LABELS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = federation(tmp_path_factory.mktemp("findings"), CONFIG, findings())
    assert made.program().go()
    yield made
    made.close()


@pytest.mark.long
def test_real_sites_select_train_and_score_as_a_simulation(
    finished: Federation, tmp_path: Path
) -> None:
    config = replace(
        CONFIG,
        training=Spec("closed-form-labels"),
        data="hospitals",
        partition=Spec("natural"),
        sites=3,
        test="own",
    )
    data = replace(finished.data, name="hospitals")
    simulation = environment_of(config, 0, data, EventLog())
    ExperimentRun(simulation, EventLog(), folder=tmp_path).go()
    for site, labels in finished.labels().items():
        bought = simulation.members[site].bought.nonzero().squeeze(1).tolist()
        assert sorted(label.row for label in labels) == bought
        assert {label.value for label in labels} <= {float(y) for y in data.y.tolist()}
    records = finished.records()
    assert finished.agreement.config.training == Spec("closed-form-labels")
    assert records[-1]["accuracy"] > 0.6
    assert len(records[-1]["per_class"]) == 2
    model = load_tree(finished.folder / NAMES[0] / "model.safetensors", finished.folder)
    expected = load_tree(tmp_path / "model.safetensors", tmp_path)
    assert torch.allclose(model["state"]["w"], expected["state"]["w"], rtol=1e-4)
    assert model["example_spec"]["labels"] == list(LABELS)


@pytest.mark.long
def test_labels_are_exported_as_lists(finished: Federation) -> None:
    site = NAMES[0]
    folder = finished.sites[site]
    lines = list_labels(finished.ledgers[site], folder.agreement.schema, folder.rows)
    words = {line["label"] for line in lines}
    assert words <= {
        *("oedema=0", "oedema=1"),
        *(f"oedema={a};effusion={b}" for a in (0, 1) for b in (0, 1)),
    }
    tasks = finished.ledgers[site].tasks()
    guesses = [task.reasons["predicted"] for task in tasks if "predicted" in task.reasons]
    assert len(guesses) == CONFIG.budget
    assert all(0 <= guess < 8 for guess in guesses)
    card = (folder.path / "model-card.md").read_text(encoding="utf-8")
    assert "each of oedema, effusion" in card


def test_a_table_has_a_column_of_lists_or_one_of_each_label(tmp_path: Path) -> None:
    schema = schema_for(findings())
    names = [column.name for column in schema.columns]
    numbers = ",".join(["1.5"] * len(names))
    lists = ["oedema", "none", "", "oedema=0;effusion=1", "effusion,oedema"]
    file = tmp_path / "rows.csv"
    quoted = [f'{numbers},"{text}"' for text in lists]
    file.write_text("\n".join([",".join([*names, "y"]), *quoted]))
    expected = [1, 0, None, 3, 4]
    assert list(read_rows(file, schema).labels) == expected
    cells = ["1,0", "0,0", ",", "0,1", "1,1.0"]
    lines = [f"{numbers},{cell}" for cell in cells]
    file.write_text("\n".join([",".join([*names, *LABELS]), *lines]))
    assert list(read_rows(file, schema).labels) == expected
    inferred = schema_of(file, options=replace(ExperimentConfig("a"), labels=LABELS))
    assert inferred.labels == LABELS
    assert inferred.task == "multilabel"
    assert [column.name for column in inferred.columns] == names
    file.write_text("\n".join([",".join([*names, *LABELS]), f"{numbers},1,perhaps"]))
    with pytest.raises(ValueError, match=r"row 1: 'oedema=1;effusion=perhaps' is no list"):
        read_rows(file, schema)


WRONG_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"labels": ()}, "schema.labels is .* and the task is multilabel; give both"),
    ({"labels": ("a", "a")}, "the label 'a' is named twice"),
    ({"labels": ("a;b", "c")}, "cannot be the name of a label"),
    ({"task": "regression"}, "and the task is regression; give both"),
    ({"classes": ("a", "b")}, "schema.classes is given and the task is multilabel"),
    ({"labels": ("x0", "c")}, "'x0' is the name of two columns"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG_SCHEMAS)
def test_a_schema_names_possible_labels(change: dict[str, Any], sentence: str) -> None:
    schema = schema_for(findings())
    with pytest.raises(ValueError, match=sentence):
        replace(schema, **change)


def test_the_digest_of_a_schema_without_several_labels_is_unchanged() -> None:
    assert Schema("arrays", "regression", shape=(2,)).digest == (
        "12c6e1455a5ba654c6d9baae38e21b15"
    )


def test_a_form_has_an_answer_to_each_label() -> None:
    schema = schema_for(findings())
    form = {"answer-0": "1", "answer-1": "2"}
    assert value_of(form, schema) == 7.0
    assert read_answers(torch.tensor(7), 2).nan_to_num(9).tolist() == [1, 9]
    assert value_of({"value": "oedema=0;effusion=1"}, schema) == 3.0
    assert value_of({"cannot": "yes"}, schema) is None
    for wrong in (
        {"answer-0": "1"},
        {"answer-0": "2", "answer-1": "2"},
        {"answer-0": "3", "answer-1": "0"},
        {"answer-0": "1;effusion=1", "answer-1": "2"},
        {"value": ""},
        {"value": "oedema=1;rare=1"},
        {"value": "oedema=1" * 500},
    ):
        with pytest.raises(Mistake):
            value_of(wrong, schema)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"training": Spec("scaffold")}, "training scaffold does not support several labels"),
    ({"strategy": Spec("badge")}, "badge does not support several labels"),
    ({"coverage": 0.9}, "coverage is 0.9, which does not support several labels"),
    ({"validation": 0.2}, "validation is 0.2, which does not support several labels"),
    ({"evaluation_fraction": 0.5}, "evaluation_fraction=0.5 does not support several"),
]


@pytest.mark.parametrize(("change", "sentence"), REFUSED)
def test_a_site_refuses_what_does_not_support_several_labels(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        federation(tmp_path, replace(CONFIG, **change), findings())


def test_the_page_has_an_answer_to_each_label(tmp_path: Path) -> None:
    schema = replace(HEART, task="multilabel", classes=(), labels=LABELS)
    queue = make_queue(tmp_path, schema=schema)
    browser = enter(queue)
    text = browser.get()
    assert "1 oedema no yes unknown 2 effusion no yes unknown Save" in text
    assert browser.shown.text.count("checked") == 2
    answers = {"answer-0": "1", "answer-1": "2"}
    text = browser.send("/answer", **answers)
    assert "Saved: “oedema=1” for example “patient-3”" in text
    (answer,) = queue.ledger.history(3)
    assert answer.value == 7.0
    browser.get("/sample/3")
    shown = re.findall(r'name="answer-\d" value="(\d)" checked', browser.shown.text)
    assert shown == ["1", "2"]
    browser.send("/answer", **answers | {"answer-0": "9"})
    assert "not an answer" in browser.text
    assert [answer.value for answer in queue.ledger.history(3)] == [7.0]


def test_annotators_with_different_answers_disagree_until_one_decides(
    tmp_path: Path,
) -> None:
    schema = replace(HEART, task="multilabel", classes=(), labels=LABELS)
    queue = make_queue(tmp_path, schema=schema, answers=2)
    queue.ledger.answer(3, 4.0, "Ann")
    queue.ledger.answer(3, 1.0, "Bo")
    browser = enter(queue, "Cy")
    text = browser.get("/conflicts")
    assert "oedema=1; effusion=1" in text and "oedema=1; effusion=0" in text
    browser.send("/resolve", value="oedema=1;effusion=0")
    (task,) = [task for task in queue.ledger.tasks() if task.row == 3]
    assert task.state == "answered"


@pytest.mark.parametrize("rule", ["median", "dawid-skene"])
def test_a_rule_for_classes_or_numbers_is_refused(rule: Any) -> None:
    plan = AnswerPlan(answers=2, decided_by=rule)
    with pytest.raises(ValueError, match="does not support several labels"):
        plan.check_study(CONFIG, 0, n_labels=2, is_trained=True)
    AnswerPlan(answers=2).check_study(CONFIG, 0, n_labels=2, is_trained=True)


@pytest.mark.long
def test_a_site_that_is_killed_at_each_step_ends_with_the_same_bits(tmp_path: Path) -> None:
    config = replace(CONFIG, encoder=Spec("fourier", {"features": 8}))
    deaths = check(tmp_path, ("0/train/0/", "0/query/0"), config, findings())
    assert sum(deaths.values()) >= 5


def test_a_file_of_labels_has_words_and_at_least_one_answer(tmp_path: Path) -> None:
    schema = replace(HEART, task="multilabel", classes=(), labels=LABELS)
    queue = make_queue(tmp_path, schema=schema)
    file = tmp_path / "labels.csv"
    file.write_text(
        "id,label\npatient-3,oedema=yes;effusion=no\npatient-1,oedema=-1\npatient-4,NA\n"
    )
    taken = import_labels(queue.ledger, schema, queue.rows, file, "Ann", partial=True)
    assert taken.recorded == 1
    assert [line.partition(";")[0] for line in taken.refused] == [
        "line 3: label 'oedema=-1' answers none of oedema, effusion",
        "line 4: label 'NA' answers none of oedema, effusion",
    ]
    assert [answer.value for answer in queue.ledger.history(3)] == [1.0]


@pytest.mark.parametrize("command", ["export", "import", "sync"])
def test_labeling_tools_are_refused_in_a_sentence(
    tmp_path: Path,
    fallow: RunCommand,  # noqa: F811 - a fixture
    command: str,
) -> None:
    made = federation(tmp_path, CONFIG, findings())
    words = ["site", command, str(tmp_path / NAMES[0])]
    if command != "sync":
        (tmp_path / "labels.json").write_text("[]")
        words.append("labels.json")
    code, _, refused = fallow(*words, "--tool", "label-studio")
    assert code != 0
    assert "labeling tools exchange one label of an example" in " ".join(refused.split())
    made.close()


# -- annotators disagree on a label ---------------------------------------------------------------

BOTH, FIRST, NEITHER = 4.0, 1.0, 0.0  # oedema and effusion, oedema alone
FIRST_ONLY = 7.0  # oedema, and effusion unknown
SECOND_ONLY = 5.0  # effusion, and oedema unknown
DECISIONS: list[tuple[list[float | None], Rule, tuple[str, float | None]]] = [
    ([BOTH, BOTH], "majority", ("answered", BOTH)),
    ([BOTH, FIRST], "majority", ("conflict", None)),
    ([BOTH, FIRST], "first", ("answered", BOTH)),
    ([BOTH, FIRST, SECOND_ONLY], "majority", ("answered", BOTH)),
    ([NEITHER, FIRST, BOTH], "majority", ("answered", FIRST)),
    ([FIRST_ONLY, SECOND_ONLY], "majority", ("answered", BOTH)),
    ([FIRST_ONLY, FIRST_ONLY], "majority", ("answered", FIRST_ONLY)),
    ([FIRST_ONLY, BOTH], "first", ("answered", BOTH)),
    ([BOTH, None], "majority", ("conflict", None)),
    ([None, None, BOTH], "majority", ("declined", None)),
    ([None, BOTH, BOTH], "majority", ("answered", BOTH)),
    ([None, BOTH, BOTH], "first", ("declined", None)),
    ([BOTH, None], "first", ("answered", BOTH)),
]


@pytest.mark.parametrize(("values", "rule", "expected"), DECISIONS)
def test_each_label_is_decided_by_itself(
    values: list[float | None], rule: Rule, expected: tuple[str, float | None]
) -> None:
    answers = [LabelAnswer(f"ann-{at}", value, "") for at, value in enumerate(values)]
    assert decide_state(answers, len(answers), rule, len(LABELS)) == expected


def test_a_second_opinion_that_was_not_planned_is_a_conflict_only_on_known_answers() -> (
    None
):
    first = LabelAnswer("ann", FIRST_ONLY, "")
    for value, expected in ((BOTH, ("answered", BOTH)), (NEITHER, ("conflict", None))):
        answers = [first, LabelAnswer("bob", value, "")]
        assert decide_state(answers, 1, n_labels=2) == expected
    decided = [LabelAnswer("cy", BOTH, "", "resolved"), LabelAnswer("bob", FIRST, "")]
    assert decide_state(decided, 3, n_labels=2) == ("conflict", None)


def read_by_two(folder: Path) -> LabelQueue:
    """Return a queue of two labels of which two annotators read each example."""
    schema = replace(HEART, task="multilabel", classes=(), labels=LABELS)
    return make_queue(folder, schema=schema, asked=tuple(range(12)), answers=2)


def test_agreement_is_that_of_each_label(tmp_path: Path) -> None:
    krippendorff = pytest.importorskip("krippendorff")
    queue = read_by_two(tmp_path)
    draw = np.random.default_rng(5)
    answers = draw.choice([0.0, 1.0, np.nan], (2, 12, 2), p=(0.4, 0.5, 0.1))
    answers[:, :, 0] = np.where(draw.random((2, 12)) < 0.8, answers[:1, :, 0], 1.0)
    numbers = write_answers(torch.from_numpy(answers).flatten(0, 1)).view(2, 12).tolist()
    for row in range(12):
        for name, value in zip(
            ("Ann", "Bo"), (numbers[0][row], numbers[1][row]), strict=True
        ):
            if value >= 0:
                queue.ledger.answer(row, value, name)
    agreement = queue.ledger.measure_agreement()
    expected = {
        label: krippendorff.alpha(answers[:, :, at], level_of_measurement="nominal")
        for at, label in enumerate(LABELS)
    }
    assert agreement.by_label == pytest.approx(expected, abs=1e-10)
    assert agreement.alpha == pytest.approx(sum(expected.values()) / 2)
    has_both = (~np.isnan(answers)).all(0).any(1)
    assert agreement.examples == has_both.sum()
    (sentence,) = agreement.describe()
    assert f"oedema {expected['oedema']:.2f}" in sentence
    text = enter(queue).get("/conflicts")
    assert f"oedema {expected['oedema']:.2f}, effusion {expected['effusion']:.2f}" in text


def test_a_conflict_is_decided_for_the_labels_that_differ(tmp_path: Path) -> None:
    queue = read_by_two(tmp_path)
    queue.ledger.answer(3, BOTH, "Ann")
    queue.ledger.answer(3, FIRST, "Bo")
    queue.ledger.answer(4, FIRST_ONLY, "Ann")
    queue.ledger.answer(4, SECOND_ONLY, "Bo")
    task = queue.task(4)
    assert task is not None and (task.state, task.value) == ("answered", BOTH)
    browser = enter(queue)
    text = browser.get("/conflicts")
    assert "oedema no yes unknown effusion annotators disagree no yes unknown" in text
    html = browser.shown.text
    assert 'name="answer-0" value="1" checked required' in html
    assert not re.search(r'name="answer-1" value="\d" checked', html)
    assert "the form has no field 'answer-1'" in browser.send(
        "/resolve", **{"answer-0": "1"}
    )
    browser.get("/conflicts")
    decided = browser.send("/resolve", **{"answer-0": "1", "answer-1": "0"})
    assert "Decided: “oedema=1; effusion=0” for example “patient-3”" in decided
    assert queue.ledger.count("conflict") == 0
    close(queue.ledger)
    labels = {one.row: one.value for one in queue.ledger.store.load_labels("cleveland")}
    assert labels == {3: FIRST, 4: BOTH}
