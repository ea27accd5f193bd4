"""Kill a site repeatedly while it encodes examples and contributes to secure sums. The
results equal those of an undisturbed site, bit for bit."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from fallow.core.events import Event
from fallow.data import Dataset
from fallow.deployment.agreement import Timeouts
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.host import FEATURES, Host
from fallow.encoders import Fourier
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.database import Database
from fallow.storage.features import DATA
from fallow.transport.envelope import open_instruction
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.deployment.test_program_resume import read_left
from tests.experiment.crash import KILLED, Points, start_child, wait_for_child

pytest.importorskip("cryptography")

VICTIM = "basel"
WAITS = Timeouts(
    timeout=1e5, patience=1e5, deadline=1e6
)  # in the transport's simulated time
EXPERIMENT = ExperimentConfig(
    "hospitals",
    model=Spec("linear"),
    encoder=Spec("fourier", {"features": 8}),
    training=Spec("closed-form"),
    strategy=Spec("margin"),
    privacy=Privacy(secure_sum=True),
    initial=4,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
    dtype="float64",
)


ENCODING_AND_HEAD = ("0/initial/encod", "0/train/0/")
EVERYTHING = ("",)


@dataclass
class Killed:
    """Simulate a site's process that instructions kill: at the first point of its work,
    after a restart at the second, and so on, until the work completes.

    The points are before and after each commit of the ledger, each file that is replaced or
    flushed to disk, and each encoding of examples. ``deadly``: prefixes of the keys of
    instructions that kill.
    """

    site: SiteFolder
    deadly: tuple[str, ...]
    deaths: Counter[str] = field(default_factory=Counter)  # by the key of the instruction
    _child: int | None = None
    _pipe: Connection | None = None

    def handle(self, blob: bytes) -> bytes | None:
        """Return the reply, or None if the process died; then the message is repeated."""
        key = str(open_instruction(self.site.agreement.coordinator, blob).key)
        pipe = self._pipe or self._start()
        point = self.deaths[key] if key.startswith(self.deadly) else None
        pipe.send((blob, point))
        try:
            reply: bytes = pipe.recv()
        except EOFError:
            assert self._end() == KILLED
            self.deaths[key] += 1
            return None
        return reply

    def _start(self) -> Connection:
        here, there = Pipe()

        def act() -> None:
            here.close()
            live_and_die(self.site, there)

        self._child = start_child(act)
        there.close()
        self._pipe = here
        return here

    def _end(self) -> int:
        assert self._child is not None and self._pipe is not None
        self._pipe.close()
        how = wait_for_child(self._child)
        self._child = self._pipe = None
        return how

    def close(self) -> None:
        if self._child is not None:
            os.kill(self._child, signal.SIGKILL)
            self._end()


def live_and_die(site: SiteFolder, pipe: Connection) -> None:
    """Answer messages; each comes with the number of the point at which to die, or None."""
    points = Points(site.path)
    patch = pytest.MonkeyPatch()  # never undone because the process dies
    patch.setattr(Database, "commit", points.around(Database.commit))
    patch.setattr(Fourier, "encode", points.around(Fourier.encode))
    patch.setattr(os, "replace", points.around(os.replace))
    patch.setattr(os, "fsync", points.around(lambda file: None))  # without waiting
    with closing(site.open_ledger()) as ledger:
        host = Host(site, ledger)
        while True:
            try:
                blob, deadly = pipe.recv()
            except EOFError:
                return
            points.seen = 0
            points.deadly = deadly
            pipe.send(host.handle(blob))


def answering(simulation: Federation) -> Callable[[Event], None]:
    """Answer labeling tasks at every site in processes that open the ledger briefly."""

    def notify(event: Event) -> None:
        if event["event"] != "labels":
            return
        for name, site in simulation.sites.items():
            with closing(site.open_ledger()) as ledger:
                for question in ledger.tasks(state="open"):
                    ledger.answer(question.row, simulation.truth(name, question.row), "Ann")

    return notify


def features(site: SiteFolder) -> dict[str, bytes]:
    """Return the feature files of a site, by the digests of encoder and examples."""
    files = site.path.glob(f"{FEATURES}/*/{DATA}")
    return {file.parent.name: file.read_bytes() for file in files}


def check(
    tmp_path: Path,
    deadly: tuple[str, ...],
    config: ExperimentConfig = EXPERIMENT,
    data: Dataset | None = None,
) -> Counter[str]:
    """Check how often each instruction killed the site, and the results."""
    fresh = federation(tmp_path / "fresh", config, data or rows(NAMES[:3]), WAITS)
    fresh.close()
    whole = fresh.again(tmp_path / "whole")
    assert whole.program(answering(whole)).go()
    whole.close()

    simulation = fresh.again(tmp_path / "killed")
    simulation.ledgers.pop(VICTIM).close()
    killed = Killed(simulation.sites[VICTIM], deadly)
    simulation.transport.alive[VICTIM] = killed.handle
    with closing(killed):
        assert simulation.program(answering(simulation)).go()
    simulation.close()

    assert read_left(simulation) == read_left(whole)
    assert features(simulation.sites[VICTIM]) == features(whole.sites[VICTIM])
    n_encoded = 0 if config.encoder is None else 2  # its own examples and the test examples
    assert len(features(whole.sites[VICTIM])) == n_encoded
    return killed.deaths


@pytest.mark.long
def test_a_site_killed_in_its_encoding_and_in_a_masked_head_ends_with_the_same_bits(
    tmp_path: Path,
) -> None:
    deaths = check(tmp_path, ENCODING_AND_HEAD)
    handed_over = deaths.pop("0/initial/encode/0")
    assert handed_over > 6  # its feature file is written in addition to its ledger
    assert {"0/initial/encoder/0", "0/initial/encoder/1"} < set(deaths)  # keys, then sums
    assert {f"0/train/0/{turn}" for turn in range(4)} < set(deaths)  # keys and sums, twice
    assert min(deaths.values()) >= 6


@pytest.mark.soak
def test_a_site_killed_in_every_exchange_ends_with_the_same_bits(tmp_path: Path) -> None:
    deaths = check(tmp_path, EVERYTHING)
    assert sum(deaths.values()) > 150
