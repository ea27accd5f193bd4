"""Closed-form classifiers against scikit-learn, for any partition, with leave-one-out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.linear_model import Ridge, RidgeClassifier
from torch import Tensor
from torch.testing import assert_close

from fallow.core.client import declared, find_wrong_argument
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.values import SenderFacts
from fallow.data.partition.partitions import ExactDirichlet
from fallow.engine import Loop, row_loss
from fallow.models.networks import MLP
from fallow.sites.in_process import InProcessChannel
from fallow.sites.view import SiteView
from fallow.training import ClosedForm
from fallow.training.parts.closed_form import path_kinds
from fallow.training.parts.ridge import (
    MOST_AWAY,
    PENALTIES,
    TEMPERATURES,
    Path,
    add_up,
    centered,
    decompose,
    head_of,
    leave_one_out,
    log_losses,
    losses,
    validation_score,
)
from fallow.transport.serialized import SerializingChannel
from tests.each import each_of
from tests.training.closed import (
    CLASSES,
    FEATURES,
    Hospitals,
    Overheard,
    Rows,
    hospitals,
    rows_with_classes,
    rows_with_numbers,
    targets,
    weights_of,
)

HALVES = (range(0, 25), range(25, 60))
PENALTY = 0.01


def ridge(rows: Rows, y: Tensor, penalty: float = PENALTY) -> Ridge:
    """Fit scikit-learn's ridge, whose alpha is not scaled by the number of examples."""
    alpha = penalty * float(rows.s.sum())
    return Ridge(alpha=alpha, solver="cholesky").fit(
        rows.z.numpy(), y.numpy(), sample_weight=rows.s.numpy()
    )


def path_of(rows: Rows, y: Tensor) -> Path:
    return decompose(centered(add_up(rows.z, y, rows.s)))


def weighed(rows: Rows) -> Rows:
    draw = torch.Generator().manual_seed(3)
    return rows._replace(
        s=torch.rand(len(rows.s), generator=draw, dtype=torch.float64) + 0.2
    )


# -- the classifier --------------------------------------------------------------------


@pytest.mark.parametrize("is_class", [True, False])
def test_it_is_scikit_learns_ridge_on_the_rows_of_all_sites(is_class: bool) -> None:
    rows = weighed(rows_with_classes() if is_class else rows_with_numbers())
    y = targets(rows, is_class)
    method = ClosedForm(penalty=PENALTY)
    state = hospitals(rows, method, HALVES, is_class=is_class).solve()

    weight, bias = weights_of(state, y.shape[1])
    temperature = state["temperature"]
    expected = ridge(rows, y)
    coefficients = torch.from_numpy(np.atleast_2d(expected.coef_)).T
    assert_close(weight / temperature, coefficients, rtol=0, atol=1e-8)
    assert_close(
        bias / temperature, torch.from_numpy(expected.intercept_), rtol=0, atol=1e-8
    )


def test_it_predicts_the_classes_of_scikit_learns_ridge_classifier() -> None:
    rows = rows_with_classes()
    state = hospitals(rows, ClosedForm(penalty=PENALTY), HALVES).solve()
    weight, bias = weights_of(state)
    alpha = PENALTY * len(rows.y)
    expected = RidgeClassifier(alpha=alpha).fit(rows.z.numpy(), rows.y.numpy())
    guess = (rows.z @ weight + bias).argmax(1)
    assert guess.tolist() == expected.predict(rows.z.numpy()).tolist()


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_who_holds_a_row_does_not_matter(alpha: float) -> None:
    rows = weighed(rows_with_classes(200))
    whole = hospitals(rows, ClosedForm(), [range(200)]).solve()
    parts = ExactDirichlet(alpha=alpha).split(rows.y.numpy(), 10, np.random.default_rng(0))
    shared = hospitals(rows, ClosedForm(), [part.tolist() for part in parts]).solve()
    assert_close(shared["w"], whole["w"], rtol=0, atol=1e-9)
    assert shared["penalty"] == whole["penalty"]
    assert shared["temperature"] == whole["temperature"]


