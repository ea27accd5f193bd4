from __future__ import annotations

from statistics import fmean

import pytest

from fallow.papers.ahfal.tradeoff import tradeoff
from fallow.report.findings.sweeps import CUT, alike, alpha_of, alpha_sweeps, rho_of
from fallow.study.statistics import t_interval
from tests.report.conftest import write_study
from tests.report.reading import read_study

QUERIES = ("random", "entropy", "margin", "logo", "entropy:model=global")


def recipe(alpha, rho=None, **more):
    name, fields = "exact-dirichlet", {"alpha": alpha}
    if rho:
        name, fields = "long-tail", {"rho": rho, "inner": name, "inner_fields": fields}
    return {"data": "digits", "partition": {"name": name, "fields": fields}, **more}


@pytest.fixture
def study(tmp_path):
    def make(folder, *cut, **more):
        root = write_study(
            tmp_path / folder, QUERIES, 3, 2, "random", recipe=recipe(*cut, **more)
        )
        return read_study(root)

    return make


def test_alpha_is_found_also_inside_a_long_tail(study):
    plain, tailed = study("a", 0.5), study("b", 0.1, 20)
    assert (alpha_of(plain), rho_of(plain)) == (0.5, 1)
    assert (alpha_of(tailed), rho_of(tailed)) == (0.1, 20)


def test_a_sweep_differs_in_alpha_and_in_nothing_else(study):
    a, b = study("a", 1.0, name="one"), study("b", 0.1, name="two")
    tailed, longer = study("c", 0.3, 20), study("d", 0.3, rounds=9)
    assert alpha_sweeps([a, b, tailed, longer]) == [(b, a)]
    assert [len(group) for group in alike([a, b, tailed, longer], CUT)] == [3, 1]


def test_studies_without_alpha_are_no_sweep(study):
    a, b = study("a", None), study("b", 0.1)
    assert alpha_sweeps([a, b]) == []


def test_the_tradeoff_is_the_paired_mean_of_families(study):
    sweep = (study("a", 0.1), study("b", 1.0))
    found = tradeoff(sweep)
    assert found.members["local"] == ("entropy", "margin")
    (low, high) = found.points["both"]
    assert (low.alpha, high.alpha, low.seeds) == (0.1, 1.0, 3)
    final = {q: sweep[0].final(q) for q in QUERIES}
    gaps = [
        100 * (final["logo"][k] - (final["entropy"][k] + final["margin"][k]) / 2)
        for k in range(3)
    ]
    assert low.difference == pytest.approx(fmean(gaps))
    assert low.interval.low == pytest.approx(t_interval(gaps).low)
    assert set(found.points) == {"global", "both"}


def test_one_family_has_no_tradeoff(make_study):
    study = read_study(make_study(queries=("random", "entropy", "ahfal"), seeds=2))
    assert tradeoff([study, study]) is None
