"""What is scored is the model that is deployed."""

from statistics import fmean

import pytest

from fallow.engine import predict
from fallow.experiment.evaluate import pseudo_labels
from fallow.experiment.journal import Journal
from fallow.experiment.record import Record
from fallow.experiment.run import Run
from fallow.experiment.world import build_world
from fallow.settings.recipe import recipe_from
from tests.experiment.test_personal_environment import scores_of_sites

TINY = {
    "name": "tiny",
    "data": "digits",
    "rows": 120,
    "test_rows": 60,
    "sites": 3,
    "rounds": 2,
    "cycles": 0,
    "score_rounds": 1,
}


def records(**changes: object) -> list[Record]:
    recipe = recipe_from({**TINY, **changes})
    journal = Journal()
    return Run(build_world(recipe, 0, journal), journal).go()


def test_one_model_for_all_has_no_scores_by_site() -> None:
    (row,) = records(model="linear")
    assert row["per_site"] is None
    assert row["accuracy"] is not None and 0 <= row["accuracy"] <= 1


def test_with_statistics_that_stay_at_sites_each_site_is_scored() -> None:
    (row,) = records(model="tests.experiment.norm:Norm", training="fedavg:bn=local")
    by_site = scores_of_sites(row)
    assert set(by_site) == {"site-0", "site-1", "site-2"}
    assert len(set(by_site.values())) > 1
    assert row["accuracy"] == fmean(by_site.values())
    assert row["per_class"] is not None and len(row["per_class"]) == 10


def test_pseudo_labels_are_judged_by_the_hidden_ones() -> None:
    journal = Journal()
    recipe = recipe_from({**TINY, "model": "linear", "cycles": 1})
    world = build_world(recipe, 0, journal)
    run = Run(world, journal)
    run.first_phase()
    hits = 0
    rows = 0
    for name, site in world.members.items():
        x = site.x[site.pool]
        guess = predict(world.model, world.layout, site.memory["local"], x).argmax(1)
        hits += int((guess == world.oracle.hidden[name][site.pool]).sum())
        rows += len(x)
    values = pseudo_labels(world)
    assert values is not None
    assert (
        values["accuracy"] == pytest.approx(hits / rows) and len(values["per_class"]) == 10
    )
    first, last = run.go()
    assert first["pseudo_labels"] == values
    assert last["pseudo_labels"] is None  # nothing is queried after the last phase


def test_numbers_to_predict_have_no_pseudo_labels() -> None:
    (row, _) = records(data="diabetes", model="linear", cycles=1, partition="iid")
    assert row["pseudo_labels"] is None


def test_where_nothing_is_trained_before_rows_are_chosen_there_are_no_pseudo_labels() -> (
    None
):
    journal = Journal()
    recipe = recipe_from({**TINY, "model": "linear", "cycles": 1, "strategy": "typical"})
    world = build_world(recipe, 0, journal)
    row = Run(world, journal).one_pass(1)[0]
    assert row["labeled"] > 0
    assert row["pseudo_labels"] is None
