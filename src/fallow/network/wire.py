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
        steps = tuple(_read_step(fields) for fields in _require(list, tree["steps"]))
        key, owner = _require(str, tree["key"]), _require(str, tree["owner"])
        return Request(
            key, owner, _require(int, tree["cycle"]), _require(int, tree["round"]), steps
        )
    except UNREADABLE as error:
        raise ValueError(
            f"a request of {len(blob)} bytes could not be read: {error}"
        ) from error


def _read_step(fields: dict[str, Any]) -> Step:
    kind, plan = fields["kind"], fields["plan"]
    if kind not in get_args(Kind):
        raise ValueError(f"a step of kind {kind!r} is unknown")
    args = {
        name: _require(Value, value)
        for name, value in _require(dict, fields["args"]).items()
    }
    masked = _read_masked(fields["masked"]) if "masked" in fields else None
    return Step(
        kind,
        _require(str, fields["verb"]),
        args,
        None if plan is None else _read_plan(plan),
        masked,
    )


def _read_masked(fields: dict[str, Any]) -> Masked:
    bound, keys = fields["bound"], _require(dict, fields["keys"])
    for site, key in keys.items():
        if not isinstance(key, Tensor) or key.dtype != torch.uint8 or key.shape != (KEY,):
            raise ValueError(f"the public key of site {site} is not {KEY} bytes")
    exchange, attempt = _require(str, fields["exchange"]), _require(int, fields["attempt"])
    return Masked(
        exchange, attempt, None if bound is None else _require(float | int, bound), keys
    )


def _read_plan(fields: dict[str, Any]) -> Plan:
    Plan.from_dict(fields)  # refuses unknown fields; the adapter checks the kind of each
    plan: Plan = PLAN.validate_json(json.dumps(fields), strict=True)
    return plan


def _require(kind: Any, value: Any) -> Any:
    """The value, which must be of the kind."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is not {kind}")
    return value
