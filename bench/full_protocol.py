"""`python -m bench.full_protocol`: reproduce tables of papers at full size on a GPU.

Writes the records of a study as `fallow compare` does and resumes an interrupted study. The
table shows measured values next to the published ones.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import torch

from fallow.catalog import missing_files
from fallow.configs.find import find_config
from fallow.configs.papers import load_papers, paper_results_of
from fallow.core.events import Event
from fallow.core.training_config import TrainingStage
from fallow.core.wording import count_noun, duration
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.preparation import open_study
from fallow.study.reading import read_study
from fallow.study.records import StudyRecords
from fallow.study.study import run_study
from fallow.study.study_run import Failure, Setup, StudyRun

TABLE = Path("studies/full-size.md")
DPFL = find_config("dpfl/cifar10-patho")
assert DPFL.published is not None
STUDIES: dict[str, ExperimentConfig] = {
    "ahfal": find_config("ahfal/cifar10"),
    "fairfal": find_config("fairfal/cifar10"),
    "dpfl": replace(DPFL, strategies=tuple(DPFL.published.names)),
}
"""AHFAL Table 1's column Dirichlet 0.1; FairFAL's long tail of CIFAR-10; DPFL's Table 1, first
column."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all runs are finished, else 1."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    failures: list[Failure] = []
    for name in options.studies:
        config = set_device(STUDIES[name], options.device, options.precision)
        if options.tiny:
            config = shrink(name, config)
        failures += run(config, options.out / name, options.data, options.jobs)
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(write_page(options.out, is_tiny=options.tiny))
        print(f"{options.table} has what is there so far", flush=True)
    for failure in failures:
        print(
            f"{failure.cell.strategy}, seed {failure.cell.seed}: {failure.reason}",
            flush=True,
        )
    return int(bool(failures))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.full_protocol", description=__doc__)
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help=f"of {', '.join(STUDIES)}"
    )
    parser.add_argument(
        "--out", type=Path, help="records; default runs/full-size, with --tiny -tiny added"
    )
    parser.add_argument(
        "--table", type=Path, help=f"default {TABLE}, or with --tiny in --out"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of data sets; default FALLOW_DATA"
    )
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu")
    parser.add_argument("--precision", default="float32", help="float32, tf32 or bf16")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument(
        "--tiny", action="store_true", help="minutes on digits: a rehearsal"
    )
    options = parser.parse_args(arguments)
    options.studies = options.studies or list(STUDIES)
    if options.out is None:
        options.out = Path("runs/full-size")
        if options.tiny:
            options.out = Path("runs/full-size-tiny")
    for name in options.studies:
        if name not in STUDIES:
            parser.error(f"there is no study {name!r}; choose from {', '.join(STUDIES)}")
    if not options.tiny:
        for name in options.studies:
            _check_data(parser, name, options.data)
    if options.device == "auto":
        options.device = choose_device()
    if options.table is None:
        options.table = TABLE
        if options.tiny:
            options.table = options.out / TABLE.name
    return options


def _check_data(parser: argparse.ArgumentParser, name: str, folder: Path | None) -> None:
    """Exit with a message if parts of the data are missing."""
    data = STUDIES[name].data
    missing = missing_files(data, folder)
    if missing:
        parser.error(
            f"study {name} needs all of {data}; not there yet: {', '.join(missing)}; bring all files "
            "to one folder, and name it by --data or FALLOW_DATA"
        )


