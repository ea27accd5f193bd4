"""What a coordinator says while it runs, in lines, and its sites as a table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from fallow.cli.tables import show_table
from fallow.federation.agreement import Agreement
from fallow.federation.coordinator.folder import CoordinatorFolder
from fallow.federation.coordinator.labels import Ended
from fallow.report.live import (
    NOTHING,
    WORDS,
    asked_in,
    caption,
    silent_sites,
    site_columns,
    waited_for,
    when,
)

WIDE = 110  # characters that the table of sites takes
SAME, RARE = ("Rows", "Test rows"), ("Cannot tell", "Conflicts")
"""Columns that stay the same in a run, and those that are mostly zero."""
QUIET = 600.0  # seconds between lines that say the same
GOING = ("lost", "waiting", "missing")  # what is said of sites that do not answer
ENDED: dict[Ended, str] = {
    "settled": "every question is answered",
    "deadline": "the deadline has passed; open questions are given back",
    "advance": "cut short; open questions are given back",
}


@dataclass
class Lines:
    """Takes the events of a run and prints a line for those that people care about.

    ``is_ending``: somebody has asked it to stop; that sites go as well is no news then.
    """

    console: Console
    agreement: Agreement
    is_ending: bool = False
    last: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __call__(self, event: dict[str, Any]) -> None:
        text, kind = said(event, self.agreement), str(event["event"])
        now, (before, at) = time.monotonic(), self.last.get(kind, ("", -QUIET))
        is_known = text == before and now - at < QUIET
        if text is None or is_known or (self.is_ending and kind in GOING):
            return
        self.last[kind] = (text, now)
        stamp = datetime.now().strftime("%H:%M:%S")
        style = "red" if kind in ("refused", "failed", "process", "flower") else None
        self.console.print(f"{stamp}  {text}", style=style, markup=False, soft_wrap=True)


def said(event: dict[str, Any], agreement: Agreement) -> str | None:
    """An event in one line; None for what nobody needs to see.

    >>> said({"event": "waiting", "sites": ["a"], "key": "0/train/0/0"}, None)
    'still waiting for a (0/train/0/0)'
    """
    match event["event"]:
        case "meeting":
            who = ", ".join(event["sites"])
            return f"waiting for {who}: they connect by themselves, usually within a minute"
        case "arrived":
            rest = f"; not yet: {', '.join(event['awaited'])}" if event["awaited"] else ""
            return f"{event['site']} is there{rest}"
        case "met" if not event["awaited"]:  # a run that goes on has met them before
            return f"all sites are there: {', '.join(event['sites'])}"
        case "round":
            of = f"{event['round'] + 1} of {agreement.recipe.rounds}"
            return f"cycle {event['cycle']}: round {of}"
        case "query":
            return f"cycle {event['cycle']}: sites choose rows"
        case "labels":
            return _labels(event)
        case "labelled":
            return f"{asked_in(event['step'])}: {ENDED[event['why']]}"
        case "scored":
            return _scored(event)
        case "waiting" if "since" in event:
            return waited_for(event)
        case "waiting":
            return f"still waiting for {', '.join(event['sites'])} ({event['key']})"
        case "missing" if not event["key"].startswith("progress/"):
            return f"went on without {', '.join(event['sites'])} ({event['key']})"
        case "lost":
            why = (
                "it has no connection"
                if "Node Unavailable" in event["why"]
                else event["why"]
            )
            return f"{event['site']} was not reached, and is asked again: {why}"
        case "refused":
            return f"{event['site']} is not counted: {event['why']}"
        case "clock":
            return (
                f"the clock was set back: it is {when(event['now'])} and was "
                f"{when(event['newest'])}; people have longer by that much"
            )
        case "finished" | "failed" | "stopped":
            return str(event["event"]) + (f": {event['why']}" if event.get("why") else "")
        case _:
            return str(event["why"]) if event.get("why") else None


def why_not_advanced(folder: Path, found: dict[str, Any]) -> str:
    """Why nothing goes on without the sites that an exchange waits for, and what to do."""
    waiting = found["waiting"]
    names = ", ".join(waiting["sites"])
    if found.get("phase") == "meeting sites":
        return (
            f"a study begins with all its sites, and {names} did not answer yet: get it to "
            "answer, or agree on a study without it and begin in a new folder"
        )
    return (
        f"{waiting['key']} needs {waiting['needed']} answers and waits for {names}; too few sites "
        f"would be left for the quorum, or sums are masked: get one of them to answer, or stop "
        f"(fallow coordinate stop {folder}) and go on later"
    )


def _labels(event: dict[str, Any]) -> str:
    now = {site: (n, "") for site, n in event["sites"].items()}
    earlier = {
        site: (n, f" (as of {when(at)})") for site, (n, at) in event["earlier"].items()
    }
    counts = [
        f"{site} {n['answered'] + n['declined']} of {n['asked']}"
        + (f", {n['conflicts']} in conflict" if n["conflicts"] else "")
        + since
        for site, (n, since) in sorted((earlier | now).items())
    ]
    told = "; ".join(counts) or "no site says how far"
    silent = silent_sites(event.get("silent") or {})
    told += f". {silent}" if silent else ""
    return f"people label until {when(event['deadline'])}: {told}"


def _scored(event: dict[str, Any]) -> str:
    score, error = event["accuracy"], event["mse"]
    good = "" if error is None else f", mse {error:.4g}"
    good = good if score is None else f", accuracy {score:.3f}"
    return f"cycle {event['cycle']}: {event['labelled']} labels{good}"


def after_init(office: CoordinatorFolder, host: str | None) -> list[str]:
    """What to do with the folder that was just made; ``host``: how sites call this machine, None:
    nobody has said."""
    folder, agreed, port = office.path, office.agreement, office.address.rpartition(":")[2]
    reached = "HOST" if host is None else f"[{host}]" if ":" in host else host
    alone = [
        "No --host was given, so the certificate is good for this machine alone (127.0.0.1). If "
        f"sites are on others, delete {folder} and give --host, the name by which they reach it."
    ]
    return [
        *(alone if host is None else []),
        f"Wrote {folder / 'study.toml'}: read it, add units and limits of columns if you like, and "
        "have every site agree.",
        f"When it is settled, sites ask you for its digest: fallow coordinate status {folder}",
        *_named_code(agreed),
        f"Send it to the sites ({', '.join(agreed.sites)}). Each runs:",
        f"  fallow site init SITE --study study.toml --name {agreed.sites[0]} --data rows.csv "
        f"--test test.csv --superlink {reached}:{port}{_allowing(agreed)}",
        "(test.csv: other rows, all with labels; without any no score is known)",
        "and sends back its join.json. Then:",
        f"  fallow coordinate admit {folder} join.json ...",
        f"  fallow coordinate start {folder}",
        f"Keep {folder / 'keys'} to yourself, and back up the whole folder.",
    ]


def _named_code(agreed: Agreement) -> list[str]:
    """What a study that names code of others asks of sites."""
    allowed = ", ".join(agreed.names.allowed)
    if not allowed:
        return []
    return [
        f"It names code that did not come with Fallow ({allowed}): every site installs the same, "
        "looks at it, and allows it."
    ]


def _allowing(agreed: Agreement) -> str:
    pairs = agreed.names.allowed.items()
    return "".join(f" --allow {name}={digest}" for name, digest in pairs)


def show_sites(console: Console, about: dict[str, Any]) -> None:
    """The sites of a run as a table; in a narrow terminal without what changes nothing."""
    columns = site_columns(about)
    if console.width < WIDE:
        columns = {
            head: cells
            for head, cells in columns.items()
            if head not in SAME and (head not in RARE or set(cells) - {"0", NOTHING})
        }
    rows = zip(*columns.values(), strict=True)
    show_table(console, caption(about), list(columns), rows, words=WORDS, widest=120)
