"""Whole runs with edge coordinators: the same picks and models, and what the records say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fallow as fl
from fallow.report.page import write_report
from fallow.settings.recipe import Recipe, with_settings
from fallow.settings.spec import Spec

SETTINGS: dict[str, Any] = {
    "sites": 9,
    "rows": 400,
    "cycles": 1,
    "rounds": 2,
    "progress": False,
}


def run_with(edges: int, out: Path, **settings: Any) -> Any:
    query = settings.pop("query", "ahfal")
    return fl.run(
        "digits", query=query, edges=edges, out=out / str(edges), **SETTINGS, **settings
    )


def weights_of(run: Any) -> bytes:
    return b"".join(value.numpy().tobytes() for value in run.model.state_dict().values())


def picks_of(run: Any) -> list[tuple[Any, ...]]:
    """The rows that were bought, with their sites and cycles."""
    return list(run.labels[["site", "row", "cycle"]].itertuples(index=False, name=None))


FEW_FEATURES = Spec("convolution", {"filters": 8})


@pytest.mark.parametrize(
    "settings",
    [{"training": "fedavg"}, {"training": "closed-form", "encoder": FEW_FEATURES}],
    ids=lambda settings: settings["training"],
)
def test_picks_and_models_are_the_same_bit_for_bit_for_every_number_of_edges(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    one = run_with(1, tmp_path, **settings)
    for edges in (2, 9):
        many = run_with(edges, tmp_path, **settings)
        assert picks_of(one) == picks_of(many) != []
        assert weights_of(one) == weights_of(many)


def test_with_secure_sums_picks_and_models_are_those_without_edges_bit_for_bit(
    tmp_path: Path,
) -> None:
    privacy = {"secure_sum": True}
    without = run_with(0, tmp_path, privacy=privacy)
    for edges in (1, 3):
        many = run_with(edges, tmp_path, privacy=privacy)
        assert picks_of(without) == picks_of(many) != []
        assert weights_of(without) == weights_of(many)


def test_without_secure_sums_picks_are_those_without_edges(tmp_path: Path) -> None:
    without = run_with(0, tmp_path, dtype="float64")
    many = run_with(3, tmp_path, dtype="float64")
    assert picks_of(without) == picks_of(many) != []


def test_records_and_report_say_who_adds_up(tmp_path: Path) -> None:
    run = run_with(3, tmp_path)
    (share,) = [row for row in run.records["revealed"].iloc[-1] if row["verb"] == "share"]
    assert (share["kind"], share["sites"], share["edges"]) == ("sum", 9, 3)
    page = write_report([run.folder]).read_text(encoding="utf-8")
    assert (
        "the server: totals of 3 branches; their edges: each addend of their own sites"
        in page
    )
    privacy = {"secure_sum": True}
    run = run_with(2, tmp_path, privacy=privacy)
    page = write_report([run.folder]).read_text(encoding="utf-8")
    assert "the server and 2 edges: totals of branches only; every part was masked" in page


def test_edges_are_a_part_of_what_a_run_computes_and_so_of_its_digest() -> None:
    recipe = Recipe("a", edges=3)
    assert recipe.digest != Recipe("a").digest
    assert not recipe.is_digested_as(Recipe("a").digest)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"edges": "-1"}, "edges is -1; it must be 0 or more"),
        ({"edges": "11"}, "edges is 11 and sites is 10; an edge has one site at least"),
        (
            {"edges": "4", "privacy.secure_sum": "true"},
            "with secure sums each edge needs 3 sites.*set edges=3 or less",
        ),
        (
            {"edges": "2", "privacy.secure_sum": "true", "participation": "0.5"},
            "with secure sums an edge could have too few sites in a round",
        ),
    ],
)
def test_edges_that_cannot_be_are_refused_in_a_sentence(
    settings: dict[str, str], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        with_settings(Recipe("a"), settings)


def test_more_edges_than_sites_of_the_data_are_refused(tmp_path: Path) -> None:
    rows = range(60)
    table = pd.DataFrame(
        {"x": rows, "label": [i % 2 for i in rows], "site": ["a", "b"] * 30}
    )
    table.to_csv(tmp_path / "rows.csv", index=False)
    recipe = Recipe(
        "a",
        data=str(tmp_path / "rows.csv"),
        label="label",
        site="site",
        partition=Spec("natural"),
        sites=0,
        edges=3,
        cycles=0,
    )
    with pytest.raises(ValueError, match="edges is 3 and sites is 2; an edge has one"):
        fl.compare(["random"], recipe=recipe, seeds=1, progress=False)
