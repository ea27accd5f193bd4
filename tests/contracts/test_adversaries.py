"""Hostile values of every declared field and argument, generated from the declarations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from fallow import encoders, strategies, training
from fallow.core.build import names
from fallow.core.client import (
    Declaration,
    declared,
    find_wrong_argument,
    list_relays,
)
from fallow.core.composites import Fields
from fallow.core.messages import Request, Step
from fallow.core.missing import BUCKETS, Missing
from fallow.core.refusal import Refusal
from fallow.core.values import LARGEST_WIDE, Numbers, Optional, SenderFacts
from fallow.deployment.agreement import Bounds
from fallow.deployment.annotators import Annotators
from fallow.deployment.coordinator.plausible_sums import PlausibleSums
from fallow.deployment.coordinator.weights import SiteWeights, find_longest
from fallow.encoders.encoding import Encoding, Imputation
from fallow.engine.column_counts import DescribedColumn
from fallow.measurements.description import Describe
from fallow.measurements.evaluation_set import EvaluationSet
from fallow.measurements.metrics import Metrics
from fallow.measurements.prediction_sets import PredictionSets
from fallow.privacy.encryption import encrypt_for
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.secure_sum import SecureSum
from fallow.storage.packing import pack
from fallow.strategies import AHFAL, FALE, Entropy, Pivotal
from fallow.training import ClosedForm, FedAvg, personal
from fallow.training.retention import Retention
from fallow.training.scaling import Scaling
from fallow.training.tuning import Tuning
from fallow.transport.checks import ResponseCheck
from fallow.transport.envelope import Instruction
from fallow.transport.peer_messages import (
    Delivery,
    _name_peer_message,
    bytes_to_tensor,
    delivery_body,
    read_delivery,
)
from tests.contracts.hostile import (
    hostile_replies,
    hostile_values,
    valid_reply,
    valid_value,
)
from tests.keys import key_of

SIZES = {
    **{"classes": 3, "outputs": 3, "features": 4, "inputs": 5, "cells": 5, "sites": 3},
    **{"weights": 15, "statistics": 2, "body": 8, "rows": 20, "labels": 9},
}
SITES = ("a", "b", "c")
LABEL = DescribedColumn("label", ("no", "yes"))
METHODS: list[Any] = []
for package in (strategies, training, personal):
    METHODS += [cls() for _, cls in sorted(names(package).items())]
METHODS += [
    *(AHFAL(tau_scale="count"), FALE(mode="fedsvd"), FALE(mode="tsqr", allot="site")),
    *(Pivotal(allot="site"), Entropy(model="average"), FedAvg(bn="local")),
    *(ClosedForm(balance="class", passes=2, local_head="own"), ClosedForm(reveal="head")),
    *(ClosedForm(delta=1e-5), ClosedForm(unlabeled="off")),
    ClosedForm(balance="class", label_ranks=True),
    *(Scaling(True, True), Scaling(True, True, of_cells=True)),
    *(
        Imputation(Missing()),
        Retention(FedAvg()),
        EvaluationSet(),
        EvaluationSet(secure_sum=True),
    ),
    *(encoders.Convolution(), encoders.Fourier(), encoders.Tabular()),
    *(encoders.EfficientNetLite0(), encoders.HashedText(columns=2)),
    *(
        Encoding(encoders.Convolution(), (1, 8, 8)),
        Encoding(encoders.Fourier(), (5,), True),
    ),
    Encoding(encoders.HashedText(), (BUCKETS + 2,)),
    Tuning(encoders.Fourier(gamma="auto"), (5,)),
    *(Describe(label=LABEL), Describe(label=LABEL, secure_sum=True)),
    *(Annotators(schema="digest"), Annotators(secure_sum=True), Annotators(classes=False)),
    *(
        Annotators(schema="digest", measurements=(Metrics(("auroc",)),)),
        Annotators(schema="digest", n_labels=2),
        Annotators(classes=False, measurements=(Metrics(("mae",), True),)),
        Annotators(schema="digest", sends_agreement=True),
        Annotators(schema="digest", sends_predictions=True),
        Annotators(schema="digest", sends_none=True),
    ),
    *(
        Annotators(measurements=(PredictionSets(0.9),)),
        Annotators(classes=False, measurements=(PredictionSets(0.9, True),)),
    ),
]


def list_functions() -> dict[str, Declaration]:
    """Return declarations by class, name and operation, numbered if several."""
    functions: dict[str, Declaration] = {}
    for method in METHODS:
        for item in declared(method).values():
            name = f"{type(method).__name__}.{item.name}:{item.operation}"
            numbered = [known for key, known in functions.items() if key.startswith(name)]
            if item not in numbered:
                suffix = f":{len(numbered) + 1}" if numbered else ""
                functions[f"{name}{suffix}"] = item
    return functions


FUNCTIONS = list_functions()
REPLIES = {
    name: item
    for name, item in FUNCTIONS.items()
    if item.returns is not None and item.operation in ("sum", "each")
}


def make_check(item: Declaration) -> ResponseCheck:
    """Return a coordinator of three sites with 20 examples and 9 labels each."""
    rows = dict.fromkeys(SITES, 20)
    labels = dict.fromkeys(SITES, 9)
    declarations = {"query": {item.name: item}}
    return ResponseCheck(
        rows,
        labels=labels,
        declared=declarations,
        dims=SIZES,
        sites=len(SITES),
        longest=partial(find_longest, bounds=Bounds()),
    )


def ask_for(item: Declaration) -> Request:
    kind: Any = item.operation
    return Request(key_of("0/query/0"), "query", 0, 0, (Step(kind, item.name, {}),))


def list_hostile(item: Declaration) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield replies with one hostile value, and replies with inconsistent fields."""
    assert item.returns is not None
    honest: dict[str, Any] = dict(valid_reply(item.returns, SIZES))
    for name, kind in item.returns.fields(SIZES).items():
        for fault, value in hostile_values(kind, SIZES).items():
            yield f"{name}: {fault}", {**honest, name: value}
        yield f"without {name}", {k: v for k, v in honest.items() if k != name}
    yield "another field", {**honest, "another": 1.0}
    yield from hostile_replies(item.returns, SIZES).items()


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_a_coordinator_takes_a_valid_reply_and_no_hostile_one(name: str) -> None:
    item = REPLIES[name]
    assert item.returns is not None
    request = ask_for(item)
    assert make_check(item).check("a", request, valid_reply(item.returns, SIZES))
    for fault, reply in list_hostile(item):
        try:
            make_check(item).check("a", request, reply)
        except ValueError as error:
            assert "\n" not in str(error)
            continue
        pytest.fail(f"taken: {fault}")


