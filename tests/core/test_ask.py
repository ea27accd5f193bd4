"""`Ask` with real sites in one process: what each operation discloses, and replay."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from fallow.core import client
from fallow.core.ask import Ask, each_of_all, sum_of_all
from fallow.core.client import name_call
from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import (
    ExchangeEntry,
    Masked,
    Request,
    StateName,
    Step,
    list_replaced,
)
from fallow.core.methods import Budget, Memo, Methods
from fallow.core.model_vectors import Layout
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, Values
from fallow.core.values import Real
from fallow.core.view import Release, SelectedExamples, View
from fallow.engine import Loop, row_loss
from fallow.experiment.event_log import EventLog
from fallow.privacy.settings import Privacy
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import MemoryStore
from fallow.training import FedAvg
from fallow.transport.serialized import SerializingChannel
from tests.keys import key_of
from tests.privacy.federation import SECURE, Asker, Losing, asked_by_all, asking, protected
from tests.simulations import tables


@dataclass(frozen=True)
class Toy:
    contract: ClassVar[Contract] = Contract("Toy", "-", 2024)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        return memo

    @asked_by_all
    def share(self, view: View, scale: float = 1.0) -> Values:
        return {"x": view.rows("pool").sum(0) * scale, "one": 1.0}

    @asked_by_all
    def secret(self, view: View) -> Values:
        return {"s": torch.tensor([float(view.pool)]), "t": torch.ones(2)}

    @asked_by_all
    def bad(self, view: View) -> Values:
        return {"x": torch.tensor(float("nan")) if view.site == "b" else torch.tensor(1.0)}

    @asked_by_all
    def wide(self, view: View) -> Values:
        return {"x": torch.ones(2 if view.site == "b" else 1)}

    @asked_by_all
    def pick(self, view: View, n: int) -> SelectedExamples:
        return SelectedExamples(torch.arange(n))

    @asked_by_all
    def model(self, view: View) -> Values:
        return {"w": view.rows("pool")[0]}

    @asked_by_all
    def people(self, view: View) -> Release:
        return Release(torch.tensor([1.0, 2.0]), 2.0, lambda c: {"share": c / c.sum()})

    def hidden(self, view: View) -> Values:
        return {"rows": view.rows("pool")}


TOY = Toy()


class NoteStore:
    """Event log in a dictionary."""

    def __init__(self) -> None:
        self.pages: dict[ExchangeKey, tuple[str, ExchangeEntry]] = {}

    def transaction(
        self, replaces: Collection[StateName] = ()
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def recall(self, key: ExchangeKey, digest: str) -> ExchangeEntry | None:
        page = self.pages.get(key)
        if page is None:
            return None
        if page[0] != digest:
            raise ValueError("other contents")
        return page[1]

    def record(self, key: ExchangeKey, digest: str, entry: ExchangeEntry) -> None:
        self.pages[key] = (digest, entry)


QUERY = ExchangeKey("query", "query")
Runtime = type[InProcessChannel] | type[SerializingChannel]


def door(
    runtime: Runtime = InProcessChannel,
    event_log: NoteStore | None = None,
    key: ExchangeKey = QUERY,
    **more: Any,
) -> tuple[Ask, dict[SiteId, LocalSite], Disclosure]:
    net = nn.Sequential()
    net.add_module("head", nn.Linear(2, 2))
    layout = Layout.of(net)
    methods: Methods = {"query": Toy(), "training": FedAvg(), "plain": FedAvg()}
    parts = RunComponents(
        net, layout, methods, 2, 0, fresh=lambda generator: layout.flatten(net)
    )
    x = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor([[10.0, 20.0]])}
    sites = {name: LocalSite(name, rows, parts, MemoryStore()) for name, rows in x.items()}
    channel = runtime(sites, Loop(net, layout, row_loss("classification")))
    shown = Disclosure()
    ask = Ask(
        channel,
        event_log or NoteStore(),
        shown,
        key,
        reveals=Toy.contract.disclosures,
        **more,
    )
    return ask, sites, shown


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_sum_gives_totals_and_how_many(runtime: Runtime) -> None:
    total = door(runtime)[0].sum(TOY.share, scale=2.0)
    assert total["x"].tolist() == [28.0, 52.0]
    assert float(total["one"]) == float(total["sites"]) == 2
    assert total["x"].dtype == torch.float64


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_each_gives_every_answer_and_to_reaches_some(runtime: Runtime) -> None:
    ask = door(runtime)[0]
    assert set(ask.each(TOY.share)) == {"a", "b"}
    only = ask.each(TOY.share, to={"b": {"scale": 3.0}})
    assert set(only) == {"b"}
    assert torch.as_tensor(only["b"]["x"]).tolist() == [30.0, 60.0]


def test_a_site_that_only_gets_what_waited_answers_nothing() -> None:
    ask = door()[0]
    ask.fit(None, "global", w=torch.zeros(3), stats=torch.zeros(0))
    assert ask.keep(TOY.secret, to={"a": {}}) == 2


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_keep_lets_out_a_count_and_the_answer_stays(runtime: Runtime) -> None:
    ask, sites, _ = door(runtime)
    assert ask.keep(TOY.secret) == 4
    assert sites["a"].memory["secret"]["s"].tolist() == [2.0]


def test_a_keep_answer_holds_nothing_but_a_count() -> None:
    book = NoteStore()
    ask, _sites, _ = door(event_log=book)
    sent = ask.channel.exchange(ask._requests([], ask.key, None))
    assert sent.replies == {}
    ask.keep(TOY.secret)
    (_, entry) = book.pages[ExchangeKey("query", "query")]
    assert all(set(a) == {"count"} for a in entry["replies"].values())


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_relay_reaches_receivers_and_the_server_learns_sizes(runtime: Runtime) -> None:
    ask, sites, _ = door(runtime)
    sent = ask.relay(TOY.model, {"a": ["b"], "b": []})
    assert sent == 8
    assert sites["a"].memory["model/b"]["w"].tolist() == [10.0, 20.0]
    assert "model/a" not in sites["b"].memory


def test_a_new_relay_replaces_what_the_last_one_brought() -> None:
    ask, sites, _ = door()
    ask.relay(TOY.model, {"a": ["b"]})
    ask.relay(TOY.model, {"a": ["a"]})
    assert [n for n in sites["a"].memory if n.startswith("model/")] == ["model/a"]


def test_fit_waits_and_travels_with_the_next_exchange() -> None:
    ask, sites, shown = door()
    ask.fit(None, into="global", w=torch.ones(6), stats=torch.zeros(0))
    assert not sites["a"].memory
    ask.each(TOY.share)
    assert sites["a"].memory["global"]["w"].tolist() == [1.0] * 6
    assert [row["exchanges"] for row in shown.rows()] == [1]


def test_flush_sends_what_waits_once() -> None:
    ask, sites, shown = door()
    ask.fit(None, into="global", w=torch.ones(6), stats=torch.zeros(0))
    ask.flush()
    ask.flush()
    assert "global" in sites["b"].memory and shown.rows()[0]["exchanges"] == 1


def test_picks_are_rows_of_the_site_and_only_through_keep() -> None:
    ask, sites, _ = door()
    assert ask.keep(TOY.pick, to={"a": {"n": 1}, "b": {"n": 1}}) == 2
    assert sites["a"].memory["selected"]["rows"].tolist() == [0]
    with pytest.raises(
        ValueError, match=r"'pick' selects examples, so it must be called with ask\.keep"
    ):
        ask.each(TOY.pick, n=1)


def test_counts_of_people_leave_after_post() -> None:
    replies = door()[0].each(TOY.people)
    assert torch.as_tensor(replies["a"]["share"]).tolist() == pytest.approx([1 / 3, 2 / 3])


def test_a_verb_that_the_contract_does_not_name_does_not_run() -> None:
    step = Step("each", "hidden", {})
    request = Request(key_of("0/query/0"), "query", 0, 0, (step,))
    with pytest.raises(ValueError, match="site a does not answer 'hidden' by each"):
        door()[0].channel.exchange({"a": request})


@dataclass(frozen=True)
class Sums:
    """One declared client function, which is used under another name too."""

    contract: ClassVar[Contract] = Contract("Sums", "-", 2024)

    @client.sum("what share tells", returns={"x": Real()}, takes={})
    def share(self, view: View) -> Values:
        return {"x": 1.0}

    def other(self, view: View) -> Values:
        return {"x": 1.0}

    again = share


def test_the_name_of_a_function_is_the_declared_one() -> None:
    assert name_call(Sums().share, "sum") == "share"
    assert name_call(Sums().again, "sum") == "share"


@pytest.mark.parametrize(
    ("function", "error", "why"),
    [
        ("share", TypeError, r"ask.keep was given 'share'; pass a client function itself"),
        (len, TypeError, r"ask.keep was given <built-in function len>; pass a client"),
        (Toy.share, TypeError, r"pass a client function itself, such as ask.keep\(self"),
        (TOY.hidden, ValueError, r"Toy.hidden is not declared: add @client.keep\(...\)"),
        (Sums().other, ValueError, r"Sums.other is not declared: add @client.keep\(...\)"),
        (
            Sums().share,
            ValueError,
            r"ask.keep was given share: .* Sums allows it only by sum",
        ),
    ],
)
def test_a_function_that_is_not_declared_for_an_operation_is_refused_in_a_sentence(
    function: Any, error: type[Exception], why: str
) -> None:
    ask, sites, shown = door()
    with pytest.raises(error, match=why):
        ask.keep(function)
    assert shown.rows() == [] and all(not site.memory for site in sites.values())


def test_a_bad_addend_names_site_and_field() -> None:
    with pytest.raises(ValueError, match=r"site b replied to 'bad' with x that is NaN"):
        door()[0].sum(TOY.bad)


def test_an_addend_beyond_its_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"site b .* beyond the bound 15"):
        door()[0].sum(TOY.share, bound=15)


def test_addends_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"site b .* shape \(2,\), others with \(1,\)"):
        door()[0].sum(TOY.wide)


def test_an_error_in_a_verb_says_where() -> None:
    with pytest.raises(
        RuntimeError, match=r"Toy.pick failed at site a in cycle 3, round 2"
    ):
        door(key=ExchangeKey("train", "round", round=2), cycle=3)[0].keep(
            TOY.pick, n="many"
        )


def test_a_journaled_exchange_is_not_sent_again() -> None:
    book = NoteStore()
    first = door(event_log=book)[0].sum(TOY.share)
    ask, sites, shown = door(event_log=book)
    sites.clear()  # there is no site to reply
    again = ask.sum(TOY.share)
    assert torch.equal(first["x"], again["x"])
    assert shown.rows()[0]["bytes"] > 0


def test_the_same_key_with_other_contents_is_refused() -> None:
    book = NoteStore()
    door(event_log=book)[0].sum(TOY.share)
    with pytest.raises(ValueError, match="other contents"):
        door(event_log=book)[0].sum(TOY.share, scale=2.0)


def test_the_cohort_is_who_is_asked() -> None:
    assert set(door(cohort=("b",))[0].each(TOY.share)) == {"b"}


def test_every_exchange_is_disclosed_with_bytes_in_both_directions() -> None:
    ask, _, shown = door()
    ask.sum(TOY.share, scale=2.0)
    (row,) = shown.rows()
    assert row == {
        "kind": "sum",
        "function": "share",
        "description": "what share tells",
        "bytes": 32,
        "bytes_down": 16,
        "sites": 2,
        "exchanges": 1,
    }


def test_disclosures_add_up_and_come_back_from_rows() -> None:
    ask, _, shown = door()
    ask.sum(TOY.share)
    both = shown.plus(Disclosure.of(shown.rows()))
    assert both.bytes_up == 2 * shown.bytes_up
    assert both.rows()[0]["exchanges"] == 2
    assert shown.rows()[0]["exchanges"] == 1


def test_what_was_spent_and_masked_is_disclosed_and_adds_up() -> None:
    shown = Disclosure()
    shown.add("sum", "share", "totals", 8, 0, 3, epsilon=1.0, masked=True)
    shown.add("keep", "select", "a count", 8, 0, 3)
    both = shown.plus(Disclosure.of(shown.rows()))
    kept, share = both.rows()
    assert (share["epsilon"], share["masked"]) == (2.0, True)
    assert not {"epsilon", "masked"} & kept.keys()


def test_a_sum_with_a_bound_that_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the sum's bound is -1"):
        Masked(key_of("0/query/0"), 0, -1)


def test_a_fit_without_labels_gives_back_where_it_started() -> None:
    ask, sites, _ = door(owner="query")
    sites["a"].parts.methods["plain"] = FedAvg()
    ask.fit(TrainingConfig(), into="local", w=torch.ones(6), stats=torch.zeros(0))
    ask.flush()
    assert sites["a"].memory["local"]["w"].tolist() == [1.0] * 6


@pytest.mark.parametrize(
    ("privacy", "exchange"),
    [(Privacy(), 0), (SECURE, 0), (SECURE, 1)],
    ids=["plain", "keys", "masked"],
)
def test_a_total_of_all_is_the_total_or_nothing_that_a_resume_would_repeat(
    privacy: Privacy, exchange: int
) -> None:
    federation, event_log = protected(privacy, sites=tables(sites=4)), EventLog()
    lost = Losing(federation.channel, {exchange: ["b"]})
    with pytest.raises(
        RuntimeError, match=r"3 of 4 sites replied to '(plain|keys)', .* with --resume when"
    ):
        sum_of_all(asking(federation, lost, event_log), Asker().plain)
    again = sum_of_all(asking(federation, event_log=event_log), Asker().plain)
    assert float(again["sites"]) == 4
    plain = asking(protected(Privacy(), sites=tables(sites=4))).sum(Asker().plain)
    torch.testing.assert_close(again["x"], plain["x"], rtol=0, atol=1e-10)


def test_answers_of_all_are_all_or_none_is_recorded() -> None:
    federation, event_log = protected(Privacy()), EventLog()
    lost = Losing(federation.channel, {0: ["b"]})
    with pytest.raises(RuntimeError, match="2 of 3 sites replied to 'plain'"):
        each_of_all(asking(federation, lost, event_log), Asker().plain)
    assert (
        len(each_of_all(asking(federation, event_log=event_log), Asker().plain, scale=2.0))
        == 3
    )


def test_only_the_main_model_that_a_first_step_trains_anew_is_replaced() -> None:
    usual = TrainingConfig()
    own = replace(usual, start="local")
    upload = Step("sum", "upload", {})

    def replaced(*steps: Step, owner: str = "training") -> list[tuple[SiteId, str]]:
        request = Request(QUERY, owner, cycle=0, round=0, steps=steps)
        return list_replaced({"a": request})

    assert replaced(Step("fit", "local", {}, usual), upload) == [("a", "local")]
    assert replaced(Step("fit", "local", {}, own), upload) == []  # it reads the model
    assert replaced(upload, Step("fit", "local", {}, usual)) == []
    assert replaced(Step("fit", "local", {}), upload) == []  # a model is delivered
    assert replaced(Step("fit", "twin", {}, usual), upload) == []
    assert replaced(Step("fit", "local", {}, usual), owner="query") == []
