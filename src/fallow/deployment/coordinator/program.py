"""Coordinator program: runs an experiment at remote sites with human annotators."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, final

from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.events import EventHandler, ignore_event
from fallow.core.exchange_key import ExchangeKey
from fallow.core.types import SiteId
from fallow.deployment.agreement import Agreement
from fallow.deployment.building import BuiltStudy, build_study
from fallow.deployment.coordinator.absences import (
    discard_last_reply,
    is_of_all,
    leave,
    leave_out,
    load_absences,
    load_left,
    load_revocations,
    revoke,
)
from fallow.deployment.coordinator.describing import describe_sites
from fallow.deployment.coordinator.event_reporter import EventReporter
from fallow.deployment.coordinator.labels import LabelWait
from fallow.deployment.coordinator.live import (
    Control,
    ProceedRequested,
    RevocationRequested,
    StatusFile,
    StopRequested,
    WatchedTransport,
    utc,
)
from fallow.deployment.coordinator.sites import RemoteEnvironment, greet_sites
from fallow.deployment.coordinator.weights import SiteWeights, find_longest
from fallow.deployment.folders import private_folder, tighten
from fallow.deployment.model_card import CARD, CardFacts, write_card
from fallow.experiment.event_log import EventLog
from fallow.experiment.methods import versions
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.run import ExperimentRun
from fallow.experiment.scale import is_standardized
from fallow.report.sentences import read_headline
from fallow.storage import files
from fallow.storage.errors import StorageError, sentence
from fallow.storage.files import make_folder, sweep, write_json, write_json_lines
from fallow.study.study_run import StudyRun
from fallow.transport.checks import (
    ResponseCheck,
    count_products,
    declared_by_owner,
    sizes_of_models,
)
from fallow.transport.factory import ServedTransport
from fallow.transport.gathering import Keys
from fallow.transport.remote import RemoteChannel

LOCK = "coordinator.lock"
CardScore = Literal[
    "accuracy", "accuracy_weighted", "balanced_accuracy", "worst_tenth", "mse", "distance"
]
SCORES: dict[CardScore, str] = {
    "accuracy": "accuracy, mean over sites",
    "accuracy_weighted": "accuracy over all test examples",
    "balanced_accuracy": "accuracy, mean over classes",
    "worst_tenth": "accuracy of the worst tenth of the sites",
    "mse": "mean squared error",
    "distance": "distance to selected examples",
}
"""Scores of the last record in the model card, with their names there."""
POLL = 10.0  # seconds between progress requests


@final
@dataclass
class Program:
    """A study at remote sites, in a folder that `fallow report`, `export` and `predict` read.

    ``go`` may be called again in a new process after a crash at any point. The selected examples
    and the weights are the same: completed exchanges are replayed from the event log, and sites
    repeat earlier replies.

    ``poll`` is the number of seconds between progress requests. ``clock`` returns the time of day
    and ``ticks`` a monotonic time. ``pages`` keeps the report up to date. ``revoked`` returns the
    sites whose keys were revoked.  With ``describes``, the run stops after a description of the data.
    """

    folder: Path
    agreement: Agreement
    transport: ServedTransport
    keys: Keys
    notify: EventHandler = ignore_event
    clock: Callable[[], float] = time.time
    poll: float = POLL
    ticks: Callable[[], float] = time.monotonic
    pages: bool = True
    revoked: Callable[[], Set[SiteId]] = frozenset
    describes: bool = False

    @property
    def cell(self) -> StudyRun:
        """Return the single run of the study: its query strategy and seed."""
        return StudyRun(str(self.agreement.config.strategy), self.agreement.seed)

    @property
    def run_folder(self) -> Path:
        """Return the folder of the run in the study."""
        return self.cell.folder(self.folder)

    @property
    def is_done(self) -> bool:
        """Return whether records, model and model card are written."""
        made = [self.run_folder / name for name in ("records.jsonl", "model.safetensors")]
        return all(path.exists() for path in (*made, self.folder / CARD))

    def go(self) -> bool:
        """Run the study to the end, and return False if it was stopped.

        The run continues from the event log. The transport is started once this process holds the
        lock of the folder.

        Raises StorageError if another coordinator uses the folder, RuntimeError if sites are missing
        for too long, and ValueError if the agreement has changed.
        """
        control = Control(self.folder / "control")
        private_folder(self.folder)
        tighten(self.folder)
        with alone(self.folder):
            live = StatusFile(self.folder / "live.json", self.clock, self.notify)
            reporter = EventReporter(
                self.folder, self.agreement, live, self.notify, self.pages
            )
            sweep(self.folder)
            try:
                if not self.is_done:
                    reporter.begin()
                    self.transport.start()
                    transport = WatchedTransport(
                        self.transport, live, control, self.revoked
                    )
                    while not self._run_until_done(reporter, transport, control):
                        reporter.notify({"event": "again"})
                reporter.end("finished")
            except StopRequested:
                control.forget("stop")
                reporter.end("stopped")
                return False
            except BaseException as error:
                reporter.end("failed", sentence(error))
                raise
        return True

    def _run_until_done(
        self, reporter: EventReporter, transport: WatchedTransport, control: Control
    ) -> bool:
        """Run to the end, and return False if a site has left and the open step is repeated."""
        write_json(self.folder / "study.json", describe_study(self.agreement, self.cell))
        parts = build_study(self.agreement)
        response_check = self._make_check(parts)
        weights = SiteWeights(response_check, self.agreement.bounds, parts.dtype)
        self.transport.limit(response_check.largest_message)
        with open_event_log(self.run_folder, self.agreement) as event_log:
            left = load_left(event_log)
            removed = {site: line.at for site, line in load_revocations(event_log).items()}
            transport.removed = self.revoked() & {*left, *removed}
            for site in self.revoked():
                self.transport.revoke(site)
            reporter.run = event_log.note_once("run", name_run(self.clock()))
            channel = RemoteChannel(
                transport=transport,
                event_log=event_log,
                keys=self.keys,
                study=self.agreement.digest,
                run=reporter.run,
                waits=self.agreement.waits,
                notify=reporter,
                response_check=response_check,
                weights=weights,
                clock=self.ticks,
                left=partial(load_left, event_log),
                revoked=frozenset(transport.removed & removed.keys()),
            )
            reporter.note_absences(load_absences(event_log), removed | left)
            try:
                self._run_all(channel, event_log, parts, weights, reporter, control)
            except ProceedRequested as advanced:
                self._proceed_without(advanced.sites, channel, event_log, parts, reporter)
                return False
            except RevocationRequested as revoked:
                self._remove(revoked.sites, channel, event_log, parts, reporter)
                return False
            except (StopRequested, StorageError):
                raise
            except Exception:
                self._roll_back(channel, event_log, reporter)
                raise
        return True

    def _make_check(self, parts: BuiltStudy) -> ResponseCheck:
        """Return the reply check before any site has registered."""
        schema = self.agreement.schema
        longest = None
        if has_products_in_units(self.agreement, parts):
            longest = partial(find_longest, bounds=self.agreement.bounds)
        return ResponseCheck(
            sizes=sizes_of_models(parts.layout),
            sites=len(self.agreement.sites),
            width=max(math.prod(schema.shape), parts.width),
            products=count_products(parts.methods, parts.width),
            declared=declared_by_owner(parts.methods),
            dims=parts.dims,
            is_noisy=self.agreement.config.privacy.epsilon is not None,
            longest=longest,
            missing=schema.missing,
        )

    def _proceed_without(
        self,
        sites: list[SiteId],
        channel: RemoteChannel,
        event_log: EventLog,
        parts: BuiltStudy,
        reporter: EventReporter,
    ) -> None:
        """Proceed without pending sites.

        Sites are removed from the study if they cannot take part without the open exchange.
        Otherwise they are left out of the round, query or end of a cycle.
        """
        key = _find_open_key(channel, event_log)
        now = utc(self.clock())
        names = ", ".join(sites)
        try:
            if is_of_all(key):
                leave(event_log, sites, now, key)
            else:
                contracts = find_contracts(parts)
                leave_out(
                    event_log, self.agreement, contracts, sites=sites, key=key, at=now
                )
            why = f"proceeding without {names}"
        except ValueError as error:
            why = f"cannot proceed without {names}: {error}"
        reporter({"event": "advanced", "sites": sites, "reason": why})

    def _remove(
        self,
        sites: list[SiteId],
        channel: RemoteChannel,
        event_log: EventLog,
        parts: BuiltStudy,
        reporter: EventReporter,
    ) -> None:
        """Remove sites from the study because their keys were revoked."""
        key = _find_open_key(channel, event_log)
        now = utc(self.clock())
        contracts = find_contracts(parts)
        revoke(event_log, self.agreement, contracts, sites=sites, key=key, at=now)
        why = (
            f"the keys of {', '.join(sites)} were revoked: the study proceeds without them"
        )
        reporter({"event": "revoked", "sites": sites, "reason": why})

    def _roll_back(
        self, channel: RemoteChannel, event_log: EventLog, reporter: EventReporter
    ) -> None:
        """Discard the exchange on which the server side failed.

        Otherwise the same error would stop the run after every start.
        """
        if channel.asking is not None:  # it waited for sites, nothing was recorded
            return
        if channel.newest is not None and channel.newest not in event_log.exchanges():
            return  # it was not recorded, or its step is over
        key = discard_last_reply(event_log)
        if key is not None:
            reporter(
                {
                    "event": "taken back",
                    "key": str(key),
                    "reason": (
                        f"the replies to {key} cannot be used and are discarded: the "
                        "exchange is repeated at the next start; to proceed without "
                        "a site, stop its program and run 'fallow coordinate "
                        f"advance {self.folder}'"
                    ),
                }
            )

    def _run_all(
        self,
        channel: RemoteChannel,
        event_log: EventLog,
        parts: BuiltStudy,
        weights: SiteWeights,
        reporter: EventReporter,
        control: Control,
    ) -> None:
        """Register the sites and run the study."""
        waits = self.agreement.waits
        greeted = greet_sites(parts, channel, event_log)
        reporter.note_greetings(greeted["sites"])
        label_wait = LabelWait(
            sites=channel,
            event_log=event_log,
            control=control,
            seconds=waits.deadline,
            notify=reporter,
            clock=self.clock,
            every=self.poll,
        )
        sites = RemoteEnvironment(
            agreement=self.agreement,
            made=parts,
            channel=channel,
            event_log=event_log,
            label_wait=label_wait,
            greeted=greeted,
            weights=weights,
        )
        if self.describes:
            describe_sites(sites, self.folder)
            raise StopRequested
        self._run(
            ExperimentRun(sites, event_log, folder=self.run_folder, notify=reporter),
            parts,
            sites,
        )

    def _run(self, run: ExperimentRun, parts: BuiltStudy, sites: RemoteEnvironment) -> None:
        """Run all cycles. A strategy that selects without a model uses the whole budget in one
        cycle.
        """
        config = self.agreement.config
        if is_one_pass(config):
            records = run.one_pass(config.cycles)
        else:
            records = run.go()
        last = records[-1]
        last["revealed"] = Disclosure.of(last["revealed"]).plus(sites.at_the_end).rows()
        write_json_lines(self.run_folder / "records.jsonl", records)
        scores = {}
        for name, words in SCORES.items():
            if last.get(name) is not None:
                scores[words] = last[name]
        if per_site := last.get("per_site"):
            scores |= {f"of {site}": per_site.get(site) for site in self.agreement.sites}
        saved = run.event_log.load_step("model")
        trains = parts.methods["training"].contract.trains
        is_own = trains and (saved is None or saved["state"] is None)
        facts = CardFacts(
            owner="the coordinator",
            exposure=last["exposure"],
            labels=sites.labels,
            scores=scores,
            results=last,
            left=last["revealed"],
            is_own=is_own,
            headline=read_headline(self.folder),
        )
        write_card(self.folder, self.agreement, parts.methods, facts)


EARLIER = "earlier"
"""Folder of the files of earlier runs."""


def set_run_aside(folder: Path, run_folder: Path) -> Path | None:
    """Move the files of the present run into a folder of its own, so that a new run begins.

    Returns that folder, or None if no run has begun. Sites keep their labels over runs.
    Raises StorageError if a coordinator is running.
    """
    with alone(folder):
        if not run_folder.exists():
            return None
        number = 1
        while (aside := folder / EARLIER / f"run-{number}").exists():
            number += 1
        private_folder(folder / EARLIER)
        private_folder(aside)
        for name in (CARD, "live.json"):
            if (folder / name).exists():
                (folder / name).replace(aside / name)
        # last: until then, another attempt moves the same files
        run_folder.replace(aside / run_folder.name)
        return aside


def name_run(now: float) -> str:
    """Return a name for a run that starts now, in seconds since 1970.

    Names sort by time, so that sites recognize an instruction of an earlier run. A name has the
    second, the nanosecond and a random suffix.

    >>> name_run(0)[:-8], name_run(1e9) < name_run(1e9 + 0.001)
    ('0000000000-00000000', True)
    """
    second = int(now)
    nanosecond = int((now - second) * 1e9)
    return f"{second:010x}-{nanosecond:08x}{secrets.token_hex(4)}"


def alone(folder: Path) -> AbstractContextManager[None]:
    """Lock the folder for one coordinator. Raises StorageError for a second one."""
    otherwise = (
        f"a coordinator is already running in {folder}: see 'fallow coordinate "
        f"status {folder}', or stop it with 'fallow coordinate stop {folder}'"
    )
    return files.alone(folder / LOCK, otherwise)


def _find_open_key(channel: RemoteChannel, event_log: EventLog) -> ExchangeKey:
    """Return the exchange in progress, or the last one while the run waits for annotators."""
    return channel.asking or event_log.exchanges()[-1]


def find_contracts(parts: BuiltStudy) -> dict[str, Contract]:
    """Return the disclosure declarations of the query strategy and the training algorithm."""
    return {name: parts.methods[name].contract for name in ("query", "training")}


def has_products_in_units(agreement: Agreement, parts: BuiltStudy) -> bool:
    """Return whether feature products are standardized over all sites (`ResponseCheck`).

    This is the case for an encoder, and for a trained body with a closed-form classifier.
    """
    is_encoded = parts.encoder is not None
    config = agreement.config
    in_units = is_standardized(config, agreement.example) and config.standardize != "ranges"
    return (is_encoded and in_units) or "head" in parts.methods


def is_running(folder: Path) -> bool:
    """Return whether a coordinator uses the folder now."""
    return files.is_held(folder / LOCK)


@contextmanager
def open_event_log(path: Path, agreement: Agreement) -> Iterator[EventLog]:
    """Open the event log of a run that started with this agreement."""
    make_folder(path)
    event_log = EventLog(path / "event_log.sqlite", is_durable=True)
    try:
        if event_log.note_once("agreement", agreement.digest) != agreement.digest:
            raise ValueError(
                f"study.toml has changed since {path} was started, and sites would "
                "reject it: restore it (durations may change), or the version of "
                "Fallow if that has changed since, or start in a new folder"
            )
        yield event_log
    finally:
        event_log.close()


def describe_study(agreement: Agreement, cell: StudyRun) -> dict[str, object]:
    """Return the content of ``study.json``, used for reports and tables."""
    config = agreement.config
    return {
        "name": agreement.name,
        "title": config.title,
        "config": config.to_dict(),
        "digest": config.digest_under(agreement.names),
        "reference": None,
        "strategies": [cell.strategy],
        "seeds": [cell.seed],
        "command": "fallow coordinate start",
        "versions": versions(),
        "published": None,
        "classes": list(agreement.schema.classes),
        "labels": list(agreement.schema.labels),
    }
