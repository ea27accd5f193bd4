"""Leave-one-out predictions against models fitted again without each example."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import Ridge

from fallow.training.parts.leave_one_out import leave_each_out, margins
from tests.training.closed import Rows, rows_with_classes, rows_with_numbers, targets

PENALTY = 1e-2
CLOSE = 1e-8


def refit(rows: Rows, y: torch.Tensor, without: int | None = None) -> Ridge:
    """Fit with scikit-learn to all examples but one; λ n is that of all examples."""
    s = rows.s.clone()
    if without is not None:
        s[without] = 0.0
    is_in = s > 0
    model = Ridge(PENALTY * float(rows.s.sum()), solver="cholesky", tol=0)
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
