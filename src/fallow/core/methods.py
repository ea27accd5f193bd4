"""What a method may define: the protocols by which sites, the engine and a run know it.

A method is one frozen class with both halves.  Which functions of it a server may ask for by name
stands in its contract (`site_function` looks them up); everything else that the package calls is
declared here.  `Query` and `Training` are what a method has to be.  The others are what it may
define beside that; most of those that do train one model for each site:

* `LocalTraining`: sites train by its step, where its server half orders training by a training
configuration; * `Predicting`: a site predicts by more than a forward pass of the model it deploys;
* `Finishing`: local work after the last round of a phase;
* `Planning`: it orders local training by other training configurations than its ``training_config``;
* `Choosing`: sites choose whose models to average;
* `Normalizing`: batch-norm statistics may stay at the sites.

A query with `LocalTraining`'s three functions trains by them the models that it orders.
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
from fallow.core.local import LocalTraining
from fallow.core.missing import Missing
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Answer, SiteId, State
from fallow.core.view import Picks, Release, View

Budget = Mapping[SiteId, int]
"""Labels each site may buy in this cycle."""

Memo = dict[
    str, Any
]  # each method knows what it put there; the journal takes tensors and JSON
"""What a method remembers across cycles; journaled.  ``memo["notes"]`` is shown in reports."""

SiteFunction = Callable[..., Answer | Picks | Release]
"""A function of a method that runs at a site: it takes a `View` and what the server sent."""


@runtime_checkable
class Method(Protocol):
    """A query, training or personalization algorithm: both halves in one frozen class."""

    @property
    def contract(self) -> Contract: ...


class Query(Method, Protocol):
    """A strategy: the server half is `query`, the site half its site functions.

    A site function that picks returns `Picks` with exactly ``min(n, pool)`` different pool
    positions.  The site answers for an empty pool before any such function is asked.
    """

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo: ...


class Training(Method, Protocol):
    """One round of federated training: the server half is `round`, the site half its site functions.

    One that orders local training by a training configuration is a `LocalTraining` too, whose
    step the engine runs. Where `deploy` gives sites different models the method is personalized.
    """

    @property
    def training_config(self) -> TrainingConfig: ...
    def round(self, state: State, ask: Ask) -> State: ...
    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        """The model that a site uses, from the server's state and what the site remembers."""
        ...


# -- what a method may define beside that -------------------------------------------------------


@runtime_checkable
class Predicting(Protocol):
    """A training method that predicts by more than a forward pass of the model it deploys."""

    def predict(self, view: View, state: State, rows: Tensor) -> Tensor:
        """Outputs (n, c) for rows (n, *shape) at a site that deploys ``state``."""
        ...


@runtime_checkable
class Finishing(Protocol):
    """A training method with a last word: local work after the last round of a phase, such as fine
    tuning.  What `deploy` gives then is scored."""

    def last(self, state: State, ask: Ask) -> None: ...


@runtime_checkable
class Planning(Protocol):
    """A method that orders local training by other training configurations than its
    ``training_config``."""

    def trains_by(self, training_config: TrainingConfig) -> bool:
        """Whether the server half may order this training configuration; a site trains by no other."""
        ...


class Load(NamedTuple):
    """What choosing collaborators costs in a phase, at all sites together and at most: ``models``
    that go from site to site, ``evaluations`` of a model on a site's validation rows."""

    models: int
    evaluations: int


@runtime_checkable
class Choosing(Protocol):
    """A method whose sites choose whose models to average."""

    def load(self, sites: int, rounds: int, resumed: bool = False) -> Load:
        """``resumed``: not the first phase of a run that goes on from its last models."""
        ...


@runtime_checkable
class Normalizing(Protocol):
    """A training method that says what becomes of batch-norm statistics: averaged with the weights
    (``"average"``), or left at the sites (``"local"``, FedBN).  Without a word they are averaged.
    """

    @property
    def bn(self) -> Literal["average", "local"]: ...


@runtime_checkable
class Showing(Protocol):
    """A training method, or a query, whose parts of sums say much about single rows
    (``contract.parts_show``), and which says whether a coordinator of real sites may see them."""

    @property
    def shown(self) -> Literal["totals", "parts"]: ...


# -- the methods of a run -----------------------------------------------------------------------


class Standardizing(Method, Protocol):
    """By what sites agree on units of features, and of numbers to predict."""

    def of_features(
        self, ask: Ask, missing: Missing | None = None, *, is_scaled: bool = True
    ) -> State: ...
    def of_targets(self, ask: Ask) -> State | None: ...


