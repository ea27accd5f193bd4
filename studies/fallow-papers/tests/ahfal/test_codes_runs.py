"""Runs with strategies of public code: the event log keeps memos from cycle to cycle."""

from __future__ import annotations

import pytest

from fallow.experiment.event_log import EventLog
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

NAMES = [
    "NaNKSAS",
    "PixelBADGE",
    "PlainFEAL",
    "PlainLoGo",
    "PlainNoise:draws=2",
    "RatioAHFAL",
]


def records(strategy: str, model: str = "mlp") -> list[Record]:
    config = ExperimentConfig(
        "tiny",
        rows=300,
        test_rows=50,
        sites=3,
        rounds=1,
        cycles=2,
        score_rounds=1,
        model=Spec(model),
        strategy=Spec.parse(f"fallow_papers.ahfal.codes:{strategy}"),
    )
    event_log = EventLog()
    values = ExperimentRun(build_environment(config, 0, event_log), event_log).go()
    event_log.close()
    return values


@pytest.mark.parametrize("model", ["mlp", "digits-cnn"])
@pytest.mark.parametrize("strategy", NAMES)
def test_a_run_spends_its_budget_in_every_cycle(strategy: str, model: str) -> None:
    run_records = records(strategy, model)
    labeled = [row["labeled"] for row in run_records]
    assert labeled[0] < labeled[1] < labeled[2]
    assert labeled[2] - labeled[1] == labeled[1] - labeled[0]


def test_the_notes_of_a_run_say_at_how_many_sites_ksas_was_random() -> None:
    run_records = records("NaNKSAS")
    first = run_records[0]["labeled_per_site"].values()
    blind = sum(0 in counts for counts in first)
    assert 0 < blind <= 3
    assert [row["notes"] for row in run_records] == [
        {"nan_sites": blind},
        {"nan_sites": blind},
        {},
    ]
