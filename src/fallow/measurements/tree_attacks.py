"""Attack on boosted trees: bins of labeled examples from the sums of the first node of all trees.

Examples of a class have equal gradients in the first stage, so its sums are numbers of examples of
each class by column and bin.  Later, examples in different leaves have different gradients.  An
example that is alone in a bin shows its gradients of all stages there, and the bins of the other
columns in which it is follow from these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fallow.core.methods import TrainingAlgorithm
from fallow.core.model_vectors import Layout
from fallow.core.types import State
from fallow.measurements.attacks import Array, Mask, Order
from fallow.measurements.disclosure import Attempt, compare_values, units_of
from fallow.models.networks import Trees
from fallow.models.trees import BINARY, count_sums
from fallow.training.boosted_trees import (
    BoostedTrees,
    assign_bins,
    differentiate,
    sum_by_bin,
)

UNKNOWN = -1
"""Bin that an attack has not computed."""
SAME = 1e-6
"""Difference of two sums of equal gradients, relative to the largest sum of this kind."""
NEARLY_WHOLE = 0.1
"""Distance from a whole number up to which a number of examples is one."""
MOST_CHOICES = 20_000
"""Largest number of sets of examples that are tried for one bin."""
ALL_TREES = "sums of all trees"
FIRST_TREE = "first sums"
DIFFERENCE = "difference of first sums"


class TreeLabels(NamedTuple):
    """Labeled examples of one training phase: x (n, d), and classes or targets y (n,)."""

    x: Tensor
    y: Tensor


class TreeSums(NamedTuple):
    """Sums by column and bin, (k, d, B), with the true bins (n, d).  The first are numbers of examples.

    rows: number of examples.
    """

    sums: Array
    bins: Order
    rows: int


def attack_trees(
    training: TrainingAlgorithm,
    phases: Sequence[TreeLabels],
    classes: int,
    edges: Tensor,
    state: State | None,
    everything: Tensor,
) -> list[Attempt]:
    """Attack the sums of training phases of boosted trees, from the first one.

    Parameters
    ----------
    phases : sequence of TreeLabels
        Labeled examples of each phase.
    classes : int
        Number of classes; 0 for regression.
    edges : Tensor of shape (d, B - 1)
        Upper ends of bins.
    state : State or None
        Model of the last phase.  Without it, only the first sums of a phase are attacked.
    everything : Tensor of shape (N, d)
        All examples.  The value of a bin is their mean there, which an attacker knows within the
        intervals of the column.
    """
    if not isinstance(training, BoostedTrees):
        raise TypeError(f"{training} does not grow trees by sums of gradients")
    firsts = [count_first(labels, classes, edges) for labels in phases]
    observed = [(FIRST_TREE, firsts[0], phases[0])]
    for before, after in pairwise(range(len(phases))):
        added, labels = subtract(
            firsts[before], firsts[after], phases[before], phases[after]
        )
        if after == len(phases) - 1 and added.rows:
            observed.append((DIFFERENCE, added, labels))
    if state is not None:
        sums = list_sums(training, phases[-1], classes, edges, state)
        observed.append((ALL_TREES, sums, phases[-1]))
    columns = everything.double().numpy()
    center, unit = units_of(columns, columns.shape[1:])
    means = find_means(columns, assign_bins(everything.double(), edges).long().numpy())
    attempts = []
    for name, sums, labels in observed:
        started = time.process_time()
        trees = count_sums(classes) if classes and name == ALL_TREES else 0
        bins = read_bins(sums.sums, sums.rows, trees)
        rows = (labels.x.double().numpy() - center) / unit
        values = (list_values(bins, means, center) - center) / unit
        is_read = (bins[None] == sums.bins[:, None]).all(2).any(1)
        attempts.append(
            compare_values(name, values, rows, sums.sums.size, started, is_read=is_read)
        )
    return attempts


def read_edges(memory: Mapping[str, State]) -> Tensor | None:
    """Return the upper ends of bins (d, B - 1) in the memory of a site; None before training."""
    return memory.get("start", {}).get("edges")


# -- sums that are sent -----------------------------------------------------------------------


def count_first(labels: TreeLabels, classes: int, edges: Tensor) -> TreeSums:
    """Return numbers of examples, of each class or with sums of targets, by column and bin.

    With p, the first prediction, the sums of hessians are p (1 - p) times the numbers of examples,
    and those of gradients are p times these minus the numbers of a class.
    """
    values = labels.y.double()[:, None]
    if classes:
        values = torch.nn.functional.one_hot(labels.y.long(), classes).double()
    return _add_up(labels, [values], edges)


def list_sums(
    training: BoostedTrees, labels: TreeLabels, classes: int, edges: Tensor, state: State
) -> TreeSums:
    """Return numbers of examples and the sums of gradients and hessians of all stages."""
    model = Trees(
        labels.x.shape[1:], max(classes, 1), stages=training.stages, depth=training.depth
    )
    Layout.of(model).load(model, state)
    bias = model.head.bias.detach().double()
    baseline = bias[1:] - bias[:1] if classes == BINARY else bias
    added = model.list_values(labels.x.to(model.leaf.dtype)).double()  # (n, stages, trees)
    has_grown = (model.leaf != 0).flatten(1).any(1)
    last = int(has_grown.nonzero().max()) + 1 if bool(has_grown.any()) else 1
    values = []
    scores = baseline.repeat(len(labels.x), 1)
    for stage in range(min(last + 1, training.stages)):
        values += list(differentiate(scores, labels.y, classes))
        scores = scores + added[:, stage]
    return _add_up(labels, values, edges)


def _add_up(labels: TreeLabels, values: Sequence[Tensor], edges: Tensor) -> TreeSums:
    """Return sums of a 1 and of values (n, k) by column and bin."""
    bins = assign_bins(labels.x.double(), edges).long()
    together = torch.cat([torch.ones(len(bins), 1, dtype=torch.float64), *values], 1)
    node = torch.zeros(len(bins), together.shape[1], dtype=torch.int64)
    sums = sum_by_bin(bins, node, together, 1, edges.shape[1] + 1)[:, 0]
    return TreeSums(sums.numpy(), bins.numpy(), len(bins))


def subtract(
    before: TreeSums, after: TreeSums, earlier: TreeLabels, later: TreeLabels
) -> tuple[TreeSums, TreeLabels]:
    """Return the first sums of the examples that were added, and these examples."""
    known = {row.numpy().tobytes() for row in earlier.x}
    is_new = torch.tensor([row.numpy().tobytes() not in known for row in later.x])
    added = TreeLabels(later.x[is_new], later.y[is_new])
    difference = after.sums - before.sums
    rows = after.rows - before.rows
    return TreeSums(difference, after.bins[is_new.numpy()], rows), added


# -- attack -----------------------------------------------------------------------------------


def read_bins(sums: Array, rows: int, trees: int = 0) -> Order:
    """Return the bins of examples, (m, d), from sums by column and bin, (k, d, B).

    Unknown ones are `UNKNOWN`.  The first sums are numbers of examples.  trees: number of trees of a
    stage whose sums of gradients and of hessians follow, if they are those of classes.
    """
    size = np.abs(sums).max(axis=(1, 2))
    size = np.where(size > 0, size, 1.0)
    scaled = sums / size[:, None, None]
    numbers = np.rint(sums[0])

    def is_example(vectors: Array) -> Mask:
        """A gradient is p or p - 1, and the hessian p (1 - p)."""
        of_stages = (vectors * size)[:, 1:].reshape(len(vectors), -1, 2, trees)
        length = np.abs(of_stages[:, :, 0])
        away = np.abs(of_stages[:, :, 1] - length * (1 - length))
        return np.asarray((away < SAME * rows).all((1, 2)))

    marks, times = find_marks(scaled, numbers, rows, is_example if trees else None)
    bins = np.full((int(times.sum()), sums.shape[1]), UNKNOWN)
    if not len(marks):
        return bins
    of_mark = np.repeat(np.arange(len(marks)), times)
    solver = np.linalg.pinv(marks.T)  # (m, k)
    for column in range(sums.shape[1]):
        of_column = scaled[:, column]  # (k, B)
        counts = solver @ of_column  # numbers of examples with each mark in each bin
        whole = np.rint(counts)
        is_solved = (
            bool((np.abs(counts - whole) < NEARLY_WHOLE).all())
            and bool((np.abs(marks.T @ whole - of_column) < SAME * rows).all())
            and bool((whole.sum(1) == times).all())
        )
        if not is_solved:
            whole = find_members(marks, times, of_column, numbers[column])
        in_one_bin = (whole > 0).sum(1) == 1
        is_known = (in_one_bin & (whole.sum(1) == times))[of_mark]
        bins[is_known, column] = whole.argmax(1)[of_mark][is_known]
    return bins


def find_marks(
    scaled: Array,
    numbers: Array,
    rows: int,
    is_example: Callable[[Array], Mask] | None = None,
) -> tuple[Array, Order]:
    """Return the different sums of single examples, (m, k), and the number of examples with each.

    scaled: sums (k, d, B).  numbers (d, B): examples in each bin.  is_example: which sums (m, k) can
    be those of a single example; None if this is not known.
    """
    marks = np.zeros((0, len(scaled)))
    times = np.zeros(0, dtype=int)
    for column, of_column in enumerate(numbers):
        here = np.zeros(len(marks), dtype=int)
        for vector in scaled[:, column, of_column == 1].T:
            equal = np.flatnonzero((np.abs(marks - vector) < SAME).all(1))
            if len(equal):
                here[equal[0]] += 1
            else:
                marks = np.concatenate([marks, vector[None]])
                times = np.append(times, 0)
                here = np.append(here, 1)
        times = np.maximum(times, here)
    while is_example is not None and times.sum() < rows - 1:
        hidden = find_hidden(marks, scaled, numbers, is_example)
        if not len(hidden):
            break
        marks = np.concatenate([marks, hidden])
        times = np.append(times, np.ones(len(hidden), dtype=int))
    if times.sum() == rows - 1:  # the last one is what remains of all
        rest = scaled[:, 0].sum(1) - times @ marks
        equal = np.flatnonzero((np.abs(marks - rest) < SAME).all(1))
        times[equal[:1]] += 1
        if not len(equal):
            marks = np.concatenate([marks, rest[None]])
            times = np.append(times, 1)
    return marks, times


def find_hidden(
    marks: Array, scaled: Array, numbers: Array, is_example: Callable[[Array], Mask]
) -> Array:
    """Return the sums of examples that are never alone, (m, k), but with known ones only."""
    hidden = np.zeros((0, marks.shape[1]))
    for column, at in np.argwhere(numbers > 1):
        others = int(numbers[column, at]) - 1
        if not 0 < math.comb(len(marks), others) <= MOST_CHOICES:
            continue
        choices = np.array(list(combinations(range(len(marks)), others)), dtype=int)
        rests = scaled[:, column, at] - marks[choices].sum(1)
        for rest in rests[is_example(rests)]:
            known = np.concatenate([marks, hidden])
            if not bool((np.abs(known - rest) < SAME).all(1).any()):
                hidden = np.concatenate([hidden, rest[None]])
    return hidden


def find_members(marks: Array, times: Order, of_column: Array, numbers: Array) -> Array:
    """Return the numbers of examples with each mark in each bin of a column, (m, B).

    Each bin gets the only examples whose sums are its own, if there are such; bins of few examples
    come first.  numbers (B,): examples in each bin.
    """
    whole = np.zeros((len(marks), len(numbers)))
    left = times.copy()
    for at in numbers.argsort():
        size = int(numbers[at])
        open_marks = np.flatnonzero(left)
        n_choices = math.comb(len(open_marks) + size - 1, size)
        if size == 0 or not 0 < n_choices <= MOST_CHOICES:
            continue
        choices = np.array(list(combinations_with_replacement(open_marks, size)))
        away = np.abs(marks[choices].sum(1) - of_column[:, at]).max(1)
        fits = choices[away < SAME * size]
        if len(fits) == 1:
            np.add.at(whole[:, at], fits[0], 1)
            left = times - whole.sum(1).astype(int)
    return whole


def find_means(columns: Array, bins: Order) -> list[Array]:
    """Return the mean in each bin of each column, (B,), of examples (N, d) with these bins."""
    means = []
    for column, at in zip(columns.T, bins.T, strict=True):
        numbers = np.bincount(at)
        means.append(np.bincount(at, weights=column) / np.maximum(numbers, 1))
    return means


def round_to_bins(x: Tensor, everything: Tensor, edges: Tensor) -> Array:
    """Return examples (n, d) with each value replaced by the mean of all examples in its bin."""
    of_all = assign_bins(everything.double(), edges).long().numpy()
    means = find_means(everything.double().numpy(), of_all)
    bins = assign_bins(x.double(), edges).long().numpy()
    return list_values(bins, means, np.zeros(x.shape[1]))


def list_values(bins: Order, means: Sequence[Array], center: Array) -> Array:
    """Return the mean value in bins, (m, d); the center of the column for unknown ones."""
    values = np.tile(center, (len(bins), 1))
    for column, of_column in enumerate(means):
        is_known = bins[:, column] != UNKNOWN
        values[is_known, column] = of_column[bins[is_known, column]]
    return values
