"""Contracts: declarations of algorithms that tables, validation and sites read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

from fallow.core.client import Declaration, Operation, declared, list_marked
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.suggestions import explain_constructor, require_known

Words = Mapping[str, str]
Tag = Literal["alone", "least-squares", "disagreement"]
"""Properties of algorithms: training at every site alone; a closed-form solution instead of steps;
selection by the disagreement of the local and the global model, random if these are equal."""
PREDICTING = ("local", "global")
"""Models whose predictions query strategies may read: the local and the global model."""


@explain_constructor
@dataclass(frozen=True)
class Contract:
    """Declaration of an algorithm: its references, requirements and disclosures.

    Client functions that are declared beside their bodies (`fallow.core.client`) are added: those of
    a class with all settings, and those of an instance with its own.

    ``sum``, ``each``, ``keep`` and ``relay`` are operations of `Ask`.  They map every client
    function that the server side may call with this operation to a description of its disclosure.
    A site runs no other function, and each function only by its operation.

    Parameters
    ----------
    title : str
        Name in reports.
    paper, year, authors : str, int, str
        Reference; authors in BibTeX format, "Last, First and Last, First".  Year 0: no paper.
    sum : mapping
        Client functions whose replies are aggregated; the server side sees aggregates.
    each : mapping
        Client functions whose replies the server side sees for every site.
    keep : mapping
        Client functions whose replies stay at the site.
    relay : mapping
        Client functions whose replies other sites see.
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
    regression_fields : sequence of str
        Fields of a query strategy that apply to regression only.
    classes : bool
        Supports classification.
    linear : bool
        Supports the model "linear" only.
    closes_show : str
        Information in the difference of two consecutive aggregates.
    not_solved : str
        Reason why a query strategy does not support closed-form models; "" if it does.
    no_batch_norm : str
        Reason why a training algorithm does not support batch norm; "" if it does.
    everyone : bool
        Requires all sites in every round.
    settings : mapping
        Settings of the experiment configuration that a training algorithm provides as defaults.
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
    functions : mapping
        Declarations of client functions beside their bodies, by name.  The class adds them.

    Examples
    --------
    >>> contract = Contract(
    ...     "A", "-", 2024, sum={"share": "totals"}, keep={"select": "a count"}
    ... )
    >>> dict(contract.disclosures)
    {'share': 'totals', 'select': 'a count'}
    >>> contract.refusal("select", "each")
    'the contract of A allows it only by keep'
    """

    title: str
    paper: str = "-"
    year: int = 0
    _: KW_ONLY
    sum: Words = field(default_factory=dict)
    each: Words = field(default_factory=dict)
    keep: Words = field(default_factory=dict)
    relay: Words = field(default_factory=dict)
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
    regression_fields: Sequence[str] = ()
    classes: bool = True
    linear: bool = False
    closes_show: str = ""
    not_solved: str = ""
    no_batch_norm: str = ""
    everyone: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
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
    functions: Mapping[str, Declaration] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        needs = [self.needs] if isinstance(self.needs, str) else self.needs
        object.__setattr__(self, "needs", tuple(needs))
        known_models = (*PREDICTING, *self.fit.models)
        for model in self.needs:
            what = f"the contract of {self.title} needs {model!r}, which is not a model"
            require_known(model, known_models, what)

    def __set_name__(self, owner: type, name: str) -> None:
        """Add the declared client functions of the class, with all settings."""
        for function, item in list_marked(owner):
            self._declare(item.of_class(function))

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
        names = [name for name, _ in list_marked(type(instance))]
        contract = self.without(*names)
        for declaration in declared(instance).values():
            contract._declare(declaration)
        return replace(contract, **changes)

    def _declare(self, item: Declaration) -> None:
        """Add a declared client function, in place."""
        function = item.name
        known = self.asked[item.operation]
        words = {**known, function: known.get(function, item.discloses)}
        object.__setattr__(self, item.operation, words)
        object.__setattr__(self, "functions", {**self.functions, function: item})

    def limit_calls(self, function: str) -> int:
        """Return how often one round or query calls a client function; 0: a few times for each site.

        Parameters
        ----------
        function : str
            Name of the client function.
        """
        if function in self.functions:
            return self.functions[function].times
        return 1

    @property
    def waits(self) -> tuple[str, ...]:
        """Client functions that release exact statistics of labeled examples.

        They read the labels of the site's last contribution (``privacy.min_new_labels``).
        """
        return tuple(function for function, item in self.functions.items() if item.exact)

    @property
    def parts_show(self) -> str:
        """Information in the contribution of one site, without secure aggregation."""
        shown = dict.fromkeys(item.reveals_parts for item in self.functions.values())
        return "; ".join(filter(None, shown))

    @property
    def name(self) -> str:
        """Name in tables.

        >>> Contract("Local training", "-", 0, short="Local").name
        'Local'
        """
        return self.short or self.title

    @property
    def disclosures(self) -> Words:
        """All client functions, with their disclosures."""
        functions: dict[str, str] = {}
        for words in self.asked.values():
            functions |= words
        return functions

    @property
    def asked(self) -> dict[Operation, Words]:
        """Client functions by operation, with their disclosures."""
        return {"sum": self.sum, "each": self.each, "keep": self.keep, "relay": self.relay}

    def refusal(self, function: str, kind: str) -> str | None:
        """Return why a site rejects this call; None if it is allowed.

        Parameters
        ----------
        function : str
            Name of the client function.
        kind : {"sum", "each", "keep", "relay"}
            Operation that calls it.
        """
        allowed = [
            operation for operation, words in self.asked.items() if function in words
        ]
        if kind in allowed:
            return None
        if allowed:
            return f"the contract of {self.title} allows it only by {' and '.join(allowed)}"
        lists = []
        for how, words in self.asked.items():
            if words:
                lists.append(f"{', '.join(words)} by {how}")
        listed = "; ".join(lists) or "no client function"
        return f"the contract of {self.title} allows {listed}; nothing else"

    def without(self, *names: str, by: Operation | None = None) -> Contract:
        """Return the contract without these client functions, or without an operation of them.

        Parameters
        ----------
        by : {"sum", "each", "keep", "relay"}, optional
            Operation to remove.  Default: all.
        """
        left: dict[Operation, Words] = {}
        for how, words in self.asked.items():
            if by in (None, how):
                words = {
                    function: what
                    for function, what in words.items()
                    if function not in names
                }
            left[how] = words
        known = {function for words in left.values() for function in words}
        functions = {
            function: item for function, item in self.functions.items() if function in known
        }
        return replace(self, functions=functions, **left)  # type: ignore[arg-type]
