"""One site: its examples, labels and memory, and the only code that a coordinator can run there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, final

import torch
from torch import Tensor

from fallow.core.client import Declaration, declared
from fallow.core.local import NONE, LocalTraining, TrainState
from fallow.core.messages import Request, Step, is_main
from fallow.core.methods import Method, Methods, declared_state, methods_by_owner
from fallow.core.missing import filled
from fallow.core.model_vectors import Layout
from fallow.core.refusal import Refusal, words_stay
from fallow.core.streams import stream
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, State
from fallow.core.view import Rows
from fallow.engine import Fitted, Job
from fallow.engine.batches import Streams
from fallow.engine.device import ForwardPasses, SelectionDevice
from fallow.privacy.guard import Noise, ReleaseGuard
from fallow.privacy.settings import Privacy
from fallow.sites.cases import Cases
from fallow.sites.folds import FoldAssignment
from fallow.sites.seen_rows import SeenRows, Source, in_unit, seen_rows
from fallow.sites.store import Answers, Label, PeerMessages, Store, names_from_relay


def named_stream(
    seed: int, site: SiteId, name: tuple[str | int, ...], purpose: str, *more: int
) -> torch.Generator:
    """Return the random stream of one purpose in a fit; a plain function, so that it can be
    pickled."""
    return stream(seed, purpose, *name, *more, site)


EMPTY = -1.0
ENCODE = "encode"
"""Key of the fitted state of the encoder."""
FILL = "fill"
"""Key of the imputed values of empty cells, for an encoder."""
FEATURE_SCALES = (ENCODE, FILL, "features")
"""Keys of values by which examples become features."""
SCALES = (*FEATURE_SCALES, "targets")
"""Keys of values that are fixed for the rest of the run: imputation, encoding and scaling."""
Encoded = Callable[[SiteId, Tensor, State], tuple[Source, Tensor | None]]
"""Function that encodes the examples (n, *shape) of a site with the fitted state of the encoder.

