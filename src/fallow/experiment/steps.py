"""Bookkeeping of the steps of a run: costs, ledger entries, records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.streams import seed_of, stream
from fallow.core.types import SiteId, State
from fallow.data import validation_split
from fallow.data.partition.shares import hold_back_groups
from fallow.experiment.encoding import find_dims
from fallow.experiment.environment import Environment, Simulation
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import FinishedPhase, FinishedQuery, StepCosts
from fallow.experiment.methods import threads, versions_of
from fallow.measurements.meter import count_sent, count_values, measure_exposure
from fallow.settings.config import ExperimentConfig
from fallow.sites.store import Label

if TYPE_CHECKING:
    from fallow.experiment.record import (
        Collaboration,
        DisclosureEntry,
        Evaluation,
        Record,
        Relayed,
    )


@dataclass
class AccumulatedCosts:
    """Seconds, bytes and disclosures of all steps so far."""

    seconds: float = 0.0
    shown: Disclosure = field(default_factory=Disclosure)

    def add(self, *steps: StepCosts) -> None:
        for done in steps:
            self.seconds += done["seconds"]
            self.shown = self.shown.plus(Disclosure.of(done["revealed"]))


def ledger_lines(cycle: int, kept: State, answers: dict[int, float]) -> list[Label]:
    """Return the ledger entries for the labels of one site, with values attached by the query."""
    if not kept:
        return []
    rows: list[int] = kept["rows"].tolist()
    weights: list[float] = [1.0] * len(rows)
    if "weight" in kept:
        weights = kept["weight"].tolist()
    probabilities: list[float | None] = [None] * len(rows)
    if "probability" in kept:
        probabilities = [known_or_none(value) for value in kept["probability"].tolist()]
    lines = []
    for row, weight, probability in zip(rows, weights, probabilities, strict=True):
        if row in answers:  # no annotator is needed
            lines.append(Label(row, answers[row], cycle, weight, probability))
    return lines


def known_or_none(value: float) -> float | None:
    """Return a value, or None for NaN."""
    if math.isnan(value):
        return None
    return value


def hold_back(
    labels: list[Label],
    share: float,
    is_stratified: bool,
    seed: int,
    groups: Tensor | None = None,
    earlier: Sequence[Label] = (),
) -> list[Label]:
    """Return the new labels of a site, with the fraction ``share`` reserved for validation.

    With ``is_stratified``, labels are drawn by class if each class has two or more.  Otherwise the
    choice depends on the number of labels and the seed, never on the labels.  At least one label is
    reserved and one is used for training.  A single label is used for training.

    groups: of all examples of the site, (n,).  Whole groups are then reserved, and new labels of a
    group join its ``earlier`` ones, so that neither may be left for one of the two.
    """
    if share == 0 or not labels:
        return labels
    y = np.array([label.value for label in labels])  # (n,)
    if is_stratified:
        y = y.astype(np.int64)
    rng = np.random.default_rng(seed)
    is_held: npt.NDArray[np.bool_] = np.zeros(len(labels), dtype=np.bool_)
    if groups is not None:
        of_labels = groups[[label.row for label in labels]].numpy()
        sides = {int(groups[label.row]): label.is_validation for label in earlier}
        is_held = hold_back_groups(y, of_labels, share, rng, sides)
    elif len(labels) > 1:
        is_held[validation_split(y, share, rng)[1]] = True
    assigned = zip(labels, is_held.tolist(), strict=True)
    return [label._replace(is_validation=is_out) for label, is_out in assigned]


def is_stratified(config: ExperimentConfig, classes: int) -> bool:
    """Return whether validation labels are drawn by class.

    This is never the case under local privacy.  One changed label would then move others between
    training and validation, and change released counts by more than the sensitivity of 2.  The
    number of training labels, which is sent without noise, would depend on the labels too.
    """
    return classes > 0 and config.privacy.epsilon is None


def buy_labels(
    simulation: Simulation,
    event_log: EventLog,
    cycle: int,
    step: ExchangeKey,
    budget: Mapping[SiteId, int],
    done: FinishedQuery,
    keep: tuple[str, ...],
) -> FinishedQuery:
    """Acquire labels, write the ledgers and end the cycle at the sites, in one transaction."""
    selected: dict[SiteId, State] = {}
    for name, site in simulation.members.items():
        if "selected" in site.memory:
            selected[name] = site.memory["selected"]
    rows = {name: kept["rows"] for name, kept in selected.items()}
    picked = {name: len(at) for name, at in rows.items()}
    check_picked(simulation, cycle, budget, picked)
    simulation.oracle.submit(rows)
    answers = simulation.oracle.poll()
    with event_log.transaction():
        for name, site in simulation.members.items():
            lines = ledger_lines(cycle, selected.get(name, {}), answers.get(name, {}))
            drawn = seed_of(simulation.seed, "validation", step.step_name, name)
            by_class = is_stratified(simulation.config, len(simulation.dataset.classes))
            share = simulation.config.validation
            earlier = [] if site.groups is None else site.store.load_labels(site.id)
            site.buy(hold_back(lines, share, by_class, drawn, site.groups, earlier))
            site.forget(keep)
        return event_log.finish(step.phase_name, done)


def check_picked(
    simulation: Environment,
    cycle: int,
    budget: Mapping[SiteId, int],
    picked: Mapping[SiteId, int],
) -> None:
    """Raise an error if more examples were selected than the budget allows."""
    if simulation.is_shared:  # all sites count as one
        budget = {"": sum(budget.values())}
        picked = {"": sum(picked.values())}
    for name, n in picked.items():
        if n > budget[name]:
            where = "at all sites"
            if name:
                where = f"at site {name}"
            raise ValueError(
                f"{simulation.config.strategy} selected {n} examples {where} in cycle {cycle}, "
                f"more than its budget of {budget[name]}"
            )


def find_fresh(labels: Sequence[Label], cycle: int, groups: Tensor | None) -> list[int]:
    """Return the labeled examples of the last query, and those of their groups."""
    fresh = [label.row for label in labels if label.cycle == cycle - 1]
    if groups is None:
        return fresh
    labeled = torch.tensor([label.row for label in labels], dtype=torch.int64)
    is_fresh = torch.isin(groups[labeled], groups[fresh])
    return labeled[is_fresh].tolist()


@contextmanager
def hold_back_fresh(simulation: Simulation, cycle: int, r: int) -> Iterator[None]:
    """Use new labels for validation in the first round of a phase, with ``fresh_first``.

    The ledger does not change.
    """
    if not simulation.config.fresh_first or cycle == 0 or r > 0:
        yield
        return
    with ExitStack() as stack:
        for site in simulation.members.values():
            labels = site.store.load_labels(site.id)
            stack.enter_context(site.hold_back(find_fresh(labels, cycle, site.groups)))
        yield


def cohort_of(simulation: Environment, cycle: int, r: int) -> tuple[SiteId, ...]:
    """Return the sites of a round; all in the last round, so that each has a local model."""
    sites = simulation.channel.sites
    share = simulation.config.participation
    if share == 1 or r == simulation.config.rounds - 1:
        return sites
    n = math.ceil(share * len(sites) - 1e-9)
    drawn = torch.randperm(
        len(sites), generator=stream(simulation.seed, "cohort", cycle, r)
    )
    return tuple(sites[i] for i in sorted(drawn[:n].tolist()))


TRACED: tuple[Literal["evaluations", "conflicts", "guarded"], ...] = (
    "evaluations",
    "conflicts",
    "guarded",
)
"""Counts of collaborator choices that a record sums over sites."""


def describe_collaboration(
    state: State, sites: Sequence[SiteId], is_last: bool
) -> Collaboration:
    """Return senders and receivers of a round, if the state has a collaboration ``graph``.

    ``graph`` maps receivers to senders, without isolated receivers.  ``refused`` lists models excluded
    from averages.  The counts `TRACED` are over all sites.  The candidates, ``omega``, are constant
    within a cycle and recorded with its last round.
    """
    graph = state.get("graph")
    if graph is None or graph.shape != (len(sites), len(sites)):
        return {}
    from fallow.training.personal.parts.graphs import peers  # sites never need it

    collaboration: Collaboration = {"graph": peers(graph, sites)}
    for name in TRACED:
        if name in state:
            collaboration[name] = int(state[name].sum())
    collaboration["refused"] = []
    if "refused" in state:
        for site, is_refused in zip(sites, state["refused"].tolist(), strict=True):
            if is_refused:
                collaboration["refused"].append(site)
    if is_last and "omega" in state:
        collaboration["omega"] = peers(state["omega"], sites)
    return collaboration


def count_relayed(revealed: Sequence[DisclosureEntry]) -> Relayed | None:
    """Return the number of peer messages sent and received by each site in a cycle, or None.

    >>> disclosed = Disclosure()
    >>> ways = {"sent": {"a": 2}, "received": {"b": 2}}
    >>> disclosed.add("relay", "model", "a model", up=8, down=8, sites=2, passed=ways)
    >>> count_relayed(disclosed.rows())
    {'sent': {'a': 2}, 'received': {'b': 2}}
    """
    sent: Counter[SiteId] = Counter()
    received: Counter[SiteId] = Counter()
    for entry in revealed:
        sent += Counter(entry.get("sent", {}))
        received += Counter(entry.get("received", {}))
    if not sent:
        return None
    return {"sent": dict(sent), "received": dict(received)}


def add_queries(record: Record, queries: Sequence[FinishedQuery]) -> None:
    """Add values of the queries after a cycle to its record, in order."""
    record["notes"] = queries[-1]["memo"].get("notes", {})
    record["pseudo_labels"] = queries[0]["pseudo_labels"]


def build_record(
    simulation: Environment,
    cycle: int,
    evaluation: Evaluation,
    done: FinishedPhase,
    spent: AccumulatedCosts,
) -> Record:
    """Build the record of one evaluation of a finished phase.

    Counts by site and class cover training labels, and ``labeled`` covers all acquired labels.
    Real sites report the number of labels but not their classes.
    """
    config = simulation.config
    labels = done["labels"]
    trained_on = sum(sum(counts) for counts in labels.values())
    totals = [sum(counts) for counts in zip(*labels.values(), strict=True)]
    by_class = None
    if len(totals) == len(simulation.classes):
        by_class = totals
    variance = None
    if not simulation.classes:
        variance = simulation.variance
    record: Record = {
        "config": config.name,
        "strategy": str(config.strategy),
        "training": str(config.training),
        "seed": simulation.seed,
        "cycle": cycle,
        **evaluation,  # type: ignore[typeddict-item]  # mypy: it could have more keys
        "labeled": trained_on + done["validation"],
        "labels_validation": done["validation"],
        "pool": sum(simulation.sizes.values()),
        "labeled_per_site": labels,
        "labeled_per_class": by_class,
        "target_variance": variance,
        "seconds": spent.seconds,
        "bytes_up": spent.shown.bytes_up,
        "bytes_down": spent.shown.bytes_down,
        "revealed": spent.shown.rows(),
        "executor": simulation.executor,
        "threads": threads(),
        "versions": versions_of(simulation.config),
        "notes": {},
        "pseudo_labels": None,
    }
    shape = simulation.example_spec["shape"]
    record["exposure"] = measure_exposure(
        simulation.methods,
        find_dims(
            config,
            simulation.layout,
            simulation.methods.get("encoder"),
            tuple(shape),
            len(simulation.classes),
            len(simulation.sizes),
        ),
        count_values(simulation.example_spec["columns"], shape),
        count_sent(simulation.methods, record["revealed"]),
        [sum(counts) for counts in labels.values()],
        is_noisy=config.privacy.epsilon is not None,
    )
    relayed = count_relayed(done["revealed"])
    if relayed is not None:
        record["relayed"] = relayed
    return record
