"""What a site's commands say, in lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from rich.console import Console

from fallow.cli.log_lines import LogLines, find_level
from fallow.cli.tables import print_event
from fallow.core.events import Event
from fallow.core.words import count_noun
from fallow.federation.card import CARD
from fallow.federation.people import MODEL
from fallow.federation.site.clocks import find_start, format_time
from fallow.report.live import format_moment

if TYPE_CHECKING:
    from fallow.data.facts import DataFacts

FINISH = "model/finish"  # the last exchange of a study


@dataclass
class SiteLines:
    """Prints what happens at a site.  When the study is over it is no news that the coordinator has
    gone."""

    console: Console
    folder: Path
    is_over: bool = False
    as_json: bool = False  # an object of JSON for each, for a program to read
    log: LogLines | None = None  # lines of a log instead of any of this

    def __call__(self, event: Event) -> None:
        if self.is_over and event["event"] == "coordinator":
            return
        last = describe_end(event, self.folder)
        self.is_over = self.is_over or bool(last)
        for line in (describe_event(event), *last):
            if self.log is not None:
                self.log.write(find_level(event), str(event["event"]), line)
                continue
            if self.as_json:
                print_event(str(event["event"]), line)
                continue
            self.console.print(line, markup=False, soft_wrap=True)


def describe_event(event: Event) -> str:
    """What happened, in one line."""
    if event["event"] == "coordinator":
        if event["problem"] is None:
            return "the coordinator's machine is reached; to join takes up to a minute"
        return f"{event['problem']}; nothing is lost, this site tries again by itself"
    if event["event"] == "state":
        return str(event["why"])
    if event["event"] == "encoding":
        return f"encoding rows: {event['done']:,} of {event['rows']:,}"
    if event["refused"]:
        return f"refused: {event['refused']}"
    return f"answered {event['key']} ({event['bytes']:,} bytes)"


def describe_end(event: Event, folder: Path) -> list[str]:
    """What to do when the study has ended."""
    if event["event"] != "order" or event["refused"] or not event["key"].startswith(FINISH):
        return []
    return [
        f"The study is over. Its model and what is known of it: {folder / MODEL}, {folder / CARD}.",
        f"To use it: fallow predict {folder} ROWS. Nothing more is asked; this process may end.",
    ]


def describe_restored(copied: str | None, noise: str | None) -> list[str]:
    """What a ledger that was put back says of itself: of when it is, and what that cost in
    noise."""
    lines = []
    if copied is not None:
        lines.append(
            f"ledger: was put back from its copy of {format_moment(copied)}; labels that were "
            "given here since then are lost, and asked for again if their cycle is still open"
        )
    if noise is not None:
        lines.append(noise)
    return lines


class CountedLabels(TypedDict):
    """How far the people of a site are with the labels of the newest cycle."""

    asked: int
    answered: int
    declined: int
    open: int
    conflicts: int
    deadline: str | None  # of the open questions


class SentAnswers(TypedDict):
    """What left a site by one verb in one run."""

    run: str
    verb: str
    exchanges: int
    bytes: int


class Standing(TypedDict):
    """How a site stands: what 'fallow site status' tells."""

    site: str
    study: str
    digest: str
    pid: int | None  # of the site's process; None: it does not run
    since: str | None  # when that began; None: just now
    problem: str | None  # why the coordinator's machine is not reached
    labels: CountedLabels
    asked: int  # labels in all
    limit: int | None  # of those
    copied: str | None  # of when the copy is that the ledger was put back from
    put_back: str | None  # what that cost in noise
    epsilon: float  # spent on noise
    epsilon_limit: float | None
    delta: float  # spent on Gaussian noise
    delta_limit: (
        float | None
    )  # the site's own, else of one run; None: there is no such noise
    sent: list[SentAnswers]
    news: list[str]
    data: DataFacts | Unread  # the site's own rows


class Unread(TypedDict):
    """Why nothing can be said of a site's own rows."""

    problem: str


def describe_status_of_data(data: Mapping[str, object]) -> list[str]:
    """The box about the site's own rows, or why there is none."""
    from fallow.data.facts import format_facts

    if "problem" in data:
        return [f"Your data: {cast(Unread, data)['problem']}"]
    return format_facts(cast("DataFacts", data))


def describe_limit(about: Standing) -> str:
    """Behind the labels that were asked for: how many there may be; nothing without a limit."""
    limit = about["limit"]
    if limit is None:
        return ""
    text = f" of {limit} at most"
    if about["asked"] >= limit:
        text += "; nobody is asked for more"
    return text


def describe_process(about: Standing, folder: Path) -> str:
    """Whether the site's process runs, and how to start it."""
    if about["pid"] is None:
        return f"does not run; start it with: fallow site start {folder}"
    if about["since"] is None:
        return "has just been started"
    return f"runs (process {about['pid']}, since {format_moment(about['since'])})"


def describe_leaving(run: str, labels: int, now: float) -> list[str]:
    """What it means to leave a run, before somebody decides."""
    start = find_start(run)
    if start is None:
        began_at = "its name does not say when it began"
    else:
        began_at = f"began at {format_time(start)} by the coordinator's clock"
    return [
        f"Newest run: {run}; {began_at}, and it is {format_time(now)} here.",
        "Leave it only where that time is wrong, and the coordinator begins another run.",
        f"Kept: {count_noun(labels, 'label')}, all answers and their history, what was spent on noise, "
        "all limits and what they count, the keys.",
        "Lost: the models and picks that the site remembers of this run; its open questions are",
        "closed and asked again only if they are chosen again. The run can never go on here.",
    ]
