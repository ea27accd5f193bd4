"""``fallow advise``: which strategy the published benchmark suggests for a study."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt


def advise(
    study: Annotated[
        Path, typer.Argument(help="Folder of a study, also of one that goes on.")
    ],
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Which strategy and training suit a study, by a table of tasks that were run.

    By how many classes and sites there are, how labels lie over them, and how many there are so far.
    """
    from fallow.cli.results import keep_private
    from fallow.papers.own.advice import RULES, read_table
    from fallow.study.advice import advise as advise_world
    from fallow.study.advice import read_facts
    from fallow.study.reading import read_study

    keep_private(study)
    facts, labels = read_facts(read_study(study))
    advice = advise_world(read_table(), facts, labels, RULES)
    sentences = advice.sentences()
    details = {**asdict(advice), "sentences": list(sentences)}
    opt.tell(list(sentences), details, quiet=quiet, as_json=as_json)
