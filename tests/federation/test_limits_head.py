"""What a hostile coordinator cannot ask of a site by way of an exact head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from fallow.core import Request, Step
from fallow.core.types import State
from fallow.training.exact_head import ExactHead
from tests.federation.hosts import Leader, agreement, folder
from tests.federation.test_limits import expect_refusal, fit, score

pytest.importorskip("cryptography")
HEAD = "0/train/1/head"


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    """Both rounds of the first cycle are done; an exact head comes next."""
    agreed = agreement("query=entropy", "head=exact", "model=mlp")
    found = Leader(folder(tmp_path, agreed, brought=range(6)))
    yield found
    found.ledger.close()


def trained(leader: Leader) -> State:
    state = leader.first_model()
    for number in range(2):
        state = leader.round(number, state)
    return state


def about_head(*steps: Step, turn: int = 0) -> Request:
    return Request(f"{HEAD}/{turn}", "head", 0, 1, steps)


def another(state: State) -> State:
    """A model with another body."""
    w = state["w"].clone()
    w[0] += 1
    return {**state, "w": w}


COLUMNS = Step("sum", "columns", {})


def test_all_that_is_told_for_one_head_is_of_one_body(leader: Leader) -> None:
    state = trained(leader)
    told = leader.exchange({"north": about_head(fit("body", state), COLUMNS)})
    mean = torch.as_tensor(told.answers["north"]["columns"])
    steps = (fit("body", another(state)), Step("sum", "spread", {"mean": mean}))
    assert "another body" in expect_refusal(leader, about_head(*steps, turn=1))


def test_one_order_brings_one_body(leader: Leader) -> None:
    state = trained(leader)
    steps = (fit("body", state), fit("body", another(state)), COLUMNS)
    assert "another body" in expect_refusal(leader, about_head(*steps))


def test_a_body_is_a_whole_model(leader: Leader) -> None:
    state = trained(leader)
    half = {"w": state["w"]}
    assert "without 'stats'" in expect_refusal(
        leader, about_head(fit("body", half), COLUMNS)
    )
    assert "no model" in expect_refusal(leader, about_head(fit("body", {}), COLUMNS))


def test_the_model_that_is_scored_has_the_body_of_which_sites_told(leader: Leader) -> None:
    state = trained(leader)
    ask = leader.ask(HEAD, "head", round=1)
    method = cast(ExactHead, leader.host._made.methods["head"])
    solved = method.solve(state, ask)
    assert not torch.equal(solved["w"], state["w"])
    model = {name: solved[name] for name in ("w", "stats")}
    assert "another body" in expect_refusal(leader, score(leader, another(model)))
    assert leader.people("score", "0/train/1", retained=False, **model)
