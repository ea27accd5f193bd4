"""Federated training behind the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fallow.api.arrays import as_array
from fallow.api.datasets import is_absent
from fallow.api.federation import Federation
from fallow.api.keywords import ModelLike, TrainingLike
from fallow.api.objects import plain, read_whole
from fallow.api.runs import run
from fallow.core.suggestions import explain_constructor, require_known
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data import Dataset
from fallow.engine.conformal import (
    PredictionSets,
    check_coverage,
    count_nonconformity,
    find_quantile,
    predict_intervals,
    predict_sets,
)


@explain_constructor
class _Federated(BaseEstimator):  # type: ignore[misc]
    """Parameters and training code that the classifier and the regressor share."""

    def __init__(
        self,
        model: ModelLike = "mlp",
        training: TrainingLike = "fedavg",
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
        standardize: Literal["federated", "none"] = "none"
        if self.standardize:
            standardize = "federated"
        # A run needs a test set, but its scores are not used: one example suffices.
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
            budget_allocation="proportional",
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

    def _count_nonconformity(self, outputs: torch.Tensor, true: torch.Tensor) -> None:
        """Store the nonconformity of held-out examples."""
        is_regression = outputs.dim() == 1
        self.nonconformity_ = count_nonconformity(outputs, true, is_regression).numpy()

    def _prediction_sets(self, coverage: float) -> PredictionSets:
        """Return the prediction sets of a coverage; raise ValueError before `conformalize`."""
        check_is_fitted(self)
        if not hasattr(self, "nonconformity_"):
            raise ValueError(
                "there are no held-out examples to compute prediction sets from; call "
                "conformalize(X, y) with examples that were not used in fit"
            )
        check_coverage(coverage)
        return find_quantile(torch.from_numpy(self.nonconformity_), coverage)

    def _check_site(self, site: str | None) -> None:
        if site is not None:
            require_known(site, self.sites_, f"there is no site {site!r}")

    def _training_config(self) -> TrainingConfig:
        """Return the training configuration, with its numbers checked."""
        epochs = read_whole(self.epochs, "epochs")
        batch_size = read_whole(self.batch_size, "batch_size")
        rate = plain(self.lr)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise ValueError(f"lr is {self.lr!r}; give a number above 0")
        return TrainingConfig(
            stages=(TrainingStage(epochs),),
            batch_size=batch_size,
            optimizer=Optimizer(lr=rate),
        )


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """Classifier trained at several sites, with the interface of scikit-learn.

    Parameters
    ----------
    model : str, object or torch.nn.Module, default="mlp"
        Model, as in `fallow.run`.
    training : str or object, default="fedavg"
        Training algorithm, as in `fallow.run`.
    rounds : int, default=20
        Number of rounds.
    epochs : int, default=5
        Number of local epochs per round.
    batch_size : int, default=32
        Batch size of local training.
    lr : float, default=0.05
        Learning rate of local training.
    standardize : bool, default=True
        Whether to standardize features by their mean and variance over all sites.
    random_state : int or None, default=0
        Seed.  None means 0: fitting is always reproducible.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, in the order of the columns of `predict_proba`.
    n_features_in_ : int
        Number of features.
    sites_ : list of str
        Names of the sites.
    run_ : Run
        Run with its records, disclosure log and trained module.

    Examples
    --------
    >>> import fallow as fl
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> found = fl.FederatedClassifier(rounds=5).fit(x, y, sites=["a", "b", "c"] * 50)
    >>> bool(found.score(x, y) > 0.9), found.predict_proba(x).shape
    (True, (150, 3))
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> FederatedClassifier:
        """Train one global model on all labels.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Training examples.
        y : array-like of shape (n,)
            Class labels.
        sites : array-like of shape (n,) or int, optional
            Site of each example, or the number of sites among which examples are distributed in turn.
            Default: one site.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is only one class, a value is missing, or lengths disagree.
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
        """Return class probabilities of shape (n, n_classes), in the order of ``classes_``.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Examples.
        site : str, optional
            Site whose model predicts, if the training algorithm yields one model per site.
        """
        x = self._check_rows(X)
        self._check_site(site)
        return self.run_.predict_proba(x, site)

    def predict(self, X: Any, site: str | None = None) -> npt.NDArray[Any]:
        """Return the most likely class of each example, of shape (n,)."""
        x = self._check_rows(X)
        self._check_site(site)
        best = self.run_.predict_proba(x, site).argmax(1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def conformalize(self, X: Any, y: Any, site: str | None = None) -> FederatedClassifier:
        """Compute the nonconformity of held-out examples for `predict_set`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Examples that were not used in `fit`.
        y : array-like of shape (n,)
            Their class labels.
        site : str, optional
            Site whose model predicts.

        Returns
        -------
        self
        """
        labels = column_or_1d(y)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y has the class {plain(unknown[0])!r}, which the labels of fit lack"
            )
        ids = np.searchsorted(self.classes_, labels)
        self._count_nonconformity(self._log_probabilities(X, site), torch.from_numpy(ids))
        return self

    def predict_set(
        self, X: Any, coverage: float = 0.9, site: str | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return prediction sets of shape (n, n_classes), in the order of ``classes_``.

        `conformalize` must be called before.  See `fallow.Run.predict_set`.
        """
        sets = self._prediction_sets(coverage)
        return predict_sets(self._log_probabilities(X, site), sets)

    def _log_probabilities(self, X: Any, site: str | None) -> torch.Tensor:
        return torch.from_numpy(self.predict_proba(X, site)).log()


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """Regressor trained at several sites, with the interface of scikit-learn.

    Attributes are those of `FederatedClassifier`, without ``classes_``.

    Parameters
    ----------
    model : str, object or torch.nn.Module, default="mlp"
        Model, as in `fallow.run`.
    training : str or object, default="fedavg"
        Training algorithm, as in `fallow.run`.
    rounds : int, default=20
        Number of rounds.
    epochs : int, default=5
        Number of local epochs per round.
    batch_size : int, default=32
        Batch size of local training.
    lr : float, default=0.05
        Learning rate of local training.
    standardize : bool, default=True
        Whether to standardize features and targets by their mean and variance over all sites.
    random_state : int or None, default=0
        Seed.  None means 0: fitting is always reproducible.

    Examples
    --------
    >>> import fallow as fl
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> found = fl.FederatedRegressor(model="linear", rounds=5, lr=0.01).fit(x, y, sites=4)
    >>> bool(found.score(x, y) > 0.4)
    True
    """

    def fit(self, X: Any, y: Any, sites: Any = None) -> FederatedRegressor:
        """Train one global model on all targets.  See `FederatedClassifier.fit`."""
        x, targets = validate_data(self, X, y, y_numeric=True)
        numbers = torch.from_numpy(column_or_1d(targets).astype(np.float32))
        self._fit(x, numbers, sites, ())
        return self

    def predict(self, X: Any, site: str | None = None) -> npt.NDArray[np.float64]:
        """Return the predicted target of each example, of shape (n,)."""
        x = self._check_rows(X)
        self._check_site(site)
        return self.run_.predict(x, site)

    def conformalize(self, X: Any, y: Any, site: str | None = None) -> FederatedRegressor:
        """Compute the errors of held-out examples for `predict_interval`.

        See `FederatedClassifier.conformalize`.
        """
        targets = torch.from_numpy(column_or_1d(y).astype(np.float64))
        self._count_nonconformity(torch.from_numpy(self.predict(X, site)), targets)
        return self

    def predict_interval(
        self, X: Any, coverage: float = 0.9, site: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the bounds of prediction intervals of shape (n, 2).

        `conformalize` must be called before.  See `fallow.Run.predict_set`.
        """
        sets = self._prediction_sets(coverage)
        return predict_intervals(torch.from_numpy(self.predict(X, site)), sets)


def _seed(random_state: object) -> int:
    if random_state is None:
        return 0
    return read_whole(random_state, "random_state", "give a whole number, or None")


def _groups(sites: object, rows: int) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Return the site of each example, of shape (n,), and the names of the sites."""
    result = plain(sites)
    if result is None:
        result = 1
    if isinstance(result, str | float):
        raise ValueError(
            f"sites is {result!r}; give a whole number of sites, or the site of each row"
        )
    if isinstance(result, int) and not isinstance(result, bool):
        if not 1 <= result <= rows:
            raise ValueError(f"sites is {result}; give 1 to {rows}, at most one per row")
        width = len(str(result - 1))
        names = tuple(f"site-{i:0{width}d}" for i in range(result))
        return torch.arange(rows) % result, names
    value = as_array(result, "sites").tolist()
    if len(value) != rows:
        raise ValueError(
            f"sites has {len(value)} values and there are {rows} rows; give one per row"
        )
    for row, name in enumerate(value):
        if is_absent(name):
            raise ValueError(f"sites has no value for row {row}; give one per row")
    levels, ids = np.unique([str(name) for name in value], return_inverse=True)
    return torch.from_numpy(ids.astype(np.int64)), tuple(str(name) for name in levels)
