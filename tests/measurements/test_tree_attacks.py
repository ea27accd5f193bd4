"""Attack on boosted trees: from exact sums by column and bin to the bins of examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.testing import assert_close

import fallow as fl
from fallow.measurements.results import AttackResult
from fallow.measurements.tree_attacks import (
    UNKNOWN,
    TreeLabels,
    count_first,
    list_sums,
    read_bins,
    subtract,
)
from tests.each import each_of
from tests.measurements.test_disclosure import patients
from tests.training.test_boosted_trees import SMALL, federate, rows_of


@each_of("classes", [0, 2, 3])
def test_the_attacked_sums_are_those_that_sites_send(classes: int) -> None:
    rows = rows_of(classes)._replace(s=torch.ones(60, dtype=torch.float64))
    sites = federate(rows, classes, "similar sites")
    state = sites.solve()
    sent = [
        replies for function, replies in sites.channel.replies if function == "histograms"
    ]
    roots = [
        replies
        for replies in sent
        if torch.as_tensor(replies["a"]["gradients"]).shape[1] == 1
    ]
    edges = sites.members["a"].memory["start"]["edges"]
    labels = TreeLabels(rows.z.float(), rows.y)
    sums = list_sums(SMALL, labels, classes, edges, state)
    position = 1
    for replies in roots:
        for name in ("gradients", "hessians"):
            total = sum(torch.as_tensor(reply[name])[:, 0] for reply in replies.values())
            assert isinstance(total, torch.Tensor)
            computed = torch.from_numpy(sums.sums[position : position + len(total)])
            assert_close(computed, total, rtol=1e-5, atol=1e-5)
            position += len(total)
    assert position == len(sums.sums)
    # numbers of examples follow from the sums of the first stage
    p = 1.0
    if classes:
        p = float(torch.bincount(rows.y)[classes - 1] / 60)
    hessians = sum(torch.as_tensor(r["hessians"])[-1, 0] for r in roots[0].values())
    gradients = sum(torch.as_tensor(r["gradients"])[-1, 0] for r in roots[0].values())
    counts = hessians / (p * (1 - p) if classes else 1)
    first = torch.from_numpy(count_first(labels, classes, edges).sums)
    assert_close(first[0], counts, atol=1e-6, rtol=1e-6)
    if classes:
        assert_close(first[-1], p * counts - gradients, atol=1e-6, rtol=1e-6)


def test_examples_with_gradients_of_their_own_are_linked_over_all_columns() -> None:
    draw = np.random.default_rng(0)
    bins = draw.integers(0, 4, (6, 5))
    bins[:, 0] = [0, 1, 2, 3, 4, 5]  # all alone in one column
    own = np.concatenate([np.ones((6, 1)), draw.standard_normal((6, 8))], 1)
    sums = np.zeros((9, 5, 6))
    for row, at in enumerate(bins):
        for column, chosen in enumerate(at):
            sums[:, column, chosen] += own[row]
    computed = read_bins(sums, 6)
    assert sorted(computed.tolist()) == sorted(bins.tolist())
    assert read_bins(sums + 1e-3 * draw.standard_normal(sums.shape), 6).shape[1] == 5


def test_examples_that_are_never_alone_follow_from_those_beside_them() -> None:
    draw = np.random.default_rng(0)
    bins = np.tile(np.arange(8)[:, None], (1, 6))
    for column in range(6):  # the last two share the bins of others
        bins[6, column] = column
        bins[7, column] = (column + 1) % 6
    p = draw.random((8, 10))
    gradients = p - draw.integers(0, 2, (8, 1))
    stages = np.stack([gradients, p * (1 - p)], 2).reshape(8, 20)
    own = np.concatenate([np.ones((8, 1)), stages], 1)
    sums = np.zeros((21, 6, 8))
    for row, at in enumerate(bins):
        for column, chosen in enumerate(at):
            sums[:, column, chosen] += own[row]
    assert sorted(read_bins(sums, 8, 1).tolist()) == sorted(bins.tolist())
    assert len(read_bins(sums, 8)) == 6


def test_examples_with_equal_gradients_are_not_linked() -> None:
    """Two examples of a class are known by column only, and one alone in its class wholly."""
    labels = TreeLabels(
        torch.tensor([[0.0, 5.0], [1.0, 6.0], [2.0, 7.0]]), torch.tensor([0, 0, 1])
    )
    edges = torch.tensor([[0.5, 1.5], [5.5, 6.5]]).double()
    first = count_first(labels, 2, edges)
    computed = read_bins(first.sums, first.rows)
    assert [2, 2] in computed.tolist()
    assert computed.tolist().count([UNKNOWN, UNKNOWN]) == 2


def test_the_difference_of_first_sums_shows_an_example_that_was_added() -> None:
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.standard_normal((12, 4)))
    y = torch.from_numpy(draw.integers(0, 2, 12))
    edges = torch.from_numpy(np.sort(draw.standard_normal((4, 7)), axis=1))
    earlier = TreeLabels(x[:11], y[:11])
    later = TreeLabels(x, y)
    before = count_first(earlier, 2, edges)
    after = count_first(later, 2, edges)
    added, labels = subtract(before, after, earlier, later)
    assert labels.x.tolist() == x[11:].tolist()
    assert read_bins(added.sums, added.rows).tolist() == added.bins.tolist()


def measure(**settings: Any) -> dict[str, AttackResult]:
    run = fl.run(
        fl.Federation(patients(), fl.IID(), sites=3),
        fl.Random(),
        training=fl.BoostedTrees(stages=30),
        progress=False,
        measure=["disclosure"],
        **settings,
    )
    attacks: list[AttackResult] = run.records["disclosure"].iloc[-1]
    return {attack["attack"]: attack for attack in attacks}


def test_examples_of_a_study_are_read_from_the_sums_of_its_trees() -> None:
    attacks = measure(initial=4, budget=1, cycles=1)
    whole = attacks["sums of all trees"]
    assert (whole["rows"], whole["read"]) == (15, 3)  # the others are in the same leaves
    assert whole["error"] is not None and whole["error"] < 0.1
    assert attacks["first sums"]["rows"] == 12
    assert attacks["first sums"]["read"] < 12
    assert attacks["difference of first sums"]["rows"] == 3


def test_targets_link_columns_from_the_first_tree_on() -> None:
    data = patients()
    ages = fl.from_arrays(data.x[:, 1:].numpy(), data.x[:, 0].numpy())
    run = fl.run(
        fl.Federation(ages, fl.IID(), sites=3),
        fl.Random(),
        training=fl.BoostedTrees(stages=5),
        progress=False,
        measure=["disclosure"],
        initial=4,
        cycles=0,
    )
    attacks: list[AttackResult] = run.records["disclosure"].iloc[-1]
    first = attacks[0]
    assert (first["attack"], first["rows"], first["read"]) == ("first sums", 12, 12)