@pytest.mark.parametrize(
    "name", sorted(name for name, item in REPLIES.items() if item.operation == "sum")
)
def test_no_hostile_aggregate_counts_behind_masks(name: str) -> None:
    """Check that one contribution cannot move an aggregate beyond its range."""
    item = REPLIES[name]
    assert item.returns is not None
    sums = PlausibleSums(SecureSum(), SiteWeights(make_check(item)), lambda event: None)
    honest: dict[str, Any] = dict(valid_reply(item.returns, SIZES))
    assert sums.find_fault(honest, SITES, "query", item.name, None) is None
    far = {"below", "above", "more than there are", "more than exact numbers"}
    for field, kind in item.returns.fields(SIZES).items():
        for fault, value in hostile_values(kind, SIZES).items():
            if fault not in far or not torch.as_tensor(value).numel():
                continue
            total = {**honest, field: value}
            why = sums.find_fault(total, SITES, "query", item.name, None)
            assert why is not None, f"{field}: {fault}"
    if not isinstance(item.returns, Fields):
        for fault, total in hostile_replies(item.returns, SIZES).items():
            why = sums.find_fault(total, SITES, "query", item.name, None)
            assert why is not None, fault


WITHOUT_UNITS = {"squares", "to_mean", "to_selected", "to_random"}
"""Sums of squares in units of the data or the targets, bounded by the largest number of float32."""


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_number_has_declared_finite_bounds(name: str) -> None:
    item = FUNCTIONS[name]
    assert item.takes is not None
    kinds = dict(item.takes)
    if item.operation != "keep":
        assert item.returns is not None
        kinds |= item.returns.fields(SIZES)
    for field, kind in kinds.items():
        inner = kind.kind if isinstance(kind, Optional) else kind
        if isinstance(inner, Numbers):
            assert -LARGEST_WIDE <= inner.range.low <= inner.range.high <= LARGEST_WIDE, (
                field
            )


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_a_single_number_is_bounded_by_what_a_site_has(name: str) -> None:
    item = REPLIES[name]
    assert item.returns is not None
    honest: dict[str, Any] = dict(valid_reply(item.returns, SIZES))
    for field, kind in item.returns.fields(SIZES).items():
        is_wide = getattr(kind, "is_wide", False)
        is_bounded = not is_wide and field not in WITHOUT_UNITS
        if isinstance(kind, Numbers) and kind.dims == () and is_bounded:
            with pytest.raises(ValueError, match=field):
                make_check(item).check("a", ask_for(item), {**honest, field: 1e30})


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_site_takes_valid_arguments_and_no_hostile_ones(name: str) -> None:
    takes = FUNCTIONS[name].takes
    assert takes is not None
    known = SenderFacts(SIZES, room=1e-6)
    honest: dict[str, Any] = {key: valid_value(kind, SIZES) for key, kind in takes.items()}
    assert find_wrong_argument(takes, honest, known) is None
    assert find_wrong_argument(takes, {**honest, "another": 1}, known) is not None
    for key, kind in takes.items():
        for fault, value in hostile_values(kind, SIZES).items():
            why = find_wrong_argument(takes, {**honest, key: value}, known)
            assert why is not None, f"{key}: {fault}"


