"""Every personalized algorithm in full runs, with each executor and transport."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fallow.settings.spec import Spec
from tests.sites.test_agree import TINY, check, ending
from tests.training.personal.federation import TRAINING_ANY_MODEL

OURS = [name for name in TRAINING_ANY_MODEL if name != "DPFL"]
QUICK = replace(TINY, strategy=Spec("margin"), cycles=1)
each_method = pytest.mark.parametrize("name", OURS)


@pytest.mark.long
@each_method
def test_loop_stacked_and_bytes_agree(name: str) -> None:
    config = replace(QUICK, training=Spec(name))
    plain = ending(config)
    check(ending(config, executor="stacked"), plain)
    check(ending(config, runtime="bytes"), plain, atol=0)


@pytest.mark.long
@each_method
def test_a_method_goes_on_in_the_next_cycle_with_few_sites_at_a_time(name: str) -> None:
    config = replace(
        TINY,
        strategy=Spec("margin"),
        training=Spec(name),
        restart="continue",
        participation=0.5,
        rounds=3,
        cycles=2,
    )
    plain = ending(config)
    check(ending(config, executor="stacked"), plain)
