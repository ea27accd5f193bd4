"""Test which apps the guards accept, and the restart and end of child processes."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.transport.tls import Tls
from fallow_flower import FlowerTransport, private_socket
from fallow_flower.launch import (
    APP,
    CLAIM,
    CLIENT,
    PARENT,
    REASON,
    SERVER,
    STATES,
    App,
    guard_command,
    is_own,
    let_apps_start,
    may_pass,
)
from fallow_flower.processes import Child, environment, free_port, write_commands
from fallow_flower.sockets import listening
from fallow_flower.superlink import Superlink
from fallow_flower.supernode import Supernode
from tests.deployment.children import processes, wait_until


def bundle(**changed: str) -> bytes:
    """Return the app as Flower packs it, with some of its files changed."""
    files = {p.relative_to(APP).as_posix(): p.read_text() for p in APP.rglob("*.py")}
    files["pyproject.toml"] = (APP / "pyproject.toml").read_text()
    files[".info/CONTENT"] = "names and hashes"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in (files | changed).items():
            file.writestr(name, text)
    return packed.getvalue()


def test_a_site_runs_the_app_that_came_with_it_and_no_other() -> None:
    project = (APP / "pyproject.toml").read_text()
    assert is_own(bundle())
    assert is_own(bundle(**{"pyproject.toml": project + "# written in another way\n"}))
    assert not is_own(bundle(**{"fallow_pipe/pipe.py": "import os"}))
    assert not is_own(bundle(**{"more.py": ""}))
    other = project.replace("fallow_pipe.apps.client_app:app", "os:abort")
    assert not is_own(bundle(**{"pyproject.toml": other}))


@pytest.mark.parametrize(
    ("command", "module"), [("flwr-clientapp", CLIENT), ("flwr-serverapp", SERVER)]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower
def test_the_command_that_runs_an_app_installs_no_other_than_the_own(
    command: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower calls the guard on both sides when it installs an app."""
    installed: list[bytes] = []
    flower = pytest.importorskip(module)
    monkeypatch.setattr(flower, "install_from_fab", installed.append)
    if command == "flwr-clientapp":
        monkeypatch.setattr(flower, "Error", lambda code, reason: (code, reason))
    guard_command(command)
    install = flower.install_from_fab
    foreign = bundle(**{"fallow_pipe/pipe.py": "import os"})
    with pytest.raises(ValueError, match="another Flower app than the one that came with"):
        install(foreign)
    assert installed == []
    install(bundle())
    assert installed == [bundle()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower
def test_flower_hears_that_an_app_failed_and_not_in_which_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flower = pytest.importorskip(CLIENT)
    monkeypatch.setattr(flower, "install_from_fab", print)
    monkeypatch.setattr(flower, "Error", lambda code, reason: (code, reason))
    guard_command("flwr-clientapp")
    error = flower.Error
    assert error(3, "no such file: /home/berghof/castorp.csv") == (3, REASON)
    assert error(3) == (3, None)
    assert "castorp" in capsys.readouterr().err


def test_processes_of_flower_find_no_module_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty part of PYTHONPATH also means the current folder."""
    (tmp_path / "colorsys.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}.{os.pathsep}{APP}{os.pathsep}")
    env = environment(tmp_path / "home", [])
    assert env["PYTHONPATH"] == str(APP)
    done = subprocess.run(
        [sys.executable, "-c", "import colorsys, sys; print(sys.flags.safe_path)"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True")


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower
def test_flower_itself_packs_the_app_into_what_a_site_takes_for_its_own() -> None:
    build = pytest.importorskip("flwr.cli.build")
    assert is_own(build.build_fab_from_disk(APP))


@pytest.mark.parametrize(
    ("path", "host", "may"),
    [
        ("/v1/fleet/pull-messages", "10.0.0.7", True),
        ("/v1/control/start-run", "10.0.0.7", False),
        ("/v1/runtime/acquire-task", "10.0.0.7", False),
        ("/v1/fleetish", "10.0.0.7", False),
        ("/docs", "2001:db8::1", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/runtime/acquire-task", "::1", True),
    ],
)
def test_other_machines_reach_what_a_supernode_needs(
    path: str, host: str, may: bool
) -> None:
    assert may_pass(path, (host, 4000)) is may


def test_a_request_from_nowhere_may_not_control() -> None:
    assert not may_pass("/v1/control/start-run", None)


def test_flower_finds_the_given_commands_and_nothing_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", "/elsewhere")
    monkeypatch.setenv("FLWR_OIDC_ENABLED", "1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "flwr-agentapp").touch()
    commands = write_commands(tmp_path / "bin", ["flwr-clientapp"])
    env = environment(tmp_path / "home", [commands])
    assert [path.name for path in commands.iterdir()] == ["flwr-clientapp"]
    assert env["PATH"] == str(commands)
    assert env["FLWR_HOME"] == str(tmp_path / "home")
    assert "FLWR_OIDC_ENABLED" not in env
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"


def test_a_command_runs_from_a_folder_with_a_quote_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "o'brian" / "python"
    python.parent.mkdir()
    python.symlink_to(shutil.which("echo") or "")
    monkeypatch.setattr(sys, "executable", str(python))
    commands = write_commands(tmp_path / "bin", ["flwr-clientapp"])
    done = subprocess.run(
        [commands / "flwr-clientapp", "--run"], capture_output=True, text=True
    )
    assert done.stdout.endswith("flwr-clientapp --run\n"), done.stderr


def test_a_transport_that_was_never_started_leaves_a_running_one_alone(
    tmp_path: Path,
) -> None:
    commands = write_commands(tmp_path / "bin", ["flwr"])
    with private_socket(tmp_path) as at, listening(at):
        second = FlowerTransport(tmp_path, "127.0.0.1:9", Tls.in_folder(tmp_path), {})
        assert [path.name for path in commands.iterdir()] == ["flwr"]
        second.close()
        assert at.exists()


def test_a_child_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    child = Child("tool", lambda: [str(tool)], dict(os.environ), tmp_path / "log")
    child.start()
    try:
        wait_until(lambda: child.problem is not None, 30, "it has failed")
        assert "tool could not be run" in str(child.problem)
        tool.write_text("#!/bin/sh\necho on\n")
        tool.chmod(0o700)
        wait_until(lambda: child.last() == "on", 30, "it runs")
    finally:
        child.stop()


def test_a_child_that_ends_is_started_again_and_says_why(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('out of paper')"
    output: list[Event] = []
    child = Child(
        "printer",
        lambda: [sys.executable, "-c", code],
        dict(os.environ),
        tmp_path / "log",
        lambda text: "load paper" if "out of paper" in text else None,
        output.append,
    )
    child.start()
    wait_until(lambda: (tmp_path / "runs").exists() and len(output) > 1, 30, "two runs")
    child.stop()
    assert child.problem == "load paper"
    assert output[0] == {"event": "process", "name": "printer", "reason": "load paper"}
    assert child.last() == "out of paper"
    assert child.pid is None


def test_a_child_that_does_not_go_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow_flower.processes.PATIENCE", 0.2)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(60)"
    line = [sys.executable, "-u", "-c", code]
    child = Child("rock", lambda: line, dict(os.environ), tmp_path / "log")
    child.start()
    wait_until(lambda: child.last() == "on", 30, "it runs")
    began = time.monotonic()
    child.stop()
    assert time.monotonic() - began < 30
    assert child.pid is None


WAITS = "def app(): print(os.getpid(), flush=True); time.sleep(600)\n"
HANGS = """
class Last:
    def __del__(self, sleep=time.sleep): sleep(600)
last = Last()
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "app", [WAITS, HANGS + WAITS], ids=["waits", "hangs on its way out"]
)
def test_a_process_of_flower_ends_with_the_process_that_started_it(
    app: str, tmp_path: Path
) -> None:
    launch = str(Path(APP).with_name("launch.py"))
    stub = tmp_path / "flwr" / "cli"
    stub.mkdir(parents=True)
    for package in (stub, stub.parent):
        (package / "__init__.py").touch()
    (stub / "app.py").write_text("import os, signal, sys, time\n" + app)
    starter = (
        "import os, subprocess, sys, time\n"
        f"os.environ['{PARENT}'] = str(os.getpid())\n"
        f"subprocess.Popen([sys.executable, '-P', {launch!r}, 'flwr']); time.sleep(600)\n"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", starter], env=env, stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
        finally:
            parent.kill()
        wait_until(lambda: pid not in processes(), 30, "it has ended")


def test_the_oldest_app_is_ended_where_there_would_be_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "alive", {})
    names = ("flwr-serverapp", "flwr-clientapp", "others")
    for name in names:
        (tmp_path / name).symlink_to(shutil.which("sleep") or "")
    apps = {name: [App([str(tmp_path / name), "600"]) for _ in range(5)] for name in names}
    try:
        alive = {name: [app.poll() is None for app in apps[name]] for name in names}
        assert alive["flwr-serverapp"] == [False] * 4 + [True]
        assert alive["flwr-clientapp"] == [False] * 2 + [True] * 3
        assert all(alive["others"])
    finally:
        for app in itertools.chain(*apps.values()):
            app.kill()
            app.wait()


