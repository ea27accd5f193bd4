"""Test real processes on this machine: TLS, node keys, and restarts after kills."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flower_federation import Federation, below, federation, kill

from fallow.transport.tls import new_tls
from tests.deployment.children import wait_until

pytest.importorskip("flwr")
pytestmark = pytest.mark.processes

# Each site has three processes, and one more for each message.
SITES: tuple[str, ...] = ("ash",)
if os.environ.get("FALLOW_SOAK"):
    SITES = ("ash", "birch", "cedar")
LONG = 300.0  # seconds; a busy machine takes minutes


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with federation(
        tmp_path_factory.mktemp("flower"), SITES, ["stranger", "misled", "leaver"]
    ) as made:
        yield made


def echoed(message: bytes) -> dict[str, bytes]:
    return {site: site.encode() + b":" + message for site in SITES}


@pytest.mark.soak
def test_large_messages_of_three_sites_arrive_whole(running: Federation) -> None:
    large = bytes(range(256)) * (12 << 10)  # 3 MB
    assert running.ask(dict.fromkeys(SITES, large), LONG) == echoed(large)
    assert running.transport.online() == set(SITES)
    assert running.transport.problem is None


@pytest.mark.soak
def test_an_exchange_outlives_the_death_of_the_server_app(running: Federation) -> None:
    running.transport.send(dict.fromkeys(SITES, b"slow 1"))
    wait_until(lambda: running.transport.hub.is_connected, LONG, "the app is connected")
    kill(below(running.transport.superlink.pid, "flwr-serverapp"))
    assert running.replies(set(SITES), LONG) == echoed(b"slow 1")


def has_line(file: Path, line: str) -> bool:
    """Return whether a site has written a line; it creates the file with the first one."""
    return file.exists() and line in file.read_text()


@pytest.mark.soak
def test_an_exchange_outlives_the_death_of_a_site(running: Federation) -> None:
    handled = running.root / "birch" / "handled"
    running.transport.send(dict.fromkeys(SITES, b"slow 2"))
    wait_until(lambda: has_line(handled, "slow 2"), LONG, "birch has the message")
    running.stop_site("birch")
    running.start_site("birch")
    assert running.replies(set(SITES), LONG) == echoed(b"slow 2")


@pytest.mark.long
def test_a_stranger_and_a_wrong_authority_are_told_so_in_words(running: Federation) -> None:
    other = new_tls(running.root / "other").authority
    running.start_site("stranger")
    running.start_site("misled", other)
    problems = {name: running.root / name / "problem" for name in ("stranger", "misled")}
    wait_until(
        lambda: all(path.exists() for path in problems.values()), LONG, "both are told"
    )
    assert "site stranger is not registered" in problems["stranger"].read_text()
    assert "did not show a certificate" in problems["misled"].read_text()
    assert str(other) in problems["misled"].read_text()
    assert {"stranger", "misled"}.isdisjoint(running.transport.online())
    for name in problems:
        running.stop_site(name)


@pytest.mark.soak
def test_an_exchange_outlives_the_death_of_the_superlink(running: Federation) -> None:
    running.transport.send(dict.fromkeys(SITES, b"slow 3"))
    kill(running.transport.superlink.pid)
    assert running.replies(set(SITES), LONG) == echoed(b"slow 3")


@pytest.mark.soak
def test_a_supernode_that_was_killed_is_back_within_two_minutes(
    running: Federation,
) -> None:
    handled = running.root / "cedar" / "handled"
    running.transport.send(dict.fromkeys(SITES, b"slow 4"))
    wait_until(lambda: has_line(handled, "slow 4"), LONG, "cedar has the message")
    kill(below(running.sites["cedar"].pid, "flower-supernode"))
    died = time.monotonic()
    assert running.replies(set(SITES), LONG) == echoed(b"slow 4")
    assert time.monotonic() - died < 120


@pytest.mark.long
def test_flower_writes_to_the_given_folders_which_other_users_cannot_enter(
    running: Federation,
) -> None:
    assert running.ask(dict.fromkeys(SITES, b"hello"), LONG) == echoed(b"hello")
    for home in (running.root / "transport" / "home", running.root / "ash" / "home"):
        assert any((home / "apps").iterdir())  # so Flower writes to this folder
    modes = {path.stat().st_mode & 0o077 for path in running.root.glob("*/socket")}
    assert modes == {0}


def test_a_revoked_site_is_cut_off_amid_a_message_and_the_others_are_not(
    running: Federation,
) -> None:
    transport = running.transport
    transport.admit({name: running.keys[name] for name in (*SITES, "leaver")})
    running.start_site("leaver")
    assert running.ask({"leaver": b"hello"}, LONG) == {"leaver": b"leaver:hello"}
    handled = running.root / "leaver" / "handled"
    transport.send({"leaver": b"slow 5"})
    wait_until(lambda: has_line(handled, "slow 5"), LONG, "leaver has the message")
    transport.revoke("leaver")
    assert "leaver" not in transport.hub._parcels  # a reply that Flower has does not count
    assert running.ask(dict.fromkeys(SITES, b"without"), LONG) == echoed(b"without")
    problem = running.root / "leaver" / "problem"

    def is_told() -> bool:
        return problem.exists() and "leaver is not registered" in problem.read_text()

    wait_until(is_told, LONG, "leaver is told")
    wait_until(lambda: transport.online() == set(SITES), LONG, "leaver is not online")
    assert transport.receive(1.0) == []
    running.stop_site("leaver")
