"""Contracts: declarations of algorithms that tables, validation and sites read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fallow.core.terms import explain_constructor

Operation = Literal["sum", "each", "keep", "relay"]
Words = Mapping[str, str]
Tag = Literal["alone", "least-squares", "disagreement"]
"""What some methods have in common and others ask about: they train every site by itself; they
solve for a model instead of stepping towards it; they choose by where the local model and the
common one disagree, and so by chance where these are the same."""
PREDICTING = ("local", "global")
"""Models whose predictions every query may read: a site's own, and the common one."""


@explain_constructor
@dataclass(frozen=True)
class Contract:
    """Declaration of an algorithm: its references, requirements and disclosures.

    ``sum``, ``each``, ``keep`` and ``relay`` are operations of `Ask`.  They map every client
    function that the server side may call with this operation to a description of its disclosure.
    A site runs no other function, and none with another operation.  ``verbs`` is the union of the
    four.  The comments beside the fields document them.

    >>> found = Contract(
    ...     "A", "-", 2024, sum={"share": "totals"}, keep={"select": "a count"}
    ... )
    >>> dict(found.verbs)
    {'share': 'totals', 'select': 'a count'}
    >>> found.refusal("select", "each")
    'the contract of A allows it by keep alone'
    """

    title: str
    paper: str = "-"
    year: int = 0  # year of the paper; 0: no paper
    verbs: Words = field(default_factory=dict)
    sum: Words = field(default_factory=dict)  # the server side sees aggregates
    each: Words = field(
        default_factory=dict
    )  # the server side sees the reply of every site
    keep: Words = field(default_factory=dict)  # the reply stays at the site
    relay: Words = field(default_factory=dict)  # other sites see the reply
    needs: Sequence[str] = ()  # models whose predictions it reads: "local", "global"
    local_source: Literal["last_round", "scratch"] = "last_round"  # the paper's local model
    cohort: int = 1  # minimum number of sites
    secure_sum: bool = True  # supports secure aggregation
    local_dp: bool = True  # supports local differential privacy
    # the field of a method that makes it work so, with Gaussian noise: its δ; "": there is none
    delta_field: str = ""
    always_noisy: bool = False  # not applicable without noise
    weighs: bool = True  # labeled examples may have weights other than 1 in its aggregates
    missing: str = "goes on with the sites that answer"
    # the paper chooses for every budget from nothing, not cycle by cycle
    one_pass: bool = False
    draws: bool = False  # the selection depends on a random stream even without ties
    regression: bool | None = None  # supports regression; None: unless it reads predictions
    classes: bool = True  # supports classification
    linear: bool = False  # supports the model "linear" only
    # what a coordinator can read off one site's part of a sum, in words, where sums are not secure
    parts_show: str = ""
    # what the difference of two consecutive aggregates shows
    closes_show: str = ""
    # client functions that release exact statistics of labeled examples: they read the labels of the
    # site's last contribution (``privacy.min_new_labels``)
    waits: Sequence[str] = ()
    # why a query means nothing where a model is solved for and not trained by steps; "": it does
    not_solved: str = ""
    # why a training method refuses a model with batch norm; "": it takes one
    no_batch_norm: str = ""
    everyone: bool = False  # requires all sites in every round
    # settings of a recipe that a training method brings along where a study does not give them
    settings: Mapping[str, Any] = field(default_factory=dict)
    at_server: Sequence[str] = ()  # fields of the training state that are not sent to sites
    models: Sequence[str] = ()  # names of models that it trains in addition to "local"
    own_start: bool = False  # the server side sends each site its own initial model
    gradients_per_batch: int = 1  # gradients per batch; 1 for FedAvg
    # verbs that one round or query asks more than once, and how often at most; 0: a few times
    # for each site
    often: Mapping[str, int] = field(default_factory=dict)
    # reads hidden labels: an upper bound, never at a real site
    simulator_only: bool = False
    # what others need to know of a method without knowing its name
    authors: str = ""  # of the paper, in BibTeX format: "Last, First and Last, First"
    short: str = ""  # name in tables, if shorter than the title
    aliases: tuple[str, ...] = ()  # other names in studies
    options: tuple[str, ...] = ()  # settings specific to it
    site_lists: tuple[str, ...] = ()  # fields that list sites; a word may denote a list
    budget_of: Literal["site", "federation"] = "site"  # label budget that a query spends
    tags: tuple[Tag, ...] = ()

    def __post_init__(self) -> None:
        for name in ("needs", "at_server", "models", "waits"):
            value = getattr(self, name)
            if isinstance(value, str):  # a single name
                value = [value]
            object.__setattr__(self, name, tuple(value))
        known_models = (*PREDICTING, *self.models)
        for model in self.needs:
            if model not in known_models:
                raise ValueError(
                    f"the contract of {self.title} needs {model!r}, which is no model; it is one of "
                    f"{', '.join(known_models)}"
                )
        known: dict[str, str] = {}
        for words in self.asked.values():
            known |= words
        object.__setattr__(self, "waits", tuple(v for v in self.waits if v in known))
        for verb, what in self.verbs.items():
            if verb not in known:
                raise ValueError(
                    f"the contract of {self.title} does not say how {verb!r} is asked: in place of "
                    f"verbs, list it under the operation by which the server half asks it, one of "
                    f"{', '.join(self.asked)}, such as keep={{{verb!r}: {what!r}}}"
                )
        object.__setattr__(self, "verbs", known)

    @property
    def name(self) -> str:
        """Name in tables.

        >>> Contract("Local training", "-", 0, short="Local").name
        'Local'
        """
        return self.short or self.title

    @property
    def asked(self) -> dict[Operation, Words]:
        """Client functions by operation, with their disclosures."""
        return {"sum": self.sum, "each": self.each, "keep": self.keep, "relay": self.relay}

    def refusal(self, verb: str, kind: str) -> str | None:
        """Return why a site rejects this call; None if it is allowed."""
        allowed = [operation for operation, words in self.asked.items() if verb in words]
        if kind in allowed:
            return None
        if allowed:
            return (
                f"the contract of {self.title} allows it by {' and '.join(allowed)} alone"
            )
        lists = []
        for how, words in self.asked.items():
            if words:
                lists.append(f"{', '.join(words)} by {how}")
        listed = "; ".join(lists) or "no verb"
        return f"the contract of {self.title} allows {listed}; nothing else"

    def without(self, *verbs: str, by: Operation | None = None) -> Contract:
        """Return the contract without these client functions, or without an operation of them."""
        left: dict[Operation, Words] = {}
        for how, words in self.asked.items():
            if by in (None, how):
                words = {verb: what for verb, what in words.items() if verb not in verbs}
            left[how] = words
        return replace(self, verbs={}, **left)  # type: ignore[arg-type]
