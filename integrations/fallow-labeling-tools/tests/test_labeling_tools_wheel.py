"""Test that the wheel is typed and that each entry point is a labeling tool."""

from __future__ import annotations

import configparser
import shutil
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

from fallow.core.extensions import OFFICIAL
from fallow.deployment.site.labeling_tools import TOOL
from tests.test_wheel import build

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_has_an_entry_point_for_every_tool_that_fallow_names(
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
    assert "fallow_labeling_tools/py.typed" in files
    tools = entries["fallow.labeling_tools"]
    assert set(tools) == set(OFFICIAL["fallow.labeling_tools"])
    for name, target in tools.items():
        TOOL.check(name, EntryPoint(name, target, "fallow.labeling_tools").load())
