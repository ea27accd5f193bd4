"""The mutation script, on a tree of one function and one test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "mutants.py"
TABLES = SCRIPT.parent / "faults"
CODE = "def double(x: int) -> int:\n    return 2 * x\n\n\ndef name() -> str:\n    return 'toy'\n"
TEST = """
from toy_of_mutants.numbers import double, name

def test_twice_two_is_four():
    assert double(2) == 4

def test_there_is_a_name():
    assert name()
"""
FILE, TESTS = "src/toy_of_mutants/numbers.py", ["tests/test_numbers.py"]
NOTICED: dict[str, object] = {
    "name": "three times",
    "file": FILE,
    "old": "2 * x",
    "new": "3 * x",
    "tests": TESTS,
}
OVERLOOKED: dict[str, object] = {
    "name": "another name",
    "file": FILE,
    "old": "'toy'",
    "new": "'yot'",
    "tests": TESTS,
}


def tree(folder: Path, *faults: dict[str, object], test: str = TEST) -> Path:
    """Return a package, its test and a table of faults."""
    files = {
        "src/toy_of_mutants/__init__.py": "",
        FILE: CODE,
        "tests/test_numbers.py": test,
        "scripts/faults/toy.toml": "".join(map(entry, faults)),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def entry(fault: dict[str, object]) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in fault.items()]
    return "\n".join(["[[fault]]", *lines, "", ""])


def mutants(root: Path, *words: str) -> tuple[int, str, str]:
    """Return exit code, output, and findings."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--root", str(root), *words],
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
def test_a_fault_that_a_test_notices_is_caught_and_the_tree_stays_as_it_was(
    tmp_path: Path,
) -> None:
    root = tree(tmp_path, NOTICED)
    code, output, wrong = mutants(root, "--json", str(tmp_path / "out.json"))
    assert (code, wrong) == (0, "")
    assert "1 of 1 faults caught" in output
    assert (root / FILE).read_text() == CODE
    summary = json.loads((tmp_path / "out.json").read_text())
    assert (summary["planted"], summary["caught"]) == (1, 1)
    assert summary["faults"][0]["outcome"] == "caught"


@pytest.mark.long
def test_a_fault_that_no_test_notices_fails_and_is_named(tmp_path: Path) -> None:
    code, output, _ = mutants(tree(tmp_path, NOTICED, OVERLOOKED))
    assert code == 1
    assert "survived: toy: another name (src/toy_of_mutants/numbers.py)" in output
    assert "1 of 2 faults caught" in output


@pytest.mark.long
def test_tests_that_fail_without_a_fault_show_nothing(tmp_path: Path) -> None:
    red = TEST + "\ndef test_that_fails():\n    assert double(2) == 5\n"
    code, _, wrong = mutants(tree(tmp_path, NOTICED, test=red))
    assert code == 2
    assert "the tests fail without any fault" in wrong


@pytest.mark.long
def test_a_test_that_is_skipped_catches_nothing(tmp_path: Path) -> None:
    head = "import pytest\nfrom toy_of_mutants.numbers import double\n\n"
    skipped = f"{head}@pytest.mark.skip\ndef test_twice():\n    assert double(2) == 4\n"
    assert mutants(tree(tmp_path, NOTICED, test=skipped))[0] == 1


@pytest.mark.long
def test_a_fault_of_the_same_length_is_not_hidden_by_bytecode(tmp_path: Path) -> None:
    """Check a fault of equal length, since bytecode caches use size and second only."""
    more = [{**NOTICED, "name": f"times {n}", "new": f"{n} * x"} for n in (3, 4, 5)]
    code, output, _ = mutants(tree(tmp_path, *more), "--jobs", "1")
    assert code == 0, output


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"old": "5 * x"},
            "toy: three times|occurs 0 times in src/toy_of_mutants/numbers.py",
        ),
        ({"old": "return"}, "occurs 2 times"),
        ({"new": "2 * x"}, "changes nothing"),
        ({"new": "2 *"}, "is no Python where it is planted"),
        ({"tests": []}, "at least one pytest id"),
        ({"tests": ["tests/test_none.py::test_a"]}, "names tests/test_none.py::test_a"),
        ({"file": "src/toy_of_mutants/none.py"}, "which is not there"),
        ({"file": "tests/test_numbers.py", "old": "== 4"}, "which is not below src"),
        ({"file": 3}, "file has to be a text"),
        ({"why": "more"}, "unknown ['why']"),
    ],
)
def test_a_wrong_fault_is_named_with_what_is_wrong(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    code, output, wrong = mutants(tree(tmp_path, {**NOTICED, **changed}))
    assert (code, output) == (2, "")
    assert len(wrong.strip().splitlines()) == 1
    assert all(part in wrong for part in why.split("|"))


def test_two_faults_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "each fault needs its own" in mutants(tree(tmp_path, NOTICED, NOTICED))[2]


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert "a list of [[fault]] entries" in mutants(root)[2]
    (root / "scripts/faults/toy.toml").write_text("[[fault]")
    assert "toy.toml is not valid TOML" in mutants(root)[2]


def test_a_sample_is_the_same_for_a_seed_and_another_for_another(tmp_path: Path) -> None:
    many = [{**NOTICED, "name": f"fault {n}", "new": f"{n} * x"} for n in range(3, 30)]
    root = tree(tmp_path, *many)
    first = mutants(root, "--check", "--sample", "5", "--seed", "a")
    assert first[0] == 0
    assert first[1].startswith("5 of 27 faults; sample of seed a\n")
    assert first == mutants(root, "--check", "--sample", "5", "--seed", "a")
    assert first[1] != mutants(root, "--check", "--sample", "5", "--seed", "b")[1]


def test_faults_are_chosen_by_a_part_of_their_name(tmp_path: Path) -> None:
    root = tree(tmp_path, NOTICED, OVERLOOKED)
    assert mutants(root, "--check", "--only", "three")[1].startswith("1 of 2 faults")
    assert "no fault has 'nine'" in mutants(root, "--check", "--only", "nine")[2]


@pytest.mark.long
def test_every_fault_of_this_repository_can_be_planted() -> None:
    code, output, wrong = mutants(SCRIPT.parents[1], "--check")
    assert (code, wrong) == (0, ""), output


def test_every_test_that_a_fault_names_exists() -> None:
    missing = []
    for table in sorted(TABLES.glob("*.toml")):
        for fault in tomllib.loads(table.read_text(encoding="utf-8"))["fault"]:
            for test in fault["tests"]:
                file, *parts = test.split("::")
                path = SCRIPT.parents[1] / file
                source = path.read_text(encoding="utf-8") if path.exists() else ""
                names = [part.partition("[")[0] for part in parts]
                is_there = all(
                    re.search(rf"(def|class) {name}\b", source) for name in names
                )
                if not source or not is_there:
                    missing.append(f"{fault['name']}: {test}")
    assert missing == []