def choose_device() -> str:
    """Return the GPU of this machine, or the CPU if there is none."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def set_device(config: ExperimentConfig, device: str, precision: str) -> ExperimentConfig:
    """Set the device and remove upper bounds, which the papers do not report."""
    return replace(
        config,
        device=device,  # type: ignore[arg-type]  # the configuration refuses what it does not know
        precision=precision,  # type: ignore[arg-type]
        bounds=(),
    )


def shrink(name: str, config: ExperimentConfig) -> ExperimentConfig:
    """Shrink the configuration to a minute: digits, two strategies, one seed, few steps."""
    small = replace(
        config,
        data="digits",
        training_config=replace(
            config.training_config,
            stages=(TrainingStage(1),),
            batch_size=16,
            augment=("flip",),
        ),
        local_training_config=replace(
            config.local_training_config, stages=(TrainingStage(1),)
        ),
        rounds=2,
        score_rounds=1,
        cycles=min(config.cycles, 1),
        seeds=1,
        strategies=config.strategies[:2],
        reference=config.strategies[0],
        channels_last=False,
    )
    if name == "fairfal":
        tail = replace(config.partition, fields={**config.partition.fields, "n_max": 60})
        return replace(small, partition=tail, model=Spec("digits-cnn"))
    if name == "dpfl":
        partition = replace(config.partition, fields={"min_samples": 2})
        return replace(small, partition=partition, sites=5, model=Spec("digits-cnn"))
    return replace(small, rows=400)


def run(config: ExperimentConfig, out: Path, data: Path | None, jobs: int) -> list[Failure]:
    """Run unfinished runs, all strategies of a seed at a time; return failed ones."""
    seeds = range(config.seeds)
    cells = [StudyRun(strategy, seed) for seed in seeds for strategy in config.strategies]
    setup = Setup(config, out, data_dir=data, threads=torch.get_num_threads())
    open_study(setup, cells, "python -m bench.full_protocol", resume=True)
    print(f"{config.name}: {count_noun(len(cells), 'run')} in {out}", flush=True)
    return run_study(setup, cells, jobs, _tell)


def _tell(event: Event) -> None:
    """Print plain lines, since output usually goes to a log file."""
    run_name = f"{event.get('strategy')}, seed {event.get('seed')}"
    match event["event"]:
        case "scored":
            accuracy = event["accuracy"]
            print(
                f"  {run_name}: cycle {event['cycle']}, accuracy {accuracy:.4f}", flush=True
            )
        case "done" | "failed":
            print(
                f"  {run_name}: {event['event']} {event.get('reason', '')}".rstrip(),
                flush=True,
            )
        case "device":
            print(f"  {run_name}: {event['reason']}", flush=True)


# -- page of results, built from records -----------------------------------------------


def write_page(out: Path, *, is_tiny: bool) -> str:
    """Write a table for each study that has records."""
    lines = ["# Papers in full size", ""]
    if is_tiny:
        lines += ["A rehearsal on few rows: these numbers mean nothing.", ""]
    lines += [
        "Written by `scripts/full_protocol.sh` from the records of the runs: accuracy in percent, "
        "mean and standard deviation over seeds, beside what the paper prints.",
        "",
    ]
    for name in STUDIES:
        folder = out / name
        if (folder / "study.json").exists():
            study = read_study(folder, paper_results_of(load_papers()))
            lines += _section(STUDIES[name], study)
    return "\n".join(lines)


def _section(config: ExperimentConfig, study: StudyRecords) -> list[str]:
    printed = _find_printed(config, study)
    names = config.published.names if config.published is not None else {}
    lines = [f"## {config.title}", "", _made_on(study), ""]
    lines += ["| method | measured | seeds | printed |", "| --- | --- | --- | --- |"]
    for strategy in study.strategies:
        scores = [score * study.scale for score in study.final(strategy).values()]
        label = str(names.get(strategy, strategy))
        lines.append(
            f"| {label} | {_spread(scores)} | {len(scores)} | {printed.get(label, '-')} |"
        )
    return [*lines, ""]


def _find_printed(config: ExperimentConfig, study: StudyRecords) -> dict[str, str]:
    """Map each row of the paper's table to its published mean and standard deviation."""
    if config.published is None:
        return {}
    printed = {}
    for cell in study.study.known.published.cells(config.published.table):
        if cell.setting == config.published.setting and cell.mean is not None:
            printed[cell.method] = f"{cell.mean:.2f}"
            if cell.sd is not None:
                printed[cell.method] += f" ± {cell.sd:.2f}"
    return printed


def _spread(scores: Sequence[float]) -> str:
    if not scores:
        return "-"
    if len(scores) == 1:
        return f"{scores[0]:.2f}"
    return f"{mean(scores):.2f} ± {stdev(scores):.2f}"


def _made_on(study: StudyRecords) -> str:
    """Describe the machine and the duration of the runs."""
    last = [cell.records[-1] for cell in study.cells if cell.records]
    if not last:
        return "No run has records yet."
    places = set()
    for record in last:
        versions = record["versions"]
        device = versions.get("gpu", versions.get("device", "cpu"))
        places.add(f"{device} in {versions.get('precision', 'float32')}")
    seconds = sum(record["seconds"] for record in last)
    return (
        f"{count_noun(len(last), 'run')} on {', '.join(sorted(places))}, together "
        f"{duration(seconds)} of training and queries; torch "
        f"{last[0]['versions']['torch']}, Python {platform.python_version()}."
    )


if __name__ == "__main__":
    raise SystemExit(main())
