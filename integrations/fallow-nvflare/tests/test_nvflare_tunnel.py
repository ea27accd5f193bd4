"""Test the tunnel through a job of NVFlare: no loss of data, and no access for strangers.

The tests connect the two ends directly; `test_nvflare` runs them in NVFlare's own
processes.
"""

from __future__ import annotations

import ast
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from tunnelled import Tunnelled, tunnelled

from fallow_nvflare import JOB, KEEP, write_job
from fallow_nvflare.app.fallow_tunnel import tunnel as code
from fallow_nvflare.app.fallow_tunnel.tunnel import (
    ALL,
    EACH,
    PIECE,
    Entrance,
    Exit,
    Fields,
    find_port,
)
from fallow_nvflare.app.keep import (
    MAX_RETRY_SECONDS,
    MIN_RETRY_SECONDS,
    MissingSites,
    choose_pause,
    find_missing,
)
from tests.transport.files import taking_all_files
from tests.transport.https import test_transport as over_https
from tests.transport.https.served import SOON, until

NAME = "0" * 32
BIG = 3 * PIECE + 5


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Tunnelled]:
    with tunnelled(tmp_path) as values:
        yield values


PROMISED: tuple[Callable[[Path, over_https.SimulationOf], None], ...] = (
    over_https.test_each_site_gets_its_own_message_and_brings_its_own_answer,
    over_https.test_a_message_waits_for_a_site_that_is_not_there_yet,
    over_https.test_a_site_that_ended_amid_its_work_gets_the_message_again,
    over_https.test_another_process_of_the_coordinator_takes_over_at_the_same_address,
    over_https.test_an_answer_above_the_limit_is_said_at_the_site_and_the_study_goes_on,
    over_https.test_a_revoked_site_is_turned_away_at_once,
)
"""Tests of HTTPS that hold for every way to connect sites."""


# -- guarantees ----------------------------------------------------------------------------


@pytest.mark.parametrize("promise", PROMISED, ids=lambda promise: promise.__name__)
def test_what_https_promises_holds_through_the_tunnel(
    promise: Callable[[Path, over_https.SimulationOf], None], tmp_path: Path
) -> None:
    promise(tmp_path, tunnelled)


