"""What federated training methods share: a weighted average, and statistics that stay at sites."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fallow.core.local import Batch, TrainState
from fallow.core.types import Answer, State
from fallow.core.view import View


def addend(view: View, name: str, bn: str) -> Answer:
    """A site's weighted model: n_i w_i and n_i; with ``bn="local"`` statistics stay at the site."""
    n, model = float(len(view.labels)), view.memory[name]
    answer: Answer = {"n": n, "w": n * model["w"].double()}
    return answer if bn == "local" else {**answer, "stats": n * model["stats"].double()}


def average(total: dict[str, Tensor], state: State) -> State:
    """The weighted mean of what sites added; ``state`` where nobody had a label."""
    if float(total["n"]) == 0:
        return state
    mean: State = {
        k: (total[k] / total["n"]).to(state[k].dtype) for k in ("w", "stats") if k in total
    }
    return {**state, **mean}


def with_own_statistics(w: TrainState, own: dict[str, TrainState]) -> TrainState:
    """The model that was sent, with the statistics the site kept in the last round (FedBN)."""
    return w._replace(stats=own["bn"].stats) if "bn" in own else w


def own_statistics(w: TrainState, bn: str) -> dict[str, TrainState]:
    """What stays at a site: its statistics with ``bn="local"``, else nothing."""
    if bn != "local":
        return {}
    return {"bn": w._replace(w=w.w[..., :0], m1=w.m1[..., :0], m2=w.m2[..., :0])}


def deployed(state: State, memory: Mapping[str, State]) -> State:
    """The model used at a site: the server's, with the statistics that stayed at the site."""
    return {**state, "stats": memory["own/bn"]["stats"]} if "own/bn" in memory else state


def class_counts(b: Batch, name: str) -> Tensor:
    """Labels of each class at the site, (..., C); ValueError where there are no classes."""
    if b.counts.shape[-1] == 0:
        raise ValueError(
            f"{name} weighs classes and the data has numbers to predict; use fedavg"
        )
    return b.counts
