"""Client functions for labeling tasks and test scores, and their disclosures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.exchange_key import ExchangeKey
from fallow.core.load_options import KnownMarks
from fallow.core.methods import LABEL_RANKS, FinalTraining
from fallow.core.multilabel import predict_answers
from fallow.core.refusal import Refusal, words_stay
from fallow.core.streams import seed_of, stream
from fallow.core.types import State, Values
from fallow.core.values import Kind, LabelCount
from fallow.data.example_spec import ExampleSpec, add_marks
from fallow.deployment.agreement import Agreement
from fallow.deployment.annotator_statistics import MIN_EXAMPLES
from fallow.deployment.annotator_values import (
    NO_CLASS,
    PREDICTED,
    Deadline,
    EndedTasks,
    Hits,
    LabelHits,
    NewTasks,
    Progress,
    Registration,
    SquaredErrors,
)
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.instructions import sum_replies
from fallow.deployment.ledger.label_requests import SelectedRow, TaskLimits
from fallow.deployment.ledger.labeling_tasks import LabelProgress, Reasons
from fallow.deployment.model_card import CardFacts, write_card
from fallow.deployment.test_counts import count_hits, count_right, sum_errors
from fallow.experiment.encoding import add_encoder, find_dims
from fallow.experiment.finished import TrainedModel
from fallow.experiment.measuring import (
    Measurements,
    fold_sums,
    list_kept,
    measure_examples,
    restore_kept,
)
from fallow.experiment.methods import versions
from fallow.experiment.scale import in_units
from fallow.experiment.scoring import scores_retained
from fallow.experiment.steps import hold_back, is_stratified, known_or_none
from fallow.measurements.base import ScoredExamples
from fallow.measurements.evaluation_set import KEPT as OUTLOOK
from fallow.measurements.meter import Exposure, count_values, measure_exposure
from fallow.settings.config import ExperimentConfig
from fallow.sites import LocalSite
from fallow.sites.site import ENCODE
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.storage.files import save_tree
from fallow.transport.peer_messages import tensor_to_bytes

MODEL = "model.safetensors"
PICKED = "picked in"
"""State at a site: the step that selected the examples."""
CYCLE = "cycle"
"""State at a site: the cycle of the other states."""
MODELS = ("local", "global")
"""States of models that a site may have at a query."""
N_LIKELIEST = 5
"""Largest number of classes that annotators see before they label, at most half of all classes."""
PARTS = ("w", "stats")
"""Parts of a model."""
SCORES = {
    True: "numbers of test examples and of hits, in all and by class",
    False: "number of test examples and the sum of squared errors",
}
"""Disclosure of test scores, for classification (True) and regression."""
SCORES_OF_LABELS = "numbers of test examples, and of known and right answers to each label"
"""Disclosure of test scores for several labels per example."""
REGISTERED = {
    has_cases: f"numbers of examples, {rows}labels and test examples, its version and a public key"
    for has_cases, rows in ((False, ""), (True, "their rows, "))
}
ENDED_TASKS = (
    "numbers of labeling tasks, answered and declined ones, labels, and remaining examples"
)
PREDICTIONS = (
    "; numbers of labels beside predictions, without and on sheets, and of equal ones"
)
NONE = "; numbers of examples that no class fits, and of all answered ones"
AGREEMENT = f"; Krippendorff's alpha of the annotators over {MIN_EXAMPLES} or more examples"


@dataclass(frozen=True)
class LabelingView:
    """Data that the client functions for annotators use: one site, its ledger and its files.

    ``x`` (m, *shape) and ``y`` (m,) are the test examples as in the file. ``run`` selects the
    labeling tasks. ``key`` is that of the instruction, and ``cycle`` its cycle, -1 for the initial
    labeled set. ``seal`` is the public key for peer messages to the site. ``bounds`` limit the
    labeling tasks over all runs. ``marks`` are those of the numbers in the site's file.
    """

    site: LocalSite
    ledger: Ledger
    agreement: Agreement
    x: Tensor
    y: Tensor
    run: str
    key: ExchangeKey
    cycle: int
    seal: bytes
    path: Path
    bounds: TaskLimits
    marks: KnownMarks

    @property
    def example_spec(self) -> ExampleSpec:
        """Return the agreed information for prediction, with the site's marks of numbers."""
        details = self.agreement.schema.example_spec
        add_marks(details, self.marks)
        return details

    @property
    def step(self) -> str:
        """Return the query or step of the labeling tasks, such as ``2/query``."""
        return self.key.main.step_name


