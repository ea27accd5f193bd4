from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fallow.configs.find import find_config
from fallow.configs.papers import load_paper_results
from fallow.report import tables
from fallow.report.final_table import FinalTable, final_table
from fallow.study.reading import read_study
from tests.data.published import write_fashion_mnist
from tests.each import each_of

PAPER: dict[str, Any] = find_config("fairfal/fmnist").to_dict()


def table_of(study_dir: Path, **changes: Any) -> FinalTable:
    """Return the final table of a study with the settings of FairFAL, apart from changes."""
    study = read_study(study_dir, load_paper_results())
    settings = PAPER | changes
    manifest = replace(study.study, config=settings, published=settings["published"])
    return final_table(replace(study, study=manifest))


def test_results_of_the_setting_of_the_paper_are_published(study_dir: Path) -> None:
    table = table_of(study_dir)
    assert "85.60" in tables.displayed(table).frame()["Published"].tolist()
    known = [row["other setting"] for row in tables.table_rows(table) if row["published"]]
    assert set(known) == {""}


def test_the_same_images_by_path_are_of_the_setting_of_the_paper(
    study_dir: Path, tmp_path: Path
) -> None:
    write_fashion_mnist(tmp_path)
    table = table_of(study_dir, data=str(tmp_path / "fashion_mnist"))
    assert "Published" in tables.displayed(table).frame()


OTHER: list[tuple[Mapping[str, Any], str]] = [
    ({"sites": 5}, "sites 5 instead of 10"),
    ({"rows": 8000}, "rows 8000 instead of all"),
    ({"rounds": 15}, "rounds 15 instead of 100"),
    ({"partition": {"name": "iid", "fields": {}}}, "partition iid instead of long-tail"),
    ({"data": "mine/photos"}, "data photos instead of fashion_mnist"),
    (
        {"published": PAPER["published"] | {"protocol": "fairfal/gone"}},
        "the settings of fairfal/gone are not known here",
    ),
]


@each_of("changes, reason", OTHER)
def test_another_setting_is_stated_in_the_heading_with_its_reason(
    study_dir: Path, changes: Mapping[str, Any], reason: str
) -> None:
    table = table_of(study_dir, **changes)
    shown = tables.displayed(table).frame()
    assert "Published (other setting)" in shown
    assert "Published" not in shown
    assert reason in tables.footnotes(table)[-1]
    assert reason in str([row["other setting"] for row in tables.table_rows(table)])
    assert reason in tables.to_csv(table)
