"""Remote sites as the environment of a run: registration, labels and scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict, final

import torch

from fallow.core.ask import Ask, Channel, each_of_all
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods, select_sent
from fallow.core.missing import Missing
from fallow.core.model_vectors import Layout
from fallow.core.refusal import RunHalted, explain_errors
from fallow.core.types import SiteId, State, Tree, Values
from fallow.data.example_spec import ExampleSpec
from fallow.deployment.agreement import Agreement
from fallow.deployment.annotator_values import ALLOWED, NO_CLASS, PREDICTED, TESTS
from fallow.deployment.building import BuiltStudy
from fallow.deployment.coordinator.absences import find_absent, load_revocations
from fallow.deployment.coordinator.labels import LabelWait, read_count
from fallow.deployment.coordinator.plausible_sums import PlausibleSums
from fallow.deployment.coordinator.scores import score_counts, score_totals
from fallow.deployment.coordinator.weights import SiteWeights
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import (
    FinishedQuery,
    Memory,
    Phases,
    TrainedPhase,
)
from fallow.experiment.measuring import add_up, find_measurements, fold_sums
from fallow.experiment.methods import is_shared
from fallow.experiment.scale import Scale, find_variance
from fallow.experiment.scoring import describe_round
from fallow.experiment.steps import check_picked
from fallow.measurements.description import DESCRIBE
from fallow.privacy.secure_sum import SecureSum
from fallow.settings.budgets import LabelBudget, allocate_budget
from fallow.settings.config import ExperimentConfig

if TYPE_CHECKING:
    from fallow.experiment.record import DisclosureEntry, Evaluation, Scores
    from fallow.measurements.results import AttackResult

HELLO = ExchangeKey("hello", "hello")
FINISH = "left at the end"  # event log: rows of a `Disclosure`
LABELS = "labels"  # event log: number of labels of each site
LABEL_LIMITS = "most labels"  # event log: largest possible number of labels of each site


class SiteRegistrations(TypedDict):
    """Registration replies of all sites, and what they disclosed."""

    sites: dict[SiteId, Values]
    revealed: list[DisclosureEntry]


@final
@dataclass(frozen=True)
class RemoteEnvironment:
    """Sites of an agreement, each a process on another machine.

    Implements `experiment.environment.Environment`. ``greeted`` has the registration reply of each
    site. The number of labels of a site is stored at the end of a step, so that a resumed run has
    the same counts. ``weights`` compares replies, which ``weights.response_check`` has compared with
    the registered numbers and the requested labels.
    """

    agreement: Agreement
    made: BuiltStudy
    channel: Channel
    event_log: EventLog
    label_wait: LabelWait
    greeted: SiteRegistrations
    weights: SiteWeights
    encoded_by: State | None = None
    scale: Scale | None = None
    targets: State | None = None

    def __post_init__(self) -> None:
        response_check = self.weights.response_check
        response_check.rows |= find_rows(self.greeted["sites"])
        tests = {
            site: read_count(reply, "test") for site, reply in self.greeted["sites"].items()
        }
        response_check.note(TESTS, tests)
        response_check.labels |= self.most_labels

    # -- properties of the study ---------------------------------------------------------------

    @property
    def known(self) -> dict[SiteId, Values]:
        """Return the registration replies of the sites in the study."""
        there = sorted(self.greeted["sites"].keys() & set(self.channel.sites))
        return {site: self.greeted["sites"][site] for site in there}

    @property
    def config(self) -> ExperimentConfig:
        """Return the agreed experiment configuration."""
        return self.agreement.config

    @property
    def seed(self) -> int:
        """Return the seed of all non-cryptographic randomness."""
        return self.agreement.seed

    @property
    def methods(self) -> Methods:
        """Return the algorithms of the study, by role."""
        return self.made.methods

    @property
    def layout(self) -> Layout:
        """Return the layout of the model's weights."""
        return self.made.layout

    @property
    def fresh(self) -> Callable[[torch.Generator], State]:
        """Return a function that draws initial weights from a random stream."""
        return self.made.fresh

    @property
    def executor(self) -> str:
        """Return the name of the execution mode, for records."""
        return self.made.trainer

    @property
    def classes(self) -> Sequence[str]:
        """Return the class names in order, or nothing for regression."""
        return self.agreement.schema.outcomes

    @cached_property
    def masking(self) -> PlausibleSums | None:
        """Return the server side of secure aggregation, or None without it."""
        privacy = self.config.privacy
        if not privacy.secure_sum:
            return None
        return PlausibleSums(SecureSum(privacy.bound), self.weights, self.label_wait.notify)

    @property
    def tree(self) -> None:
        """Return None: sites send their contributions directly to the coordinator."""

    @property
    def is_shared(self) -> bool:
        """Return whether all sites share one label budget."""
        return is_shared(self.methods["query"])

    @property
    def missing(self) -> Missing | None:
        """Return how empty cells are imputed, or None if the agreement has no empty cells."""
        return self.agreement.schema.missing

    @property
    def is_standardized(self) -> bool:
        """Return whether columns are scaled by aggregates over all sites, or by agreed ranges."""
        return self.config.standardize != "none"

    @property
    def example_spec(self) -> ExampleSpec:
        """Return the information about examples that prediction needs."""
        return self.agreement.schema.example_spec

    @property
    def sizes(self) -> dict[SiteId, int]:
        """Return the number of examples of each site."""
        return {site: read_count(reply, "rows") for site, reply in self.known.items()}

    @property
    def variance(self) -> float | None:
        """Return the target variance of the initial labeled set, the unit of errors in this run."""
        noted = self.event_log.read_note("variance")
        if noted is None:
            return None
        return float(noted)

    @property
    def labels(self) -> dict[SiteId, dict[str, int]]:
        """Return for each site the number of examples for training, validation and in the pool.

        The keys are ``labeled``, ``validation`` and ``pool``.
        """
        noted = self.event_log.read_note(LABELS)
        if noted is not None:
            values: dict[SiteId, dict[str, int]] = json.loads(noted)
            return {site: values[site] for site in self.channel.sites if site in values}
        return {site: read_counts(reply) for site, reply in self.known.items()}

    @property
    def most_labels(self) -> dict[SiteId, int]:
        """Return the largest possible number of labels of each site.

        This is the number of initial labels plus the labels requested so far. A site may report
        fewer, but not more.
        """
        noted = self.event_log.read_note(LABEL_LIMITS)
        if noted is not None:
            values: dict[SiteId, int] = json.loads(noted)
            return values
        limits: dict[SiteId, int] = {}
        for site, reply in self.known.items():
            counts = read_counts(reply)
            limits[site] = counts["labeled"] + counts["validation"]
        return limits

    def counts(self) -> dict[SiteId, list[int]]:
        """Return one number of labels per site. The counts per class stay at the site."""
        return {site: [n["labeled"]] for site, n in self.labels.items()}

    @property
    def n_validation(self) -> int:
        """Return the number of validation labels over all sites."""
        return sum(n["validation"] for n in self.labels.values())

    def budget_for(self, budget: LabelBudget) -> dict[SiteId, int]:
        """Return the number of examples to label at each site.

        ``budget`` is a fraction of all examples or a number. It counts annotations.
        """
        labels = allocate_budget(budget, self.config.budget_allocation, self.sizes)
        return {site: self.agreement.plan.count_examples(n) for site, n in labels.items()}

    def cap_budget(self, budget: Mapping[SiteId, int]) -> dict[SiteId, int]:
        """Cap a budget by the labels that a site can provide; sites cap it by their examples again."""
        left = self.labels
        return {site: min(n, left[site]["pool"]) for site, n in budget.items()}

    def attending_sites(
        self, key: ExchangeKey, cohort: Sequence[SiteId]
    ) -> tuple[SiteId, ...]:
        """Return the cohort without the sites that are left out of the round.

        If no site of the cohort remains, all other sites take part.
        """
        absent = find_absent(self.event_log, key)
        there = [site for site in cohort if site not in absent]
        if not there:
            there = [site for site in self.channel.sites if site not in absent]
        return tuple(there)

    # -- units of features and targets ---------------------------------------------------------

    def with_encoder(self, state: State) -> RemoteEnvironment:
        """Return the same sites with examples encoded by a fitted encoder."""
        return replace(self, encoded_by=state)

    def in_units(self, scale: Scale) -> RemoteEnvironment:
        """Return the same sites with standardized columns."""
        return replace(self, scale=scale)

    def with_targets(self, targets: State | None) -> RemoteEnvironment:
        """Return the same sites with regression targets in units of the labels acquired so far."""
        return replace(self, targets=targets)

    def agree_on_targets(self, ask: Ask) -> State | None:
        """Compute the units of regression targets over all sites. Returns None for classes."""
        if (
            self.classes
            or self.config.target_scale == "none"
            or not any(map(sum, self.counts().values()))
        ):
            return None
        targets: State | None = self.methods["scaling"].of_targets(ask)
        if targets is not None and self.variance is None:
            with self.event_log.transaction():
                self.event_log.note("variance", repr(find_variance(targets)))
        return targets

    # -- annotators -------------------------------------------------------------------------

    def buy_labels(
        self,
        event_log: EventLog,
        cycle: int,
        step: ExchangeKey,
        budget: Mapping[SiteId, int],
        done: FinishedQuery,
        keep: tuple[str, ...],
    ) -> FinishedQuery:
        """Turn selected examples into labeling tasks, wait, and turn the replies into labels."""
        shown = Disclosure.of(done["revealed"])
        if cycle < 0:
            shown = shown.plus(Disclosure.of(self.greeted["revealed"]))
            described = self.event_log.load_step(DESCRIBE.phase_name)
            if described is not None:
                shown = shown.plus(Disclosure.of(described["revealed"]))
        allowed = self._find_limits(cycle, budget)
        limits = {site: n + allowed.get(site, 0) for site, n in self.most_labels.items()}
        self.weights.response_check.note(
            ALLOWED, {site: allowed.get(site, 0) for site in limits}
        )
        self.weights.response_check.labels |= limits
        self.weights.shared = None
        if self._is_shared_in(cycle):
            self.weights.shared = sum(budget.values())
        asked = self._ask_people(cycle, step, budget, shown)
        done["ended"] = self.label_wait.wait(step, asked)
        ask = self._ask(replace(step, step="close"), cycle, shown)
        closed = ask.each(self.methods["annotators"].close)
        labels = self.labels
        annotators: dict[SiteId, Values] = {}
        for site, reply in closed.items():
            labels[site] = read_counts(reply)
            annotators[site] = dict(reply)
        done["annotators"] = annotators
        if self.agreement.plan.send_agreement:
            alphas = {site: reply["alpha"] for site, reply in closed.items()}
            self.label_wait.notify({"event": "agreement", "sites": alphas})
        counted = {site: read_annotators(reply) for site, reply in closed.items()}
        self.label_wait.notify({"event": "annotators", "sites": counted})
        done["revealed"] = shown.rows()
        with event_log.transaction():
            event_log.note(LABELS, json.dumps(labels))
            event_log.note(LABEL_LIMITS, json.dumps(limits))
            return event_log.finish(step.phase_name, done)

    def _ask_people(
        self, cycle: int, step: ExchangeKey, budget: Mapping[SiteId, int], shown: Disclosure
    ) -> dict[SiteId, int]:
        """Create labeling tasks at the sites, and return the number at each site."""
        if not any(budget.values()):
            return {}
        to: dict[SiteId, Values] = {
            site: {"allowed": n} for site, n in self._find_limits(cycle, budget).items()
        }
        ask = self._ask(replace(step, step="ask"), cycle, shown)
        deadline = self.label_wait.deadline(step)
        replies = ask.each(self.methods["annotators"].ask, to=to, deadline=deadline)
        asked = {site: read_count(reply, "asked") for site, reply in replies.items()}
        check_picked(self, cycle, budget, asked)
        revoked = load_revocations(self.event_log)
        return {site: n for site, n in asked.items() if site not in revoked}

    def _find_limits(self, cycle: int, budget: Mapping[SiteId, int]) -> dict[SiteId, int]:
        """Return the largest number of labeling tasks of each site.

        With a shared budget this is the whole budget.
        """
        if self._is_shared_in(cycle):
            return dict.fromkeys(budget, sum(budget.values()))
        return dict(budget)

    def _is_shared_in(self, cycle: int) -> bool:
        """Return whether the sites share the label budget of a cycle.

        They never share the budget of the initial labeled set, which each site draws itself.
        """
        return self.is_shared and cycle >= 0

    def _ask(
        self,
        key: ExchangeKey,
        cycle: int,
        shown: Disclosure,
        masking: PlausibleSums | None = None,
    ) -> Ask:
        """Build the requests about annotators and scores that `Annotators` handles."""
        ask = Ask(
            channel=self.channel,
            event_log=self.event_log,
            disclosure=shown,
            key=key,
            owner="annotators",
            cycle=cycle,
            reveals=self.methods["annotators"].contract.disclosures,
            masking=masking,
        )
        ask.cohort = self.attending_sites(key, ask.cohort)
        return ask

    def measure_disclosure(
        self, sums: Sequence[Values], state: State
    ) -> list[AttackResult]:
        """Return nothing, because the true examples stay at the sites."""
        return []

    def pseudo_labels(self) -> None:
        """Return None: the true labels of an unlabeled pool are not known."""

    # -- training ---------------------------------------------------------------------------

    def first_phase(
        self, phases: Phases, train: Callable[[], TrainedPhase]
    ) -> tuple[TrainedPhase, None]:
        """Train. Remote sites do not reuse a phase of another strategy."""
        return train(), None

    def restore(self, memory: Memory | None) -> None:
        """Do nothing: sites restore their own state."""

    def hold_back_fresh(self, cycle: int, r: int) -> AbstractContextManager[None]:
        """Do nothing: sites hold back new labels themselves."""
        return nullcontext()

    def score_round(
        self, event_log: EventLog, shown: Disclosure, cycle: int, r: int, state: State
    ) -> Evaluation:
        """Return the scores on the sites' test examples. Sites with few of them do not report."""

        def compute(retained: bool) -> Scores:  # which sites derive from the round
            key = ExchangeKey("train", "score", cycle=cycle, round=r)
            masking = self.masking
            ask = self._ask(key, cycle, shown, masking)
            args: Tree = dict(select_sent(self.methods, state))
            unit: float | None = None
            if not self.classes:
                unit = self.variance or 1.0
            score = self.methods["annotators"].score
            measurements = find_measurements(self.config, is_regression=not self.classes)
            of_sites: dict[SiteId, Values] = {}
            if masking is None:
                of_sites = dict(ask.each(score, **args))
                total = add_up(of_sites)
                scores = score_counts(of_sites, unit)
            else:
                total = dict(ask.sum(score, **args))
                scores = score_totals(total, unit)
            return {**scores, **fold_sums(measurements, total, of_sites)}

        return describe_round(self, cycle, r, state, compute)

    def one_model(self, event_log: EventLog, state: State, kept: Values) -> State | None:
        """Distribute the global model, or return None if sites use personalized models.

        ``kept`` are values of measurements that sites store with the model.
        """
        shown = Disclosure()
        ask = self._ask(ExchangeKey("finish", "finish"), self.config.cycles, shown)
        args: Tree = {**select_sent(self.methods, state), **kept}
        n_own = ask.keep(self.methods["annotators"].finish, None, **args)
        with event_log.transaction():
            event_log.note(FINISH, json.dumps(shown.rows()))
        if n_own:  # at least one site uses a personalized model
            return None
        return {name: state[name] for name in ("w", "stats")}

    @property
    def at_the_end(self) -> Disclosure:
        """Return the disclosures of the final distribution of the model."""
        return Disclosure.of(json.loads(self.event_log.read_note(FINISH) or "[]"))

    def own_models(self, state: State) -> dict[SiteId, State]:
        """Return None: personalized models stay at the sites."""
        return {}


