"""The operation by which each client function is called, for every algorithm."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from fallow import strategies, training
from fallow.core.build import names
from fallow.core.disclosure import Disclosure
from fallow.core.messages import Kind, Request, Step
from fallow.core.missing import Missing
from fallow.deployment.annotators import Annotators
from fallow.encoders.encoding import Imputation
from fallow.measurements.evaluation_set import EvaluationSet
from fallow.sites.replies import reply_to_step
from fallow.strategies import FALE, Entropy
from fallow.training import KCFU, Evidential, FedAvg, FedProx, Robust, Scaffold, personal
from fallow.training.personal import DPFL, Ditto, FedProxFT
from fallow.training.retention import Retention
from fallow.training.scaling import Scaling
from fallow.transport.checks import check_instruction
from fallow_papers.ahfal import codes
from tests.engine.jobs import mlp
from tests.keys import key_of
from tests.simulations import simulation, tables
from tests.training.personal.federation import (
    CONFIG,
    METHODS,
    federation,
    first_state,
    rounds,
)

EVERY = [
    cls()
    for p in (strategies, training, personal, codes)
    for _, cls in sorted(names(p).items())
]
EVERY += [Scaling(), Scaling(of_cells=True), Imputation(Missing()), Retention(FedAvg())]
EVERY += [
    Annotators(),
    Annotators(secure_sum=True),
    EvaluationSet(),
    EvaluationSet(secure_sum=True),
]
LAST = {("keep", "chosen"), ("keep", "tuned")}  # after the last round
TRAINERS = (
    *METHODS,
    FedProxFT(CONFIG, tune_prox=True),
    FedAvg(CONFIG),
    FedProx(CONFIG),
    KCFU(CONFIG),
    Evidential(CONFIG),
    Robust(CONFIG),
    Scaffold(CONFIG),
)


def order(function: str, kind: Any, owner: str = "query") -> Request:
    """Return an instruction of a malicious coordinator, which bypasses `Ask`."""
    return Request(key_of("0/query/0"), owner, 0, 0, (Step(kind, function, {}),))


@pytest.mark.parametrize("method", EVERY, ids=str)
def test_a_verb_is_refused_by_every_operation_but_the_one_that_lists_it(
    method: Any,
) -> None:
    site = simulation(tables(), method).members["a"]
    for function in method.contract.disclosures:
        others = [k for k in get_args(Kind) if method.contract.refusal(function, k)]
        assert len(others) == len(get_args(Kind)) - 1
        for kind in others:
            sent = order(function, kind)
            why = f"{function!r} by {kind}: the contract of .* allows it only by"
            with pytest.raises(ValueError, match=f"site a does not answer {why}"):
                reply_to_step(site, sent.steps[0], sent)
            if kind != "fit":
                with pytest.raises(
                    ValueError, match=f"instruction 0/query/0 requests {why}"
                ):
                    check_instruction(sent, site.parts)


@pytest.mark.parametrize("method", TRAINERS, ids=str)
def test_training_asks_all_that_its_contract_lists(method: Any) -> None:
    channel, shown = federation(mlp, method), Disclosure()
    rounds(channel, method, first_state(mlp), 1, shown=shown)
    asked = {(kind, function) for kind, function, _ in shown.entries}
    assert asked - {("fit", "fit")} == listed(method) - LAST


def listed(method: Any) -> set[tuple[str, str]]:
    return {(item.operation, item.name) for item in method.contract.functions}


@pytest.mark.parametrize(
    ("method", "owner", "function", "kind"),
    [
        (FALE(), "query", "score", "each"),  # a number for each example, kept at the site
        (FALE(), "query", "select", "each"),  # examples
        (FALE(), "query", "rotation", "each"),  # peer messages of one site
        (FALE(), "query", "masked", "each"),  # of another mode
        (Entropy(), "query", "upload", "sum"),  # of another setting: a model
        (DPFL(), "training", "model", "each"),  # peer message
        (DPFL(), "training", "model", "sum"),
        (DPFL(), "plain", "upload", "sum"),  # of the algorithm that only trains
        (Ditto(), "training", "upload", "relay"),
    ],
)
def test_a_coordinator_that_asks_in_another_way_than_the_method_gets_nothing(
    method: Any, owner: str, function: str, kind: str
) -> None:
    made = simulation(tables(), method if owner == "query" else Entropy())
    site = made.members["a"]
    if owner != "query":
        site.parts.methods["training"] = method
    with pytest.raises(
        ValueError, match=rf"site a (does not answer '{function}' by {kind}|has no)"
    ):
        made.channel.exchange({"a": order(function, kind, owner)})
    with pytest.raises(ValueError, match=r"instruction 0/query/0 (requests|is of)"):
        check_instruction(order(function, kind, owner), site.parts)
