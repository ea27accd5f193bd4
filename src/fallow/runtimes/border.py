"""Border control: what arrives from outside is looked at before anything is done with it.

`Border` is the coordinator's, for answers of sites; `check_order` is a site's, for orders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from fallow.core.ask import KEYS, Request, Step
from fallow.core.plan import Plan
from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId
from fallow.privacy.secure_sum import CHECK
from fallow.runtimes.site import Parts
from fallow.runtimes.wire import KEY

FLOATS = (torch.float32, torch.float64)
KNOWN = (*FLOATS, torch.int64, torch.uint8, torch.bool)
COUNTS = frozenset(
    {
        "asked",
        "answered",
        "conflicts",
        "count",
        "declined",
        "held",
        "hits",
        "labelled",
        "n",
        "open",
        "pool",
        "reachable",
        "rows",
        "test",
    }
)
"""Fields that count rows of a site: where one is a single number it is 0 or more, and no more
than the site has."""
STANDING = ("labelled", "held", "pool")
PEOPLE = {
    "hello": ("rows", "test", *STANDING),
    "ask": ("asked",),
    "close": ("asked", "answered", "declined", *STANDING),
}
"""Whole numbers that verbs of people answer with."""
HITS = ("rows", "hits", "class_rows", "class_hits")
FIELDS, TEXT, WHOLE = (
    1000,
    10_000,
    2**53,
)  # of an answer: fields, letters in a text, whole numbers
STEPS, TURNS, EPOCHS = 100, 10**6, 10**5  # of an order
LARGEST, SPARE = (
    2**31,
    2**26,
)  # bytes: of a message over Flower; of what is neither model nor row


@final
@dataclass
class Border:
    """What the coordinator takes from sites.

    rows: how many rows each site has registered, test rows too; a site that is not there has not
    said so yet.  sizes: how long a model's ``w`` and ``stats`` are, of so many ``sites``; width:
    numbers in a row.
    """

    rows: dict[SiteId, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    sites: int = 1
    width: int = 0
    largest: int = LARGEST

    def most(self, site: SiteId) -> int:
        """Bytes of a message that a site may have reason to send: two models of float64 for every
        site (letters), its rows twice (masked ones), and 64 MiB for all else."""
        if not self.sizes:
            return self.largest
        numbers = self.sites * sum(self.sizes.values()) + self.width * self.rows.get(
            site, 0
        )
        return min(self.largest, SPARE + 16 * numbers)

    def weigh(self, site: SiteId, blob: bytes) -> None:
        """Raise ValueError for a message that is too large to be opened."""
        if len(blob) > self.most(site):
            raise Refusal(
                f"its message has {len(blob)} bytes, above the {self.most(site)} that follow from "
                "the sizes of the model and of its data"
            )

    def check(self, site: SiteId, request: Request, answer: Mapping[str, Any]) -> Answer:
        """The answer; ValueError, naming the field, where it cannot be one to the request."""
        step = request.steps[-1]
        if step.kind in ("fit", "keep"):
            counts = ("count",) if step.kind == "keep" else ()
            _names(answer, set(counts))
            _check_whole(answer, counts)
        if step.masked:
            return _masked(step, answer)
        if step.kind == "sum":
            for name, value in answer.items():
                _check_addend(name, value, request.bound)
        elif request.owner == "people" and step.kind == "each":
            _check_people(step, answer)
        return self.plain(site, answer, FIELDS if step.kind == "keep" else 0)

    def progress(self, site: SiteId, answer: Mapping[str, Any]) -> Answer:
        """The answer, if it says how labelling goes."""
        _check_whole(answer, tuple(answer))
        return self.plain(site, answer)

    def plain(self, site: SiteId, answer: Mapping[str, Any], least: int = 0) -> Answer:
        """The answer, where nothing more is known of it; counts may be as large as ``least``."""
        for name, value in few(answer).items():
            _check_kind(name, value)
            if not is_finite(value):
                raise Refusal(
                    f"{name} is NaN or infinite: its training diverged or its data is damaged; "
                    "lower the learning rate, standardise the features or check the site's rows"
                )
            self._check_size(name, value)
            if name in COUNTS:
                self._check_count(name, value, max(self.rows.get(site, WHOLE), least))
        return dict(answer)

    def _check_size(self, name: str, value: Any) -> None:
        size = self.sizes.get(name)
        if size is not None and isinstance(value, Tensor) and value.shape != (size,):
            raise Refusal(
                f"{name} has the shape {tuple(value.shape)} and not {(size,)}: all sites must use "
                "one model"
            )

    def _check_count(self, name: str, value: Any, most: int) -> None:
        if isinstance(value, str | bool) or (isinstance(value, Tensor) and value.ndim):
            return  # of another verb, which means something else by the name
        if value is None or not 0 <= float(value) <= most:
            raise Refusal(f"{name} is {value!r:.40}, and the site has {most} rows")


def is_finite(value: Any) -> bool:
    """Whether a value has neither NaN nor infinite numbers."""
    if isinstance(value, Tensor):
        return bool(value.isfinite().all())
    return not isinstance(value, float) or math.isfinite(value)


def _check_kind(name: str, value: Any) -> None:
    """Raise unless the value is a tensor of a known kind or a plain one of moderate size."""
    if isinstance(value, Tensor):
        if value.dtype not in KNOWN:
            raise Refusal(f"{name} is of {value.dtype}, which is none of {KNOWN}")
    elif isinstance(value, str):
        if len(value) > TEXT:
            raise Refusal(f"{name} has {len(value)} letters, above the limit {TEXT}")
    elif not isinstance(value, bool | float | int | None):
        raise Refusal(
            f"{name} is {value!r:.40}, which is neither a tensor nor a plain value"
        )
    elif type(value) is int and abs(value) > WHOLE:
        raise Refusal(f"{name} is a whole number of {value.bit_length()} bits, above 53")


def few(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer, which must not have too many fields."""
    if len(answer) > FIELDS:
        raise Refusal(f"it has {len(answer)} fields, above the limit {FIELDS}")
    return answer


