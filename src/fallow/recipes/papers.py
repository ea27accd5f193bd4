"""Recipes and published results: those of Fallow, and those of installed distributions.

A distribution adds a paper with an entry point of the group ``fallow.papers``, whose name is the
first part of its recipes (``ahfal`` for ``ahfal/cifar10``) and whose value is a `Paper`.  An entry
point is loaded when a recipe of it is used or all papers are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fallow.recipes import all_strategies, demo, few_labels
from fallow.settings.recipe import Recipe
from fallow.study.known import Code, Labels, PaperResults
from fallow.study.published import PublishedTables

GROUP = "fallow.papers"


@dataclass(frozen=True)
class Paper:
    """Recipes, published results and public code of one paper.

    Parameters
    ----------
    title, authors, year : str, str, int
        Reference.
    recipes : tuple of Recipe
        Experiment configurations.
    published : Path, optional
        Folder of the published tables.
    codes : tuple of Code
        Classes that reproduce its public code.
    labels : Labels
        Display names of strategies.
    sections : callable, optional
        Function that imports and returns its report sections (`fallow.report.section.Sections`).  It
        is called when a report is written.
    """

    title: str
    authors: str = ""
    year: int | None = None
    recipes: tuple[Recipe, ...] = ()
    published: Path | None = None
    codes: tuple[Code, ...] = ()
    labels: Labels = Labels()
    sections: Callable[[], Any] | None = None


FALLOW = Paper(
    title="Fallow",
    recipes=(*demo.RECIPES, *all_strategies.RECIPES, *few_labels.RECIPES),
)


@cache
def load_papers() -> tuple[Paper, ...]:
    """Return the built-in recipes, then the papers of installed distributions by name."""
    installed = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return (FALLOW, *(entry.load() for entry in installed))


@cache
def load_known() -> PaperResults:
    """Return what all papers state about strategies."""
    return known_of(load_papers())


@cache
def load_recipes() -> dict[str, Recipe]:
    """Return all recipes by name.

    >>> load_recipes()["demo"].data
    'digits'
    """
    return recipes_of(load_papers())


def find_named_recipe(name: str) -> Recipe | None:
    """Return a recipe by name, or None.  Only the distribution with its prefix is loaded."""
    for recipe in FALLOW.recipes:
        if recipe.name == name:
            return recipe
    for entry in entry_points(group=GROUP, name=name.partition("/")[0]):
        for recipe in entry.load().recipes:
            if recipe.name == name:
                named: Recipe = recipe
                return named
    return None


def known_of(papers: Iterable[Paper]) -> PaperResults:
    """Return what papers state about strategies."""
    labels = []
    codes: dict[str, Code] = {}
    folders = []
    for paper in papers:
        labels.append(paper.labels)
        for code in paper.codes:
            codes[code.word] = code
        if paper.published is not None:
            folders.append(paper.published)
    return PaperResults(
        labels=tuple(labels),
        codes=codes,
        published=PublishedTables(tuple(folders)),
    )


def recipes_of(papers: Iterable[Paper]) -> dict[str, Recipe]:
    """Return the recipes of papers by name.  Raises ValueError if two have the same name."""
    recipes: dict[str, Recipe] = {}
    for paper in papers:
        for recipe in paper.recipes:
            if recipe.name in recipes:
                raise ValueError(f"two recipes are called {recipe.name!r}; rename one")
            recipes[recipe.name] = recipe
    return recipes
