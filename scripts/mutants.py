"""Plants faults, one at a time, and fails where no test notices: ``python scripts/mutants.py``.

A fault is an entry of a table in ``scripts/faults``:

    [[fault]]
    name = "the digest of an agreement is not compared"     # a sentence, used once
    file = "src/fallow/deployment/site/folder.py"
    old = '''text that occurs once in the file'''
    new = '''the same with the fault'''
    tests = ["tests/deployment/test_folder.py::test_that_notices"]

Nothing is changed in the checkout: faults are planted in copies of the tree in a temporary folder.
First the named tests run there without any fault and must pass.  Then each fault is planted, its
tests run, and one of them must fail.  The exit code is 0 where every fault was caught, 1 where one
was not, and 2 where a table is wrong or tests fail without a fault.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
# what tests may look at
BESIDE = (
    *sorted(f"integrations/{path.name}" for path in REPOSITORY.glob("integrations/*")),
    "studies/fallow-papers",
)
"""Distributions beside the core."""
SOURCES = ("src", *(f"{folder}/src" for folder in BESIDE))
PLANTED = (*SOURCES, "deploy")
"""Folders whose files may have a fault."""
COPIED = (
    *SOURCES,
    *(f"{folder}/tests" for folder in BESIDE),
    *(f"{folder}/pyproject.toml" for folder in BESIDE),
    "tests",
    "bench",
    "deploy",
    "examples",
    "packages",
    "pyproject.toml",
)
LIMIT = 180.0  # seconds for the tests of one fault
WHOLE = 900.0  # seconds for all tests without a fault
TAIL = 30  # lines of what failing tests wrote
# exit codes of pytest
PASSED = 0
FAILED = 1
NOTHING_RAN = 5

# what becomes of a fault
CAUGHT = "caught"  # a test failed
SURVIVED = "survived"  # all passed, or none ran
HUNG = "hung"  # they did not end
BROKEN = "broken"  # no test could run
WHAT_CODES_MEAN = {PASSED: SURVIVED, FAILED: CAUGHT, NOTHING_RAN: SURVIVED}


class Wrong(Exception):
    """A table that cannot be used, in one sentence."""


@dataclass(frozen=True)
class Fault:
    """table: the file it stands in, without ``.toml``; ``file``: relative to the tree."""

    table: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table}: {self.name}"


@dataclass(frozen=True)
class Outcome:
    """Outcome of one planted fault."""

    fault: Fault
    what: str
    seconds: float
    output: str  # the end of what the tests wrote

    @property
    def is_good(self) -> bool:
        return self.what == CAUGHT


# -- tables ---------------------------------------------------------------------------------------


def read_tables(folder: Path) -> list[Fault]:
    """Every fault of every table, in the order of the tables' names."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise Wrong(f"{folder} has no tables of faults (*.toml)")
    faults: list[Fault] = []
    for file in files:
        faults += read_table(file)
    known: dict[str, Fault] = {}
    for fault in faults:
        if fault.name in known:
            raise Wrong(
                f"the name {fault.name!r} stands in {known[fault.name].table}.toml and in "
                f"{fault.table}.toml: each fault needs its own"
            )
        known[fault.name] = fault
    return faults


def read_table(file: Path) -> list[Fault]:
    """The faults of one table; Wrong for anything that is none."""
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Wrong(f"{file.name} is not valid TOML: {error}") from error
    entries = tree.get("fault")
    if set(tree) - {"fault"} or not isinstance(entries, list):
        raise Wrong(f"{file.name} has to be a list of [[fault]] entries and nothing else")
    return [_read_fault(file, number, entry) for number, entry in enumerate(entries, 1)]


def _read_fault(file: Path, number: int, entry: Any) -> Fault:  # any value of TOML
    what = f"fault {number} of {file.name}"
    if isinstance(entry.get("name"), str):
        what = f"the fault {entry['name']!r} of {file.name}"
    fields = {"name", "file", "old", "new", "tests"}
    if set(entry) != fields:
        lacking = sorted(fields - set(entry))
        unknown = sorted(set(entry) - fields)
        raise Wrong(
            f"{what} lacks {lacking or 'nothing'} and has unknown {unknown or 'nothing'}"
        )
    for name in ("name", "file", "old", "new"):
        if not isinstance(entry[name], str) or not (entry[name] or name == "new"):
            raise Wrong(f"{what}: {name} has to be a text that is not empty")
    tests = entry["tests"]
    is_list = isinstance(tests, list) and all(isinstance(test, str) for test in tests)
    if not is_list or not tests:
        raise Wrong(f"{what}: tests has to be a list of at least one pytest id or file")
    if entry["old"] == entry["new"]:
        raise Wrong(f"{what} changes nothing: old and new are the same")
    return Fault(
        name=entry["name"],
        file=entry["file"],
        old=entry["old"],
        new=entry["new"],
        tests=tuple(tests),
        table=file.stem,
    )


