"""Boosted trees of sites against those of pooled examples, by loops and by scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from torch import Tensor
from torch.testing import assert_close

import fallow as fl
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.models.networks import Trees
from fallow.models.trees import TreeValues
from fallow.training.boosted_trees import (
    INTERVALS,
    assign_bins,
    choose_splits,
    choose_units,
    find_nodes,
    find_quartiles,
    join_intervals,
    list_knots,
)
from tests.each import each_of
from tests.training.closed import Hospitals, Rows, hospitals

DIVISIONS: dict[str, list[Sequence[int]]] = {
    "one site": [range(60)],
    "similar sites": [range(0, 60, 3), range(1, 60, 3), range(2, 60, 3)],
    "a site with one row": [range(59), [59]],
}
SMALL = fl.BoostedTrees(stages=3, depth=2, bins=8)


def rows_of(classes: int, n: int = 60, whole: bool = False) -> Rows:
    """Return examples of three columns, with weights; whole: columns of whole numbers."""
    draw = stream(0, "trees", classes)
    z = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    if whole:
        z = (3 * z).round()
    signal = z[:, 0] * z[:, 1] + z[:, 2]
    y = signal + torch.randn(n, generator=draw, dtype=torch.float64) / 3
    if classes:
        y = torch.bucketize(y, torch.linspace(-1, 1, classes + 1)[1:-1].double())
    return Rows(z, y, torch.rand(n, generator=draw, dtype=torch.float64) + 0.5)


def federate(
    rows: Rows,
    classes: int,
    division: str,
    method: fl.BoostedTrees = SMALL,
    secure: bool = False,
) -> Hospitals:
    model = Trees((3,), max(classes, 1), stages=method.stages, depth=method.depth)
    parts = DIVISIONS[division]
    return hospitals(
        rows, method, parts, is_class=classes > 0, secure=secure, pool=0, model=model
    )


def train(sites: Hospitals) -> Trees:
    """Return the model that the sites train."""
    state = sites.solve()
    parts = next(iter(sites.members.values())).parts
    model = parts.model
    assert isinstance(model, Trees)
    Layout.of(model).load(model, state)
    return model


# -- the obvious version ----------------------------------------------------------------------------


def gain_of(g: float, h: float, penalty: float) -> float:
    return g * g / (h + penalty)


def grow(
    bins: Tensor, g: Tensor, h: Tensor, at: list[int], depth: int, method: fl.BoostedTrees
) -> dict[int, float]:
    """Return the value of a tree for each of the rows ``at``."""
    whole = gain_of(float(g[at].sum()), float(h[at].sum()), method.penalty)
    splits: list[tuple[int, int, float]] = []
    for column in range(bins.shape[1]):
        for cut in range(method.bins - 1):
            low = [row for row in at if bins[row, column] <= cut]
            high = [row for row in at if bins[row, column] > cut]
            if min(float(h[low].sum()), float(h[high].sum())) < method.least:
                continue
            gain = sum(
                gain_of(float(g[part].sum()), float(h[part].sum()), method.penalty)
                for part in (low, high)
            )
            splits.append((column, cut, gain - whole))
    best = max((gain for _, _, gain in splits), default=0.0)
    if depth == 0 or best < 1e-6:
        value = (
            -method.shrinkage * float(g[at].sum()) / (float(h[at].sum()) + method.penalty)
        )
        return dict.fromkeys(at, value)
    ties = [(column, cut) for column, cut, gain in splits if gain > best - 1e-9]
    run = [ties[0]]
    while (run[0][0], run[-1][1] + 1) in ties:
        run.append((run[0][0], run[-1][1] + 1))
    column, cut = run[(len(run) - 1) // 2]
    values: dict[int, float] = {}
    for is_high in (False, True):
        part = [row for row in at if (bins[row, column] > cut) == is_high]
        values |= grow(bins, g, h, part, depth - 1, method)
    return values


def boost_pooled(rows: Rows, classes: int, method: fl.BoostedTrees) -> Tensor:
    """Return the outputs for all examples, by loops over rows, columns and cuts."""
    n = len(rows.y)
    s = rows.s
    bins = torch.stack([bins_of(column, method.bins) for column in rows.z.T], 1)
    if not classes:
        scores = ((s @ rows.y) / s.sum()).repeat(n, 1)
    else:
        shares = torch.bincount(rows.y, s, classes) / s.sum()
        scores = shares.log().repeat(n, 1)
    if classes == 2:
        scores = scores[:, 1:] - scores[:, :1]
    for _ in range(method.stages):
        added = torch.zeros_like(scores)
        for tree in range(scores.shape[1]):
            if not classes:
                g, h = scores[:, 0] - rows.y, torch.ones(n, dtype=torch.float64)
            else:
                p = scores.sigmoid() if classes == 2 else scores.softmax(1)
                own = rows.y == (1 if classes == 2 else tree)
                g, h = p[:, tree] - own.double(), p[:, tree] * (1 - p[:, tree])
            values = grow(bins, s * g, s * h, list(range(n)), method.depth, method)
            added[:, tree] = torch.tensor(
                [values[row] for row in range(n)], dtype=torch.float64
            )
        scores = scores + added
    if classes == 2:
        return torch.cat([-scores / 2, scores / 2], 1)
    return scores


@pytest.fixture(scope="module", params=[0, 2, 3], ids=["numbers", "two", "three"])
def pooled(request: pytest.FixtureRequest) -> tuple[int, Rows, Tensor]:
    """Return the number of classes, examples, and outputs of the obvious version."""
    classes: int = request.param
    rows = rows_of(classes)
    return classes, rows, boost_pooled(rows, classes, SMALL)


@pytest.mark.parametrize("division", DIVISIONS)
def test_trees_of_sites_are_those_of_pooled_examples(
    pooled: tuple[int, Rows, Tensor], division: str
) -> None:
    classes, rows, outputs = pooled
    model = train(federate(rows, classes, division))
    assert_close(model(rows.z), outputs, rtol=0, atol=1e-9)


def test_with_secure_aggregation_trees_are_the_same_up_to_rounding(
    pooled: tuple[int, Rows, Tensor],
) -> None:
    pytest.importorskip("cryptography")
    classes, rows, outputs = pooled
    model = train(federate(rows, classes, "similar sites", secure=True))
    assert_close(model(rows.z), outputs, rtol=0, atol=1e-7)


@each_of("classes", [0, 2, 3])
def test_trees_are_those_of_scikit_learn_on_the_same_bins(classes: int) -> None:
    rows = rows_of(classes, whole=True)
    rows = rows._replace(s=torch.ones(60, dtype=torch.float64))
    method = fl.BoostedTrees(stages=5, depth=3, least=1e-3, bins=64)
    model = train(federate(rows, classes, "similar sites", method))
    cls = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    theirs = cls(
        max_iter=5,
        max_depth=3,
        max_leaf_nodes=None,
        min_samples_leaf=1,
        l2_regularization=1.0,
        early_stopping=False,
    ).fit(rows.z.numpy(), rows.y.numpy())
    ours = model(rows.z)
    if classes:
        ours = ours.softmax(1)
        expected = theirs.predict_proba(rows.z.numpy())
    else:
        expected = theirs.predict(rows.z.numpy())[:, None]
    # its histograms are in float32
    assert_close(ours, torch.from_numpy(expected), rtol=0, atol=1e-5)


def test_boosting_goes_on_after_a_stage_without_a_split() -> None:
    rows = rows_of(2)
    method = fl.BoostedTrees(stages=6, depth=1, bins=8, least=6.0, shrinkage=0.9)
    model = train(federate(rows, 2, "similar sites", method))
    leaf = model.leaf.flatten(1)
    assert (leaf.amax(1) != leaf.amin(1)).tolist() == 3 * [True] + 3 * [False]
    assert_close(model(rows.z), boost_pooled(rows, 2, method), rtol=0, atol=1e-9)


# -- bins and splits --------------------------------------------------------------------------------


def bins_of(values: Tensor, bins: int) -> Tensor:
    """Return the bins of one column over examples with these values."""
    x = values.double()[:, None]
    units = choose_units(x.sum(0), x.square().sum(0), torch.tensor(float(len(x))))
    units = find_quartiles(count_in_intervals(x, *units), *units)
    edges = join_intervals(count_in_intervals(x, *units), *units, bins)
    return assign_bins(x, edges)[:, 0].long()


def count_in_intervals(x: Tensor, center: Tensor, unit: Tensor) -> Tensor:
    """Return the number of values in each interval, (1, INTERVALS), by a loop."""
    counts = torch.zeros(1, INTERVALS, dtype=torch.float64)
    for value in x[:, 0]:
        counts[0, int((list_knots() < (value - center) / unit).sum())] += 1
    return counts


@each_of(
    "values, bins, expected",
    [
        ([5.0, 5.0, 5.0], 64, [3]),  # a constant column
        ([0.0, 1.0, 1.0, 2.0], 64, [1, 2, 1]),
        ([1e12, 1e12 + 1e9, 1e12 + 2e9], 64, [1, 1, 1]),  # times
        ([*range(100)], 4, [25, 25, 25, 25]),
        ([*range(98), 1e6, 2e6], 4, [25, 25, 25, 25]),  # outliers
        ([0.0] * 60 + [1.0, 10.0, 1e3, 1e4], 8, [60, 1, 1, 1, 1]),  # mostly one value
    ],
)
def test_bins_have_equally_many_examples(
    values: list[float], bins: int, expected: list[int]
) -> None:
    counts = bins_of(torch.tensor(values, dtype=torch.float64), bins).bincount().tolist()
    assert len(counts) == len(expected)
    assert max(abs(a - b) for a, b in zip(counts, expected, strict=True)) <= 3
    if len(values) != 100:
        assert counts == expected


def test_rounding_of_sums_does_not_move_a_bin() -> None:
    sums = torch.tensor([30.1, 7.0]).double(), torch.tensor([106.0, 9.0]).double()
    rows = torch.tensor(10.0)
    for part, moved in zip(
        choose_units(*sums, rows),
        choose_units(sums[0] * (1 + 1e-9), sums[1] * (1 - 1e-9), rows),
        strict=True,
    ):
        assert torch.equal(part, moved)


def test_a_split_needs_the_smallest_sum_of_hessians_and_a_gain() -> None:
    sums = torch.zeros(2, 1, 1, 1, 4, dtype=torch.float64)
    sums[0, ..., :] = torch.tensor([-1.0, 0.0, 0.0, 1.0])
    sums[1, ..., :] = torch.tensor([1.0, 0.0, 0.0, 1.0])
    totals = sums.sum(-1)[..., 0]
    split = choose_splits(sums, totals, penalty=1.0, least=1.0)
    assert split.cut.item() == 1  # the middle of three equal cuts
    assert split.totals.flatten().tolist() == [-1.0, 1.0, 1.0, 1.0]
    for least, factor in ((1.01, 1.0), (1.0, 0.0)):
        none = choose_splits(sums * factor, totals * factor, penalty=1.0, least=least)
        assert none.cut.item() == 3
        assert none.totals.flatten()[:2].tolist() == [0.0, 0.0]


def test_rounding_of_sums_does_not_decide_between_equal_splits() -> None:
    sums = torch.ones(2, 1, 1, 2, 2, dtype=torch.float64)
    sums[0] = torch.tensor([-1.0, 1.0])
    sums[0, 0, 0, 1] *= 1 + 1e-12  # of the second column
    split = choose_splits(sums, sums[:, :, :, 0].sum(-1), penalty=1.0, least=0.1)
    assert split.column.item() == 0


def test_a_value_at_a_threshold_is_below_it_as_in_training() -> None:
    edges = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    trees = TreeValues.zeros(stages=1, sums=1, depth=1)
    trees.threshold[0] = 0.5
    trees.leaf[0] = torch.tensor([-1.0, 1.0])
    model = Trees((1,), 1, stages=1, depth=1).double()
    w = trees.flatten(torch.zeros(1, dtype=torch.float64), 1)
    Layout.of(model).load(model, {"w": w, "stats": w[:0]})
    x = torch.tensor([[0.4], [0.5], [0.6]], dtype=torch.float64)
    assert model(x).flatten().tolist() == [-1.0, -1.0, 1.0]
    assert assign_bins(x, edges).flatten().tolist() == [0, 0, 1]


# -- runs -------------------------------------------------------------------------------------------


def table(n: int = 120) -> fl.Dataset:
    """Return a table whose classes depend on an empty cell and another column."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    is_empty = rng.random(n) < 0.4
    frame["y"] = np.where(is_empty == (frame["b"] > 0), "yes", "no")
    frame.loc[is_empty, "a"] = np.nan
    return fl.from_frame(frame, label="y")


