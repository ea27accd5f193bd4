"""Tables, figures, equations and algorithms of papers: how each is run, and how it is checked.

A paper declares them in ``published/items.toml`` in its folder.  The command ``fallow papers``, the
page ``studies/coverage.md`` and the tests are derived from this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import with_config

from fallow.configs.find import find_config
from fallow.configs.papers import Paper
from fallow.core.suggestions import nearest
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.storage.received import read_toml
from fallow.storage.validation import STRICT, adapter_of, find_error_in_json

ITEMS = "items.toml"
RUNNABLE = ("table", "figure", "section")
"""Kinds of items that studies reproduce."""


@with_config(STRICT)
@dataclass(frozen=True)
class PaperItem:
    """Item of a paper.

    Attributes
    ----------
    name : str
        Name, as in ``fallow papers ahfal figure-2``.  The kind is its first part.
    paper : str
        First part of the names of the paper's configurations.
    title : str
        Content, in a few words.
    verdict : {"faithful", "departure", "missing", "drawing"}
        Agreement of the code with the paper.  A "departure" is explained in the docstring of the
        algorithm.  A "drawing" has no measured values.
    studies, reduced : list of str
        Experiment configurations with the paper's settings, and for two cores.
    sweep : dict of str to list
        Values of settings; each combination is one study.
    missing : str
        Sentence that states what is missing to run it.
    record : str
        Document with measured results, and the heading as ``#anchor``.
    scale : {"", "reduced", "full"}
        Scale of the measured results.
    hours : float
        Duration on two cores, if it was measured; by default it is estimated from the settings.
    where : list of str
        Files, and a class or function as ``file:name``, that implement it.
    checks : list of str
        Tests, as ``file::test``.
    note : str
        Difference from the paper, in a few words.
    """

    name: str
    paper: str
    title: str
    verdict: Literal["faithful", "departure", "missing", "drawing"] = "faithful"
    studies: list[str] = field(default_factory=list)
    reduced: list[str] = field(default_factory=list)
    sweep: dict[str, list[float | int | str]] = field(default_factory=dict)
    missing: str = ""
    record: str = ""
    scale: Literal["", "reduced", "full"] = ""
    hours: float | None = None
    where: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    note: str = ""

    @property
    def kind(self) -> str:
        """First part of the name, such as "table"."""
        return self.name.partition("-")[0]

    def configs(self, *, is_reduced: bool = False) -> Iterator[ExperimentConfig]:
        """Return the configuration of each study; the name ends with the values of a sweep."""
        for name in self.reduced if is_reduced else self.studies:
            config = find_config(name)
            for values in product(*self.sweep.values()):
                settings = dict(zip(self.sweep, map(str, values), strict=True))
                ending = "".join(
                    f"-{key.rpartition('.')[2]}{value}" for key, value in settings.items()
                )
                changed = with_settings(config, settings)
                yield replace(changed, name=config.name + ending)


def read_items(paper: Paper) -> dict[str, PaperItem]:
    """Return the items of a paper by name; empty if it declares none.

    Raises ValueError, naming the file, for a field of another type or name.
    """
    if paper.folder is None:
        return {}
    file = paper.folder / "published" / ITEMS
    if not file.exists():
        return {}
    return parse_items(read_toml(file), paper.folder.name, file)


def parse_items(
    content: Mapping[str, object], paper: str, file: Path
) -> dict[str, PaperItem]:
    """Return the items in the content of a file by name."""
    adapter = adapter_of(PaperItem)
    items: dict[str, PaperItem] = {}
    for name, fields in content.items():
        values = {"name": name, "paper": paper}
        if isinstance(fields, Mapping):
            values |= fields
        error = find_error_in_json(PaperItem, values, name)
        if error is not None:
            raise ValueError(f"{file}: {error}")
        items[name] = adapter.validate_json(json.dumps(values))
    return items


def list_items(papers: Iterable[Paper]) -> list[PaperItem]:
    """Return the items of all papers."""
    return [item for paper in papers for item in read_items(paper).values()]


def find_item(items: Iterable[PaperItem], paper: str, name: str) -> PaperItem:
    """Return an item by paper and name, or raise ValueError that suggests others."""
    of_paper = {item.name: item for item in items if item.paper == paper}
    if name not in of_paper:
        raise ValueError(
            f"{name!r} is not a table or figure of {paper}{nearest(name, list(of_paper))}; "
            f"'fallow papers {paper}' lists them"
        )
    return of_paper[name]
