"""Selections against bmdal_reg 3.0.2 of Holzmüller et al. (2023), if it is installed.

Install it with `pip install bmdal_reg==3.0.2 dill`; Fallow does not depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fallow.strategies import ACSFW, BAIT, LCMD, CoreSet
from fallow.strategies.parts.posterior import LastLayer, with_one
from tests.contracts.numbers import with_numbers
from tests.simulations import Table
from tests.strategies.regression import draws

pytest.importorskip("bmdal_reg")
setattr(np, "Inf", np.inf)  # noqa: B010 - its name before NumPy 2
algorithms = pytest.importorskip("bmdal_reg.bmdal.algorithms")
from bmdal_reg.bmdal.feature_data import TensorFeatureData  # noqa: E402

CASES = [  # examples, labels, features, selections, heavy tail
    (200, 20, 6, 10, False),
    (300, 8, 10, 5, False),
    (400, 15, 26, 5, True),
    (500, 100, 26, 40, True),
]
cases = pytest.mark.parametrize("case", CASES, ids=str)
TO_TRAIN = (
    "train",
    [0.1, None],
)  # its BAIT score adds 1e-8 to σ²: visible at σ = 1e-3, not at 0.1
CONFIGURATIONS: dict[str, tuple[Any, list[Any], str, dict[str, Any]]] = {
    "core-set": (CoreSet(), [], "maxdist", {"sel_with_train": True}),
    "lcmd": (LCMD(), [], "lcmd", {"sel_with_train": True}),
    "bait-f": (BAIT(forward_only=True, sigma=0.1), [TO_TRAIN], "bait", {"bait_sigma": 0.1}),
    "bait-fb": (
        BAIT(sigma=0.1),
        [TO_TRAIN],
        "bait",
        {"bait_sigma": 0.1, "overselection_factor": 2.0},
    ),
    "acs-fw": (ACSFW(), [("acs-grad", [1e-3, None])], "fw", {}),
}


def rows(case: tuple[int, int, int, int, bool]) -> tuple[Tensor, Tensor]:
    """Return pool and labeled examples."""
    m, labels, d, _, is_heavy = case
    x = draws(m + labels, d, name=str(case))
    if is_heavy:
        x = x / draws(m + labels, 1, name=f"{case} tail").abs().sqrt()
    return x[:m], x[m:]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")
@pytest.mark.parametrize("name", CONFIGURATIONS)
@cases
def test_picks_are_those_of_the_reference(
    name: str, case: tuple[int, int, int, int, bool]
) -> None:
    strategy, transforms, method, settings = CONFIGURATIONS[name]
    (pool, labeled), n = rows(case), case[3]
    half = case[2] // 2
    table = Table(pool[:, :half], pool[:, half:], [0] * len(labeled))
    made = with_numbers({"a": table}, strategy)
    made.members["a"].x[len(pool) :] = labeled
    parts = {"train": labeled, "pool": pool}
    theirs, selected = algorithms.select_batch(
        n,
        [None],
        {k: TensorFeatureData(with_one(x)) for k, x in parts.items()},
        None,
        "linear",
        transforms,
        method,
        allow_float64=True,
        verbosity=0,
        **settings,
    )
    assert selected["selection_status"] is None
    assert made.selected(n)["a"] == theirs.tolist()


@cases
def test_the_distances_that_badge_draws_by_are_those_of_the_reference(
    case: tuple[int, int, int, int, bool],
) -> None:
    features = pytest.importorskip("bmdal_reg.bmdal.features")
    maps = pytest.importorskip("bmdal_reg.bmdal.feature_maps")
    pool, labeled = map(with_one, rows(case))
    same = maps.IdentityFeatureMap(n_features=pool.shape[1])
    theirs, train = (features.Features(same, TensorFeatureData(x)) for x in (pool, labeled))
    scaled = train.scale_tfm(None)
    theirs = scaled(train).posterior_tfm(1e-3)(scaled(theirs))
    ours = LastLayer(pool, labeled, torch.arange(len(pool))).posterior(1e-3).pool
    expected = theirs.get_sq_dists(theirs)
    far = 1e-6 * torch.cdist(ours, ours).square()  # z = σ M^½ φ
    torch.testing.assert_close(far, expected, rtol=1e-6, atol=1e-9 * float(far.max()))