SHORT: dict[str, Any] = {
    "training": fl.BoostedTrees(stages=8, depth=2),
    "sites": 2,
    "partition": "iid",
    "cycles": 0,
    "initial": 40,
    "progress": False,
}


@pytest.fixture(scope="module")
def run() -> fl.Run:
    return fl.run(table(), "random", **SHORT)


def test_an_empty_cell_has_a_direction(run: fl.Run) -> None:
    assert run.records["accuracy"].iloc[-1] > 0.9


def test_a_saved_model_predicts_as_the_run_does(run: fl.Run, tmp_path: Path) -> None:
    x = table().x.numpy()
    again = fl.load_model(run.save(tmp_path))
    assert str(again.config.model) == "trees:stages=8:depth=2"
    assert np.array_equal(again.predict_proba(x), run.predict_proba(x))


def test_the_records_name_each_exchange_and_its_bytes(run: fl.Run) -> None:
    sent = {row["function"]: row for row in run.records.iloc[-1]["revealed"]}
    assert {"labels", "moments", "intervals", "start", "histograms"} <= sent.keys()
    exchanges = sent["histograms"]["exchanges"]
    assert exchanges <= 8 * 2
    assert sent["histograms"]["bytes"] <= exchanges * 2 * 2 * 8 * (2 * 4 * 64)


