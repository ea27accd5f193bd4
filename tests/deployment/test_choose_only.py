"""Studies at real sites that select examples and train nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fallow.cli import main
from fallow.core.events import Event
from fallow.data import Dataset
from fallow.data.dataset import DONE
from fallow.deployment.annotators import MODEL
from fallow.deployment.model_card import CARD
from fallow.deployment.schema import Column, Schema, schema_of
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.labels_io import list_open_tasks
from fallow.deployment.site.rows import read_rows
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.deployment.simulations import (
    FEATURES,
    NAMES,
    OPTIONAL,
    Federation,
    check_order,
    federation,
    rows,
)
from tests.deployment.test_closed_form_killed import VICTIM, Killed, answering
from tests.deployment.test_program_resume import read_left
from tests.each import each_of

pytest.importorskip("cryptography")
CHOOSE = ExperimentConfig(
    "choose",
    training=Spec("none"),
    encoder=Spec("identity"),
    strategy=Spec("margin"),
    privacy=Privacy(secure_sum=True),
    standardize="none",
    initial=2,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
)
SCHEMA = Schema(
    "table",
    "classification",
    "y",
    (DONE,),
    tuple(Column(f"x{at}", "mg") for at in range(FEATURES)),
)
PAIR = ("prediction:ill", "prediction:well")


def brought(*columns: str) -> Dataset:
    """Return examples with an uncertainty or probabilities, all of the class "done"."""
    data = rows(NAMES[:3], per_site=12)
    draw = np.random.default_rng(2)
    parts = []
    for part in (data.x, data.x_test):
        share = torch.from_numpy(draw.uniform(size=(len(part), 1)))
        shares = torch.cat([share, 1 - share], dim=1)[:, : len(columns)]
        parts.append(torch.cat([part, shares.to(part)], dim=1))
    return replace(
        data,
        x=parts[0],
        x_test=parts[1],
        y=torch.zeros_like(data.y),
        y_test=torch.zeros_like(data.y_test),
        classes=(DONE,),
        columns=(*data.columns, *columns),
    )


def study(folder: Path, *columns: str, **changes: object) -> Federation:
    config = replace(CHOOSE, **changes)  # type: ignore[arg-type]
    return federation(folder, config, brought(*columns), schema=SCHEMA)


def examples(made: Federation, site: str) -> torch.Tensor:
    data = made.data
    assert data.sites is not None
    return data.x[data.sites == data.site_names.index(site)].double()


def import_masks(folder: Path, names: list[str]) -> None:
    """Draw a mask for each example of the first site, and import them as its users do."""
    masks = folder / "masks"
    masks.mkdir(exist_ok=True)
    for name in names:
        Image.fromarray(np.ones((2, 2), np.uint8)).save(masks / f"{name}.png")
    words = ["site", "import", str(folder / NAMES[0]), str(masks), "--labels", "lesion"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["fallow", *words, "--annotator", "Bo", "--quiet"])
        main()
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A finished study; its first site wrote its last work list to work.csv and drew masks."""
    folder = tmp_path_factory.mktemp("choose")
    made = study(folder, *PAIR)

    def write_work_list(event: Event) -> None:
        if event["event"] == "labels":
            ledger = made.ledgers[NAMES[0]]
            tasks = list_open_tasks(ledger, SCHEMA, made.sites[NAMES[0]].rows)
            if tasks:
                write_lines(folder / "work.csv", tasks)
                import_masks(folder, [str(task["id"]) for task in tasks])
        made.label(event)

    assert made.program(notify=write_work_list).go()
    check_order(made, (*OPTIONAL, "encoder"))  # the encoder computes nothing from data
    yield made
    made.close()


def test_each_site_selects_by_its_own_predictions(finished: Federation) -> None:
    for site, labels in finished.labels().items():
        shares = examples(finished, site)[:, FEATURES:]
        margins = (shares[:, 0] - shares[:, 1]).abs()
        first = [label.row for label in labels if label.cycle == -1]
        margins[first] = 2.0
        chosen = [label.row for label in labels if label.cycle == 0]
        assert sorted(chosen) == sorted(margins.argsort()[:3].tolist())
        assert {label.value for label in labels} == {0.0}


def test_the_score_is_the_distance_over_all_sites(finished: Federation) -> None:
    spread = nearest = 0.0
    for site, labels in finished.labels().items():
        x = examples(finished, site)[:, :FEATURES]
        selected = x[[label.row for label in labels]]
        nearest += float(torch.cdist(x, selected).amin(1).square().sum())
        spread += float((x - x.mean(0)).square().sum())
    last = finished.records()[-1]
    assert last["distance"] == pytest.approx(nearest / spread, rel=1e-6)
    assert last["random_distance"] > 0
    assert last["accuracy"] is None


