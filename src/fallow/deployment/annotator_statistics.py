"""Statistics of several annotations per example: classes and agreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Annotated, NamedTuple, TypeVar, final

import torch
from pydantic import Field, with_config
from torch import Tensor

from fallow.core.multilabel import UNKNOWN, read_digits
from fallow.core.wording import count_noun
from fallow.storage.validation import STRICT, Count

Value = TypeVar("Value", bound=Hashable)
SMOOTHING = 0.01
"""Added to each count of a confusion matrix, so that no probability is zero."""
ITERATIONS = 200
"""Largest number of EM iterations."""
CONVERGED = 1e-8
"""Largest change of a probability at the end of the iterations."""
TIE = 1e-6
"""Difference between probabilities up to which two classes are a tie."""


class Annotation(NamedTuple):
    """Label of an example by one annotator."""

    task: int
    annotator: str
    value: float


class DawidSkene(NamedTuple):
    """Estimate of the model of Dawid and Skene.

    ``probabilities`` (n, c) of the classes of each example, ``shares`` (c,) of the classes, and
    ``confusion`` (m, c, c): for each annotator, the probability of a label (last axis) given the
    class.
    """

    probabilities: Tensor
    shares: Tensor
    confusion: Tensor


def fit_dawid_skene(counts: Tensor) -> DawidSkene:
    """Estimate classes and confusion matrices of annotators by expectation maximization.

    A. P. Dawid and A. M. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM
    Algorithm", Journal of the Royal Statistical Society C 28 (1), 1979, pages 20 to 28, equations
    (2.3) to (2.5).

    ``counts`` (m, n, c): how often each of m annotators gave each of n examples each of c labels.
    Every example needs a label. The iterations start with the shares of the labels of each example.
    """
    counts = counts.double()
    votes = counts.sum(0)  # (n, c)
    probabilities = votes / votes.sum(1, keepdim=True)
    for _ in range(ITERATIONS):
        confusion = torch.einsum("nc,mnl->mcl", probabilities, counts) + SMOOTHING  # (2.3)
        confusion /= confusion.sum(2, keepdim=True)
        shares = probabilities.mean(0)  # (2.4)
        scores = torch.einsum("mnl,mcl->nc", counts, confusion.log()) + shares.log()
        before = probabilities
        probabilities = scores.softmax(1)  # (2.5)
        if float((probabilities - before).abs().max()) < CONVERGED:
            break
    return DawidSkene(probabilities, shares, confusion)


def estimate_classes(
    annotations: Sequence[Annotation], classes: int
) -> dict[int, int | None]:
    """Return the most probable class of each task (`fit_dawid_skene`), or None for a tie.

    >>> labels = [Annotation(0, "ann", 1), Annotation(0, "bob", 1), Annotation(0, "cy", 0)]
    >>> estimate_classes(labels, 2), estimate_classes(labels[1:], 2)
    ({0: 1}, {0: None})
    """
    tasks = _number(label.task for label in annotations)
    annotators = _number(label.annotator for label in annotations)
    counts = torch.zeros(len(annotators), len(tasks), classes)
    for label in annotations:
        counts[annotators[label.annotator], tasks[label.task], int(label.value)] += 1
    best = fit_dawid_skene(counts).probabilities.topk(2, dim=1)
    estimated: dict[int, int | None] = {}
    for task, value, (first, second) in zip(
        tasks, best.indices[:, 0].tolist(), best.values.tolist(), strict=True
    ):
        estimated[task] = value
        if first - second < TIE:
            estimated[task] = None
    return estimated


# -- agreement --------------------------------------------------------------------------------

MIN_EXAMPLES = 10
"""Smallest number of examples with several annotations whose agreement leaves a site."""


@with_config(STRICT)
@final
@dataclass(frozen=True)
class AnnotatorAgreement:
    """Agreement of the annotators over all runs of a site, before adjudication.

    "Cannot tell" and an unknown answer to one of several labels are not annotations. Krippendorff's
    alpha is nominal for classes and interval for numbers, and None if all annotations are equal.
    """

    examples: Annotated[Count, Field(description="examples with several annotations")]
    alpha: Annotated[
        float | None,
        Field(description="Krippendorff's alpha, over several labels the mean, or null"),
    ]
    by_label: Annotated[
        Mapping[str, float | None], Field(description="alpha of each of several labels")
    ] = field(default_factory=dict)

    def describe(self) -> list[str]:
        """Return a sentence, or nothing without several annotations."""
        if not self.examples:
            return []
        size = count_noun(self.examples, "example")
        measured = "no coefficient, because all labels are equal"
        if self.alpha is not None:
            measured = f"Krippendorff's alpha {self.alpha:.2f}"
        if self.by_label:
            measured += f" on average of labels ({', '.join(self._list_labels())})"
        return [f"Agreement of annotators on {size}: {measured}."]

    def _list_labels(self) -> list[str]:
        """Return the name and alpha of each label that has one, the smallest first."""
        known = {name: alpha for name, alpha in self.by_label.items() if alpha is not None}
        return [
            f"{name} {known[name]:.2f}" for name in sorted(known, key=known.__getitem__)
        ]


def measure_agreement(
    annotations: Sequence[Annotation], *, is_interval: bool
) -> AnnotatorAgreement:
    """Return the agreement of annotators, of numbers if ``is_interval`` and else of classes.

    >>> labels = [Annotation(0, "ann", 1), Annotation(0, "bob", 1), Annotation(1, "ann", 0)]
    >>> measure_agreement([*labels, Annotation(1, "bob", 0)], is_interval=False).alpha
    1.0
    """
    several = _list_several(annotations)
    tasks = _number(label.task for label in several)
    alpha = krippendorff_alpha(several, is_interval=is_interval)
    return AnnotatorAgreement(len(tasks), alpha)


def measure_agreement_of_labels(
    annotations: Sequence[Annotation], labels: Sequence[str]
) -> AnnotatorAgreement:
    """Return the agreement of annotators on several labels of each example.

    >>> ann, bob = Annotation(0, "ann", 1), Annotation(0, "bob", 4)  # oedema, and both
    >>> others = [ann._replace(task=1, value=0), bob._replace(task=1, value=6)]
    >>> measure_agreement_of_labels([ann, bob, *others], ["oedema", "effusion"])
    AnnotatorAgreement(examples=2, alpha=0.5, by_label={'oedema': 1.0, 'effusion': 0.0})
    """
    numbers = torch.tensor([annotation.value for annotation in annotations])
    digits = read_digits(numbers, len(labels)).tolist()
    tasks: set[int] = set()
    by_label: dict[str, float | None] = {}
    for at, label in enumerate(labels):
        known = [
            annotation._replace(value=float(own[at]))
            for annotation, own in zip(annotations, digits, strict=True)
            if own[at] != UNKNOWN
        ]
        several = _list_several(known)
        tasks |= {annotation.task for annotation in several}
        by_label[label] = krippendorff_alpha(several, is_interval=False)
    alphas = [alpha for alpha in by_label.values() if alpha is not None]
    mean = sum(alphas) / len(alphas) if alphas else None
    return AnnotatorAgreement(len(tasks), mean, by_label)


def _list_several(annotations: Sequence[Annotation]) -> list[Annotation]:
    """Return the annotations of tasks that have several."""
    times = Counter(label.task for label in annotations)
    return [label for label in annotations if times[label.task] > 1]


def krippendorff_alpha(
    annotations: Sequence[Annotation], *, is_interval: bool
) -> float | None:
    """Return Krippendorff's alpha of tasks with several annotations each.

    The difference of two labels is 0 or 1 for classes, and the square of their difference for
    numbers. Sums over pairs follow from sums of vectors: a class is a one-hot vector. Returns None
    if all labels are equal.

    K. Krippendorff, "Content Analysis", 4th edition, 2019, section 12.
    """
    tasks = _number(label.task for label in annotations)
    values = torch.tensor([label.value for label in annotations], dtype=torch.float64)
    if is_interval:
        vectors = (values - values.mean()).unsqueeze(1)  # (n, 1)
    else:
        classes = torch.tensor(sorted(set(values.tolist())), dtype=torch.float64)
        vectors = (values.unsqueeze(1) == classes).double()  # (n, c)
    n = len(vectors)
    index = torch.tensor([tasks[label.task] for label in annotations], dtype=torch.int64)
    sizes = torch.zeros(len(tasks), dtype=torch.float64).index_add(
        0, index, torch.ones(n, dtype=torch.float64)
    )
    sums = torch.zeros(len(tasks), vectors.shape[1], dtype=torch.float64)
    sums = sums.index_add(0, index, vectors)
    squares = torch.zeros(len(tasks), dtype=torch.float64)
    squares = squares.index_add(0, index, vectors.square().sum(1))
    of_tasks = sizes * squares - sums.square().sum(1)  # (t,)
    observed = float((of_tasks / (sizes - 1)).sum())
    expected = float(n * squares.sum() - sums.sum(0).square().sum()) / max(1, n - 1)
    if expected <= 0:
        return None
    return 1 - observed / expected


# -- predictions --------------------------------------------------------------------------------

LONGEST_PAUSE = 600
"""Seconds between two labels of an annotator, above which they do not measure the work."""


class PredictedLabel(NamedTuple):
    """First label of an annotator for an example with a prediction.

    ``is_guided``: the annotator saw the prediction first. ``is_confirmed``: together with others, on
    a sheet. ``seconds`` is the time since the annotator's previous label or sheet, per label.
    """

    value: float
    predicted: float
    is_guided: bool
    is_confirmed: bool
    seconds: float | None = None


@with_config(STRICT)
@final
@dataclass(frozen=True)
class PredictionUse:
    """Use of predictions by the annotators over all runs of a site, before adjudication."""

    blind: Annotated[Count, Field(description="labels given without a prediction")]
    blind_agreed: Annotated[Count, Field(description="those that equal the prediction")]
    chosen: Annotated[
        Count, Field(description="labels given one by one beside predictions")
    ]
    chosen_agreed: Annotated[
        Count, Field(description="those that equal the likeliest class")
    ]
    confirmed: Annotated[Count, Field(description="predictions confirmed on sheets")]
    again: Annotated[Count, Field(description="confirmed labels that were given again")] = 0
    again_agreed: Annotated[Count, Field(description="those that are equal")] = 0
    single_seconds: Annotated[
        float | None, Field(description="median seconds per label, one by one, or null")
    ] = None
    sheet_seconds: Annotated[
        float | None, Field(description="median seconds per label on sheets, or null")
    ] = None

    def describe(self) -> list[str]:
        """Return sentences, or nothing without labels beside predictions."""
        guided = self.chosen + self.confirmed
        if not guided:
            return []
        return [*self._compare(guided), *self._describe_sheets()]

    def _compare(self, guided: int) -> list[str]:
        """Return a sentence about labels beside predictions and without."""
        agreed = 100 * (self.chosen_agreed + self.confirmed) / guided
        beside = (
            f"Labels beside predictions: {guided}, {self.confirmed} of them confirmed on sheets; "
            f"{agreed:.0f} % equal the prediction"
        )
        if not self.blind:
            return [f"{beside}. There is no label without a prediction to compare with."]
        without = 100 * self.blind_agreed / self.blind
        return [
            f"{beside}. Labels without: {self.blind}; {without:.0f} % equal it. If the first share "
            "is clearly higher, predictions influence the annotators."
        ]

    def _describe_sheets(self) -> Iterator[str]:
        """Yield sentences about the labels of sheets: those given again, and the time they take."""
        if self.again:
            equal = 100 * self.again_agreed / self.again
            yield (
                f"Labels of sheets that were given again one by one: {self.again}; {equal:.0f} % "
                "are equal."
            )
        times = []
        if self.single_seconds is not None:
            times.append(f"{self.single_seconds:.1f} s one by one")
        if self.sheet_seconds is not None:
            times.append(f"{self.sheet_seconds:.1f} s on sheets")
        if times:
            yield f"Median time per label: {', '.join(times)}."


def measure_pause(before: datetime | None, now: datetime) -> float | None:
    """Return the seconds since a label, or None without one and after a pause from work.

    A clock that was set back gives None as well.
    """
    if before is None:
        return None
    seconds = (now - before).total_seconds()
    if not 0 <= seconds <= LONGEST_PAUSE:
        return None
    return seconds


def measure_predictions(labels: Sequence[PredictedLabel]) -> PredictionUse:
    """Count how labels relate to predictions.

    >>> beside = PredictedLabel(1.0, predicted=1.0, is_guided=True, is_confirmed=False)
    >>> blind = beside._replace(value=0.0, is_guided=False)
    >>> use = measure_predictions([beside, beside, blind])
    >>> use.chosen_agreed, use.blind, use.blind_agreed
    (2, 1, 0)
    """
    blind = [label for label in labels if not label.is_guided]
    confirmed = [label for label in labels if label.is_confirmed]
    chosen = [label for label in labels if label.is_guided and not label.is_confirmed]
    return PredictionUse(
        blind=len(blind),
        blind_agreed=_count_agreed(blind),
        chosen=len(chosen),
        chosen_agreed=_count_agreed(chosen),
        confirmed=len(confirmed),
        single_seconds=_find_median_time([*blind, *chosen]),
        sheet_seconds=_find_median_time(confirmed),
    )


def _count_agreed(labels: Sequence[PredictedLabel]) -> int:
    return sum(label.value == label.predicted for label in labels)


def _find_median_time(labels: Sequence[PredictedLabel]) -> float | None:
    """Return the median seconds per label, without pauses."""
    seconds = [label.seconds for label in labels if label.seconds is not None]
    return median(seconds) if seconds else None


def _number(values: Iterable[Value]) -> dict[Value, int]:
    """Return the position of each value, in the order of first occurrences."""
    return {value: position for position, value in enumerate(dict.fromkeys(values))}
