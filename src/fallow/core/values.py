"""Kinds of values that cross the boundary of a site, for declarations of client functions.

Each kind checks a value of one site and an aggregate over sites, and describes itself.  Dimensions
are names, such as "classes", which a study resolves (`SenderFacts.sizes`).  Other names must be
equal within one reply.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.aggregation import are_finite, does_fit
from fallow.core.model_vectors import Layout

FLOATS = (torch.float32, torch.float64)
KNOWN = (*FLOATS, torch.int64, torch.uint8, torch.bool)
"""Types of tensors in messages."""
Of = Literal["", "rows", "labels", "sites", "study"]
"""Bound of a number of a site: none, its examples, its largest number of labels, the sites of the
study, or the examples of the study."""
UNKNOWN = 2
"""Size of an unknown dimension in examples."""
TEXT = 10_000
"""Maximum number of characters of a text."""
WHOLE = 2**53
"""Largest integer up to which float64 is exact."""
LARGEST = float(torch.finfo(torch.float32).max)
"""Bound of real numbers without a narrower one: float32 has no larger numbers."""
LARGEST_WIDE = 2.0**160
"""Bound of sums in the units of the data, such as squared times in nanoseconds (`privacy.wide`)."""
HEAVIEST = 10**9
"""Largest weight of a label, above all that drawing with replacement assigns."""


@final
@dataclass(frozen=True)
class Triangle:
    """Length of the packed upper triangle of a square matrix: k (k + 1) / 2 for size k."""

    size: str


@final
@dataclass(frozen=True)
class AtMost:
    """Dimension that differs between exchanges, up to a limit, such as a number of clusters."""

    size: str
    limit: int


Dim = str | int | Triangle | AtMost
Dims = Dim | tuple[Dim, ...]
"""One dimension, several, or ``()`` for a single number."""


@final
@dataclass(frozen=True)
class SenderFacts:
    """Facts about the site that sent a value, or about the sites in an aggregate.

    Attributes
    ----------
    sizes : mapping
        Dimensions by name.
    sites : int
        Number of contributions in an aggregate; 1 for the value of one site.
    is_total : bool
        Whether the values are aggregates over sites.
    rows, labels : float
        Registered examples, and largest number of labels.
    heaviest : float
        Largest weight of a labeled example: the number of examples of the study.
    longest : float
        Largest sum of squared lengths of labeled examples with weight 1.
    is_noisy : bool
        Whether noise was added to the values of a release.
    room : float
        Absolute rounding error of an aggregate.
    tolerance : float
        Relative rounding error of sums of squares.
    levels : tuple of pairs
        First and last column + 1 of each category of a table.
    noted : mapping
        Numbers from earlier replies of the same sites.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    sites: int = 1
    is_total: bool = False
    rows: float = math.inf
    labels: float = math.inf
    heaviest: float = math.inf
    longest: float = math.inf
    is_noisy: bool = False
    room: float = 0.0
    tolerance: float = 1e-6
    levels: tuple[tuple[int, int], ...] = ()
    noted: Mapping[str, float] = field(default_factory=dict)

    def limit(self, of: Of) -> float:
        """Return the largest count of this kind; infinite if it is unknown."""
        if of == "sites":
            return self.sizes.get("sites", math.inf) * self.sites
        limits = {"rows": self.rows, "labels": self.labels, "study": self.heaviest}
        return limits.get(of, math.inf)

    def describe_limit(self, of: Of) -> str:
        """Return the part of an error message about the largest count."""
        if of == "sites":
            return f"the study has {self.sizes.get('sites', 0)} sites"
        if of == "study":
            return f"the study has {self.heaviest:g} rows"
        if of == "labels" and self.is_total:
            return f"these sites can have {self.labels:g} labels"
        if of == "labels":
            return f"the site sent or was asked for {self.labels:g} labels"
        if self.is_total:
            return f"these sites have {self.rows:g}"
        return f"the site has {self.rows:g} rows"


class Kind(ABC):
    """Interface of all kinds of values.  ``is_required``: an argument without a default."""

    is_required: bool = False

    @abstractmethod
    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        """Explain why the field ``name`` cannot have this value, or return None."""

    @abstractmethod
    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        """Explain why type or shape are wrong, or return None.

        The sizes of dimensions that are not in ``sizes`` are added to it.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return a noun phrase for tables."""