@final
@dataclass(frozen=True)
class Annotators:
    """Labeling tasks, their labels, and scores on a site's own test examples.

    The client functions run at a site like those of an algorithm, with a `LabelingView` as view.
    The number of requested and labeled examples is disclosed without noise, but not which examples,
    and no counts per class. With ``secure_sum``, scores are disclosed as aggregates only.
    ``classes`` is false for other tasks, and ``n_labels`` is the number of several labels.
    ``schema`` is the schema hash that a site must report, and ``code`` the fingerprint of the
    agreed distributions, or "" without any. ``sends_agreement``: sites send the agreement of their
    annotators. ``sends_predictions``: they send how many labels equal predictions. ``sends_none``:
    they send how many examples no class fits.
    ``measurements``: those of the outputs for test examples.
    """

    secure_sum: bool = False
    classes: bool = True
    schema: str = ""
    code: str = ""
    sends_agreement: bool = False
    sends_predictions: bool = False
    sends_none: bool = False
    measurements: Measurements = ()
    has_cases: bool = False
    n_labels: int = 0

    contract: ClassVar[Contract] = Contract(
        title="Annotators and scores",
        paper="-",
        year=0,
    )

    @property
    def scores(self) -> str:
        """Disclosure of test scores."""
        sums = [item.disclosure for item in self.measurements if item.sums]
        counts = SCORES_OF_LABELS if self.n_labels else SCORES[self.classes]
        return "; ".join([counts, *sums])

    @property
    def ended_tasks(self) -> str:
        """Disclosure at the end of labeling."""
        disclosure = ENDED_TASKS
        if self.sends_predictions:
            disclosure += PREDICTIONS
        if self.sends_none:
            disclosure += NONE
        if self.sends_agreement:
            disclosure += AGREEMENT
        return disclosure

    @property
    def returned_scores(self) -> Hits | LabelHits | SquaredErrors:
        """Declaration of test scores."""
        if self.n_labels:
            return LabelHits(self.n_labels, self.measurements)
        if self.classes:
            return Hits(self.measurements)
        return SquaredErrors(self.measurements)

    @property
    def kept(self) -> Mapping[str, Kind]:
        """Arguments of `finish` in addition to the model, which measurements keep with it."""
        return list_kept(self.measurements)

    writes: ClassVar[frozenset[str]] = frozenset({"ask", "close"})
    """Client functions that are one transaction with their reply."""

    @property
    def registered(self) -> str:
        """Disclosure of the registration of a site."""
        return REGISTERED[self.has_cases]

    @client.each(
        lambda self: self.registered,
        returns=lambda self: Registration(self.schema, self.code, self.has_cases),
    )
    def hello(self, at: LabelingView) -> Values:
        """Register the site with the data that the coordinator needs to start."""
        reply: Values = {
            "rows": at.site.size,
            "test": len(at.y),
            **_count_labels(at.site),
            "schema": at.agreement.schema.digest,
            "fallow": versions()["fallow"],
            "seal": torch.tensor(list(at.seal), dtype=torch.uint8),
        }
        if at.agreement.distributions:
            reply["code"] = at.agreement.installed_code
        if self.has_cases:
            reply["slices"] = len(at.site.x)
        return reply

    @client.each(
        "number of labeling tasks",
        returns=NewTasks(),
        takes={"allowed": LabelCount(), "deadline": Deadline()},
    )
    def ask(self, at: LabelingView, allowed: int, deadline: str | None = None) -> Values:
        """Turn selected examples and suspicious labels into labeling tasks within the budget."""
        step = at.step
        cycle = at.cycle
        selected = _find_picks(at, step)
        if selected is not None:  # an example may have been withdrawn since
            taken = at.ledger.requests.find_taken_rows(at.run, cycle)
            kept = [
                i for i, row in enumerate(selected["rows"].tolist()) if row not in taken
            ]
            selected = {name: values[kept] for name, values in selected.items()}
        lines: list[SelectedRow] = []
        if selected is not None:
            lines = list(_explain_picks(at, step, cycle, selected))
        if cycle >= 0 and step == _name_last_query(at.agreement.config, cycle):
            checks = _list_checks(at, min(allowed, at.agreement.plan.checked_labels))
            checks += _list_again(at, step, allowed - len(checks), checks)
            lines = lines[: allowed - len(checks)] + checks
        asked = at.ledger.requests.ask(
            run=at.run,
            step=step,
            cycle=cycle,
            allowed=allowed,
            deadline=deadline,
            rows=lines,
            allowance=at.bounds,
        )
        return {"asked": asked}

    @client.each(
        lambda self: self.ended_tasks,
        returns=lambda self: EndedTasks(
            self.sends_agreement, self.sends_predictions, self.sends_none
        ),
        takes={},
    )
    def close(self, at: LabelingView) -> Values:
        """Turn answers into labels and delete the states of the cycle, as in a simulation."""
        step = at.step
        cycle = at.cycle
        config = at.agreement.config

        def hold(labels: list[Label]) -> list[Label]:
            drawn = seed_of(at.agreement.seed, "validation", step, at.site.id)
            by_class = is_stratified(config, at.site.parts.classes)
            earlier = at.ledger.store.load_labels(at.site.id)
            groups = at.site.groups
            return hold_back(labels, config.validation, by_class, drawn, groups, earlier)

        closed = at.ledger.requests.close(at.run, step, hold)
        is_last = cycle < 0 or step == _name_last_query(config, cycle)
        lasting = _list_lasting(config)
        if not is_last:  # the query of the next part uses the same models
            lasting = MODELS + lasting
        at.site.forget(lasting)
        at.site.reread(at.ledger.store.load_labels(at.site.id))
        at.site.leave(at.ledger.requests.find_excluded_rows())
        reply: Values = {**asdict(closed), **_count_labels(at.site)}
        if at.agreement.plan.send_agreement:
            agreement = at.ledger.measure_agreement()
            reply["alpha"] = None
            if agreement.examples >= MIN_EXAMPLES:
                reply["alpha"] = agreement.alpha
        if at.agreement.plan.sends_predictions(config):
            use = asdict(at.ledger.measure_predictions())
            reply |= {name: use[name] for name in PREDICTED}
        if at.agreement.plan.sends_none(config):
            reply |= dict(zip(NO_CLASS, at.ledger.requests.count_none(), strict=True))
        return reply

    @client.each(
        lambda self: self.scores,
        returns=lambda self: self.returned_scores,
        takes={},
        when=lambda self: not self.secure_sum,
    )
    @client.sum(
        lambda self: f"aggregates of {self.scores}",
        returns=lambda self: self.returned_scores,
        takes={},
        when=lambda self: self.secure_sum,
    )
    def score(self, at: LabelingView, **common: Tensor) -> Values:
        """Return test counts of the model that the site would deploy.

        The shared state has ``w`` (d,), ``stats`` (s,) and further entries of the training
        algorithm. With validation, the model with the best validation score so far is evaluated
        (`scores_retained`). All counts are 0 without test examples.
        """
        retained = scores_retained(at.agreement.config, at.site.parts.methods, at.key.round)
        outputs = self._outputs(at, _find_used(at, common, retained))
        if self.n_labels:
            true = at.y.long()
            counts = count_right(outputs, true, self.n_labels)
        elif at.site.parts.classes:
            true = at.y.long()
            counts = count_hits(outputs.argmax(1), true, at.site.parts.classes)
        else:
            true = at.y
            outputs = in_units(outputs.squeeze(1), at.site.memory.get("targets"))
            counts = sum_errors(outputs, true)
        examples = ScoredExamples(outputs, true, self.n_labels)
        return counts | measure_examples(self.measurements, examples)

    @client.keep(
        "whether it uses a personalized model",
        takes=lambda self: self.kept,
    )
    def finish(self, at: LabelingView, **args: Any) -> Values:
        """Write the final model of this site and its model card.

        The arguments are the shared state and the values that measurements keep with the model.
        """
        kept = {name: args[name] for name in self.kept}
        common: State = {name: args[name] for name in args if name not in kept}
        training = at.site.parts.methods["training"]
        if not training.contract.trains:
            write_card(at.path, at.agreement, at.site.parts.methods, self._count_facts(at))
            return {"count": 0}
        has_last_word = isinstance(training, FinalTraining)
        retained = at.agreement.config.validation > 0 and not has_last_word
        used = _find_used(at, common, retained)
        deployed = training.deploy(common, at.site.memory)
        is_own = any(not torch.equal(deployed[name], common[name]) for name in PARTS)

        model: TrainedModel = {
            "state": {name: used[name] for name in PARTS},
            "example_spec": at.example_spec,
            "scale": at.site.memory.get("features"),
            "targets": at.site.memory.get("targets"),
        }
        encoder = at.site.parts.methods.get("encoder")
        add_encoder(model, encoder, at.site.memory.get(ENCODE))
        results = restore_kept(self.measurements, kept)
        save_tree(at.path / MODEL, {**model, **results})
        facts = replace(self._count_facts(at), results=results, is_own=is_own)
        if len(at.y):
            facts = self._with_own_scores(facts, at, used)
        write_card(at.path, at.agreement, at.site.parts.methods, facts)
        return {"count": int(is_own)}

    def _count_facts(self, at: LabelingView) -> CardFacts:
        """Return what the model card of a site states about its labels and what it sent."""
        return CardFacts(
            owner=f"site {at.site.id}",
            labels={at.site.id: _count_labels(at.site)},
            exposure=_measure_exposure(at),
        )

    @client.each(
        "numbers of labeling tasks, and of answered, declined, open and conflicting ones",
        returns=Progress(),
    )
    def progress(self, at: LabelingView) -> Values:
        """Return the labeling progress of this run. Earlier runs are not included.

        Beside noise, tasks on which annotators disagree count as open, because the number of
        disagreements depends on the values of labels.
        """
        if at.run != at.ledger.instructions.newest_run():
            return asdict(LabelProgress())
        progress = at.ledger.progress()
        if at.agreement.config.privacy.epsilon is not None:
            unsettled = progress.open + progress.conflicts
            progress = replace(progress, open=unsettled, conflicts=0)
        return asdict(progress)

    def _with_own_scores(
        self, facts: CardFacts, at: LabelingView, used: State
    ) -> CardFacts:
        """Add scores on all test examples of the site, which are only in its own model card."""
        outputs = self._outputs(at, used)
        n_classes = at.site.parts.classes
        if self.n_labels:
            true = at.y.long()
            counts = count_right(outputs, true, self.n_labels)
            name = "accuracy, mean over labels"
            shares = torch.as_tensor(counts["label_hits"]) / torch.as_tensor(
                counts["label_rows"]
            )
            score = float(shares.nanmean())
        elif n_classes:
            true = at.y.long()
            name = "accuracy"
            score = float((outputs.argmax(1) == true).double().mean())
        else:
            outputs = in_units(outputs.squeeze(1), at.site.memory.get("targets"))
            true = at.y
            name = "mean squared error"
            score = float((outputs - true).double().square().mean())
        sums: Values = {"rows": float(len(true))}
        examples = ScoredExamples(outputs, true, self.n_labels)
        sums |= measure_examples(self.measurements, examples)
        own = fold_sums(self.measurements, sums, {})
        return replace(
            facts,
            scores={f"{name} on the {len(true)} test examples of {at.site.id}": score},
            results={**own, **facts.results},  # kept values are of all sites
        )

    def _outputs(self, at: LabelingView, state: State) -> Tensor:
        """Return the model outputs for the test examples, (m, c)."""
        x = at.site.see(at.x)[:]
        outputs = SiteView(at.site, 0).outputs(state, x.to(state["w"].dtype))
        if not bool(outputs.isfinite().all()):
            raise Refusal(
                f"the model of site {at.site.id} gives NaN or infinite outputs: training diverged; "
                "lower the learning rate (lr)"
            )
        return outputs


