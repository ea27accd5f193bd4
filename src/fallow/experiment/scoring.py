"""Evaluation after a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from fallow.core.disclosure import payload
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import FinalTraining, Methods
from fallow.core.model_vectors import Layout
from fallow.core.types import SiteId, State
from fallow.experiment.environment import Environment, Simulation
from fallow.experiment.evaluate import evaluate, measure_training_loss, score_of_majority
from fallow.experiment.event_log import EventLog
from fallow.experiment.metrics import UNSCORED
from fallow.experiment.steps import cohort_of, describe_collaboration
from fallow.settings.config import ExperimentConfig

if TYPE_CHECKING:
    from fallow.experiment.record import Chosen, Evaluation, Scores

CHOSEN: tuple[
    Literal[
        "penalty",
        "penalty_limit",
        "temperature",
        "left_out",
        "unlabeled",
        "unlabeled_gain",
        "site_prior_gain",
    ],
    ...,
] = (
    "penalty",
    "penalty_limit",
    "temperature",
    "left_out",
    "unlabeled",
    "unlabeled_gain",
    "site_prior_gain",
)
HEAD = "head.weight"
"""Name of the weights of the last layer, of shape (outputs, features)."""


def score_round(
    simulation: Simulation, event_log: EventLog, cycle: int, r: int, state: State
) -> Evaluation:
    """Evaluate round ``r`` on the test set (`describe_round`).

    Scores may depend on the memory of sites, which a replayed round no longer finds.  They are
    therefore stored in the event log.
    """
    key = ExchangeKey("train", "score", cycle=cycle, round=r)
    known: Evaluation | None = event_log.recall(key, "scores")
    if known is not None:
        return known
    result = describe_round(
        simulation, cycle, r, state, lambda retained: evaluate(simulation, state, retained)
    )
    result["training_loss"] = measure_training_loss(simulation, state)
    result["majority"] = score_of_majority(simulation)
    if result["point"] == "retained":
        result["retained"] = retained_rounds(simulation)
    with event_log.transaction():
        event_log.record(key, "scores", result)
    return result


def describe_round(
    simulation: Environment,
    cycle: int,
    r: int,
    state: State,
    scores: Callable[[bool], Scores],
) -> Evaluation:
    """Return the evaluation of a round.

    ``scores`` computes the scores, of the models with the best validation score if called with True.
    With a validation set, only the last round counts (``final``).  An algorithm with a final step is
    scored after it.  ``point`` names the scored model: ``retained``, ``deployed`` (by a site) or
    ``post_agg`` (global).  With a collaboration graph, the evaluation has senders and receivers.
    """
    is_last = r == simulation.config.rounds - 1
    ends = _has_final_step(simulation.methods)
    is_retained = scores_retained(simulation.config, simulation.methods, r)
    measured = scores(is_retained)
    point = "post_agg"
    if is_retained:
        point = "retained"
    elif measured["per_site"]:
        point = "deployed"
    collaboration = describe_collaboration(state, simulation.channel.sites, is_last)
    return {
        "round": r,
        "cohort": list(cohort_of(simulation, cycle, r)),
        **measured,
        "final": is_last or not (ends or is_retained),
        "point": point,
        "model_bytes": payload({"w": state["w"], "stats": state["stats"]}),
        **describe_choice(state, simulation.layout),
        **collaboration,  # type: ignore[typeddict-item]  # mypy: it could have more keys
    }


def score_selection(
    simulation: Environment, cycle: int, r: int, state: State
) -> Evaluation:
    """Return the evaluation of a round without training: how selected examples cover all."""

    def read(retained: bool) -> Scores:
        return {
            **UNSCORED,
            "distance": float(state["distance"]),
            "random_distance": float(state["random_distance"]),
        }

    return {**describe_round(simulation, cycle, r, state, read), "point": "selection"}


def scores_retained(config: ExperimentConfig, methods: Methods, r: int) -> bool:
    """Return whether round ``r`` scores the models with the best validation score."""
    is_final = r == config.rounds - 1 and _has_final_step(methods)
    return config.validation > 0 and not is_final


def _has_final_step(methods: Methods) -> bool:
    return isinstance(methods["training"], FinalTraining) or "head" in methods


def describe_choice(state: State, layout: Layout) -> Chosen:
    """Return the hyperparameters of a closed-form model and its leave-one-out score.

    The result is empty for other models.
    """
    choice: Chosen = {}
    for name in CHOSEN:
        if name in state:
            choice[name] = float(state[name])
    shapes = dict(layout.params)
    if choice and HEAD in shapes:
        choice["features"] = shapes[HEAD][1]
    return choice


def retained_rounds(simulation: Simulation) -> dict[SiteId, int]:
    """Return the round of each site's best model."""
    best = {name: site.memory.get("best") for name, site in simulation.members.items()}
    return {name: int(kept["turn"]) for name, kept in best.items() if kept is not None}