def find_unknown_type(name: str, value: object) -> str | None:
    """Explain why a value is neither a known tensor nor a small plain value, or return None."""
    if isinstance(value, Tensor):
        if value.dtype not in KNOWN:
            return f"{name} is of {value.dtype}, which is not one of {KNOWN}"
    elif isinstance(value, str):
        if len(value) > TEXT:
            return f"{name} has {len(value)} characters, more than the limit {TEXT}"
    elif not isinstance(value, bool | float | int | None):
        return f"{name} is {value!r:.40}, which is neither a tensor nor a plain value"
    elif type(value) is int and abs(value) > WHOLE:
        return f"{name} is a whole number of {value.bit_length()} bits, above 53"
    return None


def describe_not_finite(name: str) -> str:
    """Return the error message for numbers that are NaN or infinite."""
    return (
        f"{name} is NaN or infinite: its training diverged or its data is damaged; lower "
        "the learning rate, standardize the features or check the site's examples"
    )


# -- shapes ---------------------------------------------------------------------------------------


def as_tuple(dims: Dims) -> tuple[Dim, ...]:
    """Return dimensions as a tuple.

    >>> as_tuple("classes"), as_tuple(())
    (('classes',), ())
    """
    return dims if isinstance(dims, tuple) else (dims,)


def shape_of(dims: Dims, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a value, with 2 for unknown dimensions.

    >>> shape_of((Triangle("features"), "classes"), {"features": 3})
    (6, 2)
    """
    shape: list[int] = []
    for dim in as_tuple(dims):
        if isinstance(dim, Triangle):
            k = sizes.get(dim.size, UNKNOWN)
            shape.append(k * (k + 1) // 2)
        elif isinstance(dim, AtMost):
            shape.append(sizes.get(dim.size, UNKNOWN))
        elif isinstance(dim, str):
            shape.append(sizes.get(dim, UNKNOWN))
        else:
            shape.append(dim)
    return tuple(shape)


def knows_shape(dims: Dims, sizes: Mapping[str, int]) -> bool:
    """Return whether the sizes of all dimensions are known.

    >>> knows_shape(("features", 3), {"features": 4}), knows_shape(Triangle("k"), {})
    (True, False)
    """
    for dim in as_tuple(dims):
        name = dim.size if isinstance(dim, Triangle | AtMost) else dim
        if isinstance(name, str) and name not in sizes:
            return False
    return True


def has_shape(shape: tuple[int, ...], dims: Dims, sizes: dict[str, int]) -> bool:
    """Return whether a shape has these dimensions; sizes of new ones are added to ``sizes``.

    >>> sizes: dict[str, int] = {}
    >>> has_shape((6, 3), (Triangle("k"), "k"), sizes), sizes
    (True, {'k': 3})
    """
    names = as_tuple(dims)
    if len(shape) != len(names):
        return False
    for size, dim in zip(shape, names, strict=True):
        if isinstance(dim, int):
            is_same = size == dim
        elif isinstance(dim, str):
            is_same = sizes.setdefault(dim, size) == size
        elif isinstance(dim, AtMost):
            is_same = size <= dim.limit and sizes.setdefault(dim.size, size) == size
        else:
            k = (math.isqrt(8 * size + 1) - 1) // 2
            k = sizes.setdefault(dim.size, k)
            is_same = k * (k + 1) // 2 == size
        if not is_same:
            return False
    return True


def describe_dims(dims: Dims) -> str:
    """Describe dimensions in words.

    >>> describe_dims(("features", Triangle("k"))), describe_dims(())
    (' (features, k (k + 1) / 2)', '')
    """
    names: list[str] = []
    for dim in as_tuple(dims):
        if isinstance(dim, Triangle):
            names.append(f"{dim.size} ({dim.size} + 1) / 2")
        elif isinstance(dim, AtMost):
            names.append(f"at most {dim.limit} {dim.size}")
        else:
            names.append(str(dim))
    if not names:
        return ""
    return f" ({', '.join(names)})"


def _find_above_limit(name: str, shape: tuple[int, ...], dims: Dims) -> str | None:
    """Explain which dimension exceeds its limit, or return None."""
    for size, dim in zip(shape, as_tuple(dims), strict=False):
        if isinstance(dim, AtMost) and size > dim.limit:
            return f"{name} has {size} {dim.size}, and a query has at most {dim.limit}"
    return None


def resolve_dims(layout: Layout, classes: int, sites: int) -> dict[str, int]:
    """Return the dimensions of declared fields that follow from the model and the study."""
    dims = {
        "classes": classes,
        "outputs": max(classes, 1),
        "sites": sites,
        "weights": layout.d,
        "statistics": sum(layout.buffer_sizes),
    }
    body = layout.part("body")
    if body is not None:
        dims["body"] = int(body.sum())
    shapes = dict(layout.params)
    if "head.weight" in shapes:
        dims["outputs"], dims["features"] = shapes["head.weight"][:2]
    return dims


# -- numbers --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Range:
    """Numbers that a site may send, all of them bounded.

    low, high: of each number.  is_positive: above 0 in float32.  of: count that bounds each number,
    and with ``is_together`` their sum.  times: largest multiple of that count.  is_whole: integers
    only.  is_endless: infinity is allowed.  is_released: with noise, real numbers without an upper
    bound.  is_order: positions that occur once each.
    """

    low: float = -LARGEST
    high: float = LARGEST
    is_positive: bool = False
    of: Of = ""
    times: int = 1
    is_together: bool = False
    is_whole: bool = False
    is_endless: bool = False
    is_released: bool = False
    is_order: bool = False


class Numbers(Kind):
    """Interface of numbers, which differ in their dimensions and their range."""

    dims: Dims
    title: ClassVar[str] = "numbers"

    @property
    @abstractmethod
    def range(self) -> Range: ...

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if why := find_unknown_type(name, value):
            return why
        if not isinstance(value, Tensor | float | int):
            return f"{name} is {value!r:.40}, which is not a number"
        shape = tuple(torch.as_tensor(value).shape)
        before = dict(sizes)
        if has_shape(shape, self.dims, sizes):
            return None
        if why := _find_above_limit(name, shape, self.dims):
            return why
        described: object = describe_dims(self.dims).strip() or "()"
        if knows_shape(self.dims, before):
            described = shape_of(self.dims, before)
        return f"{name} has the shape {shape} and not {described}: all sites must use one model"

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        rule = self.range
        dtype = None if isinstance(value, Tensor) else torch.float64  # float32 has no 1e300
        numbers = torch.as_tensor(value, dtype=dtype)
        if not are_finite(numbers) and (not rule.is_endless or bool(numbers.isnan().any())):
            return describe_not_finite(name)
        is_within = numbers.dtype != torch.float64  # all numbers of the type, if finite
        if not numbers.numel() or (is_within and rule == Range()):
            return None
        return _find_outside(name, numbers.double(), rule, known)

    def describe(self) -> str:
        return f"{self.title}{describe_dims(self.dims)}"


def _find_outside(
    name: str, numbers: Tensor, rule: Range, known: SenderFacts
) -> str | None:
    """Explain why finite numbers are out of range at these sites, or return None."""
    room = known.room
    times = 1
    if known.is_total:
        times = known.sites
    low = rule.low * times
    high = rule.high * times
    if bool((numbers < low - room).any()):
        if rule.low == 0:
            return f"{name} is below 0, which is impossible for a count or a square"
        return f"{name} is {float(numbers.min()):g}, which is below {low:g}"
    if rule.is_positive and bool((numbers.float() <= 0).any()):
        return f"{name} is {float(numbers.min()):g}, which is not above 0"
    if bool((numbers > high + room).any()):
        if rule.high == 1 and not known.is_total:
            return f"{name} is above 1, which is impossible for a fraction"
        return f"{name} is {float(numbers.max()):g}, which is above {high:g}"
    if rule.is_released and known.is_noisy:
        return None
    limit = known.limit(rule.of) * rule.times * (1 + 1e-6) + room
    if bool((numbers > limit).any()):
        return f"{name} is {float(numbers.max()):.10g}, and {known.describe_limit(rule.of)}"
    together = float(numbers.sum())
    if rule.is_together and together > limit + room * numbers.numel():
        return f"{name} are {together:.10g} together, and {known.describe_limit(rule.of)}"
    if rule.is_whole and not known.is_total and bool((numbers != numbers.round()).any()):
        return f"{name} has a fraction, but must be a count"
    if rule.is_order and len(set(numbers.tolist())) < len(numbers):
        return f"{name} has a position twice"
    if rule.is_order and float(numbers.max()) >= len(numbers):
        return f"{name} has position {float(numbers.max()):g} of {len(numbers)}, from 0"
    return None


@final
@dataclass(frozen=True)
class Count(Numbers):
    """Numbers of examples, labels or other things.

    of: "rows" or "labels" of the site, none of which is counted twice with ``is_together``, or
    "sites" or the rows of the "study", each of which is counted ``times`` times at most.  high:
    largest number.
    is_released: noise may be added before it is sent.
    """

    dims: Dims = ()
    high: float = WHOLE
    of: Of = ""
    times: int = 1
    is_together: bool = False
    is_released: bool = False

    @property
    def range(self) -> Range:
        return Range(
            low=0.0,
            high=self.high,
            of=self.of,
            times=self.times,
            is_together=self.is_together,
            is_whole=True,
            is_released=self.is_released,
        )


@final
@dataclass(frozen=True)
class Share(Numbers):
    """Shares, from 0 to 1 at each site."""

    dims: Dims = ()
    title: ClassVar[str] = "shares"
    range = Range(low=0.0, high=1.0)


@final
@dataclass(frozen=True)
class Indicator(Numbers):
    """1 at a site with a property, and 0 at others; the aggregate is their number."""

    dims: Dims = ()
    title: ClassVar[str] = "0 or 1"
    range = Range(low=0.0, high=1.0, is_whole=True)


@final
@dataclass(frozen=True)
class NonNegative(Numbers):
    """Real numbers that are not negative, such as sums of squares or of weights.

    of, times, is_together: as those of `Count`.  is_wide: as that of `Real`.
    """

    dims: Dims = ()
    of: Of = ""
    times: int = 1
    is_together: bool = False
    is_wide: bool = False
    title: ClassVar[str] = "nonnegative numbers"

    @property
    def range(self) -> Range:
        largest = LARGEST_WIDE if self.is_wide else LARGEST
        return Range(
            low=0.0,
            high=largest,
            of=self.of,
            times=self.times,
            is_together=self.is_together,
        )


SUM_OF_WEIGHTS = NonNegative(of="labels", times=HEAVIEST)
"""Sum of the weights of labeled examples."""


@final
@dataclass(frozen=True)
class Positive(Numbers):
    """Numbers above 0, also in float32."""

    dims: Dims = ()
    title: ClassVar[str] = "positive numbers"
    range = Range(is_positive=True)


@final
@dataclass(frozen=True)
class Real(Numbers):
    """Finite real numbers.

    bound: of their absolute values.  is_wide: they are in the units of the data, so secure
    aggregation sums them in wide fixed point (`privacy.wide`).  have_one_unit: they have the same unit,
    as features of an encoder, so that they can be compared with each other.
    """

    dims: Dims = ()
    bound: float = LARGEST
    is_wide: bool = False
    have_one_unit: bool = False
    title: ClassVar[str] = "numbers"

    @property
    def range(self) -> Range:
        bound = LARGEST_WIDE if self.is_wide else self.bound
        return Range(low=-bound, high=bound)


@final
@dataclass(frozen=True)
class Mask(Numbers):
    """Truth values."""

    dims: Dims
    title: ClassVar[str] = "truth values"
    range = Range(low=0.0, high=1.0, is_whole=True)


@final
@dataclass(frozen=True)
class Flag(Numbers):
    """One truth value."""

    dims: Dims = ()
    title: ClassVar[str] = "a truth value"
    range = Range(low=0.0, high=1.0, is_whole=True)


@final
@dataclass(frozen=True)
class Time(Numbers):
    """A time, or its logarithm; infinite for never."""

    dims: Dims = ()
    title: ClassVar[str] = "a time"
    range = Range(is_endless=True)


@final
@dataclass(frozen=True)
class Model(Numbers):
    """Weights of a model, or of a part of it; in a sum multiplied by the weight of the site."""

    dims: Dims = "weights"
    title: ClassVar[str] = "weights of a model"
    range = Range()

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        why = super().find_fault(name, value, known)
        numbers = torch.as_tensor(value)
        if why is None and not known.is_total and not does_fit(numbers, torch.float32):
            why = (
                f"{name} has the norm {float(numbers.double().norm()):.3g}, whose square is not "
                "finite in torch.float32: training diverged or the message is wrong; lower the "
                "learning rate or check the site"
            )
        return why


@final
@dataclass(frozen=True)
class Statistics(Numbers):
    """Batch-norm statistics of a model, an empty row if it has none."""

    dims: Dims = "statistics"
    title: ClassVar[str] = "batch-norm statistics of a model"
    range = Range()


@final
@dataclass(frozen=True)
class Indices(Numbers):
    """Different positions, from 0 to one below their number."""

    dims: Dims
    title: ClassVar[str] = "positions"
    range = Range(low=0.0, is_whole=True, is_order=True)


@final
@dataclass(frozen=True)
class Features(Numbers):
    """Examples of one site, or a transformation of them, one in a row."""

    dims: Dims
    title: ClassVar[str] = "numbers for each example"
    range = Range()


# -- whole numbers and texts ----------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Whole(Kind):
    """A Python integer from ``low`` to the sum of ``upto``: sizes by name, and numbers.

    >>> Whole(upto=("inputs", 1)).find_fault("size", 5, SenderFacts({"inputs": 3}))
    'size is 5, and it is a whole number of at most 4'
    """

    low: int = 0
    upto: tuple[str | int, ...] = ()

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if type(value) is not int:
            return (
                f"{name} is {value!r:.40}, and it is a whole number{self._describe(sizes)}"
            )
        return None

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        limit = self._limit(known.sizes)
        if not isinstance(value, int) or not self.low <= value <= limit:
            why = self._describe(known.sizes)
            return f"{name} is {value!r:.40}, and it is a whole number{why}"
        return None

    def _limit(self, sizes: Mapping[str, int]) -> int:
        known = [sizes.get(part) if isinstance(part, str) else part for part in self.upto]
        if not known or None in known:
            return WHOLE
        return sum(part or 0 for part in known)

    def _describe(self, sizes: Mapping[str, int]) -> str:
        limit = self._limit(sizes)
        if limit == WHOLE:
            return f", {self.low} or more"
        if self.low == 0:
            return f" of at most {limit}"
        return f" from {self.low} to {limit}"

    def describe(self) -> str:
        return "a whole number"


@final
@dataclass(frozen=True)
class LabelCount(Kind):
    """Number of examples that a site selects, within its label budget (`site.limits`)."""

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if type(value) is not int or not 0 <= value <= WHOLE:
            return f"asks for {value!r:.40} labels; it is a whole number, 0 or more"
        return None

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        return self.find_wrong_form(name, value, {})

    def describe(self) -> str:
        return "the number of examples to select"


@final
@dataclass(frozen=True)
class Text(Kind):
    """A text, one of ``words`` if there are any; ``fix``: advice for another one."""

    words: tuple[str, ...] = ()
    fix: str = ""
    title: str = "a text"

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if not isinstance(value, str):
            return f"{name} is {value!r:.40}, which is not a text"
        return find_unknown_type(name, value)

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        if not self.words or value in self.words:
            return None
        words = " or ".join(map(repr, self.words))
        if self.fix:
            words += f": {self.fix}"
        return f"{name} is {value!r:.40} and not {words}"

    def describe(self) -> str:
        return self.title


SITE_NAME = Text(title="the name of a site")
"""The name of a site of the study, or "" for none."""


@final
@dataclass(frozen=True)
class Fill(Kind):
    """Values for empty cells.  ``is_sent``: the schema has empty cells, and a site needs them."""

    is_sent: bool = True

    @property
    def is_required(self) -> bool:  # type: ignore[override]  # it depends on the instance
        return self.is_sent

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if value is None and not self.is_sent:
            return None
        if not self.is_sent:
            return f"{name} is given, but the agreement permits no empty cells here"
        wrong = Real("cells").find_wrong_form(name, value, sizes)
        if isinstance(value, Tensor) and wrong is None:
            return None
        return (
            f"the site did not receive the imputed values of its {sizes.get('cells', '')} columns; "
            "the coordinator has to start the study again"
        )

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        if value is None:
            return None
        return Real("cells").find_fault(name, value, known)

    def describe(self) -> str:
        return "values for empty cells"


@final
@dataclass(frozen=True)
class Optional(Kind):
    """A value that may be None, and is None unless it ``is_used``."""

    kind: Kind
    is_used: bool = True

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if value is None:
            return None
        if not self.is_used:
            return f"{name} is given, which this study does not use"
        return self.kind.find_wrong_form(name, value, sizes)

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        if value is None:
            return None
        return self.kind.find_fault(name, value, known)

    def describe(self) -> str:
        return f"{self.kind.describe()}, or nothing"
