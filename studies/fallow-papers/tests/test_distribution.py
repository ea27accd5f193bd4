"""The wheel has the configurations and published tables of each entry point."""

from __future__ import annotations

import configparser
import shutil
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

from fallow.configs.find import configs_of
from fallow.core.extensions import OFFICIAL
from fallow_papers.datasets.catalog import ENTRIES
from tests.test_wheel import build

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_has_published_results_and_an_entry_point_for_every_prefix(
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
    for ending, count in (("csv", 19), ("toml", 100)):
        own = [*(ROOT / "src").rglob(f"*.{ending}")]
        assert len(own) > count
        assert {path.relative_to(ROOT / "src").as_posix() for path in own} <= files
    for prefix, target in entries["fallow.papers"].items():
        paper = EntryPoint(prefix, target, "fallow.papers").load()
        assert {name.partition("/")[0] for name in configs_of([paper])} == {prefix}
    names = set(ENTRIES)
    assert set(entries["fallow.datasets"]) == names == set(OFFICIAL["fallow.datasets"])
    assert set(entries["fallow.datasets"].values()) == {
        "fallow_papers.datasets.catalog:ENTRIES"
    }
