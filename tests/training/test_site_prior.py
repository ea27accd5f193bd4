"""Test that each site corrects the closed-form classifier by its own class shares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

import fallow as fl
from fallow.core.client import declared
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.sites.in_process import InProcessChannel
from fallow.training import ClosedForm
from fallow.transport.serialized import SerializingChannel
from tests.deployment.test_self_training import study
from tests.each import each_of
from tests.training.closed import CLASSES, Hospitals, Rows, hospitals, weights_of
from tests.training.test_self_training import LABELED, UNLABELED, clusters, folds_of

PRIOR = ClosedForm(site_prior="auto")
SPREAD = 4.0


def truth_of(seed: int) -> Tensor:
    """Return the classes of all examples of `clusters`, labeled ones first."""
    return torch.randint(
        CLASSES, (LABELED + UNLABELED,), generator=stream(seed, "clusters")
    )


def sites_of(
    is_skewed: bool,
    n: int = LABELED,
    seed: int = 0,
    method: ClosedForm = PRIOR,
    secure: bool = False,
    carried: type[InProcessChannel] | type[SerializingChannel] = InProcessChannel,
) -> tuple[Hospitals, list[tuple[Tensor, Tensor]]]:
    """Return three sites with ``n`` labels, and their unlabeled examples with their classes.

    Skewed sites have two, one and one of the four classes, and others have every third example.
    """
    rows, unlabeled = clusters(seed, SPREAD)
    rows = Rows(rows.z[:n], rows.y[:n], rows.s[:n])
    truth = truth_of(seed)[LABELED:]
    home = rows.y.sub(1).clamp_min(0)
    home_of_pool = truth.sub(1).clamp_min(0)
    if not is_skewed:
        home = torch.arange(n) % 3
        home_of_pool = torch.arange(UNLABELED) % 3
    parts = [(home == site).nonzero().squeeze(1).tolist() for site in range(3)]
    pools = [
        (unlabeled[home_of_pool == site], truth[home_of_pool == site]) for site in range(3)
    ]
    examples = [z for z, _ in pools]
    made = hospitals(
        rows, method, parts, secure=secure, carried=carried, unlabeled=examples
    )
    folds = folds_of(rows)
    for site, part in zip(made.members.values(), parts, strict=True):
        site.fold[: len(part)] = folds[part]
    return made, pools


def deployed(made: Hospitals, state: State) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights and biases of the model of each site."""
    models = [made.method.deploy(state, site.memory) for site in made.members.values()]
    return [tuple(part.numpy() for part in weights_of(model)) for model in models]  # type: ignore[misc]


def share_naively(p: np.ndarray, common: np.ndarray) -> np.ndarray:
    """Estimate class shares example by example, from probabilities (m, C)."""
    shares = common
    for _ in range(30):
        totals = 20 * common
        for one in p:
            corrected = one * shares / common
            totals = totals + corrected / corrected.sum()
        shares = totals / (len(p) + 20)
    return shares


def softmax(outputs: np.ndarray) -> np.ndarray:
    e = np.exp(outputs - outputs.max(1, keepdims=True))
    result: np.ndarray = e / e.sum(1, keepdims=True)
    return result


@each_of("n", [20, LABELED])
def test_a_site_adds_the_logarithm_of_its_class_shares(n: int) -> None:
    made, _ = sites_of(is_skewed=True, n=n)
    state = made.solve()
    weight, bias = (part.numpy() for part in weights_of(state))
    t = float(state["temperature"])
    probabilities = []
    for site in made.members.values():
        p = softmax(10 * (site.x.numpy() @ weight + bias) / t)
        p[site.labeled] = np.eye(CLASSES)[site.labels.long()]
        probabilities.append(p)
    common = np.concatenate(probabilities).mean(0)
    for p, (own_weight, own_bias) in zip(probabilities, deployed(made, state), strict=True):
        assert_allclose(own_weight, weight)
        ratio = share_naively(p, common) / common
        assert_allclose(own_bias, bias + t * np.log(ratio) / 10, rtol=1e-9, atol=1e-12)
    assert ("site_prior_gain" in state) == (n == LABELED)


@pytest.mark.long
def test_it_gains_accuracy_at_skewed_sites_and_loses_none_at_equal_ones() -> None:
    gains: dict[bool, list[float]] = {True: [], False: []}
    for is_skewed, gained in gains.items():
        for seed in range(3):
            scores = []
            for method in (ClosedForm(), PRIOR):
                made, pools = sites_of(is_skewed, seed=seed, method=method)
                models = deployed(made, made.solve())
                hits = [
                    (z.numpy() @ weight + bias).argmax(1) == y.numpy()
                    for (z, y), (weight, bias) in zip(pools, models, strict=True)
                ]
                scores.append(float(np.concatenate(hits).mean()))
            gained.append(scores[1] - scores[0])
    assert min(gains[True]) > 0.03
    assert min(gains[False]) > -0.01


def test_held_out_labels_decide_whether_it_is_used() -> None:
    made, _ = sites_of(is_skewed=False, seed=1)
    state = made.solve()
    assert float(state["site_prior_gain"]) == 0
    for site in made.members.values():
        assert "adapt" not in site.memory
        assert torch.equal(made.method.deploy(state, site.memory)["w"], state["w"])


@pytest.mark.long
@each_of("how", [{"secure": True}, {"carried": SerializingChannel}])
def test_secure_aggregation_and_bytes_give_the_same_models(
    how: Mapping[str, object],
) -> None:
    one, _ = sites_of(is_skewed=True)
    other, _ = sites_of(is_skewed=True, **how)  # type: ignore[arg-type]
    pairs = zip(deployed(one, one.solve()), deployed(other, other.solve()), strict=True)
    for (weight, bias), (same_weight, same_bias) in pairs:
        assert_allclose(same_weight, weight, rtol=1e-9, atol=1e-12)
        assert_allclose(same_bias, bias, rtol=1e-9, atol=1e-12)


def test_it_needs_self_training() -> None:
    for fields in ({"delta": 1e-5}, {"unlabeled": "off"}):
        with pytest.raises(ValueError, match="its class shares come from self-training"):
            ClosedForm(site_prior="auto", **fields)
    own = {"class_shares", "held_out_prior", "adapt"}
    assert own <= declared(PRIOR).keys() and not own & declared(ClosedForm()).keys()
    assert PRIOR.narrowed_to(39, 4).site_prior == "off"
    assert PRIOR.describe_extras(39, 4).startswith("neither self-training nor a site prior")
    assert not PRIOR.contract.regression


@pytest.mark.long
def test_real_sites_and_simulations_have_models_of_their_own(tmp_path: Path) -> None:
    simulation = study(
        tmp_path, cycles=0, training=fl.Spec("closed-form", {"site_prior": "auto"})
    )
    assert simulation.program().go()
    assert simulation.list_events("refused") == []
    assert "site_prior_gain" in simulation.records()[-1]
    simulation.close()
    federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=4)
    scores = []
    for method in (ClosedForm(), PRIOR):
        run = fl.run(
            federation,
            "random",
            training=method,
            encoder="convolution:filters=16",
            cycles=0,
            initial=4,
            test="own",
            progress=False,
        )
        scores.append(run.records["accuracy"].iloc[-1])
    assert isinstance(run.model, dict)
    assert run.model.keys() == {"site-0", "site-1", "site-2", "site-3"}
    assert scores[1] > scores[0]
