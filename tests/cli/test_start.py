"""How little the command and its workers load: seconds of each call, and memory of each worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pydantic", "flwr", "fastapi"}
COMMAND = """
import sys
sys.argv = ["fallow", *{words!r}]
from fallow.cli import main
try:
    main()
except SystemExit as ended:
    assert ended.code in (0, 2), ended.code
print("loaded:", *sorted({heavy!r} & set(sys.modules)))
"""


def loaded(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.rpartition("loaded:")[2].split()


@pytest.mark.parametrize(
    "words",
    [
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
    ],
    ids=" ".join,
)
def test_help_version_and_wrong_arguments_load_nothing_heavy(words: list[str]) -> None:
    assert loaded(COMMAND.format(words=words, heavy=HEAVY)) == []


def test_a_worker_of_a_study_loads_no_statistics_and_no_figures() -> None:
    """Each of its processes imports this; the page is written by the command alone."""
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
