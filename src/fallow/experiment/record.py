"""Record of one evaluation, a line of ``records.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from fallow.core.disclosure import DisclosureEntry
from fallow.core.types import SiteId


class SiteScores(TypedDict):
    """Scores over sites, if models or test sets differ between sites; otherwise None."""

    per_site: dict[SiteId, float | None] | None
    accuracy_weighted: float | None  # every test row counts the same; in [0, 1]
    variance: float | None  # of the accuracies of sites, in percent²
    worst_tenth: float | None  # mean accuracy of the worst tenth of the sites, in [0, 1]


class Scores(SiteScores):
    """Scores of a model on the test set.

    Accuracies are in [0, 1].  ``mse`` is in units of the variance of the targets.  Scores that do not
    apply are None.
    """

    accuracy: float | None
    balanced_accuracy: float | None
    per_class: list[float | None] | None  # (C,); None for a class without test rows
    mse: float | None


class Collaboration(TypedDict, total=False):
    """Senders and receivers in a round; empty without a collaboration graph."""

    graph: dict[SiteId, list[SiteId]]  # receiver -> senders
    omega: dict[SiteId, list[SiteId]]  # receiver -> candidates of the cycle
    refused: list[SiteId]  # whose models were kept out of averages
    # counts of the sites' last choice of collaborators, over all sites
    evaluations: int
    conflicts: int
    guarded: int


class Chosen(TypedDict, total=False):
    """Hyperparameters chosen for a closed-form model; empty for other models."""

    features: int  # D, of which the head is
    penalty: float  # λ
    temperature: float  # T
    left_out: (
        float  # on labeled rows that the head had not seen: accuracy in [0, 1], or mse
    )


class Evaluation(Scores, Collaboration, Chosen):
    """Scores after a round, with further values of the round."""

    round: int
    cohort: list[SiteId]
    final: bool  # whether the scores count
    point: str  # which model was scored: "retained", "deployed" or "post_agg"
    model_bytes: int
    retained: NotRequired[dict[SiteId, int]]  # the round that each best model is from
    # in simulations, see `fallow.experiment.convergence`
    training_loss: NotRequired[float | None]
    majority: NotRequired[float | None]


class PseudoLabels(TypedDict):
    """Accuracy of the local models on their pools before a query, in simulations only."""

    accuracy: float
    per_class: list[float | None]  # (C,) recall
    redundancy: float | None  # in [-1, 1], see `fallow.experiment.redundancy`


class Relayed(TypedDict):
    """Peer messages in the training of a cycle, by site."""

    sent: dict[SiteId, int]
    received: dict[SiteId, int]


class Audited(TypedDict):
    """Score of a model on the evaluation set (`fallow.experiment.audit`).

    The score is the accuracy, or the mean squared error in units of the variance, over all examples
    that were unlabeled at the query.  It is None without evaluation examples.
    """

    score: float | None
    low: float | None  # of the interval at 95 %
    high: float | None
    drawn: int  # rows that were drawn and answered
    chosen: int  # rows of the query
    rows: int  # of which the score is: chosen ones, and those among which was drawn
    per_site: NotRequired[dict[SiteId, Audited]]  # where the coordinator sees it


class Record(TypedDict, total=False):
    """One evaluation of a run.

    Seconds, bytes and ``revealed`` are cumulative up to the training of the cycle.  Values that are
    absent or None were not measured.  Files of earlier versions lack some values.
    """

    recipe: str
    strategy: str
    training: str
    seed: int
    cycle: int
    # as in `Evaluation`
    round: int
    cohort: list[SiteId]
    accuracy: float | None
    balanced_accuracy: float | None
    per_class: list[float | None] | None
    mse: float | None
    per_site: dict[SiteId, float | None] | None
    accuracy_weighted: float | None
    variance: float | None
    worst_tenth: float | None
    final: bool
    point: str
    model_bytes: int
    retained: dict[SiteId, int]
    training_loss: float | None  # on labeled examples; 1 for a model that knows nothing
    majority: float | None  # accuracy of predicting the most frequent class
    graph: dict[SiteId, list[SiteId]]
    omega: dict[SiteId, list[SiteId]]
    refused: list[SiteId]
    evaluations: int
    conflicts: int
    guarded: int
    features: int
    penalty: float
    temperature: float
    left_out: float
    # labels and rows
    labeled: int  # bought so far, those that validate among them
    labels_validation: int
    pool: int  # training rows of all sites, labeled or not
    labeled_per_site: dict[SiteId, list[int]]  # those that train, by class or in one number
    labeled_per_class: list[int] | None
    target_variance: float | None  # of the numbers to predict: the unit of ``mse``
    # costs
    seconds: float
    bytes_up: int
    bytes_down: int
    revealed: list[DisclosureEntry]
    executor: str
    threads: int
    versions: dict[str, str]
    # of the query that follows
    notes: Mapping[str, Any]  # what the query says of itself: JSON of its own form
    pseudo_labels: PseudoLabels | None
    stopped: str  # why the run ended before its last cycle
    audit: Audited  # of the query that follows, where rows are drawn by chance
    relayed: Relayed
    diverged: bool  # training ended without a usable model
