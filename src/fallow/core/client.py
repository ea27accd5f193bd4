"""Declarations of client functions, beside their bodies.

>>> from fallow.core import client
>>> from fallow.core.values import Share
>>> class Example:
...     @client.sum("aggregates of label shares", returns={"share": Share("classes")})
...     def share(self, view): ...
>>> declared(Example())["share"].operation
'sum'

A declaration belongs to a class, and the settings of an instance narrow it (`declared`).  The site,
the coordinator and the tables of disclosures read nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import signature
from numbers import Integral
from typing import Any, Literal, Protocol, TypeVar, final, get_args, runtime_checkable

import torch
from torch import Tensor

from fallow.core.aggregation import are_finite
from fallow.core.composites import Composite, Fields, read_parts
from fallow.core.values import (
    Count,
    Flag,
    Indicator,
    Indices,
    Kind,
    LabelCount,
    Mask,
    Model,
    NonNegative,
    Optional,
    Real,
    SenderFacts,
    Statistics,
    Text,
    Time,
    Whole,
    describe_not_finite,
)

Operation = Literal["sum", "each", "keep", "relay"]
"""Operations of `Ask`, by which a client function may be called."""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Weighting = Literal["", "rows", "labels"]
"""Weight of a site in an aggregate: its registered examples or its largest number of labels; "" for
the field ``n`` beside a model, or none."""
Over = Literal["", "all", "pool"]
"""Examples that a function sums whatever their labels: all, or the unlabeled pool."""
Group = Literal["counts", "aggregates", "models", "status"]
"""Groups of disclosures, by the kinds of the fields in a reply."""
GROUPS: tuple[Group, ...] = get_args(Group)
"""Groups of disclosures in the order of tables."""
Declared = Mapping[str, Kind] | Composite
Function = TypeVar("Function", bound=Callable[..., Any])

ClientCall = Callable[..., Any]
"""A client function of an algorithm, such as ``self.share``."""

SELECTED = "n"
"""Argument with the number of labels of a client function that declares no arguments."""
SELF_AND_VIEW = 2  # parameters of a client function without arguments
MARK = "__client__"
PARTS = (Model, Statistics)
STATED = (
    Count,
    Flag,
    Indicator,
    Indices,
    LabelCount,
    Mask,
    Optional,
    Text,
    Whole,
)
"""Kinds that count or name something."""
UNDECLARED: Mapping[str, Group] = {
    "sum": "aggregates",
    "each": "status",
    "keep": "counts",
    "relay": "models",
}
"""Groups of functions that do not declare the fields of their replies."""


@final
@dataclass(frozen=True)
class ClientFunction:
    """A client function as its class declares it.

    Attributes
    ----------
    operation : {"sum", "each", "keep", "relay"}
        The operation that may call it.
    discloses : str or callable
        Information that its reply discloses.
    returns : mapping of kinds, Composite or callable, optional
        Fields of its reply.  None: not declared.
    takes : mapping of kinds or callable, optional
        Arguments.  None: not declared, or none for a function of the view alone.
    when : callable, optional
        Whether an instance uses it.
    times : int or callable
        Number of calls in one round or query; 0: a few for each site.
    release : bool
        Returns a `Release`, to which noise may be added.
    weighted_by : {"", "rows", "labels"}
        The largest share of a site in the aggregate limits this weight.
    reveals_parts : str
        Information in the contribution of one site, without secure aggregation.
    over : {"", "all", "pool"}
        Examples that determine its reply, with its arguments and the scales of the run.  A real site
        computes such a reply once, and sends the same one until these examples change.

    Functions of the instance are called with it.
    """

    operation: Operation
    discloses: str | Callable[[Any], str]
    returns: Declared | Callable[[Any], Declared] | None = None
    takes: Mapping[str, Kind] | Callable[[Any], Mapping[str, Kind]] | None = None
    when: Callable[[Any], bool] | None = None
    times: int | Callable[[Any], int] = 1
    release: bool = False
    weighted_by: Weighting = ""
    reveals_parts: str = ""
    over: Over = ""

    def of_class(self, name: str) -> Declaration:
        """Return the value for all settings, without parts that depend on settings."""
        return Declaration(
            name=name,
            operation=self.operation,
            discloses=_fixed(self.discloses, ""),
            times=_fixed(self.times, 1),
            release=self.release,
            weighted_by=self.weighted_by,
            reveals_parts=self.reveals_parts,
            over=self.over,
        )

    def __call__(self, function: Function) -> Function:
        """Declare a function.  One of ``(self, view)`` takes no arguments."""
        item = self
        if item.takes is None and len(signature(function).parameters) == SELF_AND_VIEW:
            item = replace(item, takes={})
        setattr(function, MARK, (*getattr(function, MARK, ()), item))
        return function


@final
@dataclass(frozen=True)
class Declaration:
    """A client function as an instance uses it: `ClientFunction` with its settings applied."""

    name: str
    operation: Operation
    discloses: str
    returns: Composite | None = None
    takes: Mapping[str, Kind] | None = None
    times: int = 1
    release: bool = False
    weighted_by: Weighting = ""
    reveals_parts: str = ""
    over: Over = ""

    @property
    def group(self) -> Group:
        """Group in tables of disclosures, from the kinds of the fields.

        Counts and texts of a single site are its status.
        """
        if self.operation == "keep" or self.returns is None:
            return UNDECLARED[self.operation]
        if self.models:
            return "models"
        kinds = self.returns.fields({}).values()
        if not all(isinstance(kind, STATED) for kind in kinds):
            return "aggregates"
        if self.operation == "sum":
            return "counts"
        return "status"

    @property
    def wide_fields(self) -> frozenset[str]:
        """Fields of the reply in the units of the data, whose sums may have any size."""
        return frozenset(
            name
            for name, kind in self.kinds.items()
            if isinstance(kind, Real | NonNegative) and kind.is_wide
        )

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds of the fields of the reply."""
        return {} if self.returns is None else self.returns.fields({})

    @property
    def lacking(self) -> Literal["takes", "returns"] | None:
        """Part of the declaration that real sites need and that is missing."""
        if self.takes is None:
            return "takes"
        if self.operation != "keep" and self.returns is None:
            return "returns"
        return None

    @property
    def models(self) -> dict[str, Kind]:
        """Fields of the reply with a model or a part of one."""
        if self.returns is None:
            return {}
        kinds = self.returns.fields({})
        return {name: kind for name, kind in kinds.items() if isinstance(kind, PARTS)}

    @property
    def weight(self) -> str | None:
        """Field with the weight of a model in the reply; None without one."""
        if self.returns is None or not self.models:
            return None
        kinds = self.returns.fields({})
        return next((name for name, kind in kinds.items() if isinstance(kind, Count)), None)

    @property
    def label_counts(self) -> tuple[str, ...]:
        """Arguments with a number of labels."""
        return tuple(
            name
            for name, kind in (self.takes or {}).items()
            if isinstance(kind, LabelCount)
        )


