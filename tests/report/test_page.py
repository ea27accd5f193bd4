from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fallow.report import tables
from fallow.report.costs import exchanges
from fallow.report.figures.study import class_accuracy
from fallow.report.figures.style import space_out
from fallow.report.final_table import final_table
from fallow.report.sentences import summary
from tests.each import mark_long
from tests.report.conftest import rewrite, write_study
from tests.report.reading import read_study, write_report

SECTIONS = [
    "Learning curves",
    "Final scores",
    "Accuracy by class",
    "Partition",
    "Labels of each class over cycles",
    "Routing of classes",
    "What left each site",
    "Reproduce this study",
]
ROUTING = "Routing of classes"
ALWAYS = [title for title in SECTIONS if title != ROUTING]
"""The others are there for a strategy that notes how it routed classes alone."""

VOID = {"meta", "br", "img", "hr", "link", "input"}


class Balance(HTMLParser):
    """Check that elements nest, ids are unique and nothing is loaded from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str | None] = []
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.loads += [
            v
            for k, v in attrs
            if k in ("src", "href", "data", "action")
            and v
            and not v.startswith(("#", "data:"))
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page_text(kept_study: Path) -> str:
    return write_report([kept_study]).read_text()


def parse_page(text: str) -> Balance:
    page = Balance()
    page.feed(text)
    page.close()
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    return page


def test_the_page_is_valid_and_loads_nothing(page_text: str) -> None:
    page = parse_page(page_text)
    assert page.loads == []
    assert "http://" not in page_text
    assert "https://" not in page_text
    assert "script" not in page.tags
    assert not re.search(r"url\((?!#)|@import", page_text)


def test_the_page_has_every_section_in_order(page_text: str) -> None:
    assert re.findall(r"<h3>(.*?)</h3>", page_text) == SECTIONS
    assert page_text.count("<svg") == 6
    assert page_text.count("<figcaption>") == 6
    assert page_text.count("<table>") == page_text.count("<caption>") == 7


def test_the_page_shows_the_computed_numbers(page_text: str, study_dir: Path) -> None:
    for cells in tables.displayed(final_table(read_study(study_dir))).rows:
        for cell in cells:
            assert cell.replace("-", "−").replace("<", "&lt;") in page_text.replace(
                "-", "−"
            )


def test_an_upper_bound_appears_in_its_own_row_and_in_the_figure(page_text: str) -> None:
    assert 'class="bound first"' in page_text
    assert page_text.count("all labels") >= 3


def test_a_malicious_name_is_text(make_study: Callable[..., Path]) -> None:
    evil = "<img src=x onerror=alert(1)>"
    root = make_study(
        strategies=(evil, "random"), reference="random", seeds=2, name=f"{evil}$x^{{"
    )
    page = parse_page(write_report([root]).read_text())
    assert "img" not in page.tags


@pytest.mark.long
@pytest.mark.parametrize(
    ("study", "present", "absent"),
    [
        ({"seeds": 1}, "at least 2 common seeds", ("Holm",)),
        (
            {
                "strategies": ("entropy", "margin", "logo", "ksas"),
                "reference": None,
                "seeds": 2,
            },
            "No reference is set",
            (),
        ),
        (
            {"strategies": ("entropy",), "reference": None, "seeds": 2},
            "entropy ends at",
            ("best final score", "tested"),
        ),
    ],
    ids=["one seed", "no reference", "one strategy"],
)
def test_a_page_states_why_nothing_is_tested(
    make_study: Callable[..., Path],
    study: dict[str, Any],
    present: str,
    absent: tuple[str, ...],
) -> None:
    text = write_report([make_study(**study)]).read_text()
    assert present in text
    assert not [words for words in absent if words in text]


def test_classes_of_real_sites_are_named_though_nobody_is_told_their_partition(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=("entropy",), reference=None)
    for file in root.glob("cells/*/*/partition.json"):
        file.unlink()
    study = json.loads((root / "study.json").read_text())
    per_class = read_study(root).cells[0].records[-1]["per_class"]
    assert per_class is not None
    study["classes"] = [f"kind {i}" for i in range(len(per_class))]
    (root / "study.json").write_text(json.dumps(study))
    figure = class_accuracy(read_study(root))
    assert figure is not None
    read_page = {tick.get_text() for axes in figure.axes for tick in axes.get_xticklabels()}
    assert "kind 0" in read_page and "0" not in read_page


def test_a_study_without_records_makes_a_page(study_dir: Path) -> None:
    shutil.rmtree(study_dir / "cells")
    text = write_report([study_dir]).read_text()
    parse_page(text)
    assert "No run has a final score yet." in text
    assert re.findall(r"<h3>(.*?)</h3>", text) == ALWAYS


def test_a_study_of_sites_without_test_rows_says_that_there_is_no_score(
    study_dir: Path,
) -> None:
    def forget(record: dict[str, Any], _: Path) -> dict[str, Any]:
        return {**record, "accuracy": None, "balanced_accuracy": None, "per_class": None}

    rewrite(study_dir, forget)
    text = write_report([study_dir]).read_text()
    assert "There is no score: no site has test examples" in text
    assert "No run has a final score yet." not in text


@pytest.mark.long
def test_a_running_study_is_called_preliminary(study_dir: Path) -> None:
    shutil.rmtree(study_dir / "cells/ahfal/seed-5")
    text = write_report([study_dir]).read_text()
    assert "Preliminary: 23 of 24 runs are complete." in text
    assert "Not complete: ahfal seed 5." in text


@pytest.mark.long
def test_several_studies_share_a_page_and_no_id(
    make_study: Callable[..., Path], study_dir: Path, tmp_path: Path
) -> None:
    out = write_report([study_dir, make_study(seeds=2)], tmp_path / "both.html")
    page = parse_page(out.read_text())
    assert out.name == "both.html"
    assert page.tags.count("article") == 3


@pytest.mark.long
def test_the_same_records_give_the_same_page(page_text: str, study_dir: Path) -> None:
    assert write_report([study_dir]).read_text() == page_text


@pytest.mark.long
def test_an_earlier_page_survives_a_failed_one(study_dir: Path, tmp_path: Path) -> None:
    out = write_report([study_dir], tmp_path / "page.html")
    before = out.read_bytes()
    (study_dir / "study.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        write_report([study_dir], out)
    assert out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "tiny"]


def test_what_left_is_the_last_count_of_a_run(study_dir: Path) -> None:
    exchange_by_function = {e.function: e for e in exchanges(read_study(study_dir))}
    assert (
        exchange_by_function["share"].kind,
        exchange_by_function["share"].amount,
        exchange_by_function["share"].sites,
    ) == (
        "sum",
        96,
        3,
    )
    assert exchange_by_function["select"].exchanges == 2


def read_page(root: Path) -> str:
    study = read_study(root)
    return summary(study, final_table(study))


def level(root: Path, strategy: str, score: Callable[[dict[str, Any]], float]) -> None:
    for path in root.glob(f"cells/{strategy}/*/records.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [r | {"accuracy": score(r)} for r in rows]
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_a_clear_lead_is_called_distinguishable(make_study: Callable[..., Path]) -> None:
    assert "ahfal is significantly ahead of entropy and random" in read_page(
        make_study(seeds=8)
    )


def test_six_seeds_against_two_queries_claim_no_order(study_dir: Path) -> None:
    text = read_page(study_dir)
    assert "cannot reach p = 0.05 over 2 comparisons" in text
    assert "significantly" not in text


def test_random_is_as_good_when_the_lead_is_within_chance(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=("random", "ahfal"), seeds=8)
    level(root, "random", lambda r: 0.60)
    level(root, "ahfal", lambda r: 0.60 + 0.01 * ((-1) ** r["seed"]) + 0.001)
    assert "Random sampling is as good: ahfal is ahead by only 0.10 points" in read_page(
        root
    )


def test_random_is_as_good_when_it_leads(make_study: Callable[..., Path]) -> None:
    root = make_study(strategies=("random", "ahfal"), seeds=8)
    level(root, "random", lambda r: 0.99)
    assert "No strategy has a better mean than random sampling" in read_page(root)
    assert "ahfal is significantly behind random" in read_page(root)


def test_names_at_line_ends_are_apart_and_in_order() -> None:
    placed = space_out([5.0, 5.1, 5.05, 9.0], gap=1.0)
    assert placed[0] < placed[2] < placed[1] < placed[3]
    assert min(abs(a - b) for i, a in enumerate(placed) for b in placed[:i]) >= 1 - 1e-9


def test_no_name_stands_below_the_figure() -> None:
    assert space_out([0.1, 0.2, 5.0], gap=1.0, low=0.0) == [0.0, 1.0, 5.0]


@pytest.mark.long
@pytest.mark.parametrize(
    "noted",
    mark_long(
        [0.7, "wide", None, [], [1.0, 2.0], [[1], [2], [3], [4]]], ["wide", [], [1.0, 2.0]]
    ),
)
def test_what_a_strategy_notes_under_the_words_of_another_does_no_harm(
    tmp_path: Path, noted: object
) -> None:
    study = write_study(
        tmp_path / "study", strategies=("random", "mine"), reference="random"
    )
    notes = dict.fromkeys(("sigma", "low", "spread_tau", "nan_sites"), noted)
    for records in (study / "cells" / "mine").rglob("records.jsonl"):
        lines = [
            json.loads(line) | {"notes": notes} for line in records.read_text().splitlines()
        ]
        records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ROUTING not in write_report([study]).read_text()
