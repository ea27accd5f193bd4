"""Protocols of algorithms: functions that sites, the engine and a run call.

An algorithm is one frozen class with server side and client side.  Its contract lists the client
functions that the server side may call by name (`site_function` looks them up); all other functions
are declared here.  `Query` and `TrainingAlgorithm` are required.  The others are optional, and
most of them are for personalized algorithms:

* `LocalTraining`: sites train with its step, if its server side sends training configurations.
* `CustomPrediction`: a site predicts by more than a forward pass of the deployed model.
* `FinalTraining`: local work after the last round of a phase.
* `CollaboratorSelection`: sites select whose models to average.
* `BatchNormSetting`: batch-norm statistics may stay at the sites.

A query strategy with the three functions of `LocalTraining` trains its additional models with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import (
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
    cast,
    runtime_checkable,
)

from torch import Generator, Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration, join_declarations
from fallow.core.local import LocalTraining
from fallow.core.missing import Missing
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, State, Values
from fallow.core.values import Kind
from fallow.core.view import Release, SelectedExamples, View

Budget = Mapping[SiteId, int]
"""Label budget of each site in this cycle."""

Memo = dict[str, Any]  # defined by the algorithm; the event log stores tensors and JSON
"""State of an algorithm across cycles, in the event log.  Reports show ``memo["notes"]``."""

SiteFunction = Callable[..., Values | SelectedExamples | Release]
"""Client function: it takes a `View` and the arguments that the server side sent."""


@runtime_checkable
class Method(Protocol):
    """A query strategy or training algorithm: server and client side in one frozen class."""

    @property
    def contract(self) -> Contract: ...


class Query(Method, Protocol):
    """A query strategy: `query` is the server side, its client functions are the client side.

    A client function that selects examples returns `SelectedExamples` with exactly
    ``min(n, pool)`` different positions.  With an empty pool, the site replies without calling
    such a function.
    """

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo: ...


class TrainingAlgorithm(Method, Protocol):
    """One round of federated training: `round` is the server side.

    An algorithm that sends training configurations is also a `LocalTraining`, whose step the engine
    runs.  If `deploy` returns different models for sites, the algorithm is personalized.
    """

    @property
    def training_config(self) -> TrainingConfig: ...
    def round(self, state: State, ask: Ask) -> State: ...
    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        """Return the model that a site uses, from the training state and its memory."""
        ...


# -- optional functions of an algorithm ---------------------------------------------------------


@runtime_checkable
class CustomPrediction(Protocol):
    """A training algorithm with a prediction beyond a forward pass of the deployed model."""

    def predict(self, view: View, state: State, rows: Tensor) -> Tensor:
        """Return outputs (n, c) at a site.

        Parameters
        ----------
        view : View
            Data of the site.
        state : dict of str to Tensor
            Deployed model.
        rows : Tensor of shape (n, *shape)
            Examples.
        """
        ...


LABEL_RANKS = "rank_labels"
"""Client function of a `LabelRanking`, and the state that it keeps at a site: ``rows`` (k,) with
suspicious labels, the most suspicious first, and their leave-one-out predictions ``predicted`` (k,)."""


@runtime_checkable
class LabelRanking(Protocol):
    """A training algorithm by which each site may rank its own labels by suspicion."""

    def with_label_ranks(self) -> TrainingAlgorithm:
        """Return the algorithm with ranks.  Raises ValueError for settings without them."""
        ...


@runtime_checkable
class DataDependentTraining(Protocol):
    """A training algorithm with a part that not all data allow, such as self-training."""

    def narrowed_to(self, features: int, classes: int) -> TrainingAlgorithm:
        """Return the algorithm for data with so many features and classes (0: regression)."""
        ...

    def describe_extras(self, features: int | None, classes: int) -> str:
        """Return whether the part is used with such data, and why not, or ""."""
        ...


@runtime_checkable
class SizeLimitedTraining(Protocol):
    """A training algorithm that does not support examples with any number of features."""

    def check_size(self, features: int, outputs: int) -> None:
        """Raise ValueError if data with so many features and outputs of the model are too large."""
        ...


@runtime_checkable
class FinalTraining(Protocol):
    """A training algorithm with local work after the last round of a phase, such as fine-tuning.

    The result of `deploy` is then evaluated.
    """

    def last(self, state: State, ask: Ask) -> None:
        """Train at the sites after the last round of a phase.

        Parameters
        ----------
        state : dict of str to Tensor
            Training state.
        ask : Ask
            Requests to the client functions at all sites.
        """
        ...


class Load(NamedTuple):
    """Maximum cost of selecting collaborators in a phase, over all sites.

    ``models``: number of models sent from site to site; ``evaluations``: number of models evaluated
    on validation examples.
    """

    models: int
    evaluations: int


@runtime_checkable
class CollaboratorSelection(Protocol):
    """An algorithm whose sites select whose models to average."""

    def load(self, sites: int, rounds: int, resumed: bool = False) -> Load:
        """Return the cost of a phase.

        Parameters
        ----------
        sites : int
            Number of sites.
        rounds : int
            Number of rounds in the phase.
        resumed : bool, default=False
            Whether this is a later phase of a run that continues from its last models.
        """
        ...


@runtime_checkable
class BatchNormSetting(Protocol):
    """A training algorithm with a setting for batch-norm statistics.

    They are averaged with the weights (``"average"``, the default), or stay at the sites
    (``"local"``, FedBN).
    """

    @property
    def bn(self) -> Literal["average", "local"]: ...


@runtime_checkable
class ContributionDisclosure(Protocol):
    """An algorithm whose contributions disclose much about single examples
    (``contract.parts_show``).

    It states whether the coordinator of a federation may see them.
    """

    @property
    def shown(self) -> Literal["totals", "parts"]: ...


# -- algorithms of a run ------------------------------------------------------------------------


class Standardizer(Method, Protocol):
    """Feature scaling, and scaling of regression targets, across sites."""

    def of_features(
        self, ask: Ask, missing: Missing | None = None, *, is_scaled: bool = True
    ) -> State: ...
    def of_targets(self, ask: Ask) -> State | None: ...
    @property
    def targets(self) -> SiteFunction: ...


class Encoder(Method, Protocol):
    """Encoder of examples, deterministic and without labels (`fallow.encoders`).

    Its contract lists the aggregates over sites that `fit` needs, and their disclosures.
    ``shape``: of one example before encoding.
    """

    def width(self, shape: tuple[int, ...]) -> int:
        """Return D, the number of features.

        Parameters
        ----------
        shape : tuple of int
            Shape of one example before encoding.

        Raises
        ------
        ValueError
            If that shape is not supported.
        """
        ...

    def fit(self, ask: Ask, shape: tuple[int, ...]) -> State:
        """Return the fitted state for all sites, or {} if nothing is fitted.

        Parameters
        ----------
        ask : Ask
            Requests for aggregates over all sites.
        shape : tuple of int
            Shape of one example before encoding.
        """
        ...

    def encode(self, x: Tensor, state: State) -> Tensor:
        """Return features (m, D) in float32, computed in blocks.

        Parameters
        ----------
        x : Tensor of shape (m, *shape)
            Examples.
        state : dict of str to Tensor
            Result of `fit`.
        """
        ...


@runtime_checkable
class TunableEncoder(Encoder, Protocol):
    """An encoder with a field that the initial labeled set may select."""

    @property
    def is_tuned(self) -> bool:
        """Whether the field is to be selected; otherwise it has a value."""
        ...

    def candidates(self, state: State) -> list[State]:
        """Return the candidate states.

        Parameters
        ----------
        state : dict of str to Tensor
            Result of `fit`.
        """
        ...

    def usual(self, state: State) -> State:
        """Return the default candidate, for too few labels.

        Parameters
        ----------
        state : dict of str to Tensor
            Result of `fit`.
        """
        ...

    def sketch(self) -> Encoder:
        """Return the encoder with fewer features, for the comparison of candidates."""
        ...

    def untuned_kinds(self, shape: tuple[int, ...]) -> Mapping[str, Kind]:
        """Return the tensors of the result of `fit`.

        Parameters
        ----------
        shape : tuple of int
            Shape of one example before encoding.
        """
        ...

    @property
    def n_candidates(self) -> int:
        """Number of candidates."""
        ...


class EncoderTuner(Method, Protocol):
    """Selection of a field of such an encoder."""

    def tune(self, ask: Ask, state: State) -> State: ...


class Imputer(Method, Protocol):
    """Imputation of empty cells across sites, before encoding."""

    def agree(self, ask: Ask) -> Tensor: ...


class EncoderSender(Method, Protocol):
    """Distribution of the fitted state of an encoder to sites."""

    def hand_over(self, ask: Ask, state: State) -> None: ...
    def check(self, site: SiteId, args: Values) -> None:
        """Raise Refusal if a site cannot encode with the received state."""
        ...


class LastLayerSolver(Method, Protocol):
    """Closed-form solution for the last layer of a trained model."""

    def solve(self, state: State, ask: Ask) -> State:
        """Return the training state with another last layer."""
        ...


class EvaluationSampler(Method, Protocol):
    """Random evaluation set in addition to a query, and the error of the model on it."""

    def divide(self, budget: Budget, draw: Generator) -> dict[SiteId, int]: ...
    def draw_rows(self, ask: Ask, budget: Budget, counts: Mapping[SiteId, int]) -> None: ...
    def tally_errors(self, ask: Ask, unit: float) -> dict[SiteId, Values]: ...


class BestModelStore(Method, Protocol):
    """Storage of the model of each site with the best validation score."""

    @property
    def best(self) -> SiteFunction: ...


class LabelingFunctions(Method, Protocol):
    """Registration of real sites, labeling tasks, scores and the final model."""

    @property
    def hello(self) -> SiteFunction: ...
    @property
    def ask(self) -> SiteFunction: ...
    @property
    def close(self) -> SiteFunction: ...
    @property
    def score(self) -> SiteFunction: ...
    @property
    def finish(self) -> SiteFunction: ...


class Describing(Method, Protocol):
    """Description of the data of the sites before a study."""

    def describe(self, ask: Ask) -> Mapping[str, Any]: ...
    def at_site(self, is_allowed: bool, tests: Tensor) -> Describing:
        """Return the description by a site that allows it or not, with its test labels (m,)."""
        ...


class Methods(TypedDict):
    """Algorithms of a run by role, which is the ``owner`` of a request."""

    query: Query
    training: TrainingAlgorithm
    plain: LocalTraining
    """Trains the models that only a query strategy uses; it has no client functions."""
    initial: NotRequired[Query]
    """Selects the initial labeled set."""
    encoder: NotRequired[Encoder]
    """Encodes examples, from aggregates over them."""
    filling: NotRequired[Imputer]
    """Imputes empty cells for an encoder, from aggregates over them."""
    encoding: NotRequired[EncoderSender]
    """Sends the fitted state of the encoder to the sites."""
    tuning: NotRequired[EncoderTuner]
    """Selects a field of the encoder by the initial labeled set."""
    scaling: NotRequired[Standardizer]
    head: NotRequired[LastLayerSolver]
    """Replaces the last layer of a model after the last round."""
    evaluation_set: NotRequired[EvaluationSampler]
    """Draws the evaluation set in addition to the query."""
    retention: NotRequired[BestModelStore]
    """Keeps the model of each site with the best validation score."""
    describe: NotRequired[Describing]
    """Describes the data before a study, by counts."""
    annotators: NotRequired[LabelingFunctions]
    """In a federation: labeling tasks for annotators, and scores."""


def declared_state(methods: Methods) -> FitDeclaration:
    """Return the declaration of the training state: of the training algorithm and the head."""
    declaration = methods["training"].contract.fit
    if "head" in methods:
        return join_declarations(declaration, methods["head"].contract.fit)
    return declaration


def select_sent(methods: Methods, state: State) -> State:
    """Return the parts of a state that sites receive."""
    sent = declared_state(methods).sent
    return {name: part for name, part in state.items() if name in sent}


def methods_by_owner(methods: Methods) -> dict[str, Method]:
    """Return the algorithms by ``owner`` of a request: all except "plain"."""
    parts = cast(Mapping[str, Method], methods)
    return {owner: method for owner, method in parts.items() if owner != "plain"}


def lacking_function(cls: type, names: Iterable[str]) -> str | None:
    """Return the first of ``names`` that is not a function of the class, or None.

    >>> class First:
    ...     def select(self, view, n): ...
    >>> lacking_function(First, ["select", "share"])
    'share'
    """
    return next((name for name in names if not callable(getattr(cls, name, None))), None)


def site_function(method: Method, function_name: str) -> SiteFunction:
    """Return a client function by name: the only conversion of a received name to a function.

    Raises ValueError for a name that is not in the contract of the algorithm: no other function
    runs at a site.
    """
    if function_name not in method.contract.disclosures:
        raise ValueError(
            f"the contract of {method.contract.title} lists no {function_name!r}"
        )
    function: SiteFunction = getattr(method, function_name)
    return function