def plant(fault: Fault, root: Path) -> str:
    """The text of the file with the fault; Wrong where it cannot be planted."""
    path = root / fault.file
    if not any(path.resolve().is_relative_to((root / s).resolve()) for s in PLANTED):
        raise Wrong(
            f"{fault} is to be planted in {fault.file}, which is not below {' or '.join(PLANTED)}"
        )
    if not path.is_file():
        raise Wrong(f"{fault} is to be planted in {fault.file}, which is not there")
    for test in fault.tests:
        if not (root / test.partition("::")[0]).exists():
            raise Wrong(f"{fault} names {test}, which is not there")
    text = path.read_text(encoding="utf-8")
    many = text.count(fault.old)
    if many != 1:
        raise Wrong(
            f"{fault} cannot be planted: its old text occurs {many} times in {fault.file} and "
            "has to occur once"
        )
    text = text.replace(fault.old, fault.new)
    _check_python(fault, text)
    return text


def _check_python(fault: Fault, text: str) -> None:
    """Raise Wrong for what Python cannot read: a file that cannot be imported fails every test."""
    if fault.file.endswith(".py"):
        try:
            compile(text, fault.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Wrong(f"{fault} is no Python where it is planted: {error}") from error


def choose(faults: Sequence[Fault], many: int, seed: str) -> list[Fault]:
    """Draw a number of faults by the seed, in their order in the tables.

    The choice depends on each name alone, so that an added fault changes at most one of them.
    """

    def draw(fault: Fault) -> str:
        return hashlib.sha256(f"{seed}|{fault.name}".encode()).hexdigest()

    chosen = set(sorted(faults, key=draw)[:many])
    return [fault for fault in faults if fault in chosen]


def find_named(faults: Sequence[Fault], only: Sequence[str]) -> list[Fault]:
    """The faults whose name or table is one of these words; else those that contain one."""
    exact = []
    partial = []
    for fault in faults:
        if any(word in (fault.table, fault.name) for word in only):
            exact.append(fault)
        if any(word in str(fault) for word in only):
            partial.append(fault)
    named = exact or partial
    if not named:
        raise Wrong(f"no fault has {' or '.join(map(repr, only))} in its name")
    return named


def commit(root: Path) -> str:
    """The commit that is checked out, or "0" outside of a repository: a seed."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True
    )
    return done.stdout.strip() or "0"


# -- copies of the tree ---------------------------------------------------------------------------


class Copy:
    """A copy of a tree, in which one fault is planted at a time."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name, ignore=ignored)
            elif (root / name).exists():
                shutil.copy2(root / name, folder / name)
        # Bytecode is compared with its source by content, and stays so when it is written anew: by
        # time and size, as Python does by itself, a fault of the same length would be overlooked
        # within the same second.
        sources = [source for source in SOURCES if (folder / source).is_dir()]
        self._python(
            *("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *sources)
        )

    def check(self) -> None:
        """Raise Wrong unless tests here import the copy and not what is installed."""
        names = []
        for source in SOURCES:
            for path in (self.folder / source).glob("*/__init__.py"):
                names.append(path.parent.name)
        code = (
            "import sys; from importlib.util import find_spec\n"
            "for name in sys.argv[1:]: print(find_spec(name).origin)"
        )
        for line in self._python("-c", code, *names).stdout.splitlines():
            if not Path(line).resolve().is_relative_to(self.folder.resolve()):
                raise Wrong(f"tests would import {line} and not the copy of the tree")

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=True,
        )

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(str(self.folder / s) for s in SOURCES),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, tests: Iterable[str], limit: float) -> tuple[int | None, str]:
        """The exit code of pytest, None where it did not end in time, and what it wrote."""
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        # a file and no pipe: what tests left behind may hold on to it for ever
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*line, *tests],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                return None, f"not ended after {limit:g} seconds"
            finally:
                with suppress(ProcessLookupError):  # of tests that left something behind
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return process.returncode, output.read().decode(errors="replace")

    def try_fault(self, fault: Fault) -> Outcome:
        """Plant a fault, run its tests, and take it out again."""
        started = time.monotonic()
        path = self.folder / fault.file
        whole = path.read_bytes()
        path.write_text(plant(fault, self.folder), encoding="utf-8")
        try:
            code, output = self.run(fault.tests, LIMIT)
            if code is None:  # of a machine that was busy as of tests that wait for ever
                code, output = self.run(fault.tests, LIMIT)
        finally:
            path.write_bytes(whole)
        if code is None:
            what = HUNG
        else:
            what = WHAT_CODES_MEAN.get(code, BROKEN)
        return Outcome(fault, what, time.monotonic() - started, tail(output))


def tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL:])


# -- a run ----------------------------------------------------------------------------------------


