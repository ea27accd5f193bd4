"""The wheel, as installed without the source tree: built from the sdist, complete, working.

Dependencies are those of this environment; `scripts/release.py` installs everything into an
empty one.
"""

from __future__ import annotations

import csv
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from fallow.core.optional import OF_STUDIES
from fallow.core.version import __version__

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src/fallow")
"""Parts of the checkout from which a package is built."""

LARGEST = 2_000_000
"""Bytes of a wheel; it has 1.3 million.  Results, pictures and data do not belong into it."""

BUILD = (
    "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
)


def build(kind: str, source: Path, into: Path) -> Path:
    """Build an sdist or wheel of a source tree with the installed setuptools."""
    into.mkdir(exist_ok=True)
    code = BUILD.format(kind=kind)
    subprocess.run(
        [sys.executable, "-c", code, str(into)],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    )
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the unpacked sdist, so that missing files show."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    for name in NEEDED:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, target)
    sdist = build("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return build("wheel", unpacked, folder / "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and its dependencies, as after installation."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202 - the wheel that was built above
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "fallow" not in package.name and not (folder / package.name).exists():
            (folder / package.name).symlink_to(package)
    return folder


def run(installed: Path, folder: Path, *words: str) -> str:
    """Run the installed command with a Python that does not find this checkout."""
    python = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [python, "-P", "-m", "fallow", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_it_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    here = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "fallow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == here
    assert wheel.stat().st_size < LARGEST


@pytest.mark.long
def test_it_says_what_it_is_as_the_project_does(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        details = Parser().parsestr(archive.read(name).decode())
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {details['Version']}\n" in citation
    assert details["License-Expression"] == "Apache-2.0"
    assert details["Requires-Python"] == "<3.14,>=3.11"
    extras = set(details.get_all("Provides-Extra") or [])
    assert {"deploy", "excel", "privacy"} <= extras
    assert "# Fallow" in details.get_payload()


def read_project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())[
        "project"
    ]
    return project


def test_every_distribution_is_of_the_version_of_the_core_and_needs_it() -> None:
    beside = [
        ROOT / "packages" / "fallow",
        ROOT / "studies" / "fallow-papers",
        *(ROOT / "integrations").glob("*/"),
    ]
    assert len(beside) > 5
    for folder in beside:
        project = read_project(folder)
        assert project["version"] == __version__
        own = [line for line in project["dependencies"] if line.startswith("fallow")]
        assert [line.partition("==")[2] for line in own] == [__version__]


def test_fallow_is_the_core_with_the_packages_of_studies_and_all_extras_of_users() -> None:
    core, full = read_project(ROOT), read_project(ROOT / "packages" / "fallow")
    names = {Requirement(line).name for line in core["dependencies"]}
    assert not names & set(OF_STUDIES)
    first, *more = full["dependencies"]
    assert first == f"fallow-core=={__version__}"
    assert [Requirement(line).name for line in more] == list(OF_STUDIES)
    extras = core["optional-dependencies"].keys() - {"dev", "tools"}
    assert full["optional-dependencies"] == {
        extra: [f"fallow-core[{extra}]=={__version__}"] for extra in extras
    }
    assert full["description"] == core["description"]


@pytest.mark.long
def test_it_runs_without_the_source_tree(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, "new", "begin", "--quiet")
    where = run(installed, tmp_path, "--version")
    assert where.startswith("fallow ")
    folder = tmp_path / "begin"
    small = ("--set", "rounds=1", "--set", "cycles=1", "--set", "bounds=false")
    compared = ("compare", "study.toml", "--seeds", "1", "--jobs", "1", *small)
    output = run(installed, folder, *compared, "--out", "compared")
    assert "Report page: compared/report.html" in output
    assert (folder / "compared" / "report.html").stat().st_size > 50_000
    run(installed, folder, "run", "study.toml", *small, "--out", "one")
    run(installed, folder, "predict", "one", "rows.csv", "--out", "predicted.csv")
    with open(folder / "predicted.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 361  # a header and every row


def test_what_an_installation_takes_is_counted_without_pytorch(tmp_path: Path) -> None:
    needs = {
        "fallow": ["Numbers>=1", "torch>=2", "extra-only; extra == 'x'"],
        "torch": ["shared"],
        "numbers": ["shared", "below"],
        "shared": [],
        "below": [],
        "extra-only": [],
    }
    for name, requires in needs.items():
        details = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        details.mkdir()
        lines = [
            f"Name: {name}",
            "Version: 1.0",
            *(f"Requires-Dist: {r}" for r in requires),
        ]
        (details / "METADATA").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.py").write_bytes(b"#" * 1_000_000)
        (details / "RECORD").write_text(f"{name}.py,,\n")
    release = runpy.run_path(str(ROOT / "scripts" / "release.py"))
    assert release["measure_install"](tmp_path, "fallow") == (1.0, 2.0)  # numbers and below


def test_a_python_without_ensurepip_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's Python without the package python3-venv: it prints help, and makes no venv."""
    python = tmp_path / "python3.13"
    python.write_text('#!/bin/sh\ncase "$*" in *--help) ;; *) exit 1;; esac\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    release = runpy.run_path(str(ROOT / "scripts" / "release.py"))
    assert str(python) not in list(release["find_pythons"](here=False))


CONDA_NAMES = {
    "matplotlib": "matplotlib-base",
    "torch": "pytorch",
    "typing-extensions": "typing_extensions",
}


@pytest.mark.parametrize("name", ["fallow-core", "fallow"])
def test_the_conda_recipe_has_the_dependencies_of_the_wheel(name: str) -> None:
    text = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    config = yaml.safe_load(re.sub(r"\$\{\{.*?\}\}", "_", text))
    outputs = {output["package"]["name"]: output for output in config["outputs"]}
    file = ROOT / "pyproject.toml"
    if name == "fallow":
        file = ROOT / "packages" / "fallow" / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    needed = set()
    for text in project["dependencies"]:
        package, _, least = text.partition(">=")
        if least:  # not fallow-core, which the configuration pins
            needed.add(f"{CONDA_NAMES.get(package, package)} >={least}")
    run = outputs[name]["requirements"]["run"]
    assert needed == {
        need for need in run if need != "_" and not need.startswith("python ")
    }
    assert config["context"]["version"] == __version__