def read_annotators(reply: Values) -> dict[str, dict[str, int]]:
    """Return the counts about the annotators of one site that it sends beside those of labels.

    >>> read_annotators({"asked": 9, "none_of_these": 2, "decided": 8})
    {'none_of_these': {'none_of_these': 2, 'decided': 8}}
    """
    counted: dict[str, dict[str, int]] = {}
    for field, names in (("predictions", PREDICTED), ("none_of_these", NO_CLASS)):
        if names[0] in reply:
            counted[field] = {name: read_count(reply, name) for name in names}
    return counted


def read_counts(reply: Values) -> dict[str, int]:
    """Return the label counts in a site's reply."""
    return {name: read_count(reply, name) for name in ("labeled", "validation", "pool")}


def find_rows(known: Mapping[SiteId, Values]) -> dict[SiteId, int]:
    """Return the largest number of examples of each site that a count can cover."""
    limits: dict[SiteId, int] = {}
    for site, reply in known.items():
        counts = ("rows", "test", "slices") if "slices" in reply else ("rows", "test")
        limits[site] = max(read_count(reply, name) for name in counts)
    return limits


def greet_sites(
    made: BuiltStudy, channel: Channel, event_log: EventLog
) -> SiteRegistrations:
    """Register all sites, once per run.

    A study starts with all sites regardless of the quorum, because budgets are shares of each site's
    examples. Raises RunHalted if a site does not reply.
    """
    known: SiteRegistrations | None = event_log.load_step(HELLO.phase_name)
    if known is not None:
        return known
    shown = Disclosure()
    disclosures = made.methods["annotators"].contract.disclosures
    ask = Ask(channel, event_log, shown, HELLO, "annotators", reveals=disclosures)
    with explain_errors(
        "a study starts with all its sites, even if a smaller quorum is sufficient later: ",
        of=RunHalted,
        to=RunHalted,
    ):
        met = each_of_all(ask, made.methods["annotators"].hello)
    greetings: SiteRegistrations = {"sites": met, "revealed": shown.rows()}
    return event_log.finish(HELLO.phase_name, greetings)
