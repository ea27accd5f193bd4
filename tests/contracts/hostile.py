"""Valid and hostile values of declared fields, and replies whose fields are impossible together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import torch

from fallow.core.composites import (
    Cells,
    Composite,
    Documents,
    ExampleProducts,
    Fields,
    Histograms,
    LabelProducts,
    Losses,
    PatchMoments,
    Products,
)
from fallow.core.values import (
    TEXT,
    Fill,
    Indices,
    Kind,
    LabelCount,
    Model,
    Numbers,
    Optional,
    Real,
    Text,
    Whole,
    as_tuple,
    shape_of,
)
from fallow.deployment.annotator_values import (
    Deadline,
    EndedTasks,
    Hits,
    LabelHits,
    NewTasks,
    Progress,
    Registration,
    SquaredErrors,
)
from fallow.measurements.description import ColumnCounts
from fallow.measurements.evaluation_set import EvaluationCounts
from fallow.measurements.metrics import COUNTS
from fallow.measurements.prediction_sets import NONCONFORMITY

Sizes = Mapping[str, int]
Reply = dict[str, Any]
LARGE = 10**9

# -- single values ---------------------------------------------------------------------


@singledispatch
def valid_value(kind: Kind, sizes: Sizes) -> Any:
    """Return a value that passes every check."""
    raise NotImplementedError(f"no example of {type(kind).__name__}; add one")


@singledispatch
def hostile_values(kind: Kind, sizes: Sizes) -> dict[str, Any]:
    """Return values that no honest site sends, by their faults."""
    raise NotImplementedError(f"no hostile values of {type(kind).__name__}; add some")


@valid_value.register
def _(kind: Numbers, sizes: Sizes) -> Any:
    number = 1.0 if kind.range.is_positive else 0.0
    return torch.full(shape_of(kind.dims, sizes), number, dtype=torch.float64)


@hostile_values.register
def hostile_numbers(kind: Numbers, sizes: Sizes) -> dict[str, Any]:
    rule = kind.range
    shape = shape_of(kind.dims, sizes)
    zeros = torch.zeros(shape, dtype=torch.float64)
    faults: dict[str, Any] = {
        "text": "many",
        "nothing": None,
        "a list": [1.0],
        "a dimension more": zeros[None],
        "of another type": zeros.to(torch.float16),
    }
    if shape:
        faults["a number for a tensor"] = 0.0
    for dim, size in enumerate(shape):
        if as_tuple(kind.dims)[dim] in sizes:
            wide = [*shape[:dim], size + 1, *shape[dim + 1 :]]
            faults[f"longer in dimension {dim}"] = torch.zeros(wide, dtype=torch.float64)
    if not zeros.numel():
        return faults
    faults["NaN"] = zeros + math.nan
    if not rule.is_endless:
        faults["infinite"] = zeros + math.inf
    faults["below"] = _beyond(zeros, rule.low)
    if rule.is_positive:
        faults["zero"] = zeros
    faults["above"] = _beyond(zeros, rule.high)
    if rule.of:
        faults["more than there are"] = zeros + 1e9 * rule.times
    if rule.is_whole:
        faults["more than exact numbers"] = zeros + 2.0**60
    if rule.is_together and rule.of in sizes and zeros.numel() > 1:
        faults["more together than there are"] = zeros + sizes[rule.of]
    if rule.is_whole:
        faults["a fraction"] = zeros + 0.3
    if rule.is_order:
        faults["a position twice"] = zeros
    return faults


def _beyond(zeros: torch.Tensor, limit: float) -> torch.Tensor:
    """Return numbers beyond the sum of a limit over three sites."""
    return zeros + 4 * limit + math.copysign(3, limit if limit else -1.0)


@hostile_values.register
def _(kind: Model, sizes: Sizes) -> dict[str, Any]:
    faults = hostile_numbers(kind, sizes)
    zeros = valid_value(kind, sizes)
    if zeros.numel():
        faults["too large for float32"] = zeros + 5e40
        faults["too large a norm"] = zeros + 1e20
    return faults


@valid_value.register
def _(kind: Indices, sizes: Sizes) -> Any:
    (n,) = shape_of(kind.dims, sizes)
    return torch.arange(n)


@valid_value.register
def _(kind: Whole, sizes: Sizes) -> Any:
    return kind.low


@hostile_values.register
def _(kind: Whole, sizes: Sizes) -> dict[str, Any]:
    limits = [
        sizes.get(part, part) if isinstance(part, str) else part for part in kind.upto
    ]
    above = 2**60
    if limits and all(isinstance(limit, int) for limit in limits):
        above = sum(limits) + 1  # type: ignore[arg-type]
    return {
        "text": "3",
        "nothing": None,
        "a truth value": True,
        "a fraction": kind.low + 0.5,
        "a tensor": torch.zeros(1),
        "below": kind.low - 1,
        "above": above,
        "far above": 2**60,
    }


@valid_value.register
def _(kind: LabelCount, sizes: Sizes) -> Any:
    return 0


@hostile_values.register
def _(kind: LabelCount, sizes: Sizes) -> dict[str, Any]:
    return {"text": "3", "nothing": None, "a fraction": 2.0, "below": -1, "true": True}


@valid_value.register
def _(kind: Text, sizes: Sizes) -> Any:
    return kind.words[0] if kind.words else ""


@hostile_values.register
def _(kind: Text, sizes: Sizes) -> dict[str, Any]:
    faults: dict[str, Any] = {"a number": 3, "nothing": None, "long": (TEXT + 1) * "x"}
    if kind.words:
        faults["another word"] = "another word"
    return faults


@valid_value.register
def _(kind: Fill, sizes: Sizes) -> Any:
    return valid_value(Real("cells"), sizes) if kind.is_sent else None


@hostile_values.register
def _(kind: Fill, sizes: Sizes) -> dict[str, Any]:
    faults = hostile_values(Real("cells"), sizes)
    if not kind.is_sent:
        del faults["nothing"]
    return faults


@valid_value.register
def _(kind: Optional, sizes: Sizes) -> Any:
    return valid_value(kind.kind, sizes) if kind.is_used else None


@hostile_values.register
def _(kind: Optional, sizes: Sizes) -> dict[str, Any]:
    faults = hostile_values(kind.kind, sizes)
    faults.pop("nothing", None)
    if not kind.is_used:
        faults["a value"] = valid_value(kind.kind, sizes)
    return faults


@valid_value.register
def _(kind: Deadline, sizes: Sizes) -> Any:
    return "2026-11-23T10:00:00+00:00"


@hostile_values.register
def _(kind: Deadline, sizes: Sizes) -> dict[str, Any]:
    return {
        "a number": 3,
        "a word": "soon",
        "no day": "2026-02-30T10:00:00+00:00",
        "long": "x" * 5000,
        # no local time in some time zone, so that no page could show it there
        "before all time zones": "0001-01-01T00:00:00+00:00",
        "beyond all time zones": "9999-12-31T23:59:59+00:00",
        "of another time zone": "2026-11-23T10:00:00-23:59",
        "a control character": "2026-11-23\x1b10:00:00+00:00",
    }


# -- replies whose fields are impossible together --------------------------------------


def valid_reply(reply: Composite, sizes: Sizes) -> Reply:
    """Return a reply that passes every check."""
    return {name: valid_value(kind, sizes) for name, kind in reply.fields(sizes).items()}


def hostile_replies(reply: Composite, sizes: Sizes) -> dict[str, Reply]:
    """Return replies whose fields are impossible together, by their faults."""
    honest = valid_reply(reply, sizes)
    changes = change_reply(reply, honest, sizes)
    return {fault: {**honest, **change} for fault, change in changes.items()}


@singledispatch
def change_reply(reply: Composite, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    """Return changes of a valid reply after which its fields are impossible together."""
    raise NotImplementedError(f"no hostile replies of {type(reply).__name__}; add some")


@change_reply.register
def _(reply: Fields, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {}


@change_reply.register
def _(reply: Products, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "negative products": {"products": valid["products"] - LARGE},
        "products with answers alone": {"cross": valid["cross"] + LARGE},
        "features without products": {"features": valid["features"] + LARGE},
        "weight without rows": {"n": 3.0},
    }


@change_reply.register
def _(reply: LabelProducts, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "negative products": {"products": valid["products"] - LARGE},
        "products with answers alone": {"cross": valid["cross"] + LARGE},
        "features without products": {"features": valid["features"] + LARGE},
        "weight without rows": {"n": valid["n"] + 3.0},
    }


@change_reply.register
def _(reply: Histograms, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    first = torch.zeros(valid["gradients"].shape)
    first[..., :1, 0] = LARGE
    changes = {"more hessians than labels": {"hessians": valid["hessians"] + LARGE}}
    if first.shape[-2] > 1:
        changes["gradients of one column"] = {"gradients": valid["gradients"] + first}
    return changes


@change_reply.register
def _(reply: ExampleProducts, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "negative products": {"products": valid["products"] - LARGE},
        "features without products": {"features": valid["features"] + LARGE},
    }


@change_reply.register
def _(reply: Losses, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    if "right" not in valid:
        return {}
    return {"more right than rows": {"right": valid["right"] + 1e12}}


@change_reply.register
def _(reply: PatchMoments, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "sums without rows": {"patches": valid["patches"] + 30},
        "longer than rows are": {"moments": valid["moments"] + 9},
    }


@change_reply.register
def _(reply: Documents, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {"more texts than rows": {"documents": valid["documents"] + 2}}


@change_reply.register
def _(reply: Cells, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "more cells than rows": {"observed": valid["observed"] + 2},
        "a sum of no cells": {"columns": valid["columns"] + 3},
    }


@change_reply.register
def _(reply: EvaluationCounts, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "more drawn than labels": {"drawn": 1e9},
        "more left than rows": {"left": 1e9},
        "doubt without rows": {"doubt": 9.0},
        "more wrong than selected": {"chosen": 2.0, "wrong": 3.0},
    }


@change_reply.register
def _(reply: ColumnCounts, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    faults: dict[str, Reply] = {}
    for name, cells in (("number_counts", reply.cells), ("level_counts", 2)):
        if valid[name].numel() and cells > 1:
            many = valid[name] + 2 * float(sizes.get("rows", LARGE))
            faults[f"more examples of {name} than rows"] = {name: many}
    return faults


@change_reply.register
def _(reply: Registration, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {"more labels than rows": {"labeled": 2}}


@change_reply.register
def _(reply: NewTasks, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {"more than there are rows": {"asked": LARGE}}


@change_reply.register
def _(reply: EndedTasks, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "more answers than tasks": {"answered": 1},
        "more tasks than rows": {"asked": LARGE},
        "more labels than it was asked for": {"validation": sizes.get("rows", LARGE)},
        "more rows than registered": {"pool": LARGE},
    } | _make_unequal(reply)


def _make_unequal(reply: EndedTasks) -> dict[str, Reply]:
    """Return changes to counts about annotators of which a part is larger than the whole."""
    changes: dict[str, Reply] = {}
    if reply.has_predictions:
        for name in ("blind", "chosen", "again"):
            changes[f"more equal labels than {name} ones"] = {f"{name}_agreed": 1}
    if reply.has_none:
        changes["more examples that no class fits than answers"] = {"none_of_these": 1}
    return changes


@change_reply.register
def _(reply: Progress, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "more answers than tasks": {"open": 1},
        "more tasks than rows": {"asked": LARGE},
    }


@change_reply.register
def _(reply: LabelHits, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return {
        "more right than known answers": {"label_hits": valid["label_rows"] + 1},
        "more answers than rows": {"label_rows": valid["label_rows"] + valid["rows"] + 1},
    }


@change_reply.register
def _(reply: Hits, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    hits = torch.zeros_like(valid["class_hits"])
    hits[0] = 9.0
    faults: dict[str, Reply] = {
        "more hits than rows": {"hits": 9.0},
        "more hits than rows, also by class": {"hits": 9.0, "class_hits": hits},
        "more hits than rows of a class": {"class_hits": valid["class_rows"] + 9},
        "more rows by class than in all": {"class_rows": valid["class_rows"] + 9},
    }
    return faults | add_to_sums(valid)


@change_reply.register
def _(reply: SquaredErrors, valid: Reply, sizes: Sizes) -> dict[str, Reply]:
    return add_to_sums(valid)


def add_to_sums(valid: Reply) -> dict[str, Reply]:
    """Return changes to more examples in a histogram of a measurement than test examples."""
    return {
        f"more examples in {name} than rows": {name: valid[name] + 9}
        for name in (COUNTS, NONCONFORMITY)
        if name in valid
    }
