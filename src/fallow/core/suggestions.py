"""Rejection of settings: unknown keywords, with a suggestion, and fields without an effect."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fallow.core.kinds import describe_kind, show_value, takes_numbers
from fallow.core.limits import check_fields

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
NONE: Mapping[str, str] = {}
OF_FEDERATION = {"partition": "give it to fl.Federation(dataset, partition, sites=...)"}
"""Arguments that functions of datasets do not have, with advice."""

TERMS: Mapping[str, str] = {
    "aggregation": "training",
    "x": "x",
    "algorithm": "training",
    "allocation": "budget_allocation",
    "batchsize": "batch_size",
    "bs": "batch_size",
    "clients": "sites",
    "budget": "n",
    "budget_per_cycle": "budget",
    "budget_split": "budget_allocation",
    "client_fraction": "participation",
    "fraction_fit": "participation",
    "label_budget": "budget",
    "labeled": "labeled",
    "labels_per_cycle": "budget",
    "learning_rate": "lr",
    "local_epochs": "epochs",
    "min_clients": "sites",
    "n_clients": "sites",
    "n_cycles": "cycles",
    "n_epochs": "epochs",
    "n_instances": "n",
    "n_iterations": "cycles",
    "n_queries": "cycles",
    "n_rounds": "rounds",
    "n_sites": "sites",
    "net": "model",
    "network": "model",
    "num_clients": "sites",
    "num_epochs": "epochs",
    "num_rounds": "rounds",
    "num_sites": "sites",
    "optim": "optimizer",
    "per_cycle": "budget",
    "policy": "budget_allocation",
    "queries": "strategies",
    "query": "strategy",
    "query_size": "budget",
    "query_strategy": "strategy",
    "random_seed": "seed",
    "random_state": "seed",
    "trainer": "training",
    "target": "label",
    "simulation": "federation",
    "x_pool": "pool",
}
"""Common keyword -> keyword in Fallow."""


MANY = 60  # number of names beyond which an error does not list them


def nearest(word: str, words: list[str], otherwise: str = "") -> str:
    """Return the end of a sentence with the nearest known word, or all if there are few.

    ``otherwise`` ends the sentence if no word is near.

    >>> nearest("entrpy", ["random", "entropy"])
    "; did you mean 'entropy'?"
    >>> nearest("pool", ["random"], otherwise="'fallow algorithms' lists them")
    "; 'fallow algorithms' lists them"
    """
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    if otherwise:
        return f"; {otherwise}"
    if len(words) > MANY:
        return ""
    return f"; known: {', '.join(sorted(words))}"


def require_known(
    word: str, known: Collection[str], message: str, otherwise: str = ""
) -> None:
    """Raise ValueError for an unknown word: the message, and the nearest known word.

    >>> require_known("entrpy", ["random", "entropy"], "there is no strategy 'entrpy'")
    Traceback (most recent call last):
    ...
    ValueError: there is no strategy 'entrpy'; did you mean 'entropy'?
    """
    if word not in known:
        raise ValueError(f"{message}{nearest(word, list(known), otherwise)}")


def explain_config(name: str, names: list[str]) -> str:
    """Return the sentence about an unknown experiment configuration."""
    otherwise = "'fallow configs' lists them"
    if "/" in name:
        otherwise = (
            f"install the distribution that has it (papers: fallow-papers); {otherwise}"
        )
    return f"{name!r} is not an experiment configuration{nearest(name, names, otherwise)}"


def nearest_column(column: str, columns: Sequence[str]) -> str:
    """Return the part of a sentence about an unknown column.

    It contains the nearest column, if similar enough, and all columns.

    >>> nearest_column("wrd", ["age", "ward"])
    "; did you mean 'ward'? Its columns: age, ward"
    >>> nearest_column("hospital", ["age", "site"])
    '; its columns: age, site'
    """
    shown = ", ".join(columns[:MANY])
    if len(columns) > MANY:
        shown += f" and {len(columns) - MANY} more"
    close = difflib.get_close_matches(column, columns, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {close[0]!r}? Its columns: {shown}"
    return f"; its columns: {shown}"


def suggest_keyword(word: str, known: Collection[str]) -> str:
    """Return the part of a sentence that names the keyword that was probably meant.

    The table of terms comes first, the edit distance second.

    >>> suggest_keyword("learning_rate", ["lr", "rounds"])
    "; did you mean 'lr'?"
    >>> suggest_keyword("round", ["lr", "rounds"])
    "; did you mean 'rounds'?"
    """
    meant = TERMS.get(word.lower(), word)
    for name in (meant, TERMS.get(meant)):
        if name in known and name != word:
            return f"; did you mean {name!r}?"
    return nearest(word, sorted(known))


def explain_function(
    elsewhere: Mapping[str, str] = NONE,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Raise a ValueError where a public function is called with wrong arguments.

    ``elsewhere`` maps arguments that belong to another call to a sentence about it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = f"fl.{function.__name__}"
        known = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def explain(*args: P.args, **keywords: P.kwargs) -> R:
            for word in keywords:
                if word in known:
                    continue
                if word in elsewhere:
                    raise ValueError(f"{name} has no argument {word!r}: {elsewhere[word]}")
                hint = suggest_keyword(word, known)
                raise ValueError(f"{name} has no argument {word!r}{hint}")
            try:
                return function(*args, **keywords)
            except TypeError:
                _refuse_call(name, function, args, keywords, known, "arguments")
                raise

        return explain

    return decorate


def refuse_settings(name: str, settings: Collection[str], known: Sequence[str]) -> None:
    """Raise ValueError for the first unknown setting of a class.

    >>> refuse_settings("FedAvg", ["learning_rate"], ["lr", "epochs"])
    Traceback (most recent call last):
    ValueError: FedAvg has no setting 'learning_rate'; did you mean 'lr'?
    """
    for word in settings:
        if not known:
            raise ValueError(
                f"{name} has no setting {word!r}, and no settings at all; omit it"
            )
        if word not in known:
            hint = suggest_keyword(word, known)
            raise ValueError(f"{name} has no setting {word!r}{hint}")


def explain_constructor(cls: type[T]) -> type[T]:
    """Raise a ValueError for unknown settings of a class, and for values out of their range.

    The TypeError of Python names neither the nearest setting nor the others.  Ranges and choices are
    those of the annotations (`check_fields`).
    """
    construct: Any = cls.__init__
    parameters = inspect.signature(construct).parameters.values()
    _, *known = [parameter.name for parameter in parameters]
    is_checked = is_dataclass(cls) and cls.__module__.startswith("fallow")

    @functools.wraps(construct)
    def explain(self: T, /, *args: Any, **settings: Any) -> None:
        texts = {**dict(zip(known, args, strict=False)), **settings}
        _refuse_texts(construct, texts)
        try:
            construct(self, *args, **settings)
        except TypeError:
            refuse_settings(type(self).__name__, settings, known)
            _refuse_call(type(self).__name__, construct, (self, *args), settings, known)
            raise
        if is_checked:
            check_fields(self)

    cls.__init__ = explain  # type: ignore[assignment]
    return cls


def _refuse_texts(construct: Callable[..., Any], settings: Mapping[str, object]) -> None:
    """Raise ValueError for a number in quotes; classes check other texts themselves."""
    for name, value in settings.items():
        if isinstance(value, list | tuple):
            if not any(_is_quoted(item) for item in value):
                continue
        elif not _is_quoted(value):
            continue
        hint = _hints_of(construct).get(name)
        if takes_numbers(hint):
            raise ValueError(
                f"{name} is {show_value(value)}; it must be {describe_kind(hint)}"
            )


def _is_quoted(value: object) -> bool:
    """Return whether a value is a number in quotes, which Python would not compute with."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