@pytest.mark.parametrize("passes", [1, 2])
def test_the_order_of_sites_does_not_matter_bit_for_bit(passes: Literal[1, 2]) -> None:
    rows = weighed(rows_with_classes())
    parts = [range(0, 7), range(7, 30), range(30, 31), range(31, 60)]
    method = ClosedForm(balance="class", passes=passes)
    expected = hospitals(rows, method, parts).solve()

    simulation = hospitals(rows, method, parts)
    names = sorted(simulation.members, reverse=True)
    members = {name: simulation.members[name] for name in names}
    engine = Loop(
        members["a"].parts.model, members["a"].parts.layout, row_loss("classification")
    )
    turned = replace(simulation, channel=Overheard(InProcessChannel(members, engine)))
    assert list(turned.members) != names
    classifier = turned.solve()
    for name in ("w", "penalty", "temperature", "left_out"):
        assert torch.equal(classifier[name], expected[name])


def test_sites_with_one_row_one_class_or_no_label_are_sites_like_others() -> None:
    rows = rows_with_classes()
    of_one_class = (rows.y == 2).nonzero().squeeze(1).tolist()
    others = (rows.y != 2).nonzero().squeeze(1).tolist()
    parts = [of_one_class, others[:1], [], others[1:]]
    classifier = hospitals(rows, ClosedForm(), parts).solve()
    whole = hospitals(rows, ClosedForm(), [range(60)]).solve()
    assert_close(classifier["w"], whole["w"], rtol=0, atol=1e-9)


def test_two_passes_are_right_for_features_far_from_0() -> None:
    rows = rows_with_classes()
    far = rows._replace(z=rows.z + 1e7)
    expected = hospitals(rows, ClosedForm(penalty=PENALTY), HALVES).solve()
    classifier = hospitals(far, ClosedForm(penalty=PENALTY, passes=2), HALVES).solve()
    weight, _ = weights_of(expected)
    weight_far, _ = weights_of(classifier)
    assert_close(weight_far, weight, rtol=0, atol=1e-7)


def test_balanced_classes_weigh_the_same() -> None:
    rows = rows_with_classes()
    rows = rows._replace(y=torch.where(torch.arange(60) < 40, 0, rows.y))
    counts = torch.bincount(rows.y, minlength=CLASSES).double()
    even = rows._replace(s=(len(rows.y) / (CLASSES * counts))[rows.y])
    classifier = hospitals(
        rows, ClosedForm(balance="class", penalty=PENALTY), HALVES
    ).solve()
    weight, _ = weights_of(classifier)
    expected = ridge(even, targets(even))
    assert_close(
        weight / classifier["temperature"],
        torch.from_numpy(expected.coef_).T,
        rtol=0,
        atol=1e-8,
    )


def test_weights_of_labels_count_unless_it_is_told_otherwise() -> None:
    rows = rows_with_classes()
    heavy = weighed(rows)
    plain = hospitals(rows, ClosedForm(), HALVES).solve()
    assert torch.equal(
        hospitals(heavy, ClosedForm(weighted=False), HALVES).solve()["w"], plain["w"]
    )
    assert not torch.allclose(
        hospitals(heavy, ClosedForm(), HALVES).solve()["w"], plain["w"]
    )


def test_a_class_that_nobody_has_labeled_is_never_predicted() -> None:
    rows = rows_with_classes()
    rows = rows._replace(y=torch.where(rows.y == 3, 2, rows.y))
    weight, bias = weights_of(hospitals(rows, ClosedForm(), HALVES).solve())
    assert weight[:, 3].abs().max() < 1e-12
    assert bias[3].abs() < 1e-12
    assert 3 not in (rows.z @ weight + bias).argmax(1).tolist()


def test_without_any_label_the_model_stays() -> None:
    rows = rows_with_classes()
    state = hospitals(rows, ClosedForm(), [[], []]).solve()
    assert state["w"].abs().max() == 0
    assert "penalty" not in state


def test_a_single_label_gives_its_class_everywhere() -> None:
    rows = rows_with_classes()
    state = hospitals(rows, ClosedForm(), [[7], []]).solve()
    weight, bias = weights_of(state)
    assert set((rows.z @ weight + bias).argmax(1).tolist()) == {int(rows.y[7])}
    assert "left_out" not in state


# -- leave-one-out ---------------------------------------------------------------------