def check_unplanted(copy: Copy, faults: Sequence[Fault]) -> float:
    """Run every named test once without a fault; the seconds it took."""
    tests: dict[str, None] = {}  # a set that keeps its order
    for fault in faults:
        tests |= dict.fromkeys(fault.tests)
    started = time.monotonic()
    code, output = copy.run(tests, WHOLE)
    if code != PASSED:
        raise Wrong(
            "the tests fail without any fault, so they show nothing; put them right first:\n"
            f"{tail(output)}"
        )
    return time.monotonic() - started


def try_all(copies: Sequence[Copy], faults: Sequence[Fault]) -> list[Outcome]:
    """Every fault once, each copy with one at a time; a line for each that is done."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)
    done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def one(fault: Fault) -> Outcome:
        copy = free.get()
        try:
            outcome = copy.try_fault(fault)
        finally:
            free.put(copy)
        done.put(outcome)
        line = f"{outcome.what:<8} {outcome.seconds:6.1f} s  {fault}"
        print(f"[{done.qsize():>3}/{len(faults)}] {line}", flush=True)
        return outcome

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(one, faults))


def show(outcomes: Sequence[Outcome]) -> None:
    """A table with a row for each table of faults, then every fault that was not caught."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.fault.table):
        rows.setdefault(outcome.fault.table, []).append(outcome)
    rows["all"] = list(outcomes)
    width = max(len("table"), max(len(table) for table in rows))
    print(f"\n{'table':<{width}}  faults  caught  not caught  seconds")
    for table, of_table in rows.items():
        caught = sum(outcome.is_good for outcome in of_table)
        seconds = sum(outcome.seconds for outcome in of_table)
        print(
            f"{table:<{width}}  {len(of_table):>6}  {caught:>6}  "
            f"{len(of_table) - caught:>10}  {seconds:>7.0f}"
        )
    for outcome in outcomes:
        if not outcome.is_good:
            fault = outcome.fault
            print(f"\n{outcome.what}: {fault} ({fault.file})\n  {' '.join(fault.tests)}")
            print("\n".join(f"  | {line}" for line in outcome.output.splitlines()))


def write(
    path: Path, outcomes: Sequence[Outcome], seed: str | None, seconds: float
) -> None:
    faults = [
        {
            "table": outcome.fault.table,
            "name": outcome.fault.name,
            "file": outcome.fault.file,
            "outcome": outcome.what,
            "seconds": round(outcome.seconds, 1),
        }
        for outcome in outcomes
    ]
    caught = sum(outcome.is_good for outcome in outcomes)
    tree = {
        "seed": seed,
        "planted": len(outcomes),
        "caught": caught,
        "seconds": round(seconds, 1),
        "faults": faults,
    }
    path.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Plant faults one at a time; fail where no test notices."
    )
    parser.add_argument(
        "--sample", type=int, help="try only so many faults, drawn by the seed"
    )
    parser.add_argument("--seed", help="of the sample; default: the commit")
    parser.add_argument(
        "--only", action="append", help="faults with this name, table, or part of it"
    )
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the tree")
    parser.add_argument("--faults", type=Path, help="tables; default: ROOT/scripts/faults")
    parser.add_argument(
        "--check", action="store_true", help="check the tables, list and stop"
    )
    options = parser.parse_args(words)
    for name in ("sample", "jobs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}; it has to be 1 or more")
    return options


def run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    root = options.root.resolve()
    every = read_tables(options.faults or root / "scripts" / "faults")
    for fault in every:
        plant(fault, root)
    faults = every
    if options.only:
        faults = find_named(faults, options.only)
    seed = None
    suffix = ""
    if options.sample is not None:
        seed = options.seed or commit(root)
        faults = choose(faults, options.sample, seed)
        suffix = f"; sample of seed {seed}"
    print(f"{len(faults)} of {len(every)} faults{suffix}", flush=True)
    if options.check:
        for fault in faults:
            print(fault)
        return 0

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        many = min(options.jobs, len(faults))
        copies = [Copy(root, Path(folder) / str(number) / "tree") for number in range(many)]
        copies[0].check()
        print("running their tests without a fault", flush=True)
        seconds = check_unplanted(copies[0], faults)
        print(f"without a fault their tests pass ({seconds:.0f} s)", flush=True)
        outcomes = try_all(copies, faults)

    whole = time.monotonic() - started
    show(outcomes)
    caught = sum(outcome.is_good for outcome in outcomes)
    print(f"\n{caught} of {len(outcomes)} faults caught, in {whole:.0f} s")
    if options.json:
        write(options.json, outcomes, seed, whole)
    if caught < len(outcomes):
        return 1
    return 0


def main(words: Sequence[str] | None = None) -> int:
    # So that the temporary folder goes, whoever ends this.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return run(parse(words))
    except Wrong as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
