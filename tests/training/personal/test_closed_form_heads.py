"""One closed-form classifier per site: against scikit-learn with repeated examples; κ."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import Ridge
from torch.testing import assert_close

from fallow.core.types import State
from fallow.training.parts.closed_form import Labeled
from fallow.training.parts.ridge import (
    add_up,
    centered,
    decompose,
    head_of,
    leave_one_out,
    mixed,
    solve_one,
)
from fallow.training.personal import ClosedFormHeads
from fallow.training.personal.closed_form_heads import COPIES, squared_loss
from tests.training.closed import (
    Rows,
    hospitals,
    rows_with_classes,
    rows_with_numbers,
    targets,
    weights_of,
)

PENALTY = 0.01
OWN, OTHERS = range(20), range(20, 60)


def part(rows: Rows, at: range) -> Rows:
    return Rows(*(row[list(at)] for row in rows))


def fitted(rows: Rows, copies: float, without: int | None = None) -> Ridge:
    """Fit scikit-learn's ridge with weight 1 + κ of own examples, without one example."""
    repeats = torch.ones(60, dtype=torch.float64)
    repeats[list(OWN)] += copies
    n = float(repeats.sum())
    if without is not None:
        repeats[without] = 0
    return Ridge(alpha=PENALTY * n, solver="svd").fit(
        rows.z.numpy(), targets(rows).numpy(), sample_weight=repeats.numpy()
    )


@pytest.mark.parametrize("copies", COPIES)
def test_more_copies_of_own_rows_are_rows_that_count_more(copies: float) -> None:
    rows = rows_with_classes()
    y = targets(rows)
    everybody = centered(add_up(rows.z, y, rows.s))
    own = part(rows, OWN)
    total = mixed(everybody, centered(add_up(own.z, targets(own), own.s)), copies)
    head = head_of(decompose(total), PENALTY)
    expected = fitted(rows, copies)
    assert_close(head.weight, torch.from_numpy(expected.coef_).T, rtol=0, atol=1e-10)
    assert_close(head.bias, torch.from_numpy(expected.intercept_), rtol=0, atol=1e-10)


@pytest.mark.parametrize("copies", [0.0, 4.0])
def test_a_row_is_left_out_with_all_its_copies(copies: float) -> None:
    rows = rows_with_classes()
    y = targets(rows)
    own = part(rows, OWN)
    own_y = targets(own)
    everybody = centered(add_up(rows.z, y, rows.s))
    total = mixed(everybody, centered(add_up(own.z, own_y, own.s)), copies)
    result = squared_loss(solve_one(total, PENALTY), Labeled(own.z, own_y, own.s), copies)
    expected = 0.0
    for row in OWN:
        without = fitted(rows, copies, without=row)
        predicted = torch.from_numpy(without.predict(rows.z[row : row + 1].numpy()))[0]
        expected += float((y[row] - predicted).square().sum())
    assert result == pytest.approx(expected, rel=1e-9)


def test_a_site_like_all_others_keeps_close_to_the_common_head() -> None:
    rows = rows_with_classes()
    simulation = hospitals(rows, ClosedFormHeads(penalty=PENALTY), [OWN, OTHERS])
    simulation.solve()
    assert float(simulation.members["a"].memory["head"]["copies"]) <= 4


def test_a_site_whose_labels_mean_something_else_goes_its_own_way() -> None:
    rows = rows_with_classes(120)
    turned = rows._replace(y=torch.where(torch.arange(120) < 40, 3 - rows.y, rows.y))
    method = ClosedFormHeads(penalty=PENALTY)
    simulation = hospitals(turned, method, [range(40), range(40, 120)])
    state = simulation.solve()
    kept = simulation.members["a"].memory["head"]
    assert float(kept["copies"]) >= 64

    z, y = turned.z[:40], turned.y[:40]

    def accuracy(model: State) -> float:
        weight, bias = weights_of(model)
        return float(((z @ weight + bias).argmax(1) == y).double().mean())

    deployed = method.deploy(state, simulation.members["a"].memory)
    assert accuracy(deployed) > accuracy(state) + 0.2


def test_a_site_with_fewer_than_two_labels_has_the_common_head() -> None:
    rows = rows_with_classes()
    simulation = hospitals(rows, ClosedFormHeads(), [[0], range(1, 60), []])
    state = simulation.solve()
    for name in ("a", "c"):
        kept = simulation.members[name].memory["head"]
        assert float(kept["copies"]) == 0
        assert_close(kept["w"], state["w"], rtol=0, atol=1e-9)


def test_numbers_have_heads_too() -> None:
    rows = rows_with_numbers()
    simulation = hospitals(rows, ClosedFormHeads(), [OWN, OTHERS], is_class=False)
    state = simulation.solve()
    weight, bias = weights_of(
        ClosedFormHeads().deploy(state, simulation.members["a"].memory), 1
    )
    away = (rows.z @ weight + bias)[:, 0] - rows.y
    assert away.square().mean() < 0.5


def test_without_a_label_anywhere_the_model_stays() -> None:
    simulation = hospitals(rows_with_classes(), ClosedFormHeads(), [[], []])
    state = simulation.solve()
    assert state["w"].abs().max() == 0
    assert (
        ClosedFormHeads().deploy(state, simulation.members["a"].memory)["w"] is state["w"]
    )


def test_nothing_but_the_sums_of_the_common_head_leaves_a_site() -> None:
    simulation = hospitals(rows_with_classes(), ClosedFormHeads(), [OWN, OTHERS])
    simulation.solve()
    kept = [
        set(result["a"])
        for function, result in simulation.channel.replies
        if function == "head"
    ]
    assert kept == [{"count"}]
    assert {function for function, _ in simulation.channel.replies} == {
        "totals",
        "left_out",
        "head",
    }


@pytest.mark.parametrize("penalty", [1e-18, 1e-6, 1.0])
def test_one_penalty_is_solved_as_on_the_path_of_all(penalty: float) -> None:
    rows = rows_with_classes()
    y = targets(rows)
    total = centered(
        add_up(rows.z.repeat(1, 2), y, rows.s)
    )  # duplicate columns: no Cholesky factor
    path = decompose(total)
    expected = head_of(path, max(penalty, 1e-6))
    result = solve_one(total, max(penalty, 1e-6)).head()
    assert_close(result.weight, expected.weight, atol=1e-6, rtol=1e-6)

    singular = solve_one(total, penalty)
    assert bool(singular.half.isfinite().all())
    left_out = next(leave_one_out(path, rows.z.repeat(1, 2), y, rows.s, [penalty]))
    at, outputs, _ = next(singular.leave_one_out(rows.z.repeat(1, 2), y, rows.s))
    assert torch.equal(at, left_out.rows)
    if penalty >= 1e-6:
        assert_close(outputs, left_out.outputs, atol=1e-6, rtol=1e-6)
