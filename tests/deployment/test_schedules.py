"""Test the coordinator and sites with ledgers under random schedules of faults.

A schedule contains crashes and lost, duplicated, late and damaged messages. Every run ends
with the results of an undisturbed run. The tests use 6 schedules, or 1,000 if FALLOW_SOAK
is set.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.core.events import Event
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import SiteId
from fallow.deployment.agreement import Timeouts
from fallow.deployment.building import BuiltStudy, build_study
from fallow.deployment.coordinator.labels import LabelWait
from fallow.deployment.coordinator.live import Control
from fallow.deployment.coordinator.sites import RemoteEnvironment, greet_sites
from fallow.deployment.coordinator.weights import SiteWeights
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.transport.checks import ResponseCheck
from fallow.transport.envelope import open_instruction
from fallow.transport.remote import RemoteChannel
from tests.deployment.loopback import Faults, Handle, Loopback
from tests.deployment.simulations import Federation, federation, rows
from tests.each import mark_long

TIMES = 168 if os.environ.get("FALLOW_SOAK") else 1
CALM = Faults()
STORM = Faults(
    lost=0.1, twice=0.2, damaged=0.02, dies_before=0.06, dies_after=0.06, late=8.0
)
CONFIG = TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05, momentum=0.9))
COMMON: dict[str, Any] = {
    "model": Spec("linear"),
    "training_config": CONFIG,
    "initial": 3,
    "budget": 2,
    "rounds": 1,
    "cycles": 1,
    "score_rounds": 1,
    "dtype": "float64",
    "standardize": "none",
}
SUMS = ExperimentConfig("storm", strategy=Spec("ahfal"), training=Spec("fedavg"), **COMMON)
RELAYS = ExperimentConfig(
    "storm",
    strategy=Spec("random"),
    training=Spec("dpfl", {"budget": 2}),
    validation=0.4,
    **COMMON,
)

STUDIES = {"sums": (SUMS, 4), "relays": (RELAYS, 2)}  # with numbers of schedules
RUN, LIVES = "0000000001-" + 16 * "a", 60


class Killed(BaseException):
    """Signal that the coordinator's process was killed."""


@dataclass
class Fate:
    """Decide when the coordinator dies and how fast annotators answer.

    The coordinator dies with a small probability whenever it sends, receives or prints, and
    at most a few times in all.
    """

    draw: np.random.Generator
    deaths: int = 3

    def strike(self) -> None:
        if self.deaths > 0 and self.draw.random() < 0.02:
            self.deaths -= 1
            raise Killed

    def hesitates(self) -> bool:
        return bool(self.draw.random() < 0.5)


@dataclass
class Mortal:
    """Wrap a transport so that its caller may die before and after each call."""

    transport: Loopback
    fate: Fate

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        self.fate.strike()
        self.transport.send(messages)
        self.fate.strike()

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        self.fate.strike()
        return self.transport.receive(seconds)

    def online(self) -> set[SiteId]:
        return self.transport.online()

    def close(self) -> None:
        self.transport.close()


@dataclass
class Coordinator:
    """Restart a coordinator after each crash, from the contents of its event log."""

    simulation: Federation
    parts: BuiltStudy
    path: Path
    transport: Loopback
    fate: Fate
    notify: Callable[[Event], None]
    lives: int = 0
    events: list[Event] = field(default_factory=list)

    def go(self) -> Any:
        while True:
            self.lives += 1
            assert self.lives < LIVES, self.events[-5:]
            event_log = EventLog(self.path)
            try:
                return self._life(event_log)
            except Killed:
                self.transport.close()  # messages in transit are lost with the process
            finally:
                event_log.close()

    def _life(self, event_log: EventLog) -> Any:
        agreed = self.simulation.agreement
        details = (agreed.digest, RUN, agreed.waits, self.tell)
        transport = Mortal(self.transport, self.fate)
        response_check = ResponseCheck()
        weights = SiteWeights(response_check)
        remote = RemoteChannel(
            transport,
            event_log,
            self.simulation.keys,
            *details,
            response_check,
            weights,
            clock=self.transport.clock,
        )
        greeted = greet_sites(self.parts, remote, event_log)
        clock, control = self.transport.clock, Control(self.path.parent / "control")
        label_wait = LabelWait(remote, event_log, control, 1e9, self.tell, clock, 0.0)
        sites = RemoteEnvironment(
            agreed, self.parts, remote, event_log, label_wait, greeted, weights
        )
        run = ExperimentRun(sites, event_log)
        run.go()
        return event_log.load_step(f"{agreed.config.cycles}/train")

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.fate.strike()
        self.notify(event)


@dataclass(frozen=True)
class Left:
    """Collect the results of a study."""

    model: dict[str, torch.Tensor]
    labels: dict[SiteId, list[Any]]
    lives: int
    deaths: int


