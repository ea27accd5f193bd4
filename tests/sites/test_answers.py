"""Checks at a site of what client functions return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest
import torch

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.messages import Request, Step
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import Values
from fallow.core.view import SelectedExamples, View
from fallow.sites import LocalSite, RunComponents
from fallow.sites.replies import reply_to_step
from fallow.sites.store import MemoryStore
from fallow.training import FedAvg
from tests.engine.jobs import mlp
from tests.keys import key_of

ROWS = 6


@dataclass(frozen=True)
class CollaboratorSelection:
    """Picks the rows that it was made with."""

    rows: tuple[int, ...] = (0, 1)
    contract: ClassVar[Contract] = Contract("Choosing", "a test", 2024)

    @client.sum("a total")
    def total(self, view: View) -> Values:
        return {"n": torch.tensor(1.0)}

    @client.keep("a count")
    def select(self, view: View, n: int) -> SelectedExamples:
        return SelectedExamples(torch.tensor(self.rows))

    def secret(self, view: View) -> Values:
        return {"rows": view.rows()}


def ask(
    strategy: CollaboratorSelection, kind: Any, function: str, **args: Any
) -> tuple[LocalSite, Values]:
    model = mlp()
    methods = cast(
        Methods,
        {"training": FedAvg(), "plain": FedAvg(), "query": strategy},
        # toys with the requested attributes
    )
    x = torch.randn(ROWS, 6, generator=stream(0, "rows"), dtype=torch.float64)
    layout = Layout.of(model)
    parts = RunComponents(
        model, layout, methods, classes=3, seed=0, fresh=lambda gen: layout.flatten(model)
    )
    site = LocalSite("a", x, parts, MemoryStore())
    step = Step(kind, function, args)
    return site, reply_to_step(
        site, step, Request(key_of("0/query/0"), "query", 0, 0, (step,))
    )


def test_picks_stay_at_the_site_and_their_number_leaves() -> None:
    site, reply = ask(CollaboratorSelection((4, 2)), "keep", "select", n=2)
    assert reply == {"count": 2}
    assert site.memory["selected"]["rows"].tolist() == [4, 2]


def test_what_is_kept_stays_at_the_site_and_how_many_fields_it_has_leaves() -> None:
    class Keeping(CollaboratorSelection):
        contract = Contract("Keeping", "a test", 2024)

        @client.keep("a count")
        def total(self, view: View) -> Values:
            return super().total(view)

    keeping = Keeping()
    site, reply = ask(keeping, "keep", "total")
    assert reply == {"count": 1}
    assert site.memory["total"].keys() == {"n"}


@pytest.mark.parametrize("rows", [(0,), (0, 0), (0, ROWS), (-1, 0), (0, 1, 2)])
def test_picks_that_are_none_of_the_pool_or_not_as_many_are_refused(
    rows: tuple[int, ...],
) -> None:
    with pytest.raises(
        ValueError, match=r"are selected and 2 are|selected 2 times|outside the pool of"
    ):
        ask(CollaboratorSelection(rows), "keep", "select", n=2)


@pytest.mark.parametrize(
    ("kind", "function"), [("each", "secret"), ("each", "total"), ("sum", "select")]
)
def test_a_function_that_no_contract_lists_so_is_not_run(kind: str, function: str) -> None:
    with pytest.raises(ValueError, match=f"does not answer '{function}' by {kind}"):
        ask(CollaboratorSelection(), kind, function)
