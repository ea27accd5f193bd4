"""``fallow site``: one site of a study among real machines."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fallow.cli import options as opt
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.labels_files import Key
from fallow.federation.site.labels_io import export_labels, export_questions, import_labels
from fallow.federation.site.serve import live, serve
from fallow.federation.site.terms import leaving, rows_told, terms

site = typer.Typer(
    name="site", help="One site of a study among real machines.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Argument(metavar="SITE", help="The folder of the site.")]
File = Annotated[Path, typer.Argument(help="A .csv or .json file.")]


@site.command()
def init(
    folder: Folder,
    study: Annotated[Path, typer.Option(help="The study.toml that the coordinator sent.")],
    name: Annotated[str, typer.Option(help="Which of its sites this is.")],
    data: Annotated[Path, typer.Option(help="Rows: a table, an .npz file or a folder of images.")],
    test: Annotated[Path | None, typer.Option(help="Labelled rows to test models on.")] = None,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The coordinator's machine.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="The authority.pem that the coordinator sent.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Labels this site ever gives.")] = None,
    annotators: Annotated[int, typer.Option(help="People who must agree on a label.")] = 1,
    epsilon: Annotated[
        float | None, typer.Option(help="What this site ever spends on noise.")
    ] = None,
) -> None:
    """Check the data against the study, make keys, and say what to send to whom."""
    made = SiteFolder.create(
        folder, study, name=name, data=str(data), test=None if test is None else str(test),
        superlink=superlink, certificates=None if ca is None else str(ca), limit=limit,
        annotators=annotators, epsilon=epsilon,
    )  # fmt: skip
    console = opt.console()
    _introduce(console, made)
    digest = made.agreement.digest
    _lines(console, [
        f"\nSend {folder / 'join.json'} to the coordinator: it holds public keys, nothing secret.",
        f"Ask by another way, such as a telephone, whether the study's digest is {digest} there.",
        f"Keep {folder / 'keys'} to yourself, and back up the whole folder.",
        f"Then: fallow site start {folder}",
    ])  # fmt: skip


@site.command()
def start(folder: Folder) -> None:
    """Answer the coordinator until Ctrl-C; the same command goes on after any stop."""
    found, console, stop = SiteFolder.open(folder), opt.console(), Event()
    _introduce(console, found)
    _lines(console, [f"\nTo label: fallow label {folder}", "To end: Ctrl-C; nothing is lost.\n"])
    before = [signal.signal(which, lambda *_: stop.set()) for which in ENDINGS]
    try:
        serve(found, stop, lambda event: _lines(console, [said(event)]))
    finally:
        for which, handler in zip(ENDINGS, before, strict=True):
            signal.signal(which, handler)
    _lines(console, [f"stopped; to go on: fallow site start {folder}"])


ENDINGS = (signal.SIGINT, signal.SIGTERM)


def said(event: dict[str, Any]) -> str:
    """What happened, in one line."""
    if event["event"] == "coordinator":
        if event["problem"] is None:
            return "the coordinator's machine is reached; waiting for orders"
        return f"{event['problem']}; nothing is lost, this site tries again by itself"
    if event["refused"]:
        return f"refused: {event['refused']}"
    return f"answered {event['key']} ({event['bytes']:,} bytes)"


@site.command()
def status(folder: Folder, as_json: opt.Json = False) -> None:
    """What waits for labels, what was sent, what was spent, whether the site is connected."""
    found = SiteFolder.open(folder)
    about = standing(found)
    if as_json:
        typer.echo(json.dumps(about, indent=1))
        return
    console, labels = opt.console(), about["labels"]
    allowed = f" of {about['epsilon_limit']:g}" if about["epsilon_limit"] is not None else ""
    until = f", until {labels['deadline']}" if labels["open"] and labels["deadline"] else ""
    process = f"runs (process {about['pid']}, since {about['since']})" if about["pid"] is not None \
        else f"does not run; start it with: fallow site start {folder}"  # fmt: skip
    _lines(console, [
        f"site {about['site']} of study {about['study']} (digest {about['digest'][:12]})",
        f"process: {process}",
        f"coordinator: {about['problem'] or 'its machine is reached'}",
        f"labels of the newest cycle: {labels['asked']} asked, {labels['answered']} answered, "
        f"{labels['declined']} cannot tell, {labels['conflicts']} in conflict, "
        f"{labels['open']} open{until}",
        f"ε spent on noise: {about['epsilon']:g}{allowed}",
    ])  # fmt: skip
    _table(console, "What left this site", ("run", "verb", "exchanges", "bytes"),
           [tuple(map(str, line.values())) for line in about["sent"]])  # fmt: skip


def standing(folder: SiteFolder) -> dict[str, Any]:
    """What `status` tells, as plain values."""
    with closing(folder.open_ledger()) as ledger:
        waiting = ledger.questions(state="open")
        labels = {**asdict(ledger.progress()), "deadline": waiting[0].deadline if waiting else None}
        epsilon, sent = ledger.store.spent(), [asdict(line) for line in ledger.sent()]
    return {
        "site": folder.name, "study": folder.agreement.name, "digest": folder.agreement.digest,
        **asdict(live(folder)), "labels": labels, "limit": folder.settings.limit,
        "epsilon": epsilon, "epsilon_limit": folder.settings.epsilon, "sent": sent,
    }  # fmt: skip


@site.command("import")
def import_(
    folder: Folder,
    file: File,
    who: Annotated[str, typer.Option(help="Whose labels these are.")] = "imported",
    partial: Annotated[
        bool, typer.Option("--partial", help="Keep the good lines, whatever others are.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be taken.")
    ] = False,
    by: Annotated[Key, typer.Option(help="What names a sample in the file.")] = "id",
) -> None:
    """Take labels from a file, for samples that the study asked for: all of them or none."""
    found = SiteFolder.open(folder)
    about, console = (found.agreement.schema, found.rows, file, who), opt.console()
    with closing(found.open_ledger()) as ledger:
        taken = import_labels(ledger, *about, partial=partial, dry_run=dry_run, by=by)
    would = "would be" if dry_run else "were"
    _lines(console, [
        *taken.refused,
        f"{taken.recorded} labels {would} taken from {file}; {taken.same} were there already, "
        f"{taken.empty} lines have none",
    ])  # fmt: skip
    if taken.refused and not partial:
        raise ValueError(
            f"{len(taken.refused)} lines of {file} were refused, so nothing was taken; correct "
            "them, or give --partial to keep the others"
        )


@site.command()
def export(
    folder: Folder,
    file: File,
    labels: Annotated[
        bool, typer.Option("--labels", help="All labels, and not the open questions.")
    ] = False,
    guess: Annotated[
        bool, typer.Option("--guess", help="With the model's guesses, which sway people.")
    ] = False,
) -> None:
    """Write the open questions to a file, to label them with another tool."""
    found = SiteFolder.open(folder)
    about = (found.agreement.schema, found.rows, file, guess)
    with closing(found.open_ledger()) as ledger:
        many = (export_labels if labels else export_questions)(ledger, *about)
    what = "labels" if labels else "questions"
    _lines(opt.console(), [f"wrote {many} {what} to {file}"])


def _introduce(console: Console, folder: SiteFolder) -> None:
    """The study, the site's rows, and what leaves the site."""
    _lines(console, [f"Site {folder.name}", *terms(folder), *rows_told(folder.rows, folder.tests)])
    _table(console, "What leaves this site", ("part", "verb", "reveals"), leaving(folder))


def _table(
    console: Console, title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


def _lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
