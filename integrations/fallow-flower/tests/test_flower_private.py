"""Test that all files of Flower's processes are private, whatever the umask is."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from fallow.transport.tls import new_tls
from fallow_flower import Superlink, Supernode, new_node_key, private_socket
from fallow_flower.launch import PARENT
from fallow_flower.processes import command as flower_command
from fallow_flower.sockets import listening
from tests.deployment.children import free_port, wait_until
from tests.deployment.real import LEADER, real
from tests.deployment.test_private import OPEN_UMASK, open_to_others
from tests.packages import install_integration

FLOWER = "flower"
FINISHED = 300.0  # seconds in which a study of real processes ends
PATIENT = 120.0  # seconds in which a real process ends


@pytest.fixture(autouse=True)
def others_may_read_by_default() -> Iterator[None]:
    before = os.umask(OPEN_UMASK)
    yield
    os.umask(before)


def test_a_socket_is_its_owners_alone(tmp_path: Path) -> None:
    with private_socket(tmp_path / "site") as at, listening(at):
        assert stat.S_IMODE(at.stat().st_mode) == 0o600


def superlink(folder: Path) -> Superlink:
    tls = new_tls(folder / "keys")
    return Superlink(folder / "flower", f"127.0.0.1:{free_port()}", tls, folder / "socket")


def supernode(folder: Path) -> Supernode:
    """Return a SuperNode, which writes its files even without a coordinator."""
    new_node_key(folder / "key")
    return Supernode(
        folder / "flower", "north", "127.0.0.1:1", folder / "key", folder / "s"
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("make", "written"),
    [(superlink, "superlink.sqlite*"), (supernode, "log/*.log")],
)
def test_what_flowers_processes_write_is_their_owners_alone(
    make: Callable[[Path], Superlink | Supernode], written: str, tmp_path: Path
) -> None:
    flower = make(tmp_path)
    flower.start()
    try:
        wait_until(
            lambda: any(file.stat().st_size for file in flower_files(tmp_path, written)),
            PATIENT,
            f"Flower's process writes {written}",
        )
    finally:
        flower.stop()
    assert open_to_others(tmp_path / "flower") == {}


def flower_files(folder: Path, pattern: str) -> list[Path]:
    return list((folder / "flower").glob(pattern))


@pytest.mark.processes
def test_a_command_of_flower_writes_for_its_owner_whoever_starts_it(tmp_path: Path) -> None:
    """The command itself sets the umask too, because Flower starts some of them."""
    line = flower_command("flwr", "config", "list")
    env = {**os.environ, PARENT: str(os.getpid()), "FLWR_HOME": str(tmp_path / "home")}
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home" / "config.toml").exists()
    assert open_to_others(tmp_path / "home") == {}


@pytest.mark.soak
def test_a_study_of_real_processes_leaves_nothing_that_others_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_integration("fallow-flower", tmp_path / "installed", monkeypatch)
    with real(tmp_path / "study", transport=FLOWER) as study:
        study.start(LEADER, *study.sites)
        study.finish(FINISHED)
        assert (study.coordinator_folder.path / "flower" / "superlink.sqlite").exists()
        places = [
            study.coordinator_folder.path,
            *(site.path for site in study.sites.values()),
        ]
        for path in places:
            assert open_to_others(path) == {}, path.name
