"""Every query strategy selects examples from degenerate pools or raises a clear error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fallow as fl
from fallow.settings.classes import classes_of
from tests.each import mark_long

SITES = ("a", "b")


@dataclass(frozen=True)
class Case:
    """Data of one site.

    pool: (m, d); x, y: labeled examples; p: (m, classes) probabilities.
    """

    pool: np.ndarray
    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    n: int = 4

    @property
    def classes(self) -> int:
        width: int = self.p.shape[1]
        return width


def make_case() -> Case:
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), size=16)
    return Case(rng.normal(size=(16, 3)), rng.normal(size=(9, 3)), np.arange(9) % 3, p)


def scale(factor: float) -> Callable[[Case], Case]:
    return lambda case: replace(case, pool=case.pool * factor, x=case.x * factor)


def cast(dtype: type[np.generic]) -> Callable[[Case], Case]:
    def change(case: Case) -> Case:
        return replace(
            case,
            pool=case.pool.astype(dtype),
            x=case.x.astype(dtype),
            p=case.p.astype(dtype),
        )

    return change


def repeat_four(case: Case) -> Case:
    rows = np.arange(16) % 4
    return replace(case, pool=case.pool[rows], p=case.p[rows])


CASES: dict[str, Callable[[Case], Case]] = {
    "one class among the labels": lambda c: replace(c, y=np.full(9, 1)),
    "one class in all": lambda c: replace(c, y=np.zeros(9, int), p=np.ones((16, 1))),
    "one label": lambda c: replace(c, x=c.x[:1], y=c.y[:1]),
    "no label": lambda c: replace(c, x=c.x[:0], y=c.y[:0]),
    "one example": lambda c: replace(c, pool=c.pool[:1], p=c.p[:1], n=1),
    "the whole pool": lambda c: replace(c, n=16),
    "constant features": lambda c: replace(c, pool=np.ones((16, 3)), x=np.ones((9, 3))),
    "scale 1e200": scale(1e200),
    "scale 1e30": scale(1e30),
    "scale 1e-200": scale(1e-200),
    "one huge example": lambda c: replace(
        c, pool=np.concatenate([c.pool[:15], [[1e200] * 3]])
    ),
    "columns of unlike scales": lambda c: replace(
        c, pool=c.pool * [1, 1e200, 1e-200], x=c.x * [1, 1e200, 1e-200]
    ),
    "float16": cast(np.float16),
    "equal outputs": lambda c: replace(c, p=np.tile(c.p[:1], (16, 1))),
    "duplicates": repeat_four,
    "labeled examples in the pool": lambda c: replace(
        c, pool=np.concatenate([c.x, c.pool[9:]])
    ),
}
UNUSUAL_SCALE = (
    "scale 1e200",
    "scale 1e30",
    "scale 1e-200",
    "one huge example",
    "columns of unlike scales",
)


def make_model(outputs: int) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, outputs)).double()
    for weight in model.parameters():
        weight.data = torch.randn(weight.shape, generator=generator).double()
    return model


def select_at_sites(
    strategy: Any, case: Case, form: str, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return the selections at two identical sites, given outputs or models."""
    y = case.y
    classes = case.classes
    model: Any = None
    outputs: Any = None
    hidden: Any = np.arange(len(case.pool)) % classes
    if not strategy.contract.classes or form == "regression":
        y = y + 0.5
        classes = 0
        hidden = None
        model = make_model(1)
    elif form == "outputs":
        of_labels = np.full((len(y), classes), 1 / classes)
        outputs = {
            "local": (case.p, of_labels),
            "global": (0.5 * case.p + 0.5 / classes, of_labels),
        }
    else:
        model = {"local": make_model(classes), "global": make_model(classes)}
    site = fl.Site(case.pool, (case.x, y), model=model, outputs=outputs, hidden=hidden)
    sites = dict.fromkeys(SITES, site)
    values: dict[str, np.ndarray] = fl.select(
        sites, strategy, n=case.n, classes=classes, seed=seed
    )
    return values


REFUSALS = (
    "does not have; give model=module",
    "trains its own models",
    "requires classes and this is a regression task",
    "compares the local with the global model",
)
"""Readings that the three forms lack for some strategies, whatever the pool."""


