"""GGC: one site selects among 20 LeNet models, evaluated on 100 images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.timing import Entry, Race
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.models.build import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import Random
from fallow.training import FedAvg
from fallow.training.personal.dpfl import reward
from fallow.training.personal.parts.greedy import Member, ggc

CLASSES = 10
Group = tuple[int, ...]


@dataclass(frozen=True)
class Choice:
    """A site (the first model), its candidate models and its validation images."""

    candidates: int
    images: int

    def race(self) -> Race:
        model = build_model("lenet", (3, 32, 32), CLASSES, stream(0, "bench model"))
        layout = Layout.of(model)
        draw = stream(0, "bench ggc")
        at = layout.flatten(model)
        noise = torch.randn(self.candidates + 1, layout.d, generator=draw)
        members = [Member(at["w"] + 0.05 * row, 10 + i) for i, row in enumerate(noise)]
        x = torch.randn(self.images, 3, 32, 32, generator=draw)
        y = torch.randint(0, CLASSES, (self.images,), generator=draw)
        order = torch.randperm(self.candidates, generator=draw)
        coins = torch.rand(self.candidates, dtype=torch.float64, generator=draw)

        methods: Methods = {"query": Random(), "training": FedAvg(), "plain": FedAvg()}
        parts = RunComponents(model, layout, methods, CLASSES, 0, lambda generator: at)
        site = LocalSite("site", x, parts, MemoryStore(), {"local": at})
        site.buy(
            [Label(row, float(c), cycle=0, is_validation=True) for row, c in enumerate(y)]
        )
        earned = reward(SiteView(site, 0))

        def ours() -> list[int]:
            selected = ggc(members[0], members[1:], earned, order, coins)
            return selected.chosen.nonzero().flatten().tolist()

        states = [load_state(model, layout, member) for member in members]
        plainly = by_module(model.eval(), states, [member.n for member in members], x, y)

        def theirs() -> list[int]:
            return choose_as_printed(plainly, order.tolist(), coins.tolist())

        return Race(theirs, ours, lambda: theirs() == ours())


def load_state(model: nn.Module, layout: Layout, member: Member) -> dict[str, Tensor]:
    """Return the part of the state that public code stores."""
    loaded = layout.load(model, {"w": member.w, "stats": member.w[:0]})
    return {name: value.clone() for name, value in loaded.state_dict().items()}


def by_module(
    model: nn.Module, states: list[dict[str, Tensor]], n: list[float], x: Tensor, y: Tensor
) -> Callable[[Group], float]:
    """Compute the reward of a group as public code does, with modules."""

    @torch.no_grad()
    def earned(group: Group) -> float:
        total = sum(n[i] for i in group)
        average = {
            name: sum(states[i][name] * (n[i] / total) for i in group) for name in states[0]
        }
        model.load_state_dict(average)
        return -float(cross_entropy(model(x), y))

    return earned


def choose_as_printed(
    earned: Callable[[Group], float], order: list[int], coins: list[float]
) -> list[int]:
    """Run Algorithm 2 as published; the rewards of both present groups are known."""
    earned = cache(earned)
    x: Group = (0,)
    y: Group = (0, *(j + 1 for j in sorted(order)))
    for j, coin in zip(order, coins, strict=True):
        less = tuple(i for i in y if i != j + 1)
        a = max(earned((*x, j + 1)) - earned(x), 0.0)
        b = max(earned(less) - earned(y), 0.0)
        chance = 1.0
        if a + b > 0:
            chance = a / (a + b)
        if coin < chance:
            x = (*x, j + 1)
        else:
            y = less
    return sorted(i - 1 for i in x if i)


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return Choice(3, 4).race()
    return Choice(20, 100).race()


ENTRIES = (
    Entry(
        "ggc",
        "Algorithm 2: an average and load_state_dict for each of two new rewards a candidate",
        bar=1.0,
        compared="the models chosen out of 20: identical",
        prepare=prepare,
    ),
)