It returns features and the positions of the examples in them (None: all, in their order).
"""


class Gathered(NamedTuple):
    """Examples gathered for an earlier job: at these positions in these examples of the site."""

    at: Tensor
    of: Tensor | SeenRows
    rows: Tensor


@dataclass(frozen=True)
class RunComponents:
    """Common components of all sites of one run.

    ``methods``: "plain" fits the additional models of a query strategy without its own step, and
    has no client functions. ``encode``: computes features, if there is an encoder. ``hidden``: true
    labels of all examples of each site, only in the simulation of a strategy that reads them.
    ``secret``: seed of a site's private random streams; None in a simulation, where noise is
    "seeded" from ``seed``.
    """

    model: torch.nn.Module
    layout: Layout
    methods: Methods
    classes: int
    seed: int
    fresh: Callable[[torch.Generator], State]  # newly initialized weights
    # labels of all examples (n,) of each site, for strategies whose contract has simulator_only
    hidden: Mapping[SiteId, Tensor] = field(default_factory=dict)
    privacy: Privacy = Privacy()
    noise: Noise = "os"  # "seeded": from the run's seed, in simulations
    # supplied instead of computed, by model and kind of examples: (n, h) and (n, c)
    features: Mapping[tuple[str, Rows], Tensor] = field(default_factory=dict)
    outputs: Mapping[tuple[str, Rows], Tensor] = field(default_factory=dict)
    secret: int | None = None
    n_labels: int = 0  # of each example, if it has several
    encode: Encoded | None = None
    passes: ForwardPasses | None = None  # computes predictions; None: this process
    answers: Answers | None = None  # None: sums over all examples are computed each time
    selection: SelectionDevice | None = (
        None  # device for the products of a query; None: as above
    )

    @cached_property
    def asked(self) -> dict[str, Method]:
        """Return the algorithms that a request may name."""
        return methods_by_owner(self.methods)

    @cached_property
    def declarations(self) -> dict[str, dict[str, Declaration]]:
        """Return the client functions of each algorithm that a request may name."""
        return {owner: declared(method) for owner, method in self.asked.items()}


@final
@dataclass
class LocalSite:
    """Site of the simulator or, with a durable store, of a federation.

    x: (n, *shape) all examples, or the rows of ``cases``. Hidden labels are not included: `buy`
    adds one after another.
    """

    id: SiteId
    x: Tensor
    parts: RunComponents
    store: Store
    memory: dict[str, State] = field(default_factory=dict)
    groups: Tensor | None = None  # (n,) int64: no split divides a group
    predictions: Tensor | None = None  # (n, k) given class probabilities
    cases: Cases | None = None  # rows that are one example; None: each is one
    values: Tensor = field(init=False)
    weight: Tensor = field(init=False)
    chance: Tensor = field(init=False)  # NaN if unknown

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            raise ValueError(
                f"site {self.id} has no examples; use fewer sites or another partition"
            )
        self._seen: Tensor | SeenRows | None = None
        self._gathered: dict[str, Gathered] = {}
        self._found: dict[str, Tensor] = {}  # until a label comes or leaves
        if self.cases is not None and self.predictions is not None:
            self.predictions = self.cases.average(self.predictions)
        self.excluded = torch.zeros(self.size, dtype=torch.bool)
        self.reread(self.store.load_labels(self.id))
        self.memory |= self.store.load_states(self.id)

    @property
    def size(self) -> int:
        """Return the number of examples, labeled or not."""
        if self.cases is not None:
            return len(self.cases)
        return len(self.x)

    @property
    def seen(self) -> Tensor | SeenRows:
        """Return the examples in model form, encoded and scaled on first access.

        Cases are rows before they are encoded, as an encoder is fitted to rows (`find_seen`).
        """
        if self._seen is None:
            if self.cases is not None and ENCODE in self.memory:
                self._seen = self._join_features(self.cases)
            else:
                self._seen = self.see(self.x)
        return self._seen

    @seen.setter
    def seen(self, rows: Tensor | SeenRows) -> None:
        self._seen = rows

    def find_seen(self, positions: Tensor) -> Tensor:
        """Return the positions in `seen` of examples by their positions."""
        if self.cases is not None and ENCODE not in self.memory:
            return self.cases.rows(positions)
        return positions

    def _join_features(self, cases: Cases) -> Tensor:
        """Return the cases in model form: mean and maximum of encoded rows, scaled."""
        assert self.parts.encode is not None  # noqa: S101 - the run has fitted it
        source, at = self.parts.encode(self.id, self.x, self.memory[ENCODE])
        rows = seen_rows(source, at, None, self.x.dtype)
        return in_unit(cases.join_features(rows), self.memory.get("features"), self.x.dtype)

    def see(self, x: Tensor) -> Tensor | SeenRows:
        """Return measured examples (m, *shape) in model form.

        They are in memory, or read on access (``[:]`` for all of them).
        """
        state = self.memory.get(ENCODE)
        unit = self.memory.get("features")
        if state is None:
            return self._measured(x, unit)
        assert self.parts.encode is not None  # noqa: S101 - the run has fitted it
        source, at = self.parts.encode(self.id, x, state)
        return seen_rows(source, at, unit, x.dtype)

    def _measured(self, x: Tensor, unit: State | None) -> Tensor:
        """Return examples (m, *shape) without encoding: standardized or imputed as fitted so far."""
        if unit is not None:
            return in_unit(x, unit, x.dtype)
        return filled(x, self.fill)

    @property
    def fill(self) -> Tensor | None:
        """Return the imputed values of empty cells (d,), of standardization or for an encoder."""
        for name in ("features", FILL):
            fill = self.memory.get(name, {}).get("fill")
            if fill is not None:
                return fill
        return None

    @property
    def examples(self) -> Tensor:
        """Return the positions of all examples that have not left, ascending."""
        return (~self.excluded).nonzero().squeeze(1)

    @property
    def pool(self) -> Tensor:
        """Return the positions of the unlabeled examples, ascending."""
        return (~self.bought & ~self.excluded).nonzero().squeeze(1)

    @property
    def labeled(self) -> Tensor:
        """Return the positions of the training examples, ascending.

        The same tensor is returned until a label comes or leaves.
        """
        if "labeled" not in self._found:
            used = self.bought & ~self.is_validation & ~self.excluded
            self._found["labeled"] = used.nonzero().squeeze(1)
        return self._found["labeled"]

    @property
    def validation(self) -> Tensor:
        """Return the positions of the validation examples, ascending."""
        return (self.is_validation & ~self.excluded).nonzero().squeeze(1)

    @property
    def labels(self) -> Tensor:
        """Return the labels of the training examples in model form."""
        if not self.parts.classes:  # their unit may change
            return self.targets(self.labeled)
        if "labels" not in self._found:
            self._found["labels"] = self.targets(self.labeled)
        return self._found["labels"]

    def targets(self, rows: Tensor) -> Tensor:
        """Return labels in model form: class IDs, or numbers scaled with the agreed units.

        Answers to several labels are whole numbers as well.
        """
        y = self.values[rows]
        if self.parts.classes or self.parts.n_labels:
            return y.long()
        unit = self.memory.get("targets")
        if unit is not None:
            y = (y - unit["mean"]) / unit["std"]
        return y.to(self.x.dtype)

    @property
    def counts(self) -> Tensor:
        """Return the number of training labels of each class, (C,); (0,) for regression."""
        if not self.parts.classes:
            return self.x.new_zeros(0)
        if "counts" not in self._found:
            counts = torch.bincount(self.labels, minlength=self.parts.classes)
            self._found["counts"] = counts.to(self.x.dtype)
        return self._found["counts"]

    @property
    def job_weight(self) -> Tensor:
        """Return the weights of the training examples with mean 1, whatever those of the query."""
        if "weight" not in self._found:
            weight = self.weight[self.labeled]
            self._found["weight"] = weight / weight.mean() if len(weight) else weight
        return self._found["weight"]

    def _enter(self, labels: Sequence[Label]) -> None:
        """Add labels with their folds."""
        self._renew()
        for label in labels:
            assert label.fold is not None  # noqa: S101 - it was just assigned
            self.fold[label.row] = label.fold
            self.bought[label.row] = True
            self.is_validation[label.row] = label.is_validation
            self.values[label.row] = label.value
            self.weight[label.row] = label.weight
            if label.probability is not None:
                self.chance[label.row] = label.probability

    def buy(self, labels: Sequence[Label]) -> None:
        """Add labels from the oracle to the ledger.

        Raises ValueError for an example that has one.
        """
        twice = [label.row for label in labels if self.bought[label.row]]
        if twice:
            raise ValueError(f"site {self.id} already has a label for example {twice[0]}")
        labels = self._assignment.assign(labels)
        self.store.write(self.id, labels)
        self._enter(labels)

    def reread(self, labels: Sequence[Label]) -> None:
        """Replace all labels, after some were corrected or withdrawn."""
        self.values = torch.full((self.size,), EMPTY, dtype=torch.float64)
        self.weight = torch.ones(self.size, dtype=self.x.dtype)
        self.chance = torch.full((self.size,), torch.nan, dtype=torch.float64)
        self.bought = torch.zeros(self.size, dtype=torch.bool)
        self.is_validation = torch.zeros(self.size, dtype=torch.bool)
        self.fold = torch.zeros(self.size, dtype=torch.int64)
        groups = None if self.groups is None else self.groups.tolist()
        self._assignment = FoldAssignment(
            self.parts.seed, self.id, self.parts.classes, groups
        )
        self._enter(self._assignment.assign(labels))

    def leave(self, rows: Sequence[int]) -> None:
        """Exclude exactly these examples from the unlabeled pool, training and validation."""
        self.excluded = torch.zeros_like(self.excluded)
        self.excluded[list(rows)] = True
        self._renew()

    @contextmanager
    def hold_back(self, rows: Sequence[int]) -> Iterator[None]:
        """Use these labeled examples for validation; the ledger does not change."""
        before = self.is_validation
        self.is_validation = before.clone()
        self.is_validation[list(rows)] = True
        self._renew()
        try:
            yield
        finally:
            self.is_validation = before
            self._renew()

    def _renew(self) -> None:
        """Find the training examples again, because labels or excluded examples change."""
        self._found.clear()

    def remember(self, name: str, state: State | None) -> None:
        """Store a state until the cycle ends; None deletes it."""
        if state is None:
            self.memory.pop(name, None)
        else:
            self.memory[name] = state
        self.store.keep(self.id, name, state)
        if name in FEATURE_SCALES:
            self._seen = None
            self._gathered.clear()

    def receive(self, function: str, messages: PeerMessages) -> None:
        """Store relayed messages and delete earlier ones of the same client function."""
        for name in names_from_relay(function, self.memory):
            del self.memory[name]
        for sender, peer_message in messages.items():
            self.memory[f"{function}/{sender}"] = peer_message.state
        self.store.receive(self.id, function, messages)

    def forget(self, keep: tuple[str, ...] = ()) -> None:
        """End a cycle: delete all states except scales and names that start with one of ``keep``."""
        lasting = SCALES + keep
        for name in list(self.memory):
            if not name.startswith(lasting):
                self.remember(name, None)

    def streams(self, *name: str | int) -> torch.Generator:
        """Return the site's random stream of a name, which is the same in every process."""
        return stream(self.parts.seed, *name, self.id)

    # -- local training ---------------------------------------------------------------------

    def job(self, step: Step, request: Request) -> Job:
        """Return the engine's job for a "fit" step: examples, initial model, own state, streams.

        If training does not start from the received model, that model becomes the teacher.
        """
        rows = self.labeled
        labels = self.labels
        name = (step.function, request.cycle, request.round)
        streams = partial(named_stream, self.parts.seed, self.id, name)
        training_config = step.training_config or TrainingConfig()

        sent = _tensors(step)
        if request.owner == "query" and sent:
            sent = self._deploy(sent)
        elif request.owner == "query":  # the site received the global model before
            sent = self.memory.get("global", {})
        start, teacher = self._find_start(training_config, sent, streams)

        own: dict[str, TrainState] = {}
        if is_main(step, request):
            for slot, state in self.memory.items():
                if slot.startswith("own/"):
                    own[slot.removeprefix("own/")] = TrainState(**state)

        pool_rows = NONE
        if training_config.mix:
            pool_rows = self._gather("pool", self.pool)
        return Job(
            site=self.id,
            x=self._gather("labeled", rows),
            y=labels,
            weight=self.job_weight,
            start=start,
            streams=streams,
            own=own,
            sent=teacher,
            counts=self.counts,
            u=pool_rows,
        )

    def _gather(self, what: str, at: Tensor) -> Tensor:
        """Return the examples at these positions in model form, (n, *shape).

        All rounds of a training phase get the same tensor, which an executor may also have
        on a device.
        """
        known = self._gathered.get(what)
        if known is not None and known.of is self.seen and torch.equal(known.at, at):
            return known.rows
        rows = self.seen[at]
        self._gathered[what] = Gathered(at, self.seen, rows)
        return rows

    def release_rows(self) -> None:
        """Free the examples of earlier jobs, before a query needs memory."""
        self._gathered.clear()

    def _find_start(
        self, training_config: TrainingConfig, sent: State, streams: Streams
    ) -> tuple[State, State | None]:
        """Return the initial model, and the received model if that is another one."""
        if training_config.start == "given":
            return sent, None
        if training_config.start == "scratch":
            return self.parts.fresh(streams("init")), sent or None
        if training_config.start not in self.memory:
            raise ValueError(
                f"site {self.id} has no model {training_config.start!r} to start "
                "training from; stored models and states: "
                f"{sorted(self.memory) or 'none'}"
            )
        start = self.memory[training_config.start]
        return {"w": start["w"], "stats": start["stats"]}, sent or None

    def remember_fit(self, step: Step, request: Request, result: Fitted) -> None:
        """Store the result of a fit."""
        self.remember(step.function, result.sent)
        if is_main(step, request):
            for name, own in result.own.items():
                self.remember(f"own/{name}", own._asdict())

    def method(self, owner: str) -> Method:
        """Return the algorithm of an owner. Raises Refusal if the run has none."""
        asked = self.parts.asked
        if owner not in asked:
            raise Refusal(
                f"site {self.id} has no algorithm for {owner!r}; it has algorithms "
                f"for {sorted(asked)}"
            )
        return asked[owner]

    def local(self, step: Step, request: Request) -> LocalTraining:
        """Return the algorithm whose step trains a model.

        This is the training algorithm for the model "local", the query strategy, if it has a step,
        for other models, and otherwise plain SGD.  Raises `Refusal` if the training algorithm has
        no step.
        """
        method = self.method(request.owner)
        if is_main(step, request):
            training = self.parts.methods["training"]
            if not isinstance(training, LocalTraining):
                raise Refusal(
                    f"site {self.id} received an instruction to train, but its "
                    f"training algorithm {training.contract.title} has no local step"
                )
            return training
        is_beside = request.owner == "query" and step.function != "local"
        if is_beside and isinstance(method, LocalTraining):
            return method
        return self.parts.methods["plain"]

    def accept_fit(self, step: Step, request: Request) -> TrainingConfig | None:
        """Return the training configuration of a "fit".

        A "fit" without one (None) delivers a model. The site stores it as the training algorithm
        deploys it; an additional model of the training algorithm is stored unchanged.
        """
        why = declared_state(self.parts.methods).find_wrong_part(step.args)
        if why is not None:
            raise Refusal(
                f"the training of {request.owner!r:.80} {why}; declare what it sends in "
                "contract: fit=FitDeclaration(sent=...)"
            )
        if step.training_config is None:
            model = _tensors(step)
            is_beside = request.owner == "training" and not is_main(step, request)
            if not is_beside:
                model = self._deploy(model)
            self.remember(step.function, model)
        return step.training_config

    def _deploy(self, state: State) -> State:
        with words_stay():
            return self.parts.methods["training"].deploy(state, self.memory)

    # -- client functions -------------------------------------------------------------------

    @property
    def guard(self) -> ReleaseGuard:
        """Protection of replies: noise, bounds and masks."""
        return ReleaseGuard(
            site=self.id,
            privacy=self.parts.privacy,
            ledger=self.store,
            seed=self.parts.seed,
            noise=self.parts.noise,
            examples=self.size,
        )

    @property
    def spent(self) -> dict[str, float]:
        """Return the ε of each release, by exchange."""
        if self.parts.privacy.epsilon is None:
            return {}
        return {
            key: line.epsilon for key, line in self.store.load_releases(self.id).items()
        }


def _tensors(step: Step) -> State:
    """Return the model in a step, without its plain values."""
    return {name: value for name, value in step.args.items() if isinstance(value, Tensor)}
