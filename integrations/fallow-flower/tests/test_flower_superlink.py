"""Test a real SuperLink: its addresses, and the registration of nodes after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from fallow.core.refusal import RunHalted
from fallow.transport.tls import new_tls
from fallow_flower import Superlink, new_node_key
from tests.deployment.children import free_port, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.long]
PATIENT = 120.0  # seconds in which a SuperLink starts


@contextmanager
def superlink(folder: Path, host: str = "127.0.0.1") -> Iterator[Superlink]:
    """Run a SuperLink that replies."""
    tls = new_tls(folder / "keys")
    made = Superlink(folder / "flower", f"{host}:{free_port()}", tls, folder / "socket")
    made.start()
    try:
        wait_until(made.is_ready, PATIENT, "the SuperLink replies")
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("host", ["[::1]", "[::]"])
def test_a_superlink_at_an_address_of_ip_version_6_takes_nodes(
    host: str, tmp_path: Path
) -> None:
    with superlink(tmp_path, host) as running:
        running.admit({"ash": new_node_key(tmp_path / "ash")})


def test_a_node_whose_number_was_lost_in_a_kill_stays_registered(tmp_path: Path) -> None:
    numbers = tmp_path / "flower" / "nodes.json"
    ash, birch, cedar = (new_node_key(tmp_path / name) for name in "abc")
    with superlink(tmp_path) as running:
        running.admit({"ash": ash})
        before = numbers.read_text()
        running.admit({"ash": ash, "birch": birch})
        wanted = numbers.read_text()
        numbers.write_text(before)  # a kill after Flower has stored the key of birch
        running.admit({"ash": ash, "birch": birch})
        assert numbers.read_text() == wanted

        numbers.write_text(before)  # the same, and birch is revoked before the next start
        running.admit({"ash": ash, "cedar": cedar})
        with pytest.raises(RunHalted, match="already in use"):
            running.admit({"ash": ash, "birch": birch})  # Flower takes no key twice
