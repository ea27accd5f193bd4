"""The scikit-learn estimators, and query strategies as scikit-activeml strategies."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import fallow as fl

QUICK: dict[str, Any] = {"rounds": 4, "epochs": 5, "lr": 0.1, "batch_size": 16}
GENTLE: dict[str, Any] = {**QUICK, "lr": 0.02}
FEW_STEPS: dict[str, Any] = {"rounds": 2, "epochs": 4, "batch_size": 32}


@pytest.mark.parametrize(
    "estimator",
    [
        fl.FederatedClassifier(lr=0.1, **FEW_STEPS),
        pytest.param(fl.FederatedRegressor(lr=0.05, **FEW_STEPS), marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.filterwarnings(
    "ignore"
)  # the checks pass inputs that raise warnings on purpose
def test_scikit_learn_finds_nothing_to_complain_of(estimator: Any) -> None:
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [
        (c["check_name"], str(c["exception"])) for c in found if c["status"] == "failed"
    ]
    assert failed == []
    assert len(found) > 40


@pytest.fixture(scope="module")
def iris() -> tuple[Any, Any, Any]:
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    return x[order], names[order], np.array(["east", "west", "north"])[np.arange(150) % 3]


def test_a_classifier_trains_where_the_rows_are(iris: Any) -> None:
    x, y, sites = iris
    found = fl.FederatedClassifier(**QUICK).fit(x, y, sites=sites)
    assert found.score(x, y) > 0.9
    assert found.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert found.sites_ == ["east", "north", "west"]
    assert np.allclose(found.predict_proba(x).sum(1), 1)
    assert set(found.run_.revealed["verb"]) >= {"upload"}
    assert found.run_.records["labeled"].iloc[-1] == 150


def test_sites_are_a_number_a_column_or_none(iris: Any) -> None:
    x, y, sites = iris
    frame = pd.DataFrame(x, columns=list("abcd"), index=reversed(range(150)))
    column = pd.Series(sites, index=np.random.default_rng(1).permutation(150))
    by_column = fl.FederatedClassifier(**QUICK).fit(frame, pd.Series(y), sites=column)
    by_array = fl.FederatedClassifier(**QUICK).fit(x, y, sites=sites)
    assert (by_column.predict(frame) == by_array.predict(x)).all()
    assert fl.FederatedClassifier(**QUICK).fit(x, y, sites=4).sites_[-1] == "site-3"
    assert fl.FederatedClassifier(**QUICK).fit(x, y).sites_ == ["site-0"]


def test_it_works_with_the_tools_of_scikit_learn(iris: Any) -> None:
    x, y, _ = iris
    made = make_pipeline(MinMaxScaler(), fl.FederatedClassifier(**QUICK))
    assert cross_val_score(made, x, y, cv=3).mean() > 0.8
    assert clone(fl.FederatedClassifier(model=fl.Linear())).model == fl.Linear()
    found = fl.FederatedClassifier(**QUICK).fit(x, y)
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 - as scikit-learn's own tools do
    assert (again.predict(x) == found.predict(x)).all()


def test_each_site_may_have_its_own_model(iris: Any) -> None:
    x, y, sites = iris
    found = fl.FederatedClassifier(training=fl.FedAvgFT(), **QUICK).fit(x, y, sites=sites)
    assert found.predict(x, site="east").shape == (150,)
    with pytest.raises(ValueError, match="choose one with site=, one of east, north"):
        found.predict(x)


def test_a_regressor_predicts_in_the_units_of_the_target() -> None:
    x, y = make_regression(200, 4, n_informative=2, noise=1.0, random_state=0)
    values = fl.FederatedRegressor(**GENTLE).fit(x, 1000 + 10 * y, sites=3)
    assert values.score(x, 1000 + 10 * y) > 0.8


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (0, "sites is 0; give 1 to 150"),
        (999, "sites is 999; give 1 to 150"),
        (["a", "b"], "sites has 2 values and there are 150 rows; give one per row"),
        ("east", "sites is 'east'; give a whole number of sites, or the site of each row"),
        (2.5, "sites is 2.5; give a whole number of sites, or the site of each row"),
        ({"a": 1}, "sites has shape (); give one value per row"),
        (np.zeros((150, 2)), "sites has shape (150, 2); give one value per row"),
        ([None] + ["a"] * 149, "sites has no value for row 0; give one per row"),
        (["a"] * 149 + [np.nan], "sites has no value for row 149; give one per row"),
    ],
)
def test_sites_that_cannot_be_are_refused(iris: Any, sites: Any, words: str) -> None:
    x, y, _ = iris
    with pytest.raises(ValueError) as error:
        fl.FederatedClassifier(**QUICK).fit(x, y, sites=sites)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"batch_size": "a"}, "batch_size is 'a'; give a whole number"),
        ({"epochs": 1.5}, "epochs is 1.5; give a whole number"),
        ({"lr": "fast"}, "lr is 'fast'; give a number above 0"),
        ({"lr": np.nan}, "lr is nan; it must be above 0"),
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"model": "mlpp"}, "did you mean 'mlp'?"),
        (
            {"training": fl.Entropy},
            "'entropy' is a query strategy, not a training algorithm",
        ),
        ({"random_state": "a"}, "random_state is 'a'; give a whole number, or None"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    iris: Any, changed: dict[str, Any], words: str
) -> None:
    x, y, _ = iris
    with pytest.raises(ValueError) as error:
        fl.FederatedClassifier(**{**QUICK, **changed}).fit(x, y)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_site_that_was_not_there_predicts_nothing(iris: Any) -> None:
    x, y, sites = iris
    result = fl.FederatedClassifier(**{**QUICK, "rounds": 1}).fit(x, y, sites=sites)
    assert result.predict(x[:3], site="east").tolist() == result.predict(x[:3]).tolist()
    with pytest.raises(ValueError, match="there is no site 'eats'; did you mean 'east'"):
        result.predict(x, site="eats")


# -- scikit-activeml -------------------------------------------------------------------


def partly(iris: Any, missing: Any = np.nan) -> tuple[Any, Any]:
    x, y, _ = iris
    coded = np.unique(y, return_inverse=True)[1].astype(float)
    labels = np.full(150, missing, dtype=object if missing is None else float)
    labels[::10] = coded[::10]
    return x, labels


@pytest.mark.parametrize("missing", [np.nan, None, -1.0], ids=str)
def test_query_indices_are_rows_without_a_label(iris: Any, missing: Any) -> None:
    x, y = partly(iris, missing)
    result = fl.PoolStrategy(fl.Margin(), missing).query(x, y, GaussianNB(), batch_size=7)
    assert result.dtype == np.int64
    assert len(set(result.tolist())) == 7
    assert not set(result.tolist()) & set(range(0, 150, 10))


def test_picks_are_those_of_a_selection(iris: Any) -> None:
    x, y = partly(iris)
    model = LogisticRegression(max_iter=500).fit(x[::10], y[::10])
    pool = np.flatnonzero(np.isnan(y))
    rows = fl.select(x[pool], fl.Entropy(), outputs=model.predict_proba(x[pool]), n=5)
    strategy = fl.PoolStrategy(fl.Entropy())
    found = strategy.query(x, y, LogisticRegression(max_iter=500), batch_size=5)
    assert found.tolist() == pool[rows].tolist()


def test_utilities_are_what_rows_were_ranked_by(iris: Any) -> None:
    x, y = partly(iris)
    result, worth = fl.PoolStrategy("margin").query(
        x, y, GaussianNB(), batch_size=3, return_utilities=True
    )
    assert worth.shape == (3, 150)
    assert np.isnan(worth[0, 0])
    assert worth[0, result[0]] >= worth[0, result[1]]


def test_candidates_limit_the_choice(iris: Any) -> None:
    x, y = partly(iris)
    strategy = fl.PoolStrategy(fl.CoreSet())
    assert set(strategy.query(x, y, candidates=[3, 5, 7], batch_size=2)) <= {3, 5, 7}
    with pytest.warns(UserWarning, match="n=2 exceeds the 0 unlabeled examples"):
        assert strategy.query(x, y, candidates=[], batch_size=2).tolist() == []
    with pytest.raises(ValueError, match="candidates must be row indices of X, 0 to 149"):
        strategy.query(x, y, candidates=[150])


def test_a_strategy_that_draws_does_not_repeat_itself(iris: Any) -> None:
    x, y = partly(iris)
    strategy = fl.PoolStrategy(fl.Random())
    first = strategy.query(x, y, batch_size=5).tolist()
    assert first != strategy.query(x, y, batch_size=5).tolist()
    assert first == fl.PoolStrategy(fl.Random()).query(x, y, batch_size=5).tolist()


def test_what_is_missing_is_said(iris: Any) -> None:
    x, y = partly(iris)
    with pytest.raises(ValueError, match=r"give outputs=.* or model=module"):
        fl.PoolStrategy(fl.Entropy()).query(x, y)
    with pytest.raises(ValueError, match="y has 3 labels for 150 rows"):
        fl.PoolStrategy(fl.Entropy()).query(x, y[:3])
