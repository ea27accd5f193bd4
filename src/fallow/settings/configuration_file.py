"""Initial configuration file of a study: TOML with a comment for each setting."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fallow.core.load_options import LoadOptions, list_given
from fallow.core.wording import count_noun, join_some
from fallow.settings.config import ExperimentConfig
from fallow.settings.descriptions import meaning_of

Value = str | int | float | bool | Sequence[str]
WIDTH = 38
"""Column at which comments start."""

FEW = 10
"""Number of sites if the data has no site column."""


@dataclass(frozen=True)
class DataSummary:
    """Properties of the user's data.

    Attributes
    ----------
    data : str
        Name or path of the data.
    options : LoadOptions
        Options of loading.
    rows, test_rows : int
        Number of training examples and of test examples.
    classes : tuple of str
        Class names; empty for regression.
    sites : tuple of str
        Names of the sites; empty without a site column.
    training : str
        Default training algorithm.
    strategies : tuple of str
        Query strategies to compare.
    seeds : int
        Number of seeds.
    """

    data: str
    options: LoadOptions
    rows: int
    test_rows: int
    classes: tuple[str, ...]
    sites: tuple[str, ...]
    training: str
    strategies: tuple[str, ...]
    seeds: int


def configuration_text(facts: DataSummary, file: Path) -> str:
    """Return the text of the file; paths are relative to the folder of ``file``."""
    usual = ExperimentConfig("")
    parts: dict[str, dict[str, Value]] = {
        "Data": {"data": _relative(facts.data, file), **list_given(facts.options)},
        "Sites": _choose_partition(facts),
        "Training": {"training": facts.training},
        "Labels": {
            "initial": usual.initial,
            "budget": usual.budget_of(0),
            "cycles": usual.cycles,
        },
        "The study": {
            "strategies": facts.strategies,
            "reference": facts.strategies[-1] if facts.classes else "random",
            "seeds": facts.seeds,
        },
    }
    lines = [
        f"# {_describe(facts)}",
        f"#   fallow compare {file.name} --dry-run   estimate time and traffic",
        f"#   fallow compare {file.name}             run it and write a report",
        "# Paths are relative to this file.  See fallow settings for all settings, fallow algorithms",
        "# for query strategies and training algorithms, fallow models and fallow partitions.",
    ]
    for title, settings in parts.items():
        lines += ["", f"# -- {title.lower()}"]
        lines += [_line(name, value) for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def _choose_partition(facts: DataSummary) -> dict[str, Value]:
    """Use the sites in the data if a column names them, and distribute the examples otherwise."""
    if facts.sites:
        return {"partition": "natural", "sites": 0}
    return {"partition": "iid", "sites": min(FEW, facts.rows)}


def _relative(data: str, file: Path) -> str:
    """Return a path relative to the folder of the file, and the name of a dataset unchanged."""
    if not Path(data).exists():
        return data
    return Path(os.path.relpath(data, file.parent)).as_posix()


def _describe(facts: DataSummary) -> str:
    text = (
        f"A study of {facts.data}: {facts.rows:,} training examples, {facts.test_rows:,} test "
        "examples"
    )
    if facts.classes:
        text += f", {len(facts.classes)} classes ({join_some(facts.classes)})"
    else:
        text += ", regression targets"
    if facts.sites:
        text += f", {count_noun(len(facts.sites), 'site')} ({join_some(facts.sites)})"
    return f"{text}."


def _line(name: str, value: Value) -> str:
    """Return ``rounds = 15    # description``."""
    setting = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    return f"{setting:{WIDTH}} # {meaning_of(name)}"
