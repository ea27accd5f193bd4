"""Test and validation examples: held out, by partition, and the partition report."""

from __future__ import annotations

import logging
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fallow.core.streams import seed_of
from fallow.data.dataset import Copies, copies_of
from fallow.data.partition.base import (
    FloatArray,
    IntArray,
    class_rows,
    deal,
    largest_remainder,
)
from fallow.data.partition.groups import join_groups, label_groups

TEST_SHARE = 0.2


def draw_stratified(
    y: npt.NDArray[np.generic], share: float, rng: np.random.Generator
) -> IntArray:
    """Return sorted positions of about ``share`` of the examples, stratified by class.

    At least one example of each class remains, so a class of one is never selected from.  Targets
    that are not integers are not stratified.
    """
    total = round(share * len(y))
    if not np.issubdtype(y.dtype, np.integer):
        return np.sort(rng.permutation(len(y))[:total])
    _, class_of, sizes = np.unique(y, return_inverse=True, return_counts=True)
    quota = np.minimum(largest_remainder(sizes.astype(np.float64), total), sizes - 1)
    chosen = []
    for c, n in enumerate(quota):
        of_class = np.flatnonzero(class_of == c)
        chosen.append(rng.permutation(of_class)[:n])
    return np.sort(np.concatenate(chosen))


def join_rare(numbers: IntArray) -> IntArray:
    """Return strata of examples with several labels: one for all rare combinations of answers.

    Most combinations of many labels occur once, and a class of one is never selected from.
    Combinations with fewer than five examples are joined, and -1 (unlabeled) stays.

    Parameters
    ----------
    numbers : ndarray of shape (n,)
        Answers of each example (`fallow.core.multilabel`).

    Examples
    --------
    >>> join_rare(np.array([0, 0, 0, 0, 0, 4, 7, -1])).tolist()
    [0, 0, 0, 0, 0, 8, 8, -1]
    """
    _, combination, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    is_rare = (sizes[combination] < 1 / TEST_SHARE) & (numbers >= 0)
    joined: IntArray = np.where(is_rare, numbers.max(initial=0) + 1, numbers)
    return joined


def hold_out(
    name: str,
    x: Tensor,
    y: npt.NDArray[np.generic],
    groups: IntArray | None = None,
    copies: Copies | None = None,
) -> tuple[IntArray, IntArray]:
    """Return sorted (training, test) positions for a dataset without a test set.

    20 % of the distinct labeled examples are drawn, stratified by class and determined by ``name``.
    Duplicates stay on one side, so no test example is also a training example.  An example with an
    unlabeled duplicate (-1 or NaN) stays in the training set.  With ``groups``, (n,), whole groups
    are drawn, stratified by their most frequent class; a group with an unlabeled example stays in
    the training set.  copies: those of ``x``, if they are known.
    """
    # first duplicate of each distinct example, and the distinct example of each
    first, copy_of = copies or copies_of(x)
    labels = y[first]
    if groups is not None:
        copy_of = join_groups(copy_of, groups)
        _, first = np.unique(copy_of, return_index=True)
        _, labels = label_groups(y, copy_of)
    is_unlabeled = y == -1
    if np.issubdtype(y.dtype, np.floating):
        is_unlabeled = np.isnan(y)
    can_test = np.ones(len(first), dtype=bool)
    can_test[copy_of[is_unlabeled]] = False
    candidates = np.flatnonzero(can_test)
    in_file_order = np.argsort(first[candidates])  # not in the order of their hashes
    candidates = candidates[in_file_order]
    if len(candidates) == 0:
        return np.arange(len(y)), np.empty(0, dtype=np.int64)
    rng = np.random.default_rng(seed_of(0, "hold-out", name))
    chosen = candidates[draw_stratified(labels[candidates], TEST_SHARE, rng)]
    is_test = np.isin(copy_of, chosen)
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


COARSE = 20  # number of test examples below which the accuracy of a site is imprecise
_log = logging.getLogger(__name__)