class Encoder(Method, Protocol):
    """Rows to features, deterministic and without labels (`fallow.encoders`).

    Its contract lists the sums over sites that `fit` asks for, and what they reveal.  ``shape``:
    of one row as it is measured.
    """

    def width(self, shape: tuple[int, ...]) -> int:
        """D, the number of features; ValueError where rows of that shape cannot be encoded."""
        ...

    def fit(self, ask: Ask, shape: tuple[int, ...]) -> State:
        """What everybody encodes by, from totals over sites; {} where nothing is learned."""
        ...

    def encode(self, x: Tensor, state: State) -> Tensor:
        """Rows (m, *shape) -> features (m, D) float32, some rows at a time."""
        ...


@runtime_checkable
class Tunable(Encoder, Protocol):
    """An encoder that may have a field which the first labels choose."""

    @property
    def is_tuned(self) -> bool:
        """Whether the field is to be chosen; it has a value else."""
        ...

    def candidates(self, state: State) -> list[State]:
        """What rows could be encoded by, from what `fit` found."""
        ...

    def usual(self, state: State) -> State:
        """The candidate where there are too few labels to choose by."""
        ...

    def sketch(self) -> Encoder:
        """The same encoder with few features, by which candidates are compared."""
        ...


class Tunes(Method, Protocol):
    """By what a field of such an encoder is chosen."""

    def tune(self, ask: Ask, state: State) -> State: ...


class Filling(Method, Protocol):
    """By what sites agree on what fills empty cells before rows are encoded."""

    def agree(self, ask: Ask) -> Tensor: ...


class Handing(Method, Protocol):
    """By what sites are handed what such an encoder was fitted to."""

    def hand_over(self, ask: Ask, state: State) -> None: ...
    def check(self, site: SiteId, args: Answer) -> None:
        """Raise Refusal where a site cannot encode its rows by what it is sent."""
        ...


class Solving(Method, Protocol):
    """By what the head of a trained model is solved for."""

    def solve(self, state: State, ask: Ask) -> State:
        """The state of the training method with another head."""
        ...


class Auditing(Method, Protocol):
    """By what rows are drawn by chance beside those of a query, and how wrong the model was about
    them is told."""

    def divide(self, budget: Budget, draw: Generator) -> dict[SiteId, int]: ...
    def draw_rows(self, ask: Ask, budget: Budget, counts: Mapping[SiteId, int]) -> None: ...
    def tally_errors(self, ask: Ask, unit: float) -> dict[SiteId, Answer]: ...


class Deciding(Method, Protocol):
    """By what sites decide whether exact statistics are of newer labels."""

    def decide(self, ask: Ask) -> None: ...


class Methods(TypedDict):
    """The methods of a run by the part they play, which is the ``owner`` of a request."""

    query: Query
    training: Training
    plain: LocalTraining
    """Trains the models that only a query looks at; it is asked nothing."""
    initial: NotRequired[Query]
    """Chooses the first labels."""
    encoder: NotRequired[Encoder]
    """Makes features of rows; it is asked for totals over them."""
    filling: NotRequired[Filling]
    """Fills in empty cells for an encoder; it is asked for totals over them."""
    encoding: NotRequired[Handing]
    """Hands to the sites what the encoder was fitted to."""
    tuning: NotRequired[Tunes]
    """Chooses a field of the encoder by the first labels."""
    scaling: NotRequired[Standardizing]
    head: NotRequired[Solving]
    """Has the last word on the head of a model, after the last round."""
    audit: NotRequired[Auditing]
    """Draws rows by chance beside those of the query."""
    contribution: NotRequired[Deciding]
    """Decides before each training phase of which labels exact statistics are."""
    retention: NotRequired[Method]
    """Keeps the model of each site that validated best."""
    people: NotRequired[Method]
    """At real sites: questions to people, and scores."""


def server_parts(methods: Methods) -> tuple[str, ...]:
    """The parts of a state that no site is sent: what training and the head keep at the server."""
    result = tuple(methods["training"].contract.at_server)
    if "head" in methods:
        result += tuple(methods["head"].contract.at_server)
    return result


def methods_by_owner(methods: Methods) -> dict[str, Method]:
    """The methods that a request may name, by its ``owner``: all but "plain"."""
    parts = cast(Mapping[str, Method], methods)
    return {owner: method for owner, method in parts.items() if owner != "plain"}


def lacking_function(cls: type, names: Iterable[str]) -> str | None:
    """The first of the ``names`` that is no function of the class; None where it has them all.

    >>> class First:
    ...     def select(self, view, n): ...
    >>> lacking_function(First, ["select", "share"])
    'share'
    """
    return next((name for name in names if not callable(getattr(cls, name, None))), None)


def site_function(method: Method, verb: str) -> SiteFunction:
    """The function that a server asks for as ``verb``: the one place where a name that was sent
    becomes a function.

    Raises ValueError for a name that the method's contract does not list: no other function runs
    at a site.
    """
    if verb not in method.contract.verbs:
        raise ValueError(f"the contract of {method.contract.title} lists no {verb!r}")
    function: SiteFunction = getattr(method, verb)
    return function
