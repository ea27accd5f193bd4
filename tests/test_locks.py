"""Lock files have every pin of constraints.txt with hashes, and no local paths."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-torch.lock", "requirements-deploy.lock")
ENTRY = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)(?: ;[^\\]*)? \\$")
TOOLS = "# extra `tools`"  # the last part of constraints.txt is another environment


def pins(text: str) -> dict[str, Version]:
    versions = {}
    for line in text.splitlines():
        name, is_pin, version = line.partition("==")
        if is_pin and not line.startswith("#"):
            versions[name] = Version(version)
    return versions


def locked(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text().splitlines()
    heads = [ENTRY.match(line) for line in lines if line[:1].isalnum()]
    assert all(heads), "each package is one line with its version"
    return {head[1]: Version(head[2]) for head in heads if head}


def test_every_pin_has_its_hashes_in_one_of_the_lock_files() -> None:
    wanted = pins((ROOT / "constraints.txt").read_text().partition(TOOLS)[0])
    have = locked(LOCKS[0]) | locked(LOCKS[1])
    missing = wanted.keys() - have.keys()
    assert missing <= {"tzdata"}, "run make lock"  # Windows only
    assert {name: have[name] for name in wanted.keys() - missing} == {
        name: wanted[name] for name in wanted.keys() - missing
    }
    assert have.keys() <= wanted.keys(), "run make lock"


def entries(name: str) -> list[str]:
    return re.split(r"^(?=[\w])", (ROOT / name).read_text(), flags=re.MULTILINE)[1:]


def test_the_packages_of_the_image_are_a_part_of_all_with_the_same_hashes() -> None:
    assert set(entries("requirements-deploy.lock")) <= set(entries(LOCKS[0])), (
        "run make lock"
    )
    assert (
        locked("requirements-deploy.lock").keys().isdisjoint({"pytest", "mypy", "sphinx"})
    )


def read_needs(folder: str, *extras: str) -> list[str]:
    """Return the requirements of a distribution of this repository, except Fallow."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    needs = list(project["dependencies"])
    for extra in extras:
        needs += project["optional-dependencies"][extra]
    return [line for line in needs if not line.startswith("fallow")]


def test_the_image_has_all_that_its_packages_need() -> None:
    """Check the packages, since the build resolves nothing and errors would appear late."""
    have = (
        locked("requirements-deploy.lock").keys() | locked("requirements-torch.lock").keys()
    )
    pending = read_needs(".", "deploy", "privacy")
    pending += read_needs("packages/fallow") + read_needs("integrations/fallow-flower")
    needed: set[str] = set()
    while pending:
        asked = Requirement(pending.pop())
        if str(asked) in needed:
            continue
        needed.add(str(asked))
        for line in metadata.requires(asked.name) or ():
            other = Requirement(line)
            extras = asked.extras or {""}
            if other.marker is None or any(
                other.marker.evaluate({"extra": e}) for e in extras
            ):
                other.marker = None
                pending.append(str(other))
    names = {canonicalize_name(Requirement(text).name) for text in needed}
    assert len(names) > 50
    assert names - have == set()


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_file_has_a_hash(name: str) -> None:
    assert len(entries(name)) == len(locked(name))
    assert all("--hash=sha256:" in entry for entry in entries(name))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_names_no_address_and_no_path(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|/\w+/\w+/", text)
