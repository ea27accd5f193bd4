"""A recipe and a seed made concrete: data, sites, oracle, model and runtime of one simulated run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow import data, queries, training
from fallow.core.ask import Carrier
from fallow.core.banks import Layout
from fallow.core.build import build
from fallow.core.streams import seed_of, stream
from fallow.core.types import SiteId, State
from fallow.data.dataset import Dataset
from fallow.engine import Loop, Stacked, can_stack, row_loss
from fallow.lab.budgets import budgets
from fallow.lab.recipe import Recipe
from fallow.lab.scale import Scale
from fallow.models import build_model, check_model
from fallow.oracles import Simulated
from fallow.queries import Random
from fallow.runtimes import Bytes, InProcess, Parts, Site, Store
from fallow.training import FedAvg


@dataclass(frozen=True)
class World:
    """Everything one run works with; the server half sees ``carrier`` and the test set only."""

    recipe: Recipe
    seed: int
    dataset: Dataset
    carrier: Carrier
    members: dict[SiteId, Site]
    oracle: Simulated
    model: nn.Module
    layout: Layout
    methods: Mapping[str, Any]
    executor: str
    fresh: Callable[[torch.Generator], State]
    scale: Scale | None  # of a user's own table

    @property
    def sizes(self) -> dict[SiteId, int]:
        return {name: len(site.x) for name, site in self.members.items()}

    def budget(self, share: float | int) -> dict[SiteId, int]:
        """Labels per site in one cycle, never more than a site has rows."""
        wanted = budgets(self.recipe.budget, share, self.sizes)
        return {s: min(n, len(self.members[s].pool)) for s, n in wanted.items()}

    def counts(self) -> dict[SiteId, list[int]]:
        """Labels bought so far per site and class."""
        c = self.dataset.n_classes
        return {
            name: torch.bincount(site.labels.long(), minlength=c).tolist()
            if c
            else [len(site.labels)]
            for name, site in self.members.items()
        }


def open_data(recipe: Recipe, seed: int, data_dir: Path | None = None) -> Dataset:
    """The recipe's data, one seeded subset per (data set, seed): the same for every method."""
    found = data.open_dataset(recipe.data, data_dir=data_dir, label=recipe.label, site=recipe.site)
    if found.task == "classification" and bool((found.y < 0).any()):
        found = replace_rows(
            found, found.y >= 0
        )  # a simulated oracle can only answer what is known
    if recipe.rows is not None:
        found = found.rows(recipe.rows, stream(seed, "rows", recipe.data))
    if recipe.test_rows is not None:
        found = found.test_rows(recipe.test_rows, stream(seed, "test rows", recipe.data))
    return found


def replace_rows(found: Dataset, keep: Tensor) -> Dataset:
    """The data set with only the training rows of the mask ``keep``."""
    at = keep.nonzero().squeeze(1)
    groups = None if found.groups is None else found.groups[at]
    ids = None if found.ids is None else tuple(found.ids[i] for i in at.tolist())
    return replace(found, x=found.x[at], y=found.y[at], groups=groups, ids=ids)


def split(recipe: Recipe, found: Dataset, seed: int) -> dict[SiteId, np.ndarray[Any, Any]]:
    """Rows of each site; drawn from (data, partition, seed) alone."""
    if len(found.x) < recipe.sites:
        raise ValueError(f"{len(found.x)} rows cannot be shared by {recipe.sites} sites; use fewer "
                         "sites or more rows")  # fmt: skip
    rule = build(data.partitions, recipe.partition.name, **recipe.partition.fields)
    rng = np.random.default_rng(seed_of(seed, "partition", str(recipe.partition)))
    groups = None if found.groups is None else found.groups.numpy()
    parts = rule.split(found.y.numpy(), recipe.sites, rng, groups)
    return dict(zip(_site_names(found, parts), parts, strict=True))


