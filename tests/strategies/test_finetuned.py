"""LoGo's fine-tuned baselines: plain queries by the locally fine-tuned global model."""

from __future__ import annotations

import pytest

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.variants import variant

TINY = ExperimentConfig(
    "tiny",
    data="digits",
    rows=160,
    test_rows=40,
    partition=Spec("iid"),
    sites=3,
    model=Spec("mlp", {"hidden": [8]}),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer("sgd", 0.2)),
    local_training_config=TrainingConfig((TrainingStage(4),), 8, Optimizer("sgd", 0.5)),
    rounds=2,
    initial=12,
    budget=8,
    cycles=1,
    score_rounds=1,
)


def bought(strategy: str) -> dict[str, list[int]]:
    """Return the labeled examples of each site at the end of a run of ``strategy``."""
    event_log = EventLog()
    simulation = build_environment(variant(TINY, strategy), seed=0, store=event_log)
    list(ExperimentRun(simulation, event_log).go())
    return {name: site.labeled.tolist() for name, site in simulation.members.items()}


@pytest.mark.long
def test_a_fine_tuned_baseline_runs_and_picks_other_rows_than_that_of_the_last_round() -> (
    None
):
    for strategy in ("entropy", "badge"):
        plain, tuned, fresh = (
            bought(strategy + settings)
            for settings in ("", "@local_source=finetune", "@local_source=scratch")
        )
        assert plain.keys() == tuned.keys()
        assert all(len(rows) == 12 + 8 for rows in tuned.values())
        assert tuned != plain and tuned != fresh


def test_fine_tuning_does_not_move_what_is_seen_by_the_global_model() -> None:
    globally = bought("entropy:model=global")
    assert bought("entropy:model=global@local_source=finetune") == globally
