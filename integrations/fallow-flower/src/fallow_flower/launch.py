"""Run one of Flower's commands with additional guards: ``python -P launch.py COMMAND ...``.

This file is run by its path and imports nothing of Fallow, so that a process per message starts
quickly. It ends with its parent process. An app that starts slowly on a busy machine keeps its
turn, and apps after their turn are ended. Four defaults of Flower are restricted:

* Flower serves SuperNodes and run control at one address without authenticating run control. Any
  machine that reaches the address could start code at the coordinator. Here, other machines reach
  only the part that a SuperNode needs.
* Flower runs any app that the SuperLink sends to a site, or that is submitted to the SuperLink on
  its own machine. Here, both run the app included in their own Fallow and reject any other.
* Flower follows redirects of the SuperLink. Here, a SuperNode follows none, so that it cannot be
  used to reach other machines near a site.
* Flower reports the Python error of an app at a site, with file names, to the SuperLink. Here, it
  only reports that the app failed. The error message stays in the site's log.
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
OTHERS = 0o077  # permissions removed from files that Flower writes
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
OPEN = "/v1/fleet/"  # paths that SuperNodes request
PARENT = "FALLOW_PARENT"  # environment variable with the parent process
GRACE = 5  # seconds for a clean exit
CLAIM = 90  # seconds for an app to start; Flower's 30 are too few on a busy machine
MAX_RUNNING = {
    "flwr-serverapp": 1,
    "flwr-clientapp": 3,
}  # concurrent apps; a site handles one message at a time
TURN = 0.3
MOST_WORDS = 10_000  # longest error in a log


def main() -> None:
    """Run the command in the first argument with the other arguments."""
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
    """Install the guards of one of Flower's commands."""
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
    """Return the parent process, from Flower's arguments or the environment."""
    named = dict(zip(sys.argv, sys.argv[1:], strict=False)).get("--parent-pid")
    return int(named or os.environ[PARENT])


def _end_with(parent: int) -> None:
    """End this process shortly after its parent.

    Flower does this too, but its ServerApp may wait forever for a SuperLink that has ended.
    """
    while os.getppid() == parent:
        time.sleep(TURN)
    signal.alarm(GRACE)  # the operating system ends it even if Python hangs at exit
    os.kill(
        os.getpid(), signal.SIGTERM
    )  # a SuperNode that signs off may reconnect immediately


def _guard(module: str, name: str, guarded: Callable[[Any], Any]) -> None:
    """Replace a function of Flower. Fails if Flower has changed, so that no guard is lost."""
    namespace = importlib.import_module(module)
    if not callable(getattr(namespace, name, None)):
        raise SystemExit(
            f"this version of Flower has no {module}.{name}; install flwr 1.41 or 1.42"
        )
    setattr(namespace, name, guarded(getattr(namespace, name)))


def let_apps_start() -> None:
    """Extend the time for apps to start on a busy machine.

    Flower starts another app after a timeout even if the first one is still starting, which slows
    down both. The detection of dead apps does not change.
    """
    for name in STATES:
        state: Any = importlib.import_module(name)
        dead_after = state.HEARTBEAT_PATIENCE * state.HEARTBEAT_DEFAULT_INTERVAL
        state.HEARTBEAT_DEFAULT_INTERVAL = CLAIM
        state.HEARTBEAT_PATIENCE = dead_after / CLAIM


class App(subprocess.Popen[Any]):
    """Process that first ends the oldest of its kind if there are `MAX_RUNNING` already."""

    alive: ClassVar[dict[str, list[subprocess.Popen[Any]]]] = {}

    def __init__(self, line: Any, *args: Any, **options: Any) -> None:
        name = Path(line[0]).name
        running = [app for app in self.alive.get(name, []) if app.poll() is None]
        while len(running) >= MAX_RUNNING.get(name, sys.maxsize):
            oldest = running.pop(0)
            oldest.kill()
            oldest.wait()
        super().__init__(line, *args, **options)
        self.alive[name] = [*running, self]


def _run_client() -> None:
    """Run Flower's client command without importing the SuperNode, web server and database.

    Each message has its own process, and these imports take half of its time.
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


class AsgiScope(TypedDict):
    """Request metadata of a web server (ASGI), as far as it is used here."""

    type: str
    path: NotRequired[str]
    client: NotRequired[tuple[str, int] | None]


Message = Mapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
WebApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


class Doorkeeper:
    """Reply 403 to other machines for all paths that a SuperNode does not need."""

    def __init__(self, app: WebApp) -> None:
        self.app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or may_pass(scope["path"], scope.get("client")):
            await self.app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"not from another machine"})


def may_pass(path: str, client: tuple[str, int] | None) -> bool:
    """Return whether ``client`` (address and port) may request ``path``.

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
    """Return Flower's HTTP client without redirects."""

    class Staying(client):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            options["follow_redirects"] = False
            super().__init__(*args, **options)

    return Staying


REASON = "the app at the site failed; the log of its SuperNode has the reason"


def _without_words(error: Callable[..., Any]) -> Callable[..., Any]:
    """Return Flower's error without the Python error message, which may quote data of the site.

    The message is written to standard error, and therefore to the local log of the SuperNode.
    """

    def make_error(code: int, reason: str | None = None) -> Any:
        shown = None
        if reason is not None:
            sys.stderr.write(f"{reason[:MOST_WORDS]}\n")
            shown = REASON
        return error(code, shown)

    return make_error


def is_own(bundle: bytes) -> bool:
    """Return whether an app has the code and the components of the included app."""
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
    """Return the components of an app from its pyproject.toml."""
    return tomllib.loads(text)["tool"]["flwr"]["app"]["components"]


if __name__ == "__main__":
    main()
