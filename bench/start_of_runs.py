"""Sixteen tiny runs by `fallow compare`: two processes of one thread each against one.

Both commands are timed by wall-clock time, in turn. Runs are similar to those of the demo,
with two strategies and eight seeds on 200 digits. The machine needs two idle cores.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.timing import WALL, Entry, Race

TINY = {"rows": "200", "sites": "3", "rounds": "1", "cycles": "1", "bounds": "false"}


def compare(kept: dict[int, list[str]], jobs: int) -> None:
    """Run the study in an empty folder and keep its records without times."""
    settings = []
    for name, value in TINY.items():
        settings += ["--set", f"{name}={value}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "fallow",
            "compare",
            "demo",
            "-q",
            "random,entropy",
        ]
        command += ["--seeds", "8", "--jobs", str(jobs), "--out", f"{folder}/s", *settings]
        subprocess.run(command, check=True, capture_output=True)
        models = sorted(Path(folder).rglob("model.safetensors"))
        kept[jobs] = [path.read_bytes().hex() for path in models]


def prepare(is_quick: bool) -> Race:
    kept: dict[int, list[str]] = {}

    def are_equal() -> bool:
        return kept[1] == kept[2] and len(kept[1]) == 16

    return Race(partial(compare, kept, 1), partial(compare, kept, 2), are_equal, runs=3)


ENTRY = Entry(
    "start-of-runs",
    "one process; sixteen runs of 200 digits, the command's own start included",
    bar=1.0,
    compared="the models that were timed, byte for byte",
    prepare=prepare,
    clock=WALL,
)
