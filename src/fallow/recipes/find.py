"""A recipe by name, or from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from fallow.core.build import nearest
from fallow.recipes import (
    ahfal,
    demo,
    dpfl,
    fairfal,
    fale,
    local_global,
    personal_al,
    strategies,
)
from fallow.settings.recipe import Recipe, recipe_from

FILES = (demo, strategies, ahfal, fairfal, fale, dpfl, personal_al, local_global)
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for file in FILES for recipe in file.RECIPES
}


def find_recipe(name: str) -> Recipe:
    """The recipe called ``name``, or the one in the file ``name`` ends in ``.toml``.

    A file may name a recipe to start from: ``base = "demo"``.  Raises ValueError for an unknown
    name (with the nearest), a missing or unreadable file, and a bad setting (with its key).
    """
    if not name.endswith(".toml"):
        if name not in RECIPES:
            raise ValueError(
                f"{name!r} is not a recipe{nearest(name, list(RECIPES))}; "
                "'fallow recipes' lists them"
            )
        return RECIPES[name]
    path = Path(name)
    try:
        settings = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    base = settings.pop("base", None)
    start = find_recipe(base) if base else None
    try:
        return recipe_from({"name": path.stem, **settings}, start)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
