"""``fallow benchmark`` and ``advise``: query strategies compared on many tasks."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fallow.cli import options as opt
from fallow.cli.arguments import check_strategies
from fallow.cli.terminal import print_lines, show_table
from fallow.core.optional import check_full_install
from fallow.study.folder import check_study

if TYPE_CHECKING:
    import pandas as pd

    from fallow.settings.config import ExperimentConfig
    from fallow.study.study_run import Failure

REFERENCE = "random"
SCORES = "scores.csv"
WIDEST = 120  # columns, so that intervals are not wrapped

Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-q",
        callback=opt.refuse_options,
        help="Query strategies, names or module:Class, comma-separated (default: 2 of Fallow)",
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", help="Task, e.g. digits; repeatable"),
]
Rivals = Annotated[
    str | None,
    typer.Option(
        "--rivals", help="Strategies to compare with, comma-separated (default: 13)"
    ),
]
FedAvg = Annotated[bool, typer.Option("--fedavg", help="Train by FedAvg; much slower")]
Against = Annotated[
    Path | None,
    typer.Option("--against", help="Scores of an earlier benchmark (scores.csv)"),
]
Constants = Annotated[
    bool,
    typer.Option(
        "--constants",
        help="Print the fixed parameters of the strategies and their digest, without running",
    ),
]


@opt.shows("fallow.study.benchmark:BenchmarkResult", "fallow.study.benchmark:Constants")
def benchmark(
    strategy: Strategies = None,
    task: Tasks = None,
    rivals: Rivals = None,
    fedavg: FedAvg = False,
    seeds: opt.Seeds = None,
    against: Against = None,
    constants: Constants = False,
    out: opt.Out = None,
    jobs: opt.Jobs = None,
    resume: opt.Resume = False,
    data_dir: opt.DataDir = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Compare query strategies on several datasets with few labels.

    Strategies with scores in the file of --against, from the same settings, are not run again.
    """
    check_full_install("fallow benchmark")
    chosen = opt.named_strategies(strategy)
    listed = opt.named_strategies(rivals, "--rivals")
    check_strategies([*(chosen or []), *(listed or [])])
    from fallow.cli.paths import use_current_folder
    from fallow.configs.few_labels import OURS, RIVALS
    from fallow.study.benchmark import read_score_file
    from fallow.study.study_run import build_error

    use_current_folder()
    if constants:
        _show_constants(chosen or OURS, as_json=as_json)
        return
    others = listed or list(RIVALS)
    wanted = chosen or list(OURS)
    tasks = _choose_tasks(task or [], fedavg)
    opt.check_resume(out, resume, "benchmark")
    order = BenchmarkOrder(
        out=out or Path("runs") / f"benchmark-{datetime.now():%Y%m%d-%H%M%S}",
        seeds=range(seeds or tasks[0].seeds),
        jobs=jobs or os.cpu_count() or 1,
        resume=resume,
        data_dir=data_dir,
    )
    known = None
    if against is not None:
        known = read_score_file(against)
    console = opt.console(quiet=quiet or as_json)
    studies: list[tuple[ExperimentConfig, Path]] = []
    failures: list[Failure] = []
    runs = 0
    for item in tasks:
        strategies = _find_missing(item, [*others, *wanted], known, order.seeds)
        folder = order.out / item.name.rpartition("/")[2]
        if strategies:
            failures += _run_task(console, item, strategies, folder, order)
            runs += len(strategies) * len(order.seeds)
            studies.append((item, folder))
    scores = _join_scores(studies, known, tasks, order.seeds)
    _show(console, tasks, scores, [*others, *wanted], wanted, order.out, as_json=as_json)
    if failures:
        raise build_error(failures, runs)


def _show_constants(names: Sequence[str], *, as_json: bool) -> None:
    """Print the fixed parameters of each strategy and a digest of all."""
    from fallow import strategies
    from fallow.core.build import build
    from fallow.core.names import OWN
    from fallow.settings.spec import Spec
    from fallow.study.benchmark import collect_constants

    methods = {}
    for name in names:
        spec = Spec.parse(name.partition("@")[0])
        methods[str(spec)] = build(strategies, spec.name, OWN, **spec.fields)
    result = collect_constants(methods)
    lines = []
    for name, constants in result.constants.items():
        output = [f"{key} = {value!r}" for key, value in constants.items()]
        lines.append(f"{name}: {', '.join(output)}")
    lines.append(f"digest {result.digest}")
    opt.tell(lines, result, quiet=False, as_json=as_json)


@dataclass(frozen=True)
class BenchmarkOrder:
    """Options of a benchmark."""

    out: Path
    seeds: Sequence[int]
    jobs: int
    resume: bool
    data_dir: Path | None


def _choose_tasks(named: Sequence[str], fedavg: bool) -> list[ExperimentConfig]:
    """Return the tasks with these names, or all tasks of a training algorithm."""
    from fallow.configs.few_labels import FEDAVG, SOLVED, TRAINED
    from fallow.core.suggestions import require_known

    tasks = {item.name.removeprefix("benchmark/"): item for item in SOLVED}
    if fedavg:
        names = [
            task.name.removeprefix("benchmark/").removesuffix(FEDAVG) for task in TRAINED
        ]
        tasks = dict(zip(names, TRAINED, strict=True))
    chosen = []
    for name in named or tasks:
        short = name.removeprefix("benchmark/")
        require_known(short, tasks, f"{name!r} is not a task of the benchmark")
        chosen.append(tasks[short])
    return chosen


