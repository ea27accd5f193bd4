"""Run an encoder on in-memory sites: split examples, aggregate, and compute features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.client import declared, find_wrong_argument
from fallow.core.disclosure import Disclosure
from fallow.core.methods import Encoder
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.core.values import SenderFacts
from fallow.encoders.base import Shape, encode_rows
from fallow.encoders.encoding import Encoding
from fallow.engine import Loop, row_loss
from fallow.experiment.encoding import with_encoder
from fallow.experiment.event_log import EventLog
from fallow.models.networks import Linear
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import MemoryStore
from fallow.training import FedAvg
from tests.keys import step_of


def make_sites(encoder: Encoder, parts: Sequence[Tensor]) -> dict[str, LocalSite]:
    """Return a site for each part of the examples, without labels."""
    shape = tuple(parts[0].shape[1:])
    model = Linear((encoder.width(shape),), 2)
    layout = Layout.of(model)
    plain: Any = {"training": FedAvg(), "plain": FedAvg()}
    methods = with_encoder(plain, encoder, shape)

    def fresh(generator: torch.Generator) -> State:
        return layout.flatten(model)

    def encoded(site: str, x: Tensor, state: State) -> tuple[Tensor, None]:
        return encode_rows(encoder, x, state), None

    details = RunComponents(model, layout, methods, 2, 0, fresh, encode=encoded)
    store = MemoryStore()
    return {f"s{i}": LocalSite(f"s{i}", x, details, store) for i, x in enumerate(parts)}


def open_door(
    sites: dict[str, LocalSite], owner: str, key: str = "0/initial/encoder"
) -> Ask:
    """Return an `Ask` for these sites, for the encoder or the transfer of its state."""
    some = next(iter(sites.values())).parts
    executor = Loop(some.model, some.layout, row_loss("classification"))
    channel = InProcessChannel(sites, executor)
    return Ask(channel, EventLog(), Disclosure(), step_of(key), owner)


def fit_encoder(encoder: Encoder, parts: Sequence[Tensor]) -> State:
    """Return the state fitted to aggregates over sites with these examples."""
    sites = make_sites(encoder, parts)
    return encoder.fit(open_door(sites, "encoder"), tuple(parts[0].shape[1:]))


def cut_rows(x: Tensor, sites: int, seed: int) -> list[Tensor]:
    """Split shuffled examples into unequal, non-empty parts."""
    draw = stream(seed, "cuts")
    order = torch.randperm(len(x), generator=draw)
    inner = 1 + torch.randperm(len(x) - 1, generator=draw)[: sites - 1]
    ends = [0, *sorted(inner.tolist()), len(x)]
    return [x[order[a:b]] for a, b in pairwise(ends)]


def draw_pictures(rows: int, *shape: int, seed: int = 0) -> Tensor:
    """Draw smooth random images (n, *shape) float32 with uneven brightness."""
    draw = stream(seed, "pictures")
    x = torch.randn(rows, *shape, generator=draw)
    return (x + x.roll(1, -1) + 0.5 * x.roll(2, -2) + 0.3).float()


def find_wrong_state(encoder: Encoder, shape: Shape, state: State) -> str | None:
    """Explain why a site would not encode with a fitted state, or return None."""
    takes = declared(Encoding(encoder, shape))["encode"].takes
    assert takes is not None
    return find_wrong_argument(takes, state, SenderFacts())
