"""Evaluation set: random examples in addition to the selected ones, to estimate the error.

The estimate needs no test set and is not biased by the selection of difficult examples.  Totals use
the estimator of Horvitz and Thompson (1952), with the model's own uncertainty as auxiliary variable
(difference estimator; prediction-powered inference, Angelopoulos et al., 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NotRequired, final

import torch
from pydantic import Field, with_config
from torch import Tensor
from typing_extensions import TypedDict

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.composites import ROUNDING, Composite, Parts
from fallow.core.contract import Contract
from fallow.core.methods import Budget
from fallow.core.types import SiteId, Value, Values
from fallow.core.values import Kind, LabelCount, NonNegative, Real, SenderFacts
from fallow.core.view import SelectedExamples, View
from fallow.storage.validation import STRICT, Count, Number

KEPT = "outlook"
"""State of an evaluation set that a site keeps until the labels arrive."""
STREAM = "audit"
"""Name of the random streams, which determines the draws of published results."""
LEVEL = 0.95
"""Confidence level of the intervals."""
PSEUDO = 2
"""Number of successes and of failures added for intervals (Agresti, Coull 1998)."""


TALLY = "number of drawn and of selected examples, and the errors of the model"


@with_config(STRICT)
class EvaluationScore(TypedDict):
    """Score of a model on the evaluation set (`EvaluationSet`).

    The score is the accuracy, or the mean squared error in units of the variance, over all examples
    that were unlabeled at the query.  It is None without evaluation examples.
    """

    score: Annotated[Number | None, Field(description="estimated score")]
    low: Annotated[Number | None, Field(description="lower bound of the 95 % interval")]
    high: Annotated[Number | None, Field(description="upper bound of the 95 % interval")]
    drawn: Annotated[Count, Field(description="examples drawn at random and labeled")]
    chosen: Annotated[Count, Field(description="examples that the query selected")]
    rows: Annotated[
        Count, Field(description="examples that the score is about, selected ones included")
    ]
    per_site: NotRequired[
        Annotated[
            dict[SiteId, EvaluationScore],
            Field(description="the same of each site, where the coordinator sees it"),
        ]
    ]


LARGEST_ERROR = 1e12
"""Largest squared error of a prediction in regression, whose targets have units near 1."""


@final
@dataclass(frozen=True)
class EvaluationCounts(Composite):
    """Numbers of selected, drawn and remaining examples, and errors of the model."""

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "chosen": NonNegative(),
            "wrong": NonNegative(),
            "left": NonNegative(),
            "doubt": NonNegative(),
            "drawn": NonNegative(),
            "beyond": Real(),
            "squares": NonNegative(),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        values = {name: float(value) for name, value in parts.items()}
        together = values["chosen"] + values["left"]
        if together > known.rows + known.room:
            return f"chosen and left sum to {together:g}, but there are {known.rows:g} rows"
        largest = 1.0  # an error of a class is 0 or 1
        if not known.sizes.get("classes", 0):
            largest = LARGEST_ERROR
        if values["wrong"] > largest * values["chosen"] + known.room:
            return (
                f"wrong is {values['wrong']:g}, more than {largest:g} times chosen, "
                f"{values['chosen']:g}"
            )
        if values["doubt"] > values["left"] + known.room:
            return f"doubt is {values['doubt']:g}, more than left, {values['left']:g}"
        if values["drawn"] > known.labels + known.room:
            return f"drawn is {values['drawn']:g}, and there are {known.labels:g} labels at most"
        # a drawn example represents all that remain; its site may have a single label of the budget
        farthest = largest * (values["left"] + known.room) * max(known.labels, 1.0)
        for name, limit in (("beyond", farthest), ("squares", farthest**2)):
            if abs(values[name]) > limit * ROUNDING + known.room:
                return (
                    f"{name} is {values[name]:g}, but errors of {values['left']:g} remaining rows "
                    f"are at most {limit:g}"
                )
        return None


@final
@dataclass(frozen=True)
class EvaluationSet:
    """Evaluation set that takes the fraction ``share`` of each label budget.

    After a query, each site draws among the remaining examples.  The predictions for both kinds of
    examples are stored at the site before labeling.  When labels arrive, and before they are used for
    training, sites report the errors.

    With ``secure_sum``, only aggregates leave the sites.  Otherwise, the coordinator sees each site.

    >>> EvaluationSet(0.1).divide({"a": 20, "b": 20}, draw=torch.Generator())
    {'a': 2, 'b': 2}

    Notes
    -----
    *Unbiasedness.*  Let U be the unlabeled examples.  The query selects Q, and all of Q is
    labeled, so its errors are known.  Each of the remaining examples R is drawn with the
    known probability share x budget / |R| of its site.  The errors of the drawn examples,
    divided by this probability, sum to those of R on average (Horvitz-Thompson).  This
    holds for any query, because Q is fixed before the draw.  The evaluated model was
    trained before these labels existed.  It was trained on earlier evaluation sets, which
    are labeled examples and do not count again.  No example is therefore evaluated with a
    model that was trained on it.

    *Estimand.*  The estimate is the score of the model at the start of a cycle, on the
    examples that were unlabeled then.  If a query selects the hard examples, later pools
    are easier than all examples.  The estimate is therefore not the accuracy on new
    examples.

    *Uncertainty of the model.*  The uncertainty, 1 minus the probability of the predicted
    class, is known for all of R.  Only its difference to the error is estimated from the
    draw.  This reduces the variance if the model is calibrated, and keeps the estimate
    unbiased otherwise.  For regression, the uncertainty is 0.

    *Interval.*  The interval is Student's over the drawn examples, as if drawn with
    replacement, which is conservative.  A few correct predictions would have no variance.
    Two correct and two wrong ones are therefore added to the interval, and not to the
    estimate.

    *Few labels.*  The expected number of a site need not be an integer.  A common random
    offset determines which sites draw one example more, so that each draws its share on
    average.

    *Groups.*  The model was trained on other examples of a group with a label, such as other
    images of a patient.  With groups, U, Q and R are therefore examples of groups without an earlier
    label.

    *Skipped examples.*  They are assumed to be like the other examples of their kind at the
    site.
    """

    share: float = 0.1
    secure_sum: bool = False

    contract: ClassVar[Contract] = Contract(
        title="Evaluation set",
        draws=True,
        regression=True,
        local_dp=False,  # counts of errors leave without noise
    )

    # -- server side
    # ------------------------------------------------------------------------

    def divide(self, budget: Budget, draw: torch.Generator) -> dict[SiteId, int]:
        """Return the number of examples that each site draws, on average ``share`` of its budget.

        The numbers are consecutive intervals on a line.  Each integer, shifted by one common random
        offset, is an example of the site whose interval contains it.
        """
        shift = float(torch.rand((), generator=draw, dtype=torch.float64))
        counts = {}
        end = shift
        for site in sorted(budget):
            begin = end
            end = begin + self.share * budget[site]
            counts[site] = min(math.floor(end) - math.floor(begin), budget[site])
        return counts

    def draw_rows(self, ask: Ask, budget: Budget, counts: Mapping[SiteId, int]) -> None:
        """Let sites draw examples in addition to the selected ones, and store the predictions."""
        orders: dict[SiteId, Values] = {}
        expected: dict[SiteId, Values] = {}
        for site in budget:
            expected[site] = {"expected": self.share * budget[site]}
            if counts[site]:
                orders[site] = {"n": counts[site], **expected[site]}
        if orders:
            ask.keep(self.draw, to=orders)
        ask.keep(self.outlook, to=expected)

    def tally_errors(self, ask: Ask, unit: float) -> dict[SiteId, Values]:
        """Return the error counts of each site, or their aggregate under ``""``.

        Weights of examples are in units of ``unit``.
        """
        if self.secure_sum:
            return {"": dict(ask.sum(self.tally, unit=unit))}
        return ask.each(self.tally, unit=unit)

    # -- client side
    # ------------------------------------------------------------------------

    @client.keep(
        "number of selected examples",
        takes={"n": LabelCount(), "expected": NonNegative()},
    )
    def draw(self, view: View, n: int, expected: float) -> SelectedExamples:
        """Draw examples uniformly in addition to the selected ones, ``expected`` on average."""
        left = find_left(view)
        drawn = torch.randperm(len(left), generator=view.stream(STREAM))[:n]
        probability = min(expected / max(len(left), 1), 1.0)
        chances = torch.full((len(drawn),), probability, dtype=torch.float64)
        return SelectedExamples(left[drawn], probability=chances, is_beside=True)

    @client.keep("number of stored tensors", takes={"expected": NonNegative()})
    def outlook(self, view: View, expected: float) -> Values:
        """Return the predictions for the selected, the drawn and the remaining examples.

        ``expected`` is the mean number of examples that the site draws.
        """
        predicted, doubt = predict(view)
        left = find_left(view)
        chosen, drawn = find_picked(view)
        chosen = chosen[has_new_group(view)[chosen]]
        among = torch.cat([left, drawn])  # the examples of the draw
        picked = torch.cat([chosen, drawn])
        return {
            "rows": view.positions[picked],
            "is_drawn": torch.arange(len(picked)) >= len(chosen),
            "predicted": predicted[picked],
            "doubt": doubt[picked],
            "left": torch.tensor(float(len(among))),
            "doubt_left": doubt[among].sum(),
            "expected": torch.tensor(expected, dtype=torch.float64),
            "cycle": torch.tensor(view.cycle),
        }

    @client.each(
        TALLY,
        returns=EvaluationCounts(),
        takes={"unit": Real()},
        when=lambda self: not self.secure_sum,
    )
    @client.sum(
        f"aggregates of {TALLY}",
        returns=EvaluationCounts(),
        takes={"unit": Real()},
        when=lambda self: self.secure_sum,
    )
    def tally(self, view: View, unit: float) -> Values:
        """Return the errors of the model on examples that are now labeled."""
        kept = view.memory.get(KEPT)
        if kept is None or int(kept["cycle"]) != view.cycle:
            return nothing_to_tell()  # the site was away during the draw
        labels = view.labels_at(kept["rows"])  # (k,), NaN for unlabeled examples
        is_labeled = labels.isfinite()
        is_drawn = kept["is_drawn"]
        if view.classes:
            error = (kept["predicted"] != labels).double()
        else:
            error = (kept["predicted"] - labels).square().double()

        chosen = ~is_drawn & is_labeled
        n_chosen = float((~is_drawn).sum())
        if not bool(chosen.any()):
            n_chosen = 0.0  # nothing is known about them
        drawn = is_drawn & is_labeled
        n_drawn = int(drawn.sum())
        weight = 0.0
        if n_drawn:
            asked = float(is_drawn.sum())
            weight = float(kept["left"] / kept["expected"]) * asked / n_drawn / unit
        beyond = weight * (error - kept["doubt"])[drawn]
        return {
            "chosen": n_chosen,
            "wrong": n_chosen * mean_of(error[chosen]),
            "left": float(kept["left"]),
            "doubt": float(kept["doubt_left"]),
            "drawn": float(n_drawn),
            "beyond": float(beyond.sum()),
            "squares": float(beyond.square().sum()),
        }


def find_picked(view: View) -> tuple[Tensor, Tensor]:
    """Return the positions in the pool of the selected and of the drawn examples.

    A selected example may have left since.
    """
    none = torch.empty(0, dtype=torch.int64)
    selected = view.memory.get("selected")
    if selected is None:
        return none, none
    at = {int(row): i for i, row in enumerate(view.positions.tolist())}
    rows: list[int] = selected["rows"].tolist()
    is_there = torch.tensor([row in at for row in rows], dtype=torch.bool)
    picked = torch.tensor([at[row] for row in rows if row in at], dtype=torch.int64)
    if "beside" not in selected:
        return picked, none
    is_beside = selected["beside"][is_there]
    return picked[~is_beside], picked[is_beside]


def find_left(view: View) -> Tensor:
    """Return the positions in the pool of the remaining examples of new groups, ascending."""
    is_left = has_new_group(view)
    for picked in find_picked(view):
        is_left[picked] = False
    return is_left.nonzero().squeeze(1)


def has_new_group(view: View) -> Tensor:
    """Return whether no example of the group of each pool example has a label: (m,)."""
    groups = view.groups("pool")
    if groups is None:
        return torch.ones(view.pool, dtype=torch.bool)
    labeled = view.groups("labeled")
    validation = view.groups("validation")
    assert labeled is not None and validation is not None  # noqa: S101 - as the pool
    return ~torch.isin(groups, torch.cat([labeled, validation]))


def predict(view: View) -> tuple[Tensor, Tensor]:
    """Return prediction and uncertainty for each example of the pool, both (m,), float64.

    For classification, these are the class and 1 minus its probability.  For regression, these are the
    target and 0.
    """
    state = view.model("global")
    parts = [view.outputs(state, rows) for rows in view.blocks()]
    outputs = torch.cat([torch.zeros(0, max(view.classes, 1)), *parts]).double()
    if not view.classes:
        return outputs.squeeze(1), torch.zeros(len(outputs), dtype=torch.float64)
    best = outputs.softmax(1).max(1)
    return best.indices.double(), 1 - best.values


def nothing_to_tell() -> Values:
    """Return the error counts of a site without examples."""
    names = ("chosen", "wrong", "left", "doubt", "drawn", "beyond", "squares")
    return dict.fromkeys(names, 0.0)


def mean_of(values: Tensor) -> float:
    """Return the mean, 0 for an empty tensor."""
    if not len(values):
        return 0.0
    return float(values.mean())


# -- from tallies to an estimate ----------------------------------------------------------------


@dataclass(frozen=True)
class ErrorCounts:
    """Error counts, aggregated over sites.

    Attributes
    ----------
    chosen, wrong : float
        Number of selected examples, and the sum of their errors.
    left, doubt : float
        Number of remaining examples, and the sum of the model's uncertainty.
    drawn : float
        Number of drawn examples with labels.
    beyond, squares : float
        Sum of (error - uncertainty) / probability over drawn examples, and of its squares, in
        units of ``unit``.
    """

    chosen: float = 0.0
    wrong: float = 0.0
    left: float = 0.0
    doubt: float = 0.0
    drawn: float = 0.0
    beyond: float = 0.0
    squares: float = 0.0
    unit: float = field(default=1.0)

    @classmethod
    def of(cls, reply: Mapping[str, Value], unit: float) -> ErrorCounts:
        """Create error counts from one site or an aggregate."""
        values = {name: float(reply[name]) for name in nothing_to_tell()}  # type: ignore[arg-type]
        return cls(**values, unit=unit)

    def plus(self, other: ErrorCounts) -> ErrorCounts:
        """Return the sum of two error counts."""
        return ErrorCounts(
            chosen=self.chosen + other.chosen,
            wrong=self.wrong + other.wrong,
            left=self.left + other.left,
            doubt=self.doubt + other.doubt,
            drawn=self.drawn + other.drawn,
            beyond=self.beyond + other.beyond,
            squares=self.squares + other.squares,
            unit=self.unit,
        )

    @property
    def rows(self) -> float:
        """Number of examples that the estimate covers."""
        return self.chosen + self.left

    def error(self) -> float | None:
        """Estimated mean error over all examples, or None without drawn examples."""
        if not self.rows or (self.left and not self.drawn):
            return None
        return (self.wrong + self.doubt + self.unit * self.beyond) / self.rows

    def half(self, *, is_share: bool) -> float | None:
        """Return the half width of the confidence interval at `LEVEL`, or None for one example.

        ``is_share`` means that errors are 0 or 1.
        """
        from scipy.stats import t

        if self.error() is None:
            return None
        if not self.left:
            return 0.0  # all examples are labeled
        n = self.drawn
        total = self.beyond
        squares = self.squares
        if is_share:
            usual = self.left / self.unit / n  # weight of a drawn row
            # pseudo-observation with error 1; one with error 0 adds nothing
            total += PSEUDO * usual
            squares += PSEUDO * usual**2
            n += 2 * PSEUDO
        if n < 2:
            return None
        spread = max(squares - total**2 / n, 0.0) / (n - 1)
        quantile = float(t.ppf((1 + LEVEL) / 2, n - 1))
        # standard deviation of the mean of n rows, scaled to ``drawn`` rows
        deviation = self.unit * self.drawn * math.sqrt(spread / n) / self.rows
        return quantile * deviation


def describe_tally(tally: ErrorCounts, scale: float | None) -> EvaluationScore:
    """Return the estimated score of a model.

    ``scale`` is None for classification, where the score is the accuracy.  For regression, it is the
    factor of the error.

    >>> facts = describe_tally(
    ...     ErrorCounts(left=100.0, drawn=10.0, beyond=20.0, squares=200.0), None
    ... )
    >>> facts["score"]
    0.8
    """
    result: EvaluationScore = {
        "score": None,
        "low": None,
        "high": None,
        "drawn": round(tally.drawn),
        "chosen": round(tally.chosen),
        "rows": round(tally.rows),
    }
    error = tally.error()
    if error is None:
        return result
    half = tally.half(is_share=scale is None)
    if scale is None:
        result["score"] = 1 - error
        if half is not None:
            result["low"] = max(1 - error - half, 0.0)
            result["high"] = min(1 - error + half, 1.0)
        return result
    result["score"] = scale * error
    if half is not None:
        result["low"] = max(scale * (error - half), 0.0)
        result["high"] = scale * (error + half)
    return result


def describe_tallies(
    replies: Mapping[SiteId, Values], unit: float, scale: float | None
) -> EvaluationScore:
    """Return the estimated score over all sites, and of each site if known."""
    tallies = {site: ErrorCounts.of(replies[site], unit) for site in sorted(replies)}
    total = ErrorCounts(unit=unit)
    for tally in tallies.values():
        total = total.plus(tally)
    result = describe_tally(total, scale)
    if "" not in tallies:
        result["per_site"] = {
            site: describe_tally(tally, scale) for site, tally in tallies.items()
        }
    return result


def deviation_of(evaluation: EvaluationScore, *, is_share: bool) -> float | None:
    """Return the standard deviation of a score from its confidence interval, or None without one.

    A bound that was clipped at 0 or 1 is assumed to be as far away as the other one.
    """
    from scipy.stats import t

    score = evaluation["score"]
    low = evaluation["low"]
    high = evaluation["high"]
    if score is None or low is None or high is None:
        return None
    half = max(high - score, score - low)
    freedom = evaluation["drawn"] - 1
    if is_share:
        freedom += 2 * PSEUDO
    if freedom < 1:  # all rows had a label
        return half
    return half / float(t.ppf((1 + LEVEL) / 2, freedom))
