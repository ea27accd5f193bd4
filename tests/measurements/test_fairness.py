"""Fairness of accuracy between sites: worst tenth and spread, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fallow as fl
from fallow.cli.coordinate import list_measured_values
from fallow.measurements.base import IntervalScores
from fallow.measurements.fairness import Fairness, estimate_spread, estimate_worst_tenth
from fallow.report.blocks import Note, Table
from fallow.report.final_table import final_table
from fallow.report.measured import measured
from fallow.report.page import GENERAL
from fallow.report.sentences import summarize
from fallow.study.reading import read_study
from tests.simulations import PLAIN

SETTINGS: dict[str, Any] = {"cycles": 0, "initial": 0.1, "progress": False}


def draw_counts(
    rng: np.random.Generator, sites: int, mean: float, spread: float
) -> tuple[Any, Any, Any]:
    """Return accuracies, correct predictions and examples of sites, (K,) each."""
    accuracies = np.full(sites, mean)
    if spread:
        size = mean * (1 - mean) / spread**2 - 1
        accuracies = rng.beta(mean * size, (1 - mean) * size, size=sites)
    rows = rng.integers(20, 41, size=sites)
    return accuracies, rng.binomial(rows, accuracies).astype(float), rows.astype(float)


def is_inside(scores: IntervalScores, truth: float) -> bool:
    assert scores["low"] is not None and scores["high"] is not None
    return scores["low"] <= truth <= scores["high"]


def test_the_worst_tenth_is_the_mean_of_the_lowest_tenth_with_its_exact_interval() -> None:
    rows = np.full(11, 10.0)
    hits = np.array([1.0, 3.0, *[10.0] * 9])
    scores = estimate_worst_tenth(hits, rows)
    assert scores["value"] == pytest.approx(0.2)
    one = estimate_worst_tenth(np.array([0.0]), np.array([10.0]))
    assert one["low"] == 0.0
    assert one["high"] == pytest.approx(
        1 - 0.025 ** (1 / 10)
    )  # Clopper-Pearson without hits


def test_intervals_of_the_worst_tenth_contain_it_in_95_percent_of_all_draws() -> None:
    rng = np.random.default_rng(0)
    contained = []
    for _ in range(200):
        truth, hits, rows = draw_counts(rng, 12, 0.8, 0.05)
        contained.append(
            is_inside(estimate_worst_tenth(hits, rows), np.sort(truth)[:2].mean())
        )
    assert np.mean(contained) >= 0.95


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_spread_has_no_part_of_few_examples(spread: float) -> None:
    rng = np.random.default_rng(1)
    values = []
    contained = []
    for _ in range(100):
        _, hits, rows = draw_counts(rng, 20, 0.6, spread)
        scores = estimate_spread(hits, rows)
        assert scores["value"] is not None
        values.append(scores["value"])
        contained.append(is_inside(scores, spread))
    observed = 0.09  # standard deviation of an accuracy of 0.6 over 30 examples
    assert np.mean(values) == pytest.approx(spread, abs=0.25 * observed)
    assert np.mean(contained) >= 0.92


def test_one_site_has_no_spread_and_perfect_sites_have_no_interval() -> None:
    one = estimate_spread(np.array([3.0]), np.array([4.0]))
    assert one == {"value": None, "low": None, "high": None}
    perfect = estimate_spread(np.array([4.0, 9.0]), np.array([4.0, 9.0]))
    assert perfect == {"value": 0.0, "low": None, "high": None}


def test_sites_without_test_examples_do_not_count() -> None:
    counts = {"a": {"rows": 8.0, "hits": 4.0}, "b": {"rows": 0.0, "hits": 0.0}}
    result = Fairness().fold({}, counts)  # type: ignore[arg-type]
    assert result["worst tenth"]["value"] == 0.5
    assert result["spread"]["value"] is None
    assert Fairness().fold({}, {})["worst tenth"]["value"] is None


def test_a_study_shows_it_in_records_report_summary_and_model_card(tmp_path: Any) -> None:
    run = fl.run(
        "digits",
        partition="dirichlet:alpha=0.3",
        sites=4,
        test="own",
        measure=["fairness"],
        training=PLAIN,
        out=tmp_path / "study",
        **SETTINGS,
    )
    record = run.records.iloc[-1]
    worst = record["measured"]["fairness"]["worst tenth"]
    assert worst["value"] == pytest.approx(record["worst_tenth"])
    line = f"Fairness of accuracy between sites: worst tenth {worst['value']:.3g}"
    run.save(tmp_path / "model")
    assert f"- {line}" in (tmp_path / "model" / "README.md").read_text()
    study = read_study(tmp_path / "study")
    assert any(line in sentence for sentence in summarize(study, final_table(study)))
    assert list_measured_values(tmp_path / "study")[0].startswith(line)  # of the status
    assert "Measurements" in [section.title for section in GENERAL]
    table, note = measured(study, "study")
    assert isinstance(table, Table) and isinstance(note, Note)
    assert table.header[1:] == ["Worst tenth", "Spread"]
    assert table.rows[0][1].startswith(f"{worst['value']:.3f} [")
    assert note.text.startswith(Fairness.note)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"data": "digits"},
            "which have the same test examples; set test=own, or use a pers",
        ),
        ({"data": "digits", "measure": ["fairnes"]}, "; did you mean 'fairness'"),
        ({"data": "digits", "measure": ["fairness"] * 2}, "lists 'fairness' twice"),
        (
            {"data": "diabetes", "test": "own"},
            "is for classification, and diabetes is a reg",
        ),
    ],
)
def test_it_is_refused_where_it_says_nothing(
    settings: dict[str, Any], message: str
) -> None:
    data = settings.pop("data")
    with pytest.raises(ValueError, match=message):
        fl.run(data, sites=3, **{"measure": ["fairness"], **SETTINGS, **settings})
