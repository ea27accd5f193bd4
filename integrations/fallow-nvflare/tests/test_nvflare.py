"""Test the transport through NVFlare's own processes: provisioned, killed and restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from nvflare_federation import (
    KEEPER,
    SERVER,
    SOON,
    Flare,
    flare,
    needs_nvflare,
)

from fallow.transport.https import ConnectionSettings, HttpsNode
from fallow_nvflare import write_job
from tests.transport.https.served import STUDY, Served, echo, served

pytestmark = [pytest.mark.processes, pytest.mark.soak, needs_nvflare]

SITES = ("anna", "bert")
BACK = 240.0  # seconds until a killed job carries messages again


@dataclass
class Carried:
    """A transport, and sites that reach it through a job of NVFlare."""

    simulation: Served
    flare: Flare

    def ask(self, *names: str, size: int = 20, seconds: float = BACK) -> None:
        """Send a message to each of these sites (default: all) and check the replies."""
        messages = {name: os.urandom(size) for name in names or SITES}
        wanted = {name: b"echo:" + message for name, message in messages.items()}
        try:
            assert self.simulation.ask(messages, seconds) == wanted
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.flare.text(KEEPER)}") from error


@contextmanager
def carried(folder: Path) -> Iterator[Carried]:
    with (
        served(folder / "transport", SITES) as simulation,
        flare(folder / "flare", SITES) as parties,
    ):
        job = folder / "job"
        write_job(job, STUDY, SITES, simulation.address)
        parties.keep(job)
        for name in SITES:
            calling = ConnectionSettings(
                f"127.0.0.1:{parties.ports[name]}", simulation.tls.authority
            )
            node = HttpsNode(calling, name, STUDY, simulation.secrets[name], echo)
            simulation.nodes[name] = node
            node.start()
        outcome = Carried(simulation, parties)
        outcome.ask(seconds=SOON)
        yield outcome


def test_whatever_of_nvflare_is_killed_messages_arrive_again(tmp_path: Path) -> None:
    with carried(tmp_path) as federation:
        federation.ask(size=3 << 20)

        federation.flare.kill_job_of("anna")
        federation.ask()
        federation.flare.kill_job_of(SERVER)
        federation.ask()

        federation.flare.kill("anna")
        federation.ask("bert")
        federation.flare.start("anna")
        federation.ask()

        federation.flare.kill(SERVER)
        federation.flare.start(SERVER)
        federation.ask()

        federation.flare.kill(KEEPER)
        federation.ask()
        federation.flare.keep(tmp_path / "job")
        federation.ask()


def test_a_job_begins_without_a_site_that_is_away_and_ends_with_its_keeper(
    tmp_path: Path,
) -> None:
    with carried(tmp_path) as federation:
        federation.flare.running[KEEPER].send_signal(signal.SIGTERM)
        assert federation.flare.running.pop(KEEPER).wait(SOON) == 0
        assert "the job is over" in federation.flare.text(KEEPER)
        federation.flare.kill("anna")
        federation.flare.keep(tmp_path / "job")
        federation.ask("bert")
        federation.flare.start("anna")
        federation.ask()
