"""Test descriptions of the data of real sites: plain, by secure aggregation, and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fallow as fl
from fallow.core.events import Event
from fallow.core.missing import BUCKETS
from fallow.deployment.building import _find_description, build_study
from fallow.deployment.coordinator.describing import explain_no_description
from fallow.deployment.coordinator.program import open_event_log
from fallow.deployment.schema import Column
from fallow.deployment.site.agreement_text import list_disclosures
from fallow.deployment.site.settings import settings_text
from fallow.engine.column_counts import BINS, DescribedColumn
from fallow.measurements.description import (
    DISCLOSED,
    FILE,
    MOST_COLUMNS,
    Describe,
    describe_counts,
    read_description,
)
from fallow.privacy.settings import Privacy
from fallow.report.description import format_description
from fallow.report.live import summarize_drift
from fallow.report.page import write_report
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from fallow.storage.files import write_json
from tests.deployment.simulations import TINY, Federation, federation, photos, ward

MASKED = Privacy(secure_sum=True, bound=1e6)


def describe(simulation: Federation, **more: Any) -> dict[str, Any]:
    """Describe the data of all sites, and return the file at the coordinator."""
    assert not simulation.program(describes=True, **more).go()
    facts: dict[str, Any] = json.loads((simulation.coordinator_folder / FILE).read_text())
    return facts


def masked(folder: Path) -> Federation:
    return federation(folder, replace(TINY, privacy=MASKED), ward(per_site=60))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, dict[str, Any]]:
    simulation = federation(tmp_path_factory.mktemp("plain"), TINY, ward(per_site=60))
    return simulation, describe(simulation)


def test_real_sites_send_the_counts_of_a_simulation(
    plain: tuple[Federation, dict[str, Any]],
) -> None:
    simulation, facts = plain
    unlabeled = replace(simulation.data, y=torch.full_like(simulation.data.y, -1))
    expected = fl.describe_sites(unlabeled).facts
    by_name = {column["name"]: column for column in facts["columns"]}
    for name in ("x0", "x1", "x2"):
        (column,) = (c for c in expected["columns"] if c["name"] == name)
        assert by_name[name] == column
    assert by_name["x1"]["all"]["missing"] > 0
    assert by_name["y"]["all"]["missing"] == len(simulation.data.x)
    tests = by_name["y (test)"]["all"]
    assert tests["values"] == len(simulation.data.x_test)


def test_sums_behind_masks_are_those_of_plain_counts(
    plain: tuple[Federation, dict[str, Any]], tmp_path: Path
) -> None:
    simulation = masked(tmp_path)
    facts = describe(simulation)
    for one, other in zip(plain[1]["columns"], facts["columns"], strict=True):
        assert one["all"] == other["all"]
        assert one["edges"] == other["edges"]
        assert other["sites"] == []
    assert "only sums of all sites" in facts["notes"][0]
    assert (
        "without drift between sites" in summarize_drift(simulation.coordinator_folder)[0]
    )
    assert facts["notes"][0] in format_description(facts)  # type: ignore[arg-type]


@pytest.mark.long
def test_the_study_goes_on_in_the_same_run_and_names_what_left(
    plain: tuple[Federation, dict[str, Any]], tmp_path: Path
) -> None:
    simulation = plain[0].again(tmp_path / "copy")
    assert simulation.program().go()
    revealed = simulation.records()[0]["revealed"]
    assert [line["function"] for line in revealed if line["description"] == DISCLOSED] == [
        "bins",
        "first",
    ]
    page = write_report([simulation.coordinator_folder]).read_text()
    (line,) = summarize_drift(simulation.coordinator_folder)
    assert line.startswith("The data of the sites were described on ")
    assert line in page
    assert "Data of the sites" in page
    assert "Drift of each column" in page


def test_a_study_that_has_begun_is_not_described_and_loses_nothing(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward(per_site=60))
    program = simulation.program(notify=stop_at(simulation, "labels"))
    assert not program.go()
    with open_event_log(program.run_folder, simulation.agreement) as event_log:
        before = event_log.exchanges()
    with pytest.raises(StorageError, match="the study has begun"):
        simulation.program(describes=True).go()
    with open_event_log(program.run_folder, simulation.agreement) as event_log:
        assert event_log.exchanges() == before
    assert before


def stop_at(simulation: Federation, kind: str) -> Any:
    from fallow.deployment.coordinator.live import Control

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == kind:
            Control(simulation.coordinator_folder / "control").tell("stop")

    return notify


def test_a_site_that_does_not_describe_its_data_is_named(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward(per_site=60))
    text = (tmp_path / "chur" / "site.toml").read_text()
    assert "[describe]" in text
    (tmp_path / "chur" / "site.toml").write_text(
        text.replace("allowed = true", "allowed = false")
    )
    facts = describe(simulation.again(tmp_path / "copy"))
    assert facts["silent"] == ["chur"]
    (age,) = (column for column in facts["columns"] if column["name"] == "x0")
    assert [site["values"] for site in age["sites"]] == [40, 0, 40]


def test_behind_masks_such_a_site_refuses(tmp_path: Path) -> None:
    simulation = masked(tmp_path)
    file = tmp_path / "chur" / "site.toml"
    file.write_text(file.read_text().replace("allowed = true", "allowed = false"))
    refused: list[Event] = []

    def notify(event: Event) -> None:
        if event["event"] == "refused":
            refused.append(event)
            raise ValueError(event["reason"])

    with pytest.raises(ValueError, match="does not describe its data"):
        describe(simulation.again(tmp_path / "copy"), notify=notify)
    assert refused[0]["key"].startswith("0/describe")


def test_edges_that_do_not_increase_are_refused(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward(per_site=60))
    made = build_study(simulation.agreement)
    method = made.methods["describe"]
    assert isinstance(method, Describe)
    edges = torch.zeros(method.bin_counts.n_numbers, BINS + 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="do not increase"):
        method.bins(NoView(), edges)  # type: ignore[arg-type]


class NoView:
    """View of a site whose examples must not be read."""

    site = "basel"


def test_a_study_with_noise_sends_no_exact_counts(tmp_path: Path) -> None:
    config = replace(TINY, strategy=Spec("ahfal"), privacy=Privacy(epsilon=1.0))
    simulation = federation(tmp_path, config, ward(per_site=60))
    why = explain_no_description(simulation.agreement)
    assert why is not None
    assert "privacy.epsilon" in why
    assert "describe" not in build_study(simulation.agreement).methods
    with pytest.raises(StorageError, match="adds noise to counts"):
        describe(simulation)


def test_a_site_reads_what_a_description_would_send(
    plain: tuple[Federation, dict[str, Any]],
) -> None:
    site = plain[0].sites["basel"]
    assert DISCLOSED in [line.reveals for line in list_disclosures(site)]
    assert "[describe]" in settings_text(site.settings, "hospitals")


def test_images_of_real_sites_are_described_by_channel(tmp_path: Path) -> None:
    facts = describe(federation(tmp_path, TINY, photos()))
    assert facts["columns"][2]["name"] == "mean of channel 2"


def test_a_file_that_is_no_description_is_not_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"columns": []}')
    assert read_description(tmp_path) is None
    assert summarize_drift(tmp_path) == []


def test_the_summary_names_the_strongest_drift_beyond_chance(tmp_path: Path) -> None:
    counts = {
        site: [np.array([0.0, *cells])]
        for site, cells in {"a": (90, 10), "b": (50, 50), "c": (52, 48)}.items()
    }
    columns = [DescribedColumn("sex", ("f", "m"))]
    facts = describe_counts(columns, np.zeros((0, 65)), counts, of_sites=True)
    write_json(tmp_path / FILE, dict(facts))
    (line,) = summarize_drift(tmp_path)
    assert "Strongest drift: sex at a 0.3" in line


def test_columns_that_are_not_described_are_named(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward(per_site=60))
    columns = tuple(Column(f"c{n}") for n in range(MOST_COLUMNS + 1))
    columns += (Column("note", text=True),)
    shape = (MOST_COLUMNS + 1 + BUCKETS,)
    schema = replace(simulation.agreement.schema, columns=columns, shape=shape)
    method = _find_description(replace(simulation.agreement, schema=schema))["describe"]
    assert isinstance(method, Describe)
    assert len(method.columns) == MOST_COLUMNS
    assert method.left_out == ("note", f"c{MOST_COLUMNS}")
