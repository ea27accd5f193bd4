"""Test the example with four hospitals: files of one schema, and a script that labels."""

from __future__ import annotations

import csv
import runpy
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.configs.find import find_config
from fallow.core.load_options import LoadOptions
from fallow.core.streams import stream
from fallow.data import Dataset
from fallow.data.loaders.open import from_table
from fallow.deployment.agreement import Agreement, at_sites
from fallow.deployment.building import build_study
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.schema import Schema, schema_of
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.rows import read_rows, read_tests
from fallow.deployment.study_file import write_agreement
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.privacy.settings import Privacy
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from tests.deployment.simulations import Federation, rows
from tests.each import mark_long

pytest.importorskip("cryptography")
HEART = Path(__file__).parents[2] / "examples" / "heart"


def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Schema]:
    """Write the files of the sites to a folder; return the sites' names and the schema."""
    monkeypatch.setattr("sys.argv", ["make_sites.py", str(folder)])
    runpy.run_path(str(HEART / "make_sites.py"), run_name="__main__")
    sites = sorted(path.stem.removesuffix("-test") for path in folder.glob("*-test.csv"))
    return sites, schema_of(folder / "example.csv", "disease")


def test_the_hospitals_share_columns_and_classes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(data_dir))
    sites, schema = files(tmp_path, monkeypatch)
    assert sites == ["cleveland", "hungarian", "switzerland", "va_long_beach"]
    assert (schema.classes, len(schema.columns)) == (("healthy", "ill"), 13)
    rows = [read_rows(tmp_path / f"{site}.csv", schema) for site in sites]
    assert [len(part.x) for part in rows] == [228, 221, 93, 150]
    assert not any(part.labeled for part in rows)
    tests = [read_tests(tmp_path / f"{site}-test.csv", schema) for site in sites]
    assert sum(len(part.x) for part in [*rows, *tests]) == 920
    assert schema.missing is not None
    n_marks = len(schema.missing.marks)
    empty = sum(int(part.x[:, -n_marks:].sum()) for part in [*rows, *tests])
    assert empty == 1759


def test_without_their_data_four_sites_share_what_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path / "nowhere"))
    sites, schema = files(tmp_path, monkeypatch)
    tests = [read_tests(tmp_path / f"{site}-test.csv", schema) for site in sites]
    assert [len(part.x) for part in tests] == [35, 35, 35, 35]
    config = at_sites(find_config(str(HEART / "settings.toml")), "heart", 4, schema)
    study = build_study(Agreement("heart", config, schema, tuple(sites), b"k" * 32))
    assert config.privacy.secure_sum  # without it, a closed-form classifier is rejected
    assert config.rounds == 1
    weights = study.fresh(stream(0, "init", 0))["w"]
    assert weights.shape == (2 * (128 + 1),)  # number of features, and a bias


def test_the_script_answers_whatever_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path / "nowhere"))
    sites, schema = files(tmp_path / "data", monkeypatch)
    config = at_sites(find_config(str(HEART / "settings.toml")), "heart", 4, schema)
    write_agreement(
        tmp_path / "study.toml", Agreement("heart", config, schema, tuple(sites), b"k" * 32)
    )
    site = SiteFolder.create(
        tmp_path / "east",
        tmp_path / "study.toml",
        name="east",
        data=str(tmp_path / "data" / "east.csv"),
    )
    script: dict[str, Any] = runpy.run_path(str(HEART / "annotate.py"))
    known = script["read_labels"](tmp_path / "data" / "east-answers.csv")
    with closing(site.open_ledger()) as ledger:
        ledger.instructions.begin("run")
        ledger.requests.ask(
            "run",
            "0/query",
            cycle=0,
            allowed=2,
            deadline=None,
            rows=[SelectedRow(5), SelectedRow(3)],
        )
    assert script["label_open_tasks"](site, known) == 2
    with closing(site.open_ledger()) as ledger:
        answers = {
            q.row: schema.words(q.value or 0.0) for q in ledger.tasks(state="answered")
        }
    assert answers == {row: known[site.rows.ids[row]] for row in (5, 3)}
    assert script["label_open_tasks"](site, known) == 0


def hospitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> Federation:
    """Return the sites of the example in one process; settings: overrides of its configuration."""
    names, schema = files(tmp_path / "data", monkeypatch)
    chosen = replace(find_config(str(HEART / "settings.toml")), **settings)
    config = at_sites(chosen, "heart", 4, schema)
    secret = new_signing_key()
    agreed = Agreement("heart", config, schema, tuple(names), verify_key(secret))
    write_agreement(tmp_path / "study.toml", agreed)
    sites = {}
    for name in names:
        sites[name] = SiteFolder.create(
            tmp_path / name,
            tmp_path / "study.toml",
            name=name,
            data=str(tmp_path / "data" / f"{name}.csv"),
            test=str(tmp_path / "data" / f"{name}-test.csv"),
        )
    script: dict[str, Any] = runpy.run_path(str(HEART / "annotate.py"))
    answers = {
        name: script["read_labels"](tmp_path / "data" / f"{name}-answers.csv")
        for name in names
    }

    def annotate(site: str, row: int) -> float:
        return schema.value(answers[site][sites[site].rows.ids[row]])

    return Federation(tmp_path, agreed, rows(), secret, sites, annotate=annotate)


@pytest.mark.long
def test_the_settings_run_at_four_sites_behind_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path / "nowhere"))
    simulation = hospitals(tmp_path, monkeypatch)
    assert simulation.program().go()
    assert [len(labels) for labels in simulation.labels().values()] == [8 + 2 * 6] * 4
    assert simulation.records()[-1]["accuracy"] > 0.8
    simulation.close()


# -- all examples of the four hospitals ----------------------------------------------------

MASKED = Privacy(secure_sum=True, bound=1e9)  # squares of cholesterol are large
TRAINED: dict[str, Any] = {
    "training": Spec("fedavg"),
    "encoder": None,
    "rounds": 2,
    "cycles": 1,
}


def one_table(folder: Path) -> Dataset:
    """Return all hospitals' examples, with labels, as the dataset of a simulation."""
    for part in ("", "-test"):
        lines: list[dict[str, str]] = []
        for file in sorted(folder.glob("*-answers.csv")):
            name = file.name.removesuffix("-answers.csv")
            answers = {line["id"]: line["label"] for line in read_lines(file)}
            for line in read_lines(folder / f"{name}{part}.csv"):
                label = line["disease"] or answers[line["id"]]
                lines.append({**line, "disease": label, "hospital": name})
        with (folder / f"all{part}.csv").open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
    options = LoadOptions(label="disease", site="hospital", id="id")
    return from_table(folder / "all.csv", options, test=folder / "all-test.csv")


def read_lines(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


ENCODED = {**TRAINED, "encoder": Spec("fourier", {"features": 32})}


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    mark_long(
        # sites and simulation sum in a different order in float32
        [
            (TRAINED, 1e-6),
            (ENCODED, 1e-6),
            ({**TRAINED, "privacy": MASKED}, 1e-4),
            ({}, 1e-4),
        ],
        [(TRAINED, 1e-6), (ENCODED, 1e-6), ({**TRAINED, "privacy": MASKED}, 1e-4)],
    ),
    ids=["units", "encoder", "units behind masks", "the example: a head behind masks"],
)
def test_all_920_rows_with_their_empty_cells_give_what_the_simulation_gives(
    settings: dict[str, Any],
    tolerance: float,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(data_dir))
    simulation = hospitals(tmp_path, monkeypatch, **settings)
    agreed = simulation.agreement
    assert simulation.program().go()
    table = one_table(tmp_path / "data")
    assert len(table.x) + len(table.x_test) == 920
    assert (table.columns, table.missing) == (agreed.schema.features, agreed.schema.missing)

    event_log = EventLog()
    simulated = environment_of(agreed.config, agreed.seed, table, event_log)
    run = ExperimentRun(simulated, event_log, folder=tmp_path / "simulated")
    records = run.go()
    labeled = {
        site: sorted(label.row for label in labels)
        for site, labels in simulation.labels().items()
    }
    assert labeled == {
        site: sorted(label.row for label in event_log.load_labels(site)) for site in labeled
    }
    assert all(labeled.values())
    program = simulation.program()
    ours = load_tree(program.run_folder / "model.safetensors", program.run_folder)
    theirs = load_tree(tmp_path / "simulated" / "model.safetensors", tmp_path / "simulated")
    for part in ("state", "scale"):
        assert ours[part].keys() == theirs[part].keys()
        for name, value in ours[part].items():
            torch.testing.assert_close(
                value, theirs[part][name], rtol=tolerance, atol=tolerance
            )
    per_site: Any = records[-1]["per_site"]
    expected = records[-1]["accuracy"]
    if (
        agreed.config.privacy.secure_sum
    ):  # the coordinator knows only the sum over all hospitals
        tests = {
            name: len(site.tests.x) for name, site in simulation.sites.items() if site.tests
        }
        expected = sum(per_site[name] * n for name, n in tests.items()) / sum(
            tests.values()
        )
    assert simulation.records()[-1]["accuracy"] == pytest.approx(expected, abs=1e-9)
    simulation.close()
