"""Keep a job of NVFlare running: submit it, and submit it again whenever it has ended.

    python keep.py JOB KIT

JOB: the folder of the job; KIT: the startup kit of an admin who may submit it, as NVFlare's
provisioning made it.  It runs where NVFlare is installed, until it is stopped, and ends the job
then.  NVFlare ends a whole job when the process of one of its sites dies, does not begin it at a
site that connects later, and forgets it when its server dies.  This program therefore submits
it again. No data of a study is lost in the meantime.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

POLL_SECONDS = 5.0  # seconds between two checks of the job
# Seconds before a failed job is submitted again, doubled from the first to the last value while it
# fails at once, so that a failing site does not flood the server.
MIN_RETRY_SECONDS = 10.0
MAX_RETRY_SECONDS = 600.0
FAST_FAILURE_SECONDS = 30.0  # seconds; a longer job did not fail at once
# Seconds that a site may be connected without the job before the job is restarted for all sites,
# doubled from the first to the last value so that a failing site does not delay the others.
MIN_ABSENCE_SECONDS = 30.0
MAX_ABSENCE_SECONDS = 1800.0
FINISHED = "FINISHED"  # prefix of the states of a finished job
ADMIN = "fed_admin.json"


def main() -> int:
    """Keep the job of the command line running until a signal arrives."""
    if len(sys.argv) != 3:
        sys.stderr.write(str(__doc__))
        return 2
    job = Path(sys.argv[1]).absolute()
    kit = Path(sys.argv[2]).absolute()
    is_stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_stopped.set())
    while not is_stopped.is_set():
        try:
            keep(job, kit, is_stopped)
        except (
            Exception
        ) as error:  # NVFlare raises various errors, for example if its server is down
            notify(f"{type(error).__name__}: {error}; it is tried again")
            is_stopped.wait(MIN_RETRY_SECONDS)
    return 0


def keep(job: Path, kit: Path, is_stopped: Event) -> None:
    """Submit the job whenever it is not running, in one admin session."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    details = json.loads((job / "meta.json").read_bytes())
    name = details["name"]
    sites = {site for places in details["deploy_map"].values() for site in places}
    absence = MissingSites()
    pause = MIN_RETRY_SECONDS
    session = new_secure_session(find_admin(kit), str(kit))
    try:
        # jobs of an earlier process may belong to a killed server: start again
        end_jobs(session, name)
        while not is_stopped.is_set():
            number = session.submit_job(str(job))
            began = time.monotonic()
            notify(f"submitted as {number}")
            why = wait_for_end(session, number, sites, absence, is_stopped)
            if why is not None:
                notify(f"{why}: the job is submitted again")
                end_jobs(session, name)
                pause = choose_pause(pause, time.monotonic() - began)
                is_stopped.wait(pause)
        end_jobs(session, name)
        notify("the job is over")
    finally:
        session.close()


class MissingSites:
    """Time for which connected sites have not been running the job."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._patience = MIN_ABSENCE_SECONDS
        self._since: float | None = None

    def is_too_long(self, missing: set[str]) -> bool:
        """Return whether to restart the job. ``missing`` are connected sites without it."""
        now = self._clock()
        if not missing:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._patience:
            return False
        self._since = None
        self._patience = min(2 * self._patience, MAX_ABSENCE_SECONDS)
        return True


def choose_pause(before: float, lasted: float) -> float:
    """Return the seconds before the next submission, from the duration and the last pause."""
    if lasted > FAST_FAILURE_SECONDS:
        return MIN_RETRY_SECONDS
    return min(2 * before, MAX_RETRY_SECONDS)


def wait_for_end(
    session: Session,
    number: str,
    sites: set[str],
    absence: MissingSites,
    is_stopped: Event,
) -> str | None:
    """Wait for the end of the job and return why, or None if this process is stopped."""
    from nvflare.fuel.flare_api.api_spec import JobNotFound

    while not is_stopped.wait(POLL_SECONDS):
        try:
            state = str(session.get_job_meta(number)["status"])
        except JobNotFound:
            return "the server has forgotten it"
        if state.startswith(FINISHED):
            return f"it has ended, {state}"
        missing = find_missing(session, number, sites)
        if absence.is_too_long(missing):
            return f"{', '.join(sorted(missing))} does not run it"
    return None


def find_missing(session: Session, number: str, sites: set[str]) -> set[str]:
    """Return the connected sites of the study that do not run a job."""
    rows = session.get_client_job_status() or []
    connected = {str(row["client_name"]) for row in rows}
    at_work = {str(row["client_name"]) for row in rows if row.get("job_id") == number}
    return sites & connected - at_work


def end_jobs(session: Session, name: str) -> None:
    """End every active job of this name."""
    for values in session.list_jobs(name_prefix=name):
        is_over = str(values["status"]).startswith(FINISHED)
        if values["job_name"] == name and not is_over:
            with suppress(Exception):  # it may have just ended, or the server lost it
                session.abort_job(values["job_id"])


def find_admin(kit: Path) -> str:
    """Return the name of the admin of this startup kit."""
    details = json.loads((kit / "startup" / ADMIN).read_bytes())
    return str(details["admin"]["username"])


def notify(text: str) -> None:
    """Write a line to the log."""
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