class Weather:
    """Provide a federation that is reset and reused for every schedule."""

    def __init__(
        self, folder: Path, config: ExperimentConfig, quorum: int | None = None
    ) -> None:
        sites = ("basel", "chur", "davos")
        waits = Timeouts(timeout=60.0, patience=1e9, quorum=quorum)
        self.simulation = federation(folder, config, rows(sites, per_site=12), waits)
        self.parts, self.folder, self.numbers = (
            build_study(self.simulation.agreement),
            folder,
            count(),
        )

    def clear(self) -> None:
        self.simulation.close()
        self.simulation.ledgers.clear()
        for site in self.simulation.sites.values():
            for file in site.path.glob("ledger*"):
                file.unlink()

    def study(
        self, seed: int, faults: Faults = CALM, deaths: int = 0, shy: Shy | None = None
    ) -> Left:
        """Run one schedule."""
        self.clear()
        simulation, fate = self.simulation, Fate(np.random.default_rng([seed, 1]), deaths)

        def host(site: SiteId) -> Handle:
            return shy(site, simulation.host(site)) if shy else simulation.host(site)

        transport = Loopback(
            {site: host(site) for site in simulation.sites}, faults, seed, restart=host
        )
        path = self.folder / f"event-log-{next(self.numbers)}.sqlite"
        coordinator = Coordinator(
            simulation, self.parts, path, transport, fate, self.people(fate)
        )
        done = coordinator.go()
        self.check_ledgers()
        return Left(done["state"], simulation.labels(), coordinator.lives, transport.deaths)

    def people(self, fate: Fate) -> Callable[[Event], None]:
        """Answer labeling tasks over time, some of them twice."""

        def answer(event: Event) -> None:
            if event["event"] != "labels":
                return
            for site, ledger in self.simulation.ledgers.items():
                for question in ledger.tasks(state="open"):
                    if not (fate.deaths and fate.hesitates()):
                        ledger.answer(
                            question.row, self.simulation.truth(site, question.row), "Ann"
                        )
                        ledger.answer(
                            question.row, self.simulation.truth(site, question.row), "Ann"
                        )

        return answer

    def check_ledgers(self) -> None:
        """Check that no example was asked twice and no budget was exceeded."""
        for site in self.simulation.sites.values():
            with sqlite3.connect(site.path / "ledger.sqlite") as db:
                (twice,) = db.execute(
                    "SELECT count(*) - count(DISTINCT row) FROM task"
                ).fetchone()
                beyond = db.execute(
                    "SELECT * FROM request WHERE asked > allowed"
                ).fetchall()
                places = db.execute("SELECT position FROM exchange ORDER BY id").fetchall()
            db.close()
            assert twice == 0
            assert beyond == []
            assert places == sorted(places)
            assert len(set(places)) == len(places)


@pytest.fixture(scope="module", params=mark_long(STUDIES, ["relays"]))
def weather(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weather]:
    values = Weather(tmp_path_factory.mktemp(request.param), STUDIES[request.param][0])
    yield values
    values.simulation.close()


def check_same(result: Left, expected: Left, schedule: int) -> None:
    assert result.labels == expected.labels, schedule
    for name in ("w", "stats"):
        assert torch.equal(result.model[name], expected.model[name]), schedule


@pytest.mark.long
def test_every_schedule_ends_where_an_undisturbed_run_ends(
    weather: Weather, request: Any
) -> None:
    schedules = TIMES * STUDIES[request.node.callspec.params["weather"]][1]
    calm = weather.study(0)
    assert (calm.lives, calm.deaths) == (1, 0)
    assert all(len(labels) >= 5 for labels in calm.labels.values())
    lives = deaths = 0
    for seed in range(1, schedules + 1):
        result = weather.study(seed, STORM, 3)
        check_same(result, calm, seed)
        lives, deaths = lives + result.lives - 1, deaths + result.deaths
    assert min(lives, deaths) > schedules  # faults did occur


@dataclass(frozen=True)
class Shy:
    """Drop the replies of a site in some rounds of training. With ``performs``, the site
    still carries out the instruction, so that its state is ahead of the coordinator's."""

    performs: bool
    public: bytes
    rounds: tuple[int, ...]

    def __call__(self, site: SiteId, handle: Handle) -> Handle:
        keys = {f"{cycle}/train/{r}/0" for cycle in (0, 1) for r in self.rounds}

        def shy(blob: bytes) -> bytes | None:
            if site != "chur" or str(open_instruction(self.public, blob).key) not in keys:
                return handle(blob)
            if self.performs:
                handle(blob)
            return None

        return shy


@pytest.mark.long
@pytest.mark.parametrize("rounds", [(0, 2)], ids=str)
def test_what_a_site_did_too_late_is_as_if_it_had_never_been_asked(
    tmp_path: Path, rounds: tuple[int, ...]
) -> None:
    training_config = replace(CONFIG, optimizer=replace(CONFIG.optimizer, persist=True))
    weather = Weather(
        tmp_path, replace(SUMS, rounds=3, training_config=training_config), quorum=2
    )
    public = weather.simulation.agreement.coordinator
    late, never = (
        weather.study(0, shy=Shy(does, public, rounds)) for does in (True, False)
    )
    check_same(late, never, 0)
    assert not torch.equal(late.model["w"], weather.study(0).model["w"])
    weather.simulation.close()
