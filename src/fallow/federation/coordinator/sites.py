"""Real sites as the ground of a run: what the coordinator knows of them, and how labels and scores
come in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypedDict, final

import torch

from fallow.core.ask import Ask, Carrier
from fallow.core.banks import Layout
from fallow.core.complete import each_of_all
from fallow.core.disclosure import Disclosure, DisclosureEntry
from fallow.core.methods import Methods, server_parts
from fallow.core.missing import Missing
from fallow.core.refusal import Halted
from fallow.core.types import Answer, SiteId, State, Tree
from fallow.experiment.finished import FinishedQuery, RowsAbout, TrainedPhase
from fallow.experiment.journal import Journal
from fallow.experiment.methods import is_shared
from fallow.experiment.phases import Memory, Phases
from fallow.experiment.record import Evaluation, Scores
from fallow.experiment.scale import Scale
from fallow.experiment.scoring import describe_round
from fallow.experiment.steps import check_picked
from fallow.federation.agreement import Agreement
from fallow.federation.building import BuiltStudy
from fallow.federation.coordinator.absences import find_absent
from fallow.federation.coordinator.labels import LabelWait, read_count
from fallow.federation.coordinator.news import note_closed_without
from fallow.federation.coordinator.scores import score_counts, score_totals
from fallow.network.checks import ResponseCheck
from fallow.network.plausible_sums import PlausibleSums
from fallow.privacy import SecureSum
from fallow.settings.budgets import budgets
from fallow.settings.recipe import Recipe

HELLO = "0/hello"
FINISH = "left at the end"  # what the journal notes of it: rows of a `Disclosure`
LABELS = "labels"  # what the journal notes of them: how many each site has
MOST = "most labels"  # what the journal notes of them: how many each site can have by now


class Greetings(TypedDict):
    """What every site has said of itself, and what that revealed."""

    sites: dict[SiteId, Answer]
    revealed: list[DisclosureEntry]


@final
@dataclass(frozen=True)
class RealSites:
    """The sites of an agreement, each a process on another machine.

    Implements `experiment.environment.Environment`.

    ``greeted``: what each site said of itself, by `hello`.  How many labels a site has is noted
    when a step is over, so that a resumed run counts the same.  ``border`` is told what sites have
    registered and were asked for, beyond which nothing counts that they say.
    """

    agreement: Agreement
    made: BuiltStudy
    carrier: Carrier
    journal: Journal
    label_wait: LabelWait
    greeted: Greetings
    encoded_by: State | None = None
    scale: Scale | None = None
    targets: State | None = None
    border: ResponseCheck = field(default_factory=ResponseCheck)

    def __post_init__(self) -> None:
        self.border.rows |= find_rows(self.greeted["sites"])
        for site, answer in self.greeted["sites"].items():
            self.border.tests[site] = read_count(answer, "test")
        self.border.labels |= self.most_labels

    # -- what is known ----------------------------------------------------------------------

    @property
    def known(self) -> dict[SiteId, Answer]:
        """What the sites that are in the study have said of themselves."""
        there = sorted(self.greeted["sites"].keys() & set(self.carrier.sites))
        return {site: self.greeted["sites"][site] for site in there}

    @property
    def recipe(self) -> Recipe:
        """As all parties have agreed on it."""
        return self.agreement.recipe

    @property
    def seed(self) -> int:
        """Of every draw that is no secret."""
        return self.agreement.seed

    @property
    def methods(self) -> Methods:
        """The methods of the study, by the part that they play."""
        return self.made.methods

    @property
    def layout(self) -> Layout:
        """Of the model."""
        return self.made.layout

    @property
    def fresh(self) -> Callable[[torch.Generator], State]:
        """Makes new initial weights from a stream."""
        return self.made.fresh

    @property
    def executor(self) -> str:
        """The name of how sites train, for records."""
        return self.made.trainer

    @property
    def classes(self) -> Sequence[str]:
        """Their names in order; none where numbers are predicted."""
        return self.agreement.schema.classes

    @cached_property
    def masking(self) -> PlausibleSums | None:
        """The half of secure sums that the server has; None without them."""
        privacy = self.recipe.privacy
        if not privacy.secure_sum:
            return None
        return PlausibleSums(SecureSum(privacy.bound), self.border, self.label_wait.say)

    @property
    def tree(self) -> None:
        """Real sites send what they add to the coordinator itself."""

    @property
    def is_shared(self) -> bool:
        """Whether all sites spend one budget."""
        return is_shared(self.methods["query"])

    @property
    def missing(self) -> Missing | None:
        """How empty cells are filled in; None where the agreement knows none."""
        return self.agreement.schema.missing

    @property
    def is_standardized(self) -> bool:
        """Whether sites scale their columns by totals over all of them."""
        return self.recipe.standardize == "federated"

    @property
    def about(self) -> RowsAbout:
        """What predicting needs to know of rows."""
        return self.agreement.schema.about

    @property
    def sizes(self) -> dict[SiteId, int]:
        """How many rows each site has."""
        return {site: read_count(answer, "rows") for site, answer in self.known.items()}

    @property
    def variance(self) -> float | None:
        """Of the first labels: errors are in units of it throughout the run."""
        noted = self.journal.read_note("variance")
        if noted is None:
            return None
        return float(noted)

    @property
    def labels(self) -> dict[SiteId, dict[str, int]]:
        """Of each site: ``labeled`` rows train, ``held`` ones validate, ``pool`` are left."""
        noted = self.journal.read_note(LABELS)
        if noted is not None:
            values: dict[SiteId, dict[str, int]] = json.loads(noted)
            return values
        return {site: read_counts(answer) for site, answer in self.known.items()}

    @property
    def most_labels(self) -> dict[SiteId, int]:
        """How many labels each site can have: those that it brought, and those that it was asked
        for so far.  A site may be behind in what it says, but never beyond this."""
        noted = self.journal.read_note(MOST)
        if noted is not None:
            values: dict[SiteId, int] = json.loads(noted)
            return values
        most: dict[SiteId, int] = {}
        for site, answer in self.known.items():
            counts = read_counts(answer)
            most[site] = counts["labeled"] + counts["held"]
        return most

    def counts(self) -> dict[SiteId, list[int]]:
        """One number for each site: of which class its labels are stays there."""
        return {site: [n["labeled"]] for site, n in self.labels.items()}

    @property
    def held(self) -> int:
        """How many labels validate, over all sites."""
        return sum(n["held"] for n in self.labels.values())

    def budget_for(self, share: float | int) -> dict[SiteId, int]:
        """The budget of each site: a share of its rows, or a number of labels."""
        return budgets(self.recipe.budget, share, self.sizes)

    def cap_budget(self, budget: Mapping[SiteId, int]) -> dict[SiteId, int]:
        """A budget without what sites cannot ask for; each cuts it again to the rows it has."""
        left = self.labels
        return {site: min(n, left[site]["pool"]) for site, n in budget.items()}

    def attending_sites(self, key: str, cohort: Sequence[SiteId]) -> tuple[SiteId, ...]:
        """Without the sites that are left out there; where these were all that was
        drawn for a round, all others stand in."""
        absent = find_absent(self.journal, key)
        there = [site for site in cohort if site not in absent]
        if not there:
            there = [site for site in self.carrier.sites if site not in absent]
        return tuple(there)

    # -- units ------------------------------------------------------------------------------

    def with_encoder(self, state: State) -> RealSites:
        """The same sites, whose rows are encoded by what the encoder was fitted to."""
        return replace(self, encoded_by=state)

    def in_units(self, scale: Scale) -> RealSites:
        """The same sites, with columns in units that they have agreed on."""
        return replace(self, scale=scale)

    def with_targets(self, targets: State | None) -> RealSites:
        """The same sites, with numbers to predict in units of those bought so far."""
        return replace(self, targets=targets)

    def agree_on_targets(self, ask: Ask) -> State | None:
        """The units of numbers to predict, by totals over sites; None where there are none."""
        if (
            self.classes
            or self.recipe.target_scale == "none"
            or not any(map(sum, self.counts().values()))
        ):
            return None
        targets: State | None = self.methods["scaling"].of_targets(ask)
        if targets is not None and self.variance is None:
            with self.journal.transaction():
                self.journal.note("variance", repr(float(targets["std"]) ** 2))
        return targets

    # -- people -----------------------------------------------------------------------------

    def buy_labels(
        self,
        journal: Journal,
        cycle: int,
        step: str,
        budget: Mapping[SiteId, int],
        done: FinishedQuery,
        keep: tuple[str, ...],
    ) -> FinishedQuery:
        """Picks become questions; when people are done, or out of time, answers become labels."""
        shown = Disclosure.of(done["revealed"])
        if cycle < 0:
            shown = shown.plus(Disclosure.of(self.greeted["revealed"]))
        allowed = self._find_limits(cycle, budget)
        most = {site: n + allowed.get(site, 0) for site, n in self.most_labels.items()}
        self.border.allowed = {site: allowed.get(site, 0) for site in most}
        self.border.labels |= most
        self.border.shared = None
        if self._is_shared_in(cycle):
            self.border.shared = sum(budget.values())
        asked = self._ask_people(cycle, step, budget, shown)
        done["ended"] = self.label_wait.wait(step, asked)
        ask = self._ask(f"{step}/close", cycle, shown)
        closed = ask.each("close", step=step, cycle=cycle)
        away = [site for site in ask.cohort if site not in closed]
        labels = self.labels
        people: dict[SiteId, Answer] = {}
        for site, answer in closed.items():
            labels[site] = read_counts(answer)
            people[site] = dict(answer)
        done["people"] = people
        done["revealed"] = shown.rows()
        with journal.transaction():
            journal.note(LABELS, json.dumps(labels))
            journal.note(MOST, json.dumps(most))
            if away:
                note_closed_without(journal, step, away)
            return journal.finish(step, done)

    def _ask_people(
        self, cycle: int, step: str, budget: Mapping[SiteId, int], shown: Disclosure
    ) -> dict[SiteId, int]:
        """How many questions each site asks its people."""
        if not any(budget.values()):
            return {}
        to: dict[SiteId, Answer] = {
            site: {"allowed": n} for site, n in self._find_limits(cycle, budget).items()
        }
        ask = self._ask(f"{step}/ask", cycle, shown)
        deadline = self.label_wait.deadline(step)
        answers = ask.each("ask", to=to, step=step, cycle=cycle, deadline=deadline)
        asked = {site: read_count(answer, "asked") for site, answer in answers.items()}
        check_picked(self, cycle, budget, asked)
        return asked

    def _find_limits(self, cycle: int, budget: Mapping[SiteId, int]) -> dict[SiteId, int]:
        """The most questions that each site may ask: where they share a budget, all of it."""
        if self._is_shared_in(cycle):
            return dict.fromkeys(budget, sum(budget.values()))
        return dict(budget)

    def _is_shared_in(self, cycle: int) -> bool:
        """Whether the labels of a cycle are one budget of all sites.  The first ones never are: of
        these each site draws its own."""
        return self.is_shared and cycle >= 0

    def _ask(
        self,
        key: str,
        cycle: int,
        shown: Disclosure,
        round_: int = 0,
        masking: PlausibleSums | None = None,
    ) -> Ask:
        """What asks the sites' people, and for scores: `people.People` answers."""
        ask = Ask(
            carrier=self.carrier,
            journal=self.journal,
            disclosure=shown,
            key=key,
            owner="people",
            cycle=cycle,
            round=round_,
            reveals=self.methods["people"].contract.verbs,
            masking=masking,
        )
        ask.cohort = self.attending_sites(key, ask.cohort)
        return ask

    def pseudo_labels(self) -> None:
        """Nobody knows the true labels of a pool."""

    # -- training ---------------------------------------------------------------------------

    def first_phase(
        self, phases: Phases, train: Callable[[], TrainedPhase]
    ) -> tuple[TrainedPhase, None]:
        """Real sites keep no phase for another strategy: they train."""
        return train(), None

    def restore(self, memory: Memory | None) -> None:
        """Sites remember by themselves."""

    def hold_back_fresh(self, cycle: int, r: int) -> AbstractContextManager[None]:
        """Sites hold them back by themselves."""
        return nullcontext()

    def score_round(
        self, journal: Journal, shown: Disclosure, cycle: int, r: int, state: State
    ) -> Evaluation:
        """What the sites' own test rows say; sites with few of them are silent."""

        def scores(retained: bool) -> Scores:
            key = f"{cycle}/train/{r}/score"
            masking = self.masking
            ask = self._ask(key, cycle, shown, r, masking)
            args: Tree = {"retained": retained}
            args |= self._select_sent(state)
            unit: float | None = None
            if not self.classes:
                unit = self.variance or 1.0
            if masking is not None:
                return score_totals(dict(ask.sum("score", **args)), unit)
            return score_counts(ask.each("score", **args), unit)

        return describe_round(self, cycle, r, state, scores)

    def one_model(self, journal: Journal, state: State) -> State | None:
        """The common model, handed to every site; None where what sites use is their own."""
        shown = Disclosure()
        ask = self._ask("model/finish", self.recipe.cycles, shown)
        n_own = ask.keep("finish", None, **self._select_sent(state))
        with journal.transaction():
            journal.note(FINISH, json.dumps(shown.rows()))
        if n_own:  # somebody uses a model of its own
            return None
        return {name: state[name] for name in ("w", "stats")}

    @property
    def at_the_end(self) -> Disclosure:
        """What left the sites when the last model was handed over."""
        return Disclosure.of(json.loads(self.journal.read_note(FINISH) or "[]"))

    def _select_sent(self, state: State) -> State:
        """What sites are sent of the state of the training method."""
        held = server_parts(self.methods)
        sent: State = {}
        for name, part in state.items():
            if name not in held:
                sent[name] = part
        return sent

    def own_models(self, state: State) -> dict[SiteId, State]:
        """None: they stay at the sites."""
        return {}


