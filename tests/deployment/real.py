"""A coordinator and its sites as processes of this machine, started by the command line, and what
they must end with: what the same study in one process leaves."""

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
from fallow.deployment.agreement import Waits
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from fallow.transport.kinds import HTTPS
from tests.deployment.children import Child, free_port, start_command, wait_until
from tests.deployment.worlds import NAMES, Federation, federation, rows

SHORT = Recipe(
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
PAUSE = 0.5  # seconds between two looks of those who label
GOODBYE = 30.0  # seconds to end in order


@dataclass
class Real:
    """Processes by name: `LEADER` and the sites.  ``alike`` is the same study in one process."""

    folder: Path
    alike: Federation
    office: CoordinatorFolder
    sites: dict[str, SiteFolder]
    running: dict[str, Child] = field(default_factory=dict)
    done: Event = field(default_factory=Event)

    # -- processes --------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names:
            what = "coordinate" if name == LEADER else "site"
            path = str(self.folder / name)
            self.running[name] = start_command(self.log(name), what, "start", path)

    def kill(self, *names: str) -> None:
        """All at once, by force."""
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running.pop(name).wait()

    def signal(self, name: str, which: signal.Signals) -> None:
        self.running[name].send_signal(which)

    def finish(self, seconds: float) -> None:
        """Wait for the coordinator's end, which must be a good one."""
        try:
            code = self.running[LEADER].wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"not finished in {seconds} seconds:\n{self.told()}"
            ) from error
        assert code == 0, self.told()

    def close(self) -> None:
        """End everything; nobody may be left."""
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

    # -- what is seen -----------------------------------------------------------------------

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def text(self, name: str) -> str:
        return self.log(name).read_text() if self.log(name).exists() else ""

    def told(self) -> str:
        """The last words of everybody, for a failed assertion."""
        return "\n".join(f"-- {name}: {self.text(name)[-1500:]}" for name in self.running)

    def live(self) -> dict[str, Any]:
        try:
            result: dict[str, Any] = json.loads(
                (self.folder / LEADER / "live.json").read_bytes()
            )
        except FileNotFoundError:
            return {}
        return result

    def until_answered(self, key: str, site: str, seconds: float) -> None:
        """Wait until a site has answered an exchange whose key starts so."""
        try:
            wait_until(lambda: f"replied to {key}" in self.text(site), seconds, key)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from error

    def waited_for(self, site: str, seconds: float) -> float:
        """Seconds for which the next exchange that goes on without a site has waited for it."""
        seen: dict[str, Any] = {}

        def went_on() -> bool:
            since = self.live().get("sites", {}).get(site, {}).get("awaited")
            is_over = f"proceeded without {site}" in self.text(LEADER)
            if not is_over and since is not None:
                seen["since"] = since
            return is_over

        wait_until(went_on, seconds, "the exchange goes on")
        return time.time() - datetime.fromisoformat(seen["since"]).timestamp()

    # -- people -----------------------------------------------------------------------------

    def label(self) -> None:
        """Answer whatever is open, truly, until everything is done."""
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
"""What carries messages of a study in a folder; yields the address that each site calls."""


@contextmanager
def real(
    folder: Path,
    recipe: Recipe = SHORT,
    sites: int = 2,
    people: bool = True,
    transport: str = HTTPS,
    carry: Carry | None = None,
    **waits: Any,
) -> Iterator[Real]:
    """Folders of a coordinator and sites that were admitted; nothing runs yet but the people, and
    not even they with ``people=False``."""
    alike = federation(folder / "alike", recipe, rows(NAMES[:sites]))
    details = Waits(**{"timeout": 600.0, "patience": 1200.0, "deadline": 3600.0, **waits})
    agreed = alike.agreement
    address = f"127.0.0.1:{free_port()}"
    plan = coordinator.folder.StudyPlan(
        "hospitals", recipe, agreed.schema, agreed.sites, 0, details, 1, transport=transport
    )
    office = CoordinatorFolder.create(folder / LEADER, plan, address, ["127.0.0.1"])
    calling: Mapping[str, str] = dict.fromkeys(agreed.sites, address)
    with ExitStack() as stack:
        if carry is not None:
            calling = stack.enter_context(carry(folder, office))
        made = {name: joined(folder, name, office, calling[name]) for name in agreed.sites}
        result = Real(folder, alike, office, made)
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


def joined(folder: Path, name: str, office: CoordinatorFolder, address: str) -> SiteFolder:
    """The folder of a site with the same rows as ``alike``, admitted."""
    data, test = (str(folder / "alike" / f"{name}-{part}.csv") for part in ("rows", "test"))
    site = SiteFolder.create(
        folder / name,
        office.path / "study.toml",
        name=name,
        data=data,
        test=test,
        address=address,
        allow=office.names.allowed,
    )
    office.admit(folder / name / "join.json")
    return site


def assert_as_undisturbed(found: Real) -> None:
    """Records, questions, labels and weights are those of the study in one process."""
    assert found.alike.program().go()
    place = found.alike.program().cell.folder(Path())
    here = found.office.path / place
    there = found.alike.place / place
    assert records(here, found.office.agreement.code) == records(there)
    assert found.labels() == found.alike.labels()
    assert asked(found.sites) == asked(found.alike.sites)
    weights = {file.relative_to(there) for file in there.rglob("*.safetensors")}
    assert {file.relative_to(here) for file in here.rglob("*.safetensors")} == weights
    pairs = [(here / file, there / file) for file in weights]
    own = [Path(name, "model.safetensors") for name in found.sites]
    pairs += [(found.folder / file, found.alike.folder / file) for file in own]
    for one, other in pairs:
        assert_close(load_tree(one, one.parent), load_tree(other, other.parent), str(one))


def assert_close(one: Any, other: Any, where: str) -> None:
    """Trees of tensors are the same but for rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_close(one[name], other[name], f"{where}: {name}")
    elif isinstance(one, torch.Tensor):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9), where
    else:
        assert one == other, where


def records(place: Path, fingerprint: str = "") -> list[dict[str, Any]]:
    """Records without seconds and without the bytes of ``fingerprint``, which each site sends of the
    distributions that a study names."""
    result = []
    for line in (place / "records.jsonl").read_text().splitlines():
        record = {
            name: value for name, value in json.loads(line).items() if name != "seconds"
        }
        sent = len(fingerprint) * len(record["cohort"])
        record["bytes_up"] -= sent
        for part in record["revealed"]:
            if part["verb"] == "hello":
                part["bytes"] -= sent
        result.append(record)
    return result


def asked(sites: Mapping[str, SiteFolder]) -> dict[str, list[tuple[int, int]]]:
    """Which rows each site asked its people for, in which cycle; none may come twice."""
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
    """Processes of Flower that work for this folder, whoever started them."""
    home = f"FLWR_HOME={folder}/".encode()
    result = []
    for details in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if home in details.read_bytes():
                result.append(int(details.parent.name))
    return result
