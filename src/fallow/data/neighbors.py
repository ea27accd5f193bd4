"""Examples that nearly equal another one, and labels that no similar example has."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fallow.core.wording import count_noun, join_some
from fallow.data.dataset import Dataset, take_rows
from fallow.data.reading import Finding, note

SAMPLED = 1500
"""Maximum number of examples, because all pairs are compared."""
SIDE = 16
"""Side of the images that are compared, in pixels."""
NEAR = 0.05
"""Distance of near-duplicates, relative to the median distance of nearest neighbors."""
FEWEST = 50
"""Smallest number of examples for these comparisons."""
MANY = 64
"""Smallest number of features: with fewer, different examples can be close by chance."""
NEIGHBORS = 10
NAMED = 5


def find_near_duplicates(dataset: Dataset) -> list[Finding]:
    """Return a note on examples that nearly equal another one, such as frames of a video."""
    rows = _sample(torch.arange(len(dataset.x)))
    features = standardize(take_rows(dataset.x, rows))
    if len(rows) < FEWEST or features.shape[1] < MANY:
        return []
    distances = _measure(features)
    distances[distances < 1e-6 * features.shape[1] ** 0.5] = torch.inf  # exact duplicates
    nearest, other = distances.min(1)
    is_near = nearest < NEAR * nearest.median()
    if not is_near.any():
        return []
    pairs = []
    for at in is_near.nonzero().flatten().tolist():
        if at < int(other[at]):
            pairs.append(
                f"{_name(dataset, rows, at)} and {_name(dataset, rows, int(other[at]))}"
            )
    return [
        note(
            f"{count_noun(int(is_near.sum()), 'example')} nearly equal to another one, among "
            f"{len(rows):,} compared: {join_some(pairs[:NAMED])}; near-duplicates in training "
            "and test data make scores too high"
        )
    ]


def find_doubtful_labels(dataset: Dataset) -> list[Finding]:
    """Return a note on labels that differ from those of the ten nearest labeled examples."""
    if not dataset.classes:
        return []
    rows = _sample(dataset.is_labeled.nonzero().flatten())
    if len(rows) < FEWEST:
        return []
    distances = _measure(standardize(take_rows(dataset.x, rows)))
    nearest = distances.topk(NEIGHBORS, largest=False).indices
    labels = dataset.y[rows]
    agreed, _ = labels[nearest].mode(1)
    is_unanimous = (labels[nearest] == agreed[:, None]).all(1)
    is_frequent = torch.bincount(labels, minlength=dataset.n_classes)[labels] > NEIGHBORS
    doubtful = (is_unanimous & is_frequent & (labels != agreed)).nonzero().flatten()
    if not len(doubtful):
        return []
    named = []
    for at in doubtful[:NAMED].tolist():
        own = dataset.classes[int(labels[at])]
        others = dataset.classes[int(agreed[at])]
        named.append(f"{_name(dataset, rows, at)} ({own!r} among {others!r})")
    return [
        note(
            f"{count_noun(len(doubtful), 'label')} may be wrong, among {len(rows):,} compared: "
            f"the {NEIGHBORS} most similar examples have another label: {join_some(named)}"
        )
    ]


def standardize(x: Tensor) -> Tensor:
    """Return comparable features: images at a low resolution, columns in standard deviations.

    x: (n, ...), NaN for an empty cell -> (n, d) without NaN.
    """
    if x.ndim == 4:
        return adaptive_avg_pool2d(x, min(SIDE, *x.shape[2:])).flatten(1)
    flat = x.flatten(1)
    mean = flat.nanmean(0)
    centered = torch.nan_to_num(flat - mean, nan=0.0)
    return centered / centered.square().mean(0).sqrt().clamp(min=1e-12)


def _sample(rows: Tensor) -> Tensor:
    """Return at most `SAMPLED` evenly spaced rows."""
    return rows[:: max(1, -(-len(rows) // SAMPLED))]


def _measure(features: Tensor) -> Tensor:
    """Return the distances of all pairs, infinite on the diagonal: (n, d) -> (n, n)."""
    return torch.cdist(features, features).fill_diagonal_(torch.inf)


def _name(dataset: Dataset, rows: Sequence[int] | Tensor, at: int) -> str:
    row = int(rows[at])
    if dataset.ids is not None:
        return dataset.ids[row]
    return f"training row {row}"
