"""Query strategies of scikit-activeml at the sites, and as references for ours."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import fallow as fl
from fallow.strategies.parts.max_coverage import unit_length
from tests.integrations.conftest import QUICK
from tests.simulations import Simulation
from tests.strategies.test_few_labels import (
    LABELED,
    build_clusters,
    build_site,
    build_unstable_site,
    features,
    pool_rows,
)

requires_package = pytest.mark.skipif(
    importlib.util.find_spec("skactiveml") is None,
    reason="needs the extra scikit-activeml",
)


def test_a_missing_package_is_one_sentence_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "skactiveml.pool", None)
    with pytest.raises(ValueError, match="which is not installed") as error:
        fl.FromScikitActiveML("MaxHerding")
    assert "pip install 'fallow-core[scikit-activeml]'" in str(error.value)


@requires_package
def test_an_object_a_class_and_a_name_are_the_same_strategy() -> None:
    from skactiveml.pool import MaxHerding

    plain = fl.FromScikitActiveML("MaxHerding")
    assert fl.FromScikitActiveML(MaxHerding) == plain
    assert fl.FromScikitActiveML(MaxHerding(random_state=3)) == plain
    chosen = fl.FromScikitActiveML(MaxHerding(metric_dict={"gamma": 4.0}))
    assert chosen.settings == "metric_dict.gamma=4.0"
    assert chosen == fl.FromScikitActiveML("MaxHerding", "metric_dict.gamma=4.0")
    assert chosen.contract.title == "MaxHerding (scikit-activeml)"


@requires_package
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("MaxHerdin",), "no query strategy 'MaxHerdin'; did you mean 'MaxHerding'?"),
        (("TypiClust", "kk=5"), "TypiClust has no setting 'kk'; did you mean 'k'?"),
        (("TypiClust", "k"), "'k' in settings is not of the form name=value"),
        (("TypiClust", "random_state=5"), "TypiClust has no setting 'random_state'"),
        (("BatchBALD",), "BatchBALD needs ensemble, which a site does not have"),
        (("FourDs",), "FourDs refits the classifier or needs a special one"),
        ((torch.nn.Linear(2, 2),), "Linear is not a query strategy of skactiveml.pool"),
    ],
)
def test_strategies_and_settings_that_cannot_be_are_refused(
    arguments: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(ValueError) as error:
        fl.FromScikitActiveML(*arguments)
    assert sentence in str(error.value)


@requires_package
def test_settings_that_cannot_be_stored_are_refused() -> None:
    from skactiveml.pool import ProbCover

    with pytest.raises(ValueError, match="cannot be stored with a study") as error:
        fl.FromScikitActiveML(ProbCover(distance_func=torch.cdist))
    assert "ProbCover's distance_func" in str(error.value)


@pytest.mark.long
@requires_package
@pytest.mark.parametrize("name", ["TypiClust", "UncertaintySampling", "DropQuery"])
def test_a_study_runs_the_strategy_at_each_site(
    name: str, simulation: fl.Federation
) -> None:
    strategy = fl.FromScikitActiveML(name)
    one = fl.run(simulation, strategy, **QUICK)
    two = fl.run(simulation, str(fl.Spec.of(strategy)), **QUICK)
    assert one.records["labeled"].iloc[-1] == 2 * one.records["labeled"].iloc[0]
    assert one.labels.equals(two.labels)


@requires_package
def test_the_selection_is_the_same_whatever_the_global_seed_of_numpy_is() -> None:
    import numpy as np

    selections = []
    for seed in (1, 2):
        np.random.seed(seed)
        strategy = fl.FromScikitActiveML("DropQuery")
        selections.append(build_site(strategy).selected(6)["a"])
    assert selections[0] == selections[1]


@requires_package
def test_examples_with_features_that_are_not_finite_come_last() -> None:
    federation = build_site(fl.FromScikitActiveML("MaxHerding"))
    federation.members["a"].x[4] = torch.nan
    selected = federation.selected(27)["a"]
    assert sorted(selected) == list(range(27))
    assert selected[-1] == 4


@requires_package
def test_the_first_query_needs_no_labels() -> None:
    for name in ("TypiClust", "ProbCover", "CoreSet"):
        federation = build_site(fl.FromScikitActiveML(name), labeled=False)
        assert len(set(federation.selected(5)["a"])) == 5


# -- our strategies against scikit-activeml --------------------------------------------


@requires_package
@pytest.mark.parametrize("labeled", [True, False])
def test_max_herding_is_that_of_scikit_activeml(labeled: bool) -> None:
    theirs = fl.FromScikitActiveML("MaxHerding", "metric_dict.gamma=4.0")
    assert pick(build_site(theirs, labeled), 8) == pick(
        build_site(fl.MaxHerding(width=0.5), labeled), 8
    )


@requires_package
# a single radius does not depend on purity
@pytest.mark.filterwarnings("ignore:The maximum purity")
def test_prob_cover_covers_as_much_as_that_of_scikit_activeml() -> None:
    ours = build_site(fl.ProbCover(radius=0.75))
    theirs = build_site(fl.FromScikitActiveML("ProbCover", "deltas=[0.75]"))
    for federation in (ours, theirs):
        member = federation.members["a"]
        member.x[:] = unit_length(member.x)
    assert count_covered(pick(theirs, 8)) == count_covered(pick(ours, 8))


def count_covered(selected: list[int]) -> list[int]:
    """Count the examples that each selection covers and no earlier one does."""
    x: Tensor = unit_length(features())
    is_near = torch.cdist(x, x) <= 0.75
    covered = is_near[LABELED].any(0)
    added = []
    for position in selected:
        row = pool_rows()[position]
        added.append(int((is_near[row] & ~covered).sum()))
        covered |= is_near[row]
    return added


@requires_package
@pytest.mark.parametrize("n", [2, 4])
def test_typiclust_is_that_of_scikit_activeml(n: int) -> None:
    theirs = fl.FromScikitActiveML("TypiClust", "k=5;cluster_algo_dict.n_init=20")
    ours = fl.Typicality(neighbors=5)
    assert pick(build_clusters(theirs), n) == pick(build_clusters(ours), n)


@requires_package
def test_drop_query_is_that_of_scikit_activeml() -> None:
    settings = "n_dropout_samples=101;cluster_algo_dict.n_init=20"
    theirs = fl.FromScikitActiveML("DropQuery", settings)
    ours = fl.DropQuery(passes=101)
    assert sorted(pick(build_unstable_site(theirs), 3)) == sorted(
        pick(build_unstable_site(ours), 3)
    )


def pick(federation: Simulation, n: int) -> list[int]:
    return federation.selected(n)["a"]
