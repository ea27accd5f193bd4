"""``fallow coordinate``: coordinator of a study across real sites."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console

from fallow.cli import coordinate_options as of
from fallow.cli import options as opt
from fallow.cli.arguments import check_arguments
from fallow.cli.stop import stopped_by_signals
from fallow.cli.terminal import print_lines
from fallow.core.optional import check_full_install
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.folders import check_coordinator
from fallow.privacy.settings import Sums
from fallow.storage.errors import Stopped

if TYPE_CHECKING:
    from fallow.cli.coordinate_messages import CoordinatorLines
    from fallow.core.events import EventHandler
    from fallow.core.load_options import LoadKeywords
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.deployment.schema import Schema
    from fallow.report.live_state import Status
    from fallow.settings.config import ExperimentConfig
    from fallow.transport.gathering import Keys

coordinate = typer.Typer(
    name="coordinate",
    help="Run the coordinator of a federation: init, admit, then start.",
    no_args_is_help=True,
)
coordinate.callback()(opt.restrict_permissions)
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="Coordinator folder, as created by 'init'",
        callback=check_coordinator,
    ),
]


@coordinate.command()
@opt.shows("fallow.cli.objects:NewFederation")
@opt.takes_settings("plan", AnswerPlan, AnswerPlan.DESCRIPTIONS)
def init(
    folder: of.FolderToCreate,
    config: of.ExperimentConfig,
    sites: of.Sites,
    example: of.Example,
    label: of.Label = "label",
    task: of.Task = "auto",
    classes: of.Classes = "",
    ids: of.Ids = "id",
    text: of.Texts = "",
    name: of.Name = None,
    seed: of.Seed = 0,
    sums: of.HowSums = None,
    set_: opt.Settings = None,
    address: of.Address = None,
    host: of.Hosts = None,
    transport: of.Transport = "https",
    certificate: of.Certificate = None,
    certificate_key: of.CertificateKey = None,
    ca: of.CertificateAuthority = None,
    clients: of.Clients = None,
    behind_proxy: of.BehindProxy = False,
    quorum: of.Quorum = None,
    timeout: of.Timeout = "10m",
    patience: of.Patience = "7d",
    deadline: of.Deadline = "14d",
    guideline: of.Guideline = None,
    plan: AnswerPlan = SINGLE,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Create the study agreement (study.toml), keys and certificates.

    For example:

    fallow coordinate init heart --config demo --sites basel,bern \\
    --example rows.csv --label disease --sums exact --host fallow.example.org
    """
    check_arguments(config, opt.strategies_set(set_), set_)
    from fallow.cli.coordinate_messages import SECURE_SUMS, after_init
    from fallow.cli.objects import NewFederation
    from fallow.configs.defaults import check_specified
    from fallow.deployment.agreement import Timeouts, read_guideline
    from fallow.deployment.building import with_secure_sums
    from fallow.deployment.coordinator.folder import CoordinatorFolder, Server, StudyPlan
    from fallow.deployment.schema import schema_of
    from fallow.deployment.site.agreement_text import describe_planned
    from fallow.deployment.study_file import SECURE_SUM, SUMS, names_secure_sum
    from fallow.deployment.toml import parse_duration
    from fallow.experiment.methods import is_untrained, with_pages
    from fallow.settings.config import with_settings
    from fallow.settings.sums import describe_sums, with_sums

    listed = opt.split_names(classes)
    pairs = list(set_ or ())
    if sums is not None:
        pairs.append(f"{SUMS}={sums}")
    base, changes = opt.read_config(config, opt.settings(pairs, None, {}))
    named = opt.split_names(sites)
    written = with_settings(base, changes)
    check_specified(changes, written, [str(written.strategy)])
    chosen = written
    if SECURE_SUM not in changes and not names_secure_sum(config):
        chosen = with_secure_sums(written, len(named))
    has_turned_on = chosen != written
    if chosen.privacy.sums is None and chosen.privacy.epsilon is None:
        is_asked = sys.stdin.isatty() and not quiet and not as_json
        chosen = with_sums(chosen, _ask_for_sums(chosen, is_asked=is_asked))
    # examples with empty cells are dropped, or a frozen model does not support them
    needs_whole = chosen.drop_rows or chosen.features is not None
    left_out: list[str] = []  # notes on columns of the example
    schema = schema_of(
        example,
        label,
        task,
        listed,
        ids,
        needs_whole=needs_whole,
        texts=opt.split_names(text),
        trains=not is_untrained(chosen),
        notify=left_out.append,
        options=with_pages(chosen, chosen),
    )
    waits = Timeouts(
        timeout=parse_duration(timeout, "timeout"),
        patience=parse_duration(patience, "patience"),
        deadline=parse_duration(deadline, "deadline"),
        quorum=quorum,
    )
    guidelines = None
    if guideline is not None:
        guidelines = read_guideline(guideline)
    study = StudyPlan(
        name=name or folder.resolve().name,
        config=chosen,
        schema=schema,
        sites=named,
        seed=seed,
        waits=waits,
        guideline=guidelines,
        transport=transport,
        plan=plan,
    )
    server = Server(
        certificate=certificate,
        key=certificate_key,
        authority=ca,
        clients=clients,
        behind_proxy=behind_proxy,
    )
    made = CoordinatorFolder.create(folder, study, address, host or (), server)
    result = NewFederation(
        folder=str(folder),
        study=str(folder / "study.toml"),
        name=made.agreement.name,
        digest=made.agreement.digest,
        sites=made.agreement.sites,
        address=made.address,
        transport=made.agreement.transport,
    )
    called = None  # address of this machine for sites
    if host:
        called = host[0]
    lines = [*left_out, _write_sheet(example, schema, ids, folder / "data.html")]
    lines.append(f"Sums are {describe_sums(made.agreement.config)}.")
    lines += describe_planned(made.agreement)
    if has_turned_on:
        lines.append(SECURE_SUMS)
    lines += after_init(made, called)
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