def test_nothing_about_a_model_leaves_a_site_or_is_written(finished: Federation) -> None:
    sent = {row["function"] for row in finished.records()[-1]["revealed"]}
    assert {"distances", "select"} <= sent
    assert not {"score", "totals", "upload"} & sent
    for site in finished.sites:
        assert not (finished.folder / site / MODEL).exists()
        assert "No model" in (finished.folder / site / CARD).read_text()
    card = (finished.coordinator_folder / CARD).read_text()
    assert "distance to selected examples" in card


def test_the_open_tasks_of_a_site_are_its_work_list(finished: Federation) -> None:
    header, *lines = (finished.folder / "work.csv").read_text().splitlines()
    assert "prediction" not in header
    labels = finished.labels()[NAMES[0]]
    chosen = [str(label.row + 1) for label in labels if label.cycle == 0]
    assert sorted(line.partition(",")[0] for line in lines) == sorted(chosen)


def test_masks_at_a_site_make_its_tasks_done(finished: Federation) -> None:
    tasks = finished.ledgers[NAMES[0]].tasks(cycle=0)
    assert len(tasks) == 3
    assert {answer.annotator for task in tasks for answer in task.answers} == {"Bo"}


@pytest.mark.long
def test_a_site_killed_while_it_selects_and_measures_ends_with_the_same(
    tmp_path: Path,
) -> None:
    fresh = study(tmp_path / "fresh", *PAIR)
    fresh.close()
    whole = fresh.again(tmp_path / "whole")
    assert whole.program(answering(whole)).go()
    whole.close()
    simulation = fresh.again(tmp_path / "killed")
    simulation.ledgers.pop(VICTIM).close()
    killed = Killed(simulation.sites[VICTIM], ("0/train/0/", "0/query/0"))
    simulation.transport.alive[VICTIM] = killed.handle
    with closing(killed):
        assert simulation.program(answering(simulation)).go()
    simulation.close()
    assert read_left(simulation) == read_left(whole)
    assert {"0/train/0/0", "0/train/0/1"} <= set(killed.deaths)  # keys, then sums
    assert min(killed.deaths.values()) >= 4


@each_of(
    "columns, strategy, training, sentence",
    [
        ((), "margin", "none", "margin selects by predictions, and the examples have none"),
        (("uncertainty",), "random", "closed-form", "needs two classes"),
    ],
)
def test_sites_without_fitting_predictions_do_not_start(
    columns: tuple[str, ...],
    strategy: str,
    training: str,
    sentence: str,
    tmp_path: Path,
) -> None:
    changes = {"strategy": Spec(strategy), "training": Spec(training)}
    with pytest.raises(ValueError, match=sentence):
        study(tmp_path / strategy, *columns, **changes)


def test_trained_studies_refuse_predictions_of_a_site(tmp_path: Path) -> None:
    data = replace(brought("uncertainty"), classes=("a", "b"))
    schema = replace(SCHEMA, classes=("a", "b"))
    config = replace(CHOOSE, training=Spec("closed-form"))
    with pytest.raises(ValueError, match="does not read; remove these columns"):
        federation(tmp_path, config, data, schema=schema)


def test_an_example_without_labels_has_the_class_done(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,age,uncertainty\na,1,0.5\nb,2,0.1\nc,7,0.9\n")
    schema = schema_of(file, trains=False)
    assert schema.classes == (DONE,)
    assert [column.name for column in schema.columns] == ["age"]
    read = read_rows(file, schema)
    assert read.predictions is not None
    assert read.predictions[:, 1].tolist() == pytest.approx([0.25, 0.05, 0.45])
    assert read.describe(0) == (("age", "1", ""),)
    with pytest.raises(ValueError, match="no column 'label'"):
        schema_of(file)


def test_arrays_bring_embeddings_with_predictions(tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.savez(file, x=x, predictions=[[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]])
    schema = schema_of(file, trains=False)
    read = read_rows(file, schema)
    assert read.predictions is not None
    assert read.predictions.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]]
    for wrong in ([0.5, 0.5, 0.5], [["a", "b"]] * 3, [[0.5, 0.5]] * 2):
        np.savez(file, x=x, predictions=wrong)
        with pytest.raises(ValueError, match="give the probabilities of each class"):
            read_rows(file, schema)


def test_a_folder_without_labels_of_masks_is_named(
    finished: Federation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = finished.sites[NAMES[0]].path.parent
    words = ["site", "import", str(folder / NAMES[0]), str(folder / "masks")]
    monkeypatch.setattr(sys, "argv", ["fallow", *words])
    with pytest.raises(SystemExit):
        main()
    assert (
        "masks is a folder; for a folder of masks, name their labels"
        in capsys.readouterr().err
    )
