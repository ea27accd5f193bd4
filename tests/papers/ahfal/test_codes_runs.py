"""Runs with the strategies of public codes: memos travel from cycle to cycle by the journal."""

from __future__ import annotations

import pytest

from fallow.experiment.journal import Journal
from fallow.experiment.record import Record
from fallow.experiment.run import Run
from fallow.experiment.world import build_world
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

NAMES = [
    "NaNKSAS",
    "PixelBADGE",
    "PlainFEAL",
    "PlainLoGo",
    "PlainNoise:draws=2",
    "RatioAHFAL",
]


def records(query: str, model: str = "mlp") -> list[Record]:
    recipe = Recipe(
        "tiny",
        rows=300,
        test_rows=50,
        sites=3,
        rounds=1,
        cycles=2,
        score_rounds=1,
        model=Spec(model),
        query=Spec.parse(f"fallow.compat:{query}"),
    )
    journal = Journal()
    found = Run(build_world(recipe, 0, journal), journal).go()
    journal.close()
    return found


@pytest.mark.parametrize("model", ["mlp", "digits-cnn"])
@pytest.mark.parametrize("query", NAMES)
def test_a_run_spends_its_budget_in_every_cycle(query: str, model: str) -> None:
    found = records(query, model)
    labelled = [row["labelled"] for row in found]
    assert labelled[0] < labelled[1] < labelled[2]
    assert labelled[2] - labelled[1] == labelled[1] - labelled[0]


def test_the_notes_of_a_run_say_at_how_many_sites_ksas_was_random() -> None:
    found = records("NaNKSAS")
    first = found[0]["labelled_per_site"].values()
    blind = sum(0 in counts for counts in first)
    assert 0 < blind <= 3
    assert [row["notes"] for row in found] == [
        {"nan_sites": blind},
        {"nan_sites": blind},
        {},
    ]
