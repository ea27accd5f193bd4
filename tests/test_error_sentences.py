"""Error messages about files: site settings, studies, experiments, records, run states.

``error_sentences.toml`` has the content of a file and the message, which is compared
exactly.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from fallow.configs.find import find_config
from fallow.deployment.site.settings import settings_from
from fallow.deployment.study_file import agreement_from, agreement_text
from fallow.report.live import read_live
from fallow.study.reading import read_study
from tests.deployment.agreed import agreed
from tests.report.conftest import write_study

TABLE = tomllib.loads((Path(__file__).parent / "error_sentences.toml").read_text("utf-8"))
SITES = {"a": [1, 2], "b": [0, 4]}


@pytest.mark.parametrize(("lines", "sentence"), TABLE["site"])
def test_settings_of_a_site(lines: str, sentence: str) -> None:
    tree = {"name": "north", "data": "rows.csv"} | tomllib.loads(lines)
    with pytest.raises(ValueError) as error:
        settings_from(tree)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("old", "new", "sentence"), TABLE["study"])
def test_settings_of_a_study(old: str, new: str, sentence: str) -> None:
    text = agreement_text(agreed())
    assert old in text
    with pytest.raises(ValueError) as error:
        agreement_from(tomllib.loads(text.replace(old, new)))
    assert str(error.value) == sentence


@pytest.mark.parametrize(("lines", "sentence"), TABLE["experiment"])
def test_settings_of_an_experiment(lines: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'training = "fedavg"\n{lines}')
    with pytest.raises(ValueError) as error:
        find_config(str(file))
    assert str(error.value) == f"{file}: {sentence}"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("sent") / "study", ("random",), 1, 1, None)


@pytest.mark.parametrize(("part", "sentence"), TABLE["record"])
def test_fields_of_a_record(part: str, sentence: str, study: Path) -> None:
    file = study / "cells/random/seed-0/records.jsonl"
    before = file.read_text()
    first, second, *rest = before.splitlines()
    changed = json.loads(second) | {"labeled_per_site": SITES} | json.loads(part)
    file.write_text("\n".join([first, json.dumps(changed), *rest]))
    try:
        with pytest.raises(ValueError) as error:
            read_study(study)
    finally:
        file.write_text(before)
    assert str(error.value) == (
        f"{file}, line 2: {sentence}; restore the file, or ask the sender for the original "
        "file"
    )


@pytest.mark.parametrize(("part", "sentence"), TABLE["live"])
def test_fields_of_the_state_of_a_run(part: str, sentence: str, tmp_path: Path) -> None:
    state = {"state": "running", "sites": {}} | json.loads(part)
    (tmp_path / "live.json").write_text(json.dumps(state))
    with pytest.raises(ValueError) as error:
        read_live(tmp_path)
    assert f"is not the state of a run ({sentence}). Start" in str(error.value)
