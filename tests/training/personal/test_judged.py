"""Evaluation of personalized models in a study: local test examples, best round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.spec import Spec
from tests.sites.test_agree import TINY
from tests.training.personal.federation import TRAINING_ANY_MODEL

OURS = [name for name in TRAINING_ANY_MODEL if name != "DPFL"]
OWN = replace(
    TINY,
    validation=0.25,
    test="own",
    strategy=Spec("random"),
    cycles=1,
    rounds=3,
    initial=12,
    rows=240,
    test_rows=120,
)


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_every_site_has_a_score_of_its_own_and_remembers_its_best_model(name: str) -> None:
    event_log = EventLog()
    simulation = build_environment(replace(OWN, training=Spec(name)), 0, event_log)
    last = ExperimentRun(simulation, event_log).go()[-1]
    per_site = last["per_site"]
    assert per_site is not None and set(per_site) == set(simulation.members)
    scores = [score for score in per_site.values() if score is not None]
    assert len(scores) == len(per_site)
    assert last["accuracy"] == pytest.approx(sum(scores) / len(scores))
    assert all("best" in site.memory for site in simulation.members.values())
    is_tuned = name.endswith("FT")
    assert all(("tuned" in site.memory) == is_tuned for site in simulation.members.values())
