"""Predictions without the group of an example, against models fitted again."""

from __future__ import annotations

import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from fallow.core.streams import stream
from fallow.sites.view import SiteView
from fallow.training import ClosedForm
from fallow.training.parts.ridge import (
    add_up,
    centered,
    decompose,
    leave_groups_out,
    leave_one_out,
    losses,
    solve_one,
    split_groups,
)
from tests.each import each_of
from tests.training.closed import (
    CLASSES,
    FEATURES,
    hospitals,
    rows_with_classes,
    rows_with_numbers,
    targets,
)

PENALTIES = [1e-3, 1e-1]
N = 60
GROUPINGS = {
    "more examples than features": torch.arange(N) // 20,
    "different sizes": torch.arange(N).sqrt().long() * 7,
}


def refit(z: Tensor, y: Tensor, s: Tensor, is_out: Tensor, penalty: float) -> Tensor:
    """Return the outputs for left-out examples; λ n is that of all examples."""
    model = Ridge(penalty * float(s.sum()), solver="cholesky", tol=0)
    is_in = ~is_out
    model.fit(z[is_in].numpy(), y[is_in].numpy(), s[is_in].numpy())
    outputs = torch.from_numpy(model.predict(z[is_out].numpy()))
    return outputs.view(int(is_out.sum()), -1)


@each_of("what, is_class", zip(GROUPINGS, (0, 1), strict=True))
def test_outputs_are_those_of_models_fitted_without_the_group(
    what: str, is_class: int
) -> None:
    rows = rows_with_classes(N) if is_class else rows_with_numbers(N)
    draw = stream(1, "weights")
    order = torch.randperm(N, generator=draw)
    z = rows.z[order] + 20
    y = targets(rows, bool(is_class))[order]
    s = torch.rand(N, generator=draw, dtype=torch.float64) + 0.1
    groups = GROUPINGS[what][torch.randperm(N, generator=draw)]
    total = centered(add_up(z, y, s))
    outputs = torch.zeros(len(PENALTIES), *y.shape, dtype=torch.float64)
    for block in leave_groups_out(decompose(total), z, y, s, PENALTIES, groups):
        outputs[block.penalty, block.rows] = block.outputs
    alone = torch.zeros_like(outputs[0])
    for at, out, _ in solve_one(total, PENALTIES[1]).leave_one_out(z, y, s, groups):
        alone[at] = out
    for index, penalty in enumerate(PENALTIES):
        for group in torch.unique(groups):
            is_out = groups == group
            again = refit(z, y, s, is_out, penalty)
            torch.testing.assert_close(outputs[index, is_out], again, rtol=0, atol=1e-7)
    torch.testing.assert_close(alone, outputs[1], rtol=0, atol=1e-7)


def test_groups_of_one_example_are_leave_one_out() -> None:
    rows = rows_with_classes(N)
    y = targets(rows)
    path = decompose(centered(add_up(rows.z, y, rows.s)))
    plain = losses(path, rows.z, y, rows.s, PENALTIES, is_class=True)
    grouped = losses(
        path, rows.z, y, rows.s, PENALTIES, is_class=True, groups=torch.arange(N)
    )
    for name, values in plain.items():
        torch.testing.assert_close(grouped[name], values, rtol=1e-9, atol=1e-9)
    single = next(leave_one_out(path, rows.z, y, rows.s, PENALTIES))
    many = next(leave_groups_out(path, rows.z, y, rows.s, PENALTIES, torch.arange(N)))
    torch.testing.assert_close(single.left, many.left[many.rows.argsort()])


def test_one_group_of_all_examples_has_bounded_losses() -> None:
    rows = rows_with_classes(N)
    y = targets(rows)
    path = decompose(centered(add_up(rows.z, y, rows.s)))
    one = torch.zeros(N, dtype=torch.int64)
    value = losses(path, rows.z, y, rows.s, PENALTIES, is_class=True, groups=one)
    assert all(bool(loss.isfinite().all()) for loss in value.values())
    assert [len(rows) for rows in split_groups(one)] == [1]


def test_near_duplicates_no_longer_choose_too_small_a_penalty() -> None:
    draw = stream(0, "patients")
    means = torch.randn(12, FEATURES, generator=draw, dtype=torch.float64)
    y = torch.randint(CLASSES, (12,), generator=draw).repeat_interleave(10)
    noise = torch.randn(120, FEATURES, generator=draw, dtype=torch.float64)
    z = means.repeat_interleave(10, 0) + 0.01 * noise
    rows = rows_with_classes(120)._replace(z=z, y=y)
    sites = hospitals(rows, ClosedForm(), [range(120)])
    alone = sites.solve()
    for site in sites.members.values():
        groups = torch.arange(12).repeat_interleave(10)
        site.groups = torch.cat([groups, torch.tensor([98, 99])])
    together = sites.solve()
    assert float(together["left_out"]) < float(alone["left_out"]) - 0.2
    assert float(together["penalty"]) > float(alone["penalty"])


def test_a_view_has_the_groups_of_each_kind_of_examples() -> None:
    site = hospitals(rows_with_classes(4), ClosedForm(), [range(4)]).members["a"]
    assert SiteView(site, 0).groups() is None
    site.groups = torch.tensor([5, 5, 6, 6, 7, 8])
    view = SiteView(site, 0)
    groups = [view.groups("labeled"), view.groups("pool"), view.groups("validation")]
    assert [part.tolist() for part in groups if part is not None] == [
        [5, 5, 6, 6],
        [7, 8],
        [],
    ]
