"""The digest of a configuration covers every setting, including defaults."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from fallow.core.names import BUILT_IN
from fallow.experiment.event_log import EventLog
from fallow.settings.classes import resolve_settings
from fallow.settings.config import OUTSIDE, ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.preparation import check_same, open_study
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import tiny

CELL = StudyRun("random", 0)


@dataclass(frozen=True)
class Mine:
    """A method of a user, with one setting."""

    tau: float = 1.0


@dataclass(frozen=True)
class Later:
    """The same one in a later version."""

    tau: float = 2.0


def test_every_setting_that_decides_a_run_is_digested() -> None:
    named = {field.name for field in fields(ExperimentConfig)} - set(OUTSIDE)
    assert set(resolve_settings(ExperimentConfig("a"), BUILT_IN, OUTSIDE)) == named


def test_a_default_of_the_recipe_is_digested_with_its_value() -> None:
    resolved = json.loads(
        json.dumps(resolve_settings(ExperimentConfig("a"), BUILT_IN, OUTSIDE))
    )
    assert resolved["rounds"] == 15
    assert (
        resolved["training_config"]["optimizer"]["lr"]
        == ExperimentConfig("a").training_config.optimizer.lr
    )


def test_a_changed_default_of_a_method_changes_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(ExperimentConfig("a"), strategy=Spec(f"{__name__}:Mine"))
    before = config.digest
    assert config.digest == before
    monkeypatch.setattr(sys.modules[__name__], "Mine", Later)
    assert config.digest != before
    assert replace(config, strategy=Spec(f"{__name__}:Mine", {"tau": 1.0})).digest == before


def test_a_setting_at_its_default_digests_as_if_it_had_been_written_down() -> None:
    plain = replace(ExperimentConfig("a"), strategy=Spec("ahfal"))
    assert replace(plain, strategy=Spec("ahfal", {"tau": 12.0})).digest == plain.digest
    assert replace(plain, strategy=Spec("ahfal", {"tau": 13.0})).digest != plain.digest


def test_an_encoder_is_digested_with_all_its_fields() -> None:
    plain = replace(ExperimentConfig("a"), encoder=Spec("fourier"))
    assert plain.digest != ExperimentConfig("a").digest
    written = replace(plain, encoder=Spec("fourier", {"gamma": 0.25}))
    assert written.digest == plain.digest
    assert replace(plain, encoder=Spec("fourier", {"gamma": 0.5})).digest != plain.digest


def test_a_move_of_a_function_to_another_module_keeps_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check settings that are functions or classes, such as an activation."""

    @dataclass(frozen=True)
    class WithFunction:
        kernel: object = tiny
        encoder: object = Path
        nothing: object = object()

    monkeypatch.setattr(sys.modules[__name__], "Mine", WithFunction)
    config = replace(ExperimentConfig("a"), strategy=Spec(f"{__name__}:Mine"))
    before = config.digest
    monkeypatch.setattr(tiny, "__module__", "tests.other.module")
    assert config.digest == before
    monkeypatch.setattr(tiny, "__qualname__", "another")
    assert config.digest != before


def test_a_class_that_cannot_be_found_does_not_stop_the_digest() -> None:
    assert (
        replace(ExperimentConfig("a"), strategy=Spec("nowhere:Class")).digest
        != ExperimentConfig("a").digest
    )


def test_the_digest_of_a_received_recipe_imports_nothing_that_the_policy_does_not_let_resolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "received_code.py").write_text("class Method: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    received = replace(ExperimentConfig("a"), strategy=Spec("received_code:Method"))
    assert received.digest_under(BUILT_IN) != ExperimentConfig("a").digest_under(BUILT_IN)
    assert "received_code" not in sys.modules


def test_a_study_that_names_code_of_others_is_refused_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code_of_others.py").write_text("class Method: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    open_study(setup, [CELL], "fallow compare", resume=False)
    page = tmp_path / "study" / "study.json"
    details = json.loads(page.read_text())
    details["config"]["training"]["name"] = "code_of_others:Method"
    page.write_text(json.dumps(details))
    with pytest.raises(ValueError, match=r"other settings \(training differ\)"):
        check_same(page, setup.config, resume=True)
    assert "code_of_others" not in sys.modules


@pytest.mark.long
def test_a_digest_does_not_depend_on_where_python_keeps_things() -> None:
    import subprocess

    ask = "from fallow.settings.config import ExperimentConfig; print(ExperimentConfig('a').digest)"
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ExperimentConfig("a").digest


def test_a_study_of_an_earlier_version_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    open_study(setup, [CELL], "fallow compare", resume=False)
    page = tmp_path / "study" / "study.json"
    details = json.loads(page.read_text())
    details["digest"] = "0123456789abcdef"
    details["versions"]["fallow"] = "0.0.9"
    page.write_text(json.dumps(details))
    output = (
        f"{tmp_path / 'study'} was started by Fallow 0.0.9, in which some of these settings had other "
        "defaults or another form: resume it with that version, or choose another folder with --out"
    )
    with pytest.raises(ValueError) as refused:
        check_same(page, setup.config, resume=True)
    assert str(refused.value) == output


def test_a_journal_of_an_earlier_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    folder = CELL.folder(setup.out)
    folder.mkdir(parents=True)
    event_log = EventLog(folder / "event_log.sqlite")
    event_log.note_once("digest", "0123456789abcdef")
    event_log.close()
    with pytest.raises(
        ValueError, match="was started with other settings, or by a version"
    ) as e:
        run_one(setup, CELL)
    assert "choose another folder with --out" in str(e.value)
    assert (folder / "event_log.sqlite").exists()
