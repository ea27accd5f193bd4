"""Algorithms for another kind of data are refused before a study starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.core.names import spell_class
from fallow.experiment.rows import open_data
from fallow.experiment.suitability import check_task, strategies_for
from fallow.settings.classes import classes_of
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from fallow.study.preparation import prepare_study
from fallow.study.study_run import Setup

CLASSES = ExperimentConfig("c", data="digits", sites=3)
NUMBERS = ExperimentConfig("n", data="diabetes", partition=Spec("iid"), sites=3)


@pytest.mark.parametrize(
    ("config", "strategy", "message"),
    [
        (
            CLASSES,
            "bait",
            "bait is for regression and digits has classes; use badge, ",
        ),
        (
            CLASSES,
            "acs-fw",
            "acs-fw is for regression and digits has classes; use badge",
        ),
        (
            CLASSES,
            "random@training=server-solve",
            "server-solve is for regression .*; use fedavg",
        ),
        (
            CLASSES,
            "random@training=masked-solve",
            "masked-solve is for regression .*; use fedavg",
        ),
        (
            NUMBERS,
            "random@training=server-solve@model=mlp",
            "the model is mlp; set model=linear, or use a training algorithm with gradient",
        ),
        (
            NUMBERS,
            "entropy",
            f"entropy requires classes and diabetes is .*; use {strategies_for('regression')}",
        ),
        (
            NUMBERS,
            "feal",
            f"feal requires classes and diabetes is .*; use {strategies_for('regression')}",
        ),
        (
            NUMBERS,
            "random@training=kcfu",
            "kcfu requires classes and diabetes is .*; use fedavg",
        ),
        (
            NUMBERS,
            "random@training=evidential",
            "evidential requires classes .*; use fedavg",
        ),
    ],
)
def test_a_method_for_other_data_is_refused_with_what_to_use(
    config: ExperimentConfig, strategy: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_study(Setup(config, tmp_path / "study"), ["random", strategy], 0)
    assert not (tmp_path / "study").exists()


def test_what_is_named_for_numbers_is_what_works_with_them() -> None:
    made = {spell_class(c): c.contract for c in classes_of("strategy").values()}
    works = {name for name, contract in made.items() if contract.regression} | {"random"}
    assert set(re.split(", | or ", strategies_for("regression"))) == works
    data = open_data(NUMBERS, 0)
    for name in works:
        check_task(variant(NUMBERS, name), data)
    check_task(with_settings(NUMBERS, {"training": "masked-solve"}), data)


FRESH = with_settings(CLASSES, {"validation": "0.2", "fresh_first": "true"})


def test_a_setting_that_was_made_for_a_method_no_strategy_trains_by_is_refused(
    tmp_path: Path,
) -> None:
    setup = Setup(FRESH, tmp_path / "study")
    message = "fresh_first is a setting of dpfl, which no strategy of this study uses"
    with pytest.raises(ValueError, match=message):
        prepare_study(setup, ["random", "entropy"], 0)
    assert not (tmp_path / "study").exists()


def test_one_strategy_that_trains_by_the_method_brings_its_setting_for_all(
    tmp_path: Path,
) -> None:
    setup = Setup(FRESH, tmp_path / "study")
    made, _ = prepare_study(setup, ["random", "random@training=dpfl"], 0)
    assert made.config.fresh_first