def _site_names(found: Dataset, parts: list[Any]) -> list[str]:
    """The natural site's own name where all rows of a part share one, else a number."""
    width = len(str(len(parts) - 1))
    numbered = [f"site-{i:0{width}d}" for i in range(len(parts))]
    if found.groups is None or not found.group_names:
        return numbered
    held = [found.groups[torch.from_numpy(rows)].unique().tolist() for rows in parts]
    named = [
        found.group_names[h[0]] if len(h) == 1 else n for h, n in zip(held, numbered, strict=True)
    ]
    return named if len(set(named)) == len(named) else numbered


def build_world(
    recipe: Recipe,
    seed: int,
    store: Store,
    data_dir: Path | None = None,
    runtime: str = "inprocess",
) -> World:
    """The sites, the oracle and the model of ``recipe`` under ``seed``."""
    found = open_data(recipe, seed, data_dir)
    scale = Scale.of(found.x) if found.columns and Path(recipe.data).exists() else None
    if scale is not None:
        found = replace(found, x=scale(found.x), x_test=scale(found.x_test))
    dtype = getattr(torch, recipe.dtype)
    x = found.x.to(dtype)
    outputs = found.n_classes or 1

    def new_model(generator: torch.Generator) -> nn.Module:
        m = recipe.model
        return build_model(m.name, tuple(x.shape[1:]), outputs, generator, **m.fields).to(dtype)

    model = new_model(stream(seed, "template"))
    check_model(model, tuple(x.shape[1:]), outputs)
    layout = Layout.of(model)

    def fresh(generator: torch.Generator) -> State:
        return layout.flatten(new_model(generator), dtype)

    method = build(training, recipe.training.name, plan=recipe.plan, **recipe.training.fields)
    query = build(queries, recipe.query.name, **recipe.query.fields)
    methods = {"initial": Random(), "query": query, "training": method, "plain": FedAvg()}
    parts = Parts(model, layout, methods, found.n_classes, seed, fresh)
    shares = split(recipe, found, seed)
    members = {
        name: Site(name, x[torch.from_numpy(rows)], parts, store) for name, rows in shares.items()
    }
    hidden = {name: found.y[torch.from_numpy(rows)] for name, rows in shares.items()}
    spent = {name: len(site.labelled) for name, site in members.items()}
    executor = executor_of(recipe, model)
    engine = {
        "stacked": Stacked(model, layout, row_loss(found.task)),
        "loop": Loop(model, layout, row_loss(found.task), recipe.channels_last),
    }[executor]
    carrier = (Bytes if runtime == "bytes" else InProcess)(members, engine)
    return World(recipe, seed, replace(found, x_test=found.x_test.to(dtype)), carrier, members,
                 Simulated(hidden, spent=spent), model, layout, methods, executor, fresh, scale)  # fmt: skip


def partition_of(world: World) -> dict[str, Any]:
    """Who held what at the start, for reports: sites x classes and how uneven it is."""
    classes = world.dataset.n_classes
    hidden = [world.oracle.hidden[name].numpy() for name in world.members]
    ends = np.cumsum([0, *map(len, hidden)])
    parts = [np.arange(a, b) for a, b in pairwise(ends.tolist())]
    report = data.partition_report(np.concatenate(hidden), parts, classes) if classes else {}
    return {"sites": list(world.members), "classes": list(world.dataset.classes), **report}


def executor_of(recipe: Recipe, model: nn.Module) -> str:
    """Which executor trains: ``auto`` stacks linear and dense models and loops over the rest."""
    if recipe.executor == "stacked" and not can_stack(model):
        raise ValueError(f"executor 'stacked' trains linear and dense models only; model "
                         f"{recipe.model.name} needs executor 'loop' or 'auto'")  # fmt: skip
    if recipe.executor != "auto":
        return recipe.executor
    return "stacked" if can_stack(model) else "loop"


def fingerprint(world: World) -> str:
    """A digest of the data, the partition and the hidden labels of a world."""
    h = hashlib.sha256()
    for name, site in world.members.items():
        h.update(name.encode())
        h.update(site.x.contiguous().numpy().tobytes())
        h.update(world.oracle.hidden[name].numpy().tobytes())
    return h.hexdigest()
