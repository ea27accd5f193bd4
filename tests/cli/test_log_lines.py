"""Log lines name date, level, study and party and contain no examples or labels.

The lines of a complete study are checked in `tests/deployment/test_trail.py`.
"""

from __future__ import annotations

import json
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from fallow.cli.coordinate_messages import CoordinatorLines
from fallow.cli.log_lines import LogFormat, LogLines
from fallow.cli.site_messages import SiteLines
from fallow.core.messages import Request, Step
from fallow.deployment.site.serve import _announce_replies
from fallow.strategies import Entropy
from fallow.transport.envelope import sign_message
from tests.deployment.hosts import SECRET, Leader, folder
from tests.deployment.simulations import tiny
from tests.deployment.test_program_cli import RunCommand, begun, fallow
from tests.keys import key_of

__all__ = ["begun", "fallow"]  # fixtures
FIELDS = ["time", "level", "study", "party", "event", "text"]
# a cell, a label, the name of an example
QUOTED = "63.451789 febrile-zauber castorp-hans-1907"
Captured = pytest.CaptureFixture[str]


def quote_a_row(*args: object, **fields: object) -> NoReturn:
    raise ValueError(f"could not convert string to float: {QUOTED!r}")


def open_lines(form: LogFormat, party: str) -> LogLines:
    return LogLines(form=form, study="heart", party=party)


def test_a_line_of_json_is_an_object_with_date_level_and_study(capsys: Captured) -> None:
    lines = SiteLines(
        Console(file=StringIO()), Path("basel"), log=open_lines("json", "basel")
    )
    lines({"event": "instruction", "key": "0/hello", "bytes": 70, "refused": None})
    lines({"event": "coordinator", "problem": "nothing answers\nat \x1b[31ma:1"})
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(first) == FIELDS
    assert [first[name] for name in FIELDS[1:]] == [
        "INFO",
        "heart",
        "basel",
        "instruction",
        "replied to 0/hello (70 bytes)",
    ]
    assert datetime.fromisoformat(first["time"]).tzinfo is not None
    assert second["level"] == "WARNING"
    assert second["text"].startswith("nothing answers at [31ma:1; nothing is lost")


def test_a_line_of_text_has_the_same_in_one_line(tmp_path: Path, capsys: Captured) -> None:
    log = open_lines("text", "coordinator")
    lines = CoordinatorLines(Console(file=StringIO()), tiny(tmp_path).agreement, log=log)
    lines({"event": "query", "cycle": 1})
    lines({"event": "refused", "site": "chur", "key": "0/hello", "reason": "its\nwords"})
    first, second = capsys.readouterr().out.splitlines()
    at, rest = first.split(" ", 1)
    assert datetime.fromisoformat(at).tzinfo is not None
    assert rest == "INFO    heart coordinator query: cycle 1: sites select examples"
    assert second.split(" ", 1)[1].startswith(
        "WARNING heart coordinator refused: the reply of chur is discarded: its words"
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_an_error_quotes_of_a_row_stands_in_no_line(
    form: LogFormat, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(folder(tmp_path, brought=range(6)))
    log = open_lines(form, "north")
    lines = SiteLines(Console(file=StringIO()), tmp_path, log=log)
    handle = _announce_replies(leader.site, leader.host.handle, lines)
    monkeypatch.setattr(Entropy, "select", quote_a_row)
    request = Request(
        key_of("0/query/0"), "query", 0, 0, (Step("keep", "select", {"n": 1}),)
    )
    handle(sign_message(SECRET, leader.instruction(request)))
    with pytest.raises(ValueError, match="castorp"), log.around():
        quote_a_row()
    leader.ledger.close()
    output = capsys.readouterr().out
    assert "could not perform Entropy.select (error " in output
    assert output.count("ERROR") == 1
    assert not [word for word in QUOTED.split() if word in output]


def test_lines_are_asked_for_in_one_way(begun: RunCommand) -> None:
    code, out, err = begun("site", "start", "north", "--json", "--log-format", "json")
    assert (code, out) == (2, "")
    assert "are mutually exclusive" in err
