"""``fallow advise``: recommendation of the published benchmark for a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt


@opt.shows("fallow.study.advice:Advice")
def advise(
    study: Annotated[
        Path, typer.Argument(help="Study folder; the study may still be running")
    ],
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Recommend a query strategy and a training algorithm for a study.

    The recommendation comes from benchmark tasks with a similar number of classes, sites and labels,
    and a similar distribution of labels.
    """
    from fallow.cli.results import keep_private
    from fallow.recipes.advice import RULES, read_table
    from fallow.study.advice import advise as advise_world
    from fallow.study.advice import read_facts
    from fallow.study.reading import read_study

    keep_private(study)
    facts, labels = read_facts(read_study(study))
    advice = advise_world(read_table(), facts, labels, RULES)
    opt.tell(advice.sentences, advice, quiet=quiet, as_json=as_json)
