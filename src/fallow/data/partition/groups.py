"""Groups of examples, such as the images of one patient, which no split divides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fallow.data.partition.base import IntArray, Partition

Labels = npt.NDArray[Any]
"""Class IDs or targets."""


def label_groups(y: Labels, groups: IntArray) -> tuple[IntArray, Labels]:
    """Return the number of the group of each example, and one label for each group.

    The label of a group is its most frequent class (ties: the lowest one), or its mean target.

    >>> group_of, labels = label_groups(np.array([1, 0, 0, 2]), np.array([7, 7, 7, 3]))
    >>> group_of.tolist(), labels.tolist()
    ([1, 1, 1, 0], [2, 0])
    """
    _, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if not np.issubdtype(y.dtype, np.integer):
        return group_of, np.bincount(group_of, weights=y.astype(np.float64)) / sizes
    classes, class_of = np.unique(y, return_inverse=True)
    pairs, counts = np.unique(group_of * len(classes) + class_of, return_counts=True)
    by_count = np.lexsort((-pairs, counts, pairs // len(classes)))
    group_of_pair = pairs[by_count] // len(classes)
    last = np.flatnonzero(np.diff(group_of_pair, append=len(sizes)))  # most frequent class
    return group_of, classes[pairs[by_count][last] % len(classes)]


def join_groups(copy_of: IntArray, groups: IntArray) -> IntArray:
    """Return a number for each example, equal for all that must stay on one side of a split.

    These are the examples of one group, the copies of one example, and the groups that share a
    copy.

    >>> units = join_groups(np.array([0, 1, 1, 2]), np.array([5, 5, 6, 7]))
    >>> units[0] == units[1] == units[2], units[2] == units[3]
    (np.True_, np.False_)
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, group_of = np.unique(groups, return_inverse=True)
    n_copies = int(copy_of.max()) + 1
    n_nodes = n_copies + int(group_of.max()) + 1
    ones = np.ones(len(copy_of), dtype=np.int8)
    edges = coo_array((ones, (copy_of, n_copies + group_of)), shape=(n_nodes, n_nodes))
    _, unit_of_node = connected_components(edges, directed=False)
    return unit_of_node[copy_of].astype(np.int64)


def split_by_groups(
    rule: Partition,
    y: Labels,
    sites: int,
    rng: np.random.Generator,
    natural: IntArray | None,
    groups: IntArray | None,
) -> list[IntArray]:
    """Return the positions of the examples of each site by a partition, with whole groups.

    The partition sees each group as one example, with the label of `label_groups` and the natural
    site of most of its examples.  Sizes and counts of a partition are then numbers of groups.
    """
    if groups is None:
        return rule.split(y, sites, rng, natural)
    group_of, labels = label_groups(y, groups)
    if sites > len(labels):
        raise ValueError(
            f"{sites} sites are requested and the data has {len(labels)} groups, which are not "
            "divided; use fewer sites"
        )
    if natural is not None:
        _, natural = label_groups(natural, groups)
    return take_groups(rule.split(labels, sites, rng, natural), group_of)


def take_groups(parts: list[IntArray], group_of: IntArray) -> list[IntArray]:
    """Return the positions of the examples of each part of the groups."""
    return [np.flatnonzero(np.isin(group_of, part)) for part in parts]