def read_counts(answer: Answer) -> dict[str, int]:
    """What a site says of its labels."""
    return {name: read_count(answer, name) for name in ("labeled", "held", "pool")}


def find_rows(known: Mapping[SiteId, Answer]) -> dict[SiteId, int]:
    """The most rows of each site that anything can be counted over: to choose from, or to test."""
    most: dict[SiteId, int] = {}
    for site, answer in known.items():
        most[site] = max(read_count(answer, "rows"), read_count(answer, "test"))
    return most


def greet_sites(made: BuiltStudy, carrier: Carrier, journal: Journal) -> Greetings:
    """What every site says of itself; it is asked once in a run.

    A study begins with all its sites, whatever the quorum: budgets are shares of the rows of each.
    Raises Halted where one does not answer.
    """
    known: Greetings | None = journal.load_step(HELLO)
    if known is not None:
        return known
    shown = Disclosure()
    verbs = made.methods["people"].contract.verbs
    ask = Ask(carrier, journal, shown, HELLO, "people", reveals=verbs)
    try:
        met = each_of_all(ask, "hello")
    except Halted as error:
        raise Halted(
            f"a study begins with all its sites, also where a quorum is enough later: {error}"
        ) from error
    greetings: Greetings = {"sites": met, "revealed": shown.rows()}
    return journal.finish(HELLO, greetings)
