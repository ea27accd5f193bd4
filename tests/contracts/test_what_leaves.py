"""Data that leaves a site in a query: every byte is recorded and compared with a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.messages import Delivered, Request
from fallow.core.types import Values
from fallow.core.view import View
from fallow.sites.in_process import InProcessChannel
from fallow.storage.packing import pack
from fallow.strategies import (
    AHFAL,
    FALE,
    IFAL,
    Entropy,
    FairFAL,
    OracleHistogram,
    Pivotal,
    Typical,
    TypicalUnsure,
)
from fallow.transport.serialized import SerializingChannel
from fallow.transport.wire import pack_request
from tests.contracts.numbers import simulation
from tests.contracts.strategies import of_all
from tests.simulations import Simulation, Tables, tables
from tests.test_threats import load_script

CLASSES = 4
ROOT = Path(__file__).resolve().parents[2]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Listed:
    """Content of the exchanges of one query in each direction.

    The number of selected examples is not included.
    """

    exchanges: tuple[str, ...] = ("keep",)
    up: tuple[Shapes, ...] = ()
    down: tuple[Shapes, ...] = ({"n": ()},)
    fits: tuple[Shapes, ...] = ()  # models to train, sent with the exchanges


def listed(strategy: Any) -> Listed:
    """Return the row of ``strategy``; plain strategies send a count and get a budget."""
    if isinstance(strategy, FairFAL):
        once: Shapes = {"gamma": (), "one": ()}
        return Listed(("sum", "keep"), (once,), ({}, {"n": (), "gamma": ()}))
    if isinstance(strategy, Entropy) and strategy.model == "average":
        mean: Shapes = {"w": (2 * CLASSES * CLASSES + CLASSES,), "stats": (0,)}
        return Listed(("sum", "keep"), ({"n": (), **mean},), ({}, {"n": (), **mean}))
    if isinstance(strategy, FALE):
        return of_fale(strategy)
    if isinstance(strategy, Pivotal):
        return of_pivotal()
    if isinstance(strategy, Typical):
        return of_typical(strategy)
    if isinstance(strategy, TypicalUnsure):
        return of_typical_unsure(strategy)
    if isinstance(strategy, IFAL):
        return Listed(fits=({},))  # its teacher, the global model, was sent before
    if isinstance(strategy, OracleHistogram):
        total: Shapes = {"counts": (CLASSES,)}
        return Listed(("sum", "keep"), (total,), ({}, {"n": (), "share": (CLASSES,)}))
    if not isinstance(strategy, AHFAL):
        return Listed()
    share: Shapes = {"one": (), "share": (CLASSES,), "square": (CLASSES,)}
    if strategy.tau_scale == "count":
        share |= {"count": (CLASSES,), "count_square": (CLASSES,)}
    return Listed(
        ("sum", "keep"), (share,), ({}, {"n": (), "low": (CLASSES,), "mean": (CLASSES,)})
    )


def of_fale(strategy: FALE) -> Listed:
    """Return what FALE sends: k columns, those of an example and a 1."""
    d, rows = 2 * CLASSES, 12
    k = d + 1
    triangle: Shapes = {"products": (k * (k + 1) // 2,)}
    at: Shapes = {"mean": (d,), "unit": (k,), "lead": ()}
    basis: Shapes = {**at, "basis": (k, k)}
    count: Shapes = {"count": ()}
    scored: dict[str, list[tuple[str, Shapes, Shapes]]] = {
        "gram": [("sum", triangle, at), ("sum", triangle, basis), ("keep", count, basis)],
        "fedsvd": [
            ("each", {"rows": (rows, k)}, at),
            ("keep", count, {"left": (rows, k), "width": ()}),
        ],
        "tsqr": [("each", {"rows": (k, k)}, at), ("keep", count, basis)],
    }
    passed: list[tuple[str, Shapes, Shapes]] = [("relay", {"bytes": ()}, {"size": ()})]
    exchanges: list[tuple[str, Shapes, Shapes]] = [
        ("sum", {"rows": (), "columns": (d,)}, {}),
        ("sum", {"squares": (d,), "varies": (d,)}, {"mean": (d,)}),
        *(passed if strategy.rotate else []),
        *scored[strategy.mode],
        ("sum", {"mass": (), "reachable": ()}, {}),
        ("keep", count, {"n": (), "mass": (), "rows": ()}),
    ]
    kinds, up, down = zip(*exchanges, strict=True)
    return Listed(kinds, up[:-1], down)


def of_pivotal() -> Listed:
    """Return what is sent with a budget per site: products of the columns and a 1."""
    d = 2 * CLASSES
    k = d + 1
    at: Shapes = {"mean": (d,), "unit": (k,)}
    exchanges: list[tuple[str, Shapes, Shapes]] = [
        ("sum", {"rows": (), "columns": (d,)}, {}),
        ("sum", {"squares": (d,), "varies": (d,)}, {"mean": (d,)}),
        ("sum", {"products": (k * (k + 1) // 2,)}, at),
        ("keep", {"count": ()}, {**at, "basis": (k, k)}),
        ("sum", {"mass": ()}, {}),
        ("keep", {"count": ()}, {"n": (), "mass": (), "rows": ()}),
    ]
    kinds, up, down = zip(*exchanges, strict=True)
    return Listed(kinds, up[:-1], down)


def clustered(splits: Sequence[int]) -> list[tuple[str, Shapes, Shapes]]:
    """Return the exchanges of clustering.

    Examples have two logits per class and are split from this sequence of numbers of
    clusters; the last is the final number.
    """
    d = 2 * CLASSES
    traces: list[tuple[str, Shapes, Shapes]] = [("sum", of_groups(1, d), {})]
    for k in splits[:-1]:
        planes: Shapes = {"centers": (k, d), "planes": (k, d)}
        traces.append(("sum", of_groups(2 * k, d), planes))
    k = splits[-1]
    at: Shapes = {"centers": (k, d)}
    for _ in range(3):
        traces.append(("sum", of_groups(k, d), at))
    return traces


def of_groups(k: int, d: int) -> Shapes:
    return {"rows": (k,), "features": (k, d), "squares": (k,)}


def of_typical(strategy: Typical) -> Listed:
    """Return what is sent for three sites with 12 examples each and a budget of three."""
    d = 2 * CLASSES
    splits = [1, 2, 3, 4, 6, 6]
    if strategy.least == 3:
        splits = [1, 2, 3, 4, 6, 9, 11, 11]
    k = splits[-1]
    count: Shapes = {"count": ()}
    at: Shapes = {"centers": (k, d)}
    exchanges: list[tuple[str, Shapes, Shapes]] = [
        ("keep", count, {}),
        ("sum", {"rows": (), "labels": ()}, {}),
        *clustered(splits),
        ("sum", {"rows": (k,), "labels": (k,), "holders": (k,)}, at),
        ("keep", count, {"n": (), **at}),
    ]
    turns = 3
    for turn in range(turns):
        winners: Shapes = {"winners": (turn, k)}
        bid: Shapes = {**winners, "prefix": (k,), "digit": ()}
        digit: Shapes = {"bids": (k, 128)}
        exchanges += [("sum", digit, bid), ("sum", digit, bid)]
        exchanges.append(("sum", {"taken": (k,)}, {"winners": (turn + 1, k)}))
    last: Shapes = {"n": (), "winners": (turns, k), "covered": (k,)}
    exchanges.append(("keep", count, last))
    kinds, up, down = zip(*exchanges, strict=True)
    return Listed(kinds, up[:-1], down)


def of_typical_unsure(strategy: TypicalUnsure) -> Listed:
    """Return what is sent for three sites with 12 examples each and a budget of three."""
    d = 2 * CLASSES
    splits = [1, 2, 3, 4, 6, 6]
    if strategy.least == 3:
        splits = [1, 2, 3, 4, 6, 9, 11, 11]
    k = splits[-1]
    count: Shapes = {"count": ()}
    at: Shapes = {"centers": (k, d), "is_trained": ()}
    weights: Shapes = {"masses": (k,), "labels": (k,)}
    exchanges: list[tuple[str, Shapes, Shapes]] = [
        ("keep", count, {}),
        ("sum", {"rows": (), "labels": ()}, {}),
        *clustered(splits),
        ("sum", {"rows": (k,), **weights}, at),
        ("keep", count, {"n": (), **at, **weights}),
    ]
    turns = 3
    for turn in range(turns):
        asked: Shapes = {"bars": (turn, k), "prefix": (k,), "digit": ()}
        digit: Shapes = {"rows": (k, 128)}
        exchanges += [("sum", digit, asked), ("sum", digit, asked)]
        exchanges.append(("sum", {"taken": (k,)}, {"bars": (turn + 1, k)}))
    last: Shapes = {"n": (), "bars": (turns, k), "covered": (k,)}
    exchanges.append(("keep", count, last))
    kinds, up, down = zip(*exchanges, strict=True)
    return Listed(kinds, up[:-1], down)


@dataclass
class Recording:
    """Transport that records every message of another one, as objects and as bytes."""

    channel: SerializingChannel | InProcessChannel
    requests: list[Request]
    replies: list[Values]
    up: bytes = b""
    down: bytes = b""

    @property
    def sites(self) -> tuple[str, ...]:
        return self.channel.sites

    def exchange(self, requests: Mapping[str, Request], routes: Any = None) -> Delivered:
        done = self.channel.exchange(requests, routes)
        self.requests += requests.values()
        self.replies += done.replies.values()
        self.up += b"".join(map(pack, done.replies.values()))
        self.down += b"".join(map(pack_request, requests.values()))
        return done


def recorded(strategy: Any, sites: Tables) -> tuple[Simulation, Recording]:
    federation = simulation(sites, strategy, runtime=SerializingChannel)
    recording = Recording(federation.channel, [], [])  # type: ignore[arg-type]
    return Simulation(strategy, federation.members, recording), recording


def leaks(federation: Simulation, recording: Recording) -> list[str]:
    """Return the sites of which an example, in float64 or float32, is in some message."""
    sent = recording.up + recording.down
    rows = {name: [*site.x, *site.x.float()] for name, site in federation.members.items()}
    return [
        n
        for n, tensors in rows.items()
        if any(row.numpy().tobytes() in sent for row in tensors)
    ]


@pytest.mark.long
@of_all
def test_no_row_leaves_its_site_while_training_and_querying(strategy: Any) -> None:
    federation, recording = recorded(strategy, tables())
    state = federation.members["a"].memory["global"]
    methods = federation.members["a"].parts.methods
    methods["training"].round(state, federation.ask("training"))
    federation.query(4)
    assert len(recording.up) > 0
    assert leaks(federation, recording) == []


class Leaky:
    """A strategy that sends a row where a count would do."""

    contract: ClassVar[Contract] = Contract("Leaky")

    def query(self, ask: Any, budget: Any, memo: Any) -> Any:
        ask.each(self.select)
        return memo

    @client.each("a row of the pool")
    def select(self, view: View) -> Values:
        return {"row": view.rows()[3]}


def test_a_row_that_leaves_is_found() -> None:
    federation, recording = recorded(Leaky(), tables())
    federation.query(4)
    assert leaks(federation, recording) == ["a", "b", "c"]


def shapes(reply: Values) -> Shapes:
    numbers = {k: torch.tensor(0) if isinstance(v, str) else v for k, v in reply.items()}
    return {name: tuple(torch.as_tensor(value).shape) for name, value in numbers.items()}


@pytest.mark.long
@of_all
def test_the_exchanges_of_a_query_carry_what_is_listed_and_nothing_else(
    strategy: Any,
) -> None:
    federation, recording = recorded(strategy, tables(classes=CLASSES))
    federation.query(3)
    expected = listed(strategy)
    up = [shapes(reply) for reply in recording.replies]
    steps = [step for request in recording.requests for step in request.steps]
    down = [shapes(step.args) for step in steps if step.kind != "fit"]
    fits = [shapes(step.args) for step in steps if step.kind == "fit"]
    asked = [
        "a" if kind == "relay" else "abc" for kind in expected.exchanges
    ]  # forwarded by a
    ups = zip((*expected.up, {"count": ()}), asked, strict=True)
    assert up == [result for result, sites in ups for _ in sites]
    assert down == [f for f, sites in zip(expected.down, asked, strict=True) for _ in sites]
    assert fits == [fit for fit in expected.fits for _ in "abc"]


@pytest.mark.long
@of_all
def test_a_cycle_has_one_query_and_one_exchange_that_picks(strategy: Any) -> None:
    federation, recording = recorded(strategy, tables(classes=CLASSES))
    federation.query(3)
    kinds = tuple({r.key: r.steps[-1].kind for r in recording.requests}.values())
    assert kinds == listed(strategy).exchanges
    assert kinds[-1] == "keep"
    keeps_before = 0  # of scores or clusters
    if isinstance(strategy, FALE | Pivotal):
        keeps_before = 1
    elif isinstance(strategy, Typical | TypicalUnsure):
        keeps_before = 2
    assert kinds.count("keep") == 1 + keeps_before


def test_the_tables_of_the_page_are_those_of_the_declarations() -> None:
    page = (ROOT / "docs" / "what-leaves.md").read_text(encoding="utf-8")
    assert page == load_script("what_leaves").fill(page), (
        "run: python scripts/what_leaves.py"
    )
