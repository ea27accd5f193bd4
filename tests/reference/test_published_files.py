"""A configuration of each paper runs on the files of the publishers, at a small scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.catalog import missing_files
from fallow.configs.find import find_config

SMALL: dict[str, Any] = {"seeds": 1, "rounds": 1, "jobs": 1}
LABELS: dict[str, Any] = {"cycles": 1, "bounds": False}


@pytest.mark.long
@pytest.mark.filterwarnings(
    "default:.*(has not converged|is the problem):RuntimeWarning"
)  # tiny
@pytest.mark.parametrize(
    ("name", "strategies", "settings"),
    [
        ("strategies/mnist", ["random", "badge"], {**LABELS, "rows": 300}),
        ("ahfal/mnist-mini", ["random", "ahfal"], {**LABELS, "rows": 300}),
        (
            "fairfal/fmnist-mini",
            ["random", "fairfal"],
            {**LABELS, "rows": 400, "partition": "long-tail:n_max=30"},
        ),
        (
            "fale/protein-mini",
            ["random", "fale@training=server-solve@initial=0"],
            {**LABELS, "reference": "random"},
        ),
        (
            "dpfl/mnist-writers-mini",
            ["random", "random@training=dpfl"],
            {"rows": 600, "rounds": 3},
        ),
    ],
)
def test_a_configuration_of_a_paper_runs_on_published_files(
    name: str,
    strategies: list[str],
    settings: dict[str, Any],
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = missing_files(find_config(name).data, data_dir)
    if missing:
        pytest.skip(f"no {missing[0]} in FALLOW_DATA")
    monkeypatch.setenv("FALLOW_DATA", str(data_dir))
    study = fl.compare(
        None,
        strategies,
        config=name,
        test_rows=100,
        out=tmp_path / "study",
        **{**SMALL, **settings},
    )
    scores = study.table(columns=["strategy", "mean"])
    assert set(strategies) <= set(scores["strategy"])
    assert scores["mean"].notna().all()
