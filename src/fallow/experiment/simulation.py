"""Simulation of an experiment: data, sites, oracle, model and runtime of one run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fallow import data
from fallow.core.ask import Ask, Channel
from fallow.core.disclosure import Disclosure
from fallow.core.events import EventHandler, ignore_event
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Encoder, Methods
from fallow.core.missing import Missing
from fallow.core.model_vectors import Layout
from fallow.core.names import OWN
from fallow.core.streams import stream
from fallow.core.types import DTYPES, SiteId, State, Values
from fallow.data.dataset import Dataset, Task, take_some
from fallow.data.example_spec import ExampleSpec, describe_examples
from fallow.data.partition.groups import label_groups
from fallow.data.predictions import split_predictions
from fallow.engine import row_loss
from fallow.engine.device import ForwardPasses, SelectionDevice
from fallow.engine.executors import Device, Executor, build_executor
from fallow.engine.forward import check_draws
from fallow.experiment.encoding import (
    CommonFeatures,
    check_tuning,
    encoder_of,
    shape_after,
    with_encoder,
)
from fallow.experiment.environment import Simulation
from fallow.experiment.evaluate import one_model, own_models, pseudo_labels
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import (
    FinishedQuery,
    Memory,
    Phases,
    TrainedPhase,
)
from fallow.experiment.first_phase import first_phase, restore
from fallow.experiment.measuring import refuse_without_sites
from fallow.experiment.methods import (
    ModelMaker,
    check_cases,
    check_predictions,
    executor_of,
    is_personal,
    is_shared,
    is_untrained,
    joins_groups,
    methods_of,
    narrow_training,
    placement_of,
    refuse_without_model,
    slices_of,
)
from fallow.experiment.rows import draw_flipped_sites, open_data, split_rows, split_tests
from fallow.experiment.scale import Scale, is_standardized
from fallow.experiment.scoring import score_round
from fallow.experiment.steps import buy_labels, hold_back_fresh
from fallow.privacy.secure_sum import SecureSum
from fallow.settings.budgets import LabelBudget, allocate_budget
from fallow.settings.config import DISCLOSURE, ExperimentConfig
from fallow.sites import LocalSite, RunComponents
from fallow.sites.cases import Cases
from fallow.sites.in_process import InProcessChannel, Simulated
from fallow.sites.store import MemoryAnswers, Store
from fallow.storage.features import FeatureStore
from fallow.storage.files import raw
from fallow.training.closed_form import ClosedForm
from fallow.training.scaling import Scaling
from fallow.transport.serialized import SerializingChannel

if TYPE_CHECKING:
    from fallow.experiment.record import Evaluation, PseudoLabels
    from fallow.measurements.results import AttackResult


def targets_of(simulation: Simulation, ask: Ask) -> State | None:
    """Compute the scale of regression targets and send it to the sites.

    It is None for classification, without scaling, and before any label is acquired.  "labeled" uses
    aggregates over acquired labels.  "oracle" uses all training examples, as published comparisons do,
    which only a simulation can.
    """
    how = simulation.config.target_scale
    is_bought = any(len(site.labeled) for site in simulation.members.values())
    is_scaled = simulation.dataset.task == "regression" and how != "none"
    if not is_scaled or not is_bought:
        return None
    if how == "labeled":
        return simulation.methods["scaling"].of_targets(ask)
    y = simulation.dataset.y.double()
    mean = y.mean()
    std = torch.tensor(simulation.variance, dtype=y.dtype).sqrt()
    ask.keep(simulation.methods["scaling"].targets, mean=mean, std=std)
    return {"mean": mean, "std": std}


Runtime = Literal["inprocess", "bytes"]


@dataclass(frozen=True)
class SimulatedEnvironment:
    """Simulated sites of one run; the server side only accesses ``channel`` and the test set."""

    config: ExperimentConfig
    seed: int
    dataset: Dataset
    channel: Channel
    members: dict[SiteId, LocalSite]
    oracle: Simulated
    model: nn.Module
    layout: Layout
    methods: Methods
    executor: str
    fresh: Callable[[torch.Generator], State]
    features: CommonFeatures | None = None  # features of all rows
    encoded_by: State | None = None  # state of the fitted encoder
    encoded_tests: Tensor | None = None  # features of test rows, (m, d); None if not scored
    scale: Scale | None = None  # scale of features, or None before it is computed
    targets: State | None = None  # units of regression targets: mean () and std ()
    tests: Mapping[SiteId, Tensor] | None = (
        None  # test rows by site, if sites have their own
    )
    flipped: tuple[SiteId, ...] = ()  # sites with wrong labels

    @property
    def sizes(self) -> dict[SiteId, int]:
        """Number of examples of each site."""
        return {name: site.size for name, site in self.members.items()}

    @property
    def _trains(self) -> bool:
        return self.methods["training"].contract.trains

    @property
    def masking(self) -> SecureSum | None:
        """Secure aggregation of the server side, or None."""
        privacy = self.config.privacy
        if not privacy.secure_sum:
            return None
        return SecureSum(privacy.bound)

    def budget_for(self, budget: LabelBudget) -> dict[SiteId, int]:
        """Return the label budget of each site in one cycle, regardless of its pool."""
        result = allocate_budget(budget, self.config.budget_allocation, self.sizes)
        if budget and not any(result.values()):
            raise ValueError(
                f"a budget of {budget} of {sum(self.sizes.values())} examples is less "
                "than one label per site with "
                f"budget_allocation={self.config.budget_allocation!r}; raise it, or use "
                "budget_allocation='equal'"
            )
        return result

    def cap_budget(self, budget: Mapping[SiteId, int]) -> dict[SiteId, int]:
        """Limit the label budget of each site to its pool."""
        return {name: min(n, len(self.members[name].pool)) for name, n in budget.items()}

    @property
    def x_test(self) -> Tensor:
        """Encoded and scaled test examples."""
        if self.encoded_tests is not None:
            return self.encoded_tests
        return self.dataset.x_test

    @property
    def is_standardized(self) -> bool:
        return is_standardized(self.config, self.dataset)

    @property
    def missing(self) -> Missing | None:
        return self.dataset.missing

    def attending_sites(
        self, key: ExchangeKey, cohort: Sequence[SiteId]
    ) -> tuple[SiteId, ...]:
        """Return all sites, since a simulation waits for each of them."""
        return tuple(cohort)

    def with_encoder(self, state: State) -> SimulatedEnvironment:
        """Return the simulation with a fitted encoder, applied to the test examples."""
        if not self._trains:
            return replace(self, encoded_by=state)
        assert self.features is not None  # noqa: S101 - its encoder was fitted
        seen = self.features.of_tests(self.dataset.x_test, state)
        return replace(self, encoded_tests=seen, encoded_by=state)

    def in_units(self, scale: Scale) -> SimulatedEnvironment:
        """Return the simulation with feature scaling, applied to the test examples."""
        if not self._trains:
            return replace(self, scale=scale)
        if self.encoded_tests is not None:
            return replace(self, encoded_tests=scale(self.encoded_tests), scale=scale)
        test = replace(self.dataset, x_test=scale(self.dataset.x_test))
        return replace(self, dataset=test, scale=scale)

    def agree_on_targets(self, ask: Ask) -> State | None:
        return targets_of(self, ask)

    def with_targets(self, targets: State | None) -> SimulatedEnvironment:
        return replace(self, targets=targets)

    @property
    def is_shared(self) -> bool:
        """Whether all sites share one label budget."""
        return is_shared(self.methods["query"])

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.dataset.classes or self.dataset.labels)

    @property
    def example_spec(self) -> ExampleSpec:
        """Description of the examples for prediction."""
        return describe_examples(self.dataset)

    @cached_property
    def variance(self) -> float:
        """Variance of the targets over all training examples, the unit of scores."""
        y = self.dataset.y.double()
        return float(y.var(correction=0)) or 1.0

    def counts(self) -> dict[SiteId, list[int]]:
        """Number of acquired labels per site and class (regression: in total)."""
        n_classes = self.dataset.n_classes
        result = {}
        for name, site in self.members.items():
            result[name] = [len(site.labels)]
            if n_classes:
                by_class = torch.bincount(site.labels.long(), minlength=n_classes)
                result[name] = by_class.tolist()
        return result

    @property
    def n_validation(self) -> int:
        """Number of validation labels at all sites."""
        return sum(len(site.validation) for site in self.members.values())

    # -- results of the steps of a run at the sites (`Environment`)
    # -------------------------

    def buy_labels(
        self,
        event_log: EventLog,
        cycle: int,
        step: ExchangeKey,
        budget: Mapping[SiteId, int],
        done: FinishedQuery,
        keep: tuple[str, ...],
    ) -> FinishedQuery:
        return buy_labels(self, event_log, cycle, step, budget, done, keep)

    def pseudo_labels(self) -> PseudoLabels | None:
        return pseudo_labels(self)

    def measure_disclosure(
        self, sums: Sequence[Values], state: State
    ) -> list[AttackResult]:
        from fallow.experiment.attacking import measure_disclosure

        return measure_disclosure(self, sums, state)

    def first_phase(
        self, phases: Phases, train: Callable[[], TrainedPhase]
    ) -> tuple[TrainedPhase, Memory | None]:
        return first_phase(self, phases, train)

    def restore(self, memory: Memory | None) -> None:
        if memory is not None:
            restore(self.members, memory)

    def hold_back_fresh(self, cycle: int, r: int) -> AbstractContextManager[None]:
        return hold_back_fresh(self, cycle, r)

    def score_round(
        self, event_log: EventLog, shown: Disclosure, cycle: int, r: int, state: State
    ) -> Evaluation:
        return score_round(self, event_log, cycle, r, state)

    def one_model(self, event_log: EventLog, state: State, kept: Values) -> State | None:
        return one_model(self, state)

    def own_models(self, state: State) -> dict[SiteId, State]:
        return own_models(self, state)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of data, partition and hidden labels."""
        h = hashlib.sha256()
        for name, site in self.members.items():
            h.update(repr((name, tuple(site.x.shape))).encode())
            h.update(raw(site.x))
            h.update(raw(self.oracle.hidden[name]))
            if site.groups is not None:  # they decide folds and held-out examples
                h.update(raw(site.groups))
            if site.cases is not None:
                h.update(raw(site.cases.of_row))
        h.update(raw(self.dataset.x_test))
        h.update(raw(self.dataset.y_test))
        return h.hexdigest()


