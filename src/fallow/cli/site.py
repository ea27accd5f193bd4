"""``fallow site``: site of a study across real sites."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from fallow.cli import options as opt
from fallow.cli.stop import stopped_by_signals
from fallow.cli.terminal import print_lines, show_table
from fallow.deployment.descriptions import OF_FILE, SITE, as_help
from fallow.deployment.folders import check_site

if TYPE_CHECKING:
    from fallow.deployment.agreement import Agreement
    from fallow.deployment.site.budget import ProposedLimit
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.labeling_tools import (
        DisplayedContent,
        LabelingTool,
        ShowRow,
    )
    from fallow.deployment.site.settings import Settings

site = typer.Typer(
    name="site",
    help="Run a site of a federation: init, send join.json to the coordinator, then start.",
    no_args_is_help=True,
)
site.callback()(opt.restrict_permissions)
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="SITE", help="Site folder, as created by 'init'", callback=check_site
    ),
]
File = Annotated[Path, typer.Argument(help="A .csv file, or a file of the --tool")]
Tool = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Installed labeling tool with this file format; site.toml must allow it",
    ),
]
Server = Annotated[
    str,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="Labeling tool of an installed package; site.toml must allow the package",
    ),
]

FolderToCreate = Annotated[Path, typer.Argument(metavar="SITE", help="Folder to create")]
Data = Annotated[
    Path,
    typer.Option(
        help=as_help(
            SITE["data"], "a table (.csv, .parquet), an .npz file or a folder of images"
        )
    ),
]
Tests = Annotated[Path | None, typer.Option(help=as_help(SITE["test"]))]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help=as_help(SITE["address"], "default: that of the transport"),
    ),
]
Proxy = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=as_help(SITE["proxy"]),
    ),
]
OwnCertificate = Annotated[
    Path | None,
    typer.Option(help=as_help(SITE["own_certificate"])),
]
OwnKey = Annotated[Path | None, typer.Option(help=as_help(SITE["own_key"]))]
Authority = Annotated[
    Path | None,
    typer.Option(help=as_help(SITE["certificates"])),
]
Limit = Annotated[
    int | None,
    typer.Option(
        help=as_help(SITE["limit"], "asked by default; with --digest, the proposal")
    ),
]
Digest = Annotated[
    str | None,
    typer.Option(
        help="Study digest from the coordinator, 8 characters or more (default: asks)"
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=DIGEST",
        help=as_help(SITE["allow"], "repeatable"),
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(help=as_help(SITE["epsilon"])),
]

Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", help="List disclosures by client function instead of by kind"
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(help=as_help(SITE["delta"])),
]


@site.command()
@opt.shows("fallow.cli.objects:NewSite")
@opt.reads_data(OF_FILE, SITE)
def init(
    folder: FolderToCreate,
    study: Annotated[Path, typer.Option(help="The study.toml from the coordinator")],
    name: Annotated[str, typer.Option(help=as_help(SITE["name"]))],
    data: Data,
    test: Tests = None,
    *,
    loading: opt.Loading,
    address: Address = None,
    proxy: Proxy = None,
    own_certificate: OwnCertificate = None,
    own_key: OwnKey = None,
    ca: Authority = None,
    limit: Limit = None,
    annotators: Annotated[int, typer.Option(help=as_help(SITE["annotators"]))] = 1,
    adjudicators: Annotated[
        str,
        typer.Option(metavar="NAMES", help=as_help(SITE["adjudicators"], "e.g. ann,bob")),
    ] = "",
    epsilon: Epsilon = None,
    delta: Delta = None,
    digest: Digest = None,
    allow: Allow = None,
    verbose: Verbose = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Join a study: verify its fingerprint, check the data and create keys.

    Type the digest of the study that you receive from the coordinator through another channel,
    such as a telephone. No code that the file names runs before that. The command then
    checks the data and prints the next steps.

    For example:

    fallow site init basel-site --study study.toml --name basel \\
    --data rows.csv --test test.csv --address fallow.example.org:9092
    """
    from fallow.cli.objects import NewSite
    from fallow.data.sheet import build_sheet
    from fallow.deployment.folders import check_free
    from fallow.deployment.joining import fingerprint
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.own_data import collect_own_data
    from fallow.deployment.site.settings import Settings
    from fallow.deployment.study_file import read_agreement
    from fallow.report.sheet import write_sheet

    check_free(folder)
    if digest is None and (quiet or as_json):
        raise ValueError(
            "--quiet and --json do not prompt: give the digest of the study, as received "
            "from the coordinator, with --digest"
        )
    console = opt.console(quiet=quiet or as_json)
    settings: dict[str, Any] = {
        "name": name,
        "data": str(data),
        "test": opt.as_text(test),
        **loading,
        "address": address,
        "proxy": proxy,
        "own_certificate": opt.as_text(own_certificate),
        "own_key": opt.as_text(own_key),
        "certificates": opt.as_text(ca),
        "limit": limit,
        "annotators": annotators,
        "adjudicators": opt.split_names(adjudicators),
        "epsilon": epsilon,
        "delta": delta,
        "allow": _read_allowed(allow or []),
    }
    chosen = Settings(**settings)
    agreement = read_agreement(study, chosen.names)
    confirmed = _confirm(console, study, agreement, chosen, digest)
    made = SiteFolder.create(
        folder,
        study,
        confirmed,
        partial(_choose_limit, console, is_asked=digest is None),
        **settings,
    )
    _introduce(console, made, verbose=verbose)
    sheet = build_sheet(collect_own_data(made), comes_labeled=False)
    page = folder / "data.html"
    write_sheet(sheet, page)
    result = NewSite(
        folder=str(folder),
        join=str(folder / "join.json"),
        site=made.name,
        study=made.agreement.name,
        digest=made.agreement.digest,
        fingerprint=fingerprint(made.joined),
        rows=len(made.rows.ids),
        labeled=made.rows.labeled,
        limit=made.settings.limit,
    )
    if as_json:
        opt.print_json(result)
    print_lines(
        console,
        [
            f"\nWrote {page}: open it to check how your data were read. It shows examples, so",
            "it is for users of this site only.",
            f"Send {result.join} to the coordinator. It contains public keys only.",
            "Then verify with the coordinator through another channel, such as a telephone, that",
            f"  the digest of the study is {result.digest}",
            f"  the fingerprint of your keys is {result.fingerprint}",
            f"Keep {folder / 'keys'} secret, and back up the whole folder.",
            *_ask_for_address(made),
            f"Then: fallow site start {folder}",
        ],
    )