@pytest.mark.parametrize("is_class", [True, False])
def test_leaving_a_row_out_is_fitting_without_it(is_class: bool) -> None:
    rows = weighed(rows_with_classes() if is_class else rows_with_numbers())
    y = targets(rows, is_class)
    grid = [0.003, PENALTY]
    outcome = {
        block.penalty: block.outputs
        for block in leave_one_out(path_of(rows, y), rows.z, y, rows.s, grid)
    }
    n = rows.s.sum()
    for row in (0, 17, 59):
        others = torch.arange(60) != row
        for index, penalty in enumerate(grid):
            # λ n counts all examples, including the omitted one
            fitted = Ridge(alpha=float(penalty * n), solver="svd").fit(
                rows.z[others].numpy(), y[others].numpy(), sample_weight=rows.s[others]
            )
            expected = np.atleast_2d(fitted.predict(rows.z[row : row + 1].numpy()))
            assert_close(
                outcome[index][row], torch.from_numpy(expected)[0], rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("n", [2, 3, 5])
def test_fewer_rows_than_features_are_left_out_exactly(n: int) -> None:
    rows = weighed(rows_with_classes(n))
    y = targets(rows)
    block = next(leave_one_out(path_of(rows, y), rows.z, y, rows.s, [PENALTY]))
    alpha = PENALTY * float(rows.s.sum())
    for row in range(n):
        others = torch.arange(n) != row
        fitted = Ridge(alpha=alpha, solver="svd").fit(
            rows.z[others].numpy(), y[others].numpy(), sample_weight=rows.s[others]
        )
        expected = torch.from_numpy(fitted.predict(rows.z[row : row + 1].numpy()))[0]
        assert_close(block.outputs[row], expected, rtol=0, atol=1e-10)


def test_the_penalty_is_the_best_of_the_grid_for_rows_left_out() -> None:
    rows = rows_with_numbers(30)
    state = hospitals(rows, ClosedForm(), [range(30)], is_class=False).solve()
    y = targets(rows, is_class=False)
    lost = torch.zeros(len(PENALTIES), dtype=torch.float64)
    for at, penalty in enumerate(PENALTIES):
        for row in range(30):
            others = torch.arange(30) != row
            fitted = Ridge(alpha=penalty * 30, solver="svd").fit(
                rows.z[others].numpy(), y[others].numpy()
            )
            predicted = fitted.predict(rows.z[row : row + 1].numpy()).item()
            lost[at] += (float(y[row]) - predicted) ** 2
    assert float(state["penalty"]) == PENALTIES[int(lost.argmin())]
    assert float(state["left_out"]) == pytest.approx(float(lost.min()) / 30, rel=1e-9)


def rows_of_chance(n: int) -> Rows:
    """Return examples whose classes, all with the same number, have nothing to do with features."""
    rows = rows_with_classes(n)
    return rows._replace(y=torch.arange(n) % CLASSES)


@each_of("reveal, unit", [("path", 1.0), ("path", 0.01), ("head", 1.0)])
def test_with_few_labels_per_class_the_penalty_is_limited(
    reveal: Literal["path", "head"], unit: float
) -> None:
    for n, is_limited in ((36, True), (40, False)):  # of 4 classes
        rows = rows_of_chance(n)
        rows = rows._replace(s=unit * rows.s)
        parts = [range(n // 2), range(n // 2, n)]
        state = hospitals(rows, ClosedForm(reveal=reveal), parts).solve()
        assert ("penalty_limit" in state) == is_limited
        if is_limited:
            assert float(state["penalty_limit"]) == pytest.approx(0.3 / n)
            assert float(state["penalty"]) == pytest.approx(10**-2.5)
        else:
            assert float(state["penalty"]) > 0.3 / n


def test_a_class_without_a_label_does_not_limit_the_penalty() -> None:
    rows = rows_of_chance(40)
    rows = rows._replace(y=rows.y % 3)  # 10 labels in each of 3 classes, and 10 more
    assert "penalty_limit" not in hospitals(rows, ClosedForm(), [range(40)]).solve()


@each_of("method, is_class", [(ClosedForm(penalty=0.5), True), (ClosedForm(), False)])
def test_a_given_penalty_and_that_of_regression_are_not_limited(
    method: ClosedForm, is_class: bool
) -> None:
    rows = rows_of_chance(12) if is_class else rows_with_numbers(12)
    state = hospitals(rows, method, [range(12)], is_class=is_class).solve()
    assert "penalty_limit" not in state
    if is_class:
        assert float(state["penalty"]) == 0.5


def test_the_temperature_is_the_best_to_a_step_of_the_grid() -> None:
    rows = rows_with_classes(200)
    y = targets(rows)
    state = hospitals(rows, ClosedForm(penalty=PENALTY), [range(200)]).solve()
    path = path_of(rows, y)
    block = next(leave_one_out(path, rows.z, y, rows.s, [PENALTY]))

    def log_loss(power: float) -> float:
        logits = 10**power * block.outputs
        return float(-(logits.log_softmax(1) * y).sum())

    best = 10 ** minimize_scalar(log_loss, bounds=(0, 3), method="bounded").x
    step = TEMPERATURES[1] / TEMPERATURES[0]
    assert best / step <= float(state["temperature"]) <= best * step


def test_log_losses_are_those_of_torch() -> None:
    rows = rows_with_classes(20)
    outputs = rows.z[:, :CLASSES]
    losses_of_rows = log_losses(outputs, targets(rows), rows.s)
    for at in (0, 16, 32):
        expected = torch.nn.functional.cross_entropy(
            TEMPERATURES[at] * outputs, rows.y, reduction="sum"
        )
        assert_close(losses_of_rows[at], expected, rtol=1e-12, atol=0)


def test_log_losses_of_many_classes_are_those_of_torch_up_to_single_precision() -> None:
    draw = stream(0, "many classes")
    outputs = torch.randn(3, 50, 400, generator=draw, dtype=torch.float64)
    truth = torch.randint(400, (50,), generator=draw)
    y = torch.nn.functional.one_hot(truth, 400).double()
    weights = torch.ones(50, dtype=torch.float64)
    of_models = log_losses(outputs, y, weights)
    for at, temperature in enumerate(TEMPERATURES):
        for model in range(3):
            expected = torch.nn.functional.cross_entropy(
                temperature * outputs[model], truth, reduction="sum"
            )
            assert_close(of_models[model, at], expected, rtol=0, atol=50 * 1e-5)


def test_probabilities_are_better_calibrated_than_at_temperature_1() -> None:
    rows = rows_with_classes(600)
    state = hospitals(rows, ClosedForm(), [range(300)]).solve()
    weight, bias = weights_of(state)
    logits = rows.z[300:] @ weight + bias
    truth = rows.y[300:]
    calibrated = torch.nn.functional.cross_entropy(logits, truth)
    plain = torch.nn.functional.cross_entropy(logits / state["temperature"], truth)
    assert calibrated < plain - 0.1


def test_generalized_cross_validation_is_the_formula_on_all_rows() -> None:
    rows = weighed(rows_with_numbers())
    y = targets(rows, is_class=False)
    path = path_of(rows, y)
    n = float(rows.s.sum())
    squares = float((rows.s * (y[:, 0] - path.y) ** 2).sum())

    residuals = rows.z - path.z
    d_inverse = torch.linalg.inv(
        residuals.T @ (rows.s[:, None] * residuals)
        + PENALTY * n * torch.eye(FEATURES).double()
    )
    hat = residuals @ d_inverse @ (residuals.T * rows.s) + rows.s / n
    error = (rows.s * (y[:, 0] - hat @ y[:, 0]) ** 2).sum() / n
    expected = error / (1 - hat.trace() / 60) ** 2
    outcome = validation_score(path, PENALTY, squares, rows=60)
    assert outcome == pytest.approx(float(expected), rel=1e-9)


def test_the_unit_of_weights_changes_nothing_that_is_chosen() -> None:
    rows = weighed(rows_with_numbers(12))
    for reveal in ("head", "path"):
        method = ClosedForm(reveal=reveal)
        choices = []
        for unit in (0.1, 1.0, 16.0):
            same = rows._replace(s=unit * rows.s)
            simulation = hospitals(same, method, [range(5), range(5, 12)], is_class=False)
            choices.append(simulation.solve())
        for state in choices[1:]:
            assert state["penalty"] == choices[0]["penalty"]
            assert_close(state["left_out"], choices[0]["left_out"], rtol=1e-6, atol=0)
            assert_close(state["w"], choices[0]["w"], rtol=0, atol=1e-6)


def test_where_the_head_alone_is_told_nothing_of_the_path_reaches_a_site() -> None:
    rows = rows_with_classes(200)
    simulation = hospitals(rows, ClosedForm(reveal="head"), [range(80), range(80, 200)])
    state = simulation.solve()
    asked = [function for function, _ in simulation.channel.replies]
    assert asked == ["totals", "fitted", "local"]
    by_path = hospitals(rows, ClosedForm(), [range(200)]).solve()
    weight, bias = weights_of(state)
    exact_weight, exact_bias = weights_of(by_path)
    agree = (rows.z @ weight + bias).argmax(1) == (
        rows.z @ exact_weight + exact_bias
    ).argmax(1)
    assert agree.double().mean() > 0.95


# -- the federation --------------------------------------------------------------------


def test_it_is_the_same_as_bytes() -> None:
    rows = rows_with_classes()
    plain = hospitals(rows, ClosedForm(), HALVES).solve()
    as_bytes = hospitals(rows, ClosedForm(), HALVES, carried=SerializingChannel).solve()
    assert torch.equal(as_bytes["w"], plain["w"])


def test_behind_masks_it_is_the_same_to_the_fixed_point() -> None:
    rows = rows_with_classes()
    parts = (range(0, 20), range(20, 40), range(40, 60))
    plain = hospitals(rows, ClosedForm(penalty=PENALTY), parts).solve()
    masked = hospitals(rows, ClosedForm(penalty=PENALTY), parts, secure=True).solve()
    weight, bias = weights_of(plain)
    masked_weight, masked_bias = weights_of(masked)
    assert masked["temperature"] == plain["temperature"]
    scale = float(plain["temperature"])
    assert_close(masked_weight / scale, weight / scale, rtol=0, atol=2.0**-30)
    assert_close(masked_bias / scale, bias / scale, rtol=0, atol=2.0**-30)


def test_a_withdrawn_label_leaves_no_trace() -> None:
    rows = rows_with_classes()
    never = hospitals(rows, ClosedForm(), [range(0, 24), range(25, 60)], pool=3)
    withdrawn = hospitals(rows, ClosedForm(), HALVES, pool=2)
    site = withdrawn.members["a"]
    site.reread([label for label in site.store.load_labels("a") if label.row != 24])
    assert torch.equal(withdrawn.solve()["w"], never.solve()["w"])


def test_a_corrected_label_is_as_if_it_had_been_right_from_the_start() -> None:
    rows = rows_with_classes()
    right = hospitals(rows, ClosedForm(), HALVES).solve()
    wrong = rows._replace(
        y=torch.where(torch.arange(60) == 3, (rows.y + 1) % CLASSES, rows.y)
    )
    simulation = hospitals(wrong, ClosedForm(), HALVES)
    site = simulation.members["a"]
    labels = site.store.load_labels("a")
    site.reread([label._replace(value=float(rows.y[label.row])) for label in labels])
    assert torch.equal(simulation.solve()["w"], right["w"])


def test_a_sites_own_head_is_that_of_its_rows_alone() -> None:
    rows = rows_with_classes()
    method = ClosedForm(penalty=PENALTY, local_head="own")
    simulation = hospitals(rows, method, HALVES)
    state = simulation.solve()
    part = rows._replace(z=rows.z[:25], y=rows.y[:25], s=rows.s[:25])
    head = head_of(path_of(part, targets(part)), PENALTY)
    weight, bias = weights_of(simulation.members["a"].memory["local"])
    assert_close(weight, state["temperature"] * head.weight, rtol=0, atol=1e-9)
    assert_close(bias, state["temperature"] * head.bias, rtol=0, atol=1e-9)


def test_the_server_keeps_what_was_chosen_and_deploys_the_model_alone() -> None:
    simulation = hospitals(rows_with_classes(), ClosedForm(), HALVES)
    state = simulation.solve()
    assert set(ClosedForm().deploy(state, {})) == {"w", "stats"}
    for site in simulation.members.values():
        assert set(site.memory["local"]) == {"w", "stats"}


# -- disclosure to the coordinator -----------------------------------------------------


def test_a_lone_row_is_read_off_the_plain_totals_of_its_site() -> None:
    rows = rows_with_classes()
    simulation = hospitals(rows, ClosedForm(), [[7], range(8, 60)])
    simulation.solve()
    seen = simulation.channel.of("totals")["a"]
    upper = torch.ones(FEATURES, FEATURES, dtype=torch.bool).triu()
    products = torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    products[upper] = torch.as_tensor(seen["products"])
    row = products[0] / products[0, 0].sqrt()
    recovered = row * torch.as_tensor(seen["features"])[0].sign()
    assert_close(recovered, rows.z[7], rtol=0, atol=1e-9)
    assert int(torch.as_tensor(seen["cross"])[0].abs().argmax()) == int(rows.y[7])


def test_secure_sums_hide_a_lone_row() -> None:
    rows = rows_with_classes()
    parts = [[7], range(8, 30), range(30, 60)]
    simulation = hospitals(rows, ClosedForm(penalty=PENALTY), parts, secure=True)
    simulation.solve()
    seen = simulation.channel.of("totals")["a"]
    open_simulation = hospitals(rows, ClosedForm(penalty=PENALTY), parts)
    open_simulation.solve()
    plain = open_simulation.channel.of("totals")["a"]
    shown = torch.cat([torch.as_tensor(part).double().flatten() for part in seen.values()])
    secret = torch.cat(
        [torch.as_tensor(part).double().flatten() for part in plain.values()]
    )
    assert len(shown) >= len(secret)
    shared = shown[: len(secret)]
    assert not torch.isclose(shared, secret, rtol=1e-3).any()
    link = torch.corrcoef(torch.stack([shared, secret]))[0, 1]
    assert link.abs() < 0.5


# -- unsupported settings --------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"penalty": 0.0}, "penalty is 0.0; it must be above 0"),
        ({"balance": "classes"}, "balance is 'classes'; it must be 'none' or 'class'"),
        ({"reveal": "all"}, "reveal is 'all'; it must be 'path' or 'head'"),
        ({"local_head": "site"}, "local_head is 'site'; it must be 'common' or 'own'"),
        ({"passes": 3}, "passes is 3; it must be 1 or 2"),
    ],
)
def test_a_wrong_field_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClosedForm(**fields)  # type: ignore[arg-type]  # wrong on purpose


def test_another_model_is_refused_with_the_way_out() -> None:
    simulation = hospitals(rows_with_classes(), ClosedForm(), HALVES)
    network = Layout.of(MLP((FEATURES,), CLASSES, hidden=(3,)))
    for site in simulation.members.values():
        site.parts = replace(site.parts, layout=network)
    with pytest.raises(RuntimeError, match=r"has body.1.weight, .*; set model=linear"):
        simulation.solve()


def test_two_closes_of_one_site_show_the_row_that_it_added() -> None:
    rows = rows_with_classes()
    parts = [range(0, 20), range(20, 40), range(40, 59)]
    before = hospitals(rows, ClosedForm(), parts)
    before.solve()
    after = hospitals(rows, ClosedForm(), [*parts[:2], range(40, 60)])
    after.solve()

    def products(simulation: Hospitals, site: str) -> Tensor:
        return torch.as_tensor(simulation.channel.of("totals")[site]["products"])

    difference = torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    upper = torch.ones(FEATURES, FEATURES, dtype=torch.bool).triu()
    difference[upper] = products(after, "c") - products(before, "c")
    row = difference[0] / difference[0, 0].sqrt()
    recovered = row * rows.z[59, 0].sign()
    assert_close(recovered, rows.z[59], rtol=0, atol=1e-8)


def test_secure_sums_show_no_difference_of_one_site() -> None:
    rows = rows_with_classes()
    parts = [range(0, 20), range(20, 40), range(40, 59)]
    seen = []
    for last in (range(40, 59), range(40, 60)):
        simulation = hospitals(
            rows, ClosedForm(penalty=PENALTY), [*parts[:2], last], secure=True
        )
        simulation.solve()
        parts_sent = simulation.channel.of("totals")["c"].values()
        seen.append(torch.cat([torch.as_tensor(p).double().flatten() for p in parts_sent]))
    difference = seen[1] - seen[0]
    expected = torch.outer(rows.z[59], rows.z[59])[0]
    # masks are new for each aggregate, so the rest is far larger than any product
    assert difference.abs().median() > 1e6 * expected.abs().max()


# -- refused instructions --------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"u": torch.ones(FEATURES, 1).double()}, "u has the shape"),
        ({"e": -torch.ones(FEATURES).double()}, "e is below 0"),
        ({"mass": torch.ones(1).double()}, "mass has the shape (1,) and not ()"),
        ({"ub": torch.full((FEATURES, CLASSES), torch.inf).double()}, "ub is NaN or inf"),
        ({"z": torch.zeros(FEATURES + 1).double()}, "z has the shape"),
    ],
)
def test_a_path_of_other_parts_is_refused(changed: dict[str, Tensor], message: str) -> None:
    rows = rows_with_classes()
    path = path_of(rows, targets(rows))
    known = SenderFacts({})
    assert find_wrong_argument(path_kinds(), path._asdict(), known) is None
    other = path._replace(**changed)._asdict()
    assert message in str(find_wrong_argument(path_kinds(), other, known))