def _write_sheet(example: Path, schema: Schema, ids: str, page: Path) -> str:
    """Write the data sheet of the example, as the schema reads it; return a line about it."""
    from fallow.data import open_dataset
    from fallow.data.sheet import build_sheet
    from fallow.report.sheet import write_sheet

    if schema.is_done_only:
        return f"{example} has no data sheet, which needs labels."
    options: LoadKeywords = {
        "labels": schema.labels,
        "columns": [column.name for column in schema.columns],
        "classes": schema.classes,
        "physical_range": schema.physical_range,
    }
    if schema.kind == "table" and schema.task != "multilabel":
        options["label"] = schema.label
        options["task"] = schema.task
    if schema.kind == "table" and ids != "id":
        options["id"] = ids
    try:
        dataset = open_dataset(example, **options)
    except ValueError as error:  # such as an example without rows of each class
        return f"{example} has no data sheet: {error}"
    write_sheet(build_sheet(dataset, comes_labeled=False), page)
    return f"Wrote {page}: open it to check how the example was read."


def _ask_for_sums(config: ExperimentConfig, *, is_asked: bool) -> Sums:
    """Ask how the study sends sums; raise ValueError without a terminal or an answer."""
    from fallow.deployment.study_file import NO_SUMS
    from fallow.settings.sums import describe_choices

    if not is_asked:
        raise ValueError(f"{NO_SUMS}: give --sums exact or --sums noisy")
    print_lines(opt.console(), ["How do the sites send sums?", *describe_choices(config)])
    try:
        return cast(Sums, typer.prompt("Sums (exact, noisy)", value_proc=_read_sums))
    except typer.Abort as error:
        raise ValueError(
            "no answer was typed, so nothing was created: give --sums exact or --sums noisy"
        ) from error


def _read_sums(answer: str) -> Sums:
    """Return the answer; BadParameter, after which the question is repeated, for another word."""
    if answer not in get_args(Sums):
        raise typer.BadParameter(f"{answer!r} is not exact or noisy")
    return cast(Sums, answer)


