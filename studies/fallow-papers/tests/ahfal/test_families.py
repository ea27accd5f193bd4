from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.configs.papers import load_paper_results
from fallow_papers.ahfal.families import family, members
from tests.report.reading import read_study


@pytest.mark.parametrize(
    ("strategy", "reads"),
    [
        ("random", None),
        ("entropy", "local"),
        ("core-set:model=local", "local"),
        ("bald:ensemble=true", "both"),
        ("core-set:model=global", "global"),
        ("ksas@training=kcfu", "both"),
        ("fallow_papers.ahfal.codes:NaNKSAS", "both"),
        ("no-such-strategy", None),
        ("entropy:model=neither", None),
        ("bound:pooled", None),
        ("oracle-histogram", None),  # reads true labels
    ],
)
def test_a_family_is_read_from_the_contract(strategy: str, reads: str | None) -> None:
    assert family(strategy, load_paper_results()) == reads


def test_a_report_imports_nobody_elses_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text("class Bad:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert family("planted:Bad") is None
    assert family("fallow_papers.ahfal.codes:__name__", load_paper_results()) is None
    assert "planted" not in sys.modules


def test_members_leave_out_what_is_tested_and_variants_of_what_is_there(
    make_study: Callable[..., Path],
) -> None:
    strategies = (
        "random",
        "entropy",
        "entropy:model=global",
        "ksas",
        "ksas@training=kcfu",
        "ahfal",
        "fallow_papers.ahfal.codes:NaNKSAS",
        "logo@training=kcfu",
        "ahfal:toggle=never",
    )
    outcome = members([read_study(make_study(strategies=strategies, seeds=1, cycles=1))])
    assert outcome == {
        "local": ("entropy",),
        "global": ("entropy:model=global",),
        "both": ("ksas",),
    }


def test_a_reference_of_one_model_is_a_member(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(
        strategies=("entropy", "ksas"), reference="entropy", seeds=1, cycles=1
    )
    assert members([read_study(root)]) == {"local": ("entropy",), "both": ("ksas",)}
