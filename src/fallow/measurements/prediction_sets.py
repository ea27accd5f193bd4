"""Split conformal prediction sets and intervals, from a histogram of nonconformity.

A prediction set contains the label of a new example with a chosen probability, the coverage, if this
example and the test examples of all sites are exchangeable (Vovk et al., 2005; Lei et al., 2018).  A
set with several classes, or with none, means "cannot tell".

Notes
-----
*Quantile.*  The nonconformity of an example is 1 - p(y), p(y) being the predicted probability of its
class, or the absolute error of a number.  The usual method takes the ceil((n + 1) coverage)-th smallest
of the n test examples.  Sites send counts of test examples in bins of nonconformity, and the quantile
is the upper edge of the bin that contains it.  A bin is itself a nonconformity, so that the guarantee
holds exactly.  Coverage exceeds that of distinct values by at most the share of the bin.  A
digit-by-digit search for the exact quantile would need several exchanges.

*Which examples.* The test examples of the sites, because no model was trained on them. The
evaluation set (`fallow.measurements.evaluation_set`) consists of labeled examples that later models
are trained on, so that their errors are too small. All test examples count, so that weights 1/pi of
a sample are not needed.

*Several models of one example.*  If each site has a personalized model and all share the test
examples, each example counts 1 in all, distributed over the models (hierarchical conformal
prediction, Lee et al., 2023).  Counts are then fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, with_config
from torch import Tensor
from typing_extensions import TypedDict

from fallow.core import values
from fallow.core.composites import Parts
from fallow.core.types import SiteId, Values
from fallow.engine.score_metrics import BINS, EDGES, Floats, bin_scores
from fallow.measurements.base import ScoredExamples
from fallow.storage.validation import STRICT, Count, Number

RATIO = 1.05
"""Ratio of the edges of neighboring bins of absolute errors."""
_LOWEST = -425  # exponents: from 1e-9 to 1e12 in the unit of the target
_HIGHEST = 566
ERRORS = RATIO ** np.arange(_LOWEST, _HIGHEST + 1.0)
"""Upper edges of the bins of absolute errors; the last bin has none."""
ERROR_BINS = len(ERRORS) + 1


NONCONFORMITY = "nonconformity"
"""Field with the test examples of a site by bin of nonconformity."""


class SetRule(TypedDict):
    """Quantile of the nonconformity of test examples, as stored with a model."""

    coverage: float
    examples: int
    """Number of test examples."""
    bin: int | None
    """Bin that contains the quantile; None for too few test examples."""


@with_config(STRICT)
class SetScores(TypedDict):
    """Prediction sets of a model with the coverage of the setting ``coverage``."""

    coverage: Annotated[Number, Field(description="chosen coverage, in (0, 1)")]
    examples: Annotated[Count, Field(description="test examples")]
    bin: Annotated[
        Count | None,
        Field(description="bin of the quantile; None for too few test examples"),
    ]
    threshold: Annotated[
        Number | None,
        Field(
            description="smallest probability of a class in a set, or half width of an interval"
        ),
    ]
    tied: Annotated[
        Number,
        Field(description="largest excess of the coverage due to bins, in [0, 1]"),
    ]
    counts: Annotated[
        list[list[Number]],
        Field(description="test examples by bin of nonconformity: bin, examples"),
    ]


@final
@dataclass(frozen=True)
class PredictionSets:
    """Prediction sets with the coverage of the setting ``coverage``, as a measurement."""

    coverage: float
    is_regression: bool = False

    name: ClassVar[str] = "prediction_sets"

    @property
    def n_bins(self) -> int:
        """Number of bins of nonconformity."""
        return ERROR_BINS if self.is_regression else BINS

    @property
    def disclosure(self) -> str:
        if self.is_regression:
            return "a histogram of absolute errors"
        return "a histogram of the predicted probabilities of the true classes"

    @property
    def sums(self) -> Mapping[str, values.Kind]:
        return {NONCONFORMITY: values.Count(self.n_bins)}

    def measure(self, examples: ScoredExamples) -> Values:
        counts = count_nonconformity(examples.outputs, examples.true, self.is_regression)
        return {NONCONFORMITY: counts}

    def find_fault(self, parts: Parts, known: values.SenderFacts) -> str | None:
        counts = parts[NONCONFORMITY]
        together = float(counts.sum())
        rows = float(parts["rows"])
        if abs(together - rows) > known.room * len(counts):
            return f"{NONCONFORMITY} is {together:g} together, but rows is {rows:g}"
        return None

    def fold(self, total: Values, of_sites: Mapping[SiteId, Values]) -> SetScores:
        counts = torch.as_tensor(total[NONCONFORMITY])
        sets = build_prediction_sets(counts, self.coverage)
        tied = 0.0
        if sets["bin"] is not None:
            tied = float(counts[sets["bin"]] / counts.sum())
        filled = counts.nonzero().squeeze(1)
        pairs = torch.stack([filled.double(), counts[filled].double()], dim=1)
        return {
            **sets,
            "threshold": threshold_of(sets, self.is_regression),
            "tied": tied,
            "counts": pairs.tolist(),
        }

    def describe(self, result: SetRule, classes: Sequence[str]) -> Iterator[str]:
        yield describe_sets(result, self.is_regression)

    @property
    def kept(self) -> Mapping[str, values.Kind]:
        bins = values.Whole(upto=(self.n_bins - 1,))
        return {"examples": values.Whole(), "quantile": values.Optional(bins)}

    def keep(self, result: SetRule) -> Values:
        return {"examples": result["examples"], "quantile": result["bin"]}

    def restore(self, kept: Values) -> dict[str, object]:
        return {
            "coverage": self.coverage,
            "examples": kept["examples"],
            "bin": kept["quantile"],
        }


def read_nonconformity(sets: SetScores, is_regression: bool) -> Tensor:
    """Return the counts by bin of nonconformity in a record, (BINS,) or (ERROR_BINS,)."""
    n_bins = ERROR_BINS if is_regression else BINS
    counts = torch.zeros(n_bins, dtype=torch.float64)
    for at, examples in sets["counts"]:
        counts[int(at)] = examples
    return counts


def count_nonconformity(outputs: Tensor, true: Tensor, is_regression: bool) -> Tensor:
    """Return the number of examples in each bin of nonconformity, from the smallest.

    Parameters
    ----------
    outputs : Tensor
        (n, C) logits, or (n,) predicted values in the unit of the target.
    true : Tensor
        (n,) class ids or values.
    is_regression : bool
        Whether targets are numbers.

    Returns
    -------
    Tensor
        (BINS,) or (ERROR_BINS,) counts, float64.
    """
    if is_regression:
        errors = (outputs.double() - true.double()).abs()
        bins = np.searchsorted(ERRORS, errors.numpy(), side="left")
        return torch.from_numpy(np.bincount(bins, minlength=ERROR_BINS)).double()
    bins = rank_classes(outputs)[np.arange(len(true)), true.long().numpy()]
    return torch.from_numpy(np.bincount(bins, minlength=BINS)).double()


def rank_classes(outputs: Tensor) -> NDArray[np.int64]:
    """Return the bin of the nonconformity of each class: (n, C) logits -> (n, C)."""
    return BINS - 1 - bin_scores(outputs)


def check_coverage(coverage: float) -> None:
    """Raise ValueError unless a coverage is between 0 and 1."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage is {coverage}; give a number between 0 and 1")


