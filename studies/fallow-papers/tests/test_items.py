"""Declared tables, figures and equations of papers can be run, and name files that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from fallow.cli.papers import describe_item, run_item
from fallow.configs.find import find_config, list_configs
from fallow.configs.item_costs import count_pool, estimate_cost, read_paces
from fallow.configs.items import RUNNABLE, PaperItem, find_item, list_items, parse_items
from fallow.configs.papers import load_papers
from tests.each import each_of

ROOT = Path(__file__).resolve().parents[3]
ITEMS = list_items(load_papers())

CONFIGS = {*list_configs()}
COUNTS = {"ahfal": (9, 16), "fale": (2, 3), "dpfl": (3, 16)}
"""Numbers of tables and figures in the papers whose text was available."""


def defines(file: str, name: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE) is not None


def test_every_table_and_figure_of_a_paper_is_declared() -> None:
    for paper, (tables, figures) in COUNTS.items():
        names = {item.name for item in ITEMS if item.paper == paper}
        expected = {f"table-{i + 1}" for i in range(tables)}
        expected |= {f"figure-{i + 1}" for i in range(figures)}
        assert expected <= names
        assert not [
            name
            for name in names - expected
            if name.startswith(("table-", "figure-")) and name[-1].isdigit()
        ]


@each_of("item", ITEMS)
def test_an_item_names_code_and_tests_that_exist(item: PaperItem) -> None:
    for text in item.where:
        file, _, name = text.partition(":")
        assert (ROOT / file).is_file() and (not name or defines(file, name)), text
    for text in item.checks:
        file, _, name = text.partition("::")
        assert defines(file, name), text
    if item.kind not in RUNNABLE:
        assert item.where and (item.checks or item.verdict == "missing")


@each_of("item", [item for item in ITEMS if item.kind in RUNNABLE])
def test_an_item_has_studies_or_states_what_is_missing(item: PaperItem) -> None:
    assert bool(item.studies) != bool(item.missing)
    assert item.missing == "" or item.missing.endswith(".")
    assert {*item.studies, *item.reduced} <= CONFIGS
    assert bool(item.record) == bool(item.scale)


def test_a_sweep_is_one_study_for_each_value() -> None:
    item = find_item(ITEMS, "ahfal", "figure-2")
    alphas = [config.partition.fields["alpha"] for config in item.configs()]
    assert alphas == [0.05, 0.1, 0.3, 0.5, 1, 10]
    assert len({config.name for config in item.configs()}) == 6


def test_a_cost_grows_with_seeds_and_steps() -> None:
    one = find_item(ITEMS, "ahfal", "figure-12")  # two strategies, three seeds
    cost = estimate_cost(list(one.configs()))
    assert cost is not None and cost.gpu is not None
    # 5,000 labels once, then 7,500 to 17,500 for both strategies; 100 rounds of 5 epochs
    trained = 3 * 500 * (5000 + 2 * (7500 + 10_000 + 12_500 + 15_000 + 17_500))
    pace = next(pace for key, pace in read_paces().items() if key.model == "resnet8")
    assert 0 < cost.two_cores - trained * pace.train / 2 < 0.1 * cost.two_cores
    assert cost.gpu == pytest.approx(trained / 128 * 0.004, rel=0.1)


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("ahfal/mnist", 60_000),
        ("fairfal/cifar10", 17_023),
        ("dpfl/synergy", 2200),
        ("fale/protein", 36_584),
    ],
)
def test_the_training_examples_are_those_of_the_partition(name: str, pool: int) -> None:
    assert count_pool(find_config(name)) == pool


def test_a_row_states_data_cost_and_scale_of_the_results() -> None:
    row = describe_item(find_item(ITEMS, "ahfal", "table-2"), is_reduced=False)
    assert row.data == ("cifar10", "svhn", "mnist")
    assert row.done == "reduced" and row.two_cores and row.one_gpu


def test_a_dry_run_estimates_the_studies_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    item = PaperItem(
        name="figure-1",
        paper="toys",
        title="100 examples",
        studies=["demo"],
        sweep={"strategies": ["random"], "bounds": ["false"], "rows": [100]},
    )
    run_item(item, out=tmp_path, seeds=1, jobs=1, dry_run=True)
    text = capsys.readouterr().out
    assert "number of studies: 1" in text and "\n1 run: " in text
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="IMDB-WIKI"):
        run_item(find_item(ITEMS, "fale", "figure-3"), out=tmp_path)
    with pytest.raises(ValueError, match="figure-13 of ahfal has no reduced version"):
        run_item(find_item(ITEMS, "ahfal", "figure-13"), out=tmp_path, is_reduced=True)
    with pytest.raises(ValueError, match="did you mean 'figure-2'"):
        find_item(ITEMS, "ahfal", "figure-22")


def test_an_unknown_field_is_refused_with_file_and_item() -> None:
    content = {"table-1": {"title": "a", "verdct": "faithful"}}
    with pytest.raises(ValueError, match=r"items.toml: table-1.*verdct"):
        parse_items(content, "toys", Path("items.toml"))


def test_the_page_of_the_coverage_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "paper_items.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    costs = script["read_costs"](page)
    assert len(costs) > 50 and "4 h" in costs["ahfal", "table-6"]
    assert script["write_page"](costs) == page