def begin_cycle(site: LocalSite, cycle: int, config: ExperimentConfig) -> None:
    """Prepare a site for an instruction of a cycle.

    A site that missed the end of an earlier cycle deletes the states that other sites deleted then.
    """
    known = site.memory.get(CYCLE)
    if known is not None and int(known["number"]) < cycle:
        site.forget(_list_lasting(config))
    if CYCLE not in site.memory:
        site.remember(CYCLE, {"number": torch.tensor(cycle)})


def _list_lasting(config: ExperimentConfig) -> tuple[str, ...]:
    """Return the name prefixes of states that outlast a cycle."""
    lasting: tuple[str, ...] = ()
    if config.restart == "continue":
        lasting = ("own/", "average")
    if config.evaluation_fraction:
        lasting += (OUTLOOK,)
    return lasting


def _name_last_query(config: ExperimentConfig, cycle: int) -> str:
    """Return the step of the last query of a cycle, after which the models are deleted."""
    last = config.queries_per_cycle - 1
    return ExchangeKey("query", "query", cycle=cycle, part=last).step_name


def _find_picks(at: LabelingView, step: str) -> State | None:
    """Return the examples selected in this step.

    Selections of an earlier step that ended while the site was absent are ignored.
    """
    picked = at.site.memory.get(PICKED)
    if picked is None or tensor_to_bytes(picked["step"], PICKED) != step.encode():
        return None
    return at.site.memory.get("selected")


