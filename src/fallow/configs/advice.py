"""Benchmark table for recommendations: published scores with few labels."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fallow.study.advice import AdviceTable, Rules, SimulationFacts

FOLDER = Path(__file__).parent / "published"
SCORES = FOLDER / "few-labels.csv"
SIMULATIONS = FOLDER / "few-labels-tasks.csv"
RULES = Rules(reference="random", usual="typical_unsure", trainer="closed-form")


@lru_cache(maxsize=1)
def read_table() -> AdviceTable:
    """Read the scores of each strategy by task, seed and labels, and the properties of each
    task.
    """
    import pandas as pd

    simulations = {}
    for row in pd.read_csv(SIMULATIONS).itertuples(index=False):
        simulations[str(row.task)] = SimulationFacts(
            classes=int(row.classes),
            sites=int(row.sites),
            apart=float(row.apart),
            uneven=float(row.uneven),
        )
    return AdviceTable(pd.read_csv(SCORES), simulations)
