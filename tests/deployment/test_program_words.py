"""Test the terminal output of a coordinator, which has no repeated lines."""

from __future__ import annotations

import json
from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fallow.cli.coordinate_messages import CoordinatorLines, show_sites
from fallow.core.events import Event
from fallow.deployment.coordinator.labels import read_progress
from fallow.deployment.coordinator.live import utc
from fallow.deployment.coordinator.scores import score_counts, score_totals
from fallow.experiment.metrics import UNSCORED
from tests.deployment.simulations import tiny
from tests.keys import key_of


@pytest.mark.long
def test_a_run_is_told_in_lines(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    paper = StringIO()
    lines = CoordinatorLines(Console(file=paper, width=200), simulation.agreement)

    def notify(event: Event) -> None:
        lines(event)
        simulation.label(event)

    assert simulation.program(notify).go()
    output = [line.partition("  ")[2] for line in paper.getvalue().splitlines()]
    waiting = "waiting for basel, chur, davos: they connect automatically, usually within a minute"
    assert output[0] == waiting
    assert output[1:5] == [
        "basel has connected; missing: chur, davos",
        "chur has connected; missing: davos",
        "davos has connected",
        "all sites have connected: basel, chur, davos",
    ]
    assert "cycle 1: round 1 of 1" in output
    assert any(line.startswith("labeling until") for line in output)
    assert any(line.startswith("cycle 0: 12 labels, accuracy 0.") for line in output)
    assert "initial labels: all labeling tasks are done" in output
    assert "labels of cycle 0: all labeling tasks are done" in output
    assert output[-1] == "finished"
    assert len(output) == len(set(output))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"event": "refused", "site": "a", "reason": "no rows"},
            "the reply of a is discarded: no rows",
        ),
        ({"event": "missing", "sites": ["a"], "key": "0/train/0/0"}, "proceeded without a"),
        ({"event": "missing", "sites": ["a"], "exchange": key_of("progress/1")}, ""),
        ({"event": "replied", "site": "a", "key": "0/train/0/0"}, ""),
        (
            {"event": "lost", "site": "a", "reason": "no heartbeat"},
            "a did not respond and is asked again: no heartbeat",
        ),
        ({"event": "met", "sites": ["a"], "awaited": ["a"]}, ""),
        ({"event": "failed", "reason": "no site is there"}, "failed: no site is there"),
        ({"event": "transport", "reason": "port in use"}, "port in use"),
        (
            {"event": "scored", "cycle": 1, "labeled": 9, "accuracy": None, "mse": 0.25},
            "cycle 1: 9 labels, mse 0.25",
        ),
        (
            {
                "event": "labels",
                "deadline": utc(0),
                "sites": {
                    "b": read_progress(
                        {"asked": 3, "answered": 1, "declined": 1, "conflicts": 1}
                    )
                },
                "earlier": {"a": (read_progress({"asked": 4, "answered": 3}), utc(60))},
            },
            "until 1 Jan 1970, 00:00 UTC: a 1 to 4 of 4 (as of 1 Jan 1970, "
            "00:01 UTC); b 1 to 3 of 3, <5 in ",
        ),
        (
            {"event": "labels", "deadline": utc(0), "sites": {}, "earlier": {}},
            "UTC: no site has reported its progress",
        ),
    ],
)
def test_an_event_is_one_line_or_none(event: Event, line: str, tmp_path: Path) -> None:
    paper = StringIO()
    lines = CoordinatorLines(Console(file=paper, width=200), tiny(tmp_path).agreement)
    lines(event)
    lines(event)
    assert line in paper.getvalue()
    assert len(paper.getvalue().splitlines()) == bool(line)


def test_sites_that_go_while_a_run_ends_are_no_news(tmp_path: Path) -> None:
    paper = StringIO()
    lines = CoordinatorLines(Console(file=paper, width=200), tiny(tmp_path).agreement)
    lines.is_ending = True
    lines({"event": "lost", "site": "a", "reason": "no heartbeat"})
    lines({"event": "stopped", "reason": None})
    assert paper.getvalue().endswith("  stopped\n") and "heartbeat" not in paper.getvalue()


def test_a_site_that_tells_no_count_has_no_score() -> None:
    silent = {"rows": 0.0, "hits": 0.0, "class_rows": [0.0, 0.0], "class_hits": [0.0, 0.0]}
    loud = {"rows": 8.0, "hits": 6.0, "class_rows": [8.0, 0.0], "class_hits": [6.0, 0.0]}
    counts = score_counts({"a": silent, "b": loud})  # type: ignore[dict-item]
    assert counts["per_site"] == {"a": None, "b": 0.75}
    assert counts["accuracy"] == counts["balanced_accuracy"] == 0.75
    assert counts["per_class"] == [0.75, None]
    nothing = score_counts({"a": silent})  # type: ignore[dict-item]
    assert nothing == UNSCORED | {"per_site": {"a": None}}


def test_errors_are_in_units_of_the_variance() -> None:
    answers = {"a": {"rows": 4.0, "squares": 8.0}, "b": {"rows": 1.0, "squares": 6.0}}
    assert score_counts(answers, 2.0)["mse"] == pytest.approx((1.0 + 3.0) / 2)  # type: ignore[arg-type]
    assert score_totals({"rows": 5.0, "squares": 20.0}, 2.0)["mse"] == pytest.approx(2.0)
    assert score_totals({"rows": 0.0, "squares": 0.0}, 2.0) == UNSCORED


@pytest.mark.parametrize(("width", "is_whole"), [(80, False), (120, True)])
def test_a_narrow_terminal_has_the_names_of_sites_and_fewer_columns(
    width: int, is_whole: bool
) -> None:
    counts = {"asked": 8, "answered": 5, "declined": 0, "open": 3, "conflicts": 0}
    sites = {"va_long_beach": {"rows": 200, "test": 60, "online": True, "labels": counts}}
    paper = StringIO()
    live = {"sites": sites, "step": "0/query", "tasks": "labels of cycle 0"}
    show_sites(Console(file=paper, width=width), live)
    output = paper.getvalue()
    assert "va_long_beach" in output and "5 of 8" in output
    assert [head in output for head in ("Rows", "Conflicts")] == [is_whole, is_whole]
    assert max(map(len, output.splitlines())) <= width


def test_events_are_objects_for_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = CoordinatorLines(
        Console(file=StringIO()), tiny(tmp_path).agreement, as_json=True
    )
    lines({"event": "meeting", "sites": ["basel", "chur"]})
    lines({"event": "query", "cycle": 1})
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["event"] == "meeting" and first["text"].startswith(
        "waiting for basel, chur"
    )
    assert second["text"] == "cycle 1: sites select examples"
    assert datetime.fromisoformat(second["time"]).tzinfo is not None
