"""Record of one evaluation, a line of ``records.jsonl``.

Each field is declared once: its type and range validate what is read, and its description
is in the JSON schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, Required

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from fallow.core.kinds import show_name
from fallow.core.types import SiteId
from fallow.core.wording import join_words
from fallow.measurements.base import IntervalScores
from fallow.measurements.evaluation_set import EvaluationScore
from fallow.measurements.meter import Exposure
from fallow.measurements.metrics import MetricScores
from fallow.measurements.prediction_sets import SetScores
from fallow.measurements.results import AttackResult
from fallow.storage.received import is_shallow
from fallow.storage.validation import STRICT, Count, Number, Rule, Whole


@with_config(STRICT)
class DisclosureEntry(TypedDict):
    """One row of the table "What left each site"."""

    kind: Annotated[
        str, Field(description="operation: `sum`, `each`, `keep`, `relay` or `fit`")
    ]
    function: Annotated[str, Field(description="the client function")]
    description: Annotated[str, Field(description="description by the algorithm")]
    bytes: Annotated[Count, Field(description="bytes from sites to the server side")]
    bytes_down: Annotated[Count, Field(description="bytes from the server side to sites")]
    sites: Annotated[Count, Field(description="largest number of participating sites")]
    exchanges: Annotated[Count, Field(description="number of exchanges")]
    epsilon: NotRequired[
        Annotated[Number, Field(description="privacy budget spent by a site")]
    ]
    masked: NotRequired[
        Annotated[
            bool,
            Field(
                description="the server side saw aggregates of masked contributions only"
            ),
        ]
    ]
    sent: NotRequired[
        Annotated[dict[SiteId, Count], Field(description="relayed replies, by sender")]
    ]
    received: NotRequired[
        Annotated[dict[SiteId, Count], Field(description="relayed replies, by receiver")]
    ]


@with_config(STRICT)
class Measured(TypedDict, total=False):
    """Results of the measurements that were requested; empty without any."""

    metrics: Annotated[
        dict[str, MetricScores],
        Field(description="metrics of the setting `metrics`, by name"),
    ]
    prediction_sets: Annotated[
        SetScores, Field(description="prediction sets of the setting `coverage`")
    ]
    measured: Annotated[
        dict[str, dict[str, IntervalScores]],
        Field(description="values of the setting `measure`, by measurement and title"),
    ]


@with_config(STRICT)
class SiteScores(Measured, total=False):
    """Scores over sites, if models or test sets differ between sites; otherwise None."""

    per_site: Annotated[
        dict[SiteId, Number | None] | None,
        Field(description="accuracy in [0, 1] or mean squared error, by site"),
    ]
    accuracy_weighted: Annotated[
        Number | None,
        Field(description="accuracy in [0, 1]; every test example counts the same"),
    ]
    variance: Annotated[
        Number | None, Field(description="variance of the accuracies of sites, in percent²")
    ]
    worst_tenth: Annotated[
        Number | None,
        Field(description="mean accuracy of the worst tenth of the sites, in [0, 1]"),
    ]


@with_config(STRICT)
class Scores(SiteScores, total=False):
    """Scores of a model on the test set.  Scores that do not apply are None."""

    accuracy: Annotated[Number | None, Field(description="accuracy, in [0, 1]")]
    balanced_accuracy: Annotated[
        Number | None, Field(description="mean recall of the classes, in [0, 1]")
    ]
    per_class: Annotated[
        list[Number | None] | None,
        Field(description="recall by class; None for a class without test examples"),
    ]
    mse: Annotated[
        Number | None,
        Field(description="mean squared error in units of the variance of the targets"),
    ]
    distance: Annotated[
        Number | None,
        Field(
            description="squared distance to the nearest selected example, in units of the "
            "variance; without training"
        ),
    ]
    random_distance: Annotated[
        Number | None,
        Field(description="the same for random selections of equal size"),
    ]


@with_config(STRICT)
class Collaboration(TypedDict, total=False):
    """Senders and receivers in a round; empty without a collaboration graph."""

    graph: Annotated[
        dict[SiteId, list[SiteId]], Field(description="senders of a round, by receiver")
    ]
    omega: Annotated[
        dict[SiteId, list[SiteId]], Field(description="candidates of a cycle, by receiver")
    ]
    refused: Annotated[
        list[SiteId], Field(description="sites whose models were kept out of averages")
    ]
    evaluations: Annotated[
        Count, Field(description="evaluations in the last choice of collaborators")
    ]
    conflicts: Annotated[
        Count, Field(description="conflicts in the last choice of collaborators")
    ]
    guarded: Annotated[
        Count, Field(description="rejected candidates in the last choice of collaborators")
    ]


@with_config(STRICT)
class Chosen(TypedDict, total=False):
    """Hyperparameters chosen for a closed-form model; empty for other models."""

    features: Annotated[Count, Field(description="number of features of the classifier")]
    penalty: Annotated[Number, Field(description="ridge penalty λ")]
    penalty_limit: Annotated[
        Number, Field(description="largest λ that so few labels allow")
    ]
    temperature: Annotated[Number, Field(description="temperature of the probabilities")]
    left_out: Annotated[
        Number,
        Field(description="leave-one-out accuracy in [0, 1], or mean squared error"),
    ]
    unlabeled: Annotated[
        Number,
        Field(description="weight of the model that also learns from unlabeled examples"),
    ]
    unlabeled_gain: Annotated[
        Number,
        Field(description="gain of this weight in held-out accuracy, in [-1, 1]"),
    ]
    site_prior_gain: Annotated[
        Number,
        Field(
            description="gain of class shares by site in held-out accuracy; 0: not used",
        ),
    ]


@with_config(STRICT)
class Evaluation(Scores, Collaboration, Chosen, total=False):
    """Scores after a round, with further values of the round."""

    round: Annotated[Count, Field(description="round of the cycle, from 0")]
    cohort: Annotated[list[SiteId], Field(description="sites that took part in the round")]
    final: Annotated[bool, Field(description="whether the scores count")]
    point: Annotated[
        str,
        Field(
            description="what was scored: a model (`retained`, `deployed` or `post_agg`), or the "
            "`selection`"
        ),
    ]
    model_bytes: Annotated[Count, Field(description="size of the model in bytes")]
    retained: Annotated[
        dict[SiteId, Whole], Field(description="round of the best model, by site")
    ]
    training_loss: Annotated[
        Number | None,
        Field(description="loss on labeled examples; 1 for a model without information"),
    ]
    majority: Annotated[
        Number | None,
        Field(description="accuracy of predicting the most frequent class, in [0, 1]"),
    ]


@with_config(STRICT)
class PseudoLabels(TypedDict):
    """Accuracy of the local models on their pools before a query, in simulations only."""

    accuracy: Annotated[Number, Field(description="accuracy, in [0, 1]")]
    per_class: Annotated[list[Number | None], Field(description="recall by class")]
    redundancy: Annotated[
        Number | None, Field(description="redundancy of the selected examples, in [-1, 1]")
    ]


@with_config(STRICT)
class Relayed(TypedDict):
    """Peer messages in the training of a cycle."""

    sent: Annotated[dict[SiteId, Count], Field(description="messages, by sender")]
    received: Annotated[dict[SiteId, Count], Field(description="messages, by receiver")]


Notes = Annotated[dict[str, Any], Rule(is_shallow, "a table without deeply nested lists")]


@with_config(STRICT)
class Record(Evaluation, total=False):
    """One evaluation of a run.

    Seconds, bytes and ``revealed`` are cumulative up to the training of the cycle.  Values that are
    absent or None were not measured.
    """

    config: Annotated[str, Field(description="name of the experiment configuration")]
    strategy: Annotated[str, Field(description="query strategy, with its fields")]
    training: Annotated[str, Field(description="training algorithm, with its fields")]
    seed: Annotated[Count, Field(description="seed of the run")]
    cycle: Required[
        Annotated[Count, Field(description="cycle, from 0 (after the initial labeled set)")]
    ]
    labeled: Annotated[
        Count, Field(description="labels acquired so far, those for validation included")
    ]
    labels_validation: Annotated[
        Count, Field(description="labels held out to select the best model")
    ]
    pool: Annotated[
        Count, Field(description="training examples of all sites, labeled or not")
    ]
    labeled_per_site: Annotated[
        dict[SiteId, list[Count]],
        Field(description="training labels by site, and by class or in one number"),
    ]
    labeled_per_class: Annotated[
        list[Count] | None, Field(description="training labels by class")
    ]
    target_variance: Annotated[
        Number | None,
        Field(description="variance of the regression targets, the unit of `mse`"),
    ]
    seconds: Annotated[
        Number, Field(ge=0, allow_inf_nan=False, description="duration in seconds")
    ]
    bytes_up: Annotated[Count, Field(description="bytes from sites to the server side")]
    bytes_down: Annotated[Count, Field(description="bytes from the server side to sites")]
    revealed: Annotated[
        list[DisclosureEntry], Field(description="data that left the sites")
    ]
    executor: Annotated[str, Field(description="engine that trained")]
    threads: Annotated[Count, Field(description="number of threads")]
    versions: Annotated[dict[str, str], Field(description="versions of packages")]
    notes: Annotated[
        Notes, Field(description="values noted by the query strategy, under its own names")
    ]
    pseudo_labels: Annotated[
        PseudoLabels | None,
        Field(description="accuracy of the local models before the query that follows"),
    ]
    stopped: Annotated[str, Field(description="why the run ended before its last cycle")]
    evaluation_set: Annotated[
        EvaluationScore,
        Field(description="score on the evaluation set of the query that follows"),
    ]
    disclosure: Annotated[
        list[AttackResult],
        Field(description="attacks on the sums and the model (setting `measure`)"),
    ]
    exposure: Annotated[
        Exposure,
        Field(description="exact numbers that left a site, and the values of examples"),
    ]
    relayed: Annotated[Relayed, Field(description="peer messages in the training")]
    diverged: Annotated[bool, Field(description="training ended without a usable model")]


BESIDE: Mapping[str, tuple[str, ...]] = {
    "variance": (
        "per_site",
        "accuracy_weighted",
        "worst_tenth",
        "labeled_per_site",
        "bytes_down",
    ),
    "per_site": ("round",),
    "graph": ("labeled_per_site", "round"),
}
"""Fields that are never missing beside another one."""


def check_record(row: Record) -> Record:
    """Return a record whose fields agree with each other. Raises ValueError otherwise."""
    problem = (
        _find_missing(row)
        or _find_unscored(row)
        or _find_unequal(row)
        or _find_stranger(row)
    )
    if problem is not None:
        raise ValueError(problem)
    return row


CompleteRecord = Annotated[Record, AfterValidator(check_record)]
"""A record as read from a file."""


def _find_missing(row: Mapping[str, object]) -> str | None:
    """Return an error for a field that is missing although another one requires it."""
    for name, others in BESIDE.items():
        if row.get(name) in (None, {}):
            continue
        for other in others:
            if row.get(other) in (None, {}):
                return f"{other} is missing beside {name}"
    return None


def _find_unscored(row: Record) -> str | None:
    """Return an error for a spread over sites without any score."""
    if row.get("variance") is None:
        return None
    if all(score is None for score in (row["per_site"] or {}).values()):
        return "per_site has no score beside variance"
    return None


def _find_unequal(row: Record) -> str | None:
    """Return an error for sites with different numbers of classes."""
    counts = row.get("labeled_per_site") or {}
    lengths = {len(of_site) for of_site in counts.values()}
    if len(lengths) > 1:
        words = join_words([str(length) for length in sorted(lengths)])
        return f"labeled_per_site has lists of {words} numbers; all sites have as many"
    return None


def _find_stranger(row: Record) -> str | None:
    """Return an error for a site that has no labels in the record."""
    known = row.get("labeled_per_site")
    if not known:
        return None
    named: dict[str, set[str]] = {}
    for name in ("graph", "omega"):
        links: Mapping[str, list[str]] = row.get(name) or {}  # type: ignore[assignment]
        named[name] = set(links).union(*links.values())
    for at, entry in enumerate(row.get("revealed") or ()):
        named[f"revealed.{at}.received"] = set(entry.get("received") or ())
    for field, sites in named.items():
        for site in sorted(sites - set(known)):
            return f"{field} contains {show_name(site)!r}, which is not in labeled_per_site"
    return None
