"""The label budget has one name and one meaning in Python, TOML and on the command line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.core.suggestions import suggest_keyword
from fallow.settings.budgets import describe_reading
from fallow.settings.config import ExperimentConfig, config_from, with_settings
from tests.cli.conftest import Command
from tests.each import mark_long

BASE: dict[str, Any] = {
    "data": "blobs.npz",
    "sites": 3,
    "initial": 0.1,
    "cycles": 1,
    "partition": "iid",
    "training": "closed-form",
    "encoder": "identity",  # fast
}
ONE = "budget=1 is 1 label at each site; write 1.0 for all examples"
WHOLE = "1.0 means all examples: for 1 label at each site write 1"


def write_settings(file: str, settings: dict[str, Any]) -> str:
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    Path(file).write_text("".join(lines))
    return file


def read_run(out: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the digest of a run and its records without times."""
    digest = json.loads((Path(out) / "study.json").read_text())["digest"]
    (file,) = (Path(out) / "cells").rglob("records.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    fields = ("cycle", "accuracy", "labeled", "labeled_per_site")
    return digest, [{name: record[name] for name in fields} for record in records]


@pytest.mark.long
@pytest.mark.parametrize(
    ("budget", "allocation"),
    mark_long(
        [
            (2, "equal"),
            (0.05, "proportional"),
            ([2, 3], "proportional"),
            ([0.05, 4], "equal"),
        ],
        [([2, 3], "proportional"), ([0.05, 4], "equal")],
    ),
)
def test_a_budget_is_the_same_in_python_in_toml_and_on_the_command_line(
    budget: Any, allocation: str, fallow: Command
) -> None:
    cycles = len(budget) if isinstance(budget, list) else 1
    base = BASE | {"cycles": cycles, "budget_allocation": allocation}
    fl.run(config={"name": "mine", **base}, budget=budget, out="python")
    fl.run(config=write_settings("mine.toml", base | {"budget": budget}), out="file")
    assert fallow("run", "mine.toml", "--out", "toml", "--quiet").code == 0
    write_settings("bare.toml", base)
    setting = f"budget={json.dumps(budget)}"
    assert fallow("run", "bare.toml", "--set", setting, "--out", "set", "--quiet").code == 0
    option = ("--budget", json.dumps(budget))
    assert fallow("run", "bare.toml", *option, "--out", "option", "--quiet").code == 0
    runs = [read_run(name) for name in ("python", "file", "toml", "set", "option")]
    assert runs[1:] == runs[:-1]


@pytest.mark.long
@pytest.mark.parametrize(("budget", "labels"), [(1, 3), (1.0, 60)])
def test_one_is_one_label_and_one_point_zero_all_examples(
    budget: float, labels: int, fallow: Command
) -> None:
    base = BASE | {"initial": 0}
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        fl.run(config={"name": "mine", **base}, budget=budget, out="python")
    write_settings("mine.toml", base | {"budget": budget})
    toml = fallow("run", "mine.toml", "--out", "toml")
    write_settings("bare.toml", base)
    shell = fallow("run", "bare.toml", "--set", f"budget={budget}", "--out", "set")
    runs = [read_run(name) for name in ("python", "toml", "set")]
    assert runs[1:] == runs[:-1]
    assert runs[0][1][-1]["labeled"] == labels
    readings = [ONE] if budget == 1 and isinstance(budget, int) else []
    assert [str(item.message) for item in messages] == readings
    for ended in (toml, shell):
        assert ended.code == 0
        assert (ONE in ended.out) == bool(readings)


@pytest.mark.parametrize(
    ("initial", "later", "is_said"),
    [(0.1, (1,), True), (1, (0.1,), True), (10, (1,), False), (0.1, (1.0,), False)],
)
def test_a_budget_of_one_is_explained_unless_another_counts_labels(
    initial: float, later: tuple[float, ...], is_said: bool
) -> None:
    assert bool(describe_reading(initial, later)) == is_said


def in_python(settings: dict[str, Any]) -> None:
    fl.run(config={"name": "mine", **BASE, **settings})


def in_toml(settings: dict[str, Any]) -> None:
    fl.run(config=write_settings("mine.toml", BASE | settings))


def in_shell(settings: dict[str, Any]) -> None:
    texts = {name: json.dumps(value) for name, value in settings.items()}
    with_settings(config_from({"name": "mine", **BASE}), texts)


def directly(settings: dict[str, Any]) -> None:
    ExperimentConfig("mine", **settings)


FORMS = (
    "a fraction of all examples with a decimal point (0.05), or a whole number of labels"
)


@pytest.mark.parametrize("read", [in_python, in_toml, in_shell, directly])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"budget": "few"}, f"budget is 'few'; it must be {FORMS}"),
        ({"budget": "5%"}, f"budget is '5%'; it must be {FORMS}"),
        ({"budget": True}, f"budget is True; it must be {FORMS}"),
        ({"budget": [3, "x", 1]}, "budget is [3, 'x', 1]; it must be"),
        ({"initial": [3]}, "initial is [3]; it must be"),
        ({"budget": 20.0}, f"budget is 20.0, more than all examples; write {FORMS}"),
        ({"budget": 1.0, "initial": 0.1, "cycles": 1}, WHOLE),
        ({"budget": 0}, "budget is 0; it must be above 0"),
        ({"budget": "equal"}, "to allocate it so, set budget_allocation='equal'"),
        ({"budget_allocation": "evenly"}, "budget_allocation is 'evenly'; it must be"),
    ],
)
def test_a_wrong_budget_ends_in_one_sentence(
    read: Callable[[dict[str, Any]], None],
    settings: dict[str, Any],
    sentence: str,
    folder: Path,
) -> None:
    with pytest.raises(ValueError) as refused:
        read(settings)
    text = str(refused.value)
    assert sentence in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("per_cycle", "budget"),
        ("query_size", "budget"),
        ("label_budget", "budget"),
        ("policy", "budget_allocation"),
        ("allocation", "budget_allocation"),
        ("budget_split", "budget_allocation"),
    ],
)
def test_another_word_leads_to_the_name(word: str, name: str, fallow: Command) -> None:
    assert suggest_keyword(word, ["budget", "budget_allocation"]).endswith(f"{name!r}?")
    for settings in ({word: 1}, {"config": "demo", word: 1}):
        with pytest.raises(ValueError, match=f"{word} .*did you mean '{name}'"):
            fl.run("digits", "random", **settings)
    assert f"did you mean '{name}'?" in fallow("run", "demo", "--set", f"{word}=3").says()