def test_no_path_makes_one_row_outweigh_all_others() -> None:
    rows = rows_with_classes()
    y = targets(rows)
    path = path_of(rows, y)
    # e such that the example with the largest first coordinate nearly determines itself
    first = ((rows.z - path.z) @ path.u[:, 0]).abs().max()
    e = path.e.clone()
    e[0] = float(first.square()) / (1 - 1 / 60) * (1 + 1e-12)
    sharp = path._replace(e=e)
    path_losses = losses(sharp, rows.z, y, rows.s, [1e-15], is_class=True)
    assert float(path_losses["squared"][0]) <= 60 * CLASSES * MOST_AWAY**2
    block = next(leave_one_out(sharp, rows.z, y, rows.s, [1e-15]))
    assert float((block.outputs - y).abs().max()) > MOST_AWAY


SIZES = {"features": FEATURES, "classes": CLASSES, "outputs": CLASSES}


def refuse(function: str, **args: object) -> str | None:
    """Return why a site rejects arguments of a client function without self-training."""
    method = ClosedForm(reveal="head" if function == "fitted" else "path", unlabeled="off")
    takes = declared(method)[function].takes
    assert takes is not None
    return find_wrong_argument(takes, args, SenderFacts(SIZES, room=1e-6))


def test_weights_and_centers_that_were_not_agreed_on_are_refused() -> None:
    unused = "is given, which this study does not use"
    assert refuse("totals", weights=torch.eye(CLASSES)[0]) == f"weights {unused}"
    assert refuse("totals", center=torch.zeros(FEATURES)) == f"center {unused}"
    assert refuse("totals", folds=torch.zeros(CLASSES, 256)) == (
        "has the argument 'folds', and accepts weights, center"
    )
    assert refuse("totals", weights=None, center=None) is None


