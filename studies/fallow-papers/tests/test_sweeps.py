from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fallow.study.records import StudyRecords
from fallow.study.statistics import t_interval
from fallow_papers.ahfal.tradeoff import tradeoff
from fallow_papers.sweeps import CUT, alike, alpha_of, alpha_sweeps, rho_of
from tests.report.conftest import write_study
from tests.report.reading import read_study

MakeStudy = Callable[..., StudyRecords]
STRATEGIES = ("random", "entropy", "margin", "logo", "entropy:model=global")


def config(alpha: float | None, rho: float | None = None, **more: Any) -> dict[str, Any]:
    """Return a configuration with Dirichlet sites, and a long tail if rho is given."""
    partition: dict[str, Any] = {"name": "exact-dirichlet", "fields": {"alpha": alpha}}
    if rho:
        inner = {"inner": partition["name"], "inner_fields": partition["fields"]}
        partition = {"name": "long-tail", "fields": {"rho": rho, **inner}}
    return {"data": "digits", "partition": partition, **more}


@pytest.fixture
def study(tmp_path: Path) -> MakeStudy:
    def make(folder: str, *cut: float | None, **more: Any) -> StudyRecords:
        root = write_study(
            tmp_path / folder, STRATEGIES, 3, 2, "random", config=config(*cut, **more)
        )
        return read_study(root)

    return make


def test_alpha_is_found_also_inside_a_long_tail(study: MakeStudy) -> None:
    plain = study("a", 0.5)
    tailed = study("b", 0.1, 20)
    assert (alpha_of(plain), rho_of(plain)) == (0.5, 1)
    assert (alpha_of(tailed), rho_of(tailed)) == (0.1, 20)


def test_a_sweep_differs_in_alpha_and_in_nothing_else(study: MakeStudy) -> None:
    a = study("a", 1.0, name="one")
    b = study("b", 0.1, name="two")
    tailed = study("c", 0.3, 20)
    longer = study("d", 0.3, rounds=9)
    assert alpha_sweeps([a, b, tailed, longer]) == [(b, a)]
    assert [len(group) for group in alike([a, b, tailed, longer], CUT)] == [3, 1]


def test_studies_without_alpha_are_no_sweep(study: MakeStudy) -> None:
    a = study("a", None)
    b = study("b", 0.1)
    assert alpha_sweeps([a, b]) == []


def test_the_tradeoff_is_the_paired_mean_of_families(study: MakeStudy) -> None:
    sweep = (study("a", 0.1), study("b", 1.0))
    result = tradeoff(sweep)
    assert result is not None
    assert result.members["local"] == ("entropy", "margin")
    (low, high) = result.points["both"]
    assert (low.alpha, high.alpha, low.seeds) == (0.1, 1.0, 3)
    final = {q: sweep[0].final(q) for q in STRATEGIES}
    gaps = [
        100 * (final["logo"][k] - (final["entropy"][k] + final["margin"][k]) / 2)
        for k in range(3)
    ]
    assert low.difference == pytest.approx(fmean(gaps))
    assert low.interval is not None
    assert low.interval.low == pytest.approx(t_interval(gaps).low)
    assert set(result.points) == {"global", "both"}


def test_one_family_has_no_tradeoff(make_study: Callable[..., Path]) -> None:
    study = read_study(make_study(strategies=("random", "entropy", "ahfal"), seeds=2))
    assert tradeoff([study, study]) is None
