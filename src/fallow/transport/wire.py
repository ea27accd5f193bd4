"""Serialization of requests. Received data is never executed."""

from __future__ import annotations

import json
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from fallow.core.exchange_key import read_key
from fallow.core.messages import Kind, Masked, Request, Step
from fallow.core.refusal import explain_errors
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Tree, Value
from fallow.storage.packing import UNREADABLE, pack, unpack_received

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEY = 32  # size of a public key in bytes


def pack_request(request: Request) -> bytes:
    """Serialize a request for `unpack_request`."""
    steps = [_write_step(step) for step in request.steps]
    tree = {
        "key": request.key.to_dict(),
        "owner": request.owner,
        "cycle": request.cycle,
        "round": request.round,
        "steps": steps,
    }
    return pack(tree)


def _write_step(step: Step) -> dict[str, object]:
    """Return a step as a tree, with fields for masks in secure aggregation only."""
    fields: dict[str, object] = {
        "kind": step.kind,
        "function": step.function,
        "args": step.args,
        "training_config": None,
    }
    if step.training_config is not None:
        fields["training_config"] = step.training_config.to_dict()
    if step.masked is not None:
        exchange = step.masked.exchange.to_dict()
        fields["masked"] = {**vars(step.masked), "exchange": exchange}
    return fields


# -- parsing: each field is validated before it is used ------------------------------------------


def unpack_request(blob: bytes) -> Request:
    """Parse a request of `pack_request`. Raises ValueError for any other data."""
    tree = unpack_received(blob)
    with explain_errors(
        f"a request of {len(blob)} bytes could not be read: ", of=UNREADABLE
    ):
        steps = tuple(_read_step(fields) for fields in _require(list, tree["steps"]))
        return Request(
            key=read_key(tree["key"]),
            owner=_require(str, tree["owner"]),
            cycle=_require(int, tree["cycle"]),
            round=_require(int, tree["round"]),
            steps=steps,
        )


def _read_step(fields: Tree) -> Step:
    kind = fields["kind"]
    if kind not in get_args(Kind):
        raise ValueError(f"unknown kind of step {kind!r}")
    args = _require(dict, fields["args"])
    training_config = None
    if fields["training_config"] is not None:
        training_config = _read_training_config(fields["training_config"])
    masked = None
    if "masked" in fields:
        masked = _read_masked(fields["masked"])
    return Step(
        kind=kind,
        function=_require(str, fields["function"]),
        args={name: _require(Value, value) for name, value in args.items()},
        training_config=training_config,
        masked=masked,
    )


def _read_masked(fields: Tree) -> Masked:
    keys = _require(dict, fields["keys"])
    for site, key in keys.items():
        if not isinstance(key, Tensor) or key.dtype != torch.uint8 or key.shape != (KEY,):
            raise ValueError(f"the public key of site {site} does not have {KEY} bytes")
    bound = fields["bound"]
    if bound is not None:
        bound = _require(float | int, bound)
    return Masked(
        exchange=read_key(fields["exchange"]),
        attempt=_require(int, fields["attempt"]),
        bound=bound,
        keys=keys,
    )


def _read_training_config(fields: Tree) -> TrainingConfig:
    # rejects unknown fields; the adapter validates the types
    TrainingConfig.from_dict(fields)
    training_config: TrainingConfig = _adapter().validate_json(
        json.dumps(fields), strict=True
    )
    return training_config


@cache
def _adapter() -> TypeAdapter[TrainingConfig]:
    """Return the validator of training configurations, loaded on first use."""
    from pydantic import TypeAdapter

    return TypeAdapter(TrainingConfig)


def _require(kind: type | UnionType, value: object) -> Any:
    """Return the value if it has the required type, where a Boolean is not an integer."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is not {kind}")
    return value