# -- peer messages ---------------------------------------------------------------------

RELAYS = {}
for method in METHODS:
    for item in list_relays(method).values():
        RELAYS[f"{type(method).__name__}.{item.name}"] = (method, item)
SEAL = new_secret()


def seal(sender: str, content: object) -> torch.Tensor:
    """Seal arbitrary content as a message of a sender to site b."""
    order = Instruction("study", "run", sender, key_of("0/query/0"), 1)
    sealed = encrypt_for(
        public_half(SEAL), pack(content), _name_peer_message(order, sender, "b")
    )
    return bytes_to_tensor(sealed)


def read(method: Any, item: Declaration, **peer_messages: torch.Tensor) -> Delivery:
    body = delivery_body(item.name, peer_messages)
    key = key_of("0/query/0/deliver")
    order = Instruction("study", "run", "b", key, 2, None, body)
    return read_delivery(order, SEAL, method, SenderFacts(SIZES))


@pytest.mark.parametrize("name", sorted(RELAYS))
def test_a_receiver_takes_a_valid_peer_message_and_no_hostile_one(name: str) -> None:
    """Check that a hostile peer message is replaced by a placeholder and others arrive."""
    method, item = RELAYS[name]
    assert item.returns is not None
    valid = {k: torch.as_tensor(v) for k, v in valid_reply(item.returns, SIZES).items()}
    assert read(method, item, a=seal("a", valid)).refused == {}
    for fault, content in list_hostile(item):
        if fault.endswith(("than there are", "a number for a tensor")):
            continue  # weights are limited by `limit_claims`; a sender converts numbers
        delivery = read(method, item, a=seal("a", content), c=seal("c", valid))
        assert delivery.refused.keys() == {"a"}, fault
        why = delivery.refused["a"]
        assert why.startswith(f"site b rejects the message of site a for {item.name!r}: ")
        assert "\n" not in why
        for field, value in valid.items():
            assert torch.equal(delivery.messages["c"].state[field], value)
            blank = delivery.messages["a"].state[field]
            assert bool(blank.isnan().all()), fault
            if field in ("w", "stats"):
                assert blank.shape == value.shape


def test_a_receiver_reads_a_message_by_the_declaration_of_its_own_algorithm() -> None:
    method, item = RELAYS["DPFL.model"]
    with pytest.raises(Refusal, match="Entropy sampling declares relays of nothing only"):
        read(Entropy(), item, a=seal("a", {}))
    delivery = read(method, item, a=seal("a", {}))
    assert "it has other fields than declared" in delivery.refused["a"]
