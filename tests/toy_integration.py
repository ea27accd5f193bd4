"""A toy distribution with an encoder, a transport, a tracker and a labeling tool.

`install_toy` installs it outside the tree, as an installer would; Fallow needs no change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages import install

NAME = "toy-integration"
MODULE = "toy_integration_of_tests"
ENTRIES = f"""\
[fallow.callbacks]
notebook-page = {MODULE}.tracker:Page

[fallow.encoders]
halves = {MODULE}.encoder:Halves

[fallow.labeling_tools]
slips = {MODULE}.tool:Slips

[fallow.strategies]
front-rows = {MODULE}.strategy:FrontRows

[fallow.transports]
shared-folder = {MODULE}.transport:SharedFolder
"""

MARK = """
from pathlib import Path
with Path({mark!r}).open("a") as file:
    file.write(__name__.rpartition(".")[2] + "\\n")
"""
"""Every module notes in a file that it was imported."""

ENCODER = """
from dataclasses import dataclass
from typing import ClassVar

import fallow as fl
import torch


@dataclass(frozen=True)
class Halves:
    contract: ClassVar[fl.Contract] = fl.Contract(title="Halves")

    def width(self, shape):
        return 2

    def fit(self, ask, shape):
        return {}

    def encode(self, x, state):
        flat = x.flatten(1)
        half = flat.shape[1] // 2
        return torch.stack([flat[:, :half].mean(1), flat[:, half:].mean(1)], 1)
"""

STRATEGY = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.values import LabelCount
from fallow.core.view import SelectedExamples


@dataclass(frozen=True)
class FrontRows:
    contract: ClassVar[Contract] = Contract("Front rows", "-", 0)

    def query(self, ask, budget, memo):
        ask.keep(self.select, to={site: {"n": n} for site, n in budget.items() if n})
        return memo

    @client.keep("a count", takes={"n": LabelCount()})
    def select(self, view, n):
        return SelectedExamples(torch.arange(n))
"""

TRACKER = """
from fallow.study.callbacks import Callback


class Page(Callback):
    def __init__(self, file):
        self.file = file

    @classmethod
    def for_study(cls, folder):
        return cls(folder / "page.txt")

    def take_scores(self, run, cycle, scores):
        with self.file.open("a") as file:
            file.write(f"{run.name}, cycle {cycle}, {scores['accuracy']:.3f}\\n")
"""

TOOL = """
from fallow.deployment.site.labeling_tools import LabelingTool


class Slips(LabelingTool):
    def format_tasks(self, tasks):
        head = "/".join(tasks.choices)
        lines = [f"{line['id']}: ?" for line in tasks.lines]
        return {".txt": "\\n".join([head, *lines, ""]).encode()}

    def parse_labels(self, content):
        pairs = [line.partition(": ") for line in content.decode().splitlines()[1:]]
        return [{"id": name, "label": label} for name, _, label in pairs]
"""

TRANSPORT = Path(__file__).parents[1] / "examples" / "transport" / "shared_folder.py"


def install_toy(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Install the distribution; return the file that its modules write on import."""
    mark = folder / "imported.txt"
    parts = {
        "encoder": ENCODER,
        "strategy": STRATEGY,
        "tool": TOOL,
        "tracker": TRACKER,
        "transport": TRANSPORT.read_text(),
    }
    note = MARK.format(mark=str(mark))
    files = {f"{MODULE}/__init__.py": ""}
    for name, text in parts.items():
        files[f"{MODULE}/{name}.py"] = note + text
    install(folder / "site-packages", NAME, files, patch, version="2.1", entries=ENTRIES)
    return mark
