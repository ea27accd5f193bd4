"""Pages of the gallery agree with the measurements."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from fallow import strategies

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
def test_what_a_selection_costs_is_what_the_table_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    measure_costs = import_module("measure_costs")

    written = measure_costs.read_table()
    assert set(written) <= set(measure_costs.find_strategies())
    assert measure_costs.measure("margin", strategies.Margin) == written["margin"]


def test_a_table_that_is_gone_is_missed_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    gallery = import_module("gallery")

    one, other = gallery.read_table_curve(gallery.FROM_TABLES["bait"], "bait")
    assert one.labels == other.labels == [300, 600, 1500, 3000]
    assert (one.name, other.name) == ("bait", "random [1x25]")
    assert all(0 < score < 1 for score in one.scores)
    with pytest.raises(ValueError, match=r"fale\.md, ### kegg: there is no row 'BAIT'"):
        gallery.read_table_curve(gallery.on_kegg("BAIT"), "bait")


def test_a_picture_has_both_lines_and_stays_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    charts = import_module("charts")

    mine = charts.Curve("mine", [20, 200], [50.0, 90.0], [2.0, 1.0])
    other = charts.Curve("a < b", [20, 200], [50.0, 89.0], [3.0, 1.0])
    drawn = charts.draw_curves([mine, other], "accuracy, %", 'it says "more"')
    assert "mine" in drawn
    assert "a &lt; b" in drawn
    assert "&quot;more&quot;" in drawn
    assert "NaN" not in drawn.upper()
    assert charts.spread_apart([100.0, 104.0], 15) == [94.5, 109.5]
    assert charts.nice_ticks(0.53, 0.98) == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
