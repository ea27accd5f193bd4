"""User-defined classes in notebooks, scripts and worker processes."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fallow as fl
from fallow import strategies
from fallow.core.build import find
from fallow.core.names import BUILT_IN, OWN, own_class


class Widest(fl.Strategy):
    """The rows farthest from the origin."""

    power: float = 1.0
    contract = fl.Contract(title="Widest")

    def select(self, view: Any, n: int) -> fl.SelectedExamples:
        size = view.rows().flatten(1).norm(dim=1) ** self.power
        return fl.SelectedExamples(size.argsort(descending=True)[:n])


def widest(view: Any, n: int, power: float = 1.0) -> Any:
    return (
        (view.rows().flatten(1).norm(dim=1) ** power).argsort(descending=True)[:n].numpy()
    )


class Tiny(nn.Module):
    """Model that draws from torch's global random state."""

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

    def split(self, y: Any, sites: int, rng: Any, natural: Any = None) -> list[Any]:
        return [
            part.astype("int64")
            for part in __import__("numpy").array_split(range(len(y)), sites)
        ]


def test_picks_that_are_none_are_said_with_whose_they_are() -> None:
    class Twice(fl.Strategy):
        contract = fl.Contract(title="Twice")

        def select(self, view: Any, n: int) -> fl.SelectedExamples:
            return fl.SelectedExamples(torch.zeros(n, dtype=torch.int64))

    with pytest.raises(ValueError) as error:
        fl.select([[0.0], [1.0], [2.0]], Twice(), n=2)
    assert str(error.value) == (
        "Twice.select at site site-0: position 0 is selected 2 times; return 2 different "
        "positions"
    )


def test_a_class_becomes_a_frozen_dataclass_by_itself() -> None:
    widest = Widest(power=2)
    assert widest == Widest(2)
    assert hash(widest) == hash(Widest(2))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'power'"):
        widest.power = 3  # type: ignore[misc]  # that is what is refused
    with pytest.raises(FrozenInstanceError):
        del widest.power


@pytest.mark.parametrize(
    ("selected", "sentence"),
    [
        (
            None,
            "returned a NoneType; return n positions in the unlabeled pool: a list, an array, a tensor",
        ),
        ({1, 2}, "returned a set; return n positions in the unlabeled pool"),
        (
            [0],
            "1 examples are selected and 2 are requested; return exactly min(n, view.pool)",
        ),
        (
            [0, 3],
            "position 3 is outside the pool of 3 examples; return positions from 0 to 2",
        ),
        ([0, -1], "position -1 is outside the pool of 3 examples"),
        ([0.0, 1.0], "positions in the pool are float64; return whole numbers"),
        ([True, True, False], "are Boolean; return the positions where the mask is True"),
        ([[0], [1]], r"have shape (2, 1); return one number for each selected example"),
        (
            ["0", "1"],
            "positions in the pool are a list; return a list, an array or a tensor of",
        ),
        ([[0], [1, 2]], "positions in the pool are a list; return a list, an array"),
    ],
)
def test_wrong_positions_are_refused_in_one_sentence(selected: Any, sentence: str) -> None:
    def wrong(view: Any, n: int) -> Any:
        return selected

    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)) as error:
        fl.select([[0.0], [1.0], [2.0]], wrong, n=2)
    assert str(error.value).startswith("wrong.select ")


@pytest.mark.parametrize(
    "selected",
    [
        [2, 0],
        (2, 0),
        np.array([2, 0]),
        np.array([0, 2], dtype=np.uint8)[::-1],
        [np.int64(2), np.int64(0)],
        [torch.tensor(2), torch.tensor(0)],
        torch.tensor([2, 0], dtype=torch.int32),
        fl.SelectedExamples([2, 0], weight=[1.0, 3.0]),  # type: ignore[arg-type]
    ],
)
def test_positions_are_a_list_an_array_or_a_tensor(selected: Any) -> None:
    def chosen(view: Any, n: int) -> Any:
        return selected

    assert fl.select([[0.0], [1.0], [2.0]], chosen, n=2).tolist() == [2, 0]


