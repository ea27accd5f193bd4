"""The model that entropy sampling uses if every site has its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, tensor

from fallow.core.types import State
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.strategies import Entropy
from fallow.strategies.entropy import ModelName
from fallow.strategies.parts.committee import logits
from tests.simulations import Simulation, Table, simulation

ROWS = 4


def reads(row: int) -> Tensor:
    """Return logits that are uncertain about ``row`` only."""
    sure = torch.tensor([[9.0, 0.0]]).double().repeat(ROWS, 1)
    sure[row] = 0.0
    return sure


def federation(model: ModelName, **sites: tuple[int, int]) -> Simulation:
    """Return sites whose local and global models are each uncertain about one example."""
    made = {name: Table(reads(a), reads(b), [0, 1]) for name, (a, b) in sites.items()}
    return simulation(made, Entropy(model=model))


def read_out(made: Simulation, of: str = "global") -> State:
    return made.members["a"].memory[of]


def with_average(made: Simulation, w: State, peers: list[bool]) -> None:
    is_in = torch.tensor(peers, dtype=torch.bool)
    made.members["a"].remember("average", {**w, "peers": is_in})


def test_the_personal_model_is_the_average_where_there_is_one_else_what_is_deployed() -> (
    None
):
    made = federation("personal", a=(0, 2))
    assert made.selected(1) == {"a": [2]}
    with_average(made, read_out(made, "local"), [])
    assert made.selected(1) == {"a": [0]}


def test_collaborators_are_asked_without_the_site_itself() -> None:
    made = federation("collaborators", a=(0, 3))
    sent = {"w": read_out(made)["w"], "labels": tensor(5.0)}
    made.members["a"].remember("model/b", sent)
    made.members["a"].remember(
        "model/c", {**sent, "w": torch.full_like(sent["w"], torch.nan)}
    )
    with_average(made, read_out(made, "local"), [True, False])
    assert made.selected(1) == {"a": [3]}
    with_average(made, read_out(made, "local"), [False, False])
    assert made.selected(1) == {"a": [0]}  # only its own model


def test_collaborators_are_refused_where_training_brings_none() -> None:
    with pytest.raises(
        RuntimeError, match=r"site a averages no models of other sites.*dpfl"
    ):
        federation("collaborators", a=(0, 3)).query(1)


def test_the_average_is_over_the_local_models_of_all_sites_weighted_by_labels() -> None:
    made = federation("average", a=(0, 1), b=(0, 1))
    locals_ = {"a": read_out(made, "local"), "b": read_out(made)}
    made.members["b"].remember("local", locals_["b"])
    # 4 labels besides 2
    made.members["b"].buy([Label(row, 0.0, cycle=0) for row in (2, 3)])
    w = (2 * locals_["a"]["w"] + 4 * locals_["b"]["w"]) / 6
    view = SiteView(made.members["a"], 0)
    expected = view.forward({**locals_["a"], "w": w}, view.rows()).softmax(1)
    unsure = int((-expected * expected.log()).sum(1).argmax())
    # the larger share is uncertain about example 1
    assert made.selected(1)["a"] == [unsure] == [1]


@pytest.mark.parametrize(("right", "picked"), [("local", 0), ("global", 2), ("both", 2)])
def test_the_better_one_is_right_on_more_validation_rows(right: str, picked: int) -> None:
    made = federation("better", a=(0, 2))
    site = made.members["a"]
    says = {
        "local": (9.0, 0.0, 0.0, 9.0),
        "global": (0.0, 9.0, 9.0, 0.0),
        "both": (9.0, 0.0) * 2,
    }
    site.x[3] = tensor(says[right])
    site.buy([Label(3, 0.0, cycle=0, is_validation=True)])
    assert made.selected(1)["a"] == [picked]
    assert logits(SiteView(site, 0), "better").shape == (3, 2)
