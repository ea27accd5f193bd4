"""``fallow demo``, ``run`` and ``compare``: studies from the command line."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fallow.cli import options as opt
from fallow.cli.arguments import check_arguments
from fallow.cli.terminal import print_lines
from fallow.core.optional import check_full_install

if TYPE_CHECKING:
    from fallow.settings.config import ExperimentConfig
    from fallow.study.preparation import Suited
    from fallow.study.study_run import Setup


@opt.shows("fallow.cli.objects:StudyResult")
def demo(
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Run fewer cycles and seeds, in about 15 seconds (photographs: one minute)",
        ),
    ] = False,
    photos: Annotated[
        bool,
        typer.Option(
            "--photos",
            help="Use photographs of CIFAR-10 in --data-dir, in about 3 minutes",
        ),
    ] = False,
    data_dir: opt.DataDir = None,
    seeds: opt.Seeds = None,
    out: opt.Out = None,
    jobs: opt.Jobs = None,
    resume: opt.Resume = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Compare strategies on bundled digits at ten sites, in less than a minute."""
    from fallow.configs.demo import DEMO, INTRODUCTIONS, PHOTOS, TARGETS, shorten
    from fallow.configs.papers import load_paper_results
    from fallow.encoders.efficientnet_lite import load_network
    from fallow.report.final_table import final_table
    from fallow.report.sentences import best_of_each_training, describe_labels_to
    from fallow.study.reading import read_study
    from fallow.study.study_run import Setup

    config = PHOTOS if photos else DEMO
    if photos:
        load_network()  # raises if it is not installed
    chosen = shorten(config) if fast else config
    console = opt.console(quiet=quiet or as_json)
    console.print(INTRODUCTIONS[config.name], markup=False, soft_wrap=True)
    setup = Setup(chosen, _folder(chosen, out, resume), data_dir)
    options = StudyOptions(jobs=jobs, resume=resume, quiet=quiet, as_json=as_json)
    _study(setup, None, range(seeds or chosen.seeds), options)
    study = read_study(setup.out, load_paper_results())
    table = final_table(study)
    for sentence in (
        describe_labels_to(study, table, TARGETS[config.name]),
        best_of_each_training(study, table),
    ):
        console.print(f"\n{sentence}", markup=False, soft_wrap=True)
    page = (setup.out / "report.html").absolute().as_uri()
    console.print(f"Open {page} for the learning curves.", markup=False, soft_wrap=True)