def _measure_exposure(at: LabelingView) -> Exposure:
    """Return the exact numbers that the site sent over all runs."""
    parts = at.site.parts
    shape = at.agreement.schema.shape
    sizes = find_dims(
        at.agreement.config,
        parts.layout,
        parts.methods.get("encoder"),
        shape,
        parts.classes,
        len(at.agreement.sites),
    )
    return measure_exposure(
        parts.methods,
        sizes,
        count_values(at.agreement.schema.features, shape),
        sum_replies(at.ledger.instructions.traffic()),
        [len(at.site.labeled)],
        is_noisy=at.agreement.config.privacy.epsilon is not None,
    )


def _count_labels(site: LocalSite) -> dict[str, int]:
    return {
        "labeled": len(site.labeled),
        "validation": len(site.validation),
        "pool": len(site.pool),
    }


def _find_used(at: LabelingView, common: State, retained: bool) -> State:
    if retained and "best" in at.site.memory:
        return at.site.memory["best"]
    with words_stay():
        return at.site.parts.methods["training"].deploy(common, at.site.memory)


def _explain_picks(
    at: LabelingView, step: str, cycle: int, selected: State
) -> Iterator[SelectedRow]:
    """Yield the selected examples with the reasons that are shown to annotators."""
    rows = selected["rows"].tolist()
    reasons = _predict(at, cycle, selected["rows"])
    if "score" in selected:
        for why, score in zip(reasons, selected["score"].tolist(), strict=True):
            if not math.isnan(score):  # randomly drawn examples have no reason
                why["score"] = score
    weights = [1.0] * len(rows)
    if "weight" in selected:
        weights = selected["weight"].tolist()
    chances: list[float | None] = [None] * len(rows)
    if "probability" in selected:
        chances = [known_or_none(value) for value in selected["probability"].tolist()]
    draw = stream(at.agreement.seed, "answers", step, at.site.id)
    answers = at.agreement.plan.draw_answers(len(rows), draw)
    draw = stream(at.agreement.seed, "guided", step, at.site.id)
    _hide_predictions(reasons, at.agreement.plan, draw)
    for i, row in enumerate(rows):
        yield SelectedRow(
            row=row,
            reasons=reasons[i],
            weight=weights[i],
            probability=chances[i],
            answers=answers[i],
        )