def _ask_for_address(made: SiteFolder) -> list[str]:
    """Return what to add to ``site.toml`` if the address of the coordinator was not given."""
    if made.settings.address is not None:
        return []
    settings = made.path / "site.toml"
    return [f'Write address = "host:port" of the coordinator into {settings} (--address).']


@site.command()
@opt.shows("fallow.cli.objects:EventLine")
def start(
    folder: Folder,
    verbose: Verbose = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsLines = False,
    log_format: opt.LogForm = None,
) -> None:
    """Start or resume the site; stop it with Ctrl-C.

    It first prints what will leave this site.
    """
    from fallow.cli.log_lines import open_log
    from fallow.cli.site_messages import SiteLines, describe_restored
    from fallow.deployment.folders import tighten
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.serve import only_server, serve
    from fallow.experiment.methods import is_untrained
    from fallow.transport.kinds import check_packages

    opt.check_log(log_format, as_json=as_json)
    result = SiteFolder.open(folder)
    check_packages(result.agreement.transport_factory)
    log = open_log(log_format, result.agreement.name, result.name)
    console = opt.console(quiet=quiet or as_json or log is not None)
    stop = Event()
    with only_server(result):  # checked first
        result.check_machine()
        tightened = tighten(folder)
        if tightened is not None:
            print_lines(console, [tightened])
    _introduce(console, result, verbose=verbose)
    with closing(result.open_ledger()) as ledger:
        copied = ledger.store.find_copy_time()
        noise = ledger.store.describe_restored_ledger()
    print_lines(console, describe_restored(copied, noise))
    print_lines(
        console,
        [f"\nTo label: fallow label {folder}", "Ctrl-C stops the site without loss.\n"],
    )
    log_context: AbstractContextManager[None] = nullcontext()
    if log is not None:
        log_context = log.around()
    with stopped_by_signals(stop.set), log_context:
        trains = not is_untrained(result.agreement.config)
        lines = SiteLines(console, folder, as_json=as_json, log=log, trains=trains)
        serve(result, stop, lines)
    print_lines(console, [f"stopped; to resume: fallow site start {folder}"])


