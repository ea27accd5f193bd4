"""Runs one of Flower's commands with guards of our own: ``python -P launch.py COMMAND ...``.

This file is run by its path and imports nothing of Fallow, so that a process per message starts
fast.  It ends with the process that started it, however busy the machine is: an app that is slow to
start keeps its turn, and apps whose turn is over are ended.  Four doors that Flower leaves open
are closed:

* Flower serves SuperNodes and the control of runs at one address and asks nobody who controls: any
  machine that reaches it could start code at the coordinator.  Here, machines other than the
  coordinator's own reach what a SuperNode needs and nothing else.
* Flower runs whatever app the SuperLink sends to a site, or anybody on its own machine gives to the
  SuperLink.  Here, both run the app that came with their own Fallow and refuse any other.
* Flower goes wherever the SuperLink redirects it.  Here, a SuperNode goes nowhere else, so that
  nobody reaches the machines around a site through it.
* Flower tells the SuperLink why an app failed at a site in the words of Python, with names of
  files.  Here, it tells that the app failed, and the words stay in the site's log.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, NotRequired, TypedDict

APP = Path(__file__).parent / "app"
OTHERS = 0o077  # rights that nobody but the owner has to what Flower writes
COMMANDS = {
    "flower-superlink": "flwr.superlink.cli.flower_superlink:flower_superlink",
    "flower-supernode": "flwr.supernode.cli.flower_supernode:flower_supernode",
    "flower-superexec": "flwr.supercore.cli.flower_superexec:flower_superexec",
    "flwr-serverapp": "flwr.superlink.cli.flwr_serverapp:flwr_serverapp",
    "flwr": "flwr.cli.app:app",
}
CLIENT = "flwr.supernode.runtime.run_clientapp"
SERVER = "flwr.superlink.runtime.run_serverapp"
STATES = (
    "flwr.supercore.corestate.sql_corestate",
    "flwr.supercore.corestate.in_memory_corestate",
)
OPEN = "/v1/fleet/"  # what SuperNodes call
PARENT = "FALLOW_PARENT"  # environment: the process that starts Flower
GRACE = 5  # seconds to say goodbye
CLAIM = (
    90  # seconds that an app has to start; Flower gives 30, and a busy machine takes longer
)
MOST = {
    "flwr-serverapp": 1,
    "flwr-clientapp": 3,
}  # apps at a time; a site answers one by one
TURN = 0.3
MOST_WORDS = 10_000  # of an error, in a log


def main() -> None:
    """Run the command that the first argument names, with the others."""
    name = sys.argv[1]
    sys.argv = sys.argv[1:]
    os.umask(OTHERS)
    threading.Thread(target=_end_with, args=(_parent(),), daemon=True).start()
    guard_command(name)
    if name == "flwr-clientapp":
        return _run_client()
    module, _, function = COMMANDS[name].partition(":")
    getattr(importlib.import_module(module), function)()


def guard_command(name: str) -> None:
    """Close the doors of one of Flower's commands."""
    if name == "flower-superlink":
        _guard("flwr.superlink.extensions", "get_middleware", _with_doorkeeper)
    if name in ("flower-superlink", "flower-supernode"):
        let_apps_start()
    if name == "flower-supernode":
        _guard("httpx", "Client", _staying)
    if name == "flower-superexec":
        _guard("subprocess", "Popen", lambda popen: App)
    if name == "flwr-serverapp":
        _guard(SERVER, "install_from_fab", _own_app_only)
    if name == "flwr-clientapp":
        _guard(CLIENT, "install_from_fab", _own_app_only)
        _guard(CLIENT, "Error", _without_words)


def _parent() -> int:
    """Who started this process: Flower says so, or the environment."""
    named = dict(zip(sys.argv, sys.argv[1:], strict=False)).get("--parent-pid")
    return int(named or os.environ[PARENT])


def _end_with(parent: int) -> None:
    """End this process soon after its parent, however that ended.

    Flower watches too, but its ServerApp may wait for ever for a SuperLink that is gone.
    """
    while os.getppid() == parent:
        time.sleep(TURN)
    signal.alarm(GRACE)  # the system ends it, even where Python hangs on its way out
    os.kill(
        os.getpid(), signal.SIGTERM
    )  # a SuperNode that leaves properly may come back at once


def _guard(module: str, name: str, guarded: Callable[[Any], Any]) -> None:
    """Replace a function of Flower; never run without the guard because Flower has changed."""
    place = importlib.import_module(module)
    if not callable(getattr(place, name, None)):
        raise SystemExit(
            f"this version of Flower has no {module}.{name}; install flwr 1.41 or 1.42"
        )
    setattr(place, name, guarded(getattr(place, name)))


