"""Test the results of a finished study: page, records, model, cards and state."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import onnxruntime
import pytest
from typer.testing import CliRunner

import fallow as fl
from fallow.cli.app import build_app
from fallow.deployment.model_card import CARD, INTENDED
from fallow.deployment.monitoring import watch
from fallow.deployment.site.predict import predict_at
from fallow.experiment.predict import predict_with
from fallow.experiment.trained import choose_state
from fallow.report.live import read_live
from fallow.report.page import write_report
from fallow.storage.errors import StorageError
from fallow.storage.files import load_tree
from fallow.study.trained import predict_file
from tests.deployment.simulations import NAMES, Federation, tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Run an undisturbed study, including its page."""
    simulation = tiny(tmp_path_factory.mktemp("finished"))
    assert simulation.program(pages=True).go()
    return simulation


@pytest.mark.long
def test_a_finished_study_is_a_study_like_any_other(
    finished: Federation, tmp_path: Path
) -> None:
    first, last = finished.records()
    assert (first["labeled"], last["labeled"]) == (12, 21)
    assert last["labeled_per_site"] == {site: [7] for site in NAMES[:3]}
    assert last["labeled_per_class"] is None  # the coordinator does not receive it
    assert set(last["per_site"]) == set(NAMES[:3])
    assert 0 < last["accuracy"] <= 1
    page = write_report([finished.coordinator_folder], tmp_path / "page.html").read_text()
    assert "What left each site" in page
    rows_file = next(finished.folder.glob("basel-test.csv"))
    n = predict_file(
        finished.coordinator_folder, rows_file, out=tmp_path / "predicted.csv"
    ).rows
    assert n == int((finished.data.sites_test == 0).sum())  # type: ignore[union-attr]


def test_a_site_predicts_with_its_own_copy_of_the_model(
    finished: Federation, tmp_path: Path
) -> None:
    rows_file = next(finished.folder.glob("basel-test.csv"))
    ours = tmp_path / "ours.csv"
    theirs = tmp_path / "theirs.csv"
    count = predict_at(finished.folder / "basel", rows_file, ours)[1]
    assert count == predict_file(finished.coordinator_folder, rows_file, out=theirs)[1]
    assert ours.read_text() == theirs.read_text()


@pytest.mark.long
def test_a_sites_model_is_loaded_exported_and_cited(
    finished: Federation, tmp_path: Path
) -> None:
    folder = finished.folder / "basel"
    loaded = fl.load_model(folder)
    x = finished.data.x_test
    file = loaded.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(file)
    (probabilities,) = session.run(None, {"examples": x.float().numpy()})
    assert abs(probabilities - loaded.predict_proba(x)).max() < 1e-5
    from_coordinator = fl.load_model(finished.coordinator_folder)
    assert (from_coordinator.predict_proba(x) == loaded.predict_proba(x)).all()
    command = ["export-model", str(folder), "--onnx", str(tmp_path / "again.onnx")]
    assert CliRunner().invoke(build_app(), command).exit_code == 0
    assert (tmp_path / "again.onnx").read_bytes() == file.read_bytes()
    for selection in (["--seed", "0"], ["--strategy", "random"], ["--site", "basel"]):
        refused = CliRunner().invoke(build_app(), [*command, *selection])
        assert "basel is a site, which has one model" in str(refused.exception)
    for folder_or_file in (folder, finished.coordinator_folder):
        cited = CliRunner().invoke(build_app(), ["cite", str(folder_or_file)])
        assert "@software{fallow," in cited.output


def test_predictions_have_the_studys_ids_and_a_probability_of_each_class(
    finished: Federation, tmp_path: Path
) -> None:
    rows_file = next(finished.folder.glob("basel-test.csv"))
    lines = rows_file.read_text().splitlines()
    named = tmp_path / "named.csv"
    heads = [f"patient,{lines[0]}"]
    heads += [f"p{n},{line}" for n, line in enumerate(lines[1:])]
    named.write_text("\n".join(heads) + "\n")
    model = finished.folder / "basel" / "model.safetensors"
    saved = load_tree(model, finished.folder)
    assert saved["example_spec"]["ids"] == finished.agreement.schema.ids
    agreed = finished.agreement.config
    saved["example_spec"]["ids"] = "patient"
    model_of_study = choose_state(saved, agreed, finished.folder)
    path = predict_with(model_of_study, named).path
    first, *others = list(csv.DictReader(path.read_text().splitlines()))
    classes = finished.agreement.schema.classes
    columns = [f"probability:{name}" for name in classes]
    assert list(first) == ["patient", "prediction", "probability", *columns]
    assert first["patient"] == "p0" and others[0]["patient"] == "p1"
    for row in (first, *others):
        shares = [float(row[column]) for column in columns]
        assert abs(sum(shares) - 1) < 1e-5
        assert classes[shares.index(max(shares))] == row["prediction"]
        assert row["probability"] == row[f"probability:{row['prediction']}"]


