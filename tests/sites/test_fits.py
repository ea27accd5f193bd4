"""Instructions to train at a site: the step, the initial model and the examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast, final

import pytest
import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.local import Batch, Learner, TrainState, slot, weighted_mean
from fallow.core.messages import Request, Step
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.refusal import Refusal
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Job, Loop, row_loss
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.training import FedAvg, ServerSolve
from fallow.transport.serialized import SerializingChannel
from tests.engine.jobs import assert_agree, mlp
from tests.keys import key_of
from tests.simulations import Forgetful

CONFIG = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9))
SCRATCH = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", 0.05), start="scratch")


@final
@dataclass(frozen=True)
class Distilling:
    """A query that has models trained: one by its own step, which it is sent a teacher for."""

    seen: list[tuple[Tensor, Batch]] = field(
        default_factory=list
    )  # the teacher and the batch

    contract: ClassVar[Contract] = Contract("distilling", "a test", 2024)

    def query(self, ask: Ask, budget: Any, memo: Any) -> Any:
        return memo

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        teacher = learn.predict(w_t, b.x)
        self.seen.append((w_t.w, b))

        def objective(f: Callable[[Tensor], Tensor]) -> Tensor:
            return weighted_mean((f(b.x) - teacher).square().sum(-1), b.weight)

        return {"w": learn.descend(s["w"], b, objective=objective)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


@final
@dataclass(frozen=True)
class CollaboratorSelection:
    """A query without a step of its own."""

    contract: ClassVar[Contract] = Contract("choosing", "a test", 2024)


def simulation(strategy: Any, kind: type = InProcessChannel, pool: int = 5) -> Any:
    model = mlp()
    layout, store = Layout.of(model), MemoryStore()
    methods = cast(
        Methods,
        {"training": FedAvg(CONFIG), "plain": FedAvg(), "query": strategy},
        # toys with the requested attributes
    )
    parts = RunComponents(model, layout, methods, 3, 0, partial(_fresh, layout))
    members = {}
    for name in ("a", "b"):
        x = torch.randn(8 + pool, 6, generator=stream(0, "rows", name), dtype=torch.float64)
        members[name] = LocalSite(name, x, parts, store)
        members[name].buy([Label(row, row % 2, cycle=0) for row in range(8)])
    return kind(members, Loop(model, layout, row_loss("classification")))


def _fresh(layout: Layout, generator: torch.Generator) -> State:
    w = 0.3 * torch.randn(layout.d, generator=generator, dtype=torch.float64)
    return {"w": w, "stats": torch.zeros(0, dtype=torch.float64)}


def order_fit(
    channel: Any,
    name: str,
    training_config: TrainingConfig,
    owner: str = "query",
    /,
    **state: Tensor,
) -> None:
    """Send an instruction to train at every site, from a query or training algorithm."""
    ask = Ask(
        channel,
        Forgetful(),
        Disclosure(),
        ExchangeKey("query", "query", cycle=1),
        owner,
        cycle=1,
    )
    ask.fit(training_config, name, None, **state)
    ask.flush()


def initial_model() -> State:
    return Layout.of(mlp()).flatten(mlp())


@pytest.mark.parametrize("kind", [InProcessChannel, SerializingChannel])
def test_a_query_with_a_step_trains_what_it_orders_by_it(kind: type) -> None:
    strategy = Distilling()
    channel = simulation(strategy, kind)
    order_fit(channel, "pupil", SCRATCH, **initial_model())
    assert len(strategy.seen) == 2 * 2 * 2  # sites, epochs, batches
    assert all(torch.equal(teacher, initial_model()["w"]) for teacher, _ in strategy.seen)
    for site in channel.members.values():
        begun = site.parts.fresh(site.streams("init", "pupil", 1, 0))["w"]
        assert not torch.equal(site.memory["pupil"]["w"], begun)


def test_the_local_model_is_trained_in_the_plain_way_by_every_query() -> None:
    strategy, plain = Distilling(), CollaboratorSelection()
    theirs, ours = simulation(strategy), simulation(plain)
    for channel in (theirs, ours):
        order_fit(channel, "local", SCRATCH, **initial_model())
    assert not strategy.seen
    for name, site in ours.members.items():
        assert_agree(
            dict(site.memory["local"]), dict(theirs.members[name].memory["local"]), atol=0
        )


def test_a_query_without_a_step_has_its_models_trained_in_the_plain_way() -> None:
    channel = simulation(CollaboratorSelection())
    order_fit(channel, "other", CONFIG, **initial_model())
    order_fit(channel, "local", CONFIG, "training", **initial_model())
    for site in channel.members.values():  # other batches, but the same kind of training
        assert not torch.equal(site.memory["other"]["w"], initial_model()["w"])
        assert not torch.equal(site.memory["other"]["w"], site.memory["local"]["w"])


def test_where_nothing_was_sent_the_fresh_model_is_what_training_started_from() -> None:
    strategy = Distilling()
    channel = simulation(strategy)
    order_fit(channel, "pupil", SCRATCH)
    first = channel.members["a"]
    fresh = first.parts.fresh(first.streams("init", "pupil", 1, 0))["w"]
    assert torch.equal(strategy.seen[0][0], fresh)


def test_a_query_that_sends_nothing_has_the_global_model_for_a_teacher() -> None:
    strategy = Distilling()
    channel = simulation(strategy)
    for site in channel.members.values():
        site.remember("global", initial_model())
    order_fit(channel, "pupil", SCRATCH)
    assert all(torch.equal(teacher, initial_model()["w"]) for teacher, _ in strategy.seen)


def test_what_a_query_trains_begins_with_the_statistics_that_stayed_at_the_site() -> None:
    site = simulation(CollaboratorSelection()).members["a"]
    stats = torch.tensor([3.0], dtype=torch.float64)
    kept = slot({"w": stats[:0], "stats": stats}, CONFIG.optimizer)
    site.remember("own/bn", kept._asdict())

    def job(training_config: TrainingConfig, owner: str) -> Job:
        step = Step("fit", "local", dict(initial_model()), training_config)
        made: Job = site.job(step, Request(key_of("0/query/0"), owner, 1, 0, (step,)))
        return made

    assert torch.equal(job(CONFIG, "query").start["stats"], stats)
    assert torch.equal((job(SCRATCH, "query").sent or {})["stats"], stats)
    assert torch.equal(
        job(CONFIG, "training").start["stats"], initial_model()["stats"]
    )  # its step is used


def test_a_batch_knows_the_labels_of_its_site_and_its_pool_if_training_mixes() -> None:
    strategy = Distilling()
    channel = simulation(strategy)
    mixing = TrainingConfig((TrainingStage(1),), 4, Optimizer(), mix=2.0)
    for training_config in (CONFIG, mixing):
        strategy.seen.clear()
        order_fit(channel, "pupil", training_config, **initial_model())
        for at, (_, b) in enumerate(strategy.seen):
            site = channel.members["ab"[at // (len(strategy.seen) // 2)]]
            assert b.counts.tolist() == [4.0, 4.0, 0.0]
            assert (len(b.u) > 0) == (training_config is mixing)
            for row in b.u:
                assert bool((site.x[site.pool] == row).all(1).any())


def test_a_model_of_another_name_has_streams_of_its_own() -> None:
    channel = simulation(CollaboratorSelection())
    for name in ("one", "two"):
        order_fit(channel, name, SCRATCH, **initial_model())
    site = channel.members["a"]
    assert not torch.equal(site.memory["one"]["w"], site.memory["two"]["w"])


def test_a_training_method_without_a_step_is_ordered_no_local_training() -> None:
    channel = simulation(CollaboratorSelection())
    for site in channel.members.values():
        site.parts.methods["training"] = ServerSolve()
    with pytest.raises(
        Refusal, match="site a received an instruction to train, but its training algorithm"
    ):
        order_fit(channel, "local", CONFIG, "training", **initial_model())
    assert all(not site.memory for site in channel.members.values())


@final
@dataclass(frozen=True)
class Doubling:
    """A training method whose step is not plain, whose moments stay and that deploys its own."""

    training_config: TrainingConfig = CONFIG
    contract: ClassVar[Contract] = Contract("doubling", "a test", 2024)

    def deploy(self, state: State, memory: Any) -> State:
        return {**state, "w": 2 * state["w"]}

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": s["w"]._replace(w=2 * s["w"].w)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {"kept": s["w"]}


def doubling(kind: type = InProcessChannel) -> Any:
    channel = simulation(CollaboratorSelection(), kind)
    for site in channel.members.values():
        site.parts.methods["training"] = Doubling()
    return channel


@pytest.mark.parametrize("kind", [InProcessChannel, SerializingChannel])
def test_training_may_start_at_a_model_that_the_site_remembers(kind: type) -> None:
    channel = doubling(kind)
    for name, site in channel.members.items():
        site.remember(
            "average", {**site.parts.fresh(stream(7, name)), "score": torch.ones(())}
        )
    order_fit(channel, "local", replace(CONFIG, start="average"), "training")
    for site in channel.members.values():
        assert torch.equal(site.memory["local"]["w"], 2**4 * site.memory["average"]["w"])


def test_training_cannot_start_at_a_model_that_the_site_has_not() -> None:
    with pytest.raises(
        ValueError, match=r"site a has no model 'best' .* stored models and states: none"
    ):
        order_fit(
            simulation(CollaboratorSelection()),
            "local",
            replace(CONFIG, start="best"),
            "training",
        )


def test_where_a_model_comes_along_it_is_the_teacher_of_one_that_starts_elsewhere() -> None:
    site = simulation(CollaboratorSelection()).members["a"]
    site.remember("own", kept := site.parts.fresh(stream(7)))
    step = Step("fit", "local", dict(initial_model()), replace(CONFIG, start="own"))
    job = site.job(step, Request(key_of("0/query/0"), "training", 1, 0, (step,)))
    assert torch.equal(job.start["w"], kept["w"])
    assert torch.equal((job.sent or {})["w"], initial_model()["w"])


def test_rounds_train_on_the_same_tensor_until_labels_are_added_or_a_query_starts() -> None:
    site = simulation(CollaboratorSelection()).members["a"]
    step = Step("fit", "local", dict(initial_model()), CONFIG)
    request = Request(key_of("0/train/0/0"), "training", 0, 0, (step,))
    first = site.job(step, request).x
    assert site.job(step, request).x is first
    site.release_rows()
    again = site.job(step, request).x
    assert again is not first
    assert torch.equal(again, first)
    site.buy([Label(int(site.pool[0]), 1.0, 0)])
    assert len(site.job(step, request).x) == len(first) + 1


def test_the_step_and_the_slots_of_a_training_method_are_for_its_local_model_alone() -> (
    None
):
    channel, plain = doubling(), simulation(CollaboratorSelection())
    order_fit(channel, "local", CONFIG, "training", **initial_model())
    before = {name: dict(site.memory) for name, site in channel.members.items()}
    for item in (channel, plain):
        order_fit(item, "tuned", CONFIG, "training", **initial_model())
    for name, site in channel.members.items():
        assert_agree(site.memory["tuned"], plain.members[name].memory["tuned"], atol=0)
        assert set(site.memory) == {"local", "own/kept", "tuned"}
        assert torch.equal(site.memory["own/kept"]["w"], before[name]["own/kept"]["w"])


def test_a_model_is_handed_over_as_it_is_deployed_but_for_those_beside_the_local_one() -> (
    None
):
    channel = doubling()
    for owner, name, times in (
        ("query", "global", 2),
        ("training", "local", 2),
        ("training", "average", 1),
    ):
        ask = Ask(channel, Forgetful(), Disclosure(), ExchangeKey("query", "query"), owner)
        ask.fit(None, name, None, **initial_model())
        ask.flush()
        for site in channel.members.values():
            assert torch.equal(site.memory[name]["w"], times * initial_model()["w"])
