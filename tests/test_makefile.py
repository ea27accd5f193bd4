"""Messages of `make` after an interrupted installation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BESIDE = (
    *sorted(f"integrations/{folder.name}" for folder in ROOT.glob("integrations/*")),
    "studies/fallow-papers",
)
"""Distributions beside the core, which development needs too."""
FILES = (
    *("Makefile", "pyproject.toml", "constraints.txt"),
    "packages/fallow/pyproject.toml",
    *(f"{folder}/pyproject.toml" for folder in BESIDE),
)


def copy_files(folder: Path) -> None:
    """Copy what ``make`` reads before it installs anything."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ("exit 1", "The installation failed; 'make setup PIP_FLAGS=' shows all"),
        ("kill -9 $$", "The installation was stopped before its end; the same command"),
        # like Ctrl-C, which reaches all processes, but not ignored by background shells
        ("kill -15 $PPID; exit 1", "The installation was stopped before its end; the same"),
    ],
)
def test_who_stops_the_installation_is_not_told_that_it_failed(
    ends: str, message: str, tmp_path: Path
) -> None:
    copy_files(tmp_path)
    pip = tmp_path / ".venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    pip.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exit 0;; esac\n{ends}\n')
    pip.chmod(0o755)
    done = subprocess.run(
        ["make", "setup", f"PYTHON={sys.executable}"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert message in done.stderr, done
    assert done.stderr.count("The installation") == 1
    assert not (tmp_path / ".venv" / ".installed").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_demo_installs_fallow_alone_and_tests_add_the_tools_of_development(
    tmp_path: Path,
) -> None:
    copy_files(tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for program in ("python", "fallow"):
        (programs / program).write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/log\n')
        (programs / program).chmod(0o755)

    def find_installed(target: str) -> list[str]:
        log = tmp_path / "log"
        log.write_text("")
        subprocess.run(
            ["make", target, f"PYTHON={sys.executable}"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=60,
        )
        lines = log.read_text().splitlines()
        return [name for line in lines for name in re.findall(r" -e (\S+)", line)]

    assert find_installed("demo") == [".", "packages/fallow"]
    assert find_installed("demo") == []
    assert find_installed("test") == [".[dev]", "packages/fallow", *BESIDE]
    assert find_installed("lint") == []
    (tmp_path / ".venv" / ".installed").unlink()
    (tmp_path / ".venv" / ".installed-dev").unlink()
    assert find_installed("test") == [".[dev]", "packages/fallow", *BESIDE]
    assert find_installed("demo") == []