@coordinate.command()
@opt.shows("fallow.cli.objects:Admission")
def admit(
    folder: Folder,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="The join.json of one or more sites"),
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace the keys of an admitted site"),
    ] = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Admit sites by their join files."""
    from fallow.cli.coordinate_messages import after_admission, describe_admitted
    from fallow.cli.objects import Admission, AdmittedSite
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.deployment.coordinator.program import is_running
    from fallow.deployment.joining import fingerprint

    coordinator_folder = CoordinatorFolder.open(folder)
    admitted: list[AdmittedSite] = []
    for file in files:
        before = set(coordinator_folder.admitted)
        site = coordinator_folder.admit(file, replace)
        mark = fingerprint(coordinator_folder.admitted[site])
        admitted.append(AdmittedSite(site, mark, again=site in before))
        if not quiet and not as_json:  # at once, since the next file may be rejected
            print_lines(opt.console(), [describe_admitted(admitted[-1])])
    result = Admission(
        admitted=tuple(admitted),
        missing=tuple(coordinator_folder.missing),
        digest=coordinator_folder.agreement.digest,
        restart=is_running(folder),
    )
    opt.tell(after_admission(result, folder), result, quiet=quiet, as_json=as_json)


@coordinate.command()
@opt.shows("fallow.cli.objects:RevokedSite")
def revoke(
    folder: Folder,
    site: Annotated[str, typer.Argument(metavar="SITE", help="Name of the site")],
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Revoke the keys of a site; the study proceeds without it."""
    from fallow.cli.objects import RevokedSite
    from fallow.deployment.coordinator.absences import explain_too_few
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.deployment.coordinator.program import is_running

    coordinator_folder = CoordinatorFolder.open(folder)
    is_new = coordinator_folder.revoke(site)
    result = RevokedSite(
        site=site,
        again=not is_new,
        reason=explain_too_few(coordinator_folder.agreement, coordinator_folder.revoked),
    )
    lines = [f"revoked the keys of {site}: its messages are no longer accepted"]
    if result.again:
        lines = [f"the keys of {site} were revoked before: its messages are not accepted"]
    if result.reason is not None:
        lines.append(f"The study cannot proceed: {result.reason}")
    elif is_running(folder):
        lines.append(f"The running study proceeds without {site} within seconds")
    else:
        lines.append(f"From the next start, the study proceeds without {site}")
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


@coordinate.command()
@opt.shows("fallow.cli.objects:EventLine")
def start(
    folder: Folder,
    track: opt.Track = None,
    new_run: Annotated[
        bool,
        typer.Option("--new-run", help="Begin a new run; the labels at the sites count"),
    ] = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsLines = False,
    log_format: opt.LogForm = None,
) -> None:
    """Start or resume the study; stop it with Ctrl-C or 'stop'."""
    from fallow.cli.coordinate_messages import CoordinatorLines
    from fallow.cli.log_lines import open_log
    from fallow.core.events import Event
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.deployment.coordinator.live import Control
    from fallow.deployment.coordinator.program import alone, set_run_aside
    from fallow.deployment.folders import tighten
    from fallow.study.callbacks import CallbackList, load_tracker
    from fallow.study.study_run import StudyRun
    from fallow.transport.kinds import check_packages

    opt.check_log(log_format, as_json=as_json)
    # first, since a package may be missing
    check_full_install("the report of a coordinator")
    trackers = [load_tracker(name, folder) for name in dict.fromkeys(track or ())]
    coordinator_folder = CoordinatorFolder.open(folder)
    keys = coordinator_folder.keys
    agreement = coordinator_folder.agreement
    log = open_log(log_format, agreement.name, "coordinator")
    console = opt.console(quiet=quiet or as_json or log is not None)
    with alone(folder):  # raises before it affects a running coordinator
        Control(folder / "control").forget("stop")
        print_lines(
            console, [f"study {agreement.name}, at {coordinator_folder.address}: starting"]
        )
        coordinator_folder.check_machine()
        tightened = tighten(folder)
        if tightened is not None:
            print_lines(console, [tightened])
    check_packages(agreement.transport_factory)

    notify = CoordinatorLines(console, agreement, as_json=as_json, log=log)
    run = StudyRun(str(agreement.config.strategy), agreement.seed)
    if new_run:
        aside = set_run_aside(folder, run.folder(folder))
        if aside is not None:
            print_lines(console, [f"the files of the earlier run are in {aside}"])
    callback_list = CallbackList(
        trackers, agreement.config, [run], opt.warn, agreement.name
    )
    track_event = callback_list.follow(run)

    def say_and_track(event: Event) -> None:
        notify(event)
        track_event(event)

    log_context: AbstractContextManager[None] = nullcontext()
    if log is not None:
        log_context = log.around()
    with log_context, callback_list:
        is_finished = _run_program(coordinator_folder, keys, say_and_track, notify)
        if is_finished:
            callback_list.end(folder / "report.html")
    if is_finished:
        print_lines(console, [f"report page: {folder / 'report.html'}"])
    else:
        print_lines(console, [f"stopped; to resume: fallow coordinate start {folder}"])