SENT = ("run", "function", "exchanges", "bytes")
SENT_KINDS = ("kind", "exchanges", "bytes")
"""Columns of the tables of sent data."""
SHOWN = 10  # rejected lines to show


@site.command()
@opt.shows("fallow.deployment.site.status:SiteStatus")
def status(folder: Folder, verbose: Verbose = False, as_json: opt.AsObject = False) -> None:
    """Show connection, labeling tasks, data sent and privacy budget spent."""
    from fallow.cli.site_messages import describe_status
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.status import collect_status

    result = collect_status(SiteFolder.open(folder))
    if as_json:
        opt.print_json(result)
        return
    console = opt.console()
    print_lines(console, describe_status(result, folder))
    if verbose:
        rows = [[str(value) for value in line.values()] for line in result["sent"]]
        show_table(console, "What left this site", SENT, rows, whole=2, words=2)
    else:
        rows = [[str(value) for value in line.values()] for line in result["kinds"]]
        show_table(console, "What left this site", SENT_KINDS, rows, words=1)


@site.command()
@opt.shows("fallow.deployment.site.attack:SiteAttack")
def attack(
    folder: Folder,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Limit of CPU time of one attack, in seconds")
    ] = 60.0,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Compute labeled examples from what this site sent, as a coordinator could.

    It attacks the sums of all runs as if the coordinator knew those of all other sites, so
    secure aggregation does not help. Nothing is sent. The file attack.csv in the folder
    of the site has all true and computed examples, for the eyes of the site only.
    """
    from fallow.cli.site_messages import list_examples
    from fallow.deployment.site.attack import (
        FILE,
        SiteAttack,
        advise,
        attack_site,
        write_examples,
    )
    from fallow.deployment.site.folder import SiteFolder
    from fallow.measurements.disclosure import MOST_ATTACKS
    from fallow.measurements.results import describe_attack

    opened = SiteFolder.open(folder)
    console = opt.console(quiet=quiet or as_json)
    line = (
        f"Attacking the sums that site {opened.name} sent; each of up to {MOST_ATTACKS} attacks "
        f"takes at most {seconds:g} CPU seconds."
    )
    print_lines(console, [line])
    with console.status("Attack") as status:
        attacked = attack_site(
            opened,
            lambda name, read, rows: status.update(f"{name}: {read} of {rows} examples"),
            seconds,
        )
    file = folder / FILE
    write_examples(file, attacked)
    if as_json:
        result = SiteAttack(site=opened.name, file=str(file), attacks=attacked.attacks)
        opt.print_json(result)
        return
    print_lines(console, [describe_attack(result) for result in attacked.attacks])
    heads, rows = list_examples(attacked)
    show_table(console, "Examples computed best", heads, rows, words=1)
    print_lines(
        console, [*advise(attacked), f"All examples: {file} (only its owner can read it)"]
    )


@site.command()
def unlock(
    folder: Folder,
    run: Annotated[
        str | None,
        typer.Option(help="Run to leave (default: the newest)"),
    ] = None,
) -> None:
    """Leave the newest run permanently, so that another one can start.

    Use it for a run that started with a wrong clock and that no later run can follow.

    It shows what is kept and what is lost, and asks first.
    """
    from fallow.cli.site_messages import describe_leaving
    from fallow.deployment.site.folder import SiteFolder

    values = SiteFolder.open(folder)
    console = opt.console()
    with closing(values.open_ledger()) as ledger:
        newest = ledger.instructions.latest_run()
        if newest is None:
            raise ValueError(
                f"site {values.name} takes part in no run, so there is nothing to leave"
            )
        if run not in (None, newest):
            raise ValueError(
                f"site {values.name} takes part in run {newest}, not in {run}: "
                "nothing was changed"
            )
        labels = len(ledger.store.load_labels(values.name))
        print_lines(console, describe_leaving(newest, labels, time.time()))
        if not typer.confirm(f"Leave run {newest} permanently?", default=False):
            print_lines(console, ["Nothing was changed."])
            return
        ledger.instructions.leave(newest)
    print_lines(console, [f"Left run {newest}. Site {values.name} waits for another run."])


@site.command("import")
@opt.shows("fallow.deployment.site.labels_io:Imported")
def import_(
    folder: Folder,
    file: File,
    annotator: Annotated[
        str, typer.Option(help="Name of the annotator, if the file has none")
    ] = "imported",
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Import valid lines even if others are rejected"),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be imported without importing"),
    ] = False,
    by: Annotated[
        Literal["id", "row"],
        typer.Option(
            help="Column that identifies an example: id as in the site's data, or row if "
            "the tool writes its own numbers into id"
        ),
    ] = "id",
    tool: Tool = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels of the masks or boxes in a study whose only label is done: FILE is then a "
            "folder of masks (NAME.png, .nii or .nii.gz for the example NAME), a COCO file, or one of "
            "--tool cvat",
        ),
    ] = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Import labels from a file; an invalid line rejects the whole file.

    The file has the columns id and label, or the study's names for these, and optionally
    annotator. The label "cannot tell" skips an example, and "none of these" states that no class
    fits, if the study offers it. Files of 'export' are accepted. With --tool, the file is one of
    that labeling tool. With --labels, tasks are done if their mask or boxes exist and have these
    labels; the annotations stay in their files.
    """
    from fallow.core.wording import count_noun
    from fallow.deployment.site.annotation_files import import_annotations
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.labels_io import import_labels

    if labels is not None and by != "id":
        raise ValueError(
            "--labels reads masks or boxes, for which --by has no use; omit it"
        )

    result = SiteFolder.open(folder)
    reader: LabelingTool | None = None
    if tool is not None:
        reader = _find_tool(result, tool)
    schema = result.agreement.schema
    if labels is None and schema.is_done_only and file.is_dir():
        raise ValueError(
            f"{file} is a folder; for a folder of masks, name their labels: --labels lesion,liver"
        )
    with closing(result.open_ledger()) as ledger:
        if labels is not None:
            taken = import_annotations(
                ledger,
                schema,
                result.rows,
                file,
                opt.split_names(labels),
                annotator,
                partial=partial,
                dry_run=dry_run,
                tool=reader,
            )
        else:
            taken = import_labels(
                ledger,
                schema,
                result.rows,
                file,
                annotator,
                partial=partial,
                dry_run=dry_run,
                by=by,
                tool=reader,
                plan=result.agreement.plan,
            )
    console = opt.console(quiet=quiet or as_json)
    if as_json:
        opt.print_json(taken)
    print_lines(console, taken.refused[:SHOWN])
    more = len(taken.refused) - SHOWN
    if more > 0:
        print_lines(console, [f"and {more} more like these"])
    noun = "line" if labels is None else "annotation"
    was = "would be" if dry_run else "was"
    action = "Would import" if dry_run else "Imported"
    if taken.refused and not partial:
        raise ValueError(
            f"{count_noun(len(taken.refused), noun)} of {file} cannot be imported, so nothing {was} "
            f"imported; correct the {noun}s above, or use --partial to import the others"
        )
    print_lines(
        console,
        [
            f"{action} {count_noun(taken.recorded, 'label')} from {file} ({taken.same} duplicates, "
            f"{taken.empty} unlabeled)"
        ],
    )


