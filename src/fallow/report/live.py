"""Report section about the state of a run at real sites, from its ``live.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from fallow.core.wording import SMALL, join_words, show_count, show_part
from fallow.measurements import description
from fallow.report.blocks import Block, Blocks, Note, Paragraph, Table
from fallow.report.live_state import LiveState
from fallow.storage.moments import NOTHING, format_moment
from fallow.storage.received import parse_json, read_regular
from fallow.storage.validation import find_error
from fallow.study.records import StudyRecords

REFRESH = 30  # interval in seconds at which a page about an open run reloads
OPEN = "running"
STATES = {
    OPEN: "The run is in progress.",
    "stopped": "The coordinator was stopped. The run continues when it is started again.",
    "finished": "The run is finished.",
    "failed": "The coordinator ended with an error. The run continues when it is started again.",
}
FILE = "live.json"
MOST_BYTES = 2**24
"""Maximum size of the state of a run, enough for tens of thousands of sites."""
INITIAL_LABELS = "initial labels"
"""Name of the labeling tasks of the initial labeled set."""
LiveStatus = Mapping[str, Any]
"""State of a run, or part of it: `LiveState` or `Status`."""
WORDS = 2
"""Number of columns of a site that are text. The others are numbers."""
SCORED = (
    "Score: the latest model at each site, evaluated on its own test examples; a dash for "
    f"fewer than {SMALL}."
)
ALPHA = "Alpha"
AGREED = (
    "Alpha: Krippendorff's alpha of the annotators of a site, before adjudication: 1 is perfect "
    "agreement, 0 that of chance; a dash below 10 examples with several annotations."
)
CONFIRMED = "Confirmed"
BESIDE_PREDICTIONS = (
    "Beside, Without: labels that equal the likeliest class, of those given one by one beside it and "
    "without it. Confirmed: labels from sheets. Again: equal labels, of a random sample of confirmed "
    "ones that annotators gave again one by one."
)
NONE_OF_THESE = "None of these"
NO_CLASS = "None of these: examples that no class fits, of all answered ones over all runs of a site."
REQUEST = "at the coordinator's request ('fallow coordinate advance')"
CLOSED = {"advance": REQUEST, "deadline": "when their time was up"}
"""Reason why labeling ended although labeling tasks were open."""


def read_live(folder: Path) -> LiveState | None:
    """Read the state of a run at real sites; None for a simulation.

    Raises ValueError for an invalid file, and for links.
    """
    path = folder / FILE
    try:
        content = read_regular(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        json = parse_json(content)
        wrong = find_error(LiveState, json)
    except ValueError as error:
        wrong = str(error)
    if wrong is not None:
        raise ValueError(
            f"{path} is not the state of a run ({wrong}). Start the coordinator to write "
            "it again; for a received study, ask the sender for the original file, or "
            "delete it"
        )
    return cast(LiveState, json)


def live(study: StudyRecords, key: str) -> Blocks:
    """Return the section about the run; empty for a simulation."""
    outcome = read_live(study.path)
    if outcome is None:
        return []
    blocks: list[Block] = [Paragraph(describe_standing(outcome))]
    blocks += [Paragraph(line) for line in without(outcome)]
    if outcome["sites"]:
        scores = _scores(study)
        columns = site_columns(outcome, scores)
        rows = list(zip(*columns.values(), strict=True))
        blocks.append(Table(caption(outcome), header=list(columns), rows=rows, words=WORDS))
        if scores:
            blocks.append(Note(SCORED))
        if ALPHA in columns:
            blocks.append(Note(AGREED))
        if CONFIRMED in columns:
            blocks.append(Note(BESIDE_PREDICTIONS))
        if NONE_OF_THESE in columns:
            blocks.append(Note(NO_CLASS))
    refusals = []
    for line in reversed(outcome.get("refusals") or []):
        at = format_moment(line["at"])
        refusals.append([line["site"], at, line["exchange"] or "-", line["reason"]])
    if refusals:
        header = ["Site", "When", "Exchange", "Why"]
        caption_of_replies = "Replies that were refused, limited or unusual"
        blocks.append(Table(caption_of_replies, header=header, rows=refusals, words=4))
    return blocks


def _scores(study: StudyRecords) -> dict[str, dict[str, str]]:
    """Return the latest score of each site, by heading; empty under secure aggregation."""
    newest: Mapping[str, float | None] = {}
    for cell in study.cells:
        for row in cell.records:
            newest = row.get("per_site") or newest
    known = {site: score for site, score in newest.items() if score is not None}
    if not known:
        return {}
    if not study.is_regression:
        texts = {site: f"{100 * score:.1f}" for site, score in known.items()}
        return {"Accuracy, %": texts}
    return {"MSE": {site: f"{score:.3g}" for site, score in known.items()}}


def refresh(folders: Sequence[Path]) -> int | None:
    """Return the reload interval of a page in seconds, or None if no run is in progress."""
    for folder in folders:
        live = read_live(folder)
        if live and live.get("state") == OPEN:
            return REFRESH
    return None


def describe_standing(live: LiveStatus) -> str:
    """Describe the state of a run in one or two sentences.

    >>> describe_standing(
    ...     {"state": "running", "phase": "training", "cycle": 1, "cycles": 2}
    ... )
    'The run is in progress. Current phase: training, cycle 1 of 2.'
    >>> describe_standing(
    ...     {"state": "running", "phase": "labeling", "tasks": "initial labels"}
    ... )
    'The run is in progress. Current phase: labeling, initial labels.'
    >>> describe_standing({"state": "stopped", "reason": "its process has ended"})
    'The coordinator was stopped. The run continues when it is started again. Its process has ended.'
    """
    sentences = [STATES.get(str(live.get("state")), "The state of the run is unknown.")]
    if live.get("reason"):
        why = str(live["reason"])
        sentences.append(f"{why[:1].upper()}{why[1:]}.")
    if live.get("state") == OPEN:
        sentences.append(f"Current phase: {', '.join(_place(live))}.")
    sentences += _about_labels(live)
    if live.get("waiting"):
        sentences.append(describe_wait(live["waiting"]))
    if live.get("updated"):
        sentences.append(f"As of {format_moment(live['updated'])}.")
    return " ".join(sentences)


def _place(live: LiveStatus) -> Iterator[str]:
    """Yield the phase of an open run, with cycle and round if applicable."""
    phase = str(live.get("phase", "starting"))
    yield phase
    if phase == "labeling" and live.get("tasks") == INITIAL_LABELS:
        yield INITIAL_LABELS
    elif live.get("cycle") is not None and phase != "initial labels":
        yield f"cycle {live['cycle']} of {live.get('cycles')}"
    if live.get("round") is not None and phase == "training":
        yield f"round {live['round'] + 1} of {live.get('rounds')}"


def without(live: LiveStatus) -> list[str]:
    """Return a sentence for each site or label that a run proceeds without.

    >>> absent = {
    ...     "site": "a",
    ...     "exchange": "round 2 of cycle 0",
    ...     "at": "2026-12-05T21:49:24+00:00",
    ... }
    >>> without({"absent": [absent]})
    ['Round 2 of cycle 0 proceeds without a since 5 Dec 2026, 21:49 UTC.']
    """
    lines = []
    for line in live.get("absent") or []:
        exchange = line["exchange"]
        exchange = exchange[:1].upper() + exchange[1:]
        since = format_moment(line["at"])
        lines.append(f"{exchange} proceeds without {line['site']} since {since}.")
    for site, since in (live.get("left") or {}).items():
        lines.append(f"The study proceeds without {site} since {format_moment(since)}.")
    return lines


def silent_sites(silent: Mapping[str, str | None]) -> str:
    """Describe sites with open labeling tasks that do not report their progress; "" without any.

    >>> silent_sites({"a": "2026-12-05T21:49:24+00:00"})[:44]
    'No progress reported by a (since 5 Dec 2026,'
    """
    if not silent:
        return ""
    names = []
    for site, seen in sorted(silent.items()):
        since = "not yet in this run"
        if seen:
            since = f"since {format_moment(seen)}"
        names.append(f"{site} ({since})")
    return (
        f"No progress reported by {', '.join(names)}: 'fallow coordinate advance' "
        "proceeds with the available labels"
    )


def describe_wait(live: LiveStatus) -> str:
    """Describe the pending sites of an exchange, its deadline, and whether it can proceed."""
    names = ", ".join(live["sites"])
    if not live["can_advance"]:
        way = "it cannot proceed without them below the quorum"
    elif live["is_of_all"]:
        way = "'fallow coordinate advance' proceeds without them for the rest of the study"
    else:
        way = "'fallow coordinate advance' proceeds without them this time"
    return (
        f"Waiting for {names} since {format_moment(live['since'])}, until "
        f"{format_moment(live['until'])} at the latest ({live['key']} needs "
        f"{live['needed']} replies): {way}."
    )


def _about_labels(live: LiveStatus) -> list[str]:
    """Describe the deadline of labeling, or the reason why labeling has ended."""
    if live.get("closing"):
        return [
            f"The {live['tasks']} are being closed {REQUEST}; open "
            "labeling tasks are withdrawn."
        ]
    if live.get("deadline"):
        sentences = [f"Annotators have until {format_moment(live['deadline'])}."]
        silent = silent_sites(live.get("silent") or {})
        if silent:
            sentences.append(f"{silent}.")
        return sentences
    ended = live.get("ended") or {}
    if ended.get("step") != live.get("step") or ended.get("reason") not in CLOSED:
        return []
    many = ended.get("open") or 0
    back = ""
    if many:
        back = f"; {show_count(many)} open labeling tasks were withdrawn"
    return [f"The {ended['tasks']} were closed {CLOSED[ended['reason']]}{back}."]


def caption(live: LiveStatus) -> str:
    """Return the caption of the table of sites."""
    questions = live.get("tasks")
    if not questions:
        return "Sites"
    return f"Sites, and the {questions}"


def site_columns(
    live: LiveStatus, scores: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, list[str]]:
    """Return the columns of the table of sites by heading, with a dash for unknown values.

    The first `WORDS` columns are text. scores: heading -> site -> text.
    """
    is_open = live.get("state") == OPEN
    names = sorted(live["sites"])
    sites = [live["sites"][name] for name in names]
    labels = [site.get("labels") or {} for site in sites]
    columns = {
        "Site": names,
        "Contact": [_contact(site, is_open) for site in sites],
        "Rows": [_count(site.get("rows")) for site in sites],
        "Test rows": [_count(site.get("test")) for site in sites],
    }
    for head, score_of_site in (scores or {}).items():
        columns[head] = [score_of_site.get(name, NOTHING) for name in names]
    alphas = [site.get("alpha") for site in sites]
    if any(alpha is not None for alpha in alphas):
        texts = [NOTHING if alpha is None else f"{alpha:.2f}" for alpha in alphas]
        columns[ALPHA] = texts
    used = [site.get("predictions") for site in sites]
    if any(used):
        columns |= _prediction_columns(used)
    none = [site.get("none_of_these") for site in sites]
    if any(none):
        columns[NONE_OF_THESE] = [_show_none(counts) for counts in none]
    columns |= {
        "Answered": [_count_answers(counts) for counts in labels],
        "No label": [_count(counts.get("declined")) for counts in labels],
        "Open": [_count(counts.get("open")) for counts in labels],
        "Conflicts": [_count(counts.get("conflicts")) for counts in labels],
        "Counted, UTC": [_short_moment(site.get("counted")) for site in sites],
    }
    return columns


def _prediction_columns(
    used: Sequence[Mapping[str, int] | None],
) -> dict[str, list[str]]:
    """Return the columns about labels beside predictions, from the counts of each site."""
    columns: dict[str, list[str]] = {}
    parts = {"Beside": "chosen", "Without": "blind", CONFIRMED: None, "Again": "again"}
    for heading, name in parts.items():
        cells = []
        for counts in used:
            if counts is None:
                cells.append(NOTHING)
            elif name is None:
                cells.append(_count(counts["confirmed"]))
            else:
                cells.append(show_part(counts[f"{name}_agreed"], counts[name]))
        columns[heading] = cells
    return columns


def _show_none(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return NOTHING
    return show_part(counts["none_of_these"], counts["decided"])


def _count_answers(counts: Mapping[str, int]) -> str:
    if not counts:
        return NOTHING
    return show_part(counts["answered"], counts["asked"])


def _contact(site: LiveStatus, is_open: bool) -> str:
    """Return whether a site is connected, and since when it is away or busy."""
    seen = site.get("seen")
    awaited = site.get("awaited")
    if not is_open and seen:
        return f"last seen {_short_moment(seen)}"
    if not is_open:
        return NOTHING
    if not site.get("online") and seen:
        return f"away since {_short_moment(seen)}"
    if not site.get("online"):
        return "not there yet"
    if awaited:
        return f"busy since {_short_moment(awaited)}"
    return "connected"


def _short_moment(iso: str | None) -> str:
    """Return the same in UTC for a narrow column, with non-breaking spaces.

    >>> _short_moment("2026-12-05T21:49:24+00:00").split("\\N{NO-BREAK SPACE}")
    ['5', 'Dec', '21:49']
    """
    if iso is None:
        return NOTHING
    then = datetime.fromisoformat(iso).astimezone(UTC)
    return f"{then.day} {then:%b %H:%M}".replace(" ", "\N{NO-BREAK SPACE}")


def _count(examples: int | None) -> str:
    if examples is None:
        return NOTHING
    return show_count(examples)


def summarize_drift(folder: Path) -> list[str]:
    """Return a sentence on the date of a description and its strongest drift.

    Returns nothing without a description.
    """
    facts = description.read_description(folder)
    if facts is None:
        return []
    at = datetime.fromtimestamp(
        (folder / description.FILE).stat().st_mtime, UTC
    ).isoformat()
    line = f"The data of the sites were described on {format_moment(at)}"
    if not any(column["sites"] for column in facts["columns"]):
        return [f"{line}, without drift between sites (secure aggregation)."]
    strong = []
    for column in facts["columns"]:
        for site in column["sites"]:
            drift = site["drift"] or 0.0
            if drift > (site["chance"] or 0.0):
                strong.append((drift, f"{column['name']} at {site['site']} {drift:.4g}"))
    if not strong:
        return [f"{line}. No drift exceeds the one by chance."]
    strong.sort(key=lambda pair: pair[0], reverse=True)
    return [f"{line}. Strongest drift: {join_words([text for _, text in strong[:3]])}."]