def build_environment(
    config: ExperimentConfig,
    seed: int,
    store: Store,
    data_dir: Path | None = None,
    runtime: Runtime = "inprocess",
) -> SimulatedEnvironment:
    """Create sites, oracle and model of a configuration and a seed."""
    data = open_data(config, seed, data_dir)
    return environment_of(config, seed, data, store, runtime=runtime)


def environment_of(
    config: ExperimentConfig,
    seed: int,
    dataset: Dataset,
    store: Store,
    runtime: Runtime = "inprocess",
    kept: FeatureStore | None = None,
    notify: EventHandler = ignore_event,
) -> SimulatedEnvironment:
    """Create a simulation from a dataset in memory.

    ``kept`` is a feature store shared with other runs.  ``notify`` receives messages about unsupported
    operations of a device.
    """
    predictions: Tensor | None = None
    if is_untrained(config):
        dataset, predictions = split_predictions(dataset)
        refuse_without_model(config, ("test",))  # real sites have their own test examples
        check_predictions(config, has_predictions=predictions is not None)
        check_cases(config, has_groups=dataset.groups is not None)
    shares = split_rows(config, dataset, seed)
    rows = {name: torch.from_numpy(at) for name, at in shares.items()}
    flipped = draw_flipped_sites(config, dataset, [*rows], seed)
    cases = _find_cases(config, dataset, rows)
    for name, of_site in cases.items():
        used = of_site.find_used(*slices_of(config))
        rows[name] = rows[name][used]
        cases[name] = Cases(of_site.of_row[used])
    hidden = _hide_labels(dataset, rows, flipped, cases)

    measured = tuple(dataset.x.shape[1:])
    encoder = encoder_of(config, measured)
    shape = shape_after(config, encoder, measured)
    maker = ModelMaker(config, shape, dataset.n_outputs)
    model = maker.build(stream(seed, "template"))
    layout = Layout.of(model)
    fresh = partial(maker.draw_weights, layout)
    methods = _choose_methods(config, dataset, encoder, flipped)
    check_tuning(config, methods)

    parts = RunComponents(
        model,
        layout,
        methods,
        dataset.n_classes,
        seed,
        fresh,
        privacy=config.protected,
        noise="seeded",
        n_labels=len(dataset.labels),
        answers=MemoryAnswers(),
    )
    if methods["query"].contract.simulator_only:
        parts = replace(parts, hidden=hidden)
    features = None
    if encoder is not None:
        features = CommonFeatures(encoder, dataset.x, rows, kept or FeatureStore())
        parts = replace(parts, encode=features.of_site)

    engine, parts = _place(config, parts, dataset.task, shape, notify)
    x = dataset.x.to(DTYPES[config.dtype])
    members = {}
    for name, at in rows.items():
        members[name] = LocalSite(
            name,
            data.take_rows(x, at),
            parts,
            store,
            groups=None if cases else take_some(dataset.groups, at),
            predictions=take_some(predictions, at),
            cases=cases.get(name),
        )
    channel: Channel = InProcessChannel(members, engine)
    if runtime == "bytes":
        channel = SerializingChannel(members, engine)
    return SimulatedEnvironment(
        config=config,
        seed=seed,
        dataset=dataset,
        channel=channel,
        members=members,
        oracle=_build_oracle(config, members, hidden, is_shared(methods["query"])),
        model=model,
        layout=layout,
        methods=methods,
        executor=executor_of(config, model),
        fresh=fresh,
        features=features,
        tests=split_tests(config, dataset, shares, seed),
        flipped=flipped,
    )