def build_prediction_sets(counts: Tensor, coverage: float) -> SetRule:
    """Return prediction sets by the bin of the ceil((n + 1) coverage)-th smallest nonconformity.

    >>> build_prediction_sets(torch.tensor([5.0, 3.0, 1.0]), 0.8)["bin"]
    1
    >>> build_prediction_sets(torch.tensor([5.0, 3.0, 0.0]), 0.9)["bin"] is None
    True
    """
    examples = float(counts.sum())
    rank = (examples + 1) * coverage - 1e-9
    quantile = None
    if rank <= examples:
        quantile = int(torch.searchsorted(counts.double().cumsum(0), rank))
    return {"coverage": coverage, "examples": round(examples), "bin": quantile}


def check_sets(sets: SetRule) -> None:
    """Raise ValueError, or another error of conversion, unless a file has valid prediction sets."""
    check_coverage(sets["coverage"])
    numbers = [sets["examples"], 0 if sets["bin"] is None else sets["bin"]]
    if len(sets) != 3 or any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(f"its prediction sets are {sets!r:.80}")


def explain_no_sets(sets: SetRule) -> str | None:
    """Explain why no prediction set has the coverage, or return None."""
    coverage = sets["coverage"]
    if sets["bin"] is None:
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        return (
            f"prediction sets with coverage {coverage:g} need at least {needed} test examples, and "
            f"the model has {sets['examples']}; choose a lower coverage, or add test examples"
        )
    if sets["bin"] >= ERROR_BINS - 1:
        return (
            f"errors exceed {ERRORS[-1]:.0e} in the unit of the target, so that intervals with "
            f"coverage {coverage:g} have no bounds; choose a larger unit"
        )
    return None


def _read_bin(sets: SetRule | None) -> int:
    """Return the bin of the quantile; raise ValueError without one."""
    if sets is None:
        raise ValueError(
            "this model has no prediction sets; train it with a coverage, such as coverage=0.9"
        )
    why = explain_no_sets(sets)
    if why is not None or sets["bin"] is None:
        raise ValueError(why)
    return sets["bin"]


def threshold_of(sets: SetRule, is_regression: bool) -> float | None:
    """Return the smallest probability of a class in a set, or the half width of an interval.

    The result is None if no prediction set has the coverage.
    """
    if explain_no_sets(sets) is not None or sets["bin"] is None:
        return None
    if is_regression:
        return float(ERRORS[sets["bin"]])
    return float(EDGES[BINS - 1 - sets["bin"]])


def describe_sets(sets: SetRule, is_regression: bool) -> str:
    """Describe prediction sets or intervals in a sentence of a model card."""
    threshold = threshold_of(sets, is_regression)
    if threshold is None:
        return f"No prediction sets: {explain_no_sets(sets)}."
    if is_regression:
        rule = f"the prediction ± {threshold:.4g} contains the target"
    else:
        rule = f"the set of classes with a probability of at least {threshold:.4g} contains the class"
    return (
        f"With coverage {sets['coverage']:g}, {rule}, for new examples that are distributed like the "
        f"{sets['examples']} test examples of all sites together; at a single site, coverage can be "
        "lower."
    )


def predict_sets(outputs: Tensor, sets: SetRule | None) -> NDArray[np.bool_]:
    """Return whether each class is in the prediction set: (n, C) logits -> (n, C).

    Raises ValueError without prediction sets, or with too few test examples for the coverage.
    """
    return rank_classes(outputs) <= _read_bin(sets)


def predict_intervals(predicted: Tensor, sets: SetRule | None) -> Floats:
    """Return lower and upper bound of each target: (n,) -> (n, 2).

    Raises ValueError without prediction sets, or with too few test examples for the coverage.
    """
    half = ERRORS[_read_bin(sets)]
    centers = predicted.double().numpy()
    return np.stack([centers - half, centers + half], axis=1)
