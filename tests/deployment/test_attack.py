"""A site attacks its own contribution: rows are read from exact sums, none from noise."""

from __future__ import annotations

import csv
import os
import stat
from dataclasses import replace
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest
from typer.testing import CliRunner

from fallow.cli.app import build_app
from fallow.cli.site_messages import list_examples
from fallow.core.events import Event
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.agreement_text import describe_planned
from fallow.deployment.site.attack import (
    LABELS,
    AttackedSite,
    advise,
    attack_site,
    describe_cells,
    list_sent_sums,
    restore_label,
    write_examples,
)
from fallow.deployment.site.status import collect_status
from fallow.measurements.meter import describe_exposure
from fallow.measurements.results import AttackResult
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import Label
from tests.deployment.label_queues import make_queue
from tests.deployment.simulations import NAMES, Federation, federation, rows

SETTINGS: dict[str, Any] = {
    "model": Spec("linear"),
    "training": Spec("closed-form", {"unlabeled": "off"}),
    "encoder": Spec("fourier", {"features": 32}),
    "strategy": Spec("random"),
    "privacy": Privacy(secure_sum=True),
    "initial": 5,
    "budget": 4,
    "rounds": 1,
    "score_rounds": 1,
    "cycles": 1,
    "dtype": "float64",
}


def study(folder: Path, **changed: Any) -> Federation:
    """Return a federation of three sites whose study has ended."""
    config = ExperimentConfig("hospitals", **{**SETTINGS, **changed})
    simulation = federation(folder, config, rows(NAMES[:3], classes=3))
    assert simulation.program().go()
    return simulation


def attack(simulation: Federation, seconds: float = 20) -> AttackedSite:
    return attack_site(simulation.sites["basel"], lambda name, read, rows: None, seconds)


def test_a_site_reads_its_examples_from_masked_exact_sums(tmp_path: Path) -> None:
    simulation = study(tmp_path)
    attacked = attack(simulation)
    by_name = {result["attack"]: result for result in attacked.attacks}
    assert by_name["first products"]["read"] == by_name["first products"]["rows"] == 5
    assert by_name["last products"]["read"] == by_name["last products"]["rows"] == 9
    model = by_name["model alone"]
    assert model["numbers"] == 2 * 32 < model["unknowns"] == 3 * 9 * (5 + 2)
    assert sum(example.is_read for example in attacked.examples) == 9
    x = simulation.sites["basel"].rows.x
    ids = simulation.sites["basel"].rows.ids
    for example in attacked.examples:
        measured = x[ids.index(example.name)].tolist()
        assert example.true == pytest.approx(measured, rel=1e-6)
        assert example.computed == pytest.approx(measured, rel=1e-2, abs=1e-2)
    assert "9 of 9 labeled examples can be computed" in advise(attacked)[0]
    simulation.close()

    before = os.umask(0o022)  # the command itself restricts all permissions
    try:
        (tmp_path / "open").mkdir()
        file = tmp_path / "open" / "attack.csv"
        write_examples(file, attacked)
    finally:
        os.umask(before)
    folder = simulation.sites["basel"].path
    shown = CliRunner().invoke(
        build_app(), ["site", "attack", str(folder), "--seconds", "20"]
    )
    assert shown.exit_code == 0, shown.output
    assert "each of up to 9 attacks takes at most 20 CPU seconds" in shown.output
    assert "last products: 9 of 9 examples read" in shown.output
    assert (folder / "attack.csv").read_text() == file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open() as lines:
        table = list(csv.reader(lines))
    assert len(table) == 1 + 2 * 9
    assert table[0][4:] == list(attacked.columns)


def test_sums_of_self_training_are_attacked_where_they_were_sent(tmp_path: Path) -> None:
    config = ExperimentConfig(
        "hospitals",
        **{
            **SETTINGS,
            "training": Spec("closed-form"),
            "encoder": Spec("fourier", {"features": 24}),
            "initial": 20,
            "cycles": 0,
        },
    )
    data = rows(NAMES[:3], classes=2, per_site=22)
    simulation = federation(tmp_path, config, data)
    assert simulation.program().go()
    attacked = attack(simulation, seconds=0.3)
    everything = simulation.sites["basel"].rows.x
    by_name = {result["attack"]: result for result in attacked.attacks}
    folds = by_name["folds of the last labels"]
    assert folds["read"] > 5
    assert folds["rows"] == 20
    assert by_name["products of all examples"]["rows"] == len(everything)
    assert "20 labeled examples can be computed" in advise(attacked)[0]
    simulation.close()


