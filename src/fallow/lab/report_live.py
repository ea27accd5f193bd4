"""The part of a report that says how a run at real sites stands, from its ``live.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallow.lab.report_html import Html, el, section, table

REFRESH = 30  # seconds after which a page about an open run looks again
OPEN = "running"
STATES = {
    OPEN: "The run is going on.",
    "stopped": "The coordinator was stopped; started again, the run goes on.",
    "finished": "The run is finished.",
    "failed": "The coordinator ended with an error; started again, the run goes on.",
}


def read_live(folder: Path) -> dict[str, Any] | None:
    """How a run at real sites stands; None in the folder of a simulation."""
    try:
        found = json.loads((folder / "live.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("sites"), dict) else None


def live(folder: Path) -> list[Html]:
    """A section about the run; nothing for a simulation."""
    found = read_live(folder)
    if found is None:
        return []
    parts = [el("p", standing(found))]
    if found["sites"]:
        parts.append(table("Sites", HEADER, site_rows(found)))
    if refusals := found.get("refusals"):
        rows = [[line["site"], when(line["at"]), line["why"]] for line in reversed(refusals)]
        parts.append(table("Refused lately", ["Site", "When", "Why"], rows, words=3))
    return [section("How the run stands", *parts)]


def refresh(folders: Sequence[Path]) -> int | None:
    """Seconds after which a page about these folders looks again; None where no run is open."""
    found = [read_live(folder) for folder in folders]
    return REFRESH if any(one and one.get("state") == OPEN for one in found) else None


def standing(found: dict[str, Any]) -> str:
    """The state of a run in a sentence or two.

    >>> standing({"state": "running", "phase": "training", "cycle": 1, "cycles": 2})
    'The run is going on. Now: training, cycle 1 of 2.'
    >>> standing({"state": "running", "phase": "people label", "cycle": 0, "step": "0/initial"})
    'The run is going on. Now: people label, first labels.'
    """
    said = [STATES.get(str(found.get("state")), "Nobody knows how the run stands.")]
    if found.get("why"):
        said.append(f"{found['why']}.")
    if found.get("state") == OPEN:
        where = [str(found.get("phase", "starting"))]
        if where == ["people label"] and str(found.get("step")).endswith("/initial"):
            where.append("first labels")
        elif found.get("cycle") is not None and where != ["first labels"]:
            where.append(f"cycle {found['cycle']} of {found.get('cycles')}")
        if found.get("round") is not None and found.get("phase") == "training":
            where.append(f"round {found['round'] + 1} of {found.get('rounds')}")
        said.append(f"Now: {', '.join(where)}.")
    if found.get("deadline"):
        said.append(f"People have until {when(found['deadline'])}.")
    if found.get("updated"):
        said.append(f"As of {when(found['updated'])}.")
    return " ".join(said)


HEADER = ["Site", "Rows", "Asked", "Answered", "Cannot tell", "Open", "Conflicts", "As of",
          "Reachable", "Last heard", "Awaited since"]  # fmt: skip
COUNTS = ("asked", "answered", "declined", "open", "conflicts")


def site_rows(found: dict[str, Any]) -> list[list[str]]:
    """One row of `HEADER` for each site; a dash for what is not known."""
    rows = []
    for name, site in sorted(found["sites"].items()):
        labels = site.get("labels") or {}
        counts = [_text(labels.get(count)) for count in COUNTS]
        is_open = found.get("state") == OPEN
        online = ("yes" if site.get("online") else "no") if is_open else "–"
        heard = [when(site.get("seen")), when(site.get("awaited"))]
        rows.append(
            [name, _text(site.get("rows")), *counts, when(site.get("counted")), online, *heard]
        )
    return rows


def when(iso: str | None) -> str:
    """A moment as people write it, to the minute; whoever reads it may be in another time zone.

    >>> when("2026-12-05T21:49:24+00:00"), when(None)
    ('5 Dec 2026, 21:49 UTC', '–')
    """
    if iso is None:
        return "–"
    then = datetime.fromisoformat(iso).astimezone(UTC)
    return f"{then.day} {then:%b %Y, %H:%M} UTC"


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
