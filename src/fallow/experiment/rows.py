"""Data of a run: the dataset of a seed, and its partition into sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fallow import data
from fallow.core.build import build
from fallow.core.names import OWN, NamePolicy
from fallow.core.streams import seed_of, stream
from fallow.core.types import SiteId
from fallow.data.dataset import Dataset, embed_rows, take_some
from fallow.data.partition.groups import label_groups, split_by_groups, take_groups
from fallow.data.reading import ReportBytes, count_at, ignore_bytes, note
from fallow.experiment.methods import joins_groups
from fallow.experiment.row_cache import DatasetCache, read_once
from fallow.models import build_model
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

RowNumbers = npt.NDArray[np.int64]
"""Indices of examples, (n,)."""


def open_data(
    config: ExperimentConfig,
    seed: int,
    data_dir: Path | None = None,
    dataset: Dataset | None = None,
    kept_in: Path | None = None,
    outline: int | None = None,
    notify: ReportBytes = ignore_bytes,
    cache: DatasetCache | None = None,
) -> Dataset:
    """Load the dataset of a configuration, with the same subset for all strategies of a seed.

    Parameters
    ----------
    dataset : Dataset, optional
        Dataset, if it is in memory.
    kept_in : Path, optional
        Cache folder for large files, so that they are decoded once.
    outline : int, optional
        Number of images to read instead of all (`load_outline`), sufficient for an estimate.
    notify : callable, optional
        Function that receives the number of bytes read.
    cache : DatasetCache, optional
        Data read for an earlier seed.
    """

    def read_source() -> Dataset:
        return data.open_dataset(
            config.data,
            config,
            data_dir=data_dir,
            outline=outline,
            notify=notify,
        )

    def read() -> Dataset:
        if kept_in is not None and outline is None:
            return read_once(config, data_dir, kept_in, read_source)
        return read_source()

    if dataset is not None:
        result = dataset
    elif cache is not None:
        result = cache.read(config, read)
    else:
        result = read()
    if not bool(result.is_labeled.all()):
        # a simulated oracle knows only existing labels
        result = _labeled_alone(result)
    if len(result.x_test) == 0:
        raise ValueError(f"{result.name} has no test example; give more labeled examples")
    if config.resplit:
        result = resplit(result, stream(seed, "test split", config.data))
    if config.features is not None:
        result = embed_rows(result, features(config.features, tuple(result.x.shape[1:])))
    if config.rows is not None:
        result = result.rows(config.rows, stream(seed, "rows", config.data))
    if config.test_rows is not None:
        result = result.test_rows(config.test_rows, stream(seed, "test rows", config.data))
    return result


def _labeled_alone(dataset: Dataset) -> Dataset:
    """Return the dataset without unlabeled training examples, and report their number."""
    is_bare = ~dataset.is_labeled
    why = "no label, and a simulation needs existing labels"
    sentence = (
        f"unlabeled examples left out: {int(is_bare.sum()):,} (a simulation needs their "
        "labels)"
    )
    reading = dataset.reading
    if reading is not None:
        sites = None
        if dataset.sites is not None:
            names = [dataset.site_names[site] for site in dataset.sites.tolist()]
            sites = np.array(names, dtype=np.str_)
        reading = reading.without(why, count_at(sites, is_bare.numpy()))
    kept = dataset.take(dataset.is_labeled.nonzero().squeeze(1))
    return replace(kept, reading=reading).with_findings(note(sentence))


def resplit(dataset: Dataset, draw: torch.Generator) -> Dataset:
    """Return the dataset with a new random test set of the same size.

    With groups, whole groups are drawn, so that the test set may be smaller.
    """
    n_tests = len(dataset.x_test)
    x = torch.cat([dataset.x, dataset.x_test])
    y = torch.cat([dataset.y, dataset.y_test])
    sites = _join(dataset.sites, dataset.sites_test)
    groups = _join(dataset.groups, dataset.groups_test)
    if groups is None:
        order = torch.randperm(len(x), generator=draw)
        test = order[:n_tests].sort().values
        train = order[n_tests:].sort().values
    else:
        is_test = draw_groups(groups, n_tests, draw)
        test = is_test.nonzero().squeeze(1)
        train = (~is_test).nonzero().squeeze(1)
    return replace(
        dataset,
        x=x[train],
        y=y[train],
        x_test=x[test],
        y_test=y[test],
        ids=None,
        sites=take_some(sites, train),
        sites_test=take_some(sites, test),
        groups=take_some(groups, train),
        groups_test=take_some(groups, test),
    )


def _join(values: Tensor | None, of_tests: Tensor | None) -> Tensor | None:
    """Return the values of training and test examples; None if one part has none."""
    if values is None or of_tests is None:
        return None
    return torch.cat([values, of_tests])


def draw_groups(groups: Tensor, n: int, draw: torch.Generator) -> Tensor:
    """Return a mask of randomly drawn groups with at most ``n`` examples together, or of one.

    >>> groups = torch.tensor([0, 0, 1, 1, 2, 2])
    >>> int(draw_groups(groups, 4, torch.Generator()).sum())
    4
    """
    _, group_of, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    order = torch.randperm(len(sizes), generator=draw)
    is_drawn = sizes[order].cumsum(0) <= n
    is_drawn[0] = True
    return torch.isin(group_of, order[is_drawn])


def features(spec: Spec, shape: tuple[int, ...], policy: NamePolicy = OWN) -> nn.Module:
    """Return the frozen model that computes features, the same for all sites and seeds.

    ``policy`` determines which names are resolved.
    """
    generator = stream(0, "features", str(spec))
    return build_model(spec.name, shape, 1, generator, policy, **spec.fields)


def count_examples(config: ExperimentConfig, dataset: Dataset) -> int:
    """Return the number of training examples, which are groups of rows if these are cases."""
    if joins_groups(config) and dataset.groups is not None:
        return len(torch.unique(dataset.groups))
    return len(dataset.x)


def split_rows(
    config: ExperimentConfig, dataset: Dataset, seed: int
) -> dict[SiteId, RowNumbers]:
    """Return the indices of the examples of each site, which depend on data, partition and seed."""
    from fallow.data.partition import partitions  # sites never need it

    config.check_rows(count_examples(config, dataset))
    rule = build(partitions, config.partition.name, OWN, **config.partition.fields)
    rng = np.random.default_rng(seed_of(seed, "partition", str(config.partition)))
    sites = None if dataset.sites is None else dataset.sites.numpy()
    groups = None
    if dataset.groups is not None and not config.is_natural:
        groups = dataset.groups.numpy()
    parts = split_by_groups(rule, dataset.y.numpy(), config.sites, rng, sites, groups)
    return dict(zip(_site_names(dataset, parts), parts, strict=True))


def split_tests(
    config: ExperimentConfig, dataset: Dataset, shares: dict[SiteId, RowNumbers], seed: int
) -> dict[SiteId, Tensor] | None:
    """Return the indices of the test examples of each site, disjoint; None for a common test set.

    Natural sites have their own test examples.  Other sites have test examples with the class
    distribution of their training examples, and whole groups of them.  Raises ValueError if
    this is not possible.
    """
    if config.test == "common":
        return None
    tests = {}
    if config.is_natural and dataset.sites is not None and dataset.sites_test is not None:
        for name, at in shares.items():
            natural = dataset.sites[int(at[0])]  # one natural site per site
            tests[name] = (dataset.sites_test == natural).nonzero().squeeze(1)
    elif dataset.classes:
        counts = data.class_counts(dataset.y.numpy(), [*shares.values()], dataset.n_classes)
        rng = np.random.default_rng(seed_of(seed, "test shares", str(config.partition)))
        if dataset.groups_test is None:
            parts = data.test_shares(counts, dataset.y_test.numpy(), rng)
        else:
            test_groups = dataset.groups_test.numpy()
            group_of, labels = label_groups(dataset.y_test.numpy(), test_groups)
            parts = take_groups(data.test_shares(counts, labels, rng), group_of)
        for name, at in zip(shares, parts, strict=True):
            tests[name] = torch.from_numpy(at)
    else:
        raise ValueError(
            f"test=own divides test examples by class, and {dataset.name} is a {dataset.task} "
            "task; use test=common"
        )
    if not any(len(rows) for rows in tests.values()):
        raise ValueError(
            f"no test example of {dataset.name} belongs to a site; use test=common"
        )
    return tests


def draw_flipped_sites(
    config: ExperimentConfig, dataset: Dataset, sites: Sequence[SiteId], seed: int
) -> tuple[str, ...]:
    """Draw the sites with wrong labels, depending on seed and sites only."""
    config.check_flip(len(sites))
    if config.flip and not dataset.classes:
        raise ValueError(f"flip changes classes, and {dataset.name} has none; use flip=0")
    drawn = torch.randperm(len(sites), generator=stream(seed, "flip"))[: config.flip]
    return tuple(sites[i] for i in sorted(drawn.tolist()))


def _site_names(dataset: Dataset, parts: list[RowNumbers]) -> list[str]:
    """Return the names of natural sites if every part is one, and numbers otherwise."""
    width = len(str(len(parts) - 1))
    numbered = [f"site-{i:0{width}d}" for i in range(len(parts))]
    if dataset.sites is None:
        return numbered
    cache = [torch.unique(dataset.sites[torch.from_numpy(rows)]).tolist() for rows in parts]
    if any(len(sites) != 1 for sites in cache):
        return numbered
    named = [dataset.site_names[sites[0]] for sites in cache]
    if len(set(named)) < len(named):  # several parts have rows of one site
        return numbered
    return named
