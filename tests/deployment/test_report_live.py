"""Test the page about a study at real sites: connections, progress and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from fallow.cli.coordinate_messages import describe_event
from fallow.deployment.coordinator.live import read_last
from fallow.report.live import describe_standing, read_live, site_columns
from fallow.report.page import write_report
from tests.deployment.browser import NEEDS, chromium
from tests.each import each_of
from tests.report.conftest import rewrite, write_study

SITES = ("basel", "bern", "zug-kantonsspital-west", *(f"site-{i}" for i in range(7)))
CAPTION = "Sites, and the labels of cycle 0"
COUNTS = {"asked": 120, "answered": 98, "declined": 10, "open": 11, "conflicts": 1}
THEN = "2026-11-22T02:44:46+00:00"


def make_status(**more: Any) -> dict[str, Any]:
    site = {
        "online": True,
        "awaited": None,
        "rows": 12345,
        "test": 1234,
        "seen": THEN,
        "labels": COUNTS,
        "counted": THEN,
    }
    sites = {name: dict(site) for name in SITES}
    output = {
        "state": "running",
        "phase": "labeling",
        "step": "0/query",
        "tasks": "labels of cycle 0",
        "cycle": 0,
        "cycles": 1,
    }
    return {
        **output,
        "deadline": THEN,
        "updated": THEN,
        "sites": sites,
        "refusals": [],
        **more,
    }


def page(folder: Path, scores: dict[str, float | None] | None, **more: Any) -> Path:
    """Return the page of a study of one strategy with these final scores at the sites."""
    early = {"basel": 0.1}
    root = write_study(folder / "study", ("entropy",), seeds=1, cycles=2, reference=None)
    rewrite(
        root, lambda row, cell: {"per_site": scores and (scores if row["cycle"] else early)}
    )
    (root / "live.json").write_text(json.dumps(make_status(**more)))
    return write_report([root])


def sites(text: str) -> str:
    return (
        text.replace("\N{NO-BREAK SPACE}", " ")
        .partition(f"<caption>{CAPTION}")[2]
        .partition("</table>")[0]
    )


def test_each_site_has_the_score_of_the_newest_model_on_its_own_test_rows(
    tmp_path: Path,
) -> None:
    shown = sites(page(tmp_path, {"basel": 0.875, "bern": None}).read_text())
    assert ">Accuracy, %</th>" in shown
    basel, bern = (
        shown.partition(f">{name}</th>")[2].partition("</tr>")[0] for name in SITES[:2]
    )
    assert '<td class="number">87.5</td>' in basel and "10.0" not in shown
    assert '<td class="number">–</td>' in bern  # not disclosed: too few test examples


def test_what_no_site_has_told_has_no_column(tmp_path: Path) -> None:
    assert "Accuracy" not in sites(page(tmp_path, None).read_text())  # sums are masked


@pytest.mark.parametrize(
    ("site", "state", "text"),
    [
        ({}, "running", "connected"),
        ({"awaited": THEN}, "running", "busy since 22 Nov 02:44"),
        ({"online": False}, "running", "away since 22 Nov 02:44"),
        ({"online": False, "seen": None}, "running", "not there yet"),
        ({}, "finished", "last seen 22 Nov 02:44"),
    ],
)
def test_whether_a_site_is_there_is_one_column(
    site: dict[str, Any], state: str, text: str, tmp_path: Path
) -> None:
    one = {"basel": make_status()["sites"]["basel"] | site}
    assert f'<td class="word">{text}</td>' in sites(
        page(tmp_path, None, sites=one, state=state).read_text()
    )


def test_labels_that_are_no_longer_waited_for_are_not_called_open() -> None:
    asking = {
        "state": "running",
        "phase": "labeling",
        "step": "0/query",
        "tasks": "labels of cycle 0",
        "cycle": 0,
        "cycles": 2,
        "deadline": THEN,
    }
    assert "Annotators have until" in describe_standing(asking)
    closing = describe_standing({**asking, "closing": True})
    assert "Annotators have until" not in closing
    assert (
        "are being closed at the coordinator's request ('fallow coordinate advance')"
        in closing
    )
    ended = {
        "step": "0/query",
        "tasks": "labels of cycle 0",
        "reason": "advance",
        "open": 7,
    }
    over = {**asking, "phase": "storing labels", "deadline": None}
    closed = describe_standing({**over, "ended": ended})
    assert "The labels of cycle 0 were closed at the coordinator's request" in closed
    assert "7 open labeling tasks were withdrawn" in closed
    late = describe_standing({**over, "ended": {**ended, "reason": "deadline"}})
    assert "were closed when their time was up" in late
    assert "closed" not in describe_standing({**over, "step": "1/query", "ended": ended})


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scores: dict[str, float | None] = dict.fromkeys(SITES, 0.987)
    return page(tmp_path_factory.mktemp("wide"), scores)


class TestInABrowser:
    pytestmark = NEEDS

    def test_the_table_of_sites_fits_a_page_and_scrolls_alone_on_a_telephone(
        self, wide: Path
    ) -> None:
        with chromium() as browser:
            shown = browser.new_page(viewport={"width": 1100, "height": 900})
            shown.goto(wide.as_uri())
            box = (
                f"[...document.querySelectorAll('[aria-label=\"{CAPTION}\"]')].map(b => "
                "[b.scrollWidth, b.clientWidth])[0]"
            )
            inside, room = shown.evaluate(box)
            assert inside <= room
            shown.set_viewport_size({"width": 390, "height": 900})
            assert shown.evaluate("document.documentElement.scrollWidth") <= 390
            inside, room = shown.evaluate(box)
            assert inside > room


COUNTED = {"site": "basel", "at": THEN, "exchange": "0/query", "reason": "too late"}
STATE = {"online": True, "seen": THEN, "labels": COUNTS}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"sites": []}, r"sites is \[\]; it must be a table"),
        ({"sites": {"basel": 7}}, "sites.basel is 7; it must be a table"),
        (
            {"sites": {"basel": STATE | {"seen": "soon"}}},
            "seen is 'soon'; it must be a moment",
        ),
        (
            {"sites": {"basel": STATE | {"labels": {"asked": "9", "answered": 1}}}},
            "labels.asked is '9'; it must be a whole number, 0 or more",
        ),
        (
            {"sites": {"basel": STATE | {"labels": {"asked": 9}}}},
            "sites.basel.labels.answered is missing",
        ),
        (
            {"sites": {"basel": STATE | {"rows": -1}}},
            "rows is -1; it must be a whole number",
        ),
        (
            {"refusals": [COUNTED | {"at": "0001-01-01T00:00:00+00:00"}]},
            "refusals.0.at is ",
        ),
        ({"refusals": [{"site": "basel"}]}, "refusals.0.at is missing"),
        ({"step": 3}, "step is 3; it must be a text or none"),
        ({"ended": {"step": "0/query", "reason": "x"}}, "ended.tasks is missing"),
        ({"round": True}, "round is True; it must be a whole number, 0 or more, or none"),
        ({"cycle": 10**400}, "cycle is "),
        ({"waiting": {"sites": ["basel"]}}, "waiting.key is missing"),
        ({"left": {"basel": 7}}, "left.basel is 7; it must be a moment"),
        ({"absent": ["basel"]}, "absent.0 is 'basel'; it must be a table"),
        ({"more": 1}, "more is not a field"),
        ({"state": None}, "state is none; it must be a text"),
    ],
)
def test_a_state_that_no_coordinator_wrote_is_refused_with_its_part(
    part: dict[str, Any], text: str, tmp_path: Path
) -> None:
    (tmp_path / "live.json").write_text(json.dumps(make_status(**part)))
    with pytest.raises(
        ValueError, match=rf"live\.json is not the state of a run \(.*{text}"
    ):
        read_live(tmp_path)
    assert read_last(tmp_path) is None  # a restarted coordinator writes the state again


def test_all_that_a_state_may_say_is_read(
    tmp_path: Path,
) -> None:
    waiting = {
        "key": "0/train/0/0",
        "sites": ["bern"],
        "needed": 2,
        "since": THEN,
        "until": THEN,
        "can_advance": True,
        "is_of_all": False,
    }
    result = make_status(
        refusals=[COUNTED],
        absent=[{"site": "bern", "exchange": "round 1 of cycle 0", "at": THEN}],
        left={"bern": THEN},
        silent={"basel": None},
        ended={
            "step": "0/query-1",
            "tasks": "labels of cycle 0, part 2",
            "reason": "advance",
            "open": 2,
        },
        waiting=waiting,
    )
    (tmp_path / "live.json").write_text(json.dumps(result))
    assert read_live(tmp_path) == result
    assert read_live(tmp_path / "elsewhere") is None


@each_of("counts, shown", [((3, 2, 1, 4), "<5"), ((0, 0, 0, 0), "0"), ((9, 8, 7, 6), "")])
def test_small_counts_of_the_progress_are_not_shown(counts: Any, shown: str) -> None:
    names = ("answered", "declined", "open", "conflicts")
    progress = {"asked": 120, **dict(zip(names, counts, strict=True))}
    status = make_status(sites={"basel": STATE | {"labels": progress}})
    columns = site_columns(cast(Any, status), None)
    cells = [columns[head][0] for head in ("No label", "Open", "Conflicts")]
    assert cells == [shown or str(count) for count in counts[1:]]
    assert columns["Answered"] == [f"{shown or counts[0]} of 120"]
    event: Any = {"event": "labels", "deadline": THEN, "sites": {"basel": progress}}
    event["earlier"] = {}
    line = describe_event(event, cast(Any, None))
    settled = counts[0] + counts[1]
    assert line is not None
    assert f"basel {settled if settled >= 5 else shown} of 120" in line
    status = make_status(
        deadline=None,
        step="0/query",
        ended={"step": "0/query", "reason": "deadline", "tasks": "labels of cycle 0"}
        | {"open": counts[2]},
    )
    number = shown or str(counts[2])
    is_told = f"{number} open labeling tasks were withdrawn" in describe_standing(status)
    assert is_told == (counts[2] > 0)