@pytest.mark.parametrize(
    ("decimal", "same"), [(None, "7215"), (",", "7.215"), (".", "7215")]
)
def test_ambiguous_numbers_have_the_mark_of_the_site(
    decimal: str | None, same: str, finished: Federation, tmp_path: Path
) -> None:
    """The mark of site.toml, or else that of the data, whose numbers have a point."""
    site = tmp_path / "basel"
    shutil.copytree(finished.folder / "basel", site)
    settings = (site / "site.toml").read_text()
    if decimal is not None:
        settings = settings.replace('# decimal = ","', f"decimal = '{decimal}'")
        assert "\ndecimal" in settings
    (site / "site.toml").write_text(settings)
    names = finished.data.columns
    for file, separator, cell in (("new.csv", ";", "7,215"), ("plain.csv", ",", same)):
        lines = [separator.join(names), separator.join([cell] * len(names))]
        (tmp_path / file).write_text("\n".join(lines) + "\n")
    ours = predict_at(site, tmp_path / "new.csv").path.read_text()
    plain = tmp_path / "expected.csv"
    predict_file(finished.coordinator_folder, tmp_path / "plain.csv", out=plain)
    assert ours == plain.read_text()


def test_before_the_end_a_site_has_no_model_to_predict_with(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    with pytest.raises(
        StorageError, match="basel has no model: it is sent at the end of the study"
    ):
        predict_at(simulation.folder / "basel", tmp_path / "rows.csv")


def test_what_people_told_is_among_what_left_each_site(finished: Federation) -> None:
    left = {(row["kind"], row["function"]) for row in finished.records()[-1]["revealed"]}
    assert {
        ("each", "hello"),
        ("each", "ask"),
        ("each", "close"),
        ("each", "score"),
    } <= left


def test_the_page_of_a_finished_study_stands_still(finished: Federation) -> None:
    page = (finished.coordinator_folder / "report.html").read_text()
    assert "The run is finished." in page
    assert 'http-equiv="refresh"' not in page
    for site in NAMES[:3]:
        assert site in page


def test_the_page_of_an_open_study_looks_again(
    finished: Federation, tmp_path: Path
) -> None:
    live = read_live(finished.coordinator_folder)
    copy = tmp_path / "open"
    copy.mkdir()
    (copy / "study.json").write_bytes(
        (finished.coordinator_folder / "study.json").read_bytes()
    )
    (copy / "live.json").write_text(json.dumps({**(live or {}), "state": "running"}))
    page = write_report([copy]).read_text()
    assert '<meta http-equiv="refresh" content="30">' in page
    assert "The run is in progress." in page


def test_a_finished_study_is_left_as_it_is(finished: Federation) -> None:
    before = (finished.coordinator_folder / CARD).read_bytes()
    sent = len(finished.transport.delivered)
    assert finished.program().go()
    assert (finished.coordinator_folder / CARD).read_bytes() == before
    assert len(finished.transport.delivered) == sent


def test_a_site_is_well_after_the_end_without_a_process(
    finished: Federation, tmp_path: Path
) -> None:
    site = finished.folder / "basel"
    health = watch(site).check()
    assert health.is_well
    assert health.reason == f"study {finished.agreement.name} has ended at site basel"
    done = CliRunner().invoke(build_app(), ["monitor", str(site), "--check"])
    assert done.exit_code == 0
    ended = tiny(tmp_path)
    assert not watch(ended.folder / "basel").check().is_well


def test_after_the_end_labels_are_exported(finished: Federation, tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    site = finished.folder / "basel"
    done = CliRunner().invoke(build_app(), ["site", "export", str(site), str(out)])
    assert done.exit_code == 0 and f"Wrote 7 labels to {out}" in done.output.replace(
        "\n", ""
    )
    lines = list(csv.DictReader(out.read_text().splitlines()))
    schema = finished.agreement.schema
    for line in lines:
        assert schema.value(line["label"]) == finished.truth("basel", int(line["row"]))


def test_the_card_says_what_the_model_was_trained_on(finished: Federation) -> None:
    card = (finished.coordinator_folder / CARD).read_text()
    for fact in (
        INTENDED,
        "Labels of basel: 7",
        "entropy",
        "- Sums are exact: no guarantee; published attacks",
        "of davos:",
    ):
        assert fact in card
    for site in NAMES[:3]:
        assert INTENDED in (finished.folder / site / CARD).read_text()
        assert (finished.folder / site / "model.safetensors").exists()


def test_the_card_of_a_site_says_how_the_model_does_on_its_own_rows(
    finished: Federation, tmp_path: Path
) -> None:
    rows_file = next(finished.folder.glob("basel-test.csv"))
    path, n, *_ = predict_at(finished.folder / "basel", rows_file, tmp_path / "said.csv")
    output = [line.split(",")[1] for line in path.read_text().splitlines()[1:]]
    lines = [line.split(",") for line in rows_file.read_text().splitlines()]
    at = lines[0].index(finished.agreement.schema.label)
    right = sum(a == line[at] for a, line in zip(output, lines[1:], strict=True)) / n
    card = (finished.folder / "basel" / CARD).read_text()
    assert f"- accuracy on the {n} test examples of basel: {right:.4g}" in card


def test_the_live_state_names_every_site(finished: Federation) -> None:
    live = read_live(finished.coordinator_folder)
    assert live is not None
    assert live["state"] == "finished"
    for site in live["sites"].values():
        assert (site["rows"] or 0) >= 16
        assert site["awaited"] is None
        assert site["labels"] == {
            "asked": 3,
            "answered": 3,
            "declined": 0,
            "open": 0,
            "conflicts": 0,
        }