@site.command()
@opt.shows("fallow.deployment.site.labels_io:Exported")
def export(
    folder: Folder,
    file: File,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Export all labels instead of the open labeling tasks",
        ),
    ] = False,
    guess: Annotated[
        bool,
        typer.Option(
            "--guess", help="Add the predictions of the model; they bias annotators"
        ),
    ] = False,
    tool: Tool = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Export the open labeling tasks to a file, to label them with another tool.

    After the end of a study, when no labeling task is open, it writes all labels.
    """
    from fallow.core.wording import count_noun
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.labeling_tools import LabelingTasks
    from fallow.deployment.site.labels_files import write_lines, write_with
    from fallow.deployment.site.labels_io import (
        Exported,
        list_choices,
        list_labels,
        list_open_tasks,
    )
    from fallow.deployment.site.serve import has_ended

    result = SiteFolder.open(folder)
    schema = result.agreement.schema
    writer: LabelingTool | None = None
    if tool is not None:
        writer = _find_tool(result, tool)
    kind: Literal["labeling tasks", "labels"] = "labeling tasks"
    with closing(result.open_ledger()) as ledger:
        list_entries = list_open_tasks
        if labels or has_ended(ledger):
            list_entries = list_labels
            kind = "labels"
        entries = list_entries(ledger, schema, result.rows, guess=guess)
    more: list[Path] = []
    if writer is None:
        write_lines(file, entries)
    else:
        choices = list_choices(schema, result.agreement.plan)
        tasks = LabelingTasks(entries, choices, _open_images(result))
        more = write_with(writer, file, tasks)[1:]
    exported = Exported(str(file), kind, len(entries), tuple(map(str, more)))
    noun = kind.removesuffix("s")
    line = f"Wrote {count_noun(exported.count, noun)} to {exported.file}"
    if more:
        line += f", and {', '.join(exported.more)} for the labeling tool"
    opt.tell([line], exported, quiet=quiet, as_json=as_json)


@site.command()
@opt.shows("fallow.deployment.site.labeling_tools:Synced")
def sync(
    folder: Folder,
    tool: Server,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Exchange labeling tasks and labels with the server of a labeling tool.

    You can run it repeatedly.
    """
    from fallow.core.wording import count_noun
    from fallow.deployment.site.folder import SiteFolder

    result = SiteFolder.open(folder)
    server = _find_tool(result, tool)
    with closing(result.open_ledger()) as ledger:
        done = server.sync(result, ledger, _open_images(result))
    taken = done.taken
    lines = [
        f"project {done.project}: {count_noun(done.sent, 'labeling task')} sent; "
        f"{count_noun(taken.recorded, 'label')} imported ({taken.same} duplicates, {taken.empty} not "
        "annotated)",
        *taken.refused[:SHOWN],
    ]
    if taken.refused:
        lines.append(
            f"{count_noun(len(taken.refused), 'annotation')} not imported: correct them "
            "in the labeling tool, or on the labeling page; entries are those of "
            f"{done.file}"
        )
    opt.tell(lines, done, quiet=quiet, as_json=as_json)


