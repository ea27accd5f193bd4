"""Checks of arguments that do not import PyTorch, which takes seconds."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from fallow.core.suggestions import explain_config

PACKAGE = Path(__file__).parents[1]
STRATEGIES = (PACKAGE / "strategies", PACKAGE / "contrib")
"""Folders of the query strategies, one file each."""
ALIASES = re.compile(r"aliases=(\([^)]+\))")
"""Aliases of a query strategy in its disclosure declaration."""

TRAINING = PACKAGE / "training"
BUILT_IN = ("demo", "strategies", "benchmark")
"""First parts of the names of built-in experiment configurations."""
PAPERS = "fallow.papers"
"""Group of entry points; each has the first part of the names of its configurations."""
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def check_arguments(
    config: str, strategies: Iterable[str], pairs: Iterable[str] | None = None
) -> None:
    """Raise ValueError for an unknown experiment configuration or query strategy.

    ``pairs`` are the settings of ``--set``; words in place of numbers are rejected.

    >>> check_arguments("demo", ["entrpy@rounds=3"])
    Traceback (most recent call last):
        ...
    ValueError: 'entrpy' is not one of the strategies; did you mean 'entropy'?
    """
    check_config(config)
    check_strategies(strategies)
    check_values(pairs or ())


def check_config(config: str) -> None:
    """Raise ValueError for a missing configuration file or an unknown configuration.

    Of other names, only the first part is checked here.  Other files and folders are data.

    >>> check_config("dmo")
    Traceback (most recent call last):
        ...
    ValueError: 'dmo' is not an experiment configuration; did you mean 'demo'?
    """
    path = Path(config)
    if config.endswith(".toml"):
        if not path.exists():
            raise ValueError(f"{config} cannot be read: No such file or directory")
        return
    known = [*BUILT_IN, *sorted(entry_points(group=PAPERS).names)]
    is_data = path.suffix or path.is_dir()
    if not is_data and config.partition("/")[0] not in known:
        raise ValueError(explain_config(config, known))


def check_strategies(strategies: Iterable[str]) -> None:
    """Raise ValueError for an unknown query strategy."""
    known = {_fold(name) for name in _list_names()}
    for strategy in filter(str.strip, strategies):
        name = strategy.partition("@")[0].strip()
        if "(" in name or name.startswith("bound:"):
            continue
        word, colon, fields = name.partition(":")
        is_custom = bool(colon) and "=" not in fields.partition(":")[0]
        if is_custom or _fold(word) in known:
            continue
        if _fold(word) in _list_training():
            continue  # `find` explains that it is not a query strategy
        close = difflib.get_close_matches(_fold(word), known, n=1, cutoff=0.5)
        hint = (
            f"; did you mean {close[0]!r}?" if close else "; 'fallow algorithms' lists them"
        )
        raise ValueError(f"{word!r} is not one of the strategies{hint}")


def check_values(pairs: Iterable[str]) -> None:
    """Raise ValueError for an unknown nested setting, and for a value of a wrong type.

    Another unknown key may be a parameter of a component, which is checked when it is created.

    >>> check_values(["cycles=2", "rounds=x"])
    Traceback (most recent call last):
        ...
    ValueError: rounds is 'x'; it must be a whole number
    """
    for key, equals, text in (pair.partition("=") for pair in pairs):
        if not equals:
            continue  # rejected when the pairs are combined
        from fallow.settings.config import check_setting
        from fallow.settings.fields import full_name

        check_setting(full_name(key, {}), text)


def _list_names() -> Iterator[str]:
    """Return the names and aliases of all query strategies."""
    for path in chain.from_iterable(folder.glob("*.py") for folder in STRATEGIES):
        yield path.stem
        for match in ALIASES.finditer(path.read_text(encoding="utf-8")):
            yield from ast.literal_eval(match[1])


def _list_training() -> set[str]:
    """Folded names of all classes of the training package."""
    result = set()
    for path in TRAINING.rglob("*.py"):
        for match in CLASS.finditer(path.read_text(encoding="utf-8")):
            result.add(_fold(match[1]))
    return result


def _fold(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
