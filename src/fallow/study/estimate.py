"""Estimate of the time and traffic of a study before it starts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, NamedTuple, cast

from pydantic import Field, with_config

from fallow.core.disclosure import Disclosure, payload
from fallow.core.methods import CollaboratorSelection, Load
from fallow.core.streams import stream
from fallow.core.training_config import TrainingStage
from fallow.core.types import State
from fallow.core.wording import count_noun, duration, size
from fallow.data.dataset import Dataset
from fallow.experiment.encoding import shape_seen
from fallow.experiment.evaluate import evaluate
from fallow.experiment.event_log import EventLog
from fallow.experiment.first_phase import describe_training
from fallow.experiment.methods import (
    is_untrained,
    local_training_config,
    methods_of,
    narrow_training,
)
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.rows import count_examples, open_data
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.budgets import LabelBudget
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.variants import BOUND, variant
from fallow.sites.view import SiteView
from fallow.storage.validation import STRICT, Count
from fallow.study.study import limit_threads
from fallow.study.study_run import Setup, StudyRun

ENOUGH = 600  # rows to measure the time of a round
WARM = 60  # rows of the first pass of a process, which is slow
WARM_EACH = 6  # of these rows at each site
SPENT = 1.0  # approximate seconds for the two timed rounds, if ENOUGH rows take longer
TRIES = 7  # repetitions to measure the time of an evaluation


@with_config(STRICT)
@dataclass(frozen=True)
class Estimate:
    """Estimate of the time and traffic of a study.

    If sites choose collaborators, the values are upper bounds.

    >>> print(Estimate(runs=1, rows=1200, seconds=75, bytes=48, jobs=1).sentence())
    1 run: 1,200 training examples in all, about 1 min 15 s in 1 process on this machine, 48 B
    between coordinator and sites. Nothing was started.
    """

    runs: Annotated[Count, Field(description="number of runs")]
    rows: Annotated[Count, Field(description="examples in training, over all runs")]
    seconds: Annotated[float, Field(ge=0, description="duration on this machine")]
    bytes: Annotated[Count, Field(description="bytes between server and sites")]
    jobs: Annotated[int, Field(ge=1, description="number of processes")]
    tried: Annotated[
        Count, Field(description="models evaluated on validation examples")
    ] = 0
    relayed: Annotated[
        Count, Field(description="bytes between sites, which records count up and down")
    ] = 0

    def sentence(self) -> str:
        """Return the estimate as a sentence."""
        processes = "1 process"
        if self.jobs > 1:
            processes = f"{self.jobs} processes"
        tried = ""
        if self.tried:
            tried = f"up to {self.tried:,} models evaluated on validation examples, "
        relayed = ""
        if self.relayed:
            relayed = f" and up to {size(self.relayed)} between sites"
        return (
            f"{count_noun(self.runs, 'run')}: {self.rows:,} training examples in all, "
            f"{tried}about {duration(self.seconds)} in {processes} on this machine, "
            f"{size(self.bytes)} between coordinator and sites{relayed}. Nothing was "
            "started."
        )


@dataclass(frozen=True)
class Pace:
    """Measured seconds of parts of a run; a round takes ``base + per_row`` x examples."""

    base: float
    per_row: float
    scoring: float  # evaluating a model once
    start: float  # reading data, making sites, encoding rows
    per_look: float  # one row of a pool, seen by one model
    per_try: float  # a model averaged and seen with one row, beyond per_look
    pool: int  # training examples of all sites
    model: int  # bytes
    simulation: SimulatedEnvironment  # that was timed


class Crossing(NamedTuple):
    """Bytes between coordinator and sites, in both directions, over all sites."""

    first: int  # in the first round of a phase
    later: int  # in each round after it


def estimate(
    setup: Setup, cells: Sequence[StudyRun], jobs: int, dataset: Dataset | None = None
) -> Estimate:
    """Estimate the cost of runs by counting, and by timing two short rounds per configuration.

    ``dataset`` is that of the first run, if it has been read.  The initial training is counted
    once per seed for all strategies that share it.
    """
    with limit_threads(setup.threads):
        measured = measure(setup, cells, dataset)
    return add_up(setup, cells, jobs, measured)


class PaceGroup(NamedTuple):
    """Settings of runs with the same model size and pace, up to the number of gradients per batch."""

    model: str
    encoder: str
    head: str
    dtype: str
    is_pooled: bool  # pooled data cannot be trained in parallel

    @staticmethod
    def of(config: ExperimentConfig, cell: StudyRun) -> PaceGroup:
        """Return the group of a run."""
        return PaceGroup(
            model=str(config.model),
            encoder=str(config.encoder),
            head=config.head,
            dtype=config.dtype,
            is_pooled=cell.strategy == f"{BOUND}pooled",
        )


@dataclass(frozen=True)
class Measured:
    """Measurements of short runs."""

    paces: Mapping[PaceGroup, Pace]
    crossings: Mapping[tuple[PaceGroup, str], Crossing]  # by group and training method


def add_up(
    setup: Setup, cells: Sequence[StudyRun], jobs: int, measured: Measured
) -> Estimate:
    """Return the total cost of all runs at the measured pace."""
    rows = 0
    seconds = 0.0
    crossed = 0.0  # bytes
    tried = 0
    relayed = 0
    started: set[str] = set()  # initial trainings that another run has performed
    for cell in cells:
        config = variant(setup.config, cell.strategy)
        group = PaceGroup.of(config, cell)
        pace = measured.paces[group]
        phases = count_labels_by_phase(config, pace.pool)  # labeled examples
        is_shared = not cell.strategy.startswith(BOUND)
        if is_one_pass(config):  # nothing is trained before examples are selected
            phases = phases[1:]
            is_shared = False
        first_phase = _name_first_phase(config, cell.seed)
        is_done = is_shared and first_phase in started
        if is_shared:
            started.add(first_phase)

        crossing = measured.crossings[group, str(config.training)]
        bytes_of_phase = crossing.first + (config.rounds - 1) * crossing.later
        queries = phases[:-1]  # one after every phase but the last
        crossed += len(phases) * bytes_of_phase * config.participation
        crossed += len(queries) * config.sites * pace.model  # before a query, to each site
        seconds += pace.start + sum(_estimate_strategy(config, pace, n) for n in queries)
        for cycle, n in enumerate(phases):
            load = _choosing_load(config, cycle)
            relayed += load.models * pace.model
            if is_done and cycle == 0:
                continue
            tried += load.evaluations
            rows += n * config.rounds * config.completed_training.epochs
            seconds += _estimate_phase(config, pace, n)
            seconds += load.evaluations * _estimate_try(config, pace, n)
    jobs = min(jobs, len(cells))
    return Estimate(
        runs=len(cells),
        rows=rows,
        seconds=seconds / jobs,
        bytes=round(crossed),
        jobs=jobs,
        tried=tried,
        relayed=relayed,
    )


def _name_first_phase(config: ExperimentConfig, seed: int) -> str:
    """Return an identifier of the initial training, equal for runs that share it.

    Settings that all strategies of a study have in common are ignored.
    """
    training = describe_training(config)
    training["seed"] = seed
    training["executor"] = config.executor
    training["initial"] = config.initial
    # the budget allocation applies to the initial labeled set, too
    training["budget_allocation"] = config.budget_allocation
    return json.dumps(training, sort_keys=True, default=str)


def measure(
    setup: Setup, cells: Sequence[StudyRun], dataset: Dataset | None = None
) -> Measured:
    """Time short runs of each group, and count bytes for each training algorithm."""
    paces: dict[PaceGroup, Pace] = {}
    crossings: dict[tuple[PaceGroup, str], Crossing] = {}
    started = time.perf_counter()
    if dataset is None:
        dataset = open_data(setup.config, cells[0].seed, setup.data_dir, setup.dataset)
    reading = time.perf_counter() - started
    if dataset.missing is not None:  # empty cells cost nothing
        x = dataset.x.nan_to_num(nan=0.0)
        x_test = dataset.x_test.nan_to_num(nan=0.0)
        dataset = replace(dataset, x=x, x_test=x_test, missing=None)
    for cell in cells:
        config = variant(setup.config, cell.strategy)
        group = PaceGroup.of(config, cell)
        if group not in paces:
            pace = _measure_pace(config, cell.seed, dataset)
            paces[group] = replace(pace, start=pace.start + reading)
        way = (group, str(config.training))
        if way not in crossings:
            crossings[way] = _measure_crossing(config, paces[group])
    return Measured(paces, crossings)


def _choosing_load(config: ExperimentConfig, cycle: int) -> Load:
    """Return the cost of choosing collaborators in a training phase, if any."""
    method = methods_of(config)["training"]
    if not isinstance(method, CollaboratorSelection):
        return Load(0, 0)
    is_continued = config.restart == "continue" and cycle > 0
    return method.load(config.sites, config.rounds, is_continued)


def count_labels_by_phase(config: ExperimentConfig, pool: int) -> list[int]:
    """Return the number of labeled examples in each training phase.

    >>> count_labels_by_phase(
    ...     ExperimentConfig("a", initial=0.1, budget=0.05, cycles=2), pool=200
    ... )
    [20, 30, 40]
    """
    first = _count_labels(config.initial, config.sites, pool)
    labels = [first]
    for cycle in range(config.cycles):
        labels.append(
            labels[-1] + _count_labels(config.budget_of(cycle), config.sites, pool)
        )
    return labels


def _count_labels(share: LabelBudget, sites: int, pool: int) -> int:
    """Return the number of labels of all sites for a label budget."""
    if isinstance(share, int):
        return share * sites
    return round(share * pool)


def _estimate_phase(config: ExperimentConfig, pace: Pace, n: int) -> float:
    """Return the seconds of training on ``n`` labeled examples, without choosing collaborators."""
    steps = n * config.completed_training.epochs * _gradients_per_batch(config)
    one_round = pace.base + pace.per_row * steps
    scored = min(config.rounds, config.score_rounds)
    return config.rounds * config.participation * one_round + scored * pace.scoring


def _estimate_strategy(config: ExperimentConfig, pace: Pace, n: int) -> float:
    """Return the seconds of a query after ``n`` labels, training of a local model included."""
    looks = 2 * (pace.pool - n) * pace.per_look
    if local_training_config(config, methods_of(config)["query"]) is None:
        return looks
    return looks + n * config.local_training_config.epochs * pace.per_row


def _estimate_try(config: ExperimentConfig, pace: Pace, n: int) -> float:
    """Return the seconds of evaluating a model on the validation examples of a site."""
    return pace.per_try + config.validation * n / config.sites * pace.per_look


def _gradients_per_batch(config: ExperimentConfig) -> int:
    """Return the number of gradients per batch, 1 for FedAvg."""
    return methods_of(config)["training"].contract.gradients_per_batch


class _TimedRound(NamedTuple):
    """One round of a short run."""

    rows: int  # labeled
    seconds: float
    pace: Pace  # the other parts of the run; base and per_row are unknown after one round


def _measure_pace(config: ExperimentConfig, seed: int, dataset: Dataset) -> Pace:
    """Measure the pace of a run from two rounds of one epoch over few examples.

    Rounds of different size yield the cost of a round and of an example.  Training algorithms that
    choose collaborators are timed as FedAvg.
    """
    short = _shorten(config)
    n_tests = len(dataset.x_test)
    pool = count_examples(config, dataset)
    phases = count_labels_by_phase(config, pool)
    first = next((n for n in phases if n), 1)

    def time_rows(n: int) -> _TimedRound:
        labeled = replace(short, initial=min(1.0, n / pool))
        n_seen = min(n_tests, n)
        return _time_round(
            labeled, seed, dataset.test_rows(n_seen, stream(seed, "estimate"))
        )

    # each site has some; with very many sites each has two, so that an equal label budget is
    # at least one
    enough = max(WARM, min(WARM_EACH * config.sites, ENOUGH), 2 * config.sites)
    least = min(first, enough)
    warm = time_rows(least)
    few = min(first, max(least, count_rows_to_time(warm.seconds / warm.rows)))
    one = time_rows(few)
    more = time_rows(3 * few)

    # a straight line through both; rounds this short are noisy, so an example costs a
    # minimum
    slope = (more.seconds - one.seconds) / max(more.rows - one.rows, 1)
    per_row = max(slope, 0.1 * one.seconds / max(one.rows, 1))
    base = max(one.seconds - per_row * one.rows, 0.0)
    return replace(
        one.pace,
        base=base,
        per_row=per_row / _gradients_per_batch(short),
        scoring=more.pace.per_look * n_tests,
        per_look=more.pace.per_look,
        simulation=warm.pace.simulation,  # a few labels are enough to count bytes
    )


def count_rows_to_time(per_row: float) -> int:
    """Return the number of examples of the smaller of two timed rounds (the other has 3x).

    ``per_row`` is a first measurement, in seconds per example.  Small models are timed on ENOUGH
    examples, since shorter rounds are mostly noise.  Large models use as many as SPENT allows.

    >>> count_rows_to_time(1e-5), count_rows_to_time(4e-3), count_rows_to_time(1.0)
    (600, 63, 1)
    """
    in_time = SPENT / (4 * max(per_row, 1e-9))
    return min(ENOUGH, math.ceil(in_time))


def _shorten(config: ExperimentConfig) -> ExperimentConfig:
    """Return a configuration of one round of one epoch, without choosing collaborators."""
    training = config.training
    if _choosing_load(config, 0).models > 0:
        training = Spec("fedavg")
    return replace(
        config,
        protocol="cycles",
        initial_by="random",
        cycles=0,
        rounds=1,
        fresh_first=False,
        participation=1.0,
        training=training,
        training_config=replace(config.completed_training, stages=(TrainingStage(1),)),
    )


def _time_round(config: ExperimentConfig, seed: int, dataset: Dataset) -> _TimedRound:
    """Time one round of a short configuration, and the other parts of the run."""
    event_log = EventLog()
    started = time.perf_counter()
    run = ExperimentRun(environment_of(config, seed, dataset, event_log), event_log)
    run.initial()
    # The dataset changes when examples are encoded and scaled, and is still a simulation.
    simulation = cast(SimulatedEnvironment, run.simulation)
    start = time.perf_counter() - started

    started = time.perf_counter()
    done = run.train(0, None)
    spent = time.perf_counter() - started

    state = done["state"]
    scoring = per_try = 0.0
    if simulation.methods["training"].contract.trains:
        started = time.perf_counter()
        evaluate(simulation, state)
        scoring = time.perf_counter() - started
        per_try = _time_try(simulation, state)

    pace = Pace(
        base=0.0,
        per_row=0.0,
        scoring=scoring,
        start=start,
        per_look=scoring / len(dataset.x_test),
        per_try=per_try,
        pool=sum(simulation.sizes.values()),
        model=payload({"w": state["w"], "stats": state["stats"]}),
        simulation=simulation,
    )
    rows = sum(len(site.labeled) for site in simulation.members.values())
    return _TimedRound(rows, max(spent - scoring, 1e-6), pace)  # one evaluation


def _time_try(simulation: SimulatedEnvironment, state: State) -> float:
    """Return the median seconds of averaging in one more model and evaluating it."""
    site = next(iter(simulation.members.values()))
    view = SiteView(site, 0)
    w = state["w"].double()
    spent: list[float] = []
    for _ in range(TRIES):
        started = time.perf_counter()
        mean = ((w + w) / 2 - w / 2).to(state["w"].dtype)
        view.forward({**state, "w": mean}, site.seen[:1])
        spent.append(time.perf_counter() - started)
    return median(spent)


def _measure_crossing(config: ExperimentConfig, pace: Pace) -> Crossing:
    """Count the bytes in the rounds of a training algorithm.

    If sites choose collaborators, only the initial model is counted.
    """
    simulation = pace.simulation
    if _choosing_load(config, 0).models:
        return Crossing(first=len(simulation.members) * pace.model, later=0)
    one = _count_bytes(config, simulation, rounds=1)
    if is_untrained(config):
        return Crossing(first=one, later=0)
    two = _count_bytes(config, simulation, rounds=2)
    return Crossing(first=one, later=two - one)


def _count_bytes(
    config: ExperimentConfig, simulation: SimulatedEnvironment, rounds: int
) -> int:
    """Count the bytes of some rounds in both directions."""
    short = replace(
        simulation.config, training=config.training, rounds=rounds, score_rounds=1
    )
    shape = shape_seen(short, tuple(simulation.dataset.x.shape[1:]))
    methods = narrow_training(
        methods_of(short), math.prod(shape), simulation.dataset.n_classes
    )
    for site in simulation.members.values():
        site.parts = replace(site.parts, methods=methods)
        site.forget()
    run = ExperimentRun(replace(simulation, config=short, methods=methods), EventLog())
    shown = Disclosure.of(run.train(0, None)["revealed"])
    return shown.bytes_up + shown.bytes_down