@opt.shows("fallow.cli.objects:StudyResult", "fallow.study.estimate:Estimate")
@opt.reads_data()
def run(
    config: opt.ConfigName,
    strategy: opt.Query = None,
    seed: opt.Seed = 0,
    data: opt.Data = None,
    *,
    loading: opt.Loading,
    budget: opt.Budget = None,
    set_: opt.Settings = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    dry_run: opt.DryRun = False,
    data_dir: opt.DataDir = None,
    threads: opt.Threads = 1,
    track: opt.Track = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Run one query strategy with one seed."""
    named = opt.named_strategies(strategy)
    if named is not None and len(named) > 1:
        raise ValueError(
            f"run takes one strategy; to run several: fallow compare {config} --strategy {strategy}"
        )
    check_arguments(config, [strategy or "", *opt.strategies_set(set_)], set_, data)
    from fallow.cli.paths import use_current_folder
    from fallow.configs.defaults import check_single_run, check_specified
    from fallow.settings.config import with_settings
    from fallow.study.study_run import Setup

    use_current_folder()
    name, data = opt.named_config(config, data)
    settings = opt.settings(set_, data, loading, budget)
    base, changes = opt.read_config(name, settings, named or ())
    check_single_run(settings)
    chosen = with_settings(base, {**changes, "bounds": "false"})
    check_specified(opt.specified_settings(name, changes, named), chosen, named or ())
    setup = Setup(chosen, _folder(chosen, out, resume), data_dir, threads)
    options = StudyOptions(
        jobs=1,
        resume=resume,
        dry_run=dry_run,
        quiet=quiet,
        as_json=as_json,
        track=tuple(track or ()),
    )
    at_sites = _settings_at_sites(name, changes)
    _study(setup, named, [seed], options, [str(chosen.strategy)], at_sites)


@opt.shows("fallow.cli.objects:StudyResult", "fallow.study.estimate:Estimate")
@opt.reads_data()
def compare(
    config: opt.ConfigName,
    strategy: opt.Queries = None,
    seeds: opt.Seeds = None,
    first_seed: opt.FirstSeed = 0,
    jobs: opt.Jobs = None,
    cluster: opt.Cluster = None,
    data: opt.Data = None,
    *,
    loading: opt.Loading,
    budget: opt.Budget = None,
    set_: opt.Settings = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    dry_run: opt.DryRun = False,
    data_dir: opt.DataDir = None,
    threads: opt.Threads = 1,
    track: opt.Track = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Compare query strategies with paired tests, and write a report."""
    named = opt.named_strategies(strategy) or []
    check_arguments(config, [*named, *opt.strategies_set(set_)], set_, data)
    from fallow.cli.paths import use_current_folder
    from fallow.configs.defaults import check_specified
    from fallow.settings.config import with_settings
    from fallow.study.study_run import Setup

    use_current_folder()
    name, data = opt.named_config(config, data)
    settings = opt.settings(set_, data, loading, budget)
    base, changes = opt.read_config(name, settings, named)
    if any(key.split(".")[0] == "strategy" for key in changes):
        raise ValueError(
            "compare runs several strategies; name them with --strategy, not --set strategy"
        )
    chosen = with_settings(base, changes)
    check_specified(opt.specified_settings(name, changes, named), chosen, named)
    wanted = range(first_seed, first_seed + (seeds or chosen.seeds))
    setup = Setup(chosen, _folder(chosen, out, resume), data_dir, threads)
    if cluster is not None and jobs is not None:
        raise ValueError(
            "--jobs applies to this machine, and --cluster has its own workers; omit "
            "one of them"
        )
    options = StudyOptions(
        jobs=jobs,
        resume=resume,
        dry_run=dry_run,
        quiet=quiet,
        as_json=as_json,
        cluster=cluster,
        track=tuple(track or ()),
    )
    at_sites = _settings_at_sites(name, changes)
    _study(setup, named or None, wanted, options, at_sites=at_sites)


def _settings_at_sites(name: str | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a data file without a configuration if it has a site column."""
    if name is not None or any(key.partition(".")[0] == "partition" for key in changes):
        return {}
    usual = {"partition": "natural", "sites": "0"}
    return {key: value for key, value in usual.items() if key not in changes}


@dataclass(frozen=True)
class StudyOptions:
    """Options of a study.

    ``jobs=None`` means one process per core.  ``track`` names experiment trackers.
    """

    jobs: int | None
    resume: bool = False
    dry_run: bool = False
    quiet: bool = False
    as_json: bool = False
    cluster: str | None = None  # address of the Dask scheduler
    track: tuple[str, ...] = ()


def run_configuration(
    config: ExperimentConfig,
    out: Path,
    data_dir: Path | None,
    seeds: Sequence[int],
    options: StudyOptions,
) -> None:
    """Run or resume all strategies of a configuration in a folder, and print the results."""
    from fallow.study.study_run import Setup

    _check_folder(out, options.resume)
    _study(Setup(config, out, data_dir), list(config.strategies), seeds, options)


def _study(
    setup: Setup,
    named: Sequence[str] | None,
    seeds: Sequence[int],
    options: StudyOptions,
    usual: Sequence[str] | None = None,
    at_sites: Mapping[str, str] | None = None,
) -> None:
    """Run or resume a study, and print the results.

    ``named`` are the requested strategies.  None means ``usual``, which defaults to those of the
    configuration, or others that support the data.  ``at_sites`` as in `prepare_study`.
    """
    from fallow.cli.progress import ProgressWatcher
    from fallow.cli.terminal import Spinner
    from fallow.configs.defaults import describe_change, suit_strategies
    from fallow.data.facts import describe_data, format_facts, notes_beside_facts
    from fallow.data.sheet import build_sheet
    from fallow.report.own_data import SHEET
    from fallow.report.sheet import write_sheet
    from fallow.study.callbacks import CallbackList, load_tracker
    from fallow.study.cluster import import_distributed, run_on_cluster
    from fallow.study.estimate import estimate
    from fallow.study.preparation import (
        describe_prepared,
        keep_facts,
        open_study,
        prepare_study,
    )
    from fallow.study.study import list_runs, run_study
    from fallow.study.study_run import build_error
    from fallow.study.trainers import describe_power

    console = opt.console(quiet=options.quiet or options.as_json)
    # first, since a package may be missing
    check_full_install("a study")
    if options.cluster is not None:
        import_distributed()
    trackers = [load_tracker(name, setup.out) for name in dict.fromkeys(options.track)]
    usual = list(usual or setup.config.strategies)
    strategies: Sequence[str] = usual
    suited: Suited | None = suit_strategies
    if named is not None:  # requested strategies run or raise an error
        strategies = named
        suited = None
    with Spinner(console, f"reading {setup.config.data}") as waiting:
        setup, simulation = prepare_study(
            setup,
            strategies,
            seeds[0],
            outline=options.dry_run,
            suited=suited,
            notify=waiting.tell_bytes,
            at_sites=at_sites,
        )
    if named is None:
        strategies = setup.config.strategies
        changed = describe_change(usual, strategies, simulation.dataset)
        if changed:
            console.print(changed, markup=False, soft_wrap=True)
    cores = os.cpu_count() or 1
    jobs = options.jobs or max(1, cores // setup.threads)
    cells = list_runs(setup.config, strategies, seeds)
    console.print(describe_prepared(setup, simulation, cells), markup=False, soft_wrap=True)
    power = describe_power(len(strategies), len(seeds))
    for line in (setup.config.budget_reading, power):
        if line:
            console.print(line, markup=False, soft_wrap=True)
    if options.dry_run:
        facts = describe_data(simulation.dataset)
        if facts is not None:
            print_lines(console, format_facts(facts))
        _print_notes(console, setup.config.data, notes_beside_facts(simulation.dataset))
        with Spinner(console, "timing two short rounds per configuration"):
            expected = estimate(setup, cells, jobs, simulation.dataset)
        opt.tell(
            [expected.sentence()], expected, quiet=options.quiet, as_json=options.as_json
        )
        return
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with opt.stoppable(setup.out):
        open_study(setup, cells, command, options.resume)
        kept = keep_facts(setup.out, simulation.dataset)
        if kept is not None:
            write_sheet(build_sheet(simulation.dataset), setup.out / SHEET)
            for output in kept["warnings"]:
                console.print(f"warning: {output}", markup=False, soft_wrap=True)
        _print_notes(console, setup.config.data, simulation.dataset.notes)
        with CallbackList(trackers, setup.config, cells, opt.warn) as callbacks:
            with ProgressWatcher(setup.config, cells, console) as watch:
                notify = callbacks.beside(watch)
                if options.cluster is None:
                    failures = run_study(setup, cells, jobs, notify)
                else:
                    failures = run_on_cluster(setup, cells, options.cluster, notify)
            page = _show(console, setup.out, options.as_json)
            callbacks.end(page)
    if failures:
        raise build_error(failures, len(cells))  # its traceback is shown by --debug


def _print_notes(console: Console, name: str, notes: Sequence[str]) -> None:
    """Print assumptions made while reading the data, such as the encoding."""
    file = Path(name).name
    for note in notes:
        output = note if note.startswith(file) else f"{name}: {note}"
        console.print(output, markup=False, soft_wrap=True)


def _folder(config: ExperimentConfig, out: Path | None, resume: bool) -> Path:
    """Return the folder of the study, or raise ValueError if it cannot be used."""
    opt.check_resume(out, resume, "study")
    if out is not None:
        _check_folder(out, resume)
        return out
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{config.name.replace('/', '-')}-{stamp}"


def _check_folder(out: Path, resume: bool) -> None:
    if out.is_file():
        raise ValueError(f"{out} is a file; --out takes the folder of a study")
    if resume and not out.exists():
        raise ValueError(
            f"the folder {out} does not exist, so there is no study to resume; omit --resume to "
            "start a new study, or set --out to the folder of the study"
        )


def _show(console: Console, out: Path, as_json: bool) -> Path | None:
    """Print the final table and the path of the page; return the page, or None without records."""
    from fallow.cli.objects import StudyResult
    from fallow.configs.papers import load_paper_results, load_papers
    from fallow.report.disclosure import list_attacks
    from fallow.report.final_table import final_table
    from fallow.report.page import write_report
    from fallow.report.sentences import summary
    from fallow.report.tables import WIDE, footnotes, table_rows, to_rich
    from fallow.study.reading import read_study

    study = read_study(out, load_paper_results())
    if not any(cell.records for cell in study.cells):
        return None
    final = final_table(study)
    page = write_report([out], papers=load_papers())
    result = StudyResult(
        study=str(out),
        report=str(page),
        summary=summary(study, final),
        table=table_rows(final),
    )
    if as_json:
        opt.print_json(result)
    console.print(to_rich(final))
    for note in footnotes(final, WIDE):
        console.print(note, style="dim", markup=False, soft_wrap=True)
    print_lines(console, list_attacks(study))
    print_lines(console, [f"\n{result.summary}", f"Report page: {result.report}"])
    return page
