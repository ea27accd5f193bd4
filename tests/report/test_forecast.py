"""Forecasts in the report: the best strategy first, with a plot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fallow.configs.papers import load_paper_results
from fallow.report.blocks import Table
from fallow.report.final_table import rank_strategies
from fallow.report.forecast import forecast
from fallow.study.reading import read_study
from tests.report.conftest import rewrite


def test_forecasts_stand_in_the_order_of_final_scores_and_the_best_is_drawn(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(cycles=6, seeds=2)

    def climb(record: dict[str, Any], path: Path) -> dict[str, Any]:
        top = 0.95 if "entropy" in str(path) else 0.85
        record["accuracy"] = top - 0.5 / (1 + record["cycle"])
        return record

    rewrite(root, climb)
    study = read_study(root, load_paper_results())
    assert rank_strategies(study)[0] == "entropy"
    blocks = forecast(study, "a")
    table = next(block for block in blocks if isinstance(block, Table))
    assert table.rows[0][0] == "entropy"
    assert table.rows[0][1].startswith(
        ("+", "the scores")
    )  # the caption gives the number of labels
    drawn = [block for block in blocks if "entropy: scores" in str(block)]
    assert len(drawn) == 1
    assert not [block for block in blocks if "random: scores" in str(block)]
