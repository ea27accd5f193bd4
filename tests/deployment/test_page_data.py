"""Test the page about a site's own data, which only annotators of the site see."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from fallow.data.facts import DataFacts
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.own_data import describe_own_data
from tests.deployment.label_queues import enter, make_queue
from tests.deployment.test_program_cli import Said, begun, fallow

__all__ = ["begun", "fallow"]  # fixtures


def test_it_shows_what_the_command_says(begun: Said, tmp_path: Path) -> None:
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
        return DataFacts(
            source="<b>rows</b>.csv",
            read=12,
            kept=12,
            sites=[],
            lost=[],
            left_out=[],
            columns=[],
            classes={},
            duplicates=0,
            crossing=0,
            warnings=["one class has a single label"],
        )

    visitor = enter(replace(make_queue(tmp_path), describe_data=describe))
    visitor.get("/")
    assert calls == []
    pages = [visitor.get("/data") for _ in range(2)]
    assert calls == ["read"]
    assert "<b>rows</b>.csv" in pages[0]  # shown as text; markup would be removed here
    assert "One class has a single label." in pages[0]


def test_a_queue_that_knows_nothing_of_files_shows_no_such_page(tmp_path: Path) -> None:
    visitor = enter(make_queue(tmp_path))
    assert "Your data" not in visitor.get("/")
    assert "There is no information" in visitor.get("/data")