def _find_cases(
    config: ExperimentConfig, dataset: Dataset, rows: Mapping[SiteId, Tensor]
) -> dict[SiteId, Cases]:
    """Return the cases of each site; empty if each row is an example."""
    if not joins_groups(config) or dataset.groups is None:
        return {}
    return {name: Cases.of_groups(dataset.groups[at]) for name, at in rows.items()}


def _hide_labels(
    dataset: Dataset,
    rows: Mapping[SiteId, Tensor],
    flipped: Sequence[SiteId],
    cases: Mapping[SiteId, Cases],
) -> dict[SiteId, Tensor]:
    """Return the labels that the oracle of each site gives, inverted at flipped sites.

    The label of a case is that of `label_groups`.
    """
    hidden = {name: dataset.y[at] for name, at in rows.items()}
    for name, of_site in cases.items():
        _, labels = label_groups(hidden[name].numpy(), of_site.of_row.numpy())
        hidden[name] = torch.from_numpy(labels).to(dataset.y.dtype)
    for name in flipped:
        hidden[name] = dataset.n_classes - 1 - hidden[name]
    return hidden


def _choose_methods(
    config: ExperimentConfig,
    dataset: Dataset,
    encoder: Encoder | None,
    flipped: Sequence[SiteId],
) -> Methods:
    """Return the algorithms of a configuration, with those for encoding and empty cells."""
    shape = shape_after(config, encoder, tuple(dataset.x.shape[1:]))
    chosen = narrow_training(
        methods_of(config, flipped), math.prod(shape), dataset.n_classes
    )
    if config.standardize == "ranges":
        raise ValueError(
            "standardize is 'ranges', but only real sites agree on ranges of columns (in "
            "study.toml); set standardize=federated"
        )
    training = chosen["training"]
    is_attacked = isinstance(training, ClosedForm) or training.contract.has_trees
    if DISCLOSURE in config.measure and not is_attacked:
        raise ValueError(
            "measure lists 'disclosure', which attacks the sums of closed-form training and of "
            f"trees, and training is {config.training}; set training=closed-form, or "
            "omit it"
        )
    _check_site_scores(config, chosen)
    if encoder is None and dataset.missing is not None:
        chosen["scaling"] = Scaling(of_cells=True)
    return with_encoder(chosen, encoder, tuple(dataset.x.shape[1:]), dataset.missing)