@each_of(
    "settings, sentence",
    [
        (
            {"strategy": "bald"},
            "bald does not support boosted-trees.*: decision trees have neither",
        ),
        ({"privacy": fl.Privacy(epsilon=1.0)}, "does not support local privacy"),
        (
            {"data": "diabetes", "target_scale": "none"},
            "target_scale is 'none', and boosted-trees.*; omit target_scale",
        ),
        ({"model": "mlp"}, "does not train mlp.*; set model=trees, or omit it"),
        (
            {"training": "fedavg", "model": "trees"},
            "fedavg does not train trees; set training=boosted-trees, or another model",
        ),
        ({"model": "trees:depth=5"}, "training boosted-trees.* determines its depth, 2"),
        (
            {"training": "boosted-trees:depth=9"},
            "depth is 9; it must be at least 1 and at most 8",
        ),
    ],
)
def test_what_trees_do_not_support_is_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    options = {"strategy": "random", **SHORT, **settings}
    data = options.pop("data", table())
    with pytest.raises(ValueError, match=sentence):
        fl.run(data, **options)


@each_of("strategy", ["margin", "entropy", "typical", "core-set"])
def test_strategies_of_predictions_and_columns_select(strategy: str) -> None:
    settings = {**SHORT, "cycles": 1, "budget": 3, "initial": 10}
    settings["training"] = fl.BoostedTrees(stages=2, depth=1)
    chosen = fl.run(table(), strategy, **settings)
    assert chosen.records["labeled"].tolist() == [20, 26]