@coordinate.command()
@opt.shows("fallow.measurements.description:Description")
def describe(
    folder: Folder, quiet: opt.Quiet = False, as_json: opt.AsObject = False
) -> None:
    """Describe the data of all sites, before the study starts.

    All sites must be connected. Afterwards, 'start' runs the study.
    """
    check_full_install("the report of a coordinator")
    from fallow.deployment.coordinator.describing import explain_no_description
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.measurements.description import FILE, read_description
    from fallow.report.description import format_description

    coordinator_folder = CoordinatorFolder.open(folder)
    why = explain_no_description(coordinator_folder.agreement)
    if why is not None:
        raise ValueError(why)
    if not (folder / FILE).exists():
        _collect_description(coordinator_folder, quiet=quiet or as_json)
    facts = read_description(folder)
    if facts is None:
        raise ValueError(
            f"{folder / FILE} is not the description of a study; delete it and describe again"
        )
    lines = [*format_description(facts), f"report page: {folder / 'report.html'}"]
    opt.tell(lines, facts, quiet=quiet, as_json=as_json)


def _collect_description(coordinator_folder: CoordinatorFolder, *, quiet: bool) -> None:
    """Run the exchanges of a description, without the study."""
    from fallow.cli.coordinate_messages import CoordinatorLines
    from fallow.core.events import Event
    from fallow.deployment.coordinator.live import Control
    from fallow.deployment.coordinator.program import alone
    from fallow.measurements.description import DESCRIBE, FILE
    from fallow.transport.kinds import check_packages

    with alone(coordinator_folder.path):  # a running coordinator uses the port
        Control(coordinator_folder.path / "control").forget("stop")
        coordinator_folder.check_machine()
    check_packages(coordinator_folder.agreement.transport_factory)
    lines = CoordinatorLines(opt.console(quiet=quiet), coordinator_folder.agreement)

    def notify(event: Event) -> None:
        if event["event"] != "stopped" or not (coordinator_folder.path / FILE).exists():
            lines(event)
        is_here = event.get("key", "").startswith(DESCRIBE.phase_name)
        if event["event"] == "refused" and is_here:
            raise ValueError(f"site {event['site']} sent no counts: {event['reason']}")

    if _run_program(
        coordinator_folder, coordinator_folder.keys, notify, lines, describes=True
    ):
        raise ValueError(
            f"the study in {coordinator_folder.path} has ended, and data can be described only "
            f"before: describe them in a new folder"
        )


def _run_program(
    coordinator_folder: CoordinatorFolder,
    keys: Keys,
    notify: EventHandler,
    lines: CoordinatorLines,
    *,
    describes: bool = False,
) -> bool:
    """Run a study, or describe its data; return False if it was stopped."""
    from fallow.deployment.coordinator.live import Control
    from fallow.deployment.coordinator.program import Program

    def stop() -> None:
        lines.is_ending = True
        Control(coordinator_folder.path / "control").tell("stop")

    with stopped_by_signals(stop):
        transport = coordinator_folder.open_transport(notify)
        program = Program(
            coordinator_folder.path,
            coordinator_folder.agreement,
            transport,
            keys,
            notify,
            revoked=lambda: coordinator_folder.revoked,
            describes=describes,
        )
        try:
            return program.go()
        except KeyboardInterrupt as error:  # a second Ctrl-C
            raise Stopped(
                "stopped at once; all accepted replies are stored. To resume: fallow coordinate start "
                f"{coordinator_folder.path}"
            ) from error
        finally:
            transport.close()


@coordinate.command()
@opt.shows("fallow.report.live_state:Status")
def status(folder: Folder, as_json: opt.AsObject = False) -> None:
    """Show progress: phase, pending sites, labeling progress."""
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.deployment.coordinator.status import collect_status
    from fallow.report.live import summarize_drift

    details = collect_status(CoordinatorFolder.open(folder))
    details["forecast"] = _forecast(folder)
    details["headline"] = _headline(folder)
    details["measured"] = list_measured_values(folder)
    details["description"] = summarize_drift(folder)
    if as_json:
        opt.print_json(details)
        return
    show(opt.console(), details)


def _forecast(folder: Path) -> list[str]:
    """Describe the forecast and the reason for an early stop; empty without scores."""
    if not (folder / "study.json").exists():
        return []
    from fallow.configs.papers import load_paper_results
    from fallow.report.forecast import describe_forecasts, list_stops
    from fallow.study.reading import read_study

    study = read_study(folder, load_paper_results())
    return [*list_stops(study), *describe_forecasts(study)]


