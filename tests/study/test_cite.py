"""The BibTeX entries of a study: Fallow and the sources of its algorithms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import fallow as fl
from fallow import encoders, strategies, training
from fallow.cli.app import build_app
from fallow.core.build import names
from fallow.settings.config import ExperimentConfig
from fallow.study.cite import cite_strategies
from fallow.training import personal
from tests.simulations import PLAIN

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {"sites": 2, "cycles": 0, "rounds": 1, "progress": False}


def find_keys(text: str) -> list[str]:
    keys: list[str] = re.findall(r"^@\w+{([a-z0-9]+),$", text, re.MULTILINE)
    return keys


@pytest.mark.parametrize("package", [strategies, training, personal, encoders])
def test_each_algorithm_with_a_paper_names_its_authors(package: Any) -> None:
    for name in names(package):
        contract = getattr(package, name).contract
        assert bool(contract.authors) == bool(contract.year), name
        for author in contract.authors.split(" and "):
            is_whole = "," in author or author in ("", "Anonymous")
            assert is_whole, f"{name}: write {author!r} as Last, First, and every author"


def test_the_entry_of_fallow_is_that_of_the_citation_file() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    entry = cite_strategies(ExperimentConfig("a"), [])
    assert f"title = {{{{{citation['title']}}}}}" in entry
    assert f"author = {{{{{citation['authors'][0]['name']}}}}}" in entry
    assert f"year = {{{citation['date-released'].year}}}" in entry
    assert f"version = {{{citation['version']}}}" in entry


@pytest.mark.long
def test_a_study_cites_what_each_strategy_used_once(tmp_path: Path) -> None:
    strategies = ["random", "badge", "badge@training=fedprox", "typical-unsure"]
    study = fl.compare(
        "digits",
        strategies,
        seeds=1,
        out=tmp_path / "study",
        training="fedavg",
        model="linear",
        **SMALL,
    )
    text = study.cite()
    assert find_keys(text) == [
        "fallow",
        "mcmahan2017communication",
        "ash2020deep",
        "li2020federated",
    ]
    assert study.run("random").cite().count("@misc") == 1
    done = CliRunner().invoke(build_app(), ["cite", str(tmp_path / "study")])
    assert done.output.strip() == text.strip()
    to_file = ["cite", str(tmp_path / "study"), "--out", str(tmp_path / "study.bib")]
    assert CliRunner().invoke(build_app(), to_file).exit_code == 0
    assert (tmp_path / "study.bib").read_text(encoding="utf-8") == text


@pytest.mark.long
def test_the_encoder_that_suits_the_shape_is_cited() -> None:
    pictures = fl.run("digits", training=PLAIN, **{**SMALL, "rounds": None})
    assert "coates2012learning" in find_keys(pictures.cite())
    rng = np.random.default_rng(1)
    table = fl.from_arrays(rng.normal(size=(80, 3)), np.arange(80) % 2)
    settings = {**SMALL, "rounds": None}
    columns = fl.run(table, "random", **settings)
    assert "rahimi2007random" not in find_keys(columns.cite())
    features = fl.run(table, "random", encoder="fourier", **settings)
    assert "rahimi2007random" in find_keys(features.cite())


def take_first(view: Any, n: int) -> list[int]:
    return list(range(n))


def test_a_strategy_of_the_user_is_named_in_a_comment() -> None:
    settings = {**SMALL, "cycles": 1, "training": "fedavg"}
    run = fl.run("digits", take_first, **settings)
    comment = run.cite().splitlines()[-1]
    assert comment.startswith("% ")
    assert "is not part of Fallow: cite its paper" in comment
