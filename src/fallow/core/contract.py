"""What a method promises, in one place that tables, refusals and sites read."""

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
    """One row of the contract table.

    ``sum``, ``each``, ``keep`` and ``relay`` are operations of `Ask`: they map every verb that a
    server may ask in this way to what that reveals beyond the site, in words.  A site runs no other
    function, and none in another way.  ``verbs``, all of them, is made of these four.

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
    year: int = 0  # of the paper; 0: there is none
    verbs: Words = field(default_factory=dict)
    sum: Words = field(default_factory=dict)  # the server sees totals
    each: Words = field(default_factory=dict)  # the server sees every site's answer
    keep: Words = field(default_factory=dict)  # the answer stays at the site
    relay: Words = field(default_factory=dict)  # other sites see the answer
    needs: Sequence[str] = ()  # models whose predictions it reads: "local", "global"
    local_source: Literal["last_round", "scratch"] = "last_round"  # the paper's local model
    cohort: int = 1  # the smallest number of sites that makes sense
    secure_sum: bool = True  # works when the server sees totals only
    local_dp: bool = True  # works when released counts are noisy
    # the field of a method that makes it work so, with Gaussian noise: its δ; "": there is none
    delta_field: str = ""
    always_noisy: bool = False  # means nothing where no noise is added
    weighs: bool = True  # in its totals a labeled row may weigh more or less than 1
    missing: str = "goes on with the sites that answer"
    # the paper chooses for every budget from nothing, not cycle by cycle
    one_pass: bool = False
    draws: bool = False  # picks depend on a random stream even without ties
    regression: bool | None = None  # works on targets; None: unless it reads predictions
    classes: bool = True  # works on classes
    linear: bool = False  # works for the model "linear" alone
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
    everyone: bool = False  # trains only where all sites take part in every round
    # settings of a recipe that a training method brings along where a study does not give them
    settings: Mapping[str, Any] = field(default_factory=dict)
    at_server: Sequence[str] = ()  # parts of a training method's state that no site is sent
    models: Sequence[str] = ()  # names of models that it orders beside "local"
    own_start: bool = False  # the server sends each site a model of its own to start at
    gradients_per_batch: int = 1  # what a batch costs in training, beside FedAvg's 1
    # verbs that one round or query asks more than once, and how often at most; 0: a few times
    # for each site
    often: Mapping[str, int] = field(default_factory=dict)
    # reads hidden labels: an upper bound, never at a real site
    simulator_only: bool = False
    # what others need to know of a method without knowing its name
    authors: str = ""  # of the paper, as BibTeX has them: "Last, First and Last, First"
    short: str = ""  # what tables call it, where that is shorter than the title
    aliases: tuple[str, ...] = ()  # other words by which studies may name it
    options: tuple[str, ...] = ()  # settings of a recipe that were made for it
    site_lists: tuple[str, ...] = ()  # fields that list sites; a word may stand for a list
    budget_of: Literal["site", "federation"] = "site"  # whose budget a query spends
    tags: tuple[Tag, ...] = ()

    def __post_init__(self) -> None:
        for name in ("needs", "at_server", "models", "waits"):
            value = getattr(self, name)
            if isinstance(value, str):  # one name alone
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
        """What tables call the method.

        >>> Contract("Local training", "-", 0, short="Local").name
        'Local'
        """
        return self.short or self.title

    @property
    def asked(self) -> dict[Operation, Words]:
        """The verbs that may be asked by each operation, and what they reveal."""
        return {"sum": self.sum, "each": self.each, "keep": self.keep, "relay": self.relay}

    def refusal(self, verb: str, kind: str) -> str | None:
        """Why a site does not answer the verb when it is asked by ``kind``; None where it does."""
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
        """The contract of an instance that never asks these verbs, or not ``by`` this operation."""
        left: dict[Operation, Words] = {}
        for how, words in self.asked.items():
            if by in (None, how):
                words = {verb: what for verb, what in words.items() if verb not in verbs}
            left[how] = words
        return replace(self, verbs={}, **left)  # type: ignore[arg-type]
