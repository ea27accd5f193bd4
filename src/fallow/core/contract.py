"""Contracts: declarations of algorithms that tables, validation and sites read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

from fallow.core.client import OPERATIONS, Declaration, list_declared, list_marked
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.suggestions import explain_constructor, require_known

Tag = Literal["alone", "least-squares", "disagreement", "untrained"]
"""Properties of algorithms: training at every site alone; a closed-form solution instead of steps;
selection by the disagreement of the local and the global model, random if these are equal; no
training at all."""
Untrained = Literal["no", "features", "predictions"]
"""Support of studies without training: none; by features; by features and given predictions."""
PREDICTING = ("local", "global")
"""Models whose predictions query strategies may read: the local and the global model."""


@explain_constructor
@dataclass(frozen=True)
class Contract:
    """Declaration of an algorithm: its references, requirements and disclosures.

    The client functions are those that the class declares beside their bodies
    (`fallow.core.client`): for a class those of all settings, for an instance those of its own.  A
    site runs no other function, and none by another operation than declared.

    Parameters
    ----------
    title : str
        Name in reports.
    paper, year, authors : str, int, str
        Reference; authors in BibTeX format, "Last, First and Last, First".  Year 0: no paper.
    needs : sequence of str
        Models whose predictions it reads: "local", "global".
    local_source : {"last_round", "scratch"}
        Local model: from the last round, or trained from scratch.
    cohort : int
        Minimum number of sites.
    secure_sum : bool
        Supports secure aggregation.
    local_dp : bool
        Supports local differential privacy.
    delta_field : str
        Field with δ, for support of Gaussian noise; "" if there is none.
    always_noisy : bool
        Not applicable without noise.
    weighs : bool
        Labeled examples may have weights other than 1 in aggregates.
    missing : str
        Behavior if a site does not reply.
    one_pass : bool
        The paper starts a new selection for each label budget, instead of cycles.
    draws : bool
        The selection depends on a random stream even without ties.
    regression : bool, optional
        Supports regression.  None: unless it reads predictions.
    fields_of_task : mapping
        Fields of a query strategy that apply to one task only, such as "regression".
    classes : bool
        Supports classification.
    model : str
        The only built-in model that a training algorithm supports; "" if it supports all networks.
    multilabel : bool
        Supports several labels per example.  Query strategies that read features alone do.
    sites_see : str
        Information about examples of other sites, beside the model, that a site receives.
    untrained : {"no", "features", "predictions"}
        Supports studies without training: by features alone, or by given predictions too.
    not_solved : str
        Reason why a query strategy does not support closed-form models; "" if it does.
    no_batch_norm : str
        Reason why a training algorithm does not support batch norm; "" if it does.
    everyone : bool
        Requires all sites in every round.
    settings : mapping
        Settings of the experiment configuration that a training algorithm provides as defaults.
    model_fields : sequence of str
        Fields of a training algorithm that its model has too.
    fit : FitDeclaration
        Models that sites train or store, and the parts of the training state.
    gradients_per_batch : int
        Number of gradients per batch; 1 for FedAvg.
    simulator_only : bool
        Reads hidden labels: an upper bound, for simulation only.
    short : str
        Name in tables, if shorter than the title.
    aliases : tuple of str
        Other names in studies.
    options : tuple of str
        Settings of the experiment configuration that are specific to it.
    site_lists : tuple of str
        Fields that list sites; a word may denote a list.
    budget_of : {"site", "federation"}
        Label budget that a query spends.
    tags : tuple of str
        Properties that other components read.
    functions : tuple of Declaration
        Client functions.  The class adds them.

    Examples
    --------
    >>> from fallow.core import client
    >>> class First:
    ...     contract = Contract("First examples", "-", 2024)
    ...
    ...     @client.keep("number of selected examples")
    ...     def select(self, view, n): ...
    >>> First().contract.disclosures
    {'select': 'number of selected examples'}
    >>> First().contract.refusal("select", "each")
    'the contract of First examples allows it only by keep'
    """

    title: str
    paper: str = "-"
    year: int = 0
    _: KW_ONLY
    needs: Sequence[str] = ()
    local_source: Literal["last_round", "scratch"] = "last_round"
    cohort: int = 1
    secure_sum: bool = True
    local_dp: bool = True
    delta_field: str = ""
    always_noisy: bool = False
    weighs: bool = True
    missing: str = "continues with the sites that reply"
    one_pass: bool = False
    draws: bool = False
    regression: bool | None = None
    fields_of_task: Mapping[str, str] = field(default_factory=dict)
    classes: bool = True
    model: str = ""
    multilabel: bool = False
    sites_see: str = ""
    untrained: Untrained = "no"
    not_solved: str = ""
    no_batch_norm: str = ""
    everyone: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    model_fields: Sequence[str] = ()
    fit: FitDeclaration = FitDeclaration()
    gradients_per_batch: int = 1
    simulator_only: bool = False
    authors: str = ""
    short: str = ""
    aliases: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    site_lists: tuple[str, ...] = ()
    budget_of: Literal["site", "federation"] = "site"
    tags: tuple[Tag, ...] = ()
    functions: tuple[Declaration, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        needs = [self.needs] if isinstance(self.needs, str) else self.needs
        object.__setattr__(self, "needs", tuple(needs))
        known_models = (*PREDICTING, *self.fit.models)
        for model in self.needs:
            what = f"the contract of {self.title} needs {model!r}, which is not a model"
            require_known(model, known_models, what)

    def __set_name__(self, owner: type, name: str) -> None:
        """Add the client functions of the class."""
        self.declare_functions(owner)

    def declare_functions(self, owner: type) -> None:
        """Set the client functions to those that a class declares with any settings, in place.

        Parameters
        ----------
        owner : type
            Class of the algorithm.
        """
        functions = [item.of_class(function) for function, item in list_marked(owner)]
        object.__setattr__(self, "functions", _in_order(functions))

    def __get__(self, instance: object, owner: type) -> Contract:
        """Return the contract of an instance, with the client functions that it uses."""
        if instance is None or not any(list_marked(owner)):
            return self
        contract = self.narrowed(instance)
        if hasattr(instance, "__dict__"):  # the next access finds it there
            instance.__dict__["contract"] = contract
        return contract

    def narrowed(self, instance: object, **changes: Any) -> Contract:
        """Return the contract with the client functions of an instance, and with other fields.

        Parameters
        ----------
        instance : object
            Algorithm, whose fields decide which client functions are called.
        """
        functions = _in_order(list_declared(instance))
        return replace(self, functions=functions, **changes)

    @property
    def parts_show(self) -> str:
        """Information in the contribution of one site, without secure aggregation."""
        shown = dict.fromkeys(item.reveals_parts for item in self.functions)
        return "; ".join(filter(None, shown))

    @property
    def is_solved(self) -> bool:
        """Whether exact sums about labeled examples determine a model, without gradient steps."""
        return "least-squares" in self.tags or self.has_trees

    @property
    def has_trees(self) -> bool:
        """Whether a training algorithm trains decision trees, without gradients or embeddings."""
        return self.model == "trees"

    @property
    def trains(self) -> bool:
        """Whether a training algorithm trains models; without, sites only select examples."""
        return "untrained" not in self.tags

    @property
    def name(self) -> str:
        """Name in tables.

        >>> Contract("Local training", "-", 0, short="Local").name
        'Local'
        """
        return self.short or self.title

    @property
    def disclosures(self) -> dict[str, str]:
        """Client functions, with their disclosures."""
        return {item.name: item.discloses for item in self.functions}

    def refusal(self, function: str, kind: str) -> str | None:
        """Return why a site rejects this call; None if it is allowed.

        Parameters
        ----------
        function : str
            Name of the client function.
        kind : {"sum", "each", "keep", "relay"}
            Operation that calls it.
        """
        allowed = [item.operation for item in self.functions if item.name == function]
        if kind in allowed:
            return None
        if allowed:
            return f"the contract of {self.title} allows it only by {' and '.join(allowed)}"
        lists = []
        for operation in OPERATIONS:
            names = [item.name for item in self.functions if item.operation == operation]
            if names:
                lists.append(f"{', '.join(names)} by {operation}")
        listed = "; ".join(lists) or "no client function"
        return f"the contract of {self.title} allows {listed}; nothing else"


def _in_order(functions: Iterable[Declaration]) -> tuple[Declaration, ...]:
    """Return declarations in the order of operations."""
    return tuple(sorted(functions, key=lambda item: OPERATIONS.index(item.operation)))