def let_apps_start() -> None:
    """Give apps the time that a busy machine needs to start them, before their turn is over.

    Flower starts an app again when its turn is over, whether the first one still starts or not: on
    a busy machine that makes the next one slower.  How soon it notices a dead one stays the same.
    """
    for name in STATES:
        state: Any = importlib.import_module(name)
        dead_after = state.HEARTBEAT_PATIENCE * state.HEARTBEAT_DEFAULT_INTERVAL
        state.HEARTBEAT_DEFAULT_INTERVAL = CLAIM
        state.HEARTBEAT_PATIENCE = dead_after / CLAIM


class App(subprocess.Popen[Any]):
    """A process that first ends the oldest of its kind where they would be more than `MOST`."""

    alive: ClassVar[dict[str, list[subprocess.Popen[Any]]]] = {}

    def __init__(self, line: Any, *args: Any, **options: Any) -> None:
        name = Path(line[0]).name
        running = [app for app in self.alive.get(name, []) if app.poll() is None]
        while len(running) >= MOST.get(name, sys.maxsize):
            oldest = running.pop(0)
            oldest.kill()
            oldest.wait()
        super().__init__(line, *args, **options)
        self.alive[name] = [*running, self]


def _run_client() -> None:
    """As Flower's own command does, without importing SuperNode, web server and data base.

    There is a process for each message, and importing those takes half of its time.
    """
    parser = argparse.ArgumentParser("flwr-clientapp")
    for name in ("--runtime-api-address", "--token", "--root-certificates"):
        parser.add_argument(name)
    parser.add_argument("--parent-pid", type=int)
    parser.add_argument("--insecure", action="store_true")
    options = parser.parse_args()
    certificates = None
    if options.root_certificates:
        certificates = Path(options.root_certificates).read_bytes()
    importlib.import_module(CLIENT).run_clientapp(
        runtime_api_address=options.runtime_api_address,
        token=options.token,
        insecure=options.insecure,
        certificates=certificates,
        parent_pid=options.parent_pid,
    )


class Scope(TypedDict):
    """What a web server says of a request (ASGI), as far as it is looked at here."""

    type: str
    path: NotRequired[str]
    client: NotRequired[tuple[str, int] | None]


Message = Mapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
WebApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Doorkeeper:
    """Answers 403 to other machines that ask for more than a SuperNode needs."""

    def __init__(self, app: WebApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or may_pass(scope["path"], scope.get("client")):
            await self.app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"not from another machine"})


def may_pass(path: str, client: tuple[str, int] | None) -> bool:
    """Whether a request for ``path`` may come from ``client`` (address and port).

    >>> may_pass("/v1/fleet/pull-messages", ("10.0.0.7", 4000))
    True
    >>> may_pass("/v1/control/start-run", ("10.0.0.7", 4000))
    False
    >>> may_pass("/v1/control/start-run", ("127.0.0.1", 4000))
    True
    """
    return path.startswith(OPEN) or (
        client is not None and ip_address(client[0]).is_loopback
    )


def _with_doorkeeper(
    others: Callable[[], tuple[object, ...]],
) -> Callable[[], tuple[object, ...]]:
    def middleware() -> tuple[object, ...]:
        kind = importlib.import_module("starlette.middleware").Middleware
        return (kind(Doorkeeper), *others())

    return middleware


def _own_app_only(install: Callable[..., Any]) -> Callable[..., Any]:
    def install_own(bundle: bytes, *args: Any, **options: Any) -> Any:
        if not is_own(bundle):
            raise ValueError(
                "this is another Flower app than the one that came with the Fallow of this "
                "machine, so it was not run; install the same version of Fallow on both sides"
            )
        return install(bundle, *args, **options)

    return install_own


def _staying(client: Any) -> Any:
    """Flower's HTTP client, which follows no redirect."""

    class Staying(client):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            options["follow_redirects"] = False
            super().__init__(*args, **options)

    return Staying


REASON = "the app at the site failed; the log of its SuperNode has the reason"


def _without_words(error: Callable[..., Any]) -> Callable[..., Any]:
    """Flower's error without Python's words, which may quote files of the site: they are written to
    standard error, and so to the log of the SuperNode, and stay there."""

    def make_error(code: int, reason: str | None = None) -> Any:
        shown = None
        if reason is not None:
            sys.stderr.write(f"{reason[:MOST_WORDS]}\n")
            shown = REASON
        return error(code, shown)

    return make_error


def is_own(bundle: bytes) -> bool:
    """Whether an app as Flower sends it has the code of ours and names the same parts of it."""
    own = {p.relative_to(APP).as_posix(): p.read_bytes() for p in APP.rglob("*.py")}
    with zipfile.ZipFile(io.BytesIO(bundle)) as packed:
        named = packed.read("pyproject.toml").decode()
        code: dict[str, bytes] = {}
        for name in packed.namelist():
            is_about = name == "pyproject.toml" or name.startswith(".info/")
            if not is_about:
                code[name] = packed.read(name)
    return code == own and _parts(named) == _parts((APP / "pyproject.toml").read_text())


def _parts(text: str) -> object:
    """Which code an app is made of, as its pyproject.toml says."""
    return tomllib.loads(text)["tool"]["flwr"]["app"]["components"]


if __name__ == "__main__":
    main()