# -- decorators -----------------------------------------------------------------------------------


sum = partial(ClientFunction, "sum")
"""Declare a client function whose replies are aggregated; the server side sees aggregates."""
each = partial(ClientFunction, "each")
"""Declare a client function whose replies the server side sees for every site."""
keep = partial(ClientFunction, "keep")
"""Declare a client function whose replies stay at the site."""
relay = partial(ClientFunction, "relay")
"""Declare a client function whose replies other sites see."""


# -- resolution -----------------------------------------------------------------------------------


@runtime_checkable
class Declaring(Protocol):
    """An algorithm that builds its declarations, such as one that consists of others."""

    def declarations(self) -> Mapping[str, Declaration]: ...


def list_marked(cls: type) -> Sequence[tuple[str, ClientFunction]]:
    """Return the declarations of a class so far with their names, base classes first."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        members |= vars(base)
    return [
        (name, item)
        for name, function in members.items()
        for item in getattr(function, MARK, ())
    ]


@cache
def _list_all_marked(cls: type) -> Sequence[tuple[str, ClientFunction]]:
    """Return `list_marked` of a class that has instances: all of its functions are declared."""
    return list_marked(cls)


@cache
def builds_declarations(cls: type) -> bool:
    """Return whether instances of a class are `Declaring`; the check of a protocol is slow."""
    return issubclass(cls, Declaring)


def declared(algorithm: Any) -> dict[str, Declaration]:
    """Return the client functions that an instance uses, by name, with its settings applied."""
    return {item.name: item for item in list_declared(algorithm)}


def list_declared(algorithm: Any) -> list[Declaration]:
    """Return the client functions that an instance uses, with its settings applied."""
    if builds_declarations(type(algorithm)):  # type: ignore[arg-type]  # of Any
        return list(algorithm.declarations().values())
    return list_declared_by(algorithm)


def list_declared_by(algorithm: Any) -> list[Declaration]:
    """Return the client functions that the class of an instance declares."""
    marked = _list_all_marked(type(algorithm))  # type: ignore[arg-type]  # of Any
    return [
        _resolve(name, item, algorithm)
        for name, item in marked
        if item.when is None or item.when(algorithm)
    ]


def list_relays(algorithm: Any) -> dict[str, Declaration]:
    """Return the client functions of an instance whose replies other sites see, by name."""
    functions = declared(algorithm).items()
    return {name: item for name, item in functions if item.operation == "relay"}


def list_label_counts(
    algorithm: Any, name: str, operation: str, args: Mapping[str, object]
) -> list[int]:
    """Return the numbers of labels in the arguments of a client function.

    A function without declared arguments is called as ``select(view, n)``.
    """
    declaration = declared(algorithm).get(name)
    names: tuple[str, ...] = ()
    if declaration is not None and declaration.takes is not None:
        names = declaration.label_counts
    elif operation == "keep":
        names = (SELECTED,)
    values = [args.get(name) for name in names]
    return [int(value) for value in values if isinstance(value, Integral)]


def _resolve(name: str, item: ClientFunction, algorithm: Any) -> Declaration:
    """Apply the settings of an instance."""
    returns = _apply(item.returns, algorithm)
    if returns is not None and not isinstance(returns, Composite):
        returns = Fields(returns)
    return Declaration(
        name=name,
        operation=item.operation,
        discloses=_apply(item.discloses, algorithm),
        returns=returns,
        takes=_apply(item.takes, algorithm),
        times=_apply(item.times, algorithm),
        release=item.release,
        weighted_by=item.weighted_by,
        reveals_parts=item.reveals_parts,
        over=item.over,
    )


def _fixed(value: Any, otherwise: Any) -> Any:
    """Return a value that holds for all settings, or another one."""
    if callable(value):
        return otherwise
    return value


def _apply(value: Any, algorithm: Any) -> Any:
    """Return a value, or the result of a function of the instance."""
    if callable(value):
        return value(algorithm)
    return value


# -- calls ----------------------------------------------------------------------------------------


def name_call(function: ClientCall, operation: Operation) -> str:
    """Return the declared name of a client function that an operation of `Ask` calls.

    Raises TypeError for anything but a client function of an algorithm, and ValueError for one that
    is declared for another operation.
    """
    algorithm = getattr(function, "__self__", None)
    contract = getattr(algorithm, "contract", None)
    if contract is None:
        raise TypeError(
            f"ask.{operation} was given {function!r:.60}; pass a client function itself, such as "
            f"ask.{operation}(self.share)"
        )
    for name in contract.disclosures:
        if getattr(algorithm, name, None) == function:
            why = contract.refusal(name, operation)
            if why is not None:
                raise ValueError(f"ask.{operation} was given {name}: {why}")
            return str(name)
    raise ValueError(
        f"{type(algorithm).__name__}.{getattr(function, '__name__', function)} is not declared: add "
        f"@client.{operation}(...) above it, with what it discloses"
    )


# -- checks ---------------------------------------------------------------------------------------


def find_wrong_form(
    returns: Composite, reply: Mapping[str, object], sizes: Mapping[str, int]
) -> str | None:
    """Explain why a reply does not have the declared fields, types and shapes, or return None.

    It is the check of every reply, in simulations too.
    """
    kinds = returns.fields(sizes)
    for name, kind in kinds.items():
        if isinstance(kind, Statistics) and name not in reply:
            model = next(part for part, of in kinds.items() if isinstance(of, Model))
            return (
                f"{name} is missing beside {model}: a model is sent with its batch-norm "
                "statistics, even if they are empty; all sites must run the same version"
            )
    if reply.keys() != kinds.keys():
        return (
            f"its reply has the fields {sorted(reply)[:20]} instead of {sorted(kinds)}: all sites "
            "must run the same version"
        )
    shapes = dict(sizes)
    for name, kind in kinds.items():
        why = kind.find_wrong_form(name, reply[name], shapes)
        if why is not None:
            return why
    return None


def find_not_finite(
    returns: Composite, reply: Mapping[str, object], sizes: Mapping[str, int]
) -> str | None:
    """Explain which field of a reply is NaN or infinite, or return None.

    Times may be infinite.  Models may have diverged, which algorithms handle.
    """
    for name, kind in returns.fields(sizes).items():
        value = reply[name]
        if isinstance(kind, (Time, *PARTS)) or not isinstance(value, Tensor | float):
            continue
        if not are_finite(torch.as_tensor(value)):
            return describe_not_finite(name)
    return None


def find_fault(
    returns: Composite, reply: Mapping[str, object], known: SenderFacts
) -> str | None:
    """Explain why sites cannot have sent a reply, or its aggregate, or return None."""
    why = find_wrong_form(returns, reply, known.sizes)
    if why is not None:
        return why
    kinds = returns.fields(known.sizes)
    for name, kind in kinds.items():
        why = kind.find_fault(name, reply[name], known)
        if why is not None:
            return why
    return returns.find_fault(read_parts(reply, kinds), known)


def find_wrong_argument(
    takes: Mapping[str, Kind], args: Mapping[str, object], known: SenderFacts
) -> str | None:
    """Explain why a client function does not take these arguments, or return None."""
    unknown = sorted(args.keys() - takes.keys())
    if unknown:
        return (
            f"has the argument {unknown[0]!r:.80}, and accepts {', '.join(takes) or 'none'}"
        )
    shapes = dict(known.sizes)
    for name, kind in takes.items():
        if name not in args and not kind.is_required:
            continue
        value = args.get(name)
        why = kind.find_wrong_form(name, value, shapes) or kind.find_fault(
            name, value, known
        )
        if why is not None:
            return why
    return None
