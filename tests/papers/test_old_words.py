"""Studies that were written when papers lived elsewhere still open, resume and are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fallow import compat, strategies
from fallow.core.build import build, find
from fallow.papers import KNOWN, PAPERS, RECIPES
from fallow.papers.ahfal.codes import RatioAHFAL
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from tests.report.conftest import write_study
from tests.report.reading import read_study, write_report

OLD = "fallow.compat:RatioAHFAL"
NEW = "fallow.papers.ahfal.codes:RatioAHFAL"


def test_an_old_word_and_a_new_one_build_the_same_class() -> None:
    assert find(strategies, OLD) is find(strategies, NEW) is RatioAHFAL
    assert build(strategies, OLD, tau=9.0) == RatioAHFAL(tau=9.0)


def test_every_class_of_a_public_code_has_its_old_word() -> None:
    codes = {code.name: code for paper in PAPERS for code in paper.codes}
    assert {name: code.home for name, code in codes.items()} == compat.MOVED
    for code in codes.values():
        assert find(strategies, code.word) is code.load()
        assert code.load().contract.aliases == code.aliases == (code.word,)


def test_an_old_word_for_nothing_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="did you mean 'RatioAHFAL'") as error:
        find(strategies, "fallow.compat:RatioAFAL")
    assert "\n" not in str(error.value)


def test_a_run_with_an_old_word_keeps_it() -> None:
    recipe = Recipe("a", strategies=("random", OLD))
    assert variant(recipe, OLD).strategy == Spec(OLD)


def test_both_words_are_called_alike_and_stand_beside_the_paper(tmp_path: Path) -> None:
    for word in (OLD, NEW):
        root = write_study(tmp_path / word[-20:-11], ("ahfal", word), 3, 2, "ahfal")
        text = write_report([root], tmp_path / "page.html").read_text(encoding="utf-8")
        assert "RatioAHFAL (code)" in text
        assert "Published code compared with the paper" in text


def test_a_study_that_names_a_table_of_no_paper_here_is_reported_without_it(
    tmp_path: Path,
) -> None:
    published = {"table": "gone-table1", "setting": "", "names": {"random": "Random"}}
    root = write_study(tmp_path / "a", published=published)
    text = write_report([root], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "gone-table1 (no paper here has this table)" in text


def test_a_study_read_without_papers_says_the_name_of_the_class(tmp_path: Path) -> None:
    from fallow.report.final_table import label_of
    from fallow.study.reading import read_study as read_plainly

    root = write_study(tmp_path / "a", ("random", OLD), 2, 2, "random")
    assert label_of(OLD, read_plainly(root).study) == "RatioAHFAL"
    assert label_of(OLD, read_study(root).study) == "RatioAHFAL (code)"


def test_recipes_are_found_under_their_short_module_too() -> None:
    from fallow import recipes

    assert recipes.RECIPES is RECIPES
    assert recipes.find_recipe("demo") is RECIPES["demo"]


def test_who_only_lists_recipes_draws_nothing() -> None:
    code = "import sys, fallow.papers; print({'matplotlib', 'pandas'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_every_paper_says_who_wrote_it_and_its_tables_are_there() -> None:
    for paper in PAPERS:
        assert paper.title and paper.recipes
    assert len(KNOWN.published.names()) == 19
