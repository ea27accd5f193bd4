"""Interface between a run and its sites, for simulations and for real sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from fallow.core.ask import Ask, Channel, Masking
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods
from fallow.core.missing import Missing
from fallow.core.model_vectors import Layout
from fallow.core.types import SiteId, State, Values
from fallow.data.dataset import Dataset
from fallow.data.example_spec import ExampleSpec
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import (
    FinishedQuery,
    Memory,
    Phases,
    TrainedPhase,
)
from fallow.experiment.scale import Scale
from fallow.settings.config import ExperimentConfig
from fallow.sites import LocalSite, Simulated

if TYPE_CHECKING:
    from fallow.experiment.record import Evaluation, PseudoLabels
    from fallow.measurements.results import AttackResult


class Environment(Protocol):
    """Sites of an experiment.

    `SimulatedEnvironment` simulates them with an oracle that answers at once.  Real sites are
    other machines with human annotators (`fallow.deployment`).  `Run` is the same for both.
    """

    @property
    def config(self) -> ExperimentConfig: ...
    @property
    def seed(self) -> int: ...
    @property
    def channel(self) -> Channel: ...
    @property
    def methods(self) -> Methods: ...
    @property
    def layout(self) -> Layout: ...  # of the model
    @property
    def fresh(self) -> Callable[[torch.Generator], State]: ...
    @property
    def executor(self) -> str: ...
    @property
    def masking(self) -> Masking | None: ...
    @property
    def is_shared(self) -> bool: ...  # the query spends one budget of all sites
    @property
    def is_standardized(self) -> bool: ...  # sites agree on units of features first
    @property
    def missing(self) -> Missing | None: ...  # rows have empty cells, which sites impute
    @property
    def scale(self) -> Scale | None: ...  # those units, or None before they are computed
    @property
    def encoded_by(self) -> State | None: ...  # state of the fitted encoder
    @property
    def targets(self) -> State | None: ...  # units of regression targets: mean (), std ()
    @property
    def example_spec(self) -> ExampleSpec: ...  # rows: their classes, columns and shape
    @property
    def sizes(self) -> dict[SiteId, int]: ...  # rows of each site
    @property
    def classes(self) -> Sequence[str]: ...  # or names of several labels per example
    @property
    def variance(self) -> float | None: ...  # of regression targets: the unit of errors

    # those of a round or query whose replies count
    def attending_sites(
        self, key: ExchangeKey, cohort: Sequence[SiteId]
    ) -> tuple[SiteId, ...]: ...
    def with_encoder(self, state: State) -> Environment: ...
    def in_units(self, scale: Scale) -> Environment: ...
    def with_targets(self, targets: State | None) -> Environment: ...
    def agree_on_targets(self, ask: Ask) -> State | None: ...  # agreed on through `Ask`

    def budget_for(self, share: float | int) -> dict[SiteId, int]: ...
    def cap_budget(self, budget: Mapping[SiteId, int]) -> dict[SiteId, int]: ...
    # labels that train, by class or in one number
    def counts(self) -> dict[SiteId, list[int]]: ...
    @property
    def n_validation(self) -> int: ...  # labels held back for validation

    # acquire the labels of the selected examples; ends the step and the cycle at the sites
    def buy_labels(
        self,
        event_log: EventLog,
        cycle: int,
        step: ExchangeKey,
        budget: Mapping[SiteId, int],
        done: FinishedQuery,
        keep: tuple[str, ...],
    ) -> FinishedQuery: ...
    # None at real sites, because the true labels are unknown
    def pseudo_labels(self) -> PseudoLabels | None: ...

    # attacks of ``sums`` of each training phase and of the model; real sites have no true examples
    def measure_disclosure(
        self, sums: Sequence[Values], state: State
    ) -> list[AttackResult]: ...

    # with the memory of the sites if another strategy trained the phase; None: no change
    def first_phase(
        self, phases: Phases, train: Callable[[], TrainedPhase]
    ) -> tuple[TrainedPhase, Memory | None]: ...
    def restore(self, memory: Memory | None) -> None: ...  # result of `first_phase`
    def hold_back_fresh(self, cycle: int, r: int) -> AbstractContextManager[None]: ...
    def score_round(
        self, event_log: EventLog, shown: Disclosure, cycle: int, r: int, state: State
    ) -> Evaluation: ...
    # ``kept``: values of measurements, which sites keep with the model
    def one_model(
        self, event_log: EventLog, state: State, kept: Values
    ) -> State | None: ...
    def own_models(self, state: State) -> dict[SiteId, State]: ...  # where they differ


class Simulation(Environment, Protocol):
    """Environment in this process, with access to all sites, hidden labels and test examples."""

    @property
    def dataset(self) -> Dataset: ...
    @property
    def x_test(self) -> Tensor: ...  # rows to test on as models see them
    @property
    def members(self) -> Mapping[SiteId, LocalSite]: ...
    @property
    def oracle(self) -> Simulated: ...
    @property
    def model(self) -> nn.Module: ...
    @property
    def tests(self) -> Mapping[SiteId, Tensor] | None: ...  # test rows of each site
    @property
    def flipped(self) -> Sequence[SiteId]: ...  # sites with wrong labels
    @property
    def fingerprint(self) -> str: ...  # a digest of data, partition and hidden labels
    @property
    def variance(self) -> float: ...