def test_a_site_answers_to_nothing_that_the_settings_never_ask() -> None:
    plain = partial(ClosedForm, unlabeled="off")
    assert set(plain().contract.disclosures) == {"totals", "left_out"}
    assert set(plain(reveal="head").contract.disclosures) == {"totals", "fitted"}
    everything = plain(balance="class", passes=2, local_head="own")
    assert set(everything.contract.disclosures) == {
        *("class_counts", "center", "totals", "left_out", "local"),
    }


@pytest.mark.parametrize("leverage", [-0.1, 1.1, torch.nan])
def test_a_leverage_that_is_none_is_refused(leverage: float) -> None:
    assert str(refuse("fitted", leverage=torch.tensor(leverage))).startswith("leverage is")
    assert refuse("fitted", leverage=torch.tensor(0.5)) is None


def test_no_head_makes_one_row_outweigh_all_others() -> None:
    """Check a classifier under which only the outermost example has a large residual."""
    method = ClosedForm(reveal="head")
    simulation = hospitals(rows_with_classes(), method, HALVES)
    view = SiteView(simulation.members["a"], 0)
    n = len(view.labels)
    weight = torch.zeros(FEATURES, CLASSES, dtype=torch.float64)
    weight[0] = 1e9
    bias = torch.zeros(CLASSES, dtype=torch.float64)
    sums = method.fitted(view, weight, bias, torch.tensor(0.0))
    assert float(torch.as_tensor(sums["squared"])) <= n * CLASSES * 100.0
    hottest = 1000.0
    bound_of_loss = n * (hottest * 21.0 + 10.0)
    assert float(torch.as_tensor(sums["log"]).max()) <= bound_of_loss


def test_a_site_without_labels_has_a_head_of_its_own_that_is_0() -> None:
    simulation = hospitals(
        rows_with_classes(), ClosedForm(local_head="own"), [[], range(60)]
    )
    simulation.solve()
    assert simulation.members["a"].memory["local"]["w"].abs().max() == 0
