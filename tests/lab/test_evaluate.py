"""What is scored is the model that is deployed."""

from statistics import fmean

from fallow.lab.journal import Journal
from fallow.lab.recipe import recipe_from
from fallow.lab.run import Run
from fallow.lab.world import build_world

TINY = {
    "name": "tiny", "data": "digits", "rows": 120, "test_rows": 60, "sites": 3, "rounds": 2,
    "cycles": 0, "score_rounds": 1,
}  # fmt: skip


def records(**changes):
    recipe = recipe_from({**TINY, **changes})
    journal = Journal()
    return Run(build_world(recipe, 0, journal), journal).go()


def test_one_model_for_all_has_no_scores_by_site():
    (row,) = records(model="linear")
    assert row["per_site"] is None and 0 <= row["accuracy"] <= 1


def test_with_statistics_that_stay_at_sites_each_site_is_scored():
    (row,) = records(model="tests.lab.norm:Norm", training="fedavg:bn=local")
    assert set(row["per_site"]) == {"site-0", "site-1", "site-2"}
    assert len(set(row["per_site"].values())) > 1
    assert row["accuracy"] == fmean(row["per_site"].values())
    assert len(row["per_class"]) == 10
