"""Test the process of a site and its command: instructions, replies and clean exits."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fallow.cli.site import site
from fallow.cli.site_messages import SiteLines, describe_end, describe_event
from fallow.core import events
from fallow.deployment.ledger.tables import Tables
from fallow.deployment.model_card import CARD
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.serve import LedgerBackups, read_status, serve, unreachable
from fallow.deployment.study_file import write_agreement
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.storage.errors import StorageError
from fallow.transport.envelope import Instruction, open_reply, sign_message
from fallow.transport.factory import Handle, SiteNode
from fallow.transport.peer_messages import request_body
from tests.deployment.agreed import agreed, table
from tests.deployment.hosts import RUN, make_request
from tests.keys import key_of

pytest.importorskip("cryptography")

SECRET = new_signing_key()
WAIT = 60.0


class Wire:
    """Simulate a node that passes messages to the site."""

    def __init__(self, handle: Handle) -> None:
        self.send, self.problem, self.ran = handle, None, [False, False]

    def start(self) -> None:
        self.ran[0] = True

    def stop(self) -> None:
        self.ran[1] = True


def north(folder: Path, **chosen: Any) -> SiteFolder:
    write_agreement(folder / "study.toml", agreed(coordinator=verify_key(SECRET)))
    data = table(folder / "rows.csv")
    chosen = {"name": "north", "data": str(data), "address": "127.0.0.1:1", **chosen}
    return SiteFolder.create(folder / "SITE", folder / "study.toml", **chosen)


def until(is_so: Callable[[], bool]) -> None:
    end = monotonic() + WAIT
    while not is_so():
        assert monotonic() < end, "waited too long"
        sleep(0.01)


@contextmanager
def serving(
    folder: SiteFolder, messages: list[events.Event], copies: float = 3600.0
) -> Iterator[Wire]:
    """Run the site in a thread; append its events to ``messages``."""
    stop, wires = Event(), list[Wire]()

    def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
        wires.append(Wire(handle))
        return wires[0]

    worker = Thread(target=serve, args=(folder, stop, messages.append, connect, copies))
    worker.start()
    try:
        until(lambda: bool(wires) and bool(messages))
        yield wires[0]
    finally:
        stop.set()
        worker.join(WAIT)
    assert not worker.is_alive()


def progress(study: str) -> bytes:
    return sign_message(SECRET, Instruction(study, "run", "north", key_of("progress/0"), 0))


def hello(study: str) -> bytes:
    body = request_body(make_request("hello", "0/hello"), {})
    instruction = Instruction(study, RUN, "north", key_of("0/hello/0"), 1, body=body)
    return sign_message(SECRET, instruction)


def test_a_site_answers_orders_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    folder, messages = north(tmp_path), list[events.Event]()
    with serving(folder, messages) as wire:
        reply = open_reply(
            folder.keys.verify, wire.send(progress(folder.agreement.digest)), "north"
        )
        assert reply.refused is None
        assert set(reply.body) == {"asked", "answered", "declined", "open", "conflicts"}
        assert read_status(folder).pid == os.getpid()
        wire.send(hello(folder.agreement.digest))
    assert wire.ran == [True, True]
    assert [event["event"] for event in messages] == ["coordinator", "instruction"]
    assert (messages[1]["key"], messages[1]["refused"]) == ("0/hello/0", None)
    assert read_status(folder).pid is None
    assert not (folder.path / "live.json").exists()


def test_a_site_goes_on_where_its_state_cannot_be_written(tmp_path: Path) -> None:
    folder, messages = north(tmp_path), list[events.Event]()
    (folder.path / "live.json" / "taken").mkdir(parents=True)
    with serving(folder, messages) as wire:
        until(lambda: len(messages) == 2)  # it is still running
        reply = open_reply(
            folder.keys.verify, wire.send(progress(folder.agreement.digest)), "north"
        )
        assert reply.refused is None
    (state,) = [event for event in messages if event["event"] == "state"]
    assert "live.json cannot be written" in describe_event(state)
    assert "this site continues" in describe_event(state)


def test_an_order_of_another_study_is_refused_aloud(tmp_path: Path) -> None:
    folder, messages = north(tmp_path), list[events.Event]()
    with serving(folder, messages) as wire:
        wire.send(progress("another"))
    assert "has agreed to study" in str(messages[1]["refused"])
    assert describe_event(messages[1]).startswith("refused: site north")


def test_a_site_at_work_copies_its_ledger_again_and_again(tmp_path: Path) -> None:
    folder = north(tmp_path)
    copy = folder.path / "ledger-backup.sqlite"
    copies: set[int] = set()

    def has_two_copies() -> bool:
        if copy.exists():
            copies.add(copy.stat().st_ino)
        return len(copies) > 1

    with serving(folder, [], copies=0.05):
        until(has_two_copies)
    assert len(copies) == 2


def test_a_copy_is_made_when_there_is_none_that_is_new(tmp_path: Path) -> None:
    with closing(north(tmp_path).open_ledger()) as ledger:
        copies = LedgerBackups(ledger, 3600.0)
        copies.look()
        first = ledger.copy.stat().st_ino
        copies.look()
        assert ledger.copy.stat().st_ino == first
        os.utime(ledger.copy, (0, 0))
        copies.look()
        assert ledger.copy.stat().st_ino != first


def test_a_folder_with_the_copy_alone_is_not_begun_anew(tmp_path: Path) -> None:
    folder = north(tmp_path)
    with closing(folder.open_ledger()) as ledger:
        ledger.backup()
    folder.ledger_path.unlink()
    with pytest.raises(
        StorageError, match=r"is missing, but its backup ledger-backup\.sqlite exists"
    ):
        folder.open_ledger()
    shutil.copy(folder.path / "ledger-backup.sqlite", folder.ledger_path)
    folder.open_ledger().close()


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_ledger_that_was_copied_without_its_log_is_missing(
    has_copy: bool, tmp_path: Path
) -> None:
    """The newest pages of a running site are in the log. The file alone has no tables, so
    that all budgets would be unused."""
    folder = north(tmp_path)
    with closing(folder.open_ledger()) as ledger:
        if has_copy:
            ledger.backup()
        content = folder.ledger_path.read_bytes()
        assert folder.ledger_path.with_name("ledger.sqlite-wal").stat().st_size > 0
    folder.ledger_path.write_bytes(content)
    (folder.path / "releases.log").unlink(
        missing_ok=True
    )  # as an administrator does who restores a folder
    way_out = "restore the whole folder"
    if has_copy:
        way_out = r"its backup ledger-backup\.sqlite exists"
    with pytest.raises(
        StorageError, match=rf"has no tables, .* without its -wal.* {way_out}"
    ):
        folder.open_ledger()
    if has_copy:
        shutil.copy(folder.path / "ledger-backup.sqlite", folder.ledger_path)
        folder.open_ledger().close()


def test_an_empty_ledger_beside_its_copy_is_missing(tmp_path: Path) -> None:
    folder = north(tmp_path)
    with closing(folder.open_ledger()) as ledger:
        ledger.backup()
    folder.ledger_path.write_bytes(b"")
    with pytest.raises(StorageError, match=r"its backup ledger-backup\.sqlite exists"):
        folder.open_ledger()


def test_a_site_that_was_killed_while_it_created_the_ledger_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = north(tmp_path)
    fork = multiprocessing.get_context("fork")
    with monkeypatch.context() as patch:
        patch.setattr(Tables, "_create", lambda tables: os._exit(9))
        first = fork.Process(target=folder.open_ledger)
        first.start()
        first.join()
    assert first.exitcode == 9
    folder.open_ledger().close()
    folder.ledger_path.write_bytes(b"")  # from now on an empty file is a lost ledger
    with pytest.raises(StorageError, match="has no tables"):
        folder.open_ledger()


def test_two_processes_may_create_the_ledger_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``fallow label`` and ``fallow site start`` may start together; the second waits."""
    folder = north(tmp_path)
    fork = multiprocessing.get_context("fork")
    is_creating, may_go_on = fork.Event(), fork.Event()
    create = Tables._create

    def create_slowly(tables: Tables) -> None:
        is_creating.set()
        may_go_on.wait(WAIT)
        create(tables)

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "_create", create_slowly)
        first = fork.Process(target=folder.open_ledger)
        first.start()
    assert is_creating.wait(WAIT)
    # a process that did not wait would assume that the first was killed
    checked: list[Path] = []
    monkeypatch.setattr("fallow.deployment.site.folder.check_not_lost", checked.append)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(folder.open_ledger)
        wait([second], timeout=0.5)
        may_go_on.set()
        second.result().close()
    first.join()
    assert first.exitcode == 0
    assert checked == [folder.ledger_path]


