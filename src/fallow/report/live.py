"""The part of a report that says how a run at real sites stands, from its ``live.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallow.core.words import counted
from fallow.report.blocks import Block, Blocks, Note, Table, Text
from fallow.study.records import StudyRecords

REFRESH = 30  # seconds after which a page about an open run looks again
OPEN = "running"
STATES = {
    OPEN: "The run is going on.",
    "stopped": "The coordinator was stopped; started again, the run goes on.",
    "finished": "The run is finished.",
    "failed": "The coordinator ended with an error; started again, the run goes on.",
}
NOTHING = "–"
WORDS = 2
"""So many columns about a site are text, the others numbers."""
SCORED = (
    "Score: the newest model at each site, on its own test rows; a dash where the site has told "
    "none, as over too few test rows."
)
REQUEST = "at the coordinator's request ('fallow coordinate advance')"
CLOSED = {"advance": REQUEST, "deadline": "when their time was up"}
"""Why labels are not waited for any more, though people had more to answer."""


def read_live(folder: Path) -> dict[str, Any] | None:
    """How a run at real sites stands; None in the folder of a simulation."""
    try:
        found = json.loads((folder / "live.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_known = isinstance(found, dict) and isinstance(found.get("sites"), dict)
    return found if is_known else None


def live(study: StudyRecords, key: str) -> Blocks:
    """A section about the run; nothing for a simulation."""
    found = read_live(study.path)
    if found is None:
        return []
    parts: list[Block] = [Text(line) for line in (standing(found), *without(found))]
    if found["sites"]:
        scores = _scores(study)
        columns = site_columns(found, scores)
        rows = list(zip(*columns.values(), strict=True))
        parts.append(Table(caption(found), list(columns), rows, words=WORDS))
        parts += [Note(SCORED)] if scores else []
    refusals = found.get("refusals")
    if refusals:
        lines = [
            [line["site"], when(line["at"]), line["why"]] for line in reversed(refusals)
        ]
        parts.append(Table("Refused lately", ["Site", "When", "Why"], lines, words=3))
    return parts


def _scores(study: StudyRecords) -> dict[str, dict[str, str]]:
    """Heading -> site -> its newest score; nothing where sites tell none alone, as under secure
    sums."""
    newest: Mapping[str, float | None] = {}
    for cell in study.cells:
        for row in cell.records:
            newest = row.get("per_site") or newest
    known = {site: score for site, score in newest.items() if score is not None}
    if not known:
        return {}
    if study.higher_is_better:
        texts = {site: f"{100 * score:.1f}" for site, score in known.items()}
        return {"Accuracy, %": texts}
    return {"MSE": {site: f"{score:.3g}" for site, score in known.items()}}


def refresh(folders: Sequence[Path]) -> int | None:
    """Seconds after which a page about these folders looks again; None where no run is open."""
    found = [read_live(folder) for folder in folders]
    return REFRESH if any(one and one.get("state") == OPEN for one in found) else None


def standing(found: dict[str, Any]) -> str:
    """The state of a run in a sentence or two.

    >>> standing({"state": "running", "phase": "training", "cycle": 1, "cycles": 2})
    'The run is going on. Now: training, cycle 1 of 2.'
    >>> standing(
    ...     {"state": "running", "phase": "people label", "cycle": 0, "step": "0/initial"}
    ... )
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
    said += _about_labels(found)
    if found.get("waiting"):
        said.append(waited_for(found["waiting"]))
    if found.get("updated"):
        said.append(f"As of {when(found['updated'])}.")
    return " ".join(said)


def without(found: Mapping[str, Any]) -> list[str]:
    """What a run goes on without, a sentence each.

    >>> struck = {
    ...     "site": "a",
    ...     "what": "round 2 of cycle 0",
    ...     "at": "2026-12-05T21:49:24+00:00",
    ... }
    >>> without({"struck": [struck]})
    ['The answers of a in round 2 of cycle 0 were struck out on 5 Dec 2026, 21:49 UTC.']
    """
    lines = [
        f"The answers of {line['site']} in {line['what']} were struck out on {when(line['at'])}."
        for line in found.get("struck") or []
    ]
    return lines + [
        f"The study goes on without {site} since {when(since)}."
        for site, since in (found.get("left") or {}).items()
    ]


def silent_sites(silent: Mapping[str, str | None]) -> str:
    """Sites that have open questions and do not say how far their people are; nothing where there
    are none.

    >>> silent_sites({"a": "2026-12-05T21:49:24+00:00"})[:44]
    'No word from a (since 5 Dec 2026, 21:49 UTC)'
    """
    if not silent:
        return ""
    names = ", ".join(
        f"{site} (since {when(seen)})" if seen else f"{site} (not yet in this run)"
        for site, seen in sorted(silent.items())
    )
    return (
        f"No word from {names}: 'fallow coordinate advance' goes on with the labels that there "
        "are"
    )


