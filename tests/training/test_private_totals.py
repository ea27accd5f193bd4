"""Closed-form classifiers from noisy aggregates: sensitivity, effect of noise, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import fallow as fl
from fallow.core.streams import stream
from fallow.core.view import Release
from fallow.privacy.gaussian import rho_of, scale_of
from fallow.privacy.settings import Privacy
from fallow.sites.view import SiteView
from fallow.training import ClosedForm
from fallow.training.parts.adassp import (
    CONSTANT,
    SENSITIVITY,
    ZEROS,
    NoisyProducts,
    choose_temperature,
    cut_rows,
    read_products,
    solve,
    sum_products,
)
from fallow.training.parts.ridge import PENALTIES
from tests.training.closed import (
    CLASSES,
    FEATURES,
    Hospitals,
    Rows,
    hospitals,
    rows_with_classes,
    targets,
)

DELTA = 1e-5
PARTS = (range(0, 25), range(25, 55), range(55, 60))
HUGE = 1e6  # ε with negligible noise


def noised(
    epsilon: float, method: ClosedForm | None = None, rows: Rows | None = None, **how: Any
) -> Hospitals:
    """Return sites with noise of this ε."""
    data = rows or rows_with_classes()
    simulation = hospitals(data, method or ClosedForm(delta=DELTA), PARTS, **how)
    for site in simulation.members.values():
        privacy = replace(site.parts.privacy, epsilon=epsilon)
        site.parts = replace(site.parts, privacy=privacy)
    return simulation


def release_of(simulation: Hospitals, site: str = "a") -> Release:
    method = simulation.method
    assert isinstance(method, ClosedForm)
    return method.noisy_totals(SiteView(simulation.members[site], 0))


# -- sensitivity -----------------------------------------------------------------------


def change(z: Tensor, y: Tensor, other: Tensor, other_y: Tensor) -> float:
    """Return the L2 change if one example (1, D) with class (1, C) replaces another."""
    return float((sum_products(z, y) - sum_products(other, other_y)).norm())


def test_no_row_and_no_class_in_the_place_of_another_changes_more_than_is_declared() -> (
    None
):
    draw = stream(0, "worst rows")
    eye = torch.eye(3, dtype=torch.float64)
    largest = 0.0
    for size in (1, 2, 3, 7):
        for length in (0.0, 0.3, 1.0, 50.0):
            for _ in range(60):
                z, other = torch.randn(2, 1, size, generator=draw, dtype=torch.float64)
                z = length * z / z.norm()
                for label in (0, 1):
                    difference = change(z, eye[[0]], 30 * other, eye[[label]])
                    largest = max(largest, difference)
    assert largest <= SENSITIVITY + 1e-12
    assert largest > 0.99 * SENSITIVITY  # examples of one class, at 120 degrees


def test_the_worst_pair_of_rows_reaches_what_is_declared() -> None:
    """Check that two examples of length 1 and product -1/2 in one class reach the bound."""
    cosine = (-0.5 - CONSTANT) / (1 - CONSTANT)
    z = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    other = torch.tensor([[cosine, math.sqrt(1 - cosine**2)]], dtype=torch.float64)
    y = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert float(cut_rows(z) @ cut_rows(other).T) == pytest.approx(-0.5)
    assert change(z, y, other, y) == pytest.approx(SENSITIVITY, rel=1e-12)


def test_rows_are_cut_to_length_1_and_shorter_ones_stay() -> None:
    z = torch.tensor([[30.0, 40.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    x = cut_rows(z)
    assert_close(x[0].norm(), torch.tensor(1.0, dtype=torch.float64))
    assert_close(x[1:, :2] / (1 - CONSTANT) ** 0.5, z[1:])
    assert_close(x[:, 2], torch.full((3,), CONSTANT**0.5, dtype=torch.float64))


def test_weights_of_rows_change_nothing() -> None:
    """Check weights, since one of 1,000 would multiply the sensitivity by 1,000."""
    plain = release_of(noised(1.0))
    simulation = noised(1.0)
    simulation.members["a"].weight *= 1000
    assert torch.equal(release_of(simulation).counts, plain.counts)


def test_what_is_read_back_are_the_products() -> None:
    rows = rows_with_classes()
    y = targets(rows)
    products = read_products(sum_products(rows.z, y), weights=(FEATURES + 1) * CLASSES)
    x = cut_rows(rows.z)
    assert_close(products.a, x.T @ x)
    assert_close(products.b, x.T @ y)
    assert products.scale == 0


def test_totals_of_another_length_are_refused_in_words() -> None:
    total = sum_products(torch.zeros(2, 5), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="all sites must use the same encoder"):
        read_products(total, weights=7 * 3)
    with pytest.raises(ValueError, match="all sites must use the same encoder"):
        read_products(total[:40], weights=6 * 3)


# -- the noise -------------------------------------------------------------------------


def noise_in(simulation: Hospitals) -> Tensor:
    """Return the noise on the aggregates, over all values sent."""
    simulation.solve()
    sent = simulation.channel.of("noisy_totals")
    parts = [
        torch.as_tensor(sent[name]["noisy"]) - release_of(simulation, name).counts
        for name in simulation.members
    ]
    return torch.stack(parts)


def test_each_site_adds_noise_that_is_enough_for_it_alone() -> None:
    noise = noise_in(noised(0.5))
    expected = scale_of(SENSITIVITY, rho_of(0.5, DELTA))
    for part in noise:
        assert float(part.std()) == pytest.approx(expected, rel=0.15)
    assert float(np.corrcoef(noise.numpy())[0, 1]) == pytest.approx(0, abs=0.2)


def test_the_size_of_the_noise_is_read_off_zeros() -> None:
    simulation = noised(0.5)
    simulation.solve()
    sent = simulation.channel.of("noisy_totals")
    total = sum(torch.as_tensor(sent[name]["noisy"]) for name in simulation.members)
    assert isinstance(total, Tensor)
    scale = read_products(total, weights=(FEATURES + 1) * CLASSES).scale
    expected = 3**0.5 * scale_of(SENSITIVITY, rho_of(0.5, DELTA))
    assert scale == pytest.approx(expected, rel=4 / (2 * ZEROS) ** 0.5)


def test_a_lone_row_cannot_be_read_off_what_its_site_sends() -> None:
    """Check one example at a site, whose products without noise would disclose it."""
    rows = rows_with_classes()
    simulation = hospitals(
        rows, ClosedForm(delta=DELTA), [[0], range(1, 30), range(30, 60)]
    )
    for site in simulation.members.values():
        site.parts = replace(site.parts, privacy=Privacy(epsilon=1.0))
    simulation.solve()
    sent = torch.as_tensor(simulation.channel.of("noisy_totals")["a"]["noisy"])
    row = cut_rows(rows.z[:1])[0]

    def likeness(numbers: Tensor) -> float:
        products = read_products(numbers, weights=(FEATURES + 1) * CLASSES).a
        return abs(float(torch.linalg.eigh(products).eigenvectors[:, -1] @ row)) / float(
            row.norm()
        )

    assert likeness(release_of(simulation).counts) == pytest.approx(1.0)
    assert likeness(sent) < 0.9


# -- the classifier --------------------------------------------------------------------


def exact(rows: Rows) -> NoisyProducts:
    return read_products(
        sum_products(rows.z, targets(rows)), weights=(FEATURES + 1) * CLASSES
    )


def test_with_next_to_no_noise_it_is_a_ridge_on_rows_of_length_1() -> None:
    rows = rows_with_classes(200)
    x = cut_rows(rows.z).numpy()
    head = solve(exact(rows), rows=200, penalty=0.01).head
    expected = np.linalg.solve(
        x.T @ x + 0.01 * 200 * np.eye(FEATURES + 1), x.T @ targets(rows).numpy()
    )
    # not clipped: the classifier uses unclipped features
    outputs = rows.z @ head.weight + head.bias
    weight = torch.from_numpy(expected[:-1]) * (1 - CONSTANT) ** 0.5
    bias = torch.from_numpy(expected[-1]) * CONSTANT**0.5
    assert_close(outputs, rows.z @ weight + bias, rtol=0, atol=1e-10)


def test_the_more_noise_the_more_it_is_held_back() -> None:
    exactly = exact(rows_with_classes(200))
    penalties = []
    for scale in (0.0, 0.1, 1.0, 10.0):
        draw = stream(0, "noise")
        size = len(exactly.a)
        noise = torch.randn(size, size, generator=draw, dtype=torch.float64)
        noisy = NoisyProducts(exactly.a + scale * (noise + noise.T) / 2, exactly.b, scale)
        penalties.append(solve(noisy, rows=200, penalty=None).penalty)
    assert penalties == sorted(penalties)
    assert penalties[0] == pytest.approx(PENALTIES[0])
    # as much as the largest eigenvalue of the noise
    assert penalties[-1] * 200 == pytest.approx(10 * (2 * (FEATURES + 1)) ** 0.5)


def test_noise_below_the_smallest_eigenvalue_asks_for_no_penalty() -> None:
    a = 100 * torch.eye(FEATURES + 1, dtype=torch.float64)
    noisy = NoisyProducts(a, torch.zeros(FEATURES + 1, CLASSES, dtype=torch.float64), 1.0)
    assert solve(noisy, rows=100, penalty=None).penalty == pytest.approx(PENALTIES[0])


def test_the_temperature_is_that_of_normal_outputs() -> None:
    """Outputs that are normal around the one-hot class have exactly these odds."""
    draw = stream(0, "outputs")
    y = torch.randint(CLASSES, (20_000,), generator=draw)
    hot = torch.nn.functional.one_hot(y, CLASSES).double()
    outputs = hot + 0.3 * torch.randn(hot.shape, generator=draw, dtype=torch.float64)
    losses = {}
    for temperature in (5.0, 9.0, 1 / 0.09, 13.0, 20.0):
        logs = torch.log_softmax(temperature * outputs, dim=1)
        losses[temperature] = -float((logs * hot).sum(1).mean())
    assert min(losses, key=lambda candidate: losses[candidate]) == 1 / 0.09
    assert choose_temperature(0.09) == pytest.approx(1 / 0.09, rel=0.12)


@pytest.mark.parametrize("variance", [-1.0, 0.0, 1e-9, 0.1, 7.0])
def test_the_temperature_stays_on_its_grid(variance: float) -> None:
    assert 1 <= choose_temperature(variance) <= 1000


# -- a round ---------------------------------------------------------------------------


def test_one_exchange_is_all_that_sites_are_asked() -> None:
    simulation = noised(1.0)
    state = simulation.solve()
    assert {function for function, _ in simulation.channel.replies} - {"local"} == {
        "noisy_totals"
    }
    assert {"w", "penalty", "temperature"} <= state.keys()
    assert "left_out" not in state


def test_secure_sums_say_the_same() -> None:
    pytest.importorskip("cryptography")
    plain = noised(1.0).solve()
    masked = noised(1.0, secure=True)
    solved = masked.solve()
    # the noise depends on the name of the exchange; without noise both classifiers are
    # equal
    assert solved["w"].shape == plain["w"].shape
    still = noised(HUGE, ClosedForm(delta=DELTA, penalty=0.01)).solve()
    hidden = noised(HUGE, ClosedForm(delta=DELTA, penalty=0.01), secure=True).solve()
    shared = float(still["temperature"] / hidden["temperature"])
    assert_close(still["w"], shared * hidden["w"], rtol=0.05, atol=0.05)


@pytest.mark.long
def test_it_learns_where_there_are_rows_enough_for_the_noise() -> None:
    simulation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=1.0), sites=3)
    scores = {}
    for epsilon in (0.1, 8.0, HUGE):
        run = fl.run(
            simulation,
            "random",
            training=fl.ClosedForm(delta=DELTA),
            encoder="identity",
            privacy=fl.Privacy(epsilon=epsilon),
            initial=0.8,
            cycles=0,
            progress=False,
        )
        scores[epsilon] = run.records["accuracy"].iloc[-1]
    assert scores[0.1] < scores[8.0] < scores[HUGE]
    assert scores[8.0] > 0.6
    assert scores[HUGE] > 0.85


@pytest.mark.long
def test_runs_that_differ_in_noise_alone_do_not_share_a_phase(tmp_path: Any) -> None:
    """Check that the privacy cost is not shared either."""
    simulation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=1.0), sites=3)
    study = fl.compare(
        simulation,
        [
            "random@training=closed-form:delta=1e-5@privacy.epsilon=0.5",
            "random@training=closed-form:delta=1e-5@privacy.epsilon=500",
        ],
        encoder="identity",
        cycles=0,
        seeds=1,
        bounds=False,
        out=tmp_path / "study",
        progress=False,
    )
    noisy, clear = sorted(study.records["accuracy"].tolist())
    assert noisy + 0.2 < clear


# -- refused settings ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"balance": "class"}, "exact counts of classes"),
        ({"passes": 2}, "exact means of labeled examples"),
        ({"local_head": "own"}, "exact examples of the site"),
        (
            {"unlabeled": "auto"},
            "exact sums over all examples, which are not private; omit unlabel",
        ),
    ],
)
def test_what_reads_exact_rows_is_refused_in_one_sentence(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        ClosedForm(delta=DELTA, **fields)


@pytest.mark.parametrize("delta", [0.0, -1e-5, 0.5, 1.0, float("nan")])
def test_a_delta_that_protects_nothing_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="ClosedForm's delta is"):
        ClosedForm(delta=delta)


def run(training: Any, epsilon: float | None, **settings: Any) -> fl.Run:
    simulation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=1.0), sites=3)
    privacy = fl.Privacy(epsilon=epsilon)
    return fl.run(
        simulation,
        "random",
        training=training,
        privacy=privacy,
        cycles=0,
        progress=False,
        **settings,
    )


def test_exact_totals_are_refused_under_epsilon_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"set its delta, such as closed-form:delta=1e-5"):
        run("closed-form", 1.0)


def test_a_delta_without_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match=r"privacy\.epsilon is not set"):
        run("closed-form:delta=1e-5", None)


@pytest.mark.parametrize("training", ["closed-form-heads", "fedavg"])
def test_personal_and_exact_heads_are_refused_under_epsilon(training: str) -> None:
    """Check both, since their leave-one-out choices read examples."""
    settings = {"head": "exact", "model": "linear"} if training == "fedavg" else {}
    with pytest.raises(ValueError, match="does not support local privacy"):
        run(training, 1.0, **settings)


def test_a_site_that_was_promised_noise_answers_nothing_without_it() -> None:
    method = ClosedForm(delta=DELTA)
    assert set(method.contract.disclosures) == {"noisy_totals"}
    assert "noisy_totals" not in ClosedForm().contract.disclosures


def test_numbers_to_predict_are_refused() -> None:
    """Check targets, whose scaling is computed from exact labels."""
    assert ClosedForm(delta=DELTA).contract.regression is False


def test_delta_is_part_of_the_digest() -> None:
    plain = fl.ExperimentConfig("a", training=fl.Spec("closed-form"))
    config = fl.ExperimentConfig("a", training=fl.Spec("closed-form", {"delta": 1e-5}))
    assert plain.digest != config.digest
