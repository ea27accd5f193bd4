"""Test packing and unpacking of messages, and that all other bytes raise the same error."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from fallow.core.messages import Masked, Request, Step
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.storage.packing import pack, unpack
from fallow.transport.wire import pack_request, unpack_request
from tests.each import each_of
from tests.keys import key_of

TREE: dict[str, Any] = {
    "w": torch.arange(6.0).view(2, 3),
    "rows": torch.tensor([3, 1]),
    "none": torch.zeros(0, 4, dtype=torch.float64),
    "scalar": torch.tensor(True),
    "nested": {"list": [1, 2.5, None, "x", False, torch.ones(1)], "empty": {}},
    "#": "a key that means something in the format",
}
CONFIG = TrainingConfig(
    (TrainingStage(1, "head"), TrainingStage(2, "body")),
    8,
    Optimizer("adam", 0.01, betas=(0.5, 0.9), persist=True),
    Schedule((3, 5), 0.2, "round"),
    stop_at=0.9,
    augment=("flip", "crop2"),
)
REQUEST = Request(
    key_of("3/query/0"),
    "query",
    3,
    1,
    (
        Step("fit", "local", {"w": torch.randn(4, generator=stream(0, "w"))}, CONFIG),
        Step("keep", "select", {"n": 4, "mean": None, "low": torch.tensor([True])}),
    ),
)
SOUND = pack_request(REQUEST)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def test_a_tree_comes_back_as_it_was() -> None:
    assert same(unpack(pack(TREE)), TREE)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, 1e-308, 2**62, "", "é\x00\n", [], {}]
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert same(unpack(pack({"value": value})), {"value": value})


def test_not_a_number_comes_back_as_that() -> None:
    assert math.isnan(unpack(pack({"value": math.nan}))["value"])


def test_a_tensor_in_any_layout_is_sent_by_its_values() -> None:
    image = torch.randn(2, 3, 4, 4, generator=stream(0, "image"))
    for odd in (
        image.contiguous(memory_format=torch.channels_last),
        image.mT,
        image[:, :, ::2],
    ):
        assert torch.equal(unpack(pack({"x": odd}))["x"], odd)
    row = image[0, 0, 0].requires_grad_()
    assert torch.equal(unpack(pack({"a": row, "b": row}))["b"], row.detach())


def test_a_message_shares_nothing_with_its_sender() -> None:
    w = torch.zeros(3)
    blob = pack({"w": w})
    unpack(blob)["w"].add_(1)
    w.add_(2)
    assert unpack(blob)["w"].tolist() == [0, 0, 0]


def test_a_request_comes_back_as_it_was() -> None:
    back = unpack_request(SOUND)
    assert replace(back, steps=()) == replace(REQUEST, steps=())
    for ours, theirs in zip(back.steps, REQUEST.steps, strict=True):
        assert (ours.kind, ours.function, ours.training_config) == (
            theirs.kind,
            theirs.function,
            theirs.training_config,
        )
        assert same(ours.args, theirs.args)


@pytest.mark.parametrize("bound", [None, 2, 0.5])
def test_a_masked_step_comes_back_with_its_keys(bound: float | None) -> None:
    keys = {site: torch.arange(32, dtype=torch.uint8) + i for i, site in enumerate("abc")}
    details = Masked(key_of("0/query/0"), 1, bound, keys)
    step = Step("sum", "v", {"n": 1}, masked=details)
    (back,) = unpack_request(
        pack_request(Request(key_of("0/query/3"), "query", 0, 0, (step,)))
    ).steps
    assert back.masked is not None
    assert replace(back.masked, keys={}) == replace(details, keys={})
    assert same(dict(back.masked.keys), keys)


def test_a_step_without_masks_takes_no_room_for_them() -> None:
    assert b"masked" not in SOUND


# -- malformed messages --------------------------------------------------------------------


def list_beginnings(n: int) -> list[bytes]:
    """Return ``n`` prefixes of a valid message."""
    return [SOUND[: len(SOUND) * k // n] for k in range(n)]


def noise(n: int) -> list[bytes]:
    """Return ``n`` random byte strings of length up to 300."""
    draw = stream(0, "noise")
    sizes = torch.randint(0, 300, (n,), generator=draw).tolist()
    return [bytes(torch.randint(0, 256, (k,), generator=draw).tolist()) for k in sizes]


def list_damaged(n: int) -> list[bytes]:
    """Return ``n`` valid messages with a few bytes of the header replaced."""
    draw = stream(0, "holes")
    damaged = []
    for _ in range(n):
        blob = bytearray(SOUND)
        for at in torch.randint(0, 300, (6,), generator=draw).tolist():
            blob[at] = int(torch.randint(0, 256, (1,), generator=draw))
        damaged.append(bytes(blob))
    return damaged


def tree(node: Any, **tensors: Tensor) -> bytes:
    """Return a valid file that contains any tree."""
    return save(tensors, {"tree": node if isinstance(node, str) else json.dumps(node)})


def with_step(**change: Any) -> bytes:
    step = {"kind": "each", "function": "v", "args": {}, "training_config": None, **change}
    return pack({"key": "k", "owner": "query", "cycle": 0, "round": 0, "steps": [step]})


MASKED = {"exchange": "k", "attempt": 0, "bound": None, "keys": {}}
NODES: list[Any] = [None, 5, "x", "[", [], {}, {"x": 1}, {"#": "0"}, {"#": []}]
NO_REQUESTS: list[Any] = [None, 5, [], {}, {"key": "k"}, torch.zeros(2)]
WRONG: list[bytes] = [
    *(tree(node) for node in NODES),
    *(tree({kind: 5}) for kind in "dl"),
    tree({"d": {"a": 5}}),
    tree({"l": [{"#": "1"}]}, **{"0": torch.zeros(1)}),
    tree('{"l":[' * 20_000),
    tree('{"l":[' * 20_000 + "]}" * 20_000),
    tree('{"v": 1' + "0" * 5_000 + "}"),
    save({}),
    save({}, {"tree": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")}),
    (8).to_bytes(8, "little") + b"[1,2,3] ",
    (2**63).to_bytes(8, "little") + b"{}",
    *(pack(thing) for thing in NO_REQUESTS),
    with_step(kind="run"),
    with_step(kind=5),
    with_step(function=None),
    with_step(args=[1]),
    with_step(args=None),
    with_step(masked=5),
    with_step(masked={}),
    with_step(masked={**MASKED, "attempt": "0"}),
    with_step(masked={**MASKED, "bound": "1"}),
    with_step(masked={**MASKED, "bound": -1.0}),
    with_step(masked={**MASKED, "keys": {"a": 1}}),
    with_step(masked={**MASKED, "keys": {"a": torch.zeros(31, dtype=torch.uint8)}}),
    with_step(masked={**MASKED, "keys": {"a": torch.zeros(32)}}),
    with_step(training_config=5),
    with_step(training_config={"batch_size": 3}),
    with_step(training_config={**CONFIG.to_dict(), "batch_size": 0}),
    with_step(training_config={**CONFIG.to_dict(), "batch_size": "many"}),
    with_step(training_config={**CONFIG.to_dict(), "stages": [{"epochs": -1}]}),
    with_step(training_config={**CONFIG.to_dict(), "optimizer": {"lr": 1, "betas": 3}}),
    with_step(training_config={**CONFIG.to_dict(), "extra": 1}),
    pack({"key": "k", "owner": "query", "cycle": 0, "round": 0, "steps": 5}),
    pack({"key": 3, "owner": "query", "cycle": 0, "round": 0, "steps": []}),
    pack({"key": "k", "owner": "query", "cycle": "0", "round": 0, "steps": []}),
    pack({"key": "k", "owner": "query", "cycle": 0, "round": None, "steps": []}),
    pack({"key": "k", "owner": torch.zeros(1), "cycle": 0, "round": 0, "steps": []}),
]


@each_of("blob", [*list_beginnings(100), *noise(100), *WRONG])
def test_a_malformed_request_is_a_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError, match="could not be read"):
        unpack_request(blob)


@each_of("blob", list_damaged(100))
def test_a_damaged_request_is_a_value_error_or_still_a_request(blob: bytes) -> None:
    try:
        assert isinstance(unpack_request(blob), Request)
    except ValueError as error:
        assert "could not be read" in str(error)


def test_a_tensor_without_numbers_is_no_longer_than_any_of_ours() -> None:
    """It costs nothing to send, but one row of its length could fill the memory."""
    usual = {"x": torch.zeros(0, 784)}
    assert unpack(pack(usual))["x"].shape == (0, 784)
    with pytest.raises(ValueError, match=r"is empty and has the shape \(0, 1000000000\)"):
        unpack(pack({"x": torch.zeros(0, 10**9)}))
