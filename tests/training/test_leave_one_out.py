"""Leave-one-out predictions against models fitted again without each example."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.linear_model import Ridge

from fallow.core.methods import LABEL_RANKS
from fallow.training import ClosedForm
from fallow.training.parts.leave_one_out import leave_each_out, margins
from tests.training.closed import (
    Rows,
    hospitals,
    rows_with_classes,
    rows_with_numbers,
    targets,
)

PENALTY = 1e-2
CLOSE = 1e-8


def refit(
    rows: Rows, y: torch.Tensor, without: int | None = None, penalty: float = PENALTY
) -> Ridge:
    """Fit with scikit-learn to all examples but one; λ n is that of all examples."""
    s = rows.s.clone()
    if without is not None:
        s[without] = 0.0
    is_in = s > 0
    model = Ridge(penalty * float(rows.s.sum()), solver="cholesky", tol=0)
    return model.fit(rows.z[is_in].numpy(), y[is_in].numpy(), s[is_in].numpy())


def outputs_of(model: Ridge, z: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(model.predict(z.numpy())).view(len(z), -1)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("is_class", [True, False])
def test_residuals_are_those_of_models_fitted_again(
    is_class: bool, is_weighted: bool
) -> None:
    rows = rows_with_classes(40) if is_class else rows_with_numbers(40)
    rows = rows._replace(z=rows.z + 50)  # means far from 0
    if is_weighted:
        draw = torch.Generator().manual_seed(1)
        rows = rows._replace(s=torch.rand(40, generator=draw).double() * 3 + 0.1)
    y = targets(rows, is_class)
    left_out = leave_each_out(rows.z, y, rows.s, PENALTY)
    whole = refit(rows, y)
    for row in range(len(y)):
        model = refit(rows, y, without=row)
        output = outputs_of(model, rows.z[row : row + 1])[0]
        assert torch.allclose(left_out.outputs[row], output, rtol=0, atol=CLOSE)

        others = torch.arange(len(y)) != row
        errors = (y - outputs_of(model, rows.z))[others].square()
        weights = torch.from_numpy(model.coef_).view(y.shape[1], -1)
        minimum = rows.s[others] @ errors
        minimum += PENALTY * rows.s.sum() * weights.square().sum(1)
        residual = y[row] - output
        left = (y[row] - outputs_of(whole, rows.z[row : row + 1])[0]) / residual  # 1 - h
        away = residual * (rows.s[row] * left / (minimum / (len(y) - 2))).sqrt()
        assert torch.allclose(left_out.away[row], away, rtol=0, atol=CLOSE)


def test_a_margin_is_positive_only_for_the_predicted_class() -> None:
    outputs = torch.tensor([[0.1, 0.9, 0.2], [0.1, 0.9, 0.2], [0.5, 0.4, 0.1]])
    values = margins(outputs, torch.tensor([1, 2, 0]))
    assert values.tolist() == pytest.approx([0.7, -0.7, 0.1])


def test_without_any_residual_the_studentized_ones_are_0() -> None:
    left_out = leave_each_out(torch.eye(5), torch.zeros(5, 1), torch.ones(5), PENALTY)
    assert left_out.away.tolist() == [[0.0]] * 5


# -- at the sites --------------------------------------------------------------------------

PARTS = [range(25), range(25, 58), [], range(58, 60)]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("is_class", [True, False])
def test_each_site_ranks_its_own_labels_as_a_simulation_does(
    is_class: bool, secure: bool
) -> None:
    rows = rows_with_classes() if is_class else rows_with_numbers()
    draw = torch.Generator().manual_seed(1)
    rows = rows._replace(s=torch.rand(60, generator=draw).double() * 3 + 0.1)
    simulation = hospitals(
        rows, ClosedForm(label_ranks=True), PARTS, is_class=is_class, secure=secure
    )
    penalty = float(simulation.solve()["penalty"])
    y = targets(rows, is_class)
    left_out = leave_each_out(rows.z, y, rows.s, penalty)
    for part, site in zip(PARTS, simulation.members.values(), strict=True):
        ranks = site.memory[LABEL_RANKS]
        at = torch.tensor(list(part), dtype=torch.int64)
        if is_class:
            scores = margins(left_out.outputs[at], rows.y[at])
            order = scores.argsort()[: int((scores < 0).sum())]
            predicted = left_out.outputs[at[order]].argmax(1).double()
        else:
            order = left_out.away[at, 0].abs().argsort(descending=True)
            predicted = left_out.outputs[at[order], 0]
        assert ranks["rows"].tolist() == order.tolist()
        assert torch.allclose(ranks["predicted"], predicted, rtol=0, atol=CLOSE)
        for position, value in zip(order.tolist()[:3], ranks["predicted"], strict=False):
            model = refit(rows, y, without=int(at[position]), penalty=penalty)
            output = outputs_of(model, rows.z[at[position]][None])[0]
            expected = output.argmax().double() if is_class else output[0]
            assert float(value) == pytest.approx(float(expected), abs=CLOSE)
    replies = [
        function
        for function, replies in simulation.channel.replies
        if function == LABEL_RANKS
    ]
    assert len(replies) == 1
    counts = simulation.channel.of(LABEL_RANKS).values()
    assert all(set(reply) == {"count"} for reply in counts)


@pytest.mark.parametrize("wrong", [{"reveal": "head"}, {"delta": 1e-5}])
def test_labels_are_ranked_only_with_the_solutions_at_the_sites(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"omit label_ranks \(federation.checked_labels\)"):
        ClosedForm(**wrong).with_label_ranks()