@functools.cache
def _hints_of(construct: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the declared types of arguments, without types whose names are not loaded."""
    hints: dict[str, Any] = {}
    for name, written in construct.__annotations__.items():
        one = types.SimpleNamespace(__annotations__={name: written})
        with contextlib.suppress(NameError):
            hints |= get_type_hints(one, getattr(construct, "__globals__", {}))
    return hints


def _refuse_call(
    name: str,
    construct: Callable[..., Any],
    args: Sequence[object],
    settings: Mapping[str, object],
    known: Sequence[str],
    what: str = "settings",
) -> None:
    """Raise ValueError if arguments are missing, too many, or set one setting twice."""
    try:
        inspect.signature(construct).bind(*args, **settings)
    except TypeError as error:
        raise ValueError(f"{name}: {error}; its {what} are {', '.join(known)}") from None


def refuse_unused(
    algorithm: object, *names: str, switch: str, used_with: Sequence[object]
) -> None:
    """Raise ValueError if a field is set while another one switches it off.

    ``switch`` is the other field, and ``used_with`` are its values with which the fields ``names``
    have an effect.
    """
    setting = getattr(algorithm, switch)
    if setting in used_with:
        return
    title = type(algorithm).__name__
    for name in names:
        value = getattr(algorithm, name)
        if value != getattr(type(algorithm), name):
            raise ValueError(
                f"{title}'s {name} is {value!r} and its {switch} is {setting!r}, which does not use "
                f"{name}; set {switch}={used_with[0]!r} or leave {name} out"
            )


OF_TASKS = {
    "regression": "regression",
    "multilabel": "several labels per example",
}
"""Tasks to which a field of a query strategy may apply alone."""


def refuse_for_task(strategy: Any, task: str) -> None:
    """Raise ValueError if a field is set that applies to another task only."""
    for name, of_task in strategy.contract.fields_of_task.items():
        value = getattr(strategy, name)
        if of_task != task and value != getattr(type(strategy), name):
            raise ValueError(
                f"{type(strategy).__name__}'s {name} is {value!r} and applies to {OF_TASKS[of_task]} "
                f"only, but the data are for {task}; leave {name} out"
            )