@pytest.mark.long
def test_an_example_that_left_is_read_from_the_sums_before_and_after(
    tmp_path: Path,
) -> None:
    """The last two sums differ by one example that left, and by four new ones."""
    config = ExperimentConfig("hospitals", **{**SETTINGS, "cycles": 2})
    simulation = federation(tmp_path, config, rows(NAMES[:3], classes=3))
    left: list[int] = []

    def withdraw(event: Event) -> None:
        if (
            event["event"] == "labels"
            and not left
            and len(simulation.labels()["basel"]) > 5
        ):
            left.append(simulation.labels()["basel"][0].row)
            sleep(1.1)  # times are in whole seconds
            simulation.ledgers["basel"].withdraw(left[0], "Ann")
            sleep(1.1)
        simulation.label(event)

    assert simulation.program(withdraw).go()
    site = simulation.sites["basel"]
    attacked = attack(simulation)
    by_name = {result["attack"]: result for result in attacked.attacks}
    assert by_name["last products"]["rows"] == 5 + 4 + 4 - 1
    change = by_name["difference of products"]
    assert change["rows"] == change["read"] == 5
    (example,) = (one for one in attacked.examples if one.name == site.rows.ids[left[0]])
    assert example.is_read
    assert example.true == pytest.approx(site.rows.x[left[0]].tolist(), rel=1e-6)
    simulation.close()


def test_a_corrected_label_is_attacked_as_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(["2026-01-01T10:00:00+00:00", "2026-01-02T10:00:00+00:00"])
    monkeypatch.setattr("fallow.deployment.ledger.ledger.now", lambda: next(times))
    ledger = make_queue(tmp_path).ledger
    ledger.answer(3, 1, "Ann")
    ledger.answer(3, 0, "Ann")
    label = Label(row=3, value=0, cycle=0)
    assert restore_label(ledger, label, "2026-01-01T12:00:00+00:00").value == 1
    assert restore_label(ledger, label, "2026-01-03T12:00:00+00:00").value == 0
    assert restore_label(ledger, Label(row=9, value=0, cycle=0), "2026-01-03").value == 0


def test_an_example_that_left_between_two_runs_is_read_from_the_sums_of_both(
    tmp_path: Path,
) -> None:
    """The first run sends sums of 5 and 9 labels, the second one of 8 and of 8 again."""
    simulation = study(tmp_path)
    ledger = simulation.ledgers["basel"]
    left = ledger.store.load_labels("basel")[0]
    sleep(1.1)  # times are in whole seconds
    ledger.withdraw(left.row, "Ann")
    sleep(1.1)
    simulation.coordinator_folder.rename(tmp_path / "first")
    assert simulation.program(clock=lambda: time() + 9).go()
    runs = ledger.instructions.list_runs()
    (gone_at,) = (line.at for line in ledger.list_history() if line.event == "withdrawn")
    withdrawn = {left.row: gone_at}
    labels = ledger.store.load_labels("basel")
    sent = list_sent_sums(ledger, labels, [left.row], withdrawn, LABELS)
    assert [one.run for one in sent] == [runs[0], runs[0], runs[1], runs[1]]
    rows_sent = [{label.row for label in one.labels} for one in sent]
    assert [len(some) for some in rows_sent] == [5, 9, 8, 8]
    assert rows_sent[0] < rows_sent[1]
    assert rows_sent[1] - rows_sent[2] == {left.row}
    attacked = attack(simulation)
    by_name = {result["attack"]: result for result in attacked.attacks}
    assert by_name["first products"]["rows"] == by_name["first products"]["read"] == 5
    assert by_name["difference of products"]["rows"] == 1
    assert by_name["difference of products"]["read"] == 1
    assert by_name["last products"]["rows"] == 8
    (withdrawn_example,) = (
        one
        for one in attacked.examples
        if one.name == simulation.sites["basel"].rows.ids[left.row]
    )
    assert withdrawn_example.is_read
    simulation.close()