def _find_missing(
    task: ExperimentConfig,
    strategies: Sequence[str],
    known: pd.DataFrame | None,
    seeds: Sequence[int],
) -> list[str]:
    """Return the strategies without scores of the same version under all seeds of a task."""
    from fallow.settings.variants import variant

    unique = list(dict.fromkeys(strategies))
    if known is None:
        return unique
    missing = []
    for strategy in unique:
        of_strategy = known[(known["task"] == task.name) & (known["strategy"] == strategy)]
        same = of_strategy[of_strategy["digest"] == variant(task, strategy).digest]
        if not set(seeds) <= set(same["seed"]):
            missing.append(strategy)
    return missing


def _run_task(
    console: Console,
    task: ExperimentConfig,
    strategies: Sequence[str],
    folder: Path,
    order: BenchmarkOrder,
) -> list[Failure]:
    """Run or resume strategies on a task, and return the failed runs."""
    from fallow.cli.progress import ProgressWatcher
    from fallow.study.preparation import open_study, prepare_study
    from fallow.study.study import list_runs, run_study
    from fallow.study.study_run import Setup

    console.print(f"{task.title}:", markup=False, soft_wrap=True)
    setup = Setup(task, folder, order.data_dir)
    setup, _ = prepare_study(setup, strategies, order.seeds[0])
    cells = list_runs(setup.config, strategies, order.seeds)
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with opt.stoppable(order.out):
        open_study(setup, cells, command, order.resume and folder.exists())
        with ProgressWatcher(setup.config, cells, console) as watch:
            failures = run_study(setup, cells, order.jobs, watch)
    return failures


def _join_scores(
    studies: Sequence[tuple[ExperimentConfig, Path]],
    known: pd.DataFrame | None,
    tasks: Sequence[ExperimentConfig],
    seeds: Sequence[int],
) -> pd.DataFrame:
    """Combine new scores with those of an earlier benchmark on the same tasks and seeds."""
    import pandas as pd

    from fallow.study.benchmark import read_scores

    scores = read_scores(studies)
    if known is None:
        return scores
    names = [task.name for task in tasks]
    old = known[known["task"].isin(names) & known["seed"].isin(list(seeds))]
    run = set(zip(scores["task"], scores["strategy"], strict=True))
    again = [pair in run for pair in zip(old["task"], old["strategy"], strict=True)]
    old = old[[not is_again for is_again in again]]
    if scores.empty:
        return old
    return pd.concat([old, scores], ignore_index=True)


def _show(
    console: Console,
    tasks: Sequence[ExperimentConfig],
    scores: pd.DataFrame,
    strategies: Sequence[str],
    wanted: Sequence[str],
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Print a table for each task, and compare each strategy with the best of the others."""
    from fallow.configs.few_labels import classes_of
    from fallow.report.benchmark import describe_verdict, task_table, to_markdown
    from fallow.storage.files import write_whole
    from fallow.study.benchmark import (
        BenchmarkResult,
        areas,
        judge,
        task_lines,
        write_score_file,
    )

    rivals = find_rivals(strategies, wanted)
    tables = {}
    verdicts = []
    for task in tasks:
        of_task = scores[scores["task"] == task.name]
        tables[task.title] = task_lines(of_task, REFERENCE, classes_of(task))
        by_area = areas(of_task)
        for strategy in wanted:
            verdict = judge(task.name, by_area, strategy, rivals)
            if verdict is not None:
                verdicts.append(verdict)
    result = BenchmarkResult(tables, verdicts)
    for title, lines in result.tables.items():
        table = task_table(title, lines, REFERENCE)
        show_table(
            console, title, table.header, table.rows, words=table.words, widest=WIDEST
        )
        console.print()
    print_lines(console, map(describe_verdict, result.verdicts))
    out.mkdir(parents=True, exist_ok=True)
    page = out / "benchmark.md"
    write_whole(page, to_markdown(result, REFERENCE).encode())
    write_whole(out / SCORES, write_score_file(scores))
    print_lines(console, [f"Tables: {page}"])
    if as_json:
        opt.print_json(result)


def find_rivals(strategies: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the strategies to compare with; those of Fallow are no rivals of each other."""
    from fallow.configs.few_labels import OURS

    own = {*wanted}
    if own <= {*OURS}:
        own = {*OURS}
    return [strategy for strategy in strategies if strategy not in own]


@opt.shows("fallow.study.advice:Advice")
def advise(
    study: Annotated[
        Path,
        typer.Argument(
            help="Study folder; the study may still be running", callback=check_study
        ),
    ],
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Recommend a query strategy and a training algorithm for a study.

    The recommendation comes from benchmark tasks with a similar number of classes, sites and labels,
    and a similar distribution of labels.
    """
    check_full_install("fallow advise")
    from fallow.cli.results import restrict_permissions_of
    from fallow.configs.few_labels import RULES, read_table
    from fallow.study.advice import advise as recommend
    from fallow.study.advice import read_facts
    from fallow.study.reading import read_study

    restrict_permissions_of(study)
    facts, labels = read_facts(read_study(study))
    advice = recommend(read_table(), facts, labels, RULES)
    opt.tell(advice.sentences, advice, quiet=quiet, as_json=as_json)
