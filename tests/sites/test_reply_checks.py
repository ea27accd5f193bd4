"""Replies in a simulation have the declared fields, types and shapes, and are finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import pytest
import torch

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.values import Share
from tests.simulations import simulation, tables


@final
@dataclass(frozen=True)
class Careless:
    """A strategy whose reply is not what it declares."""

    reply: Callable[[torch.Tensor], dict[str, Any]] = field(repr=False)
    contract: ClassVar[Contract] = Contract("Careless")

    @client.each("label shares", returns={"share": Share("classes")})
    def peek(self, view: Any) -> dict[str, Any]:
        return self.reply(view.counts / view.counts.sum())

    @client.sum("aggregates of label shares", returns={"share": Share("classes")})
    def total(self, view: Any) -> dict[str, Any]:
        return self.reply(view.counts / view.counts.sum())


def test_a_reply_as_declared_is_taken() -> None:
    strategy = Careless(lambda share: {"share": share})
    ask = simulation(tables(), strategy).ask()
    assert ask.each(strategy.peek).keys() == tables().keys()
    assert "share" in ask.sum(strategy.total)


@pytest.mark.parametrize("operation", ["each", "sum"])
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lambda share: {"shares": share}, r"\['shares'\].*\['share'\]"),
        (lambda share: {"share": share[:1]}, r"share has the shape \(1,\)"),
        (lambda share: {"share": "many"}, "share is 'many', which is not a number"),
        (lambda share: {"share": share * torch.nan}, "share.* NaN or infinite"),
    ],
)
def test_another_reply_is_refused_with_its_function_and_site(
    operation: str, reply: Callable[[torch.Tensor], dict[str, Any]], why: str
) -> None:
    strategy = Careless(reply)
    ask = simulation(tables(), strategy).ask()
    with pytest.raises(ValueError, match=f"site a.*{why}"):
        if operation == "each":
            ask.each(strategy.peek)
        else:
            ask.sum(strategy.total)
