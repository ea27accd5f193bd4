"""Checks of arguments that do not import PyTorch, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fallow.core.extensions import list_extensions
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import explain_config
from fallow.settings.components import check_component, components_of, find_component
from fallow.settings.spec import Spec
from fallow.storage.files import find_existing
from fallow.storage.received import read_toml

BUILT_IN = ("demo", "strategies", "benchmark")
"""First parts of the names of built-in experiment configurations."""
DATASETS = "fallow.datasets"
"""Group of entry points of named datasets."""
PAPERS = "fallow.papers"
"""Group of entry points; each has the first part of the names of its configurations."""


def check_arguments(
    config: str,
    strategies: Iterable[str],
    pairs: Iterable[str] | None = None,
    data: str | None = None,
) -> None:
    """Raise ValueError for an unknown configuration, query strategy or setting, or a missing file.

    ``pairs`` are the settings of ``--set``, and ``data`` is the value of ``--data``.

    >>> check_arguments("demo", ["entrpy@rounds=3"])
    Traceback (most recent call last):
        ...
    ValueError: 'entrpy' is not one of the strategies; did you mean 'entropy'?
    """
    check_config(config)
    if data is not None:
        _check_file(data)
    check_strategies(strategies)
    check_values(pairs or ())


def check_config(config: str) -> None:
    """Raise ValueError for a missing file or an unknown configuration.

    Of names, only the first part is checked here.  Files other than .toml, folders, and names of
    datasets are data.

    >>> check_config("dmo")
    Traceback (most recent call last):
        ...
    ValueError: 'dmo' is not an experiment configuration; did you mean 'demo'?
    """
    path = Path(config)
    if config.endswith(".toml"):
        _check_toml(path)
        return
    known = [*BUILT_IN, *list_extensions(PAPERS)]
    if config.partition("/")[0] in known or is_dataset(config):
        return
    _check_file(config)
    if not path.suffix and not path.is_dir():
        datasets = [component.name for component in components_of("data")]
        raise ValueError(explain_config(config, [*known, *datasets]))


def is_dataset(name: str) -> bool:
    """Return whether a named dataset of Fallow or of an installed distribution has this name.

    >>> is_dataset("digits"), is_dataset("demo")
    (True, False)
    """
    return find_component("data", name) is not None or name in list_extensions(DATASETS)


def _check_toml(path: Path) -> None:
    """Raise ValueError for a file whose settings are invalid in every configuration."""
    settings = read_toml(path)
    settings.pop("base", None)
    from fallow.settings.config import check_nested

    with explain_errors(f"{path}: "):
        check_nested(settings)


def _check_file(name: str) -> None:
    """Raise ValueError for a missing file; names without an ending may be those of datasets."""
    if Path(name).suffix and ":" not in name:
        find_existing(name)


def check_strategies(strategies: Iterable[str]) -> None:
    """Raise ValueError for an unknown query strategy, or an unknown parameter of one."""
    for strategy in filter(str.strip, strategies):
        text = strategy.partition("@")[0].strip()
        if "(" in text or text.startswith("bound:"):
            continue
        spec = Spec.parse(text)
        check_component("strategy", spec.name, spec.fields)


def check_values(pairs: Iterable[str]) -> None:
    """Raise ValueError for an unknown setting, and for a value of a wrong type.

    >>> check_values(["cycles=2", "rounds=x"])
    Traceback (most recent call last):
        ...
    ValueError: rounds is 'x'; it must be a whole number, at least 1
    """
    for key, equals, text in (pair.partition("=") for pair in pairs):
        if not equals:
            continue  # rejected when the pairs are combined
        from fallow.settings.config import check_setting
        from fallow.settings.fields import full_name

        check_setting(full_name(key, {}), text)
