"""Run a coordinator and its sites as processes started by the command line. Their results
must equal those of the same study in one process."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.deployment import coordinator
from fallow.deployment.agreement import Timeouts
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from fallow.transport.kinds import HTTPS
from tests.deployment.children import Child, free_port, start_command, wait_until
from tests.deployment.simulations import NAMES, Federation, federation, rows

SHORT = ExperimentConfig(
    "short",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("entropy"),
    initial=4,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
    standardize="none",
    dtype="float64",
)
LONGER = replace(SHORT, rounds=4)
LEADER = "coordinator"
PAUSE = 0.5  # seconds between two checks for open labeling tasks
GOODBYE = 30.0  # seconds for an orderly shutdown


@dataclass
class Real:
    """Processes by name: `LEADER` and sites. ``alike``: the same study in one process."""

    folder: Path
    alike: Federation
    coordinator_folder: CoordinatorFolder
    sites: dict[str, SiteFolder]
    running: dict[str, Child] = field(default_factory=dict)
    done: Event = field(default_factory=Event)

    # -- processes -------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names:
            what = "coordinate" if name == LEADER else "site"
            path = str(self.folder / name)
            self.running[name] = start_command(self.log(name), what, "start", path)

    def kill(self, *names: str) -> None:
        """Kill all named processes with SIGKILL."""
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running.pop(name).wait()

    def signal(self, name: str, which: signal.Signals) -> None:
        self.running[name].send_signal(which)

    def finish(self, seconds: float) -> None:
        """Wait for the coordinator to finish successfully."""
        try:
            code = self.running[LEADER].wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"not finished in {seconds} seconds:\n{self.read_logs()}"
            ) from error
        assert code == 0, self.read_logs()

    def close(self) -> None:
        """Stop all processes and check that none is left."""
        self.done.set()
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(GOODBYE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        wait_until(lambda: not belonging(self.folder), GOODBYE, "no process is left")

    # -- observations ----------------------------------------------------------------------

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def text(self, name: str) -> str:
        return self.log(name).read_text() if self.log(name).exists() else ""

    def read_logs(self) -> str:
        """Return the last output of every process, for a failed assertion."""
        return "\n".join(f"-- {name}: {self.text(name)[-1500:]}" for name in self.running)

    def live(self) -> dict[str, Any]:
        try:
            result: dict[str, Any] = json.loads(
                (self.folder / LEADER / "live.json").read_bytes()
            )
        except FileNotFoundError:
            return {}
        return result

    def until_replied(self, key: str, site: str, seconds: float) -> None:
        """Wait until a site has answered an exchange whose key starts with this prefix."""
        try:
            wait_until(lambda: f"replied to {key}" in self.text(site), seconds, key)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.read_logs()}") from error

    def waited_for(self, site: str, seconds: float) -> float:
        """Return how long the next exchange that proceeds without a site waited for it."""
        seen: dict[str, Any] = {}

        def went_on() -> bool:
            since = self.live().get("sites", {}).get(site, {}).get("awaited")
            is_over = f"proceeded without {site}" in self.text(LEADER)
            if not is_over and since is not None:
                seen["since"] = since
            return is_over

        wait_until(went_on, seconds, "the exchange goes on")
        return time.time() - datetime.fromisoformat(seen["since"]).timestamp()

    # -- annotators ------------------------------------------------------------------------

    def label(self) -> None:
        """Answer open labeling tasks with the true labels until the study ends."""
        while not self.done.wait(PAUSE):
            for name, site in self.sites.items():
                if site.ledger_path.exists():
                    with closing(site.open_ledger()) as ledger:
                        for question in ledger.tasks(state="open"):
                            ledger.answer(
                                question.row, self.alike.truth(name, question.row), "Ann"
                            )

    def labels(self) -> dict[str, list[Any]]:
        result = {}
        for name, site in sorted(self.sites.items()):
            with closing(site.open_ledger()) as ledger:
                result[name] = ledger.store.load_labels(name)
        return result


Carry = Callable[[Path, CoordinatorFolder], AbstractContextManager[Mapping[str, str]]]
"""Transport of a study in a folder; yields the address that each site calls."""


@contextmanager
def real(
    folder: Path,
    config: ExperimentConfig = SHORT,
    sites: int = 2,
    people: bool = True,
    transport: str = HTTPS,
    carry: Carry | None = None,
    **waits: Any,
) -> Iterator[Real]:
    """Create folders of a coordinator and admitted sites. Only the annotators run, and not
    even they with ``people=False``."""
    alike = federation(folder / "alike", config, rows(NAMES[:sites]))
    details = Timeouts(
        **{"timeout": 600.0, "patience": 1200.0, "deadline": 3600.0, **waits}
    )
    agreed = alike.agreement
    address = f"127.0.0.1:{free_port()}"
    plan = coordinator.folder.StudyPlan(
        "hospitals", config, agreed.schema, agreed.sites, 0, details, transport=transport
    )
    coordinator_folder = CoordinatorFolder.create(
        folder / LEADER, plan, address, ["127.0.0.1"]
    )
    calling: Mapping[str, str] = dict.fromkeys(agreed.sites, address)
    with ExitStack() as stack:
        if carry is not None:
            calling = stack.enter_context(carry(folder, coordinator_folder))
        made = {
            name: joined(folder, name, coordinator_folder, calling[name])
            for name in agreed.sites
        }
        result = Real(folder, alike, coordinator_folder, made)
        labeling = Thread(target=result.label, daemon=True)
        if people:
            labeling.start()
        try:
            yield result
        finally:
            result.close()
            if people:
                labeling.join()
            alike.close()


def joined(
    folder: Path, name: str, coordinator_folder: CoordinatorFolder, address: str
) -> SiteFolder:
    """Return the admitted folder of a site with the same examples as ``alike``."""
    data, test = (str(folder / "alike" / f"{name}-{part}.csv") for part in ("rows", "test"))
    site = SiteFolder.create(
        folder / name,
        coordinator_folder.path / "study.toml",
        name=name,
        data=data,
        test=test,
        address=address,
        allow=coordinator_folder.names.allowed,
    )
    coordinator_folder.admit(folder / name / "join.json")
    return site


def assert_as_undisturbed(real: Real) -> None:
    """Check that all results equal those of the study in one process."""
    assert real.alike.program().go()
    folder = real.alike.program().cell.folder(Path())
    here = real.coordinator_folder.path / folder
    there = real.alike.coordinator_folder / folder
    assert records(here, real.coordinator_folder.agreement.code) == records(there)
    assert real.labels() == real.alike.labels()
    assert asked(real.sites) == asked(real.alike.sites)
    weights = {file.relative_to(there) for file in there.rglob("*.safetensors")}
    assert {file.relative_to(here) for file in here.rglob("*.safetensors")} == weights
    pairs = [(here / file, there / file) for file in weights]
    own = [Path(name, "model.safetensors") for name in real.sites]
    pairs += [(real.folder / file, real.alike.folder / file) for file in own]
    for one, other in pairs:
        assert_close(load_tree(one, one.parent), load_tree(other, other.parent), str(one))


def assert_close(one: Any, other: Any, where: str) -> None:
    """Check that trees of tensors are equal up to rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_close(one[name], other[name], f"{where}: {name}")
    elif isinstance(one, torch.Tensor):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9), where
    else:
        assert one == other, where