def test_a_copy_is_made_while_another_process_writes(tmp_path: Path) -> None:
    """SQLite's backup API keeps no transaction of the ledger open."""
    folder = north(tmp_path)
    with (
        closing(folder.open_ledger()) as ledger,
        closing(folder.open_ledger()) as other,
        other.transaction(),
    ):
        other.instructions.begin("20260101T000000Z-1")
        ledger.backup()
    shutil.copy(folder.path / "ledger-backup.sqlite", folder.ledger_path)
    with closing(folder.open_ledger()) as ledger:
        assert ledger.instructions.newest_run() is None  # it was not committed yet


def test_a_ledger_that_was_put_back_says_so(tmp_path: Path) -> None:
    folder = north(tmp_path)
    with closing(folder.open_ledger()) as ledger:
        ledger.backup()
    assert "restored from" not in run_site_command("status", folder.path)
    shutil.copy(folder.path / "ledger-backup.sqlite", folder.ledger_path)
    assert "restored from its copy of" in run_site_command("status", folder.path)


def test_one_process_serves_a_site(tmp_path: Path) -> None:
    folder = north(tmp_path)
    with (
        serving(folder, []),
        pytest.raises(
            StorageError, match="site north is already running in another process"
        ),
    ):
        serve(folder, Event(), lambda event: None)


