"""Attacker of a simulated run: what it holds, and the true examples to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fallow.core.methods import Encoder, TrainingAlgorithm
from fallow.core.missing import filled
from fallow.core.types import State, Values
from fallow.core.view import FOLDS
from fallow.encoders.base import EMPTY_CELLS, encode_rows
from fallow.experiment.environment import Simulation
from fallow.measurements.attacks import Array
from fallow.measurements.disclosure import (
    Observed,
    Phase,
    attack,
    differentiate,
    find_levels,
    is_differentiable,
    read_aggregates,
    read_pool,
    units_of,
)
from fallow.measurements.results import AttackResult
from fallow.measurements.tree_attacks import TreeLabels, attack_trees, read_edges
from fallow.sites.site import LocalSite
from fallow.sites.view import SiteView
from fallow.training.closed_form import ClosedForm
from fallow.training.parts.self_training import has_enough

MOST_SIMILAR = 1_000
"""Pictures that the attacker knows."""


class LabeledRows(NamedTuple):
    """Labeled examples of all sites: x (n, *shape), classes or numbers y (n,), cycle (n,)."""

    x: Tensor
    y: Tensor
    cycle: Tensor
    fold: Tensor


class SelfTrainingSums(NamedTuple):
    """Sums that self-training sends besides: of each fold, if any, and of all examples."""

    folds: Sequence[Values]
    pool: Values


def sum_self_training(
    training: ClosedForm, views: Sequence[SiteView], *, has_folds: bool
) -> SelfTrainingSums:
    """Return the sums over sites that self-training sends besides those of the labels."""
    folds = []
    n_folds = FOLDS if has_folds else 0
    for fold in range(n_folds):
        folds.append(_add([training.fold_totals(view, fold) for view in views]))
    return SelfTrainingSums(folds, _add([training.example_totals(view) for view in views]))


def _add(replies: Sequence[Values]) -> Values:
    """Return the sums of the fields of replies."""
    total: Values = {}
    for name in replies[0]:
        total[name] = torch.stack(
            [torch.as_tensor(reply[name], dtype=torch.float64) for reply in replies]
        ).sum(0)
    return total


def measure_disclosure(
    simulation: Simulation, sums: Sequence[Values], state: State
) -> list[AttackResult]:
    """Attack the sums of each training phase of a simulated run, and its final closed-form model.

    Parameters
    ----------
    simulation : Simulation
        Sites with their true examples.
    sums : sequence of Values
        Aggregates of each phase over all sites, from the first one.
    state : State
        Final model.
    """
    training = simulation.methods["training"]
    if training.contract.has_trees:
        return _measure_trees(simulation, training, state)
    encoder: Encoder | None = simulation.methods.get("encoder")
    fitted = simulation.encoded_by
    scale = None if simulation.scale is None else simulation.scale.state
    x = torch.cat([site.x for site in simulation.members.values()])
    labeled = _labeled_rows(simulation)
    fixed: Encoder | None = (
        None  # an encoder whose features are attacked instead of examples
    )
    if encoder is not None and not is_differentiable(encoder):
        fixed = encoder
        encoder = None

    def as_columns(rows: Tensor) -> Array:
        if fixed is not None:
            return np.asarray(encode_rows(fixed, rows, fitted or {}).double().numpy())
        fill = (fitted or {}).get(EMPTY_CELLS, (scale or {}).get("fill"))
        return np.asarray(filled(rows, fill).flatten(1).double().numpy())

    everything = as_columns(x)
    shape = tuple(x.shape[1:]) if fixed is None else everything.shape[1:]
    mean, std = units_of(everything, shape)
    true = (as_columns(labeled.x) - mean) / std
    similar = None
    if len(shape) > 1:  # pictures of the same kind are often public
        similar = (as_columns(simulation.dataset.x_test[:MOST_SIMILAR]) - mean) / std
    classes = simulation.dataset.n_classes
    phases = []
    for cycle, of_phase in enumerate(sums):
        is_in = (labeled.cycle < cycle).numpy()
        aggregates = read_aggregates(of_phase, classes or 1)
        if aggregates is not None:
            phases.append(Phase(aggregates, true[is_in], labeled.y.numpy()[is_in]))
    features = differentiate(encoder, fitted, scale, shape, mean, std)
    weight = simulation.layout.views(state["w"])["head.weight"]
    head = weight.double().numpy().T
    folds: list[Phase] = []
    pool: Phase | None = None
    if isinstance(training, ClosedForm) and training.learns_unlabeled and phases:
        views = [SiteView(site, 0) for site in simulation.members.values()]
        counts = torch.bincount(labeled.y.long(), minlength=classes)
        sent = sum_self_training(training, views, has_folds=has_enough(counts.double()))
        folds = list_folds(sent.folds, true, labeled.y.numpy(), labeled.fold, classes)
        pool = Phase(read_pool(sent.pool), (everything - mean) / std, np.zeros(0))
    levels = find_levels((everything - mean) / std)
    attempts = attack(
        Observed(features, phases, folds, pool, head, levels=levels, similar=similar)
    )
    return [attempt.result for attempt in attempts]


def _measure_trees(
    simulation: Simulation, training: TrainingAlgorithm, state: State
) -> list[AttackResult]:
    """Attack the sums by which trees are grown, of all phases and over all sites."""
    members = list(simulation.members.values())
    edges = read_edges(members[0].memory)
    if edges is None:  # no site has labels
        return []
    labeled = _labeled_rows(simulation, is_in_model_form=True)
    phases = []
    for last in sorted(set(labeled.cycle.tolist())):
        is_in = labeled.cycle <= last
        phases.append(TreeLabels(labeled.x[is_in], labeled.y[is_in]))
    everything = torch.cat([see_columns(site, site.x) for site in members])
    classes = simulation.dataset.n_classes
    attempts = attack_trees(training, phases, classes, edges, state, everything)
    return [attempt.result for attempt in attempts]


def see_columns(site: LocalSite, x: Tensor) -> Tensor:
    """Return measured examples (m, *shape) in model form, as columns (m, d)."""
    return site.see(x)[:].flatten(1)


def list_folds(
    sums: Sequence[Values], rows: Array, labels: Array, folds: Tensor, classes: int
) -> list[Phase]:
    """Return the sums of each fold with its rows (n, p) and labels (n,); folds: (n,)."""
    phases = []
    for fold, of_fold in enumerate(sums):
        is_in = (folds == fold).numpy()
        aggregates = read_aggregates(of_fold, classes)
        if aggregates is not None and is_in.any():
            phases.append(Phase(aggregates, rows[is_in], labels[is_in]))
    return phases


def _labeled_rows(simulation: Simulation, *, is_in_model_form: bool = False) -> LabeledRows:
    """Return the labeled training examples of all sites, as measured or as columns of a model."""
    x = []
    y = []
    cycle = []
    fold = []
    for site in simulation.members.values():
        labels = [
            label for label in site.store.load_labels(site.id) if not label.is_validation
        ]
        rows = torch.tensor([label.row for label in labels], dtype=torch.int64)
        if is_in_model_form:
            x.append(see_columns(site, site.x[rows]))
            y += site.targets(rows).tolist()
        else:
            x.append(site.x[rows])
            y += [label.value for label in labels]
        cycle += [label.cycle for label in labels]
        fold += [-1 if label.fold is None else label.fold for label in labels]
    return LabeledRows(
        torch.cat(x), torch.tensor(y), torch.tensor(cycle), torch.tensor(fold)
    )