def records(folder: Path, fingerprint: str = "") -> list[dict[str, Any]]:
    """Return the records without times and without the bytes of ``fingerprint``, which each
    site sends for the distributions that a study names."""
    result = []
    for line in (folder / "records.jsonl").read_text().splitlines():
        record = {
            name: value for name, value in json.loads(line).items() if name != "seconds"
        }
        sent = len(fingerprint) * len(record["cohort"])
        record["bytes_up"] -= sent
        for part in record["revealed"]:
            if part["function"] == "hello":
                part["bytes"] -= sent
        result.append(record)
    return result


def asked(sites: Mapping[str, SiteFolder]) -> dict[str, list[tuple[int, int]]]:
    """Return the rows that each site asked for, by cycle; none may repeat."""
    result = {}
    for name, site in sites.items():
        with closing(site.open_ledger()) as ledger:
            result[name] = sorted(
                (question.row, question.cycle) for question in ledger.tasks()
            )
        rows = [row for row, _ in result[name]]
        assert len(set(rows)) == len(rows), f"{name} asked twice: {result[name]}"
    return result


def belonging(folder: Path) -> list[int]:
    """Return the Flower processes that work for this folder, whoever started them."""
    home = f"FLWR_HOME={folder}/".encode()
    result = []
    for details in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # the process has ended or belongs to another user
            if home in details.read_bytes():
                result.append(int(details.parent.name))
    return result
