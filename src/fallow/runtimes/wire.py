"""Messages as bytes: safetensors with a JSON header.  Nothing that arrives is ever executed."""

from __future__ import annotations

import json
from typing import Any, get_args

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fallow.core.ask import Kind, Masked, Request, Step
from fallow.core.plan import Plan
from fallow.core.types import Value

UNREADABLE = (
    SafetensorError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
)
PLAN = TypeAdapter(Plan)
KEY = 32  # bytes of a public key


def pack(tree: Any) -> bytes:
    """A nested structure of dicts, lists, tensors and plain values as bytes.  A tensor that stands
    in several places is written once, and is one tensor again when it is read.

    >>> import torch
    >>> unpack(pack({"a": torch.arange(3), "b": [1, None, "x"]}))
    {'a': tensor([0, 1, 2]), 'b': [1, None, 'x']}
    """
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, Tensor):
            if id(node) not in names:
                names[id(node)] = name = str(len(tensors))
                tensors[name] = node.detach().contiguous().clone()
            return {"#": names[id(node)]}
        if isinstance(node, dict):
            return {"d": {str(k): walk(v) for k, v in node.items()}}
        if isinstance(node, (list, tuple)):
            return {"l": [walk(v) for v in node]}
        return {"v": node}

    return save(tensors, {"tree": json.dumps(walk(tree), allow_nan=True)})


def unpack(blob: bytes) -> Any:
    """What `pack` packed.  Raises ValueError for anything else."""
    try:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        tree, tensors = json.loads(header["__metadata__"]["tree"]), load(blob)
        return _rebuild(tree, tensors)
    except UNREADABLE as error:
        raise ValueError(
            f"a message of {len(blob)} bytes could not be read: {error}"
        ) from error


def _rebuild(node: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    if "#" in node:
        return tensors[node["#"]]
    if "d" in node:
        return {k: _rebuild(v, tensors) for k, v in node["d"].items()}
    if "l" in node:
        return [_rebuild(v, tensors) for v in node["l"]]
    return node["v"]


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