def test_a_site_reads_the_bins_of_its_examples_from_sums_of_trees(tmp_path: Path) -> None:
    simulation = study(
        tmp_path,
        model=Spec("trees"),
        training=Spec("boosted-trees", {"stages": 20, "depth": 2}),
        encoder=None,
        initial=8,
    )
    attacked = attack(simulation)
    by_name = {result["attack"]: result for result in attacked.attacks}
    assert by_name["first sums"]["rows"] == 8
    assert by_name["difference of first sums"]["rows"] == 4
    last = by_name["sums of all trees"]
    assert last["rows"] == 12
    assert last["read"] >= 10
    assert sum(example.is_read for example in attacked.examples) >= last["read"]
    x = simulation.sites["basel"].rows.x
    ids = simulation.sites["basel"].rows.ids
    for example in attacked.examples:
        assert example.true == pytest.approx(x[ids.index(example.name)].tolist(), rel=1e-4)
    lines = advise(attacked)
    assert "bins of all columns can be computed of" in lines[0]
    assert "noise (privacy.sums=noisy" in lines[1]
    simulation.close()


def test_a_site_reads_nothing_from_its_noisy_sums(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    simulation = study(
        tmp_path,
        training=Spec("closed-form", {"delta": 1e-5}),
        privacy=Privacy(epsilon=1.0),
        encoder=Spec("identity"),
        standardize="none",
        cycles=0,
    )
    attacked = attack(simulation, seconds=0.5)
    assert attacked.attacks[0]["rows"] == 5
    assert all(result["read"] == 0 for result in attacked.attacks)
    assert advise(attacked)[0].startswith("None of 5 labeled examples was read")
    simulation.close()


def test_an_attack_without_any_candidate_has_no_example_to_show() -> None:
    result: AttackResult = {
        "attack": "first products",
        "rows": 5,
        "numbers": 9,
        "unknowns": 65,
        "read": 0,
        "near": 0,
        "error": None,
        "seconds": 0.1,
    }
    attacked = AttackedSite([result], ("age",), [])
    line, end = advise(attacked)
    assert end.startswith(
        "Not tried: levels beside noise, means of repeated sums with noise, models of single cycles"
    )
    assert line.startswith("None of 5 labeled examples was read")
    assert list_examples(attacked) == (["Column"], [])
    attacked.attacks[0]["numbers"] = 65
    assert "assume that examples can be computed" in advise(attacked)[1]
    assert len(advise(replace(attacked, is_exact=False))) == 2


def test_a_table_of_attacked_examples_has_the_cells_of_the_file() -> None:
    columns = (
        Column("sex", values=("female", "male")),
        Column("age", may_be_empty=True),
    )
    schema = Schema("table", "classification", "y", ("no", "yes"), columns, (4,))
    assert schema.features == ("sex=female", "sex=male", "age", "age_missing")
    cells = describe_cells(schema, [0.4, 0.6, 51.04, 0.1])
    assert cells == {"sex": "male", "age": "51.04"}
    assert describe_cells(schema, [1, 0, 60, 0.97])["age"] == "(empty)"


def test_a_site_without_a_run_has_nothing_to_attack(tmp_path: Path) -> None:
    config = ExperimentConfig("hospitals", **SETTINGS)
    simulation = federation(tmp_path, config, rows(NAMES[:3], classes=3))
    with pytest.raises(ValueError, match="has taken part in no run, so nothing was sent"):
        attack(simulation)
    simulation.close()


def test_status_and_model_card_compare_numbers_with_values(tmp_path: Path) -> None:
    simulation = study(tmp_path, cycles=0, initial=8, validation=0.25)
    site = simulation.sites["basel"]
    simulation.close()
    status = collect_status(site)
    sent = status["exposure"]
    assert (sent["rows"], sent["values"]) == (6, 5)
    products = 32 * 33 // 2 + 32 + 3 * 32
    assert sent["numbers"] > products
    words = describe_exposure(sent)
    assert words.endswith(
        "compared with 6 labeled examples of 5 values (30 values): examples can be computed"
    )
    planned = describe_planned(site.agreement)
    assert planned[0].startswith("Each end of labeling sends")
    card = (tmp_path / "coordinator" / "model-card.md").read_text()
    assert "compared with 6 labeled examples of 5 values" in card
    own_card = (site.path / "model-card.md").read_text()
    assert f"- This site sent {words}." in own_card
