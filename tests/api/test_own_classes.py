"""Classes of one's own: in a notebook, in a script, in processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fallow as fl
from fallow.core.own import own_class


class Widest(fl.Query):
    """The rows farthest from the origin."""

    power: float = 1.0
    contract = fl.Contract(title="Widest", keep={"select": "number of picks"})

    def select(self, view: Any, n: int) -> fl.Picks:
        size = view.rows().flatten(1).norm(dim=1) ** self.power
        return fl.Picks(size.argsort(descending=True)[:n])


class Tiny(nn.Module):
    """A model that draws from torch's global random state, as everybody's does."""

    def __init__(self, shape: tuple[int, ...], outputs: int, width: int = 4) -> None:
        super().__init__()
        self.body = nn.Linear(shape[0], width)
        self.head = nn.Linear(width, outputs)

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features.relu()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.embed(x))
        return outputs


class Halves:
    """A partition of one's own need not be a dataclass."""

    def split(self, y: Any, sites: int, rng: Any, groups: Any = None) -> list[Any]:
        return [
            part.astype("int64")
            for part in __import__("numpy").array_split(range(len(y)), sites)
        ]


def test_picks_that_are_none_are_said_with_whose_they_are() -> None:
    class Twice(fl.Query):
        contract = fl.Contract(title="Twice", keep={"select": "number of picks"})

        def select(self, view: Any, n: int) -> fl.Picks:
            return fl.Picks(torch.zeros(n, dtype=torch.int64))

    with pytest.raises(ValueError) as error:
        fl.select(Twice(), pool=[[0.0], [1.0], [2.0]], n=2)
    assert str(error.value) == (
        "Twice.select at site site-0: picks must be different positions in the pool of 3 rows"
    )


def test_a_class_becomes_a_frozen_dataclass_by_itself() -> None:
    given = Widest(power=2)
    assert given == Widest(2)
    assert hash(given) == hash(Widest(2))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'power'"):
        given.power = 3  # type: ignore[misc]  # that is what is refused
    with pytest.raises(FrozenInstanceError):
        del given.power


def test_rows_that_are_not_handed_back_as_picks_are_refused_in_words() -> None:
    class Bare(fl.Query):
        contract = fl.Contract(title="Bare", keep={"select": "number of picks"})

        def select(self, view: Any, n: int) -> Any:
            return torch.arange(n)

    with pytest.raises(TypeError, match=r"Bare.select returned a Tensor; .* Picks\(rows\)"):
        fl.select(Bare(), pool=[[1.0], [2.0]], n=1)


def test_a_decorator_of_ones_own_does_no_harm() -> None:
    @dataclass(frozen=True)
    class Decorated(fl.Query):
        k: int = 2
        contract = fl.Contract(title="Decorated", keep={"select": "number of picks"})

        def select(self, view: Any, n: int) -> fl.Picks:
            return fl.Picks(torch.arange(n))

    assert Decorated(3).k == 3
    with pytest.raises(FrozenInstanceError):
        Decorated(3).k = 4  # type: ignore[misc]  # that is what is refused


def test_a_class_may_extend_another_of_ones_own() -> None:
    class Wider(Widest):
        bonus: int = 1

    assert (
        repr(Wider())
        == "test_a_class_may_extend_another_of_ones_own.<locals>.Wider(power=1.0, bonus=1)"
    )


def test_a_class_without_a_contract_is_told_what_to_add() -> None:
    with pytest.raises(TypeError, match=r"Silent says nothing .* contract = fl.Contract\("):

        class Silent(fl.Query):
            def select(self, view: Any, n: int) -> fl.Picks:
                return fl.Picks(torch.arange(n))


def test_a_contract_that_lists_a_function_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="lists 'share', and Half has no such function"):

        class Half(fl.Query):
            contract = fl.Contract(
                title="Half", sum={"share": "totals"}, keep={"select": "number of picks"}
            )

            def select(self, view: Any, n: int) -> fl.Picks:
                return fl.Picks(torch.arange(n))


def test_a_strategy_of_ones_own_runs_and_is_called_by_its_name(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    run = fl.run(world, Widest(power=2), **quick)
    assert run.records["query"].iloc[0].endswith("Widest:power=2.0")
    study = fl.compare([Widest(), "random"], world, seeds=2, **quick)
    assert "Widest" in set(study.table()["label"])


def test_a_class_made_in_a_function_works_in_processes(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    class Inside(Widest):
        pass

    alone = fl.compare([Inside(), fl.Random()], world, seeds=2, **quick)
    together = fl.compare([Inside(), fl.Random()], world, seeds=2, jobs=2, **quick)
    scores = ["query", "seed", "cycle", "accuracy", "labelled"]
    assert alone.records[scores].equals(together.records[scores])


SCRIPT = """
import fallow as fl

class EGL(fl.Query):
    power: float = 1.0
    contract = fl.Contract(title="EGL", keep={"select": "number of picks"}, needs=["local"])

    def select(self, view, n):
        p = view.logits("local").softmax(1)
        return fl.Picks((p.max(1).values ** self.power).argsort()[:n])

world = fl.Federation(fl.load("digits"), sites=3)
study = fl.compare([EGL(power=2.0), fl.Random()], world, seeds=2, cycles=1, rounds=1, jobs=2)
print(study)
print(sorted(study.table()["label"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the runs share a process")
def test_a_script_without_a_guard_uses_processes_with_its_own_class(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Study(digits: EGL:power=2.0, random; 2 seeds, 4 runs)",
        "['EGL:power=2.0', 'random']",
    ]


def test_a_model_of_ones_own_runs_and_comes_back_trained(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    from functools import partial

    state = torch.get_rng_state()
    run = fl.run(world, model=partial(Tiny, width=7), **quick)
    assert isinstance(run.model, Tiny)
    assert run.model.body.out_features == 7
    assert torch.equal(state, torch.get_rng_state())
    assert len(run.predict(world.dataset.x_test)) == 60


def test_a_training_method_of_ones_own_is_federated_averaging_until_it_is_changed(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    class Mine(fl.Training):
        scale: float = 0.0

    ours = fl.run(world, training=Mine(scale=1.0), **quick).records
    theirs = fl.run(world, training=fl.FedAvg(), **quick).records
    assert ours["accuracy"].tolist() == theirs["accuracy"].tolist()


def test_a_partition_of_ones_own_is_taken(rows: fl.Dataset) -> None:
    world = fl.Federation(rows, Halves, sites=2)
    assert list(world.sizes().values()) == [90, 90]


def test_two_classes_of_one_name_are_refused(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    def one() -> type[Any]:
        class Same(Widest):
            pass

        return Same

    with pytest.raises(ValueError, match="two different classes are called Same"):
        fl.compare([one()(), one()()], world, **quick)


def test_nothing_stays_lent_after_a_run(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    fl.run(world, Widest(), **quick)
    assert own_class(fl.Spec.of(Widest()).name) is None


def test_what_a_strategy_of_ones_own_raises_is_told_with_its_place(
    world: fl.Federation, quick: dict[str, Any]
) -> None:
    class Broken(Widest):
        def select(self, view: Any, n: int) -> fl.Picks:
            raise KeyError("no such thing")

    with pytest.raises(RuntimeError, match=r"Broken.select failed at site .* in cycle 0"):
        fl.run(world, Broken(), **quick)
    with pytest.warns(RuntimeWarning, match="2 of 4 runs failed; the first was .*Broken"):
        study = fl.compare([Broken(), "random"], world, seeds=2, **quick)
    assert len(study.failures) == 2
