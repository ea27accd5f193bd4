"""Lookup of an experiment configuration by name or TOML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fallow.core.kinds import show_value
from fallow.core.terms import explain_recipe
from fallow.data import CATALOG
from fallow.recipes.default_training import default_training
from fallow.recipes.papers import find_named_recipe, load_recipes
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
    try:
        # editors on Windows start a file with a byte-order mark
        text = read_named(path).decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
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
        settings["data"] = _beside(path, data, is_file=data not in CATALOG)
    try:
        return recipe_from({**usual, **settings}, start)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _beside(file: Path, named: str, *, is_file: bool) -> str:
    """Resolve a path in a file relative to that file."""
    if not is_file:
        return named
    return str(file.parent / named)


def _find_by_name(name: str) -> Recipe:
    recipe = find_named_recipe(name)
    if recipe is not None:
        return recipe
    if Path(name).suffix:
        raise ValueError(
            f"{name!r} is not a recipe: an experiment configuration ends in .toml, a "
            "table in .csv or another ending of docs/load-data.md; 'fallow recipes' "
            "lists names"
        )
    raise ValueError(explain_recipe(name, [*load_recipes()]))
