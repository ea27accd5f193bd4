"""Additional metrics in tables, tests, the report and exports of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fallow as fl
from fallow.cli.app import build_app
from fallow.measurements.metrics import MetricScores
from fallow.report.metrics import pool_groups, read_metric

NAMES = ["auroc", "brier", "calibration-error"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> fl.Study:
    federation = fl.Federation("digits", fl.Dirichlet(alpha=0.5), sites=4)
    return fl.compare(
        federation,
        ["random", "margin"],
        seeds=2,
        cycles=1,
        rounds=2,
        score_rounds=1,
        training="fedavg",
        metrics=NAMES,
        progress=False,
        out=tmp_path_factory.mktemp("metrics") / "study",
    )


@pytest.mark.long
def test_tables_and_tests_are_of_the_metric(study: fl.Study) -> None:
    for name in NAMES:
        table = study.with_metric(name).table("all").set_index("strategy")
        for strategy in ("random", "margin"):
            values = []
            for seed in (0, 1):
                values.append(study.run(strategy, seed).records["metrics"].iloc[-1][name])
            mean = sum(scores["value"] for scores in values) / 2
            assert table.loc[strategy, "mean"] == pytest.approx(mean)
    auroc = study.with_metric("auroc").table("all")
    assert auroc["mean"].is_monotonic_decreasing
    assert study.with_metric("brier").table("all")["mean"].is_monotonic_increasing
    assert auroc["difference"].notna().sum() == 1


def test_a_metric_that_was_not_recorded_is_refused(study: fl.Study) -> None:
    with pytest.raises(
        ValueError, match="has no metric 'f1'; its metrics: 'auroc', 'brier'"
    ):
        study.with_metric("f1")
    with pytest.raises(ValueError, match="forecast is for accuracy and squared error"):
        study.with_metric("auroc").forecast("margin")
    manifest = replace(study.study_records.study, config={})
    with pytest.raises(ValueError, match="has no metric 'auroc'; its metrics: none"):
        replace(study.study_records, study=manifest, metric="auroc")


@pytest.mark.long
def test_the_report_has_the_metrics_and_a_reliability_diagram(
    study: fl.Study, tmp_path: Path
) -> None:
    page = study.report(tmp_path / "accuracy.html").read_text(encoding="utf-8")
    assert "Metrics after the last cycle" in page
    assert "Reliability diagram of" in page
    assert "has the best final score" in page
    of_brier = study.with_metric("brier").report(tmp_path / "brier.html")
    assert "Brier score" in of_brier.read_text(encoding="utf-8").split("<section")[0]


def test_the_command_line_has_the_same_tables(study: fl.Study, tmp_path: Path) -> None:
    assert study.folder is not None
    out = tmp_path / "table.md"
    words = ["export", str(study.folder), "--to", "markdown", "--metric", "auroc"]
    done = CliRunner().invoke(build_app(), [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "AUROC" in out.read_text(encoding="utf-8")
    refused = CliRunner().invoke(
        build_app(), ["export", str(study.folder), "--metric", "auroc"]
    )
    assert "--metric is for tables" in str(refused.exception)


def test_a_metric_of_the_other_task_is_refused_before_the_run() -> None:
    with pytest.raises(ValueError, match="metric 'mae' is for regression"):
        fl.run("digits", "random", sites=3, cycles=1, metrics=["mae"])
    with pytest.raises(ValueError, match="metrics lists 'auroc' twice"):
        fl.run("digits", "random", sites=3, cycles=1, metrics=["auroc", "auroc"])


def test_groups_are_pooled_by_their_numbers_of_examples(study: fl.Study) -> None:
    diagram = [[[0.05, 0.0, 30.0], [0.95, 1.0, 10.0]], [[0.07, 0.1, 10.0]]]
    scores: MetricScores = {"value": 0.1, "low": 0.0, "high": 0.2, "reliability": diagram}
    first, last = pool_groups([scores])
    assert first == pytest.approx(((30 * 0.05 + 10 * 0.07) / 40, 1 / 40))
    assert last == pytest.approx((0.95, 1.0))
    seeds = read_metric(study.study_records, "margin", "calibration-error")
    assert len(seeds) == 2
    assert len(pool_groups(seeds)) == 10
