"""Papers are found by entry points, and their public code by module name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fallow_papers.ahfal.codes
from fallow import strategies
from fallow.configs.find import configs_of
from fallow.configs.papers import load_paper_results, load_papers
from fallow.core.build import find
from fallow.core.names import OWN
from fallow_papers.ahfal.codes import RatioAHFAL
from tests.report.conftest import write_study
from tests.report.reading import read_study, write_report

CODE = "fallow_papers.ahfal.codes:RatioAHFAL"


def test_a_public_code_is_named_with_its_module_and_stands_beside_the_paper(
    tmp_path: Path,
) -> None:
    assert find(strategies, CODE, OWN) is RatioAHFAL
    root = write_study(tmp_path / "study", ("ahfal", CODE), 3, 2, "ahfal")
    text = write_report([root], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "RatioAHFAL (code)" in text
    assert "Published code compared with the paper" in text


def test_every_public_code_that_a_paper_lists_can_be_loaded() -> None:
    codes = [code for paper in load_papers() for code in paper.codes]
    assert {code.name for code in codes} == {*fallow_papers.ahfal.codes.__all__}
    for code in codes:
        assert find(strategies, code.word, OWN) is code.load()


def test_a_recipe_loads_its_own_paper_only() -> None:
    code = """
import sys
from fallow.configs.find import find_config
assert find_config("fale/protein-mini").name == "fale/protein-mini"
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("fallow_papers.")}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['fale']"


def test_a_study_that_names_a_table_of_no_paper_here_is_reported_without_it(
    tmp_path: Path,
) -> None:
    published = {
        "table": "gone-table1",
        "setting": "",
        "protocol": "gone/table1",
        "names": {"random": "Random"},
    }
    root = write_study(tmp_path / "a", published=published)
    text = write_report([root], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "gone-table1 (no paper here has this table)" in text


def test_a_study_read_without_papers_says_the_name_of_the_class(tmp_path: Path) -> None:
    from fallow.report.final_table import label_of
    from fallow.study.reading import read_study as read_plainly

    root = write_study(tmp_path / "a", ("random", CODE), 2, 2, "random")
    assert label_of(CODE, read_plainly(root).study) == "RatioAHFAL"
    assert label_of(CODE, read_study(root).study) == "RatioAHFAL (code)"


def test_who_only_lists_recipes_draws_nothing() -> None:
    code = """
import sys
from fallow.configs.find import load_configs
load_configs()
print({"matplotlib", "pandas"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_every_paper_says_who_wrote_it_and_its_tables_are_there() -> None:
    for paper in load_papers():
        assert paper.title and configs_of([paper])
    assert len(load_paper_results().published.names()) == 19
