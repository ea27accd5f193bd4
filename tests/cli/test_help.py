"""Help texts follow the style guide: short, in standard terms, without a final period."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rich.text import Text

from fallow.cli.app import build_command
from fallow.deployment.agreement import Bounds
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.declared import list_declared
from fallow.deployment.descriptions import FEDERATION, SITE, as_help
from fallow.deployment.site.settings import Settings
from fallow.deployment.study_file import Parties
from fallow.settings.descriptions import MEANINGS
from fallow.transport.kinds import HTTPS
from tests.commands import find_commands

PRIVATE = re.compile(
    r"\b(anew|go on with|by which alone|so many|what (?:it|there) is|"
    r"rows are dealt|people|reads out|in words|say nothing|addend)\b",
    re.IGNORECASE,
)
"""Words that a reader of other libraries' help does not expect."""
LONGEST = 95
"""Characters of the summary of a command."""


def list_commands(command: Any, path: str = "fallow") -> Iterator[tuple[str, Any]]:
    """List a command and all its subcommands with the arguments that call them."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from list_commands(below, f"{path} {name}")


COMMANDS = dict(list_commands(build_command()))


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_has_a_short_summary_in_standard_terms(path: str) -> None:
    summary = COMMANDS[path].help.partition("\n\n")[0].replace("\n", " ")
    assert len(summary) <= LONGEST
    assert not summary.endswith(".")
    assert PRIVATE.search(COMMANDS[path].help) is None


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_options_has_no_final_period_and_standard_terms(path: str) -> None:
    for option in COMMANDS[path].params:
        text = getattr(option, "help", None)
        if text is None or option.name == "help":
            continue
        assert not text.endswith("."), option.name
        assert PRIVATE.search(text) is None, option.name


@pytest.mark.parametrize("path", COMMANDS)
def test_help_is_shown_in_full_and_the_terminal_wraps_it(path: str) -> None:
    parameters = [getattr(option, "help", None) or "" for option in COMMANDS[path].params]
    for text in (COMMANDS[path].help, *parameters):
        assert Text.from_markup(text).plain == text, "brackets are read as markup"
    for paragraph in COMMANDS[path].help.split("\n\n"):
        lines = paragraph.split("\n")
        assert all(line.endswith("\\") for line in lines[:-1]), paragraph


@pytest.mark.parametrize("path", ["fallow coordinate init", "fallow site init"])
def test_an_example_of_a_command_keeps_its_lines(path: str) -> None:
    assert re.search(rf"\n\n{path} .* \\\n--", COMMANDS[path].help)


def list_help(path: str) -> dict[str, str]:
    """Return the help of the options of a command by the names of their settings."""
    parameters = find_commands()[path].params
    return {
        parameter.opts[0].removeprefix("--").replace("-", "_"): parameter.help or ""
        for parameter in parameters
        if parameter.opts[0].startswith("--")
    }


@pytest.mark.parametrize(
    ("path", "meanings", "least"),
    [
        ("site init", SITE, 12),
        ("coordinate init", FEDERATION, 8),
        ("coordinate init", AnswerPlan.DESCRIPTIONS, 6),
        ("compare", MEANINGS, 6),
        ("run", MEANINGS, 5),
    ],
)
def test_an_option_that_sets_a_setting_has_its_description(
    path: str, meanings: Mapping[str, str], least: int
) -> None:
    named = {name: text for name, text in list_help(path).items() if name in meanings}
    named.pop("strategy", None)  # repeated option of compare
    assert len(named) >= least
    for name, text in named.items():
        assert text.startswith(as_help(meanings[name])), name


def test_files_have_the_descriptions_of_options() -> None:
    agreed = {**FEDERATION, **Bounds.DESCRIPTIONS, **AnswerPlan.DESCRIPTIONS}
    for kind, meanings in ((Settings, SITE), (Parties, agreed)):
        declared = {setting.field: setting.description for setting in list_declared(kind)}
        assert declared == meanings
    assert HTTPS in FEDERATION["transport"]
