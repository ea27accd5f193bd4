"""Configurations and published results: those of Fallow, and those of installed distributions.

A distribution adds a paper with an entry point of the group ``fallow.papers``, whose name is the
first part of its configurations (``ahfal`` for ``ahfal/cifar10``) and whose value is a `Paper`.  An
entry point is loaded when a configuration of it is used or all papers are listed
(`fallow.configs.find`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fallow.configs import all_strategies, demo, few_labels
from fallow.core.extensions import list_entry_points
from fallow.settings.config import ExperimentConfig
from fallow.study.known import Code, Labels, PaperResults
from fallow.study.published import PublishedTables

GROUP = "fallow.papers"


@dataclass(frozen=True)
class Paper:
    """Configurations, published results and public code of one paper.

    Parameters
    ----------
    title, authors, year : str, str, int
        Reference.
    folder : Path, optional
        Folder of experiment configurations, ``NAME.toml``, and of published tables, if any,
        ``published/*.csv``.  The name of the folder is the first part of the configurations' names.
    configs : tuple of ExperimentConfig
        Experiment configurations that are created in Python.
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
    folder: Path | None = None
    configs: tuple[ExperimentConfig, ...] = ()
    codes: tuple[Code, ...] = ()
    labels: Labels = Labels()
    sections: Callable[[], Any] | None = None


FALLOW = Paper(
    title="Fallow",
    configs=(*demo.EXPERIMENTS, *all_strategies.EXPERIMENTS, *few_labels.EXPERIMENTS),
)


@cache
def load_papers() -> tuple[Paper, ...]:
    """Return the built-in configurations, then the papers of installed distributions by name."""
    installed = sorted(list_entry_points(GROUP), key=lambda entry: entry.name)
    return (FALLOW, *(entry.load() for entry in installed))


@cache
def load_paper_results() -> PaperResults:
    """Return what all papers state about strategies."""
    return paper_results_of(load_papers())


def paper_results_of(papers: Iterable[Paper]) -> PaperResults:
    """Return what papers state about strategies."""
    labels = []
    codes: dict[str, Code] = {}
    folders = []
    for paper in papers:
        labels.append(paper.labels)
        for code in paper.codes:
            codes[code.word] = code
        if paper.folder is not None and (paper.folder / "published").is_dir():
            folders.append(paper.folder / "published")
    return PaperResults(
        labels=tuple(labels),
        codes=codes,
        published=PublishedTables(tuple(folders)),
    )