def _check_addend(name: str, value: Any, bound: float | None = None) -> None:
    if isinstance(value, Tensor) and value.dtype not in FLOATS:
        raise Refusal(f"{name} is of {value.dtype}, and an addend is float32 or float64")
    if not isinstance(value, Tensor | float | int):
        raise Refusal(f"{name} is {value!r:.40}, and only numbers can be added up")
    if bound is not None and bool((torch.as_tensor(value).abs() > bound).any()):
        raise Refusal(f"{name} is beyond the bound {bound:g} of an addend")


def _check_people(step: Step, answer: Mapping[str, Any]) -> None:
    """Raise unless the answer has what a program reads in it: once an answer counts, the run can
    never go on without it."""
    _check_whole(answer, PEOPLE.get(step.verb, ()))
    allowed = step.args.get("allowed")
    if isinstance(allowed, int) and answer["asked"] > allowed:
        raise Refusal(f"asked is {answer['asked']}, and {allowed} questions are allowed")
    if step.verb == "score":
        names = {"rows", "squares"} if "squares" in answer else set(HITS)
        _names(answer, names)
        for name in names:
            _check_addend(name, answer[name])


def _check_whole(answer: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if type(answer.get(name)) is not int:
            raise Refusal(f"{name} is {answer.get(name)!r:.40}, which is no whole number")


def _masked(step: Step, answer: Mapping[str, Any]) -> Answer:
    """A public key, or a masked part: that is uniform over 64 bits, so there is no more to see."""
    if step.kind == "each":
        _names(answer, {"key"})
        key = answer["key"]
        if not (
            isinstance(key, Tensor) and key.dtype == torch.uint8 and key.shape == (KEY,)
        ):
            raise Refusal(f"key is not a public key of {KEY} bytes")
    elif step.kind == "sum":
        for name, value in few(answer).items():
            if not isinstance(value, Tensor) or value.dtype != torch.int64:
                raise Refusal(f"{name} is not masked: a masked part is int64")
        if CHECK not in answer or answer[CHECK].ndim:
            raise Refusal(f"{CHECK} is not the one number that shows whether masks cancel")
    return dict(answer)


def _names(answer: Mapping[str, Any], expected: set[str]) -> None:
    if answer.keys() != expected:
        raise Refusal(
            f"it answers with {sorted(answer)[:20]} and was asked for "
            f"{sorted(expected) or 'nothing'}"
        )


# -- at a site ----------------------------------------------------------------------------------


def check_order(request: Request, parts: Parts) -> None:
    """Raise ValueError, in a sentence, for a request that no coordinator of this version makes.

    A site runs verbs of the agreed methods alone, each asked as its contract says, trains at most
    so many epochs, and takes models of its own size with finite numbers.
    """
    if not 0 < len(request.steps) <= STEPS:
        raise Refusal(f"the order {request.key} has {len(request.steps)} steps")
    if not (-1 <= request.cycle < TURNS and 0 <= request.round < TURNS):
        raise Refusal(
            f"the order {request.key} is of cycle {request.cycle}, round {request.round}"
        )
    if request.owner not in parts.asked:
        raise Refusal(
            f"the order {request.key} is of {request.owner!r}; this study has {sorted(parts.asked)}"
        )
    for at, step in enumerate(request.steps, 1):
        if step.kind != "fit":
            _check_asked(request, step, parts, is_last=at == len(request.steps))
        _check_plan(request.key, step.plan)
        _check_args(request.key, step, {"w": parts.layout.d, "stats": stats_of(parts)})


def stats_of(parts: Parts) -> int:
    """How long a model's ``stats`` are."""
    return sum(parts.layout.buffer_sizes)


def _check_asked(request: Request, step: Step, parts: Parts, is_last: bool) -> None:
    """Raise unless the step is asked as its method asks it, or for a key for a masked sum."""
    asks = f"the order {request.key} asks for {step.verb!r} by {step.kind}"
    if not is_last:
        raise Refusal(f"{asks}, which is not its last step")
    if step.verb == KEYS and step.kind == "each" and step.masked is not None:
        return
    if why := parts.asked[request.owner].contract.refusal(step.verb, step.kind):
        raise Refusal(f"{asks}: {why}")


def _check_plan(key: str, plan: Plan | None) -> None:
    if plan is None:
        return
    if plan.epochs > EPOCHS or len(plan.segments) > STEPS:
        raise Refusal(
            f"the order {key} is to train {plan.epochs} epochs in {len(plan.segments)} segments; a "
            f"site trains at most {EPOCHS} in {STEPS}"
        )
    numbers = [plan.optimiser.lr, plan.optimiser.weight_decay, plan.schedule.factor]
    if not all(map(math.isfinite, numbers)):
        raise Refusal(f"the order {key} is to train with a rate that is NaN or infinite")


def _check_args(key: str, step: Step, sizes: Mapping[str, int]) -> None:
    if len(step.args) > FIELDS:
        raise Refusal(f"the order {key} has {len(step.args)} fields")
    for name, value in step.args.items():
        try:
            _check_kind(name, value)
        except ValueError as error:
            raise Refusal(f"the order {key}: {error}") from error
        if name in sizes and (
            not isinstance(value, Tensor) or value.shape != (sizes[name],)
        ):
            raise Refusal(
                f"the order {key} brings {name} of another model: its shape is "
                f"{tuple(getattr(value, 'shape', ()))} and here it is {(sizes[name],)}"
            )
        if isinstance(value, Tensor) and not is_finite(value):
            raise Refusal(f"the order {key} brings {name} with NaN or infinite numbers")
