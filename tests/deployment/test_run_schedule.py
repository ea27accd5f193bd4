"""Test the list of exchanges of a study, from which a site's checks of the order derive."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.core.exchange_key import STEPS, ExchangeKey
from fallow.core.refusal import Refusal
from fallow.deployment.building import build_study
from fallow.deployment.site import schedule as schedule_module
from fallow.deployment.site.schedule import RunSchedule
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.deployment.hosts import agreement

pytest.importorskip("cryptography")
METHODS = build_study(agreement("strategy=entropy", "training=fedavg")).methods
SIZES = st.integers(min_value=1, max_value=2)


@st.composite
def schedules(draw: st.DrawFn) -> RunSchedule:
    """Draw the schedule of a small study."""
    fields: dict[str, Any] = {
        "cycles": draw(SIZES),
        "rounds": draw(SIZES),
        "score_rounds": draw(SIZES),
        "queries_per_cycle": draw(SIZES),
        "strategy": Spec(draw(st.sampled_from(["entropy", "random"]))),
        "protocol": "auto",
    }
    methods = METHODS.copy()
    for name in draw(st.sets(st.sampled_from(["retention", "head", "tuning", "scaling"]))):
        methods[name] = METHODS["training"]  # type: ignore[literal-required]
    if fields["strategy"].name == "random" and draw(st.booleans()):
        fields["protocol"] = "one_pass"
    elif fields["queries_per_cycle"] == 1 and draw(st.booleans()):
        methods["evaluation_set"] = METHODS["training"]  # type: ignore[typeddict-item]
    return RunSchedule(ExperimentConfig("drawn", **fields), methods)


def list_keys(config: ExperimentConfig) -> list[ExchangeKey]:
    """Return every first key up to one cycle, round and query beyond a study."""
    keys: list[ExchangeKey] = []
    numbers = (config.cycles + 2, config.queries_per_cycle + 1, config.rounds + 1)
    for phase, steps in STEPS.items():
        for step in steps:
            for cycle, part, r in itertools.product(*map(range, numbers)):
                try:
                    keys.append(ExchangeKey(phase, step, cycle=cycle, part=part, round=r))
                except ValueError:  # the step has no such number
                    continue
    return keys


@settings(max_examples=10)
@given(schedules())
def test_each_exchange_of_a_study_is_accepted_in_its_order_and_no_other(
    schedule: RunSchedule,
) -> None:
    planned = list(schedule.list_exchanges())
    ranks = [schedule.find_position(key).rank for key in planned]
    assert ranks == sorted(set(ranks))
    assert len({str(key) for key in planned}) == len(planned)
    for key in list_keys(schedule.config):
        if key not in planned:
            with pytest.raises(Refusal, match="leads to no step"):
                schedule.find_position(key)


@settings(max_examples=10)
@given(schedules())
def test_a_delivery_follows_its_relay_and_precedes_the_next_exchange(
    schedule: RunSchedule,
) -> None:
    for first in list(schedule.list_exchanges())[:6]:
        order = [
            first,
            replace(first, retry=3, is_delivery=True),
            replace(first, turn=1),
            replace(first, turn=1, is_delivery=True),
        ]
        ranks = [schedule.find_position(key).rank for key in order]
        assert ranks == sorted(set(ranks))
        again = replace(first, retry=7)
        assert schedule.find_position(again).rank == ranks[0]


@pytest.mark.parametrize("cycles", [1, 3])
def test_a_study_of_one_pass_selects_before_it_trains_once(cycles: int) -> None:
    config = ExperimentConfig(
        "once", strategy=Spec("random"), protocol="one_pass", cycles=cycles, rounds=1
    )
    keys = list(RunSchedule(config, METHODS).list_exchanges())
    texts = [key.step_name for key in keys if key.phase in ("train", "query")]
    query = f"{cycles - 1}/query"
    train = f"{cycles}/train/0"
    selecting = [query, f"{query}/ask", f"{query}/close"]
    assert texts == [*selecting, f"{cycles}/train/targets", train, f"{train}/score"]


def test_a_study_with_too_many_exchanges_for_a_list_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = ExperimentConfig("long", strategy=Spec("random"), cycles=1, rounds=10**9)
    monkeypatch.setattr(schedule_module, "MOST_EXCHANGES", 50)
    with pytest.raises(Refusal, match=r"more than 50 exchanges .*rounds=1000000000"):
        RunSchedule(config, METHODS).find_position(ExchangeKey("hello", "hello"))