def _headline(folder: Path) -> str | None:
    """Return the first sentence of the report, or None before the report has one."""
    if not (folder / "study.json").exists():
        return None
    from fallow.report.sentences import read_headline

    return read_headline(folder)


def list_measured_values(folder: Path) -> list[str]:
    """Return a sentence about each measurement of the setting ``measure``; empty without scores."""
    if not (folder / "study.json").exists():
        return []
    from fallow.report.measured import describe_measured
    from fallow.study.reading import read_study

    study = read_study(folder)
    return list(describe_measured(study, study.strategies[0]))


def show(console: Console, status: Status) -> None:
    """Print the state of a run as lines and a table."""
    from fallow.cli.coordinate_messages import show_sites
    from fallow.report.live import describe_standing, without
    from fallow.storage.moments import format_moment

    print_lines(console, [f"study {status['name']} (digest {status['digest']})"])
    if status["state"] == "not started":
        line = "The run has not been started"
        if status["missing"]:
            line += f"; not admitted yet: {', '.join(status['missing'])}"
        print_lines(console, [f"{line}."])
        return
    print_lines(console, [describe_standing(status)])
    headline = status.get("headline")
    if headline:
        print_lines(console, [headline])
    print_lines(console, status.get("measured", []))
    print_lines(console, without(status))
    print_lines(console, status["description"])
    show_sites(console, status)
    print_lines(console, status.get("forecast", []))
    for refusal in (status.get("refusals") or [])[-3:]:
        when = format_moment(refusal["at"])
        origin = f"{refusal['site']} {refusal['exchange']}".strip()
        print_lines(console, [f"{when}  {origin}: {refusal['reason']}"])
    if status["hidden"]:
        print_lines(console, [status["hidden"]])


@coordinate.command()
@opt.shows("fallow.cli.objects:Advance")
def advance(
    folder: Folder, quiet: opt.Quiet = False, as_json: opt.AsObject = False
) -> None:
    """Proceed without pending labels or sites.

    Sites that do not reply during feature scaling are excluded for the rest of the study.
    """
    from fallow.cli.coordinate_messages import why_not_advanced
    from fallow.cli.objects import Advance
    from fallow.deployment.coordinator.live import LABELING, Control
    from fallow.deployment.coordinator.status import collect_status

    status = collect_status(_running(folder))
    control = Control(folder / "control")
    if status.get("phase") == LABELING:
        control.tell("advance")
        line = "open labeling tasks are withdrawn, and the run proceeds within two minutes"
        opt.tell([line], Advance(labels=True), quiet=quiet, as_json=as_json)
        return
    waiting = status.get("waiting")
    if not waiting:
        raise ValueError(
            f"{folder} waits neither for labels nor unusually long for a site, so there "
            "is nothing to proceed without"
        )
    if not waiting["can_advance"]:
        raise ValueError(why_not_advanced(folder, status))
    control.tell("advance")
    result = Advance(labels=False, sites=tuple(waiting["sites"]))
    line = f"the study proceeds without {', '.join(result.sites)} within seconds"
    opt.tell([line], result, quiet=quiet, as_json=as_json)


@coordinate.command()
@opt.shows("fallow.cli.objects:Stopping")
def stop(folder: Folder, quiet: opt.Quiet = False, as_json: opt.AsObject = False) -> None:
    """Stop the coordinator; 'start' resumes the study."""
    from fallow.cli.objects import Stopping
    from fallow.deployment.coordinator.live import Control

    _running(folder)
    Control(folder / "control").tell("stop")
    result = Stopping(str(folder))
    line = f"stopping; to resume: fallow coordinate start {result.folder}"
    opt.tell([line], result, quiet=quiet, as_json=as_json)


def _running(folder: Path) -> CoordinatorFolder:
    """Return the folder of a running coordinator. Raises ValueError if none is running."""
    from fallow.deployment.coordinator.folder import CoordinatorFolder
    from fallow.deployment.coordinator.program import is_running

    coordinator_folder = CoordinatorFolder.open(folder)
    if not is_running(folder):
        raise ValueError(
            f"no coordinator is running in {folder}; start it with: fallow coordinate start "
            f"{folder}"
        )
    return coordinator_folder