LONG = (
    *("IFAL", "LoGo"),
    *("ProbCover", "Typical", "TypicalUnsure"),
)
"""Strategies with the most computation, whose parts other strategies have too."""


@pytest.mark.long
@pytest.mark.parametrize("strategy_name", mark_long(classes_of("strategy"), LONG))
def test_a_hard_pool_gives_examples_or_a_sentence(strategy_name: str) -> None:
    strategy = classes_of("strategy")[strategy_name]()
    for name, change in CASES.items():
        check_hard_pool(strategy, name, change(make_case()))


def check_hard_pool(strategy: Any, name: str, case: Case) -> None:
    done = 0
    for form in ("outputs", "model", "regression"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                outcome = select_at_sites(strategy, case, form)
        except ValueError as error:
            text = str(error)
            is_known = any(word in text for word in REFUSALS)
            assert name in UNUSUAL_SCALE or is_known, f"{name}: {text}"
            continue
        done += 1
        assert sum(len(rows) for rows in outcome.values()) == case.n * len(SITES), name
        for rows in outcome.values():
            assert len(set(rows.tolist())) == len(rows), name
    assert done or name in UNUSUAL_SCALE, name


EQUAL: dict[str, Callable[[Case], Case]] = {
    "all examples are equal": lambda c: replace(
        c, pool=np.ones((16, 3)), p=np.tile(c.p[:1], (16, 1))
    ),
    "each example is there four times": repeat_four,
}


@pytest.mark.long
@pytest.mark.parametrize("strategy_name", classes_of("strategy"))
def test_equal_examples_are_told_apart_by_the_seed(strategy_name: str) -> None:
    strategy = classes_of("strategy")[strategy_name]()
    for name, change in EQUAL.items():
        check_seeds_differ(strategy, name, change(make_case()))


def check_seeds_differ(strategy: Any, name: str, case: Case) -> None:
    for form in ("outputs", "model", "regression"):
        label_counts: set[tuple[int, ...]] = set()
        try:
            for seed in range(8):
                label_counts.add(
                    tuple(select_at_sites(strategy, case, form, seed)["a"].tolist())
                )
                if len(label_counts) > 1:
                    break
        except ValueError as error:
            assert any(word in str(error) for word in REFUSALS), error
            continue
        assert len(label_counts) > 1, name


READERS = ["margin", "badge", "core-set", "typical-unsure", "prob-cover", "lcmd"]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("strategy", READERS)
def test_half_precision_is_read(strategy: str, kind: torch.dtype) -> None:
    case = make_case()
    p = torch.from_numpy(case.p).to(kind)
    x = torch.from_numpy(case.pool).to(kind)
    labeled = (torch.from_numpy(case.x).to(kind), case.y)
    outputs = {"local": (p, p[:9]), "global": (p, p[:9])}
    with_outputs = fl.select(x, strategy, outputs=outputs, labeled=labeled, classes=3, n=4)
    assert len(set(with_outputs.tolist())) == 4
    module = make_model(3).to(kind)
    with_model = fl.select(x, strategy, model=module, labeled=labeled, classes=3, n=4)
    assert len(set(with_model.tolist())) == 4


class RoundsItsLogits(nn.Module):
    """Return bfloat16 logits from a float32 last layer, as under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(x)
        return logits.bfloat16()


def test_a_model_that_rounds_its_logits_is_refused_in_words() -> None:
    case = make_case()
    parts: dict[str, Any] = {"labeled": (case.x, case.y), "n": 2}
    with pytest.raises(ValueError, match=r"changes the output of its last nn\.Linear"):
        fl.select(case.pool, "margin", model=RoundsItsLogits(), **parts)


def test_one_site_may_hold_all_that_a_total_allows() -> None:
    for seed in range(20):
        pool = np.random.default_rng(seed).normal(size=(60, 3))
        assert len(fl.select(pool, fl.Pivotal(), n=3)) == 3


def test_a_local_model_that_was_not_given_is_asked_for() -> None:
    case = make_case()
    parts: dict[str, Any] = {"labeled": (case.x, case.y), "n": 2}
    with pytest.raises(ValueError, match=r"the local model, .* give outputs="):
        fl.select(case.pool, "entropy", model={"global": make_model(3)}, **parts)