def test_a_site_says_whether_its_coordinator_is_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        folder = north(tmp_path, address=there)
        assert unreachable(folder) is None
    lost = unreachable(folder)
    assert lost is not None
    assert lost.startswith(f"the coordinator at {there} cannot be reached")
    assert describe_event({"event": "coordinator", "problem": lost}).endswith(
        "this site retries automatically"
    )


def test_a_site_needs_the_address_of_its_coordinator(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='write address = "host:port"'):
        serve(north(tmp_path, address=None), Event(), lambda event: None)


# -- command -------------------------------------------------------------------------------


def run_site_command(*words: str | Path) -> str:
    """Return the output of ``fallow site``."""
    done = CliRunner().invoke(site, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_init_shows_the_study_the_rows_and_what_to_send(tmp_path: Path) -> None:
    write_agreement(tmp_path / "study.toml", agreed())
    study_options: dict[str, str | Path] = {
        "--study": tmp_path / "study.toml",
        "--name": "north",
        "--address": "127.0.0.1:1",
        "--data": table(tmp_path / "rows.csv"),
        "--digest": agreed().digest[:8],
    }
    options: list[str | Path] = []
    for option, value in study_options.items():
        options += [option, value]
    shown = run_site_command("init", tmp_path / "SITE", *options)
    for words in (
        "Site north",
        "4 examples, 2 of them labeled",
        "What leaves this site",
        "weighted models",
        "join.json to the coordinator",
        agreed().digest,
        "fallow site start",
    ):
        assert words in shown


def test_status_tells_what_waits_what_was_sent_and_what_runs(tmp_path: Path) -> None:
    folder = north(tmp_path)
    shown = run_site_command("status", folder.path)
    assert "does not run; start it with: fallow site start" in shown
    assert "0 asked" in shown
    details = json.loads(run_site_command("status", folder.path, "--json"))
    assert (details["pid"], details["labels"]["open"], details["sent"]) == (None, 0, [])
    assert details["problem"].startswith("the coordinator at 127.0.0.1:1 cannot be reached")


def test_labels_go_out_and_come_in_by_files(tmp_path: Path) -> None:
    folder = north(tmp_path)
    assert "Wrote 0 labeling tasks" in run_site_command(
        "export", folder.path, tmp_path / "ask.csv"
    )
    bad = tmp_path / "given.csv"
    bad.write_text("id,label\np1,yes\n")
    with pytest.raises(
        ValueError, match=r"1 line of .* cannot be imported, so nothing was imported"
    ):
        run_site_command("import", folder.path, bad)
    with pytest.raises(ValueError, match="so nothing would be imported"):
        run_site_command("import", folder.path, bad, "--dry-run")
    assert "Would import 0 labels" in run_site_command(
        "import", folder.path, bad, "--dry-run", "--partial"
    )


def test_of_many_lines_that_are_refused_the_first_are_shown(tmp_path: Path) -> None:
    bad = tmp_path / "given.csv"
    bad.write_text("id,label\n" + "p1,yes\n" * 40)
    done = CliRunner().invoke(site, ["import", str(north(tmp_path).path), str(bad)])
    assert done.exit_code != 0
    assert (
        "line 2: " in done.output
        and "line 11: " in done.output
        and "line 12" not in done.output
    )
    assert "and 30 more like these" in done.output


def test_after_the_end_it_is_no_news_that_the_coordinator_has_gone(tmp_path: Path) -> None:
    messages = io.StringIO()
    lines = SiteLines(Console(file=messages), tmp_path)
    removed: events.Event = {
        "event": "coordinator",
        "problem": "the coordinator cannot be reached",
    }
    end: events.Event = {
        "event": "instruction",
        "key": "model/finish/0",
        "exchange": key_of("model/finish/0"),
        "refused": None,
        "bytes": 9,
    }
    for event in (removed, end, removed):
        lines(event)
    assert messages.getvalue().count("cannot be reached") == 1
    assert "The study is finished" in messages.getvalue()


def test_a_site_is_told_what_to_do_when_the_study_is_over(tmp_path: Path) -> None:
    event: events.Event = {
        "event": "instruction",
        "key": "model/finish/0",
        "exchange": key_of("model/finish/0"),
        "refused": None,
        "bytes": 9,
    }
    assert f"fallow predict {tmp_path} ROWS" in " ".join(describe_end(event, tmp_path))
    (untrained,) = describe_end(event, tmp_path, trains=False)
    assert "predict" not in untrained
    assert str(tmp_path / CARD) in untrained
    assert not describe_end({**event, "exchange": key_of("0/train/0/1")}, tmp_path)
    assert not describe_end({**event, "refused": "no"}, tmp_path)
    assert not describe_end({"event": "coordinator", "problem": None}, tmp_path)


@pytest.mark.long
@pytest.mark.processes
def test_a_site_process_ends_cleanly_when_it_is_told_to(tmp_path: Path) -> None:
    folder = north(tmp_path)
    code = "from fallow.cli.site import site; site()"
    line = [sys.executable, "-c", code, "start", str(folder.path)]
    with (tmp_path / "said").open("w") as out:
        process = subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT)
    try:
        until(lambda: read_status(folder).since is not None or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
    finally:
        process.kill()
        process.wait()
    shown = (tmp_path / "said").read_text()
    assert "cannot be reached (Connection refused)" in shown
    assert shown.rstrip().endswith(f"stopped; to resume: fallow site start {folder.path}")
