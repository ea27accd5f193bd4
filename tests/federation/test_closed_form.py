"""Heads in closed form at real sites: secure sums unless the sites agree to show more, and words
that say what is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.federation.building import build_study
from fallow.federation.site.terms import describe_study, list_disclosures
from fallow.privacy import Privacy
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec
from tests.federation.worlds import Federation, federation, rows

SECURE = Privacy(secure_sum=True)
CLOSED: dict[str, Any] = {
    "model": Spec("linear"),
    "encoder": Spec("fourier", {"features": 24}),
    "query": Spec("margin"),
    "initial": 5,
    "per_cycle": 4,
    "rounds": 1,
    "score_rounds": 1,
    "cycles": 1,
    "dtype": "float64",
}
HEADS = ("closed-form", "closed-form-heads")


def hospitals(folder: Path, training: Spec, privacy: Privacy = SECURE) -> Federation:
    recipe = Recipe("hospitals", **CLOSED, training=training, privacy=privacy)
    return federation(folder, recipe, rows(classes=3))


@pytest.mark.parametrize("name", HEADS)
def test_without_secure_sums_it_is_refused_and_says_what_would_be_seen(
    name: str, tmp_path: Path
) -> None:
    agreed = hospitals(tmp_path, Spec(name)).agreement
    plain = replace(agreed, recipe=replace(agreed.recipe, privacy=Privacy()))
    with pytest.raises(ValueError, match=r"those of one row are that row") as refused:
        build_study(plain)
    assert "privacy.secure_sum = true" in str(refused.value)
    assert "shown=parts" in str(refused.value)


@pytest.mark.parametrize("name", HEADS)
def test_sites_may_agree_to_show_their_parts_and_are_told_what_that_means(
    name: str, tmp_path: Path
) -> None:
    world = hospitals(tmp_path, Spec(name, {"shown": "parts"}), Privacy())
    told = describe_study(world.sites["basel"])
    assert any("without secure sums the coordinator sees" in line for line in told)
    assert any("totals of two closes" in line for line in told)


def test_with_secure_sums_only_the_totals_of_two_closes_are_spoken_of(
    tmp_path: Path,
) -> None:
    world = hospitals(tmp_path, Spec("closed-form"))
    told = describe_study(world.sites["basel"])
    assert not any("without secure sums" in line for line in told)
    assert any("totals of two closes" in line for line in told)
    seen_by = {verb: seen for _, verb, _, seen in list_disclosures(world.sites["basel"])}
    assert seen_by["totals"] == "coordinator, totals alone"


def test_what_an_exact_head_asks_is_listed(tmp_path: Path) -> None:
    recipe = Recipe("hospitals", **{**CLOSED, "encoder": None, "head": "exact"})
    world = federation(tmp_path, recipe, rows(classes=3))
    listed = {
        verb
        for part, verb, *_ in list_disclosures(world.sites["basel"])
        if part == "exact head"
    }
    assert listed == {"columns", "spread", "totals", "left_out"}
    told = describe_study(world.sites["basel"])
    assert any("without secure sums the coordinator sees" in line for line in told)