def test_numbers_beside_positions_are_one_for_each() -> None:
    with pytest.raises(
        ValueError, match=r"weight is of shape \(1,\); give one number for each"
    ):
        fl.SelectedExamples([2, 0], weight=[1.0])  # type: ignore[arg-type]


def test_nothing_is_selected_where_nothing_is_requested() -> None:
    def chosen(view: Any, n: int) -> Any:
        return [] if n == 0 else [0]

    assert fl.select([[0.0]], chosen, n=0).tolist() == []


@pytest.mark.parametrize("name", ["embeddings", "unlabeled", "X"])
@pytest.mark.parametrize("is_given", [True, False])
def test_an_attribute_that_a_view_does_not_have_lists_those_it_has(
    simulation: fl.Federation, quick: dict[str, Any], name: str, is_given: bool
) -> None:
    def wrong(view: Any, n: int) -> Any:
        return getattr(view, name)

    sentence = f"a view has no attribute '{name}'; it has blocks, .* weights$"
    with pytest.raises(RuntimeError, match=sentence):
        if is_given:
            fl.select([[0.0], [1.0]], wrong, n=1)
        else:
            fl.run(simulation, wrong, **quick)


def test_a_kind_of_rows_that_a_view_does_not_have_is_refused_with_the_kinds() -> None:
    def wrong(view: Any, n: int) -> Any:
        return view.rows("training")

    with pytest.raises(ValueError, match="no 'training' examples; use one of 'pool', "):
        fl.select([[0.0], [1.0]], wrong, n=1)


