"""Test the output of a site's command: readable tables of no more than what can leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fallow.cli import options
from fallow.cli.site import site
from fallow.cli.terminal import show_table
from fallow.core.client import GROUPS
from fallow.deployment.building import build_study
from fallow.deployment.ledger.instructions import SentReplies
from fallow.deployment.site.agreement_text import (
    Disclosed,
    group_disclosures,
    list_disclosures,
)
from fallow.deployment.site.status import group_sent
from fallow.settings.spec import Spec
from tests.deployment.simulations import TINY, Federation, federation, rows, tiny

LONG = "totals over sites of rows and of weighted models, " * 4


def test_a_table_is_no_wider_than_a_hundred_columns_where_nobody_knows_the_width(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heads = ("part", "function", "reveals", "seen by")
    line = ("annotators and scores", "deviation", LONG, "coordinator, each contribution")
    show_table(options.console(), "What leaves this site", heads, [line], whole=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "annotators and scores  deviation" in lines[2]  # names are not broken
    assert " ".join(lines).count("weighted") == 4


def list_reveals(simulation: Federation) -> dict[str, str]:
    return {
        function: what
        for _, function, what, *_ in list_disclosures(simulation.sites["basel"])
    }


def test_disclosures_are_grouped_by_the_kinds_of_their_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation = tiny(tmp_path)
    disclosures = list_disclosures(simulation.sites["basel"])
    groups = {line.function: line.group for line in disclosures}
    expected = {
        "select": "counts",
        "columns": "aggregates",
        "upload": "models",
        "progress": "status",
    }
    assert expected.items() <= groups.items()
    shown = group_disclosures(disclosures)
    assert [group for group, *_ in shown if group] == [*GROUPS]
    assert {reveals for _, reveals, _ in shown} == {line.reveals for line in disclosures}
    folder = str(simulation.sites["basel"].path)
    result = CliRunner().invoke(site, ["status", folder], catch_exceptions=False)
    assert "upload" not in result.output
    result = CliRunner().invoke(site, ["status", folder, "--verbose"])
    assert "function" in result.output


def test_what_left_is_added_up_by_kind() -> None:
    sent: list[SentReplies] = [
        {
            "run": run,
            "owner": "training",
            "function": function,
            "exchanges": 2,
            "bytes": size,
        }
        for run in ("r1", "r2")
        for function, size in (("upload", 100), ("select", 8), ("fit", 0))
    ]
    disclosures = [
        Disclosed("training", "upload", "models", "coordinator", "models"),
        Disclosed("query", "select", "a count", "coordinator", "counts"),
    ]
    assert group_sent(sent, disclosures) == [
        {"kind": "counts", "exchanges": 4, "bytes": 16},
        {"kind": "models", "exchanges": 4, "bytes": 200},
        {"kind": "status", "exchanges": 4, "bytes": 0},
    ]


def test_a_study_of_classes_says_nothing_of_numbers_and_its_sites_tell_none(
    tmp_path: Path,
) -> None:
    simulation = tiny(tmp_path)
    assert {"columns", "spread"} <= list_reveals(simulation).keys()
    assert not {"labeled", "deviation"} & list_reveals(simulation).keys()
    assert (
        "hits" in list_reveals(simulation)["score"]
        and "squared" not in list_reveals(simulation)["score"]
    )
    assert (
        build_study(simulation.agreement)
        .methods["scaling"]
        .contract.refusal("labeled", "sum")
    )


def test_a_study_of_numbers_says_nothing_of_classes(tmp_path: Path) -> None:
    config = replace(TINY, strategy=Spec("random"))
    simulation = federation(tmp_path, config, rows(("basel", "chur"), 0))
    assert {"columns", "spread", "labeled", "deviation"} <= list_reveals(simulation).keys()
    assert (
        "squared" in list_reveals(simulation)["score"]
        and "hits" not in list_reveals(simulation)["score"]
    )
