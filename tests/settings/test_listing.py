"""Lists of settings are complete, documented and searchable by short name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from fallow.core.build import build
from fallow.core.training_config import as_lists
from fallow.settings.classes import PARTS, packages_of
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.settings.descriptions import MEANINGS
from fallow.settings.fields import (
    class_fields,
    describe_classes,
    expand,
    find_all,
    list_algorithms,
    list_parameters,
)
from fallow.settings.listing import DEFAULTS, find_settings, list_settings
from fallow.settings.spec import Spec


def test_every_setting_has_a_meaning_and_every_meaning_a_setting() -> None:
    names = {setting.name for setting in list_settings()}
    assert names >= set(MEANINGS)
    assert {name for name in names if not name.startswith("local_training_config.")} == set(
        MEANINGS
    )
    for text in MEANINGS.values():
        assert text[0].isupper() and text.endswith("."), text


def test_what_a_list_says_is_what_a_recipe_takes() -> None:
    for setting in list_settings():
        # these differ from those of a manually built configuration
        if setting.name not in DEFAULTS:
            text = setting.default.replace("empty", "")
            same = with_settings(ExperimentConfig("a"), {setting.name: text})
            assert same == ExperimentConfig("a"), setting.name


def test_defaults_of_algorithms_are_what_a_specification_takes() -> None:
    for row in list_algorithms():
        part = "strategy" if row.kind == "strategy" else "training"
        spec = Spec.parse(":".join([row.name, *list_parameters(row.parameters)]))
        packages = packages_of(part)
        built = build(packages, spec.name, **spec.fields)
        assert as_lists(asdict(built)) == as_lists(asdict(build(packages, row.name)))


def test_a_short_name_leads_to_the_training_config() -> None:
    assert expand(ExperimentConfig("a"), {"lr": "1"}) == {
        "training_config.optimizer.lr": "1"
    }
    assert expand(ExperimentConfig("a"), {"optimizer.lr": "1"}) == {
        "training_config.optimizer.lr": "1"
    }
    assert (
        with_settings(
            ExperimentConfig("a"), expand(ExperimentConfig("a"), {"batch_size": "8"})
        ).training_config.batch_size
        == 8
    )


def test_a_field_leads_to_the_class_that_has_it_also_when_it_is_named_just_before() -> None:
    config = ExperimentConfig("a")
    assert expand(config, {"alpha": "1.0"}) == {"partition.alpha": "1.0"}
    value = {"training": "fedprox", "mu": "0.1", "partition": "iid", "hidden": "[8]"}
    assert list(expand(config, value)) == ["training", "training.mu", "partition", "hidden"]
    named = {"model": "mlp:hidden=[4]", "hidden": "[8]"}
    assert list(expand(config, named)) == ["model", "model.hidden"]


def test_a_name_of_several_settings_is_refused_with_all_of_them() -> None:
    value = {"strategy": "ifal", "lr": "0.1"}
    with pytest.raises(
        ValueError, match=r"^lr may be training_config.optimizer.lr or strategy.lr; write"
    ):
        expand(ExperimentConfig("a"), value)


def test_full_and_unknown_names_stay_as_they_are() -> None:
    value = {
        "rounds": "3",
        "training_config.optimizer.lr": "1",
        "round": "3",
        "training_config.x": "1",
    }
    assert expand(ExperimentConfig("a"), value) == value


def test_a_class_of_others_is_not_imported_for_its_fields() -> None:
    assert (
        expand(ExperimentConfig("a"), {"model": "nowhere:Net", "width": "3"})["width"]
        == "3"
    )


def test_a_part_leads_to_its_settings_and_a_last_word_to_all_that_end_so() -> None:
    assert find_settings("privacy")[0].name == "privacy.sums"
    assert {s.name for s in find_settings("training_config.schedule")} == {
        "training_config.schedule.milestones",
        "training_config.schedule.factor",
        "training_config.schedule.unit",
        "training_config.schedule.cosine",
    }
    assert [s.name for s in find_all("lr")][:2] == [
        "training_config.optimizer.lr",
        "local_training_config.optimizer.lr",
    ]
    assert {s.name for s in find_all("tau")} == {"strategy.tau"}
    assert find_all("learning_rate")[0].name == "training_config.optimizer.lr"
    with pytest.raises(ValueError, match="lrr is not a setting; did you mean 'lr'"):
        find_all("lrr")


def test_every_class_is_listed_with_a_sentence() -> None:
    for part in PARTS:
        for one in describe_classes(part):
            assert one.summary and "\n" not in one.summary
    words = {one.name for one in describe_classes("strategy")}
    assert {"random", "ahfal"} <= words
    assert all(setting.meaning.endswith((".", ").")) for setting in class_fields())


def test_the_first_sentence_about_a_parameter_is_its_meaning() -> None:
    (tau,) = find_all("tau")
    assert tau.meaning.startswith("Threshold on the spread of class shares")
    assert tau.meaning.endswith("Eq. 2).")


@pytest.mark.long
def test_the_page_of_the_documents_is_current() -> None:
    script = Path(__file__).parents[2] / "scripts" / "settings_page.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "run python scripts/settings_page.py"
