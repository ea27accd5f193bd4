"""Test distributions, installed into a folder as by an installer."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

INTEGRATIONS = Path(__file__).resolve().parents[1] / "integrations"
METHODS = """
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar
import torch
from torch import nn
from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.values import LabelCount
from fallow.core.view import SelectedExamples
from fallow.strategies import Random as Borrowed

Path({mark!r}).write_text("imported")

@dataclass(frozen=True)
class Fancy:
    k: int = 1
    contract: ClassVar[Contract] = Contract("Fancy", "-", 0)

    def query(self, ask, budget, memo):
        ask.keep(self.select, to={{site: {{"n": n}} for site, n in budget.items() if n}})
        return memo

    @client.keep("a count", takes={{"n": LabelCount()}})
    def select(self, view, n):
        return SelectedExamples(torch.arange(n))

class Plain:
    pass

def function(*args, **fields):
    raise AssertionError("a function was called")

class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.head = nn.Linear(shape[0], outputs)

    def embed(self, x):
        return x.flatten(1)

    def forward(self, x):
        return self.head(self.embed(x))
"""
"""A module with a query, a model, and things that are none; who imports it leaves a mark."""


def install(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    patch: pytest.MonkeyPatch,
    version: str = "1.0",
    entries: str = "",
) -> None:
    """Install a distribution with ``files`` for the duration of the test.

    ``entries`` is the content of ``entry_points.txt``.
    """
    details = f"{name.replace('-', '_')}-{version}.dist-info"
    noted = {
        f"{details}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{details}/INSTALLER": "pip\n",
    }
    if entries:
        noted[f"{details}/entry_points.txt"] = entries
    for path, text in {**files, **noted}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    listed = "".join(f"{path},,\n" for path in (*files, *noted, f"{details}/RECORD"))
    (folder / details / "RECORD").write_text(listed, encoding="utf-8")
    patch.syspath_prepend(str(folder))
    for module in [m for m in sys.modules if f"{m.partition('.')[0]}" in tops(files)]:
        patch.delitem(sys.modules, module)


def install_integration(name: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Install a distribution of ``integrations`` for this process and its children."""
    root = INTEGRATIONS / name
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    sources = [path for path in (root / "src").glob("*/**/*") if path.is_file()]
    files = {
        path.relative_to(root / "src").as_posix(): path.read_text()
        for path in sources
        if not {"__pycache__"} & {*path.parts} and "egg-info" not in path.parent.name
    }
    entries = ""
    for group, listed in project["entry-points"].items():
        entries += f"[{group}]\n"
        entries += "".join(f"{key} = {target}\n" for key, target in listed.items())
    install(folder, name, files, patch, version=project["version"], entries=entries)
    places = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    patch.setenv("PYTHONPATH", os.pathsep.join(places))


def tops(files: Mapping[str, str]) -> set[str]:
    """Return the top-level modules among files."""
    return {path.partition("/")[0].removesuffix(".py") for path in files}


def forget(*modules: str) -> None:
    """Make Python import these again."""
    for name in [m for m in sys.modules if m.partition(".")[0] in modules]:
        del sys.modules[name]
