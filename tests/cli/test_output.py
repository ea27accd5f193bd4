"""What commands say: nothing, words, or JSON; and what Tab completes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

RUN = ("run", "tiny.toml", "--out", "study")


def test_a_quiet_run_says_nothing_and_does_everything(
    fallow: Command, folder: Path
) -> None:
    said = fallow(*RUN, "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "")
    assert (folder / "study" / "report.html").exists()
    for words in (
        ("report", "study"),
        ("export", "study"),
        ("predict", "study", "blobs.npz"),
    ):
        said = fallow(*words, "--quiet")
        assert (said.code, said.out, said.err) == (0, "", ""), words


def test_a_quiet_command_still_says_what_is_wrong(fallow: Command) -> None:
    assert "not a recipe" in fallow("run", "dmo", "--quiet").says()


def test_what_a_run_came_to_is_one_object(fallow: Command) -> None:
    about = json.loads(fallow(*RUN, "--json").out)
    assert about["study"] == "study" and about["report"] == "study/report.html"
    assert about["table"][0]["strategy"] == "random"
    assert "ends at" in about["summary"]
    assert json.loads(fallow("report", "study", "--json").out) == {
        "report": "study/report.html"
    }
    assert json.loads(fallow("export", "study", "--json").out) == {
        "file": "study/records.csv"
    }
    predicted = json.loads(fallow("predict", "study", "blobs.npz", "--json").out)
    assert (predicted["rows"], predicted["lacking"]) == (60, 0)


def test_what_a_run_would_cost_is_one_object_too(fallow: Command) -> None:
    about = json.loads(fallow(*RUN, "--dry-run", "--json").out)
    assert about["runs"] == 1 and about["seconds"] > 0


@pytest.mark.parametrize("command", ["settings", "models", "partitions", "encoders"])
def test_lists_have_names_for_people_and_for_programs(
    fallow: Command, command: str
) -> None:
    rows = json.loads(fallow(command, "--json").out)
    shown = fallow(command).out
    assert rows
    assert all(row["name"] in shown for row in rows)


def test_a_short_name_sets_and_an_ambiguous_one_says_which(fallow: Command) -> None:
    assert fallow(*RUN, "--set", "lr=0.05", "--dry-run").code == 0
    said = fallow(*RUN, "--set", "strategy=ifal", "--set", "lr=0.05")
    assert (
        said.says()
        == "lr may be training_config.optimizer.lr or strategy.lr; write one of them"
    )
    said = fallow("compare", "tiny.toml", "--set", "strategy=ahfal", "--set", "tau=3")
    assert "name them with --strategy" in said.says()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(fallow: Command, shell: str) -> None:
    said = fallow("completion", shell)
    assert said.code == 0
    assert "_FALLOW_COMPLETE" in said.out and "fallow" in said.out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fallow rep", "report"),
        ("fallow run dem", "demo"),
        ("fallow run demo --set training_config.opt", "training_config.optimizer.lr="),
        ("fallow compare demo --strategy random,entr", "random,entropy"),
    ],
)
def test_tab_completes_commands_recipes_settings_and_strategies(
    fallow: Command, monkeypatch: pytest.MonkeyPatch, typed: str, offered: str
) -> None:
    monkeypatch.setenv("_FALLOW_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    said = fallow()
    assert offered in said.out.split(), said
