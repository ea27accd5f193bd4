"""Estimated effect of a minimum number of new labels in a study without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fallow import strategies
from fallow.core.build import find
from fallow.core.names import BUILT_IN
from fallow.core.types import SiteId
from fallow.privacy.settings import MIN_NEW_LABELS
from fallow.settings.recipe import Recipe, contract_of_training, recipe_from
from fallow.settings.variants import variant
from fallow.study.reading import RunRecords, StudyRecords
from fallow.training.exact_head import ExactHead


def describe_waiting(study: StudyRecords, least: int = MIN_NEW_LABELS) -> str | None:
    """Describe how often statistics would have been those of an earlier training phase.

    Return None if no algorithm of the study waits for new labels, or if the study has a
    minimum.
    """
    n_phases = 0
    n_former = 0
    whose = "at a site"
    for cell in study.cells:
        recipe = find_recipe(study, cell.strategy)
        if recipe is None or recipe.privacy.waits_for > 1 or not _has_waiting(recipe):
            continue
        if recipe.privacy.secure_sum:
            whose = "of all sites together"
        for is_former in _compare_phases(cell, least, together=recipe.privacy.secure_sum):
            n_phases += 1
            n_former += is_former
    if not n_phases:
        return None
    return (
        "In this study, exact statistics of labeled examples changed with every label. "
        "With the default of real sites (privacy.min_new_labels), they change only after "
        f"{least} new labels {whose}: then {n_former} of {n_phases} contributions of all "
        "runs would have been earlier ones, without the newest labels. Set it to measure "
        "the effect on accuracy."
    )


def find_recipe(study: StudyRecords, strategy: str) -> Recipe | None:
    """Return the settings of a strategy, or None if they cannot be read, as for an upper
    bound.
    """
    try:
        return variant(recipe_from(dict(study.study.recipe)), strategy)
    except (ValueError, TypeError):
        return None


def _has_waiting(recipe: Recipe) -> bool:
    """Return whether exact statistics of labeled examples leave sites, without importing
    user code.
    """
    if recipe.privacy.epsilon is not None:
        return False
    training = contract_of_training(recipe.training.name)
    if training is not None and training.waits:
        return True
    if recipe.head == "exact" and ExactHead.contract.waits:
        return True
    try:
        return bool(find(strategies, recipe.strategy.name, BUILT_IN).contract.waits)
    except ValueError:
        return False


def _compare_phases(cell: RunRecords, least: int, *, together: bool) -> Iterator[bool]:
    """Return for each contribution whether it would have been an earlier one despite new
    labels.

    A contribution is of a site, or of all sites ``together``.
    """
    contributed: dict[SiteId, int] = {}
    for labels in _count_labels(cell).values():
        counts: Mapping[SiteId, int] = labels
        if together:
            counts = {"": sum(labels.values())}
        for site, n_labels in counts.items():
            new = n_labels - contributed.get(site, 0)
            if new >= least:
                contributed[site] = n_labels
            yield 0 < new < least


def _count_labels(cell: RunRecords) -> dict[int, dict[SiteId, int]]:
    """Return the number of training labels by cycle and site."""
    labels: dict[int, dict[SiteId, int]] = {}
    for record in cell.records:
        counts = record.get("labeled_per_site") or {}
        labels[int(record["cycle"])] = {
            site: sum(counted) for site, counted in counts.items()
        }
    return labels
