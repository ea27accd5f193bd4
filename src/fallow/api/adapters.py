"""Adapter of query strategies to the interface of scikit-activeml."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from torch import nn

from fallow.api.arrays import as_array
from fallow.api.datasets import is_absent
from fallow.api.keywords import StrategyLike
from fallow.api.objects import plain
from fallow.api.selection import Selection, Site, select
from fallow.core.suggestions import explain_constructor


@explain_constructor
@final
class PoolStrategy:
    """Pool-based query strategy with the interface of scikit-activeml.

    Parameters
    ----------
    strategy : query strategy, class or str
        Query strategy, as in `fallow.select`.
    missing_label : object, default=NaN
        Value in ``y`` that marks an example as unlabeled, such as NaN, None or -1.
    random_state : int, default=0
        Seed.  Each call of `query` draws from a new random stream, so that repeated calls differ.

    Examples
    --------
    >>> import fallow as fl, numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.array([[0.0], [1.0], [0.4], [0.1], [0.9]])
    >>> y = np.array([0.0, 1.0, np.nan, np.nan, np.nan])
    >>> fl.PoolStrategy("entropy").query(x, y, LogisticRegression(), batch_size=1)
    array([2])
    """

    def __init__(
        self, strategy: StrategyLike, missing_label: Any = np.nan, random_state: int = 0
    ) -> None:
        self.strategy = strategy
        self.missing_label = missing_label
        self.random_state = random_state
        self.calls = 0

    def __repr__(self) -> str:
        return f"PoolStrategy({self.strategy!r})"

    def query(
        self,
        X: Any,
        y: Any,
        clf: Any = None,
        *,
        model: nn.Module | None = None,
        fit_clf: bool = True,
        candidates: Any = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:
        """Select examples of X to label.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Labeled and unlabeled examples.
        y : array-like of shape (n,)
            Labels, with `missing_label` for each unlabeled example.
        clf : scikit-learn classifier, optional
            Its predictions serve as those of the local and the global model.
        model : torch.nn.Module, optional
            Model to use instead of ``clf``, as in `fallow.select`.
        fit_clf : bool, default=True
            Whether to fit a clone of ``clf`` to the labeled examples first.
        candidates : array-like of int, optional
            Indices of the examples to choose from.  Default: all unlabeled examples.
        batch_size : int, default=1
            Number of examples to select.
        return_utilities : bool, default=False
            Whether to return the utilities too.

        Returns
        -------
        query_indices : ndarray of shape (batch_size,)
            Indices into ``X`` of the selected examples.
        utilities : ndarray of shape (batch_size, n)
            Score of each selected example.  Other entries are NaN, and all are NaN if the query
            strategy computes no scores.  Returned only with ``return_utilities=True``.

        Raises
        ------
        ValueError
            If ``X`` and ``y`` differ in length, or an argument that the query strategy needs is
            missing.
        """
        x = np.asarray(X)
        labels = as_array(y, "y")
        if len(labels) != len(x):
            raise ValueError(
                f"y has {len(labels)} labels for {len(x)} rows; give one per row"
            )
        is_labeled = ~is_missing(labels, self.missing_label)
        rows = np.flatnonzero(~is_labeled)
        if candidates is not None:
            rows = _rows(candidates, x)
        known = np.flatnonzero(is_labeled)
        known_labels = labels[known].tolist()  # plain Python types
        outputs = None
        classes = None
        if clf is not None:
            fitted = clf
            if fit_clf:
                fitted = clone(clf).fit(x[known], known_labels)
            classes = list(fitted.classes_)
            if len(rows) and len(known):
                both = (fitted.predict_proba(x[rows]), fitted.predict_proba(x[known]))
                outputs = {"local": both, "global": both}
        site = Site(
            pool=x[rows],
            labeled=(x[known], np.array(known_labels)),
            model=model,
            outputs=outputs,
            outputs_are="probabilities",  # of `predict_proba`
        )
        result: Selection = select(
            {"site-0": site},
            self.strategy,
            n=int(plain(batch_size)),
            classes=classes,
            seed=int(self.random_state),
            cycle=self.calls,
            details=True,
        )["site-0"]
        self.calls += 1
        chosen: npt.NDArray[np.int64] = rows[result.rows]
        if not return_utilities:
            return chosen
        return chosen, _utilities(result, rows, chosen, len(x))


def is_missing(y: npt.NDArray[Any], missing: Any) -> npt.NDArray[np.bool_]:
    """Return a Boolean mask of the missing labels, of shape (n,).

    >>> is_missing(np.array([1.0, np.nan]), np.nan).tolist()
    [False, True]
    """
    values = y.tolist()
    if isinstance(missing, float) and np.isnan(missing):
        return np.array([is_absent(value) for value in values], bool)
    return np.array([value is missing or value == missing for value in values], bool)


def _rows(candidates: Any, x: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    result = np.asarray(candidates)
    if result.size == 0:
        return np.empty(0, dtype=np.int64)
    is_index = result.ndim == 1 and result.dtype.kind in "iu"
    if not is_index or not 0 <= result.min() <= result.max() < len(x):
        raise ValueError(f"candidates must be row indices of X, 0 to {len(x) - 1}")
    return result.astype(np.int64)


def _utilities(
    selection: Selection, rows: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], n: int
) -> npt.NDArray[np.float64]:
    """Return the utilities: strategies compute scores of selected examples only."""
    table = np.full((len(chosen), n), np.nan)
    if selection.score is not None:
        for turn in range(len(chosen)):
            table[turn, chosen[turn:]] = selection.score[turn:]
    return table
