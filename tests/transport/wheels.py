"""The wheel of a transport in `integrations`."""

from __future__ import annotations

import configparser
import shutil
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

from fallow.core.extensions import OFFICIAL
from fallow.transport.kinds import TRANSPORT
from tests.packages import INTEGRATIONS
from tests.test_wheel import build


def check_wheel(distribution: str, transport: str, folder: Path) -> set[str]:
    """Check that the wheel is typed and adds only a transport; return its files."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "tests")
    shutil.copytree(INTEGRATIONS / distribution, source, ignore=ignored)
    with zipfile.ZipFile(build("wheel", source, folder / "wheel")) as wheel:
        files = set(wheel.namelist())
        (listed,) = (name for name in files if name.endswith("entry_points.txt"))
        entries = configparser.ConfigParser()
        entries.read_string(wheel.read(listed).decode())
    assert f"{distribution.replace('-', '_')}/py.typed" in files
    assert OFFICIAL["fallow.transports"][transport] == distribution
    assert entries.sections() == ["fallow.transports"]
    ((name, target),) = entries["fallow.transports"].items()
    assert name == transport
    TRANSPORT.check(name, EntryPoint(name, target, "fallow.transports").load())
    return files
