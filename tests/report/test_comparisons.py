from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fallow.report import results as report_sections
from fallow.report.figures.style import FAINT, looks, named_in_figures
from fallow_papers.ahfal.sections import SPREAD, studies_with_slopes
from tests.report.conftest import rewrite, write_study
from tests.report.reading import across, findings, piece, read_study, write_report
from tests.report.test_page import ALWAYS, parse_page

PAIRS = (
    "random",
    "entropy",
    "entropy:model=global",
    "ksas",
    "ksas@training=kcfu",
    "oracle-histogram",
    "fallow_papers.ahfal.codes:NaNKSAS",
)
MORE = [
    "Effect of a setting",
    "Published code compared with the paper",
    "Gain from known class shares",
    "Class spread and accuracy",
    "Better query model",
]
MANY = tuple(f"egl:Strategy{i}" for i in range(22))


def headings(text: str) -> list[str]:
    return re.findall(r"<h3>(.*?)</h3>", text)


def cut(alpha: float | None) -> dict[str, Any]:
    return {
        "data": "digits",
        "partition": {"name": "exact-dirichlet", "fields": {"alpha": alpha}},
    }


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_study(tmp_path_factory.mktemp("paired") / "a", PAIRS, 6, 2, "random")

    def note_nan(row: dict[str, Any], folder: Path) -> dict[str, Any]:
        if "NaN" in row["strategy"]:
            return {"notes": {"nan_sites": 2}}
        return {"notes": {}}

    rewrite(root, note_nan)
    return root


@pytest.fixture(scope="module")
def paired_text(paired: Path) -> str:
    return write_report([paired]).read_text()


def test_a_study_with_pairs_has_their_sections_and_valid_ones(paired_text: str) -> None:
    parse_page(paired_text)
    sections = headings(paired_text)
    assert sections == [*ALWAYS[:5], *MORE, *ALWAYS[5:]]


def test_the_code_is_shown_with_the_sites_whose_scores_were_nan(paired_text: str) -> None:
    assert "2.0 of 3" in paired_text
    assert "NaN sites" in paired_text


def test_pairs_without_two_common_seeds_leave_no_empty_heading(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "one", PAIRS, 1, 2, "random"))
    assert headings("".join(findings(study, "a"))) == MORE[3:4]


@pytest.mark.long
def test_studies_that_differ_in_alpha_share_an_article(tmp_path: Path) -> None:
    roots = [
        write_study(
            tmp_path / f"{a}", PAIRS[:4], 2, 2, "random", name=f"at {a}", config=cut(a)
        )
        for a in (0.1, 1.0)
    ]
    studies = [read_study(root) for root in roots]
    text = across(studies, "across")
    assert text is not None
    parse_page(text)
    assert headings(text) == [
        "Final scores side by side",
        "Local or global model, over alpha",
        "Class spread and accuracy",
        "Better query model, by heterogeneity and class imbalance",
    ]
    assert studies_with_slopes(studies) == studies
    alone = findings(studies[0], "a", without=[SPREAD])
    assert "Class spread" not in "".join(alone)


def test_studies_that_are_cut_in_no_common_way_share_their_final_scores_alone(
    tmp_path: Path, study_dir: Path
) -> None:
    other = write_study(tmp_path / "other", PAIRS[:3], 2, 2, "random", config=cut(1.0))
    studies = [read_study(study_dir), read_study(other)]
    text = across(studies, "across")
    assert text is not None
    assert headings(text) == ["Final scores side by side"]
    assert studies_with_slopes(studies) == []


def test_studies_without_a_common_strategy_share_no_article(tmp_path: Path) -> None:
    roots = [
        write_study(tmp_path / strategy, (strategy,), 2, 2, strategy)
        for strategy in ("ksas", "logo")
    ]
    assert across([read_study(root) for root in roots], "across") is None


@pytest.mark.long
def test_an_article_over_all_is_linked_from_the_top(tmp_path: Path) -> None:
    roots = [
        write_study(tmp_path / f"{a}", PAIRS[1:3], 2, 1, None, config=cut(a))
        for a in (0.1, 1.0)
    ]
    text = write_report(roots, tmp_path / "both.html").read_text()
    page = parse_page(text)
    assert page.tags.count("article") == 3
    assert 'href="#across"' in text
    assert 'id="across"' in text


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    strategies = (*MANY, "random", "entropy", "ahfal")
    return write_study(tmp_path_factory.mktemp("wide") / "wide", strategies, 2, 2, "ahfal")


def test_of_many_strategies_figures_name_eight(wide: Path) -> None:
    study = read_study(wide)
    named = named_in_figures(study)
    assert len(named) == 8
    assert {"random", "ahfal"} <= set(named)
    best = max(study.strategies, key=lambda q: sum(study.final(q).values()))
    assert best in named
    look = looks(study)
    colors = [look[q].color for q in named]
    assert len(set(colors)) == 8
    assert all(look[q].color == FAINT for q in study.strategies if q not in named)


@pytest.mark.long
def test_a_wide_study_lists_all_in_the_table_and_counts_the_rest_in_figures(
    wide: Path,
) -> None:
    study = read_study(wide)
    table = piece(report_sections.scores(study, "x"))
    assert all(f"{strategy.partition(':')[2]}</th>" in table for strategy in MANY)
    assert "17 others" in piece(report_sections.classes(study, "x"))
    drawn = piece(report_sections.curves(study, "x"))
    assert "The 17 other strategies are gray" in drawn
    names = [strategy.rpartition(":")[2] for strategy in study.strategies]
    assert sum(f">{name}<" in drawn for name in names) == 8
