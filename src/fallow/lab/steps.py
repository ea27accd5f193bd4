"""What the steps of a run leave behind: costs, lines of ledgers, records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fallow.core.disclosure import Disclosure
from fallow.core.streams import stream
from fallow.core.types import SiteId, State
from fallow.data import validation_split
from fallow.lab.versions import threads, versions
from fallow.lab.world import World
from fallow.runtimes import Label


@dataclass
class Spent:
    """Seconds, bytes and disclosures of all steps so far."""

    seconds: float = 0.0
    shown: Disclosure = field(default_factory=Disclosure)

    def add(self, *steps: dict[str, Any]) -> None:
        for done in steps:
            self.seconds += done["seconds"]
            self.shown = self.shown.plus(Disclosure.of(done["revealed"]))


def ledger(cycle: int, kept: State, answers: dict[int, float]) -> list[Label]:
    """Ledger lines for the answers to one site's picks, with what the query attached to them."""
    if not kept:
        return []
    rows = kept["rows"].tolist()
    weight = kept["weight"].tolist() if "weight" in kept else [1.0] * len(rows)
    chance = kept["probability"].tolist() if "probability" in kept else [None] * len(rows)
    lines = zip(rows, weight, chance, strict=True)
    return [Label(row, answers[row], cycle, w, p) for row, w, p in lines if row in answers]


def held_back(labels: list[Label], share: float, is_class: bool, seed: int) -> list[Label]:
    """One purchase of a site with ``share`` of its labels held back for validation.

    Stratified by class where each has two labels or more.  At least one label is held back and one
    trains; a purchase of a single label trains.
    """
    if share == 0 or len(labels) < 2:
        return labels
    y = np.array([label.value for label in labels])
    y = y.astype(np.int64) if is_class else y
    _, held = validation_split(y, share, np.random.default_rng(seed))
    return [label._replace(held=at in set(held.tolist())) for at, label in enumerate(labels)]


def cohort_of(world: World, cycle: int, r: int) -> tuple[SiteId, ...]:
    """The sites of a round; all of them in the last, so that each has a local model."""
    sites, share = world.carrier.sites, world.recipe.participation
    if share == 1 or r == world.recipe.rounds - 1:
        return sites
    n = math.ceil(share * len(sites) - 1e-9)
    drawn = torch.randperm(len(sites), generator=stream(world.seed, "cohort", cycle, r))
    return tuple(sites[i] for i in sorted(drawn[:n].tolist()))


def told(asked: list[dict[str, Any]]) -> dict[str, Any]:
    """What a cycle's queries say of themselves, for its records."""
    notes = asked[-1]["memo"].get("notes", {})
    return {"notes": notes, "pseudo_labels": asked[0]["pseudo_labels"]}


def record(
    world: World, cycle: int, row: dict[str, Any], done: dict[str, Any], spent: Spent
) -> Any:
    """One evaluation, ``row``, of a phase that is ``done``, as it is written.

    Labels by site and by class are those that train; ``labelled`` are all that were bought.
    """
    recipe, labels = world.recipe, done["labels"]
    by_class = [sum(c) for c in zip(*labels.values(), strict=True)]
    return {
        "recipe": recipe.name, "query": str(recipe.query),
        "training": str(recipe.training), "seed": world.seed, "cycle": cycle,
        **row, "labelled": sum(map(sum, labels.values())) + done["held"],
        "labels_validation": done["held"], "pool": sum(world.sizes.values()),
        "labelled_per_site": labels,
        "labelled_per_class": by_class if world.dataset.classes else None,
        "target_variance": None if world.dataset.classes else world.variance,
        "seconds": spent.seconds, "bytes_up": spent.shown.bytes_up,
        "bytes_down": spent.shown.bytes_down, "revealed": spent.shown.rows(),
        "executor": world.executor, "threads": threads(), "versions": versions(),
        "notes": {}, "pseudo_labels": None,
    }  # fmt: skip