def _find_tool(site_folder: SiteFolder, tool: str) -> LabelingTool:
    """Return a labeling tool that the site allows.

    Raises ValueError for a study with several labels of an example, which tools do not exchange.
    """
    from fallow.deployment.site.labeling_tools import find_tool

    if site_folder.agreement.schema.labels:
        raise ValueError(
            "labeling tools exchange one label of an example, and this study has several; use a table "
            "with the column label: omit --tool for export and import"
        )
    return find_tool(tool, site_folder.settings.names)


def _open_images(site_folder: SiteFolder) -> ShowRow:
    """Return a function that reads the image of a row for a labeling tool."""

    def show(row: int, number: int = 0) -> DisplayedContent | None:
        from fallow.core.optional import import_optional

        import_optional(
            "fastapi", "fallow-core[deploy]", "reading images for a labeling tool"
        )
        from fallow.deployment.labeling_page.pictures import picture

        return picture(site_folder.rows, row, number)

    return show


def _read_allowed(pairs: list[str]) -> dict[str, str]:
    """Parse ``NAME=DIGEST`` pairs; raise ValueError for a pair without ``=``."""
    allowed = {}
    for pair in pairs:
        name, equals, digest = pair.partition("=")
        if not equals:
            raise ValueError(f"--allow {pair!r} is not of the form NAME=sha256:...")
        allowed[name] = digest
    return allowed