def waited_for(found: Mapping[str, Any]) -> str:
    """For whom an exchange waits, since when and until when, and what goes on without them.

    found: as the live state has it, ``waiting``.
    """
    names = ", ".join(found["sites"])
    if not found["can_advance"]:
        way = "nothing goes on without them but the quorum"
    elif found["is_of_all"]:
        way = "'fallow coordinate advance' goes on without them for the rest of the study"
    else:
        way = "'fallow coordinate advance' goes on without them this time"
    return (
        f"Waiting for {names} since {when(found['since'])}, at the latest until "
        f"{when(found['until'])} ({found['key']} needs {found['needed']} answers): {way}."
    )


def _about_labels(found: Mapping[str, Any]) -> list[str]:
    """Until when people have time, or why that is over."""
    if found.get("closing"):
        return [
            f"The {asked_in(found['step'])} are being closed {REQUEST}; open questions are "
            "given back."
        ]
    if found.get("deadline"):
        until = f"People have until {when(found['deadline'])}."
        silent = silent_sites(found.get("silent") or {})
        return [until, f"{silent}."] if silent else [until]
    ended = found.get("ended") or {}
    if ended.get("step") != found.get("step") or ended.get("why") not in CLOSED:
        return []
    many = ended.get("open") or 0
    back = ""
    if many:
        were = "was" if many == 1 else "were"
        back = f"; {counted(many, 'open question')} {were} given back"
    return [f"The {asked_in(ended['step'])} were closed {CLOSED[ended['why']]}{back}."]


def asked_in(step: str) -> str:
    """The questions of a step as people call them.

    >>> asked_in("0/initial"), asked_in("2/query"), asked_in("2/query-1")
    ('first labels', 'labels of cycle 2', 'labels of cycle 2, part 2')
    """
    cycle, _, what = step.partition("/")
    part = what.partition("-")[2]
    more = f", part {int(part) + 1}" if part else ""
    return "first labels" if what == "initial" else f"labels of cycle {cycle}{more}"


def caption(found: Mapping[str, Any]) -> str:
    """What the table of sites is about: them, and the questions whose answers are counted."""
    step = found.get("step")
    return f"Sites, and the {asked_in(step)}" if step else "Sites"


def site_columns(
    found: Mapping[str, Any], scores: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, list[str]]:
    """What is known of each site, by heading; a dash for what is not known.  The first `WORDS`
    columns are text.  scores: heading -> site -> text."""
    sites = sorted(found["sites"].items())
    counts = [site.get("labels") or {} for _, site in sites]

    def of(count: str) -> list[str]:
        return [_text(n.get(count)) for n in counts]

    return {
        "Site": [name for name, _ in sites],
        "Contact": [_contact(site, found.get("state") == OPEN) for _, site in sites],
        "Rows": [_text(site.get("rows")) for _, site in sites],
        "Test rows": [_text(site.get("test")) for _, site in sites],
        **{
            head: [told.get(name, NOTHING) for name, _ in sites]
            for head, told in (scores or {}).items()
        },
        "Answered": [f"{n['answered']} of {n['asked']}" if n else NOTHING for n in counts],
        "Cannot tell": of("declined"),
        "Open": of("open"),
        "Conflicts": of("conflicts"),
        "Counted, UTC": [_short(site.get("counted")) for _, site in sites],
    }


def _contact(site: Mapping[str, Any], is_open: bool) -> str:
    """Whether a site is there, and since when it is not or has an order to perform."""
    seen = site.get("seen")
    awaited = site.get("awaited")
    if not is_open:
        return f"heard {_short(seen)}" if seen else NOTHING
    if not site.get("online"):
        return f"away since {_short(seen)}" if seen else "not there yet"
    return f"busy since {_short(awaited)}" if awaited else "connected"


def when(iso: str | None) -> str:
    """A moment as people write it, to the minute; whoever reads it may be in another time zone.

    >>> when("2026-12-05T21:49:24+00:00"), when(None)
    ('5 Dec 2026, 21:49 UTC', '–')
    """
    if iso is None:
        return NOTHING
    then = datetime.fromisoformat(iso).astimezone(UTC)
    return f"{then.day} {then:%b %Y, %H:%M} UTC"


def _short(iso: str | None) -> str:
    """The same in UTC for a narrow column; its spaces break no line.

    >>> _short("2026-12-05T21:49:24+00:00").split("\\N{NO-BREAK SPACE}")
    ['5', 'Dec', '21:49']
    """
    if iso is None:
        return NOTHING
    then = datetime.fromisoformat(iso).astimezone(UTC)
    return f"{then.day} {then:%b %H:%M}".replace(" ", "\N{NO-BREAK SPACE}")


def _text(value: Any) -> str:
    return NOTHING if value is None else str(value)