def test_messages_of_many_pieces_arrive_whole_both_ways(simulation: Tunnelled) -> None:
    simulation.start_site("anna")
    message = bytes(range(256)) * (BIG // 256)
    assert simulation.ask({"anna": message}) == {"anna": b"echo:" + message}
    pieces = [
        fields["bytes"] for _, fields in simulation.tunnel.carried if "bytes" in fields
    ]
    assert max(len(piece) for piece in pieces if isinstance(piece, bytes)) <= PIECE


def test_what_is_carried_is_encrypted_between_the_two_processes(
    simulation: Tunnelled,
) -> None:
    simulation.start_site("anna")
    simulation.ask({"anna": b"a word in clear"})
    carried = b"".join(
        bytes(str(fields), "ascii") for _, fields in simulation.tunnel.carried
    )
    assert carried
    assert b"a word in clear" not in carried
    assert b"fallow-signature" not in carried


@pytest.mark.parametrize("lost", [1, 3, 8])
def test_a_piece_that_is_lost_costs_a_connection_and_no_message(
    lost: int, simulation: Tunnelled
) -> None:
    simulation.tunnel.losing = {lost}
    simulation.start_site("anna")
    assert simulation.ask({"anna": b"order"}) == {"anna": b"echo:order"}
    assert len(simulation.tunnel.carried) > lost


def test_a_job_that_begins_again_goes_on_where_it_was(simulation: Tunnelled) -> None:
    simulation.start_site("anna")
    assert simulation.ask({"anna": b"one"}) == {"anna": b"echo:one"}
    port = simulation.tunnel.entrances["anna"].port
    simulation.tunnel.entrances["anna"].close()
    until(lambda: simulation.nodes["anna"].problem is not None)
    simulation.transport.send({"anna": b"two"})
    simulation.tunnel.begin("anna", port)
    assert simulation.replies({"anna"}) == {"anna": b"echo:two"}


def test_no_connection_is_left_when_a_job_ends(simulation: Tunnelled) -> None:
    before = threading.active_count()
    simulation.start_site("anna")
    assert simulation.ask({"anna": b"one"}) == {"anna": b"echo:one"}
    simulation.stop_site("anna")
    simulation.tunnel.close()
    until(lambda: threading.active_count() < before)


# -- hostile site at the exit --------------------------------------------------------------


class Hearing:
    """A coordinator that exchanges raw bytes, and an exit that leads to it."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(SOON)
        port = self.server.getsockname()[1]
        self.carried: list[tuple[str, Fields]] = []
        self.exit = Exit(self._carry, f"127.0.0.1:{port}")

    def open(self, site: str, name: str) -> socket.socket:
        """Open a connection of a site, as the coordinator receives it."""
        assert self.exit.take(site, {"do": "open", "name": name})
        bare, _ = self.server.accept()
        bare.settimeout(SOON)
        return bare

    def close(self) -> None:
        self.exit.close()
        self.server.close()

    def _carry(self, site: str, fields: Fields) -> bool:
        self.carried.append((site, fields))
        return True


@pytest.fixture
def hearing() -> Iterator[Hearing]:
    with closing(Hearing()) as outcome:
        yield outcome


def piece(position: object = 0, content: object = b"abc", name: object = NAME) -> Fields:
    return {"do": "bytes", "name": name, "place": position, "bytes": content}


@pytest.mark.parametrize(
    "fields",
    [
        piece(content=bytes(PIECE + 1)),  # more than one piece at once
        piece(content="abc"),
        piece(content=None),
        piece(content=[b"abc"]),
        piece(position=1),  # not the next one
        piece(position=-1),
        piece(position="0"),
        piece(position=True),
        piece(position=0.0),
        {"do": "bytes", "name": NAME},
        {"do": "read", "name": NAME},
        {"do": None, "name": NAME},
    ],
)
def test_what_is_no_next_piece_ends_its_connection_and_reaches_nobody(
    fields: Fields, hearing: Hearing
) -> None:
    with hearing.open("eve", NAME) as bare:
        assert not hearing.exit.take("eve", fields)
        assert bare.recv(10) == b""
    assert not hearing.exit.take("eve", piece())


def test_a_piece_that_is_sent_again_ends_its_connection(hearing: Hearing) -> None:
    with hearing.open("eve", NAME) as bare:
        assert hearing.exit.take("eve", piece())
        assert not hearing.exit.take("eve", piece())
        assert bare.recv(10) == b"abc"
        assert bare.recv(10) == b""


@pytest.mark.parametrize("name", [None, 7, b"0" * 32, "", "0" * 31, "0" * 1000, ["0"]])
def test_a_name_of_another_form_opens_nothing(name: object, hearing: Hearing) -> None:
    assert not hearing.exit.take("eve", {"do": "open", "name": name})
    assert not hearing.exit.take("eve", {"do": "end", "name": name})
    assert not hearing.exit.take("eve", piece(name=name))


def test_a_site_reaches_no_connection_of_another_one_even_if_it_knows_its_name(
    hearing: Hearing,
) -> None:
    with hearing.open("anna", NAME) as bare:
        assert not hearing.exit.take("eve", piece())
        assert not hearing.exit.take("eve", {"do": "end", "name": NAME})
        assert not hearing.exit.take("eve", {"do": "open", "name": NAME})
        assert hearing.exit.take("anna", piece(content=b"still mine"))
        assert bare.recv(100) == b"still mine"


def test_a_site_that_opens_many_connections_keeps_no_other_site_out(
    hearing: Hearing,
) -> None:
    names = [f"{number:032}" for number in range(EACH + 20)]
    taken = [hearing.exit.take("eve", {"do": "open", "name": name}) for name in names]
    assert sum(taken) == EACH
    assert hearing.exit.take("anna", {"do": "open", "name": "a" * 32})
    assert EACH * 200 <= ALL  # for 200 sites


def test_a_site_names_no_address_to_connect_to(hearing: Hearing) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.2)
        port = other.getsockname()[1]
        address = {"address": f"127.0.0.1:{port}", "host": "127.0.0.1", "port": port}
        assert hearing.exit.take("eve", {"do": "open", "name": NAME, **address})
        with pytest.raises(TimeoutError):
            other.accept()
    bare, _ = hearing.server.accept()  # the coordinator accepts the connection
    bare.close()


def test_a_coordinator_that_does_not_run_is_no_error_of_the_job() -> None:
    exit_ = Exit(lambda site, fields: True, "127.0.0.1:9")
    assert not exit_.take("anna", {"do": "open", "name": NAME})


def test_who_does_not_read_is_given_up(
    hearing: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "SLOW", 1)
    with hearing.open("eve", NAME):
        position = 0
        while hearing.exit.take("eve", piece(position, bytes(PIECE))):
            position += 1
            assert position < 100, "all that nobody reads is taken"


# -- hostile server at the entrance --------------------------------------------------------


def test_a_site_takes_nothing_for_connections_that_it_did_not_open() -> None:
    carried: list[Fields] = []

    def carry(fields: Fields) -> bool:
        carried.append(fields)
        return True

    with closing(Entrance(carry, 0)) as entrance:
        for fields in (piece(), {"do": "end", "name": NAME}, {"do": "open", "name": NAME}):
            assert not entrance.take(fields)
        assert carried == []


def test_a_job_listens_on_the_machine_itself_alone() -> None:
    with closing(Entrance(lambda fields: True, 0)) as entrance:
        assert entrance._server.getsockname()[0] == "127.0.0.1"


def test_a_moment_without_files_does_not_end_the_entrance() -> None:
    opened: list[Fields] = []

    def carry(fields: Fields) -> bool:
        opened.append(fields)
        return True

    with (
        closing(Entrance(carry, 0)) as entrance,
        closing(socket.socket()) as first,
        closing(socket.socket()) as second,
    ):
        with taking_all_files():
            for caller in (first, second):
                caller.connect(("127.0.0.1", entrance.port))
            time.sleep(0.3)
            assert len(opened) < 2  # Linux keeps a file for the pending connection
        until(lambda: len(opened) == 2)


def test_the_port_is_the_sites_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(code.PORT_SETTING, raising=False)
    assert find_port() == 9093
    monkeypatch.setenv(code.PORT_SETTING, "9100")
    assert find_port() == 9100
    for wrong in ("", "0", "70000", "-1", "a/socket", "9100 "):
        monkeypatch.setenv(code.PORT_SETTING, wrong)
        with pytest.raises(ValueError, match=code.PORT_SETTING):
            find_port()


# -- keeping a job running -----------------------------------------------------------------


def test_a_job_that_ends_at_once_is_submitted_ever_more_seldom() -> None:
    pauses = [MIN_RETRY_SECONDS]
    for _ in range(20):
        pauses.append(choose_pause(pauses[-1], lasted=1.0))
    assert pauses[1:4] == [20.0, 40.0, 80.0]
    assert pauses[-1] == MAX_RETRY_SECONDS
    assert choose_pause(MAX_RETRY_SECONDS, lasted=3600.0) == MIN_RETRY_SECONDS


def test_a_site_that_is_connected_without_the_job_has_it_begun_anew_ever_more_seldom() -> (
    None
):
    now = 0.0
    absence = MissingSites(lambda: now)
    begun = []
    for now in range(0, 1000, 5):
        if absence.is_too_long({"anna"}):
            begun.append(now)
    assert begun == [30, 95, 220, 465, 950]


def test_only_an_absence_without_a_break_counts() -> None:
    now = 0.0
    absence = MissingSites(lambda: now)
    for now in range(0, 1000, 5):
        missing = {"anna"}
        if now % 25 == 0:
            missing = set()
        assert not absence.is_too_long(missing)


class Outcome:
    """Reply of NVFlare 2.9 to an admin who lists the jobs of clients."""

    def get_client_job_status(self) -> list[dict[str, str]]:
        return [
            {"client_name": "bert", "app_name": "app", "job_id": "7", "status": "started"},
            {"client_name": "carl", "app_name": "app", "job_id": "8", "status": "started"},
            {"client_name": "carl", "app_name": "app", "job_id": "7", "status": "started"},
            {"client_name": "anna", "status": "no_jobs"},
        ]


def test_who_runs_other_jobs_or_none_is_without_this_one() -> None:
    sites = {"anna", "bert", "carl"}
    assert find_missing(Outcome(), "7", sites) == {"anna"}
    assert find_missing(Outcome(), "8", sites) == {"anna", "bert"}
    assert find_missing(Outcome(), "8", {"bert"}) == {"bert"}


# -- job -----------------------------------------------------------------------------------


def test_a_job_goes_to_the_sites_of_the_study_and_names_nothing_of_theirs(
    tmp_path: Path,
) -> None:
    places = write_job(tmp_path / "nvflare", "ab" * 16, ["basel", "bern"], "0.0.0.0:9092")
    job = places[JOB]
    meta = json.loads((job / "meta.json").read_bytes())
    assert meta["deploy_map"] == {"app": ["server", "basel", "bern"]}
    config = job / "app" / "config"
    server = json.loads((config / "config_fed_server.json").read_bytes())
    assert server["workflows"][0]["args"] == {"address": "127.0.0.1:9092"}
    client = json.loads((config / "config_fed_client.json").read_bytes())
    assert client["executors"][0]["executor"]["args"] == {}
    assert places[KEEP].exists()


def test_the_code_of_a_job_is_that_of_this_version_and_stands_alone(tmp_path: Path) -> None:
    job = write_job(tmp_path, "ab" * 16, ["basel"], "127.0.0.1:9092")[JOB]
    sent = {file.name: file for file in (job / "app" / "custom").rglob("*.py")}
    assert set(sent) == {"__init__.py", "tunnel.py", "parts.py"}
    for name, file in sent.items():
        assert file.read_bytes() == (Path(code.__file__).parent / name).read_bytes()
        for node in ast.walk(ast.parse(file.read_text())):
            tops = []
            if isinstance(node, ast.Import):
                tops = [alias.name.split(".")[0] for alias in node.names]
            if isinstance(node, ast.ImportFrom) and not node.level:
                tops = [str(node.module).split(".")[0]]
            for top in tops:
                assert top in sys.stdlib_module_names or top == "nvflare"
                assert top not in ("pickle", "subprocess", "importlib", "ctypes")