def _confirm(
    console: Console,
    study: Path,
    agreement: Agreement,
    chosen: Settings,
    digest: str | None,
) -> str:
    """Show the study and ask for its digest.

    Returns the full digest.  Raises ValueError if it differs from that of the file.
    """
    from fallow.deployment.site.agreement_text import describe_agreement
    from fallow.deployment.site.folder import check_digest, check_member

    check_member(agreement, chosen.name, str(study))
    print_lines(console, [f"Site {chosen.name}, in the study of this file:"])
    print_lines(console, [f"  {line}" for line in describe_agreement(agreement, chosen)])
    if digest is None:
        question = "Digest of the study, as received from the coordinator"
        try:
            digest = typer.prompt(question)
        except typer.Abort as error:
            raise ValueError(
                "no digest was typed, so nothing was created: ask the coordinator for it "
                "(there: fallow coordinate status) and type it, or give --digest"
            ) from error
    check_digest(agreement, str(digest))
    return agreement.digest


def _choose_limit(console: Console, proposed: ProposedLimit, is_asked: bool) -> int:
    """Ask for the label budget of the site; the default is the proposal, which is reported.

    Raises ValueError without an answer.
    """
    if not is_asked:
        line = (
            f"Label budget: {proposed.labels}, {proposed.reason}; change it with --limit."
        )
        print_lines(console, [line])
        return proposed.labels
    question = f"Maximum number of labels over all runs (proposed: {proposed.reason})"
    try:
        typed = typer.prompt(question, default=proposed.labels, type=int)
    except typer.Abort as error:
        raise ValueError(
            "no label budget was typed, so nothing was created: give --limit, such as "
            f"{proposed.labels}"
        ) from error
    return int(typed)


def _introduce(console: Console, folder: SiteFolder, *, verbose: bool) -> None:
    """Print the study, the site's data, and what leaves the site."""
    from fallow.data.facts import format_facts
    from fallow.deployment.site.agreement_text import (
        describe_planned,
        describe_rows,
        describe_study,
        group_disclosures,
        list_disclosures,
    )
    from fallow.deployment.site.own_data import describe_own_data

    print_lines(
        console,
        [
            f"Site {folder.name}",
            *describe_study(folder),
            *describe_planned(folder.agreement),
            *describe_rows(folder.rows, folder.tests),
            *format_facts(describe_own_data(folder)),
        ],
    )
    disclosures = list_disclosures(folder)
    if verbose:
        rows = [line[:4] for line in disclosures]
        heads = ("part", "function", "reveals", "seen by")
        show_table(console, "What leaves this site", heads, rows, whole=2)
    else:
        lines = group_disclosures(disclosures)
        columns = ("kind", "reveals", "seen by")
        show_table(console, "What leaves this site", columns, lines)
