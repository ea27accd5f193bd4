"""``fallow coordinate``: a study among real machines, from the coordinator's side."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from fallow.cli import options as opt
from fallow.cli.coordinate_words import Lines, after_init, show_sites
from fallow.federation.agreement import Waits
from fallow.federation.coordinator.folder import CoordinatorFolder, Plan
from fallow.federation.coordinator.live import Control
from fallow.federation.coordinator.program import Program, is_running
from fallow.federation.schema import schema_of
from fallow.federation.toml import seconds_of
from fallow.lab.recipe import with_settings
from fallow.lab.report_live import read_live, standing
from fallow.recipes import find_recipe

coordinate = typer.Typer(
    name="coordinate", help="Run a study among real machines.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the coordinator.")]
ENDINGS = (signal.SIGINT, signal.SIGTERM)


@coordinate.command()
def init(
    folder: Folder,
    recipe: Annotated[str, typer.Option(help="A recipe's name, or a .toml file.")],
    sites: Annotated[str, typer.Option(help="The names of the sites, e.g. a,b,c.")],
    example: Annotated[Path, typer.Option(help="Rows as sites have them, to take columns from.")],
    label: Annotated[str, typer.Option(help="Column of labels of a table.")] = "label",
    task: Annotated[Literal["auto", "classification", "regression"], typer.Option()] = "auto",
    classes: Annotated[str, typer.Option(help="Their names, if the example lacks some.")] = "",
    ids: Annotated[str, typer.Option(help="Column that names rows.")] = "id",
    name: Annotated[str | None, typer.Option(help="Of the study; by default the folder's.")] = None,
    seed: opt.Seed = 0,
    set_: opt.Settings = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where this machine listens.")
    ] = "0.0.0.0:9092",
    host: Annotated[
        list[str] | None, typer.Option(help="How sites call this machine; may be given again.")
    ] = None,
    quorum: Annotated[int | None, typer.Option(help="Sites that must answer; all.")] = None,
    timeout: Annotated[str, typer.Option(help="An exchange waits for all sites.")] = "10m",
    patience: Annotated[str, typer.Option(help="And so long for the quorum.")] = "7d",
    deadline: Annotated[str, typer.Option(help="What people have for a cycle's labels.")] = "14d",
    smallest: Annotated[int, typer.Option(help="Test rows without which no score is told.")] = 5,
) -> None:
    """Write the agreement, keys and certificates, and say what to do next."""
    listed = tuple(word.strip() for word in classes.split(",") if word.strip())
    schema = schema_of(example, label, task, listed, ids)
    chosen = with_settings(find_recipe(recipe), opt.settings(set_, None, None, None))
    times = {"timeout": timeout, "patience": patience, "deadline": deadline}
    waits = Waits(**{k: seconds_of(v, k) for k, v in times.items()}, quorum=quorum)
    names = tuple(word.strip() for word in sites.split(",") if word.strip())
    study = name or folder.resolve().name
    plan = Plan(study, chosen, schema, names, seed, waits, smallest)
    made = CoordinatorFolder.create(folder, plan, address, host or ())
    _lines(opt.console(), after_init(made, (host or ["HOST"])[0]))


@coordinate.command()
def admit(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="The join.json of one or more sites.")],
    replace: Annotated[bool, typer.Option(help="A site has other keys than before.")] = False,
) -> None:
    """Let sites join by the files that they sent."""
    office, console = CoordinatorFolder.open(folder), opt.console()
    for file in files:
        _lines(console, [f"admitted {office.admit(file, replace)}"])
    missing = office.missing
    rest = (
        f"missing: {', '.join(missing)}" if missing else f"next: fallow coordinate start {folder}"
    )
    _lines(console, [rest])
    if is_running(folder):
        _lines(console, [f"a coordinator is running: stop and start {folder} so that this counts"])


@coordinate.command()
def start(folder: Folder) -> None:
    """Run the study; the same command goes on after any stop."""
    from fallow.runtimes.flower import FlowerLink

    office, console = CoordinatorFolder.open(folder), opt.console()
    keys, agreement = office.keys, office.agreement
    say = Lines(console, agreement)
    nodes = {site: about["node"] for site, about in office.admitted.items()}
    with _stopped_by_signals(folder):
        link = FlowerLink(folder / "flower", office.address, office.tls, nodes, say)
        program = Program(folder, agreement, link, keys, say)
        try:
            is_finished = program.go(link.start)
        finally:
            link.close()
    last = f"report page: {folder / 'report.html'}" if is_finished else \
        f"stopped; to go on: fallow coordinate start {folder}"  # fmt: skip
    _lines(console, [last])


@coordinate.command()
def status(folder: Folder, as_json: opt.Json = False) -> None:
    """How the run stands: what it does, who is awaited, how far people are."""
    office = CoordinatorFolder.open(folder)
    found = read_live(folder) or {"state": "not started", "sites": {}, "refusals": []}
    if found["state"] == "running" and not is_running(folder):
        found["state"] = "stopped"
        found["why"] = "its process has ended"
    about = {"name": office.agreement.name, "digest": office.agreement.digest, **found}
    about["missing"] = office.missing
    if as_json:
        typer.echo(json.dumps(about, indent=1))
        return
    show(opt.console(), about)


def show(console: Console, about: dict[str, Any]) -> None:
    """The state of a run as lines and a table."""
    _lines(console, [f"study {about['name']} (digest {about['digest'][:12]})"])
    if about["state"] == "not started":
        rest = f"; not admitted yet: {', '.join(about['missing'])}" if about["missing"] else ""
        _lines(console, [f"The run was not started yet{rest}."])
        return
    _lines(console, [standing(about)])
    show_sites(console, about)
    for line in about.get("refusals", [])[-3:]:
        _lines(console, [f"{line['at']} {line['site']}: {line['why']}"])


@coordinate.command()
def advance(folder: Folder) -> None:
    """Go on without the labels that people have not given yet."""
    _running(folder)
    found = read_live(folder) or {}
    if found.get("phase") != "people label":
        raise ValueError(f"{folder} does not wait for people now, so there is nothing to cut short")
    Control(folder / "control").tell("advance")
    _lines(opt.console(), ["open questions are given back, and the run goes on within seconds"])


@coordinate.command()
def stop(folder: Folder) -> None:
    """End the coordinator within seconds; nothing is lost, and start goes on."""
    _running(folder)
    Control(folder / "control").tell("stop")
    _lines(opt.console(), [f"stopping; to go on: fallow coordinate start {folder}"])


def _running(folder: Path) -> None:
    CoordinatorFolder.open(folder)
    if not is_running(folder):
        raise ValueError(
            f"no coordinator is running in {folder}; start it with: fallow coordinate start "
            f"{folder}"
        )


@contextmanager
def _stopped_by_signals(folder: Path) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a stop in order; a second one ends at once."""

    def stop(number: int, frame: object) -> None:
        Control(folder / "control").tell("stop")
        for which in ENDINGS:
            signal.signal(which, signal.default_int_handler)

    before = [signal.signal(which, stop) for which in ENDINGS]
    try:
        yield
    finally:
        for which, handler in zip(ENDINGS, before, strict=True):
            signal.signal(which, handler)


def _lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
