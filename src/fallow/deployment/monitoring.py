"""Health checks and metrics of a site or a coordinator, collected from its folder.

The lock, ``live.json`` and the ledger have all data. The monitored process is not changed, and a
process that hangs or has ended is detected. Metrics contain counts and the names of runs, sites and
client functions, like the output of ``status``, in the Prometheus text format.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.coordinator.live import seconds_of
from fallow.deployment.coordinator.status import NOT_STARTED, collect_status
from fallow.deployment.folders import find_kind
from fallow.deployment.site.folder import SETTINGS, SiteFolder
from fallow.deployment.site.serve import has_ended, read_status
from fallow.deployment.site.status import collect_progress
from fallow.report.live import OPEN
from fallow.report.live_state import Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
    from starlette.applications import Starlette

HOME = "127.0.0.1"
SILENT = 120.0
"""Seconds without an update after which a coordinator counts as hanging."""

COUNTS = ("asked", "answered", "declined", "conflicts", "open")
"""States of labeling tasks."""
Sample = tuple[Mapping[str, str], float]
"""Labels of a value, and the value."""


def _metric(name: str, text: str, samples: Iterable[Sample], kind: str = "gauge") -> Metric:
    """Return a metric with its values. A "counter" only increases."""
    from prometheus_client.core import Metric

    metric = Metric(name, text, kind)
    if kind == "counter":
        name += "_total"
    for labels, value in samples:
        metric.add_sample(name, dict(labels), value)
    return metric


@dataclass(frozen=True)
class Health:
    """Health of a process, with a reason if it is not healthy."""

    is_well: bool
    reason: str


class WatchedFolder(Protocol):
    """A monitored folder."""

    def check(self) -> Health:
        """Return the health of the process."""

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""


def watch(folder: Path) -> WatchedFolder:
    """Return the monitor for the folder of a site or a coordinator.

    Raises ValueError for any other folder.
    """
    if find_kind(folder) == SETTINGS:
        return WatchedSite(SiteFolder.open(folder))
    return WatchedCoordinator(CoordinatorFolder.open(folder))


@dataclass(frozen=True, eq=False)  # the registry keeps it in a set
class WatchedSite:
    """Monitored folder of a site."""

    folder: SiteFolder

    def check(self) -> Health:
        """Return healthy if a process serves the site and reaches the coordinator.

        A site is healthy as well after the end of the study.
        """
        name = self.folder.name
        status = read_status(self.folder)
        if status.pid is None or status.problem:
            if self._has_ended():
                study = self.folder.agreement.name
                return Health(True, f"study {study} has ended at site {name}")
            if status.pid is None:
                return Health(False, f"no process runs site {name}")
            return Health(False, f"site {name}: {status.problem}")
        return Health(True, f"site {name} runs in process {status.pid}")

    def _has_ended(self) -> bool:
        with closing(self.folder.open_ledger()) as ledger:
            return has_ended(ledger)

    def collect(self) -> Iterator[Metric]:
        """Yield metrics of traffic, labels, privacy cost and the backup of the ledger."""
        whose = {"study": self.folder.agreement.name, "site": self.folder.name}
        healthy = float(self.check().is_well)
        yield _metric(
            "fallow_healthy", "1 while the process of the site runs.", [(whose, healthy)]
        )
        progress = collect_progress(self.folder)
        replies: list[Sample] = []
        sizes: list[Sample] = []
        for line in progress["sent"]:
            function = {
                **whose,
                "run": line["run"],
                "owner": line["owner"],
                "function": line["function"],
            }
            replies.append((function, line["exchanges"]))
            sizes.append((function, line["bytes"]))
        yield _metric(
            "fallow_exchanges",
            "Number of replies sent by the site.",
            replies,
            kind="counter",
        )
        yield _metric(
            "fallow_sent_bytes",
            "Size of replies sent by the site in bytes.",
            sizes,
            kind="counter",
        )
        counts = dict(progress["labels"])
        yield _metric("fallow_labels", TASKS, _list_counts(whose, counts))
        asked = progress["asked"]
        yield _metric(
            "fallow_labels_asked",
            "Labels requested since the site joined.",
            [(whose, asked)],
            kind="counter",
        )
        values = (
            ("fallow_epsilon_spent", "Epsilon spent on noise.", progress["epsilon"]),
            (
                "fallow_epsilon_limit",
                "Privacy budget epsilon of the site.",
                progress["epsilon_limit"],
            ),
            (
                "fallow_copy_age_seconds",
                "Age of the newest backup of the ledger.",
                progress["copy_age"],
            ),
        )
        for name, text, value in values:
            if value is not None:
                yield _metric(name, text, [(whose, value)])


@dataclass(frozen=True, eq=False)  # the registry keeps it in a set
class WatchedCoordinator:
    """Monitored folder of a coordinator."""

    folder: CoordinatorFolder

    def check(self) -> Health:
        """Return healthy if a process works on the run, or if the run is finished."""
        try:
            return self._judge(collect_status(self.folder))
        except ValueError as error:
            return Health(False, str(error))

    def _judge(self, status: Status) -> Health:
        name = status["name"]
        if status["state"] == "finished":
            return Health(True, f"study {name} is finished")
        if not status["alive"]:
            return Health(False, f"no coordinator runs study {name}")
        if status["state"] == OPEN and "updated" in status:
            silence = time.time() - seconds_of(status["updated"])
            if silence < -SILENT:
                return Health(
                    False,
                    f"the last heartbeat of the coordinator of {name} is in the "
                    "future: the clock was set back",
                )
            if silence > SILENT:
                return Health(
                    False,
                    f"the coordinator of {name} has not responded for {silence:.0f} s",
                )
        return Health(True, f"the coordinator of study {name} is running")

    def collect(self) -> Iterator[Metric]:
        """Yield metrics of the phase, the connected sites and the labeling progress."""
        healthy = "1 while the coordinator runs."
        try:
            status = collect_status(self.folder)
        except ValueError:  # `check` reports the error
            yield _metric("fallow_healthy", healthy, [({}, 0.0)])
            return
        is_well = self._judge(status).is_well
        yield _metric("fallow_healthy", healthy, [({}, float(is_well))])
        study = {"study": status["name"]}
        phase = {**study, "phase": status.get("phase", status["state"])}
        yield _metric("fallow_phase", "1 for the present phase of the run.", [(phase, 1)])
        numbers = {"cycle": status.get("cycle"), "round": status.get("round")}
        for name, number in numbers.items():
            if number is not None:
                text = f"The present {name} of the run."
                yield _metric(f"fallow_{name}", text, [({}, number)])
        if status["state"] == NOT_STARTED:
            return
        online: list[Sample] = []
        seen: list[Sample] = []
        labels: list[Sample] = []
        for site, details in status["sites"].items():
            whose = {**study, "site": site}
            online.append((whose, float(bool(details.get("online")))))
            if heard := details.get("seen"):
                seen.append((whose, seconds_of(heard)))
            labels += _list_counts(whose, details.get("labels") or {})
        waiting = {site for site, now in status["sites"].items() if now.get("awaited")}
        if pending := status.get("waiting"):
            waiting |= set(pending["sites"])
        count = float(len(waiting))
        yield _metric("fallow_waiting_sites", "Number of pending sites.", [({}, count)])
        refusals = len(status.get("refusals") or [])
        yield _metric(
            "fallow_refusals",
            "Recent rejected, limited and unusual replies.",
            [({}, refusals)],
        )
        yield _metric("fallow_site_online", "1 for a site that is connected.", online)
        yield _metric(
            "fallow_site_seen_timestamp_seconds", "Time of the last reply of a site.", seen
        )
        yield _metric("fallow_labels", TASKS, labels)


TASKS = "Labeling tasks of the newest cycle, by state."


def _list_counts(whose: Mapping[str, str], counts: Mapping[str, object]) -> list[Sample]:
    """Return the labeling tasks in each state."""
    return [
        ({**whose, "state": state}, cast(int, counts[state]))
        for state in COUNTS
        if state in counts
    ]


def metrics_text(watched: WatchedFolder) -> bytes:
    """Return the current metrics in the Prometheus text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(cast("Collector", watched))  # implements the interface of a collector
    return generate_latest(registry)


def create_app(watched: WatchedFolder, port: int) -> Starlette:
    """Create the application with ``/healthz`` (200 or 503, with a reason) and ``/metrics``.

    A request must use the address of the server, which protects against DNS rebinding from websites
    in a browser on this machine.
    """
    from prometheus_client import CONTENT_TYPE_LATEST
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    hosts = {f"{HOME}:{port}", f"localhost:{port}"}

    def refuse(request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if host in hosts:
            return None
        return PlainTextResponse(f"This is {HOME}:{port}, not {host!r}.", status_code=421)

    def healthz(request: Request) -> Response:
        refusal = refuse(request)
        if refusal is not None:
            return refusal
        health = watched.check()
        code = 200
        if not health.is_well:
            code = 503
        return PlainTextResponse(f"{health.reason}\n", status_code=code)

    def metrics(request: Request) -> Response:
        return refuse(request) or Response(
            metrics_text(watched), media_type=CONTENT_TYPE_LATEST
        )

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])
