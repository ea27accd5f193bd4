"""Reports show the effect of a minimum number of new labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.report.costs import describe_waiting, disclosure
from fallow.report.render import render_blocks
from fallow.study.reading import StudyRecords, read_study


def compare(folder: Path, training: str, **settings: Any) -> StudyRecords:
    """Return three sites with 12 initial labels each and 4 in each of three cycles."""
    sites = fl.Federation("iris", fl.IID(), sites=3)
    small: dict[str, Any] = {
        "cycles": 3,
        "rounds": 1,
        "initial": 12,
        "budget": 4,
        "bounds": False,
    }
    fl.compare(
        sites, ["random"], training=training, seeds=1, out=folder, **small, **settings
    )
    return read_study(folder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "former"),
    [
        ({}, "6 of 12"),  # 12, 16, 20 and 24 labels of a site: 12 and 24 are contributed
        ({"privacy": fl.Privacy(secure_sum=True)}, "0 of 4"),  # 12 new ones in each cycle
    ],
    ids=["at a site", "of all sites"],
)
def test_contributions_that_would_have_waited_are_counted(
    settings: dict[str, Any], former: str, tmp_path: Path
) -> None:
    study = compare(tmp_path / "study", "closed-form", **settings)
    sentence = describe_waiting(study)
    assert sentence is not None
    assert f"{former} contributions of all runs" in sentence
    assert f"{former} contributions" in render_blocks(disclosure(study, "a"))


@pytest.mark.long
def test_nothing_is_said_where_nothing_waits_or_there_is_a_minimum(tmp_path: Path) -> None:
    plain = compare(tmp_path / "plain", "fedavg", model="mlp")
    assert describe_waiting(plain) is None
    least = fl.Privacy(min_new_labels=10)
    waiting = compare(tmp_path / "waiting", "closed-form", privacy=least)
    assert describe_waiting(waiting) is None