def test_a_function_is_a_strategy_with_settings(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    with pytest.warns(RuntimeWarning, match="are identical"):
        study = fl.compare(simulation, [widest, Widest()], seeds=2, **quick)
    assert "are identical" in repr(study)
    by_strategy = [
        part["accuracy"].tolist() for _, part in study.records.groupby("strategy")
    ]
    assert by_strategy[0] == by_strategy[1]
    run = fl.run(simulation, partial(widest, power=2.0), **quick)
    assert run.records["strategy"].iloc[0].endswith(":widest:power=2.0")


def test_a_function_on_the_command_line_is_a_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_on_path.py").write_text(
        "def first(view, n):\n    return list(range(n))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    outcome = find(strategies, "mine_on_path:first", OWN)
    assert outcome.contract.disclosures == {"select": "number of selected examples"}
    with pytest.raises(ValueError, match="names code that is not part of Fallow"):
        find(strategies, "mine_on_path:first", BUILT_IN)


@pytest.mark.parametrize("function", [lambda view: [0], lambda *views: [0]])
def test_a_function_of_other_parameters_is_told_which_it_takes(function: Any) -> None:
    with pytest.raises(ValueError, match=r"is a function of \(view, n\) that returns n"):
        fl.select([[0.0]], function, n=1)


def test_a_class_with_select_alone_is_told_its_base_class() -> None:
    class Bare:
        def select(self, view: Any, n: int) -> Any:
            return [0]

    for strategy in (Bare, Bare()):
        with pytest.raises(ValueError, match=r"write class Bare\(fl.Strategy\)"):
            fl.select([[0.0]], strategy, n=1)  # type: ignore[arg-type]


def test_a_class_without_a_selection_is_told_the_line_to_add() -> None:
    with pytest.raises(
        TypeError, match=r"Empty has no .* write def select\(self, view, n\)"
    ):

        class Empty(fl.Strategy):
            contract = fl.Contract(title="Empty")


def test_a_selection_with_more_arguments_is_declared_by_its_class() -> None:
    class More(fl.Strategy):
        contract = fl.Contract(title="More")

        def query(self, ask: Any, budget: Any, memo: Any) -> Any:
            ask.keep(self.select, to={site: {"n": n} for site, n in budget.items()}, k=1)
            return memo

        def select(self, view: Any, n: int, k: int) -> Any:
            return range(n)

    with pytest.raises(
        ValueError, match=r"More.select is not declared: add @client.keep\(...\) above it"
    ):
        fl.select([[0.0]], More(), n=1)


def test_a_decorator_of_ones_own_does_no_harm() -> None:
    @dataclass(frozen=True)
    class Decorated(fl.Strategy):
        k: int = 2
        contract = fl.Contract(title="Decorated")

        def select(self, view: Any, n: int) -> fl.SelectedExamples:
            return fl.SelectedExamples(torch.arange(n))

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
    with pytest.raises(TypeError, match=r"'Silent' has no .* add contract = fl.Contract\("):

        class Silent(fl.Strategy):
            def select(self, view: Any, n: int) -> fl.SelectedExamples:
                return fl.SelectedExamples(torch.arange(n))


def test_a_strategy_of_ones_own_runs_and_is_called_by_its_name(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    run = fl.run(simulation, Widest(power=2), **quick)
    assert run.records["strategy"].iloc[0].endswith("Widest:power=2.0")
    study = fl.compare(simulation, [Widest(), "random"], seeds=2, **quick)
    assert "Widest" in set(study.table(columns="all")["label"])


@pytest.mark.long
def test_a_class_made_in_a_function_works_in_processes(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    class Inside(Widest):
        pass

    alone = fl.compare(simulation, [Inside(), fl.Random()], seeds=2, **quick)
    together = fl.compare(simulation, [Inside(), fl.Random()], seeds=2, jobs=2, **quick)
    scores = ["strategy", "seed", "cycle", "accuracy", "labeled"]
    assert alone.records[scores].equals(together.records[scores])


SCRIPT = """
import fallow as fl

class EGL(fl.Strategy):
    power: float = 1.0
    contract = fl.Contract(title="EGL", needs=["local"])

    def select(self, view, n):
        p = view.logits("local").softmax(1)
        return fl.SelectedExamples((p.max(1).values ** self.power).argsort()[:n])

simulation = fl.Federation(fl.load("digits"), sites=3)
settings = {"cycles": 1, "training": "fedavg", "rounds": 1}
study = fl.compare(simulation, [EGL(power=2.0), fl.Random()], seeds=2, jobs=2, **settings)
print(study)
print(sorted(study.table(columns="all")["label"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the runs share a process")
@pytest.mark.long
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
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    from functools import partial

    state = torch.get_rng_state()
    run = fl.run(simulation, model=partial(Tiny, width=7), **quick)
    assert isinstance(run.model, Tiny)
    assert run.model.body.out_features == 7
    assert torch.equal(state, torch.get_rng_state())
    assert len(run.predict(simulation.dataset.x_test)) == 60


def test_a_training_method_of_ones_own_is_federated_averaging_until_it_is_changed(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    class Mine(fl.Training):
        scale: float = 0.0

    ours = fl.run(simulation, **{**quick, "training": Mine(scale=1.0)}).records
    theirs = fl.run(simulation, **quick).records
    assert ours["accuracy"].tolist() == theirs["accuracy"].tolist()


def test_a_partition_of_ones_own_is_taken(rows: fl.Dataset) -> None:
    simulation = fl.Federation(rows, Halves, sites=2)
    assert list(simulation.sizes().values()) == [90, 90]


def test_two_classes_of_one_name_are_refused(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    def one() -> type[Any]:
        class Same(Widest):
            pass

        return Same

    with pytest.raises(ValueError, match="two different classes are called Same"):
        fl.compare(simulation, [one()(), one()()], **quick)


def test_nothing_stays_lent_after_a_run(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    fl.run(simulation, Widest(), **quick)
    assert own_class(fl.Spec.of(Widest()).name) is None


def test_what_a_strategy_of_ones_own_raises_is_told_with_its_place(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    class Broken(Widest):
        def select(self, view: Any, n: int) -> fl.SelectedExamples:
            raise KeyError("no such thing")

    with pytest.raises(RuntimeError, match=r"Broken.select failed at site .* in cycle 0"):
        fl.run(simulation, Broken(), **quick)
    with pytest.warns(RuntimeWarning, match="2 of 4 runs failed; the first was .*Broken"):
        study = fl.compare(simulation, [Broken(), "random"], seeds=2, **quick)
    assert len(study.failures) == 2
