"""Test sets: stratified by class, without duplicates between training and test examples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fallow.core.streams import seed_of
from fallow.data.dataset import copies_of
from fallow.data.partition.cuts import IntArray, largest_remainder

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


def hold_out(name: str, x: Tensor, y: npt.NDArray[np.generic]) -> tuple[IntArray, IntArray]:
    """Return sorted (training, test) positions for a dataset without a test set.

    20 % of the distinct labeled examples are drawn, stratified by class and determined by ``name``.
    Duplicates stay on one side, so no test example is also a training example.  An example with an
    unlabeled duplicate (-1 or NaN) stays in the training set.
    """
    # first duplicate of each distinct example, and the distinct example of each
    first, copy_of = copies_of(x)
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
    chosen = candidates[draw_stratified(y[first[candidates]], TEST_SHARE, rng)]
    is_test = np.isin(copy_of, chosen)
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
