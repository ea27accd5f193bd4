"""Kill processes of a live study forty times; it ends bit for bit as an undisturbed one.

Three hospitals, a coordinator and annotators are processes on this machine and communicate
over HTTPS. At moments drawn from a seed some of them are killed (SIGKILL) and restarted, as
a service manager would do. ``make soak`` runs this test first and prints what was killed
and when. `FALLOW_KILLS` sets the number of kills, `FALLOW_KILL_SEED` sets their times and
targets.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.privacy.settings import Privacy
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from tests.deployment.children import REPOSITORY, wait_until
from tests.deployment.labeler import SAVED_FILE, TRUTH
from tests.deployment.real import LEADER, SHORT, Real, asked, real, records
from tests.deployment.simulations import NAMES

pytest.importorskip("uvicorn")
pytest.importorskip("opendp")
pytestmark = [pytest.mark.processes, pytest.mark.soak]

KILLS = int(os.environ.get("FALLOW_KILLS", "40"))
SEED = int(os.environ.get("FALLOW_KILL_SEED", "0"))
SITES = NAMES[:3]
PEOPLE = "annotators"
PATIENCE = 900.0  # seconds for the next exchange; a busy machine takes minutes after a kill
EPSILON, CYCLES, INITIAL, PER_CYCLE = 0.5, 3, 4, 3
STUDY = replace(
    SHORT,
    # Noise is drawn by the operating system and differs between runs. AHFAL releases noisy
    # counts. With toggle="always" they do not affect selections, so that runs can be
    # compared bit for bit.
    strategy=Spec("ahfal", {"toggle": "always"}),
    privacy=Privacy(epsilon=EPSILON),
    initial=INITIAL,
    budget=PER_CYCLE,
    cycles=CYCLES,
    rounds=2,
)
NOISY = "sigma"
"""Field of a record that depends on the noise: the spread of noisy counts."""
PHASES = {
    "hello": "meeting",
    "ask": "asking people",
    "close": "labeling",
    "finish": "last model",
    "score": "scoring",
    "evaluate": "scoring",
    "train": "training",
    "query": "selecting examples",
    "initial": "selecting examples",
}
"""Phase until an exchange is answered, by the first of these words in its key."""
PROCESSES = {  # processes that are killed together, with probabilities
    "the coordinator": 0.30,
    "a site": 0.35,
    "the coordinator and a site": 0.15,
    "two sites": 0.10,
    "the people": 0.10,
}


@dataclass(frozen=True)
class Kill:
    """Describe one kill: the exchanges answered before it (``after``), the delay from then
    in seconds (``late``), and the seconds until the processes are restarted (``away``)."""

    after: int
    late: float
    away: float
    kind: str
    victims: tuple[str, ...]


@dataclass
class Outcome:
    """Describe what happened to a study whose processes were killed repeatedly."""

    phases: Counter[str] = field(default_factory=Counter)
    kind: Counter[str] = field(default_factory=Counter)
    processes: int = 0


def timetable(exchanges: int, kills: int, seed: int) -> list[Kill]:
    """Return kills at random times of a study with this number of exchanges, in order."""
    draw = np.random.default_rng(seed)
    result = []
    for after in sorted(draw.integers(0, exchanges - 1, kills).tolist()):
        victim = str(draw.choice(list(PROCESSES), p=list(PROCESSES.values())))
        sites = draw.permutation(SITES).tolist()
        victims = {
            "the coordinator": (LEADER,),
            "a site": (sites[0],),
            "the coordinator and a site": (LEADER, sites[0]),
            "two sites": (sites[0], sites[1]),
            "the people": (PEOPLE,),
        }[victim]
        late = float(draw.uniform(0, 2))
        away = float(draw.uniform(0, 2))
        result.append(Kill(after, late, away, victim, victims))
    return result


def answered(study: Real) -> list[str]:
    """Return the exchanges that any site has answered, in order and without repeats."""
    result: dict[str, None] = {}
    for site in SITES:
        keys = re.findall(r"^replied to (\S+) ", study.text(site), re.MULTILINE)
        result |= dict.fromkeys(keys)
    return list(result)


def phase(key: str) -> str:
    """Return the phase that ends when the exchange with this key is answered."""
    words = re.split("[/#]", key)
    return next((what for word, what in PHASES.items() if word in words), words[0])


# -- processes -----------------------------------------------------------------------------


def start(study: Real, name: str) -> None:
    if name != PEOPLE:
        study.start(name)
        return
    with study.log(PEOPLE).open("ab") as out:
        study.running[PEOPLE] = subprocess.Popen(
            [sys.executable, "-m", "tests.deployment.labeler", str(study.folder)],
            cwd=REPOSITORY,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def hospitals(folder: Path) -> Iterator[Real]:
    """Set up all folders and annotators without starting any process."""
    with real(folder, STUDY, len(SITES), people=False) as study:
        truth = {
            site: [int(study.alike.truth(site, row)) for row in range(len(details.rows.x))]
            for site, details in study.sites.items()
        }
        (folder / TRUTH).write_text(json.dumps(truth))
        yield study


def run_through(study: Real, kills: list[Kill], instruction: list[str]) -> Outcome:
    """Run a study from beginning to end and kill processes according to the timetable.

    ``instruction`` has the exchanges of an undisturbed run, which define the moments. A fast
    machine may end the study before the last moments, which are up to two seconds after an
    exchange.
    """
    output = Outcome()
    position = {key: at for at, key in enumerate(instruction)}
    for name in (LEADER, *SITES, PEOPLE):
        start(study, name)

    def reached() -> int:
        """Return the number of exchanges completed so far, as known to any site."""
        return 1 + max(
            (position[key] for key in answered(study) if key in position), default=-1
        )

    def has_reached(exchanges: int) -> bool:
        return reached() >= exchanges

    for number, kill in enumerate(kills, 1):
        wait_until(
            partial(has_reached, kill.after),
            PATIENCE,
            f"kill {number} after {kill.after} exchanges: {study.read_logs()}",
        )
        time.sleep(kill.late)
        if study.running[LEADER].poll() == 0:
            print(f"the study ended before kill {number}", flush=True)
            break
        going_on = phase(instruction[min(reached(), len(instruction) - 1)])
        output.phases[going_on] += 1
        output.kind[kill.kind] += 1
        output.processes += len(kill.victims)
        for name in kill.victims:
            assert study.running[name].poll() is None, (
                f"{name} has ended: {study.read_logs()}"
            )
        study.kill(*kill.victims)
        print(
            f"kill {number}: {kill.kind} ({', '.join(kill.victims)}), {going_on}",
            flush=True,
        )
        time.sleep(kill.away)
        for name in kill.victims:
            start(study, name)
    study.finish(PATIENCE)
    return output


# -- results of a study --------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """Collect the results of a study: all tensors written (``models``), the labeling tasks
    as rows and cycles (``tasks``), the labels of each ledger (``labels``), epsilon
    (``spent``) and the labeling tasks charged to the budget (``bought``)."""

    models: dict[str, Any]
    records: list[dict[str, Any]]
    tasks: dict[str, list[tuple[int, int]]]
    labels: dict[str, list[Any]]
    spent: dict[str, float]
    bought: dict[str, int]


def left(study: Real) -> Left:
    run_folder = study.coordinator_folder.path / study.alike.program().cell.folder(Path())
    files = {
        str(file.relative_to(run_folder)): file
        for file in run_folder.rglob("*.safetensors")
    }
    files |= {name: study.folder / name / "model.safetensors" for name in SITES}
    spent = {}
    bought = {}
    for name, site in study.sites.items():
        with closing(site.open_ledger()) as ledger:
            spent[name] = ledger.store.sum_spent()
            bought[name] = ledger.requests.asked
    return Left(
        models={name: load_tree(file, file.parent) for name, file in sorted(files.items())},
        records=[without_noise(record) for record in records(run_folder)],
        tasks=asked(study.sites),
        labels=study.labels(),
        spent=spent,
        bought=bought,
    )


def without_noise(record: dict[str, Any]) -> dict[str, Any]:
    notes = {name: note for name, note in record["notes"].items() if name != NOISY}
    return {**record, "notes": notes}


def different(one: Any, other: Any, where: str) -> Iterator[str]:
    """Return the places where two trees differ in any bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        is_same = one.dtype == other.dtype and torch.equal(one, other)
        if not is_same:
            yield where
    elif isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            yield f"{where}: {sorted(one)} and {sorted(other)}"
            return
        for name in one:
            yield from different(one[name], other[name], f"{where}/{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from different(*pair, f"{where}/{at}")
    elif one != other:
        yield f"{where}: {one!r:.60} and {other!r:.60}"


def acknowledged(study: Real) -> list[tuple[str, int, float]]:
    """Return the labels whose storage was acknowledged, as site, row and label."""
    lines = (study.folder / SAVED_FILE).read_text().splitlines()
    result = [line.split() for line in lines]
    return [(site, int(row), float(value)) for site, row, value in result]


def missing(study: Real) -> list[tuple[str, int, float]]:
    """Return the acknowledged labels that are in no ledger."""
    lost = []
    for name, site in study.sites.items():
        with closing(site.open_ledger()) as ledger:
            for owner, row, value in acknowledged(study):
                output = [answer.value for answer in ledger.history(row)]
                if owner == name and value not in output:
                    lost.append((owner, row, value))
    return lost


def test_a_study_killed_at_forty_moments_ends_bit_for_bit_as_one_that_nobody_disturbed(
    tmp_path: Path,
) -> None:
    begun = time.monotonic()
    with hospitals(tmp_path / "whole") as whole:
        run_through(whole, [], [])
        instruction = answered(whole)
        expected = left(whole)
    undisturbed = time.monotonic() - begun
    print(f"undisturbed: {len(instruction)} exchanges, {undisturbed:.0f} s", flush=True)
    print(*instruction, flush=True)

    begun = time.monotonic()
    with hospitals(tmp_path / "killed") as killed:
        through = run_through(killed, timetable(len(instruction), KILLS, SEED), instruction)
        result = left(killed)
        lost = missing(killed)
        value = len(acknowledged(killed))
    seconds = time.monotonic() - begun

    print(
        f"killed: {sum(through.kind.values())} times, {through.processes} processes, {seconds:.0f} s"
    )
    print(f"who: {dict(through.kind)}")
    print(f"while: {dict(through.phases)}")
    print(f"models compared: {len(result.models)}; records: {len(result.records)}")
    print(f"answers acknowledged: {value}; lost: {len(lost)}", flush=True)

    assert not lost
    assert sum(through.kind.values()) >= 0.9 * KILLS
    assert list(different(expected.models, result.models, "models")) == []
    assert list(different(expected.records, result.records, "records")) == []
    assert result.tasks == expected.tasks
    assert result.labels == expected.labels
    allowed = INITIAL + CYCLES * PER_CYCLE
    assert result.bought == expected.bought == dict.fromkeys(SITES, allowed)
    agreed = pytest.approx(CYCLES * EPSILON)
    assert result.spent == expected.spent == dict.fromkeys(SITES, agreed)


def test_a_timetable_is_the_same_for_the_same_seed_and_stays_within_the_study() -> None:
    kills = timetable(30, 40, seed=1)
    assert kills == timetable(30, 40, seed=1) != timetable(30, 40, seed=2)
    assert len(kills) == 40
    assert all(0 <= kill.after < 29 for kill in kills)
