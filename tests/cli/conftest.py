"""Call the command as from a shell, in a temporary folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fallow.cli import main
from tests.commands import check_result

TINY = """
data = "blobs.npz"
sites = 3
training = "fedavg"
rounds = 2
cycles = 1
initial = 0.1
budget = 0.1
score_rounds = 1
seeds = 1
bounds = false
strategies = ["random", "ahfal"]
partition = {name = "dirichlet", alpha = 1.0}
"""


WARDS = ["north", "south", "east"]


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def says(self) -> str:
        """Return the error message."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: ")
        assert "Traceback" not in self.err
        return line.removeprefix("error: ")


Command = Callable[..., Ended]


def table(
    path: Path, cell: Callable[[int], str] | None = None, label: str = "sick"
) -> Path:
    """Return 60 patients in three wards; ``cell`` replaces the age in some rows."""
    lines = ["ward,age,kind,sick"]
    for i in range(60):
        age = cell(i) if cell else str(20 + 7 * i % 60)
        lines.append(f"{WARDS[i % 3]},{age},{'ab'[i % 2]},{'ny'[i * 3 % 7 % 2]}")
    path.write_text("\n".join(lines).replace("sick", label) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a configuration, some embeddings and a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("FALLOW_DATA", raising=False)
    return write_inputs(tmp_path)


def write_inputs(folder: Path) -> Path:
    """Write a configuration, some embeddings and a table to a folder."""
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = draw.normal(size=(90, 6)) + 1.2 * np.eye(3, 6)[y]
    np.savez(folder / "blobs.npz", x=x[:60], y=y[:60], x_test=x[60:], y_test=y[60:])
    (folder / "tiny.toml").write_text(TINY)
    table(folder / "patients.csv")
    return folder


@pytest.fixture
def fallow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return a function that runs the command line: ``fallow("run", "tiny.toml")``."""

    def called(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fallow", *words])
        with pytest.raises(SystemExit) as left:
            main()
        written = capsys.readouterr()
        assert isinstance(left.value.code, int)
        if "--json" in words and left.value.code == 0:
            check_result(words, written.out)
        return Ended(left.value.code, written.out, written.err)

    return called


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder except locks."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in files if p.suffix != ".lock"
    }
