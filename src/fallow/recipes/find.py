"""Lookup of an experiment configuration by name or TOML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from fallow.core.kinds import show_value
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import explain_recipe
from fallow.data import is_named
from fallow.recipes.default_training import default_training
from fallow.recipes.papers import FALLOW, GROUP, Paper, load_papers
from fallow.settings.recipe import Recipe, recipe_from
from fallow.storage.received import parse_toml, read_named

STRATEGIES = ("random", "entropy", "ahfal")
"""Strategies that are compared if a file names none."""


def find_recipe(
    name: str,
    changes: Mapping[str, object] | None = None,
    strategies: Iterable[str] = (),
) -> Recipe:
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

    >>> demo = find_recipe("demo")
    >>> demo.data, demo.sites, demo.strategies[:2]
    ('digits', 10, ('random', 'margin'))
    """
    return _find_recipe(name, changes or {}, list(strategies), ())


def _find_recipe(
    name: str,
    changes: Mapping[str, object],
    strategies: Sequence[str],
    extending: tuple[Path, ...],
) -> Recipe:
    """Return an experiment configuration. ``extending``: the files whose base it is."""
    if not name.endswith(".toml"):
        return _find_by_name(name)
    path = Path(name)
    if path.resolve() in extending:
        raise ValueError(f"{path} extends itself by its base; set another base")
    with explain_errors(f"{path} cannot be read: ", of=OSError):
        content = read_named(path)
    try:
        # editors on Windows start a file with a byte-order mark
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8, as TOML requires; save it with that encoding (byte "
            f"{error.start + 1:,} is invalid)"
        ) from error
    settings = parse_toml(text, path)
    base = settings.pop("base", "")
    if not isinstance(base, str):
        raise ValueError(f"{path}: base is {show_value(base)}; it must be a text")
    output = {**settings, **changes}
    if base:
        recipe = _beside(path, base, is_file=base.endswith(".toml"))
        files = (*extending, path.resolve())
        start = _find_recipe(recipe, output, strategies, files)
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
        return recipe_from({**usual, **settings}, start)


def _beside(file: Path, named: str, *, is_file: bool) -> str:
    """Resolve a path in a file relative to that file."""
    if not is_file:
        return named
    return str(file.parent / named)


@cache
def load_recipes() -> dict[str, Recipe]:
    """Return all recipes by name.

    >>> load_recipes()["demo"].data
    'digits'
    """
    return recipes_of(load_papers())


def list_recipes() -> list[str]:
    """Return the names of all recipes, without reading their files."""
    return [name for paper in load_papers() for name in _list_of(paper)]


def recipes_of(papers: Iterable[Paper]) -> dict[str, Recipe]:
    """Return the recipes of papers by name.  Raises ValueError if two have the same name."""
    recipes: dict[str, Recipe] = {}
    for paper in papers:
        for name in _list_of(paper):
            if name in recipes:
                raise ValueError(f"two recipes are called {name!r}; rename one")
            recipes[name] = _read_of(paper, name)
    return recipes


def _find_by_name(name: str) -> Recipe:
    """Return a recipe by name.  Only the distribution with its prefix is loaded."""
    if name in _list_of(FALLOW):
        return _read_of(FALLOW, name)
    prefix, _, _ = name.partition("/")
    for entry in entry_points(group=GROUP, name=prefix):
        paper = entry.load()
        if name in _list_of(paper):
            return _read_of(paper, name)
    if Path(name).suffix:
        raise ValueError(
            f"{name!r} is not a recipe: an experiment configuration ends in .toml, a "
            "table in .csv or another ending of docs/load-data.md; 'fallow recipes' "
            "lists names"
        )
    raise ValueError(explain_recipe(name, list_recipes()))


def _list_of(paper: Paper) -> list[str]:
    names = [recipe.name for recipe in paper.recipes]
    if paper.folder is not None:
        files = sorted(paper.folder.glob("*.toml"))
        names += [f"{paper.folder.name}/{file.stem}" for file in files]
    return names


def _read_of(paper: Paper, name: str) -> Recipe:
    """Return the recipe of a paper by one of its names."""
    for recipe in paper.recipes:
        if recipe.name == name:
            return recipe
    assert paper.folder is not None  # noqa: S101 - its name is listed
    _, _, stem = name.partition("/")
    return _read_file(paper.folder / f"{stem}.toml")


@cache
def _read_file(file: Path) -> Recipe:
    """Return the recipe of a paper's file, whose name begins with that of the folder."""
    recipe = find_recipe(str(file))
    return replace(recipe, name=f"{file.parent.name}/{file.stem}")
