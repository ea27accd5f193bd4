"""Import time of commands, and memory of workers."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pydantic", "flwr", "fastapi"}
CODE = """
import sys
from fallow.cli import main
known = set()
for words in {commands!r}:
    sys.argv = ["fallow", *words]
    try:
        main()
    except SystemExit as ended:
        assert ended.code in (0, 2), (words, ended.code)
    heavy = {heavy!r} & set(sys.modules)
    for name in sorted(heavy - known):
        print("loads:", name, "by", *words)
    known = heavy
print("commands:", len({commands!r}))
"""


def loaded(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.rpartition("loaded:")[2].split()


COMMANDS: list[list[str]] = [
    [],
    ["--version"],
    ["--help"],
    ["compare", "--help"],
    ["coordinate", "--help"],
    ["coordinate", "init", "--help"],
    ["site", "start", "--help"],
    ["label", "--help"],
    ["comparr"],
    ["compare", "demo", "--strategy", "random,entrpy"],
    ["compare", "dmo"],
    ["run", "dmo", "--strategy", "random"],
    ["run", "unknown/cifar"],
    ["run", "demo", "--strategy", "entrpy"],
    ["run", "demo", "--set", "strategy=entrpy"],
    ["compare", "demo", "--set", "strategies=random,entrpy"],
    [
        "coordinate",
        "init",
        "dmo",
        "--recipe",
        "dmo",
        "--sites",
        "a,b",
        "--example",
        "a.csv",
    ],
    ["benchmark", "--method", "entrpy"],
    ["run", "missing.toml"],
    ["compare", "missing.toml"],
]


def test_help_version_and_wrong_arguments_load_nothing_heavy() -> None:
    """Run all commands in one process and name the first that imports a heavy package."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(commands=COMMANDS, heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"commands: {len(COMMANDS)}" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("loads:")] == []


def test_a_worker_of_a_study_loads_no_statistics_and_no_figures() -> None:
    """Check the imports of workers, which need neither statistics nor figures."""
    code = (
        "import sys, fallow.study.study\n"
        "print('loaded:', *sorted({'scipy.stats', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert loaded(code) == []


def test_the_executors_load_what_they_compute_with() -> None:
    code = (
        "import sys, fallow.engine.executors\n"
        f"print('loaded:', *sorted({HEAVY!r} & set(sys.modules)))"
    )
    assert loaded(code) == ["numpy", "torch"]