def _check_site_scores(config: ExperimentConfig, methods: Methods) -> None:
    """Raise ValueError if a measurement needs the scores of each site, and all are equal."""
    if config.test == "own" or is_personal(methods["training"]):
        return
    refuse_without_sites(
        config,
        f"{config.training} trains one model for all sites, which have the same test examples; "
        "set test=own, or use a personalized training algorithm",
    )


def _place(
    config: ExperimentConfig,
    parts: RunComponents,
    task: Task,
    shape: tuple[int, ...],
    notify: EventHandler,
) -> tuple[Executor, RunComponents]:
    """Return the executor of local training, and the parts of the sites on its device."""

    def tell(reason: str) -> None:
        notify({"event": "device", "reason": reason})

    placement = placement_of(config)
    engine = build_executor(
        executor_of(config, parts.model),
        parts.model,
        parts.layout,
        row_loss(task),
        channels_last=config.channels_last,
        placement=placement,
        tell=tell,
        policy=OWN,
    )
    if placement is None or not isinstance(engine, Device):
        return engine, parts
    check_draws(parts.model, shape)
    passes = ForwardPasses(parts.model, parts.layout, placement)
    selection = SelectionDevice(placement, tell, engine.free)
    return engine, replace(parts, passes=passes, selection=selection)