def _list_checks(at: LabelingView, n: int) -> list[SelectedRow]:
    """Return the ``n`` most suspicious labels of the site that were not checked before."""
    ranks = at.site.memory.get(LABEL_RANKS)
    if ranks is None:
        return []
    predicted = ranks["predicted"]
    if not at.site.parts.classes:
        predicted = in_units(predicted, at.site.memory.get("targets"))
    checkable = at.ledger.requests.find_checkable_rows()
    checks: list[SelectedRow] = []
    for row, value in zip(ranks["rows"].tolist(), predicted.tolist(), strict=True):
        if row in checkable:
            why: Reasons = {"predicted": value, "by": "without"}
            checks.append(SelectedRow(row, why, is_check=True))
    return checks[:n]


def _list_again(
    at: LabelingView, step: str, tasks: int, checks: Sequence[SelectedRow]
) -> list[SelectedRow]:
    """Return random labels of sheets that annotators give again, without those of ``checks``."""
    requests = at.ledger.requests
    confirmed = requests.find_confirmed_rows()
    n = at.agreement.plan.count_again(len(confirmed), requests.count_again(), tasks)
    free = requests.find_checkable_rows() - {chosen.row for chosen in checks}
    rows = [row for row in confirmed if row in free]
    draw = stream(at.agreement.seed, "again", step, at.site.id)
    why: Reasons = {"is_blind": True, "is_again": True}
    order = torch.randperm(len(rows), generator=draw)[:n].tolist()
    return [SelectedRow(rows[index], why, is_check=True) for index in order]


