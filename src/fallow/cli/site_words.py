"""Messages of the commands of a site."""

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
from fallow.deployment.card import CARD
from fallow.deployment.people import MODEL
from fallow.deployment.site.clocks import find_start, format_time
from fallow.report.live import format_moment

if TYPE_CHECKING:
    from fallow.data.facts import DataFacts

FINISH = "model/finish"  # last exchange of a study


@dataclass
class SiteLines:
    """Print the events at a site.

    After the end of the study, a disconnected coordinator is not reported.
    """

    console: Console
    folder: Path
    is_over: bool = False
    as_json: bool = False  # print JSON objects
    log: LogLines | None = None  # write log lines instead

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
    """Describe an event in one line."""
    if event["event"] == "coordinator":
        if event["problem"] is None:
            return "the coordinator is reachable; joining takes up to a minute"
        return f"{event['problem']}; nothing is lost, and this site retries automatically"
    if event["event"] == "state":
        return str(event["why"])
    if event["event"] == "encoding":
        return f"encoding examples: {event['done']:,} of {event['rows']:,}"
    if event["refused"]:
        return f"refused: {event['refused']}"
    return f"replied to {event['key']} ({event['bytes']:,} bytes)"


def describe_end(event: Event, folder: Path) -> list[str]:
    """Return the next steps after the end of the study."""
    if event["event"] != "order" or event["refused"] or not event["key"].startswith(FINISH):
        return []
    return [
        f"The study is finished. Model and model card: {folder / MODEL}, {folder / CARD}.",
        f"To use it: fallow predict {folder} ROWS. You can stop this process.",
    ]


def describe_restored(copied: str | None, noise: str | None) -> list[str]:
    """Describe a restored ledger: its date, and the privacy budget that was added for safety."""
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
    """Labeling progress of a site in the newest cycle."""

    asked: int
    answered: int
    declined: int
    open: int
    conflicts: int
    deadline: str | None  # of the open labeling tasks


class SentAnswers(TypedDict):
    """Replies of one client function that left the site in one run."""

    run: str
    verb: str
    exchanges: int
    bytes: int


class Standing(TypedDict):
    """State of a site, as shown by 'fallow site status'."""

    site: str
    study: str
    digest: str
    pid: int | None  # process of the site; None: not running
    since: str | None  # start time; None: just now
    problem: str | None  # why the coordinator is unreachable
    labels: CountedLabels
    asked: int  # total number of requested labels
    limit: int | None  # label budget
    copied: str | None  # date of the backup that was restored
    put_back: str | None  # privacy budget charged for the restore
    epsilon: float  # privacy budget spent
    epsilon_limit: float | None
    delta: float  # spent on Gaussian noise
    delta_limit: (
        float | None
    )  # the site's own, else of one run; None: there is no such noise
    sent: list[SentAnswers]
    news: list[str]
    data: DataFacts | Unread  # the site's own rows


class Unread(TypedDict):
    """Reason why the data of the site cannot be read."""

    problem: str


def describe_status_of_data(data: Mapping[str, object]) -> list[str]:
    """Return the summary of the site's data, or the reason why there is none."""
    from fallow.data.facts import format_facts

    if "problem" in data:
        return [f"Your data: {cast(Unread, data)['problem']}"]
    return format_facts(cast("DataFacts", data))


def describe_limit(standing: Standing) -> str:
    """Return the label budget after the number of requested labels; "" without a budget."""
    limit = standing["limit"]
    if limit is None:
        return ""
    text = f" of {limit} at most"
    if standing["asked"] >= limit:
        text += "; no more labels are requested"
    return text


def describe_process(standing: Standing, folder: Path) -> str:
    """Describe whether the site's process runs, and how to start it."""
    if standing["pid"] is None:
        return f"does not run; start it with: fallow site start {folder}"
    if standing["since"] is None:
        return "was just started"
    return f"runs (process {standing['pid']}, since {format_moment(standing['since'])})"


def describe_leaving(run: str, labels: int, now: float) -> list[str]:
    """Describe the consequences of leaving a run."""
    start = find_start(run)
    if start is None:
        began_at = "its start time is unknown"
    else:
        began_at = f"began at {format_time(start)} by the coordinator's clock"
    return [
        f"Newest run: {run}; {began_at}, and it is {format_time(now)} here.",
        "Leave it only if that time is wrong and the coordinator starts another run.",
        f"Kept: {count_noun(labels, 'label')}, all replies and their history, the privacy budget "
        "spent, all limits with their counts, the keys.",
        "Lost: the site's models and selected examples of this run. Its open labeling tasks are",
        "closed, and repeated only if selected again. This site can never resume the run.",
    ]
