"""Test empty cells at real sites: agreement, disclosure, checks and labeling page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from fallow.core.client import find_fault
from fallow.core.composites import Cells as CellTotals
from fallow.core.messages import Request, Step
from fallow.core.missing import Missing
from fallow.core.types import Values
from fallow.core.values import SenderFacts
from fallow.deployment.agreement import Timeouts
from fallow.deployment.annotators import MODEL
from fallow.deployment.schema import Column, Schema, schema_from, schema_of
from fallow.deployment.site.agreement_text import describe_agreement, list_disclosures
from fallow.deployment.site.host import Host
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.labels_io import list_open_tasks
from fallow.deployment.site.predict import predict_at
from fallow.deployment.site.rows import read_rows
from fallow.deployment.toml import schema_section
from fallow.encoders import Fourier
from fallow.encoders.base import EMPTY_CELLS, encoder_digest, round_digits
from fallow.privacy.settings import Privacy
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from fallow.transport.envelope import Reply
from tests.deployment.hostile import turn
from tests.deployment.hosts import Leader, agreement, folder
from tests.deployment.simulations import TINY, federation, ward
from tests.keys import key_of

pytest.importorskip("cryptography")
Cells = tuple[tuple[str, str, str], ...]
FOURIER = Spec("fourier", {"features": 8})
SECURE = Privacy(secure_sum=True)
SCHEMA = Schema(
    kind="table",
    task="classification",
    label="sick",
    classes=("no", "yes"),
    columns=(
        Column("age", "years", may_be_empty=True, high=120.0),
        Column("sex", values=("female", "male"), may_be_empty=True),
        Column("dose"),
    ),
    shape=(6,),
)
HEAD = "age,sex,dose,sick\n"


def table(path: Path, *lines: str) -> Path:
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# -- agreement -----------------------------------------------------------------------------


def test_an_example_with_an_empty_cell_says_that_its_column_may_be_empty(
    tmp_path: Path,
) -> None:
    example = table(tmp_path / "e.csv", "50,male,1,no", ",female,2,yes", "60,NA,3,no")
    outcome = schema_of(example, "sick")
    assert [column.may_be_empty for column in outcome.columns] == [True, True, False]
    assert outcome.features == (
        *("age", "sex=female", "sex=male", "dose"),
        *("age_missing", "sex_missing"),
    )
    assert outcome.missing == Missing(
        levels=((1, 3),), marks=(("age_missing", "age"), ("sex_missing", "sex"))
    )
    whole = schema_of(example, "sick", needs_whole=True)
    assert whole.missing is None and whole.shape == (4,)


def test_that_a_column_may_be_empty_is_agreed_on() -> None:
    other = tuple(
        replace(c, may_be_empty=c.name in ("age", "dose")) for c in SCHEMA.columns
    )
    one, two = SCHEMA, replace(SCHEMA, columns=other)
    assert one.shape == two.shape
    assert one.digest != two.digest


def test_the_file_says_which_columns_may_be_empty_and_is_read_back() -> None:
    section = schema_section(SCHEMA)
    text = section.as_string()
    assert text.count("may_be_empty = true") == 2 and "may_be_empty = false" not in text
    assert "computed over all sites" in text
    assert schema_from(section.unwrap()) == SCHEMA


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"drop_rows": True}, "'x1' may be empty, but with drop_rows = true, sites drop"),
        (
            {"features": Spec("mlp")},
            "'x1' may be empty, but a frozen model .* complete rows",
        ),
    ],
)
def test_what_needs_whole_rows_is_not_agreed_on_beside_empty_cells(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    agreed = federation(tmp_path, TINY, ward()).agreement
    with pytest.raises(ValueError, match=why):
        replace(agreed, config=replace(agreed.config, **change))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({}, ("standardization", "cells", "coordinator, each contribution")),
        (
            {"standardize": "none"},
            ("standardization", "cells", "coordinator, each contribution"),
        ),
        ({"encoder": FOURIER}, ("empty cells", "cells", "coordinator, each contribution")),
        ({"privacy": SECURE}, ("standardization", "cells", "coordinator, aggregate only")),
    ],
)
def test_a_person_reads_what_is_told_of_cells_before_the_site_joins(
    change: dict[str, Any], facts: tuple[str, str, str], tmp_path: Path
) -> None:
    simulation = federation(tmp_path, replace(TINY, **change), ward())
    site = simulation.sites["basel"]
    of_cells = [line for line in list_disclosures(site) if line[1] == "cells"]
    assert [(part, function, seen) for part, function, _, seen, _ in of_cells] == [facts]
    assert of_cells[0][2] == (
        "aggregates of numbers of examples, of each column and of its non-empty cells"
    )
    (line,) = [
        line
        for line in describe_agreement(simulation.agreement, site.settings)
        if "may be empty" in line
    ]
    assert line.startswith(
        "cells may be empty in x1 and kind: the sites impute them together"
    )
    assert ("protected by secure aggregation" in line) == ("privacy" in change)


# -- examples ------------------------------------------------------------------------------


def test_rows_are_read_with_their_empty_cells_and_shown_as_they_were(
    tmp_path: Path,
) -> None:
    rows = read_rows(
        table(tmp_path / "r.csv", "50,male,1,", ",female,2,yes", "NA,?,3,no"), SCHEMA
    )
    nan = torch.nan
    expected = torch.tensor(
        [[50, 0, 1, 1, 0, 0], [nan, 1, 0, 2, 1, 0], [nan, nan, nan, 3, 1, 1]]
    )
    torch.testing.assert_close(rows.x, expected, equal_nan=True)
    assert rows.describe(0) == (
        ("age", "50", "years"),
        ("sex", "male", ""),
        ("dose", "1", ""),
    )
    assert rows.describe(2) == (("age", "", "years"), ("sex", "", ""), ("dose", "3", ""))
    assert rows.notes == ()  # empty cells are within any limits


def test_a_column_that_was_agreed_to_be_given_is_not_left_empty(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"1 rows have missing features \('dose' 1\).*may_be_empty"
    ):
        read_rows(table(tmp_path / "r.csv", ",male,1,no", "50,male,,no"), SCHEMA)


def test_a_text_among_numbers_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'age', row 2: 'old' is not a finite number"):
        read_rows(table(tmp_path / "r.csv", ",male,1,no", "old,male,1,no"), SCHEMA)
    with pytest.raises(
        ValueError, match=r"'sex', row 1: 'mal' is not one of .* mean 'male'"
    ):
        read_rows(table(tmp_path / "r.csv", ",mal,1,no"), SCHEMA)


# -- whole studies -------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("encoder", [None, FOURIER])
def test_a_model_of_the_sites_predicts_rows_with_empty_cells(
    encoder: Spec | None, tmp_path: Path
) -> None:
    simulation = federation(tmp_path, replace(TINY, encoder=encoder), ward())
    assert simulation.program().go()
    site = simulation.sites["basel"]
    tests = site.tests
    assert tests is not None and bool(tests.x.isnan().any())
    values = predict_at(site.path, tmp_path / "basel-test.csv", tmp_path / "out.csv")
    assert (values.rows, values.lacking) == (len(tests.x), 0)
    words = [
        line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]
    ]
    true = [simulation.agreement.schema.words(label or 0.0) for label in tests.labels]
    hits = [one == other for one, other in zip(words, true, strict=True)]
    score = simulation.records()[-1]["per_site"]["basel"]
    assert sum(hits) / len(hits) == pytest.approx(score)
    marks = load_tree(site.path / MODEL, site.path)["example_spec"]["marks"]
    assert marks == [["x1_missing", "x1"], ["kind_missing", "kind"]]
    simulation.close()


@pytest.mark.long
def test_test_rows_of_a_site_teach_nobody(tmp_path: Path) -> None:
    """The sites agree on the same scaling and fill values with other test examples."""
    data = ward()
    other = torch.where(data.x_test.isnan(), data.x_test, 5 * data.x_test)
    scores = []
    for name, item in (("one", data), ("two", replace(data, x_test=other))):
        simulation = federation(tmp_path / name, TINY, item)
        assert simulation.program().go()
        site = simulation.sites["basel"]
        scores.append(load_tree(site.path / MODEL, site.path)["scale"])
        simulation.close()
    one, two = scores
    assert one.keys() == {"mean", "std", "fill"}
    for name, values in one.items():
        assert torch.equal(values, two[name]), name


def test_test_rows_are_filled_by_what_training_rows_taught(tmp_path: Path) -> None:
    simulation = federation(tmp_path, replace(TINY, standardize="none"), ward())
    assert simulation.program().go()
    raw = simulation.sites["basel"].tests
    assert raw is not None
    host = Host(simulation.sites["basel"], simulation.ledgers["basel"])
    seen = host._local_site().see(raw.x)[:]
    empty = raw.x[:, 1].isnan()
    assert bool(empty.any())
    ages = simulation.data.x[:, 1]
    mean = ages[~ages.isnan()].double().mean().float()
    torch.testing.assert_close(seen[empty, 1], mean.expand(int(empty.sum())))
    simulation.close()


@pytest.mark.long
def test_what_people_label_shows_an_empty_cell_as_empty(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward())
    site = simulation.sites["davos"]
    asked: list[str] = []

    def look(event: Any) -> None:
        if event["event"] == "labels" and not asked:
            schema = simulation.agreement.schema
            lines = list_open_tasks(simulation.ledgers["davos"], schema, site.rows)
            write_lines(tmp_path / "q.csv", lines)
            asked.append((tmp_path / "q.csv").read_text())
        simulation.label(event)

    assert simulation.program(look).go()
    shown = [site.rows.describe(row) for row in range(len(site.rows.x))]
    empty = [cells for cells in shown if ("x1", "", "mg") in cast(Cells, cells)]
    assert len(empty) == int(site.rows.x[:, 1].isnan().sum()) > 0
    assert "nan" not in asked[0]
    simulation.close()


# -- implausible aggregates ----------------------------------------------------------------

FIELD = {"rows": 10.0, "columns": [100.0, 3.0, 5.0, 2.0], "observed": [9.0, 8.0, 8.0, 10.0]}
LEVELS = Missing(levels=((1, 3),), marks=(("age_missing", "age"),))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"observed": [-1.0, 8.0, 8.0, 10.0]}, "observed is below 0"),
        (
            {"observed": [11.0, 8.0, 8.0, 10.0]},
            "observed is 11, more cells than the 10 rows have",
        ),
        ({"observed": [8.5, 8.0, 8.0, 10.0]}, "observed has a fraction"),
        ({"observed": [0.0, 8.0, 8.0, 10.0]}, "columns is not 0 where no cell is observed"),
        ({"columns": [100.0, -3.0, 11.0, 2.0]}, "columns has -3 cells with one text"),
        (
            {"columns": [100.0, 3.0, 6.0, 2.0]},
            "columns has 9 cells .* and 8 of them are observed",
        ),
        (
            {"observed": [9.0, 8.0, 7.0, 10.0]},
            "columns has 8 cells .* and 8 of them are observed",
        ),
        ({"columns": [100.0, 8.0]}, "columns has the shape"),
        ({"rows": [10.0, 10.0]}, "rows has the shape"),
    ],
)
def test_what_totals_of_cells_cannot_be(change: dict[str, Any], why: str | None) -> None:
    answer = {name: torch.tensor(value) for name, value in {**FIELD, **change}.items()}
    known = SenderFacts({"cells": 4}, levels=LEVELS.levels)
    fault = find_fault(CellTotals(), answer, known)
    if why is None:
        assert fault is None
    else:
        assert re.search(why, str(fault))


def put(
    name: str, at: int, value: float
) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """Change one number in the aggregate of cells."""

    def change(key: str, answer: dict[str, Any]) -> dict[str, Any]:
        if name not in answer or "observed" not in answer:
            return answer
        numbers = answer[name].clone()
        numbers[at] = value
        return {**answer, name: numbers}

    return change


@pytest.mark.parametrize(
    ("lie", "why", "encoder"),
    [
        (put("columns", 1, 1e12), r"columns has values up to 1e\+12, more than", FOURIER),
        (put("columns", 3, -2.0), "columns has -2 cells with one text", None),
    ],
)
def test_one_site_with_totals_that_cannot_be_is_named_in_one_sentence(
    lie: Any, why: str, encoder: Spec | None, tmp_path: Path
) -> None:
    waits = Timeouts(timeout=1.0, patience=2.0)
    simulation = federation(tmp_path, replace(TINY, encoder=encoder), ward(), waits)
    turn(simulation, "chur", lie)
    with pytest.raises(RuntimeError, match=rf"site chur: {why}"):
        simulation.program().go()
    assert {event["site"] for event in simulation.list_events("refused")} == {"chur"}
    simulation.close()


def test_masked_totals_that_cannot_be_never_count(tmp_path: Path) -> None:
    simulation = federation(tmp_path, replace(TINY, privacy=SECURE), ward())

    def shift(key: str, answer: dict[str, Any]) -> dict[str, Any]:
        if "observed" not in answer:
            return answer
        return {**answer, "observed": answer["observed"] + 2**62}

    turn(simulation, "chur", shift)
    with pytest.raises(
        RuntimeError, match=r"the aggregate of 'cells' over .* is impossible: observed"
    ):
        simulation.program().go()
    simulation.close()


# -- rejected instructions -----------------------------------------------------------------


COLUMNS = tuple(Column(f"x{i}", may_be_empty=i == 1) for i in range(4))
FIVE = Schema("table", "classification", "y", ("a", "b", "c"), COLUMNS, (5,))


@pytest.fixture(params=["", "encoder=fourier:features=8"])
def leader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Leader]:
    settings = ["strategy=entropy", *filter(None, [request.param])]
    outcome = Leader(folder(tmp_path, agreement(*settings, schema=FIVE)))
    yield outcome
    outcome.ledger.close()


def send(leader: Leader, key: str, owner: str, step: Step) -> Reply:
    return leader.send(leader.instruction(Request(key_of(key), owner, 0, 0, (step,))))


def place_of(leader: Leader) -> tuple[str, str]:
    """Return the key and the owner of the exchange about empty cells."""
    if leader.site.agreement.config.encoder is None:
        return "0/initial/features", "scaling"
    return "0/initial/cells", "filling"


def test_totals_of_cells_are_told_once_and_by_a_sum(leader: Leader) -> None:
    key, owner = place_of(leader)
    sums = Step("sum", "cells", {})
    instruction = leader.instruction(Request(key_of(f"{key}/0"), owner, 0, 0, (sums,)))
    reply = leader.send(instruction)
    assert reply.refused is None
    assert set(reply.body) == {"rows", "columns", "observed"}
    leader.count(instruction)
    again = send(leader, f"{key}/1", owner, sums)
    assert "requests it at most 1 times" in str(again.refused)
    by_each = send(leader, f"{key}/1", owner, Step("each", "cells", {}))
    assert "allows it only by sum" in str(by_each.refused)


def test_a_site_takes_nothing_else_for_what_fills_its_cells(leader: Leader) -> None:
    key, owner = place_of(leader)
    function = "fill" if owner == "filling" else "features"
    numbers = (
        {"mean": torch.zeros(5), "std": torch.ones(5)} if function == "features" else {}
    )
    for bad in (torch.zeros(4), torch.tensor(1.0), 3.0):
        args: Values = {**numbers, "fill": bad}
        reply = send(leader, f"{key}/0", owner, Step("keep", function, args))
        assert "did not receive the imputed values of its 5" in str(reply.refused)
    good: Values = {**numbers, "fill": torch.zeros(5)}
    assert send(leader, f"{key}/0", owner, Step("keep", function, good)).refused is None


def test_units_come_with_what_fills_cells(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, agreement("strategy=entropy", schema=FIVE)))
    units: Values = {"mean": torch.zeros(5), "std": torch.ones(5)}
    reply = send(leader, "0/initial/features/0", "scaling", Step("keep", "features", units))
    assert "did not receive the imputed" in str(reply.refused)
    leader.ledger.close()


def test_a_study_of_whole_rows_asks_nothing_of_cells(tmp_path: Path) -> None:
    plain = Leader(folder(tmp_path, agreement("strategy=entropy")))
    key = "0/initial/features/0"
    reply = send(plain, key, "scaling", Step("sum", "cells", {}))
    assert "'cells'" in str(reply.refused)
    units: Values = {"mean": torch.zeros(4), "std": torch.ones(4), "fill": torch.zeros(4)}
    reply = send(plain, key, "scaling", Step("keep", "features", units))
    assert "the agreement permits no empty cells here" in str(reply.refused)
    reply = send(plain, "0/initial/cells/0", "filling", Step("sum", "cells", {}))
    assert "leads to no step 0/initial/cells" in str(reply.refused)
    plain.ledger.close()


def test_an_encoder_comes_with_what_fills_cells(tmp_path: Path) -> None:
    settings = ("strategy=entropy", "encoder=fourier:features=8")
    leader = Leader(folder(tmp_path, agreement(*settings, schema=FIVE)))
    value: Values = {
        "encoder_digest": encoder_digest(Fourier(features=8)),
        "length": round_digits(torch.tensor(2.5).sqrt()),  # of five standardized columns
        "center": torch.zeros(5),
        "spread": torch.ones(5),
    }
    without = Step("keep", "encode", value)
    reply = send(leader, "0/initial/encode/0", "encoding", without)
    assert "did not receive the imputed values" in str(reply.refused)
    whole = Step("keep", "encode", {**value, EMPTY_CELLS: torch.zeros(5)})
    assert send(leader, "0/initial/encode/0", "encoding", whole).refused is None
    leader.ledger.close()
