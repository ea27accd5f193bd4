"""Tests in several processes, on a tree of three small files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from tests.forks import Forks

def pytest_configure(config):
    config.pluginmanager.register(Forks(2))
"""
FILES = {
    "test_fixtures.py": """
import os, pytest
from pathlib import Path

@pytest.fixture(scope="module")
def process(tmp_path_factory):
    yield os.getpid()
    print("ended", file=open(Path(__file__).parent / "fixtures", "a"))

def test_first(process, tmp_path):
    assert process == os.getpid() != int(os.environ["FIRST"])

def test_second(process):
    assert process == os.getpid()
""",
    "test_outcomes.py": """
import pytest

def test_fails():
    print("seen by a reader")
    assert 1 == 2

def test_is_skipped():
    pytest.skip("for a reason")
""",
    "test_death.py": """
import os

def test_dies():
    os._exit(3)

def test_after_the_death(tmp_path):
    assert tmp_path.exists()
""",
}


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks the tests")
def test_files_run_in_processes_and_all_outcomes_are_reported(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    first = "import os, sys, pytest; os.environ['FIRST'] = str(os.getpid())"
    folder, root = str(tmp_path), Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [
            *(sys.executable, "-c", f"{first}; sys.exit(pytest.main(sys.argv[1:]))"),
            *("-p", "no:cacheprovider", "-rs", f"--rootdir={folder}", folder),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done
    assert re.search("2 failed, 3 passed, 1 skipped", done.stdout), done.stdout
    assert "test_dies: the process of this test died" in done.stdout
    assert "seen by a reader" in done.stdout
    assert "for a reason" in done.stdout
    assert (tmp_path / "fixtures").read_text() == "ended\n"
