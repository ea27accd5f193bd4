"""Studies with several labels per example at real sites."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.multilabel import read_answers, write_answers
from fallow.core.streams import stream
from fallow.data import Dataset
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.labeling_page.forms import value_of
from fallow.deployment.labeling_page.languages import Mistake
from fallow.deployment.schema import Schema, schema_of
from fallow.deployment.site.labels_io import list_labels
from fallow.deployment.site.rows import read_rows
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from tests.deployment.label_queues import HEART, enter, make_queue
from tests.deployment.simulations import NAMES, Federation, federation, rows, schema_for
from tests.deployment.test_closed_form_killed import check

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
    assert "oedema=1;effusion=1" in text and "oedema=1;effusion=0" in text
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
