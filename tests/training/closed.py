"""Small federations with feature vectors as examples, for classification or regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fallow.core.ask import Ask, Channel
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import Delivered, Request
from fallow.core.methods import Methods, TrainingAlgorithm
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import SiteId, State, Values
from fallow.engine import Loop, row_loss
from fallow.experiment.methods import narrow_training
from fallow.models.networks import Linear
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.training import BoostedTrees, ClosedForm, FedAvg
from fallow.training.personal import ClosedFormHeads
from fallow.transport.serialized import SerializingChannel
from tests.simulations import Forgetful

CLASSES = 4
FEATURES = 6


class Rows(NamedTuple):
    """Labeled examples: z (n, D), y (n,) class ids or targets, s (n,) weights."""

    z: Tensor
    y: Tensor
    s: Tensor


def rows_with_classes(n: int = 60, seed: int = 0) -> Rows:
    draw = stream(seed, "closed form")
    y = torch.randint(CLASSES, (n,), generator=draw)
    means = torch.randn(CLASSES, FEATURES, generator=draw, dtype=torch.float64)
    noise = torch.randn(n, FEATURES, generator=draw, dtype=torch.float64)
    return Rows(means[y] + noise, y, torch.ones(n, dtype=torch.float64))


def rows_with_numbers(n: int = 60, seed: int = 0) -> Rows:
    draw = stream(seed, "closed form, numbers")
    z = torch.randn(n, FEATURES, generator=draw, dtype=torch.float64)
    slope = torch.randn(FEATURES, generator=draw, dtype=torch.float64)
    noise = torch.randn(n, generator=draw, dtype=torch.float64)
    return Rows(z, z @ slope + noise / 2 + 3, torch.ones(n, dtype=torch.float64))


def targets(rows: Rows, is_class: bool = True) -> Tensor:
    """Return what is fitted: one-hot classes (n, C), or targets (n, 1)."""
    if not is_class:
        return rows.y[:, None]
    return torch.nn.functional.one_hot(rows.y, CLASSES).double()


@dataclass
class Overheard:
    """Transport that records messages."""

    channel: Channel
    replies: list[tuple[str, Mapping[SiteId, Values]]] = field(default_factory=list)

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return self.channel.sites

    def exchange(
        self,
        requests: Mapping[SiteId, Request],
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
    ) -> Delivered:
        delivered = self.channel.exchange(requests, routes)
        function = next(iter(requests.values())).steps[-1].function
        self.replies.append((function, delivered.replies))
        return delivered

    def of(self, function: str) -> Mapping[SiteId, Values]:
        """Return the last replies of a client function."""
        return next(
            outcome for asked, outcome in reversed(self.replies) if asked == function
        )


@dataclass(frozen=True)
class Hospitals:
    """Sites and their training algorithm."""

    members: dict[SiteId, LocalSite]
    channel: Overheard
    method: TrainingAlgorithm

    def solve(self) -> State:
        """Train one round; return the final state of the coordinator."""
        parts = next(iter(self.members.values())).parts
        masking = SecureSum(parts.privacy.bound) if parts.privacy.secure_sum else None
        ask = Ask(
            self.channel,
            Forgetful(),
            Disclosure(),
            ExchangeKey("train", "round"),
            "training",
            reveals=self.method.contract.disclosures,
            masking=masking,
        )
        state = self.method.round(parts.fresh(stream(0, "init")), ask)
        ask.flush()
        return state


def hospitals(
    rows: Rows,
    method: ClosedForm | ClosedFormHeads | BoostedTrees,
    parts_of: Sequence[Sequence[int]],
    *,
    is_class: bool = True,
    secure: bool = False,
    carried: type[InProcessChannel] | type[SerializingChannel] = InProcessChannel,
    pool: int = 2,
    unlabeled: Sequence[Tensor] = (),
    model: nn.Module | None = None,
) -> Hospitals:
    """Return sites "a", "b", ... with labeled examples and ``pool`` others.

    ``unlabeled`` gives the unlabeled examples of each site, (m, D), instead.  ``model`` is linear
    by default.
    """
    features = rows.z.shape[1]
    if model is None:
        model = Linear((features,), CLASSES if is_class else 1)
    model = model.double()
    head: Any = model.head
    outputs = int(head.out_features)
    layout = Layout.of(model)
    zero = {
        "w": torch.zeros(layout.d, dtype=torch.float64),
        "stats": torch.zeros(0, dtype=torch.float64),
    }
    classes = outputs if is_class else 0
    methods: Methods = {"query": Random(), "training": method, "plain": FedAvg()}
    methods = narrow_training(methods, features, classes)
    parts = RunComponents(
        model,
        layout,
        methods,
        classes,
        0,
        lambda generator: zero,
        noise="seeded",
        privacy=Privacy(secure_sum=secure),
    )
    store = MemoryStore()
    members = {}
    nothing = torch.zeros(pool, features, dtype=torch.float64)
    for index, (name, part) in enumerate(zip("abcdefghijkl", parts_of, strict=False)):
        at = torch.tensor(list(part), dtype=torch.int64)
        more = unlabeled[index] if unlabeled else nothing
        site = LocalSite(name, torch.cat([rows.z[at], more]), parts, store)
        values = zip(rows.y[at].tolist(), rows.s[at].tolist(), strict=True)
        site.buy([Label(row, y, 0, s) for row, (y, s) in enumerate(values)])
        members[name] = site
    loss = row_loss("classification" if is_class else "regression")
    channel = carried(members, Loop(model, layout, loss))
    return Hospitals(members, Overheard(channel), methods["training"])


def weights_of(state: State, outputs: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Return the weights (D, C) and biases (C,) of the state's linear model."""
    w = state["w"]
    return w[:-outputs].view(outputs, -1).T, w[-outputs:]
