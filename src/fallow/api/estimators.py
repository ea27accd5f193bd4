"""The common model as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fallow.api.arrays import as_array
from fallow.api.datasets import is_absent
from fallow.api.federation import Federation
from fallow.api.objects import plain
from fallow.api.runs import run
from fallow.core.build import nearest
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data import Dataset


class _Federated(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: settings, and training on all labels."""

    def __init__(
        self,
        model: Any = "mlp",
        training: Any = "fedavg",
        *,
        rounds: int = 20,
        epochs: int = 5,
        batch_size: int = 32,
        lr: float = 0.05,
        standardize: bool = True,
        random_state: int | None = 0,
    ) -> None:
        self.model = model
        self.training = training
        self.rounds = rounds
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.standardize = standardize
        self.random_state = random_state

    def _fit(
        self, x: npt.NDArray[Any], y: torch.Tensor, sites: Any, classes: tuple[str, ...]
    ) -> None:
        groups, names = _groups(sites, len(x))
        rows = torch.from_numpy(x.astype(np.float32))
        standardize = "none"
        if self.standardize:
            standardize = "federated"
        # A run tests its model, and here nobody asks for that: one row serves as a test set.
        dataset = Dataset(
            name="estimator",
            x=rows,
            y=y,
            x_test=rows[:1],
            y_test=y[:1],
            classes=classes,
            groups=groups,
            group_names=names,
        )
        self.run_ = run(
            Federation(dataset),
            training=self.training,
            model=self.model,
            initial=1.0,
            policy="proportional",
            cycles=0,
            rounds=self.rounds,
            score_rounds=1,
            seed=_seed(self.random_state),
            training_config=self._training_config(),
            standardize=standardize,
            dtype="float64",
            progress=False,
        )
        self.sites_ = list(names)

    def _check_rows(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self)
        x: npt.NDArray[Any] = validate_data(self, X, reset=False)
        return x

    def _check_site(self, site: str | None) -> None:
        if site is not None and site not in self.sites_:
            raise ValueError(f"there is no site {site!r}{nearest(site, self.sites_)}")

    def _training_config(self) -> TrainingConfig:
        """How sites train, its numbers looked at."""
        for name in ("epochs", "batch_size"):
            _check_whole(getattr(self, name), name)
        rate = plain(self.lr)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise ValueError(f"lr is {self.lr!r}; give a number above 0")
        return TrainingConfig(
            stages=(TrainingStage(plain(self.epochs)),),
            batch_size=plain(self.batch_size),
            optimizer=Optimizer(lr=rate),
        )


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """A classifier trained where the rows are, behind scikit-learn's interface.

    model, training: objects or names, as in `fallow.run`.  rounds: exchanges of models; epochs,
    batch_size and lr: of local training.  standardize: the sites agree on units of the features first.
    random_state: an integer, or None for the seed 0 as well: a fit is always repeatable.

    After ``fit``: ``classes_`` (labels in the order of `predict_proba`), ``n_features_in_``,
    ``sites_`` (their names) and ``run_`` (a `Run`: its records, what was revealed, the module).

    >>> import fallow as fl
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> found = fl.FederatedClassifier(rounds=5).fit(x, y, sites=["a", "b", "c"] * 50)
    >>> bool(found.score(x, y) > 0.9), found.predict_proba(x).shape
    (True, (150, 3))
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> FederatedClassifier:
        """Train one model for all on all labels.

        X: (n, features) numbers; y: (n,) labels of any kind; sites: (n,) the site of each row, a
        number of sites among which rows are dealt out in turn, or None: one site.
        Raises ValueError for a single class, missing values, and lengths that disagree.
        """
        x, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        labels = column_or_1d(labels)
        self.classes_, ids = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                "this classifier needs labels of at least 2 classes, and the data has one class: "
                f"{plain(self.classes_[0])!r}"
            )
        names = tuple(str(name) for name in self.classes_)
        if len(set(names)) < len(names):
            names = tuple(str(i) for i in range(len(names)))
        self._fit(x, torch.from_numpy(ids.astype(np.int64)), sites, names)
        return self

    def predict_proba(self, X: Any, site: str | None = None) -> npt.NDArray[np.float64]:
        """Probabilities, (n, classes), in the order of ``classes_``.

        site: whose model, where training gives each site its own.
        """
        x = self._check_rows(X)
        self._check_site(site)
        return self.run_.predict_proba(x, site)

    def predict(self, X: Any, site: str | None = None) -> npt.NDArray[Any]:
        """The most likely label of each row, (n,)."""
        x = self._check_rows(X)
        self._check_site(site)
        best = self.run_.predict_proba(x, site).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """A regressor trained where the rows are, behind scikit-learn's interface.

    Settings and attributes are those of `FederatedClassifier`, without ``classes_``.  The sites
    agree on the units of the target too.

    >>> import fallow as fl
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> found = fl.FederatedRegressor(model="linear", rounds=5, lr=0.01).fit(x, y, sites=4)
    >>> bool(found.score(x, y) > 0.4)
    True
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> FederatedRegressor:
        """Train one model for all on all targets; arguments as in `FederatedClassifier.fit`."""
        x, targets = validate_data(self, X, y, y_numeric=True)
        numbers = torch.from_numpy(column_or_1d(targets).astype(np.float32))
        self._fit(x, numbers, sites, ())
        return self

    def predict(self, X: Any, site: str | None = None) -> npt.NDArray[np.float64]:
        """The number predicted for each row, (n,)."""
        x = self._check_rows(X)
        self._check_site(site)
        return self.run_.predict(x, site)


def _check_whole(given: object, name: str) -> None:
    result = plain(given)
    if isinstance(result, bool) or not isinstance(result, int):
        raise ValueError(f"{name} is {given!r}; give a whole number")


def _seed(random_state: object) -> int:
    result = plain(random_state)
    if result is None:
        return 0
    if isinstance(result, bool) or not isinstance(result, int):
        raise ValueError(f"random_state is {random_state!r}; give a whole number, or None")
    return result


def _groups(sites: object, rows: int) -> tuple[torch.Tensor, tuple[str, ...]]:
    """The site of each row, (n,), and the names of sites."""
    result = plain(sites)
    if result is None:
        result = 1
    if isinstance(result, str | float):
        raise ValueError(
            f"sites is {result!r}; give a whole number of sites, or the site of each row"
        )
    if isinstance(result, int) and not isinstance(result, bool):
        if not 1 <= result <= rows:
            raise ValueError(
                f"sites is {result}; give 1 to {rows}, as many as there are rows"
            )
        width = len(str(result - 1))
        names = tuple(f"site-{i:0{width}d}" for i in range(result))
        return torch.arange(rows) % result, names
    value = as_array(result, "sites").tolist()
    if len(value) != rows:
        raise ValueError(
            f"sites names {len(value)} rows and there are {rows}; give one a row"
        )
    for row, name in enumerate(value):
        if is_absent(name):
            raise ValueError(f"sites names none for row {row}; give one a row")
    levels, ids = np.unique([str(name) for name in value], return_inverse=True)
    return torch.from_numpy(ids.astype(np.int64)), tuple(str(name) for name in levels)
