"""Messages of the commands of a site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console

from fallow.cli.log_lines import LogLines, find_level
from fallow.cli.terminal import print_event
from fallow.core.events import Event
from fallow.core.wording import count_noun
from fallow.deployment.annotators import MODEL
from fallow.deployment.model_card import CARD
from fallow.deployment.site.schedule import find_start, format_time
from fallow.measurements.meter import describe_exposure
from fallow.storage.moments import format_moment

if TYPE_CHECKING:
    from fallow.data.facts import DataFacts
    from fallow.deployment.site.attack import AttackedSite, ReadExample
    from fallow.deployment.site.status import SiteStatus, UnreadableData


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
    trains: bool = True  # whether the study trains models

    def __call__(self, event: Event) -> None:
        if self.is_over and event["event"] == "coordinator":
            return
        last = describe_end(event, self.folder, trains=self.trains)
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
        return str(event["reason"])
    if event["event"] == "encoding":
        return f"encoding examples: {event['done']:,} of {event['rows']:,}"
    if event["refused"]:
        return f"refused: {event['refused']}"
    return f"replied to {event['key']} ({event['bytes']:,} bytes)"


def describe_end(event: Event, folder: Path, *, trains: bool = True) -> list[str]:
    """Return the next steps after the end of a study, which ``trains`` models or none."""
    if event["event"] != "instruction" or event["refused"]:
        return []
    exchange = event.get("exchange")
    if exchange is None or exchange.phase != "finish":
        return []
    if not trains:
        return [
            f"The study is finished. Summary: {folder / CARD}. You can stop this process."
        ]
    return [
        f"The study is finished. Model and model card: {folder / MODEL}, {folder / CARD}.",
        f"To use it: fallow predict {folder} ROWS. You can stop this process.",
    ]


def describe_restored(copied: str | None, noise: str | None) -> Iterator[str]:
    """Describe a restored ledger: its date, and the privacy budget that was added for safety."""
    if copied is not None:
        yield (
            f"ledger: restored from its copy of {format_moment(copied)}; later labels are "
            "lost, and requested again if their cycle is still open"
        )
    if noise is not None:
        yield noise


def describe_status(status: SiteStatus, folder: Path) -> list[str]:
    """Describe connection, labeling tasks and privacy budget of a site."""
    labels = status["labels"]
    newest = (
        f"labels of the newest cycle: {labels['asked']} asked, {labels['answered']} answered, "
        f"{labels['declined']} without label, {labels['conflicts']} in conflict, "
        f"{labels['open']} open"
    )
    if labels["open"] and labels["deadline"]:
        newest += f", until {format_moment(labels['deadline'])}"
    noise = f"privacy budget spent: ε = {status['epsilon']:g}"
    if status["epsilon_limit"] is not None:
        noise += f" of {status['epsilon_limit']:g}"
    if status["delta_limit"] is not None:
        noise += f"; δ: {status['delta']:g} of {status['delta_limit']:g}"
    none = []
    if status["none_of_these"]:
        share = status["none_of_these"] / status["decided"]
        none = [
            f"none of these: {status['none_of_these']} of {status['decided']} answered examples "
            f"({100 * share:.0f} %) over all runs"
        ]
    sent = []
    if status["exposure"]["numbers"]:
        sent.append(f"sent: {describe_exposure(status['exposure'], hides_small=False)}")
    return [
        f"site {status['site']} of study {status['study']} (digest {status['digest'][:12]})",
        f"process: {describe_process(status, folder)}",
        f"coordinator: {status['problem'] or 'reachable'}",
        *describe_restored(status["copied"], status["put_back"]),
        newest,
        *none,
        *status["agreement"].describe(),
        *status["predictions"].describe(),
        f"labels requested over all runs: {status['asked']}{describe_limit(status)}",
        noise,
        *sent,
        *describe_status_of_data(status["data"]),
    ]


def describe_status_of_data(data: DataFacts | UnreadableData) -> list[str]:
    """Return the summary of the site's data, or the reason why there is none."""
    from fallow.data.facts import format_facts

    if "problem" in data:
        return [f"Your data: {cast('UnreadableData', data)['problem']}"]
    return format_facts(data)


def describe_limit(status: SiteStatus) -> str:
    """Return the label budget after the number of requested labels; "" without a budget."""
    limit = status["limit"]
    if limit is None:
        return ""
    text = f" of {limit}"
    if status["asked"] >= limit:
        text += "; no more labels are requested"
    return text


def describe_process(status: SiteStatus, folder: Path) -> str:
    """Describe whether the site's process runs, and how to start it."""
    if status["pid"] is None:
        return f"does not run; start it with: fallow site start {folder}"
    if status["since"] is None:
        return "was just started"
    return f"runs (process {status['pid']}, since {format_moment(status['since'])})"


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


SHOWN_EXAMPLES = 2
SHOWN_COLUMNS = 20
"""Size of the table of attacked examples in the terminal."""


def list_examples(attacked: AttackedSite) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table with the examples that an attack computed best."""
    heads = ["Column"]
    shown = attacked.examples[:SHOWN_EXAMPLES]
    errors = ["largest error"]
    cells = []
    for example in shown:
        heads += [example.name, "computed"]
        errors += ["", f"{example.error:.2g} sd"]
        cells.append(example.cells or _format_values(example, attacked.columns))
    rows = []
    if shown:
        rows.append(errors)
        for column in list(cells[0])[:SHOWN_COLUMNS]:
            row = [column]
            for of_example in cells:
                row += of_example[column]
            rows.append(row)
    return heads, rows


def _format_values(
    example: ReadExample, columns: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Return true and computed values by column."""
    values = zip(columns, example.true, example.computed, strict=True)
    return {column: (f"{true:.5g}", f"{computed:.5g}") for column, true, computed in values}