def _build_oracle(
    config: ExperimentConfig,
    members: dict[SiteId, LocalSite],
    hidden: dict[SiteId, Tensor],
    shared: bool,
) -> Simulated:
    """Return an oracle that limits each site (or all, with a shared budget) to its label budget.

    The limit holds across resumes.
    """
    sizes = {name: len(y) for name, y in hidden.items()}
    first = allocate_budget(config.initial, config.budget_allocation, sizes)
    limit = dict(first)
    for cycle in range(config.cycles):
        later = allocate_budget(config.budget_of(cycle), config.budget_allocation, sizes)
        for name, n in later.items():
            limit[name] += n
    spent = {name: int(site.bought.sum()) for name, site in members.items()}
    if shared:
        return Simulated(hidden, sum(limit.values()), spent)
    return Simulated(hidden, limit, spent)


def partition_of(simulation: SimulatedEnvironment) -> dict[str, object]:
    """Return the initial partition (sites x classes) and its heterogeneity, for reports."""
    details: dict[str, object] = {
        "sites": list(simulation.members),
        "classes": list(simulation.dataset.classes),
        "flipped": list(simulation.flipped),
    }
    n_classes = simulation.dataset.n_classes
    if n_classes:
        # concatenated examples of all sites, and the positions of each site
        hidden = [simulation.oracle.hidden[name].numpy() for name in simulation.members]
        ends = np.cumsum([0, *map(len, hidden)])
        parts = [np.arange(first, end) for first, end in pairwise(ends.tolist())]
        details |= data.partition_report(np.concatenate(hidden), parts, n_classes)
    return details