def test_an_app_has_longer_to_start_and_a_dead_one_is_noticed_as_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in STATES:
        state = pytest.importorskip(name)
        for constant in ("HEARTBEAT_DEFAULT_INTERVAL", "HEARTBEAT_PATIENCE"):
            monkeypatch.setattr(state, constant, getattr(state, constant))
    dead_after = {name: _dead_after(name) for name in STATES}
    let_apps_start()
    assert {name: _dead_after(name) for name in STATES} == dead_after
    assert {sys.modules[name].HEARTBEAT_DEFAULT_INTERVAL for name in STATES} == {CLAIM}


def _dead_after(name: str) -> float:
    state: Any = sys.modules[name]
    return float(state.HEARTBEAT_DEFAULT_INTERVAL * state.HEARTBEAT_PATIENCE)


def test_a_supernode_says_in_words_why_it_is_not_connected(tmp_path: Path) -> None:
    node = Supernode(
        tmp_path,
        "ash",
        "c.example:8000",
        tmp_path / "node",
        tmp_path / "s",
        tmp_path / "a.pem",
    )
    log = tmp_path / "log" / "supernode.log"
    log.parent.mkdir()
    assert node.problem is None
    log.write_text(
        "INFO: started\nWARNING: Connection attempt failed, retrying in 2.00 seconds\n"
    )
    assert "c.example:8000 does not answer" in str(node.problem)
    log.write_text(
        log.read_text() + "INFO: Connection successful after 2.1 seconds and 2 tries.\n"
    )
    assert node.problem is None


def test_an_address_without_a_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        Superlink(tmp_path, "coordinator", Tls.in_folder(tmp_path), tmp_path / "s")
    local = {"0.0.0.0:9": "127.0.0.1:9", "[::]:9": "[::1]:9", "[::1]:9": "[::1]:9"}
    for address, result in local.items():
        made = Superlink(tmp_path, address, Tls.in_folder(tmp_path), tmp_path / "s")
        assert made.local == result
    assert 0 < free_port() < 65536
