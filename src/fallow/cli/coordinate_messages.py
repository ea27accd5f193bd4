"""Messages of a running coordinator, and the table of its sites."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fallow.cli.log_lines import LogLines, find_level
from fallow.cli.terminal import print_event, show_table
from fallow.core.events import Event, describe_score, is_progress
from fallow.core.wording import show_count, show_part
from fallow.deployment.agreement import Agreement
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.coordinator.labels import Ended
from fallow.experiment.methods import is_untrained
from fallow.report.live import (
    WORDS,
    LiveStatus,
    caption,
    describe_wait,
    silent_sites,
    site_columns,
)
from fallow.storage.moments import NOTHING, format_moment

if TYPE_CHECKING:
    from fallow.cli.objects import Admission, AdmittedSite

SECURE_SUMS = (
    "Secure aggregation is on (privacy.secure_sum): you see aggregates over all sites, and no "
    "site's contribution. --set privacy.secure_sum=false turns it off."
)
WIDE = 110  # width of the table of sites
SAME = ("Rows", "Test rows")
"""Columns that are constant within a run."""
RARE = ("No label", "Conflicts")
"""Columns that are mostly zero."""
QUIET = 600.0  # seconds before a line is repeated
ALARMING = ("refused", "failed", "process", "transport")  # printed in red
GOING = ("lost", "waiting", "missing")  # events of sites that do not respond
ENDED: dict[Ended, str] = {
    "settled": "all labeling tasks are done",
    "deadline": "the deadline has passed; open labeling tasks are withdrawn",
    "advance": "labeling was ended; open labeling tasks are withdrawn",
}


@dataclass
class CoordinatorLines:
    """Print a line for each relevant event of a run.

    ``is_ending`` means that a stop was requested, so that disconnecting sites are not reported.
    ``as_json`` prints a JSON object per event.  ``log`` writes log lines instead.
    """

    console: Console
    agreement: Agreement
    is_ending: bool = False
    last: dict[str, tuple[str, float]] = field(default_factory=dict)
    as_json: bool = False
    log: LogLines | None = None

    def __call__(self, event: Event) -> None:
        kind = str(event["event"])
        text = describe_event(event, self.agreement)
        if text is None or (self.is_ending and kind in GOING):
            return

        now = time.monotonic()
        previous_text, printed_at = self.last.get(kind, ("", -QUIET))
        if text == previous_text and now - printed_at < QUIET:
            return
        self.last[kind] = (text, now)

        if self.log is not None:
            self.log.write(find_level(event), kind, text)
            return
        if self.as_json:
            print_event(kind, text)
            return
        clock = datetime.now().strftime("%H:%M:%S")
        style = None
        if kind in ALARMING:
            style = "red"
        self.console.print(f"{clock}  {text}", style=style, markup=False, soft_wrap=True)


def describe_event(event: Event, agreement: Agreement) -> str | None:
    """Describe an event in one line, or return None for irrelevant events.

    >>> describe_event({"event": "waiting", "sites": ["a"], "key": "0/train/0/0"}, None)
    'still waiting for a (0/train/0/0)'
    """
    match event["event"]:
        case "meeting":
            sites = ", ".join(event["sites"])
            return (
                f"waiting for {sites}: they connect automatically, usually within a minute"
            )
        case "arrived":
            if not event["awaited"]:
                return f"{event['site']} has connected"
            return f"{event['site']} has connected; missing: {', '.join(event['awaited'])}"
        case "met" if not event["awaited"]:  # not reported again after a resume
            return f"all sites have connected: {', '.join(event['sites'])}"
        case "round":
            of = f"{event['round'] + 1} of {agreement.config.rounds}"
            return f"cycle {event['cycle']}: round {of}"
        case "query":
            return f"cycle {event['cycle']}: sites select examples"
        case "labels":
            return _describe_labels(event)
        case "labeled":
            return f"{event['tasks']}: {ENDED[event['reason']]}"
        case "agreement":
            return _describe_agreement(event["sites"])
        case "scored":
            return _describe_score(event)
        case "enough":
            return f"cycle {event['cycle']}: stopping criterion met: {event['reason']}"
        case "waiting" if "since" in event:
            return describe_wait(event)
        case "waiting":
            return f"still waiting for {', '.join(event['sites'])} ({event['key']})"
        case "missing" if not is_progress(event):
            return f"proceeded without {', '.join(event['sites'])} ({event['key']})"
        case "lost":
            why = event["reason"]
            if "Node Unavailable" in why:
                why = "it has no connection"
            return f"{event['site']} did not respond and is asked again: {why}"
        case "refused":
            return f"the reply of {event['site']} is discarded: {event['reason']}"
        case "weighed":
            return f"{event['key']}: {event['reason']}"
        case "finished" | "failed" | "stopped":
            if not event.get("reason"):
                return str(event["event"])
            return f"{event['event']}: {event['reason']}"
        case _ if event.get("reason"):
            return str(event["reason"])
        case _:
            return None


def _describe_agreement(alphas: Mapping[str, float | None]) -> str | None:
    """Describe the agreement of the annotators of each site, or return None if none is known."""
    known = [f"{site} {alpha:.2f}" for site, alpha in alphas.items() if alpha is not None]
    if not known:
        return None
    return f"agreement of annotators (Krippendorff's alpha): {', '.join(known)}"


def why_not_advanced(folder: Path, live: LiveStatus) -> str:
    """Explain why the run cannot proceed without pending sites, and how to resolve this."""
    waiting = live["waiting"]
    names = ", ".join(waiting["sites"])
    if live.get("phase") == "registering sites":
        return (
            f"a study starts with all its sites, and {names} did not reply yet: make sure "
            "that they are connected, or create a study without them in a new folder"
        )
    return (
        f"{waiting['key']} needs {waiting['needed']} replies and waits for {names}; "
        "without them, the quorum is not reached, or the aggregate cannot be unmasked: "
        f"get one of them to reply, or stop (fallow coordinate stop {folder}) and resume "
        "later"
    )


def _describe_labels(event: Event) -> str:
    """Describe the labeling progress of each site; an outdated count is marked."""
    parts = {}
    for site, (counts, at) in event["earlier"].items():
        parts[site] = f"{_describe_counts(site, counts)} (as of {format_moment(at)})"
    for site, counts in event["sites"].items():
        parts[site] = _describe_counts(site, counts)

    text = "no site has reported its progress"
    if parts:
        text = "; ".join(parts[site] for site in sorted(parts))
    silent = silent_sites(event.get("silent") or {})
    if silent:
        text += f". {silent}"
    return f"labeling until {format_moment(event['deadline'])}: {text}"


def _describe_counts(site: str, counts: dict[str, int]) -> str:
    settled = counts["answered"] + counts["declined"]
    text = f"{site} {show_part(settled, counts['asked'])}"
    if counts["conflicts"]:
        text += f", {show_count(counts['conflicts'])} in conflict"
    return text


def _describe_score(event: Event) -> str:
    text = f"cycle {event['cycle']}: {event['labeled']} labels"
    score = describe_score(event)
    return f"{text}, {score}" if score else text


def after_init(coordinator_folder: CoordinatorFolder, host: str | None) -> Iterator[str]:
    """Yield the next steps for a new folder.

    ``host`` is the address of this machine for sites, or None if unknown.
    """
    folder = coordinator_folder.path
    agreed = coordinator_folder.agreement
    port = coordinator_folder.address.rpartition(":")[2]
    # whether sites connect from other machines
    is_called = agreed.transport_factory.nearby is None
    if host is None and coordinator_folder.server.is_own and is_called:
        yield (
            "Without --host, the certificate is valid for this machine only (127.0.0.1). "
            f"If sites are on other machines, delete {folder} and give --host, the name "
            "of this machine in their network."
        )
    tests: list[str] = []
    if not is_untrained(agreed.config):
        tests = [
            "(test.csv: other examples, all with labels; without test examples there are "
            "no scores)"
        ]
    yield from [
        f"Wrote {folder / 'study.toml'}: check it, add units and limits of columns if "
        "needed, and have every site agree.",
        "Sites will ask you for the digest of the final file: fallow coordinate "
        f"status {folder}",
        *_about_named_code(agreed),
        f"Send it to the sites ({', '.join(agreed.sites)}). Each runs:",
        f"  fallow site init SITE --study study.toml --name {agreed.sites[0]} --data rows.csv"
        f"{' --test test.csv' if tests else ''}{_address_option(agreed, host, port)}"
        f"{_allow_options(agreed)}",
        *tests,
        "and sends you its join.json. Then:",
        f"  fallow coordinate admit {folder} join.json ...",
        f"  fallow coordinate start {folder}",
        *agreed.transport_factory.describe_start(folder),
        f"Keep {folder / 'keys'} secret, and back up the whole folder.",
    ]


def describe_admitted(admitted: AdmittedSite) -> str:
    """Describe an admitted site."""
    again = " again" if admitted.again else ""
    return (
        f"admitted {admitted.site}{again}; fingerprint of its keys: {admitted.fingerprint}"
    )


def after_admission(result: Admission, folder: Path) -> list[str]:
    """Return the next steps after the admission of sites."""
    if result.missing:
        last = f"missing: {', '.join(result.missing)}"
    elif result.restart:
        last = (
            "The running coordinator uses the previous keys until it is restarted: "
            f"fallow coordinate stop {folder}, then start"
        )
    else:
        last = f"next: fallow coordinate start {folder}"
    return [
        "Verify the fingerprint with each site through another channel, such as a telephone, "
        f"and that the digest of the study is {result.digest}",
        last,
    ]


def _address_option(agreed: Agreement, host: str | None, port: str) -> str:
    """Return the address option for a site's command, or "" if it is not needed."""
    if agreed.transport_factory.nearby is not None:
        return ""
    return f" --address {_host_in_address(host)}:{port}"


def _host_in_address(host: str | None) -> str:
    """Put an IPv6 address in brackets, as required before a port."""
    if host is None:
        return "HOST"
    if ":" in host:
        return f"[{host}]"
    return host


def _about_named_code(agreed: Agreement) -> list[str]:
    """Describe the consequences of third-party code in a study for its sites."""
    allowed = ", ".join(agreed.names.allowed)
    if not allowed:
        return []
    return [
        f"It names code that is not part of Fallow ({allowed}): every site installs the "
        "same package, reviews its code, and allows it."
    ]


def _allow_options(agreed: Agreement) -> str:
    """Return the options that allow the code of the study at a site."""
    allowed = agreed.names.allowed
    return "".join(f" --allow {name}={digest}" for name, digest in allowed.items())


def show_sites(console: Console, live: LiveStatus) -> None:
    """Print the sites of a run as a table, without constant columns in a narrow terminal."""
    columns = site_columns(live)
    if console.width < WIDE:
        for head in SAME:
            del columns[head]
        for head in RARE:
            if set(columns[head]) <= {"0", NOTHING}:
                del columns[head]
    rows = zip(*columns.values(), strict=True)
    show_table(console, caption(live), list(columns), rows, words=WORDS, widest=120)
