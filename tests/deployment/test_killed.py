"""Kill the processes of real federations; the results are those of an undisturbed run.

The test restarts a killed site or coordinator, as a service manager would. Processes that
these have started must be restarted by them.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fallow.measurements.description import FILE
from fallow.transport.kinds import HTTPS
from tests.deployment.children import start_command, wait_until
from tests.deployment.real import LEADER, LONGER, Real, assert_as_undisturbed, real
from tests.deployment.test_transports_agree import left_by, tensors_alike

pytestmark = pytest.mark.processes

LONG = 600.0  # seconds; a busy machine takes minutes
BACK = 120.0  # seconds until a killed site replies again
SITE = "basel"
PHASES = {
    "hello": "0/hello",
    "first query": "0/initial/0",
    "training": "0/train/0/0",
    "choosing": "0/query/0",
    "labeling": "0/query/ask",
    "close": "0/query/close",
    "last model": "model/finish",
}
"""Pattern of the exchange that a site just completed."""


def restart(*names: str) -> Callable[[Real], None]:
    def act(study: Real) -> None:
        study.kill(*names)
        study.start(*names)

    return act


VICTIMS = {
    "the coordinator": restart(LEADER),
    "a site": restart(SITE),
    "the coordinator and a site": restart(LEADER, SITE),
}


@pytest.mark.long
def test_a_coordinator_and_a_site_killed_at_once_in_training_end_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    with real(tmp_path) as study:
        study.start(*study.sites)
        description = describe(study)
        alike = study.alike.program(describes=True)
        assert not alike.go()
        assert description == json.loads(
            (study.alike.coordinator_folder / FILE).read_text()
        )
        study.start(LEADER)
        study.until_replied("0/train/0", SITE, LONG)
        VICTIMS["the coordinator and a site"](study)
        study.finish(LONG)
        assert_as_undisturbed(study)
        assert left_by(study)["tensors"] == tensors_alike(study)  # equal in every bit


@pytest.mark.soak
@pytest.mark.parametrize("names", [(LEADER,), (SITE,), (LEADER, SITE)], ids="+".join)
def test_over_https_killed_between_and_amid_exchanges_it_ends_as_if_nothing_had_happened(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    kill_them = restart(*names)
    with real(tmp_path, transport=HTTPS) as study:
        study.start(LEADER, *study.sites)
        for key in PHASES.values():
            study.until_replied(key, SITE, LONG)
            kill_them(study)
        study.finish(LONG)
        assert_as_undisturbed(study)
    folder = tmp_path / "amid"
    with real(folder, replace(LONGER, rounds=20), transport=HTTPS) as study:
        study.start(LEADER, *study.sites)
        for key in (PHASES["hello"], PHASES["first query"], PHASES["training"]):
            study.until_replied(key, SITE, LONG)
            study.signal(
                SITE, signal.SIGSTOP
            )  # else the study may end before the next line
            # an instruction is on its way to the site or being performed
            wait_until(partial(is_awaited, study), LONG, study.read_logs())
            kill_them(study)
            if SITE not in names:
                study.signal(SITE, signal.SIGCONT)
        study.finish(LONG)
        assert_as_undisturbed(study)


@pytest.mark.soak
def test_a_site_that_was_killed_answers_again_within_two_minutes(tmp_path: Path) -> None:
    with real(tmp_path) as study:
        study.start(LEADER, *study.sites)
        study.until_replied(PHASES["first query"], SITE, LONG)
        before = study.text(SITE).count("replied to")
        VICTIMS["a site"](study)
        wait_until(
            lambda: study.text(SITE).count("replied to") > before, BACK, study.read_logs()
        )
        study.finish(LONG)
        assert_as_undisturbed(study)


@pytest.mark.soak
def test_a_stopped_site_is_not_waited_for_beyond_the_timeout_and_takes_part_again(
    tmp_path: Path,
) -> None:
    timeout = 30.0
    with real(tmp_path, LONGER, timeout=timeout, quorum=1) as study:
        study.start(LEADER, *study.sites)
        study.until_replied("0/train/0/", SITE, LONG)
        study.signal(SITE, signal.SIGSTOP)
        waited = study.waited_for(SITE, LONG)
        assert timeout - 2 <= waited <= timeout + 5
        study.signal(SITE, signal.SIGCONT)
        study.until_replied("model/finish", SITE, LONG)
        study.finish(LONG)


def describe(study: Real) -> object:
    """Describe the data of the sites by the command, and return what it prints."""
    command = ("coordinate", "describe", str(study.folder / LEADER))
    child = start_command(study.log("describe"), *command)
    assert child.wait(LONG) == 0, study.text("describe")
    assert "median" in study.text("describe")
    assert "stopped" not in study.text("describe")
    return json.loads((study.folder / LEADER / FILE).read_text())


def is_awaited(study: Real) -> bool:
    """Return whether the coordinator is waiting for a reply of the site."""
    value = study.live().get("sites", {}).get(SITE, {})
    return study.live().get("state") == "running" and bool(value.get("awaited"))
