"""Test a site and a coordinator with different versions of Fallow."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.core.version import __version__
from fallow.transport.envelope import Reply, open_instruction, sign_message
from tests.deployment.hosts import Leader, make_request
from tests.deployment.remotes import RUN, Federation, Timeouts, federation
from tests.deployment.simulations import tiny
from tests.privacy.federation import Asker
from tests.simulations import tables

pytest.importorskip("cryptography")

FIX = f"{'.'.join(__version__.split('.')[:2])}.999"  # bug fixes only
NEXT = f"{__version__.split('.')[0]}.{int(__version__.split('.')[1]) + 1}.0"


@pytest.mark.parametrize("version", ["9.9.0", NEXT])
def test_a_site_refuses_a_coordinator_of_another_version_and_names_both(
    leader: Leader, version: str
) -> None:
    instruction = leader.instruction(make_request("hello", "0/hello"), version=version)
    assert leader.send(instruction).refused == (
        f"the coordinator has Fallow {version} and site north {__version__}: their results may differ; "
        "install one version everywhere"
    )
    assert (
        leader.send(
            leader.instruction(make_request("hello", "0/hello"), version=FIX)
        ).refused
        is None
    )


def of_version(there: Federation, site: str, version: str) -> None:
    """Give the site another version and leave it honest otherwise."""
    honest = there.transport.alive[site]
    signing = there.signing[site]

    def handle(blob: bytes) -> bytes | None:
        honest(blob)
        key = open_instruction(signing.public, blob).key
        return sign_message(
            signing.secret, Reply(RUN, site, key, signing.sent[str(key)], version=version)
        )

    there.transport.alive[site] = handle


def test_an_answer_of_another_version_does_not_count_and_is_named() -> None:
    there = federation(Asker(), tables(sites=4), Timeouts(quorum=3))
    of_version(there, "b", "9.9.0")
    assert float(there.ask().sum(Asker().plain)["sites"]) == 3
    assert (
        f"site b has Fallow 9.9.0 and the coordinator {__version__}" in there.refusals["b"]
    )


def test_an_answer_of_a_version_with_corrections_counts_and_is_told_once() -> None:
    there = federation(Asker(), tables(sites=4))
    of_version(there, "b", FIX)
    ask = there.ask()
    assert [float(ask.sum(Asker().plain)["sites"]) for _ in range(2)] == [4, 4]
    (output,) = [event for event in there.events if event["event"] == "version"]
    assert (
        output["site"] == "b"
        and f"site b has Fallow {FIX} and the coordinator" in output["reason"]
    )


@pytest.mark.long
def test_a_study_does_not_begin_with_a_site_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = tiny(tmp_path)
    why = rf"the coordinator has Fallow {__version__} and site basel 9.9.0"
    with monkeypatch.context() as patch:
        patch.setattr("fallow.deployment.site.host.__version__", "9.9.0")
        with pytest.raises(RuntimeError, match=why):
            simulation.program().go()
    simulation.transport.close()  # message still in transit
    assert simulation.program().go()
