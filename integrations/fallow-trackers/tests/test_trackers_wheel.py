"""Test that the wheel is typed and that each entry point is a tracker."""

from __future__ import annotations

import configparser
import shutil
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

from fallow.core.extensions import OFFICIAL
from fallow.study.callbacks import CALLBACK
from tests.test_wheel import build

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_has_an_entry_point_for_every_tracker_that_fallow_names(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "tests")
    shutil.copytree(ROOT, source, ignore=ignored)
    with zipfile.ZipFile(build("wheel", source, tmp_path / "wheel")) as wheel:
        files = set(wheel.namelist())
        (listed,) = (name for name in files if name.endswith("entry_points.txt"))
        entries = configparser.ConfigParser()
        entries.read_string(wheel.read(listed).decode())
    assert "fallow_trackers/py.typed" in files
    trackers = entries["fallow.callbacks"]
    assert set(trackers) == set(OFFICIAL["fallow.callbacks"])
    for name, target in trackers.items():
        CALLBACK.check(name, EntryPoint(name, target, "fallow.callbacks").load())
