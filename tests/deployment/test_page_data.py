"""Test the page about a site's own data, which only annotators of the site see."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from fallow.data.facts import ColumnFacts, DataFacts
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.own_data import describe_own_data
from tests.deployment.label_queues import FACTS, enter, make_queue
from tests.deployment.test_program_cli import RunCommand, begun, fallow

__all__ = ["begun", "fallow"]  # fixtures


def test_it_shows_what_the_command_says(begun: RunCommand, tmp_path: Path) -> None:
    site = SiteFolder.open(tmp_path / "north")
    facts = describe_own_data(site)
    queue = replace(make_queue(tmp_path), describe_data=partial(describe_own_data, site))
    page = enter(queue).get("/data")
    assert f"{facts['read']:,} rows; " in page
    assert "Nothing on it is sent" in page
    for column in facts["columns"]:
        assert f"{column['name']} {column['kind']}" in page
    for name, rows in facts["classes"].items():
        assert f"{name} {rows}" in page
    assert "My labels Your data" in page


def test_files_are_looked_at_when_somebody_asks_and_only_once(tmp_path: Path) -> None:
    calls = []

    def describe() -> DataFacts:
        calls.append("read")
        return FACTS

    visitor = enter(replace(make_queue(tmp_path), describe_data=describe))
    visitor.get("/")
    assert calls == []
    pages = [visitor.get("/data") for _ in range(2)]
    assert calls == ["read"]
    assert "<b>rows</b>.csv" in pages[0]  # shown as text; markup would be removed here
    assert "One class has a single label." in pages[0]
    assert "0 of 3 done, 3 days left" in pages[0]  # the progress of labeling


def test_a_column_that_was_left_out_is_shown_with_the_reason(tmp_path: Path) -> None:
    column: ColumnFacts = {
        "name": "visit",
        "kind": "identifier",
        "role": "left out",
        "values": [],
        "missing": 0,
        "missing_at": {},
        "reason": "dates are <i>no</i> features",
    }
    facts: DataFacts = {**FACTS, "columns": [column]}
    visitor = enter(replace(make_queue(tmp_path), describe_data=lambda: facts))
    assert "visit left out: dates are <i>no</i> features" in visitor.get("/data")


def test_a_queue_that_knows_nothing_of_files_shows_no_such_page(tmp_path: Path) -> None:
    visitor = enter(make_queue(tmp_path))
    assert "Your data" not in visitor.get("/")
    assert "There is no information" in visitor.get("/data")