def test_histograms_that_are_too_large_for_a_message_are_refused_before_labeling(
    tmp_path: Path,
) -> None:
    x = np.random.default_rng(0).normal(size=(400, 300)).astype(np.float32)
    data = fl.from_arrays(x, np.arange(400) % 2)
    settings = {**SHORT, "training": fl.BoostedTrees(depth=8), "initial": 0, "cycles": 1}
    with pytest.raises(ValueError, match=r"have 4,915,200 numbers.*; lower depth or bins"):
        fl.run(data, "random", out=tmp_path / "run", **settings)
    assert not list(tmp_path.rglob("*.sqlite*"))  # no run began


def test_a_site_refuses_a_tree_of_other_columns() -> None:
    column = torch.tensor([[3]])
    with pytest.raises(ValueError, match="a tree has column 3, and examples have 3"):
        find_nodes(torch.zeros(2, 3, dtype=torch.int64), column, column, level=1)


def test_without_a_label_the_model_is_as_before() -> None:
    rows = rows_of(2)
    rows = Rows(rows.z[:0], rows.y[:0], rows.s[:0])
    sites = hospitals(rows, SMALL, [[], []], model=Trees((3,), 2, stages=3, depth=2))
    assert float(sites.solve()["w"].abs().sum()) == 0


def test_a_class_without_a_label_is_not_predicted() -> None:
    rows = rows_of(3)
    rows = rows._replace(y=rows.y.clamp_max(1))
    outputs = train(federate(rows, 3, "similar sites"))(rows.z)
    assert bool((outputs[:, 2] < outputs[:, :2].amin(1) - 10).all())
    assert math.isfinite(float(outputs.sum()))