def test_shares(
    train_counts: IntArray, y_test: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Return the test examples of each site, with the class shares of its training examples.

    train_counts: (sites, classes) of the training partition, before validation examples are drawn;
    y_test: (m,).  Site k gets f_kc m_c examples of class c, rounded, at least 1 of each of its
    classes if there are enough.  All m_c examples are assigned if any site has the class, and none
    twice.  Sites may have no test examples; sites with fewer than 20 are logged.
    """
    rows = class_rows(y_test, "test_shares")
    classes = train_counts.shape[1]
    per_class = [rows.get(c, np.empty(0, dtype=np.int64)) for c in range(classes)]
    columns = [_apportion(train_counts[:, c], len(per_class[c])) for c in range(classes)]
    value = np.stack(columns, axis=1)
    parts = [np.sort(part) for part in deal(value, per_class, rng)]
    coarse = [site for site, part in enumerate(parts) if len(part) < COARSE]
    if coarse:
        _log.info("%d sites have fewer than %d test rows: %s", len(coarse), COARSE, coarse)
    return parts


def _apportion(sizes: IntArray, total: int) -> IntArray:
    """Return the number of test examples of one class for each site: (sites,)."""
    if sizes.sum() == 0:
        return np.zeros_like(sizes)
    exact = sizes / sizes.sum() * total
    value: IntArray = np.maximum(np.rint(exact), sizes > 0).astype(np.int64)
    # each pass removes one from every possible site, the largest surplus first
    while value.sum() > total:
        can_spare = value > 1
        if not can_spare.any():
            can_spare = value > 0
        n = min(value.sum() - total, can_spare.sum())
        order = np.argsort(np.where(can_spare, exact - value, np.inf), kind="stable")
        value[order[:n]] -= 1
    # and adds one to every site with the class, the largest deficit first
    while value.sum() < total:
        n = min(total - value.sum(), (sizes > 0).sum())
        order = np.argsort(np.where(sizes > 0, value - exact, np.inf), kind="stable")
        value[order[:n]] += 1
    return value


def validation_split(
    y_rows: npt.NDArray[np.generic], share: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return sorted positions (train, validation) among two labeled examples of a site or more.

    Both have at least one example.  They are stratified if every class has 2 examples or more.
    """
    n = len(y_rows)
    is_class = np.issubdtype(y_rows.dtype, np.integer)
    validation = np.empty(0, dtype=np.int64)
    _, sizes = np.unique(y_rows, return_counts=True)
    if is_class and sizes.min() >= 2:
        validation = draw_stratified(y_rows, share, rng)
    # targets, a class of one example, or a share of less than one example
    if len(validation) == 0:
        size = min(max(1, round(share * n)), n - 1)
        validation = np.sort(rng.permutation(n)[:size])
    return np.setdiff1d(np.arange(n), validation), validation


def hold_back_groups(
    y: npt.NDArray[np.generic],
    groups: IntArray,
    share: float,
    rng: np.random.Generator,
    is_validation: dict[int, bool],
) -> npt.NDArray[np.bool_]:
    """Return which new labels of a site are for validation: (n,).

    About ``share`` of the new groups are drawn.  A group with earlier labels stays where they are,
    in validation or not (``is_validation``, by group).  At least one new group is used for training.
    """
    is_held = np.array([is_validation.get(group, False) for group in groups.tolist()])
    new = np.flatnonzero([group not in is_validation for group in groups.tolist()])
    group_of, labels = label_groups(y[new], groups[new])
    if len(labels) < 2:
        return is_held
    _, validation = validation_split(labels, share, rng)
    is_held[new[np.isin(group_of, validation)]] = True
    return is_held


def class_counts(y: IntArray, parts: list[IntArray], n_classes: int) -> IntArray:
    """Count labeled examples of each class at each site: (sites, n_classes)."""
    counts = []
    for part in parts:
        labels = y[part]
        counts.append(np.bincount(labels[labels >= 0], minlength=n_classes))
    return np.stack(counts).astype(np.int64)


class PartitionReport(TypedDict):
    """Skew of a partition, as lists and numbers.

    Attributes
    ----------
    matrix
        (sites, classes) counts.
    sizes
        Number of examples per site.
    cv
        Population std / mean of the counts of each class over sites.
    sigma_pp
        Population std of the share of each class over sites, in percentage points.
    absent
        Number of classes without examples per site.
    kl
        KL(site shares || pooled shares) in nats; None without labels.
    mean_kl
        Mean of ``kl``.
    """

    matrix: list[list[int]]
    sizes: list[int]
    cv: list[float]
    sigma_pp: list[float]
    absent: list[int]
    kl: list[float | None]
    mean_kl: float | None


def partition_report(y: IntArray, parts: list[IntArray], n_classes: int) -> PartitionReport:
    """Measure the skew of a partition.  y: (n,) class ids; parts: positions by site.

    Unlabeled examples count in the sizes only; a site without labels is ignored in sigma and KL.

    >>> report = partition_report(
    ...     np.array([0, 0, 1, 1]), [np.array([0, 1]), np.array([2, 3])], 2
    ... )
    >>> report["matrix"], report["cv"], report["sigma_pp"], report["absent"]
    ([[2, 0], [0, 2]], [1.0, 1.0], [50.0, 50.0], [1, 1])
    """
    counts = class_counts(y, parts, n_classes)
    mean = counts.mean(0)
    cv = np.divide(counts.std(0), mean, out=np.zeros(n_classes), where=mean > 0)

    has_labels = counts.sum(1) > 0  # (sites,)
    shares = counts[has_labels] / counts[has_labels].sum(1, keepdims=True)
    pooled = counts.sum(0) / max(int(counts.sum()), 1)
    divergences = np.full(len(parts), np.nan)  # NaN for a site without labels
    divergences[has_labels] = [_kl(share, pooled) for share in shares]
    kl: list[float | None] = [None] * len(parts)
    for site in np.flatnonzero(has_labels):
        kl[site] = float(divergences[site])
    sigma_pp = [0.0] * n_classes
    mean_kl = None
    if has_labels.any():
        sigma_pp = (100 * shares.std(0)).tolist()
        mean_kl = float(np.nanmean(divergences))

    return PartitionReport(
        matrix=counts.tolist(),
        sizes=list(map(len, parts)),
        cv=cv.tolist(),
        sigma_pp=sigma_pp,
        absent=(counts == 0).sum(1).tolist(),
        kl=kl,
        mean_kl=mean_kl,
    )


def _kl(p: FloatArray, q: FloatArray) -> float:
    is_positive = p > 0  # 0 log 0 is 0; q > 0 wherever p is
    return float((p[is_positive] * np.log(p[is_positive] / q[is_positive])).sum())
