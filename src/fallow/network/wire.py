"""Requests as bytes.  Nothing that arrives is ever executed."""

from __future__ import annotations

import json
from typing import Any, get_args

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fallow.core.messages import Kind, Masked, Request, Step
from fallow.core.plan import Plan
from fallow.core.types import Value
from fallow.storage.packing import UNREADABLE, pack, unpack

PLAN = TypeAdapter(Plan)
KEY = 32  # bytes of a public key


def pack_request(request: Request) -> bytes:
    steps = [
        {
            "kind": s.kind,
            "verb": s.verb,
            "args": s.args,
            "plan": s.plan.to_dict() if s.plan else None,
            **({"masked": dict(vars(s.masked))} if s.masked else {}),
        }
        for s in request.steps
    ]
    head = {"key": request.key, "owner": request.owner, "cycle": request.cycle}
    return pack({**head, "round": request.round, "steps": steps})


def unpack_request(blob: bytes) -> Request:
    """The request that `pack_request` packed.  Raises ValueError for anything else."""
    tree = unpack(blob)
    try:
        steps = tuple(_step(fields) for fields in _as(list, tree["steps"]))
        key, owner = _as(str, tree["key"]), _as(str, tree["owner"])
        return Request(key, owner, _as(int, tree["cycle"]), _as(int, tree["round"]), steps)
    except UNREADABLE as error:
        raise ValueError(
            f"a request of {len(blob)} bytes could not be read: {error}"
        ) from error


def _step(fields: dict[str, Any]) -> Step:
    kind, plan = fields["kind"], fields["plan"]
    if kind not in get_args(Kind):
        raise ValueError(f"a step of kind {kind!r} is unknown")
    args = {name: _as(Value, value) for name, value in _as(dict, fields["args"]).items()}
    masked = _masked(fields["masked"]) if "masked" in fields else None
    return Step(
        kind, _as(str, fields["verb"]), args, None if plan is None else _plan(plan), masked
    )


def _masked(fields: dict[str, Any]) -> Masked:
    bound, keys = fields["bound"], _as(dict, fields["keys"])
    for site, key in keys.items():
        if not isinstance(key, Tensor) or key.dtype != torch.uint8 or key.shape != (KEY,):
            raise ValueError(f"the public key of site {site} is not {KEY} bytes")
    exchange, attempt = _as(str, fields["exchange"]), _as(int, fields["attempt"])
    return Masked(
        exchange, attempt, None if bound is None else _as(float | int, bound), keys
    )


def _plan(fields: dict[str, Any]) -> Plan:
    Plan.from_dict(fields)  # refuses unknown fields; the adapter checks the kind of each
    plan: Plan = PLAN.validate_json(json.dumps(fields), strict=True)
    return plan


def _as(kind: Any, value: Any) -> Any:
    """The value, which must be of the kind."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is not {kind}")
    return value