def _predict(at: LabelingView, cycle: int, rows: Tensor) -> list[Reasons]:
    """Return the predictions of the query's model for the rows (k,).

    Returns nothing if the query used no model, as for the initial labeled set.
    """
    site = at.site
    strategy = site.method("query")
    wanted = [getattr(strategy, "model", None), *strategy.contract.needs]
    by = None
    for name in wanted:
        if name in MODELS and name in site.memory:
            by = name
            break
    if by is None or cycle < 0 or not len(rows):
        return [{} for _ in rows]
    if not len(site.labeled):
        by = "global"  # the same names as in `View.model`
    view = SiteView(site, cycle)
    outputs = view.look(view.model(by), site.seen[rows])[1]
    if site.parts.n_labels:
        answers = predict_answers(outputs).double()
        return [{"predicted": number, "by": by} for number in answers.tolist()]
    if not site.parts.classes:
        numbers = in_units(outputs.squeeze(1), site.memory.get("targets"))
        return [{"predicted": number, "by": by} for number in numbers.tolist()]
    n = min(N_LIKELIEST, max(1, outputs.shape[1] // 2))
    ranked = outputs.softmax(1).sort(dim=1, descending=True, stable=True)
    sorted_classes = ranked.indices[:, :n].tolist()
    probabilities = ranked.values[:, :n].tolist()
    reasons: list[Reasons] = []
    for classes, sure in zip(sorted_classes, probabilities, strict=True):
        likeliest = list(zip(classes, sure, strict=True))
        reasons.append(
            {
                "predicted": classes[0],
                "probability": sure[0],
                "by": by,
                "likeliest": likeliest,
            }
        )
    return reasons


def _hide_predictions(
    reasons: Sequence[Reasons], plan: AnswerPlan, draw: torch.Generator
) -> None:
    """Remove the likeliest classes where annotators do not see them, and mark blind examples."""
    guided = plan.draw_guided(len(reasons), draw)
    for why, is_guided in zip(reasons, guided, strict=True):
        if is_guided or "predicted" not in why:
            continue
        why.pop("likeliest", None)
        if plan.guided_share:
            why["is_blind"] = True
