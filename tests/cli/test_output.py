"""Output of commands: quiet, text or JSON; and shell completion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fallow.cli import options as opt
from tests.cli.conftest import Command

RUN = ("run", "tiny.toml", "--out", "study")


@pytest.mark.long
def test_a_quiet_run_says_nothing_and_does_everything(
    fallow: Command, folder: Path
) -> None:
    output = fallow(*RUN, "--quiet")
    assert (output.code, output.out, output.err) == (0, "", "")
    assert (folder / "study" / "report.html").exists()
    for words in (
        ("report", "study"),
        ("export", "study"),
        ("predict", "study", "blobs.npz"),
    ):
        output = fallow(*words, "--quiet")
        assert (output.code, output.out, output.err) == (0, "", ""), words


def test_a_quiet_command_still_says_what_is_wrong(fallow: Command) -> None:
    assert "not an experiment configuration" in fallow("run", "dmo", "--quiet").says()


@pytest.mark.long
def test_what_a_run_came_to_is_one_object(fallow: Command) -> None:
    details = json.loads(fallow(*RUN, "--json").out)
    assert details["study"] == "study" and details["report"] == "study/report.html"
    assert details["table"][0]["strategy"] == "random"
    assert "ends at" in details["summary"]
    assert json.loads(fallow("report", "study", "--json").out) == {
        "report": "study/report.html",
        "notebook": None,
    }
    assert json.loads(fallow("export", "study", "--json").out) == {
        "file": "study/records.csv"
    }
    shown = fallow("export", "study", "--out", "-").out
    assert shown.splitlines() == Path("study/records.csv").read_text().splitlines()
    assert "omit one" in fallow("export", "study", "--out", "-", "--json").says()
    predicted = json.loads(fallow("predict", "study", "blobs.npz", "--json").out)
    assert (predicted["rows"], predicted["lacking"]) == (60, 0)


def test_what_a_run_would_cost_is_one_object_too(fallow: Command) -> None:
    details = json.loads(fallow(*RUN, "--dry-run", "--json").out)
    assert details["runs"] == 1 and details["seconds"] > 0


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
    output = fallow(*RUN, "--set", "strategy=ifal", "--set", "lr=0.05")
    assert (
        output.says()
        == "lr may be training_config.optimizer.lr or strategy.lr; write one of them"
    )
    output = fallow("compare", "tiny.toml", "--set", "strategy=ahfal", "--set", "tau=3")
    assert "name them with --strategy" in output.says()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(fallow: Command, shell: str) -> None:
    output = fallow("completion", shell)
    assert output.code == 0
    assert "_FALLOW_COMPLETE" in output.out and "fallow" in output.out


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
    output = fallow()
    assert offered in output.out.split(), output


def test_text_between_colons_is_printed_as_it_is(
    fallow: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    opt.console().print("[fd00:ab::1]:9092", markup=False)
    assert capsys.readouterr().out == "[fd00:ab::1]:9092\n"
    assert "x:key:y" in fallow("forecast", "x:key:y").says()


def test_fetch_prints_no_json(fallow: Command) -> None:
    assert "omit --json" in fallow("datasets", "--fetch", "digits", "--json").says()
