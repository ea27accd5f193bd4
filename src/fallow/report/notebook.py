"""Jupyter notebook that reads and plots the records of a study."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fallow.configs.papers import Paper, paper_results_of
from fallow.report.final_table import final_table
from fallow.report.sentences import summary
from fallow.report.side_by_side import names_of
from fallow.storage.files import write_whole
from fallow.storage.plain import markdown_text, one_line
from fallow.study.reading import read_study
from fallow.study.records import StudyRecords

Cell = dict[str, object]
"""A cell in the notebook format."""

FIRST = """\
%matplotlib inline
import fallow as fl
import pandas as pd"""
READ = """\
study = fl.read_study({folder!r})
records = study.records
study"""
EVALUATIONS = """\
columns = ["strategy", "seed", "cycle", "round", "labeled", "accuracy", "balanced_accuracy", "mse"]
records[[name for name in columns if name in records and records[name].notna().any()]]"""
COSTS = """\
costs = ["labeled", "seconds", "bytes_up", "bytes_down"]
records.groupby(["strategy", "seed"], sort=False)[costs].last()"""
REVEALED = """\
last = records.iloc[-1]
pd.DataFrame(last["revealed"]).assign(strategy=last["strategy"], seed=last["seed"])"""
SECTIONS = (
    ("Scores at the end", "study.table()"),
    ("Learning curves", "study.plot()"),
    ("Every evaluation", EVALUATIONS),
    ("What it cost", COSTS),
    ("Disclosures of each site in the last run", REVEALED),
)
"""Each section has the code that creates it."""


def write_notebook(
    studies: Sequence[Path | str], out: Path, *, papers: Sequence[Paper] = ()
) -> Path:
    """Write a notebook (format 4.5, not executed) about studies, and return its path.

    The notebook reads the studies by relative paths.  Raises ValueError if the name does not end in
    .ipynb, or a folder has no study or no record.
    """
    if out.suffix.lower() != ".ipynb":
        raise ValueError(f"{out.name} does not end in .ipynb; rename it")
    known = paper_results_of(papers)
    notebook = [read_study(path, known) for path in studies]
    cells = [_code(FIRST)]
    for name, study in zip(names_of(notebook), notebook, strict=True):
        cells += _describe_study(study, name, out)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    tree = {
        "cells": cells,
        "metadata": {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    write_whole(out, (json.dumps(tree, indent=1, ensure_ascii=False) + "\n").encode())
    return out


def _describe_study(study: StudyRecords, name: str, out: Path) -> Iterator[Cell]:
    if not any(run.records for run in study.cells):
        raise ValueError(f"{study.path} has no records yet; run the study first")
    folder = os.path.relpath(study.path, out.parent)
    title = str(study.study.config.get("title") or "")
    words = [f"# {name}", title, summary(study, final_table(study))]
    lines = [one_line(text) for text in words if text]
    yield _text("\n\n".join(lines))
    yield _code(READ.format(folder=folder))
    for head, code in SECTIONS:
        yield from [_text(f"## {head}"), _code(code)]


def _text(text: str) -> Cell:
    source = markdown_text(text)  # names in a study are untrusted text
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(text: str) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text,
    }
