"""Secure sums where an agreement needs them and says nothing of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fallow.federation.building import with_secure_sums
from fallow.privacy import Privacy
from fallow.settings.recipe import Recipe, recipe_from

SOLVED = recipe_from({"name": "trial", "training": "closed-form", "strategy": "margin"})


def test_a_closed_form_has_them_and_all_else_stays() -> None:
    found = with_secure_sums(SOLVED, 3)
    assert found.privacy.secure_sum
    assert replace(found, privacy=SOLVED.privacy) == SOLVED


@pytest.mark.parametrize(
    "recipe",
    [
        replace(SOLVED, privacy=Privacy(bound=5.0)),
        recipe_from({"name": "trial", "training": "closed-form:shown=parts"}),
        Recipe("trial"),
        recipe_from({"name": "trial", "training": "nobodys:Training"}),
    ],
    ids=["privacy is said", "parts are shown", "FedAvg", "not ours"],
)
def test_what_says_otherwise_or_needs_none_stays_as_it_is(recipe: Recipe) -> None:
    assert with_secure_sums(recipe, 3) is recipe


def test_two_sites_have_none() -> None:
    assert with_secure_sums(SOLVED, 2) is SOLVED
