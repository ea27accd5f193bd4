"""Lookup of an experiment configuration by name or TOML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from fallow.catalog import is_named
from fallow.configs.defaults import default_training
from fallow.configs.papers import FALLOW, GROUP, Paper, load_papers
from fallow.core.extensions import list_entry_points
from fallow.core.kinds import show_value
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import explain_config
from fallow.settings.config import ExperimentConfig, config_from
from fallow.storage.received import read_toml

STRATEGIES = ("random", "entropy", "ahfal")
"""Strategies that are compared if a file names none."""


def find_config(
    name: str,
    changes: Mapping[str, object] | None = None,
    strategies: Iterable[str] = (),
) -> ExperimentConfig:
    """Return the experiment configuration ``name``, or that of a file whose name ends in ``.toml``.

    A file may extend another configuration: ``base = "demo"``.  Without a base and a training
    algorithm, the default is closed form (`default_training`).  Paths in a file are relative to it.

    Parameters
    ----------
    name : str
        Name or TOML file.
    changes, strategies : optional
        Settings and query strategies that the caller will add.  They are not applied here.  Without a
        training algorithm, they must be compatible with the default one.

    Raises
    ------
    ValueError
        If the name is unknown, the file is unreadable, a setting is invalid, or a network setting
        has no training algorithm.

    >>> demo = find_config("demo")
    >>> demo.data, demo.sites, demo.strategies[:2]
    ('digits', 10, ('random', 'margin'))
    """
    return _find_config(name, changes or {}, list(strategies), ())


def _find_config(
    name: str,
    changes: Mapping[str, object],
    strategies: Sequence[str],
    extending: tuple[Path, ...],
) -> ExperimentConfig:
    """Return an experiment configuration. ``extending``: the files whose base it is."""
    if not name.endswith(".toml"):
        return _find_by_name(name)
    path = Path(name)
    if path.resolve() in extending:
        raise ValueError(f"{path} extends itself by its base; set another base")
    settings = read_toml(path)
    base = settings.pop("base", "")
    if not isinstance(base, str):
        raise ValueError(f"{path}: base is {show_value(base)}; it must be a text")
    output = {**settings, **changes}
    if base:
        config = _beside(path, base, is_file=base.endswith(".toml"))
        files = (*extending, path.resolve())
        start = _find_config(config, output, strategies, files)
        usual: dict[str, object] = {"name": path.stem}
    else:
        start = None
        usual = {"name": path.stem, "strategies": STRATEGIES}
        if "training" not in output:
            usual["training"] = default_training(output, strategies)
        usual["training_config"] = {}  # of the model family
    data = settings.get("data")
    if isinstance(data, str):
        settings["data"] = _beside(path, data, is_file=not is_named(data))
    with explain_errors(f"{path}: "):
        return config_from({**usual, **settings}, start)


def _beside(file: Path, named: str, *, is_file: bool) -> str:
    """Resolve a path in a file relative to that file."""
    if not is_file:
        return named
    return str(file.parent / named)


@cache
def load_configs() -> dict[str, ExperimentConfig]:
    """Return all configurations by name.

    >>> load_configs()["demo"].data
    'digits'
    """
    return configs_of(load_papers())


def list_configs() -> list[str]:
    """Return the names of all configurations, without reading their files."""
    return [name for paper in load_papers() for name in _list_of(paper)]


def configs_of(papers: Iterable[Paper]) -> dict[str, ExperimentConfig]:
    """Return the configurations of papers by name.  Raises ValueError if two have the same name."""
    configs: dict[str, ExperimentConfig] = {}
    for paper in papers:
        for name in _list_of(paper):
            if name in configs:
                raise ValueError(f"two configurations are called {name!r}; rename one")
            configs[name] = _read_of(paper, name)
    return configs


def _find_by_name(name: str) -> ExperimentConfig:
    """Return a configuration by name.  Only the distribution with its prefix is loaded."""
    if name in _list_of(FALLOW):
        return _read_of(FALLOW, name)
    prefix, _, _ = name.partition("/")
    for entry in list_entry_points(GROUP):
        if entry.name == prefix:
            paper = entry.load()
            if name in _list_of(paper):
                return _read_of(paper, name)
    if Path(name).suffix:
        raise ValueError(
            f"{name!r} is not an experiment configuration: the file of one ends in .toml, a "
            "table in .csv or another ending of docs/load-data.md; 'fallow configs' "
            "lists names"
        )
    raise ValueError(explain_config(name, list_configs()))


def _list_of(paper: Paper) -> list[str]:
    names = [config.name for config in paper.configs]
    if paper.folder is not None:
        files = sorted(paper.folder.glob("*.toml"))
        names += [f"{paper.folder.name}/{file.stem}" for file in files]
    return names


def _read_of(paper: Paper, name: str) -> ExperimentConfig:
    """Return the configuration of a paper by one of its names."""
    for config in paper.configs:
        if config.name == name:
            return config
    assert paper.folder is not None  # noqa: S101 - its name is listed
    _, _, stem = name.partition("/")
    return _read_file(paper.folder / f"{stem}.toml")


@cache
def _read_file(file: Path) -> ExperimentConfig:
    """Return the configuration of a paper's file, whose name begins with that of the folder."""
    config = find_config(str(file))
    return replace(config, name=f"{file.parent.name}/{file.stem}")
