"""Pages of results equal the output of their commands for the published scores."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from fallow.configs.few_labels import DIGITS, FEDAVG, SOLVED, TRAINED
from fallow.study.benchmark import COLUMNS

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
SOLVED_DIGITS = DIGITS.name.removesuffix(FEDAVG)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("benchmark_page")


def scores_of(task: str, lift: float, seeds: int = 12) -> pd.DataFrame:
    """Return two budgets of two strategies.

    ``typical_unsure`` is ``lift`` above margin at the first budget and as far below it at
    the second, slightly more with each seed.
    """
    rows = []
    for seed in range(seeds):
        step = lift * (1 + seed / 100)
        for cycle, sign in ((1, 1), (2, -1)):
            for strategy, score in (("margin", 0.5), ("typical_unsure", 0.5 + sign * step)):
                labels = 20 * cycle
                rows.append(
                    (task, "d", strategy, seed, cycle, labels, score, score, score, 7)
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_a_budget_that_is_won_and_one_that_is_lost_are_counted(page: ModuleType) -> None:
    outcomes = page.judge_cells(scores_of(SOLVED_DIGITS, 0.02))
    assert outcomes == {"better": 1, "not worse": 0, "open": 0, "worse": 1}
    # a difference with the same sign for all seeds may still be negligible
    outcomes = page.judge_cells(scores_of(SOLVED_DIGITS, 0.001))
    assert outcomes == {"better": 1, "not worse": 0, "open": 0, "worse": 1}


def test_a_rival_with_few_seeds_is_not_the_best_one_of_a_budget(page: ModuleType) -> None:
    few = scores_of(SOLVED_DIGITS, 0.02, seeds=5)
    few = few[few["strategy"] == "margin"].assign(strategy="entropy", accuracy=0.9)
    both = pd.concat([scores_of(SOLVED_DIGITS, 0.02), few], ignore_index=True)
    assert page.judge_cells(both)["better"] == 1


def test_trainers_are_never_mixed(page: ModuleType) -> None:
    solved = scores_of(SOLVED_DIGITS, 0.02)
    trained = scores_of(DIGITS.name, 0.05)
    both = pd.concat([solved, trained], ignore_index=True)
    (rows,) = page.rows_by_task(both, SOLVED).values()
    pd.testing.assert_frame_equal(rows, solved)
    (rows,) = page.rows_by_task(both, TRAINED).values()
    pd.testing.assert_frame_equal(rows.reset_index(drop=True), trained)


def test_a_section_is_replaced_between_its_marks(page: ModuleType) -> None:
    old = "# A\n\n<!-- begin one -->\nold\n<!-- end one -->\n\nafter\n"
    new = page.replace_section(old, "one", "new")
    assert new == "# A\n\n<!-- begin one -->\n\nnew\n\n<!-- end one -->\n\nafter\n"
    assert page.replace_section(new, "one", "new") == new
    with pytest.raises(ValueError, match="is to have one section two"):
        page.replace_section(old, "two", "new")


@pytest.mark.long
def test_the_page_is_of_the_published_scores(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SCRIPTS.parent)
    written = page.PAGE.read_text(encoding="utf-8")
    scores = page.read_score_file(page.PUBLISHED)
    seeds = page.replace_section(written, "seeds", page.count_seeds(scores))
    assert seeds == written
    levels = page.replace_section(written, "levels", page.compare_levels(scores))
    assert levels == written
    trainers = page.replace_section(written, "trainers", page.compare_trainers(scores))
    assert trainers == written


@pytest.fixture
def few_labels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("few_labels")


def test_labels_to_a_target_are_interpolated_over_their_logarithm(
    few_labels: ModuleType,
) -> None:
    curve = [(10, 0.5), (100, 0.7), (1000, 0.9)]
    assert few_labels.labels_to(curve, 0.6) == pytest.approx(10**1.5)
    assert few_labels.labels_to(curve, 0.8) == pytest.approx(10**2.5)
    assert few_labels.labels_to(curve, 0.4) == 10
    assert few_labels.labels_to(curve, 0.95) == float("inf")


@pytest.mark.long
def test_the_page_of_labels_to_a_target_is_of_its_scores(
    few_labels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SCRIPTS.parent)
    page = few_labels.PAGE.read_text(encoding="utf-8")
    scores = pd.read_parquet(few_labels.SCORES, engine="pyarrow")
    assert (
        few_labels.replace_section(page, "tables", few_labels.write_tables(scores)) == page
    )
    assert set(scores["trainer"]) == {few_labels.CLOSED, "FedAvg, same features"}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("results")


def test_every_section_with_commands_has_its_minutes_or_a_reason(
    results: ModuleType,
) -> None:
    sections = {}
    for page in results.list_pages():
        titles = {section.title for section in results.read_sections(page)}
        if titles:
            sections[page] = titles
    assert {page: set(costs) for page, costs in results.read_costs().items()} == sections


def test_tables_below_the_next_headings_belong_to_the_commands_before_them(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (
        "# A\n\n```bash\nfallow x\n```\n\n## B\n\n| a | 1.5 |\n\n## C\n\n```bash\ny\n```\n"
    )
    (tmp_path / "page.md").write_text(page)
    monkeypatch.setattr(results, "ROOT", tmp_path)
    first, second = results.read_sections("page.md")
    assert (first.name, first.commands, first.rows) == (
        "page-a",
        ["fallow x"],
        [["a", "1.5"]],
    )
    assert (second.name, second.rows) == ("page-c", [])
    total, missing = results.find_missing(first.rows, "| a | 1.4 |")
    assert (total, missing) == (1, ["a: 1.5"])
