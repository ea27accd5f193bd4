"""A paper as a value: what it declares for everybody who lists, runs, names or reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fallow.report.section import Across, Section
from fallow.settings.recipe import Recipe
from fallow.study.known import Code, Known, Labels
from fallow.study.published import PublishedTables


@dataclass(frozen=True)
class Sections:
    """The sections that only one paper needs: about one study, and over several."""

    of_one: tuple[Section, ...] = ()
    of_several: tuple[Across, ...] = ()


@dataclass(frozen=True)
class Paper:
    """One paper, or a study of our own.

    ``published``: the folder of its printed tables; ``codes``: classes that do what its public code
    does; ``labels``: what its readers call strategies; ``sections``: a function that imports the
    report sections, so that a command that only lists recipes draws nothing.
    """

    title: str
    authors: str = ""
    year: int | None = None
    recipes: tuple[Recipe, ...] = ()
    published: Path | None = None
    codes: tuple[Code, ...] = ()
    labels: Labels = Labels()
    sections: Callable[[], Sections] = Sections


def known_of(papers: Iterable[Paper]) -> Known:
    """What the papers say of strategies, for whoever names them."""
    labels = []
    codes: dict[str, Code] = {}
    folders = []
    for paper in papers:
        labels.append(paper.labels)
        for code in paper.codes:
            codes |= dict.fromkeys(code.words, code)
        if paper.published is not None:
            folders.append(paper.published)
    return Known(
        labels=tuple(labels),
        codes=codes,
        published=PublishedTables(tuple(folders)),
    )


def recipes_of(papers: Iterable[Paper]) -> dict[str, Recipe]:
    """The recipes of all papers by name.  Raises ValueError where two have the same name."""
    found: dict[str, Recipe] = {}
    for paper in papers:
        for recipe in paper.recipes:
            if recipe.name in found:
                raise ValueError(f"two recipes are called {recipe.name!r}; rename one")
            found[recipe.name] = recipe
    return found


def sections_of(papers: Iterable[Paper]) -> Sections:
    """The sections of all papers, in the order of the papers."""
    of_one: list[Section] = []
    of_several: list[Across] = []
    for paper in papers:
        sections = paper.sections()
        of_one += sections.of_one
        of_several += sections.of_several
    return Sections(tuple(of_one), tuple(of_several))
