"""The file with which a study of one's own begins: TOML, with a comment for every setting."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fallow.core.words import count_noun, join_some
from fallow.settings.listing import meaning_of
from fallow.settings.recipe import Recipe

Value = str | int | float | bool | Sequence[str]
WIDTH = 38
"""Where comments begin."""

FEW = 10
"""So many sites, where rows are dealt to them and their own number is not known."""


@dataclass(frozen=True)
class Found:
    """What is known of somebody's data.  ``classes``: empty for numbers to predict; ``sites``: empty
    where no column names them; ``training``: how models are trained where a strategy does not say;
    ``strategies``: strategies to compare; ``seeds``: how often each."""

    data: str
    label: str | None
    site: str | None
    rows: int
    test_rows: int
    classes: tuple[str, ...]
    sites: tuple[str, ...]
    training: str
    strategies: tuple[str, ...]
    seeds: int


def starter_text(found: Found, file: Path) -> str:
    """The text of the file.  ``file``: where it will stand; its paths are relative to that folder."""
    usual = Recipe("")
    details = {"data": _relative(found.data, file)}
    if found.label:
        details["label"] = found.label
    if found.site:
        details["site"] = found.site
    parts: dict[str, dict[str, Value]] = {
        "Data": {**details},
        "Who holds what": _choose_partition(found, usual),
        "Training": {"training": found.training},
        "Labels": {
            "initial": usual.initial,
            "per_cycle": usual.share_of(0),
            "cycles": usual.cycles,
        },
        "The study": {
            "strategies": found.strategies,
            "reference": found.strategies[-1] if found.classes else "random",
            "seeds": found.seeds,
        },
    }
    lines = [
        f"# {_describe(found)}",
        f"#   fallow compare {file.name} --dry-run   what it would cost",
        f"#   fallow compare {file.name}             runs it and writes a report",
        "# Paths are relative to this file.  All settings: fallow settings; strategies and training",
        "# methods: fallow methods; models: fallow models; partitions: fallow partitions.",
    ]
    for title, settings in parts.items():
        lines += ["", f"# -- {title.lower()}"]
        lines += [_line(name, value) for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def _choose_partition(found: Found, usual: Recipe) -> dict[str, Value]:
    """Which rows are whose: the sites of the data where a column names them, else rows dealt."""
    if found.sites:
        return {"partition": "natural", "sites": 0}
    sites = min(FEW, found.rows)
    if found.classes:
        return {"partition": str(usual.partition), "sites": sites}
    return {"partition": "iid", "sites": sites}


def _relative(data: str, file: Path) -> str:
    """A path as it is seen from the folder of the file; a named data set as it is."""
    if not Path(data).exists():
        return data
    return Path(os.path.relpath(data, file.parent)).as_posix()


def _describe(found: Found) -> str:
    text = (
        f"A study of {found.data}: {found.rows:,} rows to choose from, {found.test_rows:,} to test "
        "on"
    )
    if found.classes:
        text += f", {len(found.classes)} classes ({join_some(found.classes)})"
    else:
        text += ", numbers to predict"
    if found.sites:
        text += f", {count_noun(len(found.sites), 'site')} ({join_some(found.sites)})"
    return f"{text}."


def _line(name: str, value: Value) -> str:
    """``rounds = 15    # what it means``."""
    setting = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    return f"{setting:{WIDTH}} # {meaning_of(name)}"
