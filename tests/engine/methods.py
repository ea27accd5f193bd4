"""Training algorithms outside the package that exercise features of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fallow.core.local import Batch, Learner, TrainState, weighted_mean


@final
@dataclass(frozen=True)
class Beside:
    """A personal model beside the global one, held near to it: two slots, one stays."""

    lam: float = 0.5

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w, "v": own.get("v", w)}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        def near(v: Tensor) -> Tensor:
            return self.lam / 2 * (v - w_t.w).square().sum(-1)

        return {"w": learn.descend(s["w"], b), "v": learn.descend(s["v"], b, near)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {"v": s["v"]}


@final
@dataclass(frozen=True)
class LookAhead:
    """The gradient at a probe point moves the model (as in Per-FedAvg): `gradient` and `apply`."""

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        at = s["w"]
        g, stats = learn.gradient(at, b)
        probe = at._replace(w=at.w - b.lr * g, stats=stats)
        g, stats = learn.gradient(probe, b)
        return {"w": learn.apply(at, g, b.lr)._replace(stats=stats)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


@final
@dataclass(frozen=True)
class Pupil:
    """Takes after the model that was sent, on labeled rows and on pairs of rows of the pool: a
    teacher, an objective with two passes, and everything that a batch carries."""

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        known = learn.predict(w_t, b.x)
        taught = learn.predict(w_t, b.u) if b.u.numel() else known

        def objective(f: Callable[[Tensor], Tensor]) -> Tensor:
            rarity = (b.counts[..., None, :] + b.round) / 10
            value = weighted_mean(((f(b.x) - known) * rarity).square().sum(-1), b.weight)
            if not b.u.numel():
                return value
            learn.predict(w_t, b.x)  # a teacher may run between passes
            partner = f(b.u).gather(-2, b.mate[..., None].expand_as(taught))
            apart = (partner - taught).square().sum(-1)
            return value + weighted_mean(b.beta * apart, b.pool)

        return {"w": learn.descend(s["w"], b, objective=objective)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


@final
@dataclass
class Hoarder:
    """Plain descent that keeps every slot and batch it saw, to see whether one changes later."""

    seen: list[tuple[Tensor, Tensor]]

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        g, stats = learn.gradient(s["w"], b)
        self.seen += [
            (part, part.clone())
            for part in (*s["w"], *w_t, *b[:3], b.counts, *b[6:], g, stats)
        ]
        return {"w": learn.apply(s["w"], g, b.lr)._replace(stats=stats)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}

    def is_unharmed(self) -> bool:
        return bool(self.seen) and all(torch.equal(part, was) for part, was in self.seen)


@final
@dataclass(frozen=True)
class Stepping:
    """A method in one function, for a test that looks at its step."""

    by: Callable[[TrainState, TrainState, Batch, Learner], TrainState]

    def __str__(self) -> str:
        return self.by.__name__

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": self.by(s["w"], w_t, b, learn)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}
