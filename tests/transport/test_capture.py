"""Search the real network traffic of a site for a planted row, planted names and labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread

import pytest

from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.deployment import coordinator
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.transport.envelope import Reply, open_reply
from fallow.transport.kinds import HTTPS
from tests.deployment.children import free_port, wait_until
from tests.deployment.planted import (
    FOLDER,
    LEAKY,
    PLANTED,
    found_in,
    install_leaky,
    label,
    labels_of,
    planted,
    rows_of,
)
from tests.deployment.real import LEADER, PAUSE, Real
from tests.transport.capture import Tap, everything, messages, tapped

OTHER, FIRST = "chur", 8  # examples that come with labels
LONG = 900.0  # seconds; a busy machine takes minutes
STUDY = ExperimentConfig(
    "alps",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("entropy"),
    initial=0,
    budget=10,  # annotations of five examples
    rounds=1,
    cycles=1,
    score_rounds=1,
    dtype="float64",
)


@dataclass
class Captured:
    """Collect the recorded traffic of each site of a study and the sites' folders."""

    taps: dict[str, Tap]
    study: Real

    @property
    def site(self) -> SiteFolder:
        return self.study.sites[PLANTED]

    def replies(self) -> list[Reply]:
        """Return every reply of the planted site, opened."""
        known = self.site.keys.verify
        sent = messages(everything(self.taps[PLANTED].up()))
        return [open_reply(known, message, PLANTED) for message in sent]

    def answered(self) -> set[str]:
        """Return the exchanges that the planted site has completed."""
        with suppress(ValueError):
            return {str(reply.key) for reply in self.replies()}
        return set()

    def has(self, key: str) -> bool:
        """Return whether the planted site has completed an exchange."""
        assert self.study.running[LEADER].poll() is None, self.study.read_logs()
        return key in self.answered()

    def find_traces(self) -> list[str]:
        """Return the planted values in all traffic of the site."""
        streams = [
            stream for tap in self.taps.values() for stream in (*tap.up(), *tap.down())
        ]
        replies = [
            {"key": reply.key and reply.key.to_dict(), "body": reply.body}
            for reply in self.replies()
        ]
        with closing(self.site.open_ledger()) as ledger:
            rows = rows_of(self.site, ledger)
            labels = labels_of(ledger)
        outside = b"".join(tap.outside() for tap in self.taps.values())
        return found_in(everything(streams) + outside, replies, rows, labels)


@contextmanager
def captured(
    folder: Path,
    config: ExperimentConfig,
    until: str | None = None,
    policy: NamePolicy = BUILT_IN,
    transport: str = HTTPS,
) -> Iterator[Captured]:
    """Run a study of two sites, each a process that reaches its coordinator through a tap.

    until: the key of an exchange, after whose reply the study is stopped.
    """
    folder = folder / FOLDER
    (folder / "alike").mkdir(parents=True)
    both = (OTHER, PLANTED)
    alike = planted(folder / "alike", config, names=both, first=FIRST, policy=policy)
    schema = alike.agreement.schema
    port = free_port()
    done = Event()
    waits = replace(alike.agreement.waits, timeout=2 * LONG, patience=2 * LONG)
    plan = coordinator.folder.StudyPlan(
        "alps",
        config,
        schema,
        (OTHER, PLANTED),
        0,
        waits,
        transport=transport,
        plan=AnswerPlan(answers=2, send_agreement=True),
    )
    coordinator_folder = CoordinatorFolder.create(
        folder / LEADER, plan, f"127.0.0.1:{port}", ["127.0.0.1"]
    )
    study = Real(folder, alike, coordinator_folder, {})
    people = Thread(target=label_all, args=(study, done), daemon=True)
    with ExitStack() as stack:
        taps = {
            name: stack.enter_context(tapped(coordinator_folder.tls, port))
            for name in plan.sites
        }
        for name, tap in taps.items():
            study.sites[name] = joined(study, name, tap.address)
        people.start()
        capture = Captured(taps, study)
        try:
            study.start(LEADER, *taps)
            if until is None:
                study.finish(LONG)
            else:
                wait_until(lambda: capture.has(until), LONG, until)
        finally:
            study.close()
            done.set()
            people.join()
            alike.close()
        yield capture


def joined(study: Real, name: str, address: str) -> SiteFolder:
    """Return the admitted folder of a site with the examples of ``alike``."""
    same = study.alike.sites[name]
    data, test = (
        str(same.path / str(file)) for file in (same.settings.data, same.settings.test)
    )
    site = SiteFolder.create(
        study.folder / name,
        study.coordinator_folder.path / "study.toml",
        name=name,
        data=data,
        test=test,
        allow=study.coordinator_folder.names.allowed,
        address=address,
    )
    study.coordinator_folder.admit(site.path / "join.json")
    return site


def label_all(study: Real, done: Event) -> None:
    while not done.wait(PAUSE):
        for name, site in study.sites.items():
            if site.ledger_path.exists():
                with closing(site.open_ledger()) as ledger:
                    label(name, ledger, study.alike.agreement.schema)


@contextmanager
def one_cycle(folder: Path, transport: str) -> Iterator[Captured]:
    """Stop once labels are entered, because later traffic repeats earlier traffic."""
    with captured(folder, STUDY, "0/query/close/0", transport=transport) as capture:
        yield capture


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    with one_cycle(tmp_path_factory.mktemp("capture"), HTTPS) as capture:
        yield capture


@pytest.mark.long
@pytest.mark.processes
def test_no_row_no_name_and_no_label_leaves_a_site_over_the_real_wire(
    quiet: Captured,
) -> None:
    assert quiet.find_traces() == []
    with closing(quiet.site.open_ledger()) as ledger:
        (replies,) = {len(task.answers) for task in ledger.tasks(state="answered")}
    assert replies == 2


@pytest.mark.long
@pytest.mark.processes
def test_every_answer_of_the_site_was_on_the_wire_and_nobody_outside_reads_it(
    quiet: Captured,
) -> None:
    tap = quiet.taps[PLANTED]
    output = quiet.replies()
    with closing(quiet.site.open_ledger()) as ledger:
        answered = sum(line["exchanges"] for line in ledger.instructions.traffic())
    lasting = {key for key in quiet.answered() if not key.startswith("progress/")}
    assert (
        answered - 1 <= len(lasting) <= answered
    )  # the last one may not have been sent yet
    assert all(reply.refused is None for reply in output)
    assert PLANTED.encode() in everything(tap.up())
    assert PLANTED.encode() not in tap.outside()
    assert len(tap.outside()) > sum(map(len, (*tap.up(), *tap.down())))


@pytest.mark.processes
@pytest.mark.soak
def test_nothing_of_it_leaves_in_a_study_to_its_end(tmp_path: Path) -> None:
    with captured(tmp_path, STUDY) as outcome:
        assert outcome.find_traces() == []
        assert "model/finish/0" in outcome.answered()


@pytest.mark.processes
@pytest.mark.soak
@pytest.mark.parametrize("what", ["rows", "labels"])
def test_a_site_that_does_send_a_row_or_labels_is_found(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    policy = install_leaky(installed, monkeypatch)
    places = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    leaky = Spec(f"{LEAKY}:Leaky", {"what": what})
    with captured(tmp_path, replace(STUDY, strategy=leaky), policy=policy) as values:
        assert any(line.startswith(what.removesuffix("s")) for line in values.find_traces())
