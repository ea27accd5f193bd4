"""Test what annotators see of their site's data, and that it stays at the site."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fallow.cli import main
from fallow.data.facts import format_facts
from fallow.data.sheet import build_sheet
from fallow.deployment.model_card import CARD
from fallow.deployment.schema import Column, Schema, schema_of
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.own_data import (
    collect_own_data,
    compare_with_sites,
    describe_own_data,
)
from fallow.deployment.site.rows import check_units, read_rows
from fallow.deployment.site.status import collect_status
from fallow.privacy.settings import Privacy
from tests.deployment.simulations import (
    NAMES,
    TINY,
    federation,
    photos,
    rows,
    schema_for,
    ward,
)
from tests.each import each_of, mark_long

pytest.importorskip("cryptography")


def test_a_site_sees_how_its_own_rows_were_read(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward())
    site = simulation.sites["chur"]
    assert site.tests is not None
    n_rows, n_tests = len(site.rows.x), len(site.tests.x)
    facts = describe_own_data(site)
    assert (facts["read"], facts["kept"], facts["left_out"]) == (32, 32, [])
    (here,) = facts["sites"]
    assert (here["site"], here["train"], here["test"]) == ("chur", n_rows, n_tests)
    assert sum(facts["classes"].values()) == n_tests  # the other examples are labeled later
    assert facts["warnings"] == []
    holes = {column["name"]: column["missing"] for column in facts["columns"]}
    marks = [int(part.x[:, 6].sum()) for part in (site.rows, site.tests)]
    assert holes["x1"] == sum(marks) > 0
    assert holes["x0"] == 0
    kinds = {column["name"]: column["kind"] for column in facts["columns"]}
    assert kinds == {"x0": "number", "x1": "number", "x2": "number", "kind": "category"}
    text = "\n".join(format_facts(facts))
    assert text.startswith("Your data: chur-rows.csv and chur-test.csv")
    assert f"chur: {n_rows} training and {n_tests} test examples" in text
    assert "categories: kind (a, b and c)" in text
    simulation.close()


def test_a_label_of_minus_one_is_unlabeled_as_in_a_simulation(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"{number},{number % 2}" for number in range(8)]
    file.write_text("\n".join(["age,label", *lines]))
    agreed = schema_of(file)
    file.write_text("\n".join(["age,label", "40,-1", *lines]))
    rows = read_rows(file, agreed)
    assert rows.labels[:3] == (None, 0.0, 1.0)
    assert "label -1 counted as unlabeled: 1" in rows.notes
    file.write_text(file.read_text().replace(",0", ",ill").replace(",1", ",well"))
    words = replace(agreed, classes=("ill", "well"))
    assert read_rows(file, words).labels[:3] == (None, 0.0, 1.0)


@each_of("separator, mark", [(",", "."), (";", ",")])
def test_targets_with_a_unit_are_read_in_it(
    separator: str, mark: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    weights = [f"{1.37 + number:.2f}".replace(".", mark) for number in range(30)]
    lines = [f"{number}{separator}{weight} kg" for number, weight in enumerate(weights)]
    file.write_text("\n".join([f"age{separator}label", *lines]))
    agreed = schema_of(file)
    assert agreed.unit == "kg" and agreed.task == "regression"
    assert read_rows(file, agreed).labels[:2] == (1.37, 2.37)
    file.write_text("\n".join([f"age{separator}label", f"5{separator}1370 g", *lines]))
    with pytest.raises(
        ValueError, match=r"label '1370 g' is not a finite number \(in kg\)"
    ):
        read_rows(file, agreed)


def test_the_data_sheet_of_a_site_counts_its_known_cells(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward())
    site = simulation.sites["chur"]
    noted = replace(site.measured_rows, notes=("column 'x0' has two units",))
    vars(site)["measured_rows"] = noted
    sheet = build_sheet(collect_own_data(site), comes_labeled=False)
    columns = {one.name: one for one in sheet.columns if one.role != "label"}
    assert len(columns) == len(sheet.columns) - 1
    assert "column 'x0' has two units" in [one.sentence for one in sheet.findings]
    for name, column in columns.items():
        at = site.agreement.schema.features.index("kind=a" if name == "kind" else name)
        known = int((~site.rows.x[:, at].isnan()).sum())
        (histogram,) = column.histograms
        assert histogram.site == "chur"
        assert sum(histogram.counts) == known
    assert columns["kind"].levels
    assert "1 natural site" in sheet.sentence
    simulation.close()


def test_rows_that_were_left_out_are_counted(tmp_path: Path) -> None:
    simulation = federation(tmp_path, replace(TINY, drop_rows=True))
    file = tmp_path / "basel-rows.csv"
    text = file.read_text(encoding="utf-8").splitlines()
    first = text[1].split(",")
    twice = text[2]
    file.write_text(
        "\n".join([text[0], ",".join(["", *first[1:]]), *text[2:], twice]) + "\n",
        encoding="utf-8",
    )
    site = SiteFolder.create(
        tmp_path / "again",
        tmp_path / "study.toml",
        name="basel",
        data=str(file),
        test=str(tmp_path / "basel-test.csv"),
    )
    facts = describe_own_data(site)
    assert facts["read"] == facts["kept"] + 1
    assert facts["left_out"] == [
        {"reason": "a feature is missing or infinite", "rows": {"basel": 1}}
    ]
    assert facts["duplicates"] == 1 and facts["crossing"] == 0
    simulation.close()


def test_test_rows_that_are_also_rows_of_the_data_are_refused(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward())
    schema = simulation.sites["basel"].agreement.schema
    tests = tmp_path / "basel-test.csv"
    with (tmp_path / "basel-rows.csv").open(encoding="utf-8") as opened:
        leaked = next(csv.DictReader(opened))
    with tests.open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    rows.append({**leaked, schema.ids: "leaked", schema.label: rows[0][schema.label]})
    with tests.open("w", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    expected = r"1 of \d+ test rows are also rows of the data .*remove them"
    with pytest.raises(ValueError, match=expected):
        SiteFolder.create(
            tmp_path / "again",
            tmp_path / "study.toml",
            name="basel",
            data=str(tmp_path / "basel-rows.csv"),
            test=str(tests),
        )
    assert not (tmp_path / "again").exists()
    site = SiteFolder.open(simulation.sites["basel"].path)
    with pytest.raises(ValueError, match=expected):
        _ = site.tests  # the file changed after the site joined
    simulation.close()


def test_pictures_have_no_columns_and_are_counted_all_the_same(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, photos())
    facts = describe_own_data(simulation.sites["basel"])
    assert (facts["kept"], facts["columns"], facts["duplicates"]) == (20, [], 0)
    simulation.close()


@pytest.fixture
def status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return the output of ``fallow site status``."""

    def called(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fallow", "site", "status", *words])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        return capsys.readouterr().out

    return called


def test_status_shows_the_box_and_why_where_there_is_none(
    status: Callable[..., str], tmp_path: Path
) -> None:
    simulation = federation(tmp_path, TINY, ward())
    simulation.close()
    folder = str(simulation.sites["chur"].path)
    output = status(folder)
    assert "Your data: chur-rows.csv and chur-test.csv" in output
    assert "missing cells: " in output
    status_of_site = json.loads(status(folder, "--json"))
    assert status_of_site["data"]["read"] == 32
    (tmp_path / "chur-rows.csv").unlink()
    assert "which does not exist; restore" in " ".join(status(folder).split())


def test_another_unit_at_a_site_is_reported_to_all(tmp_path: Path) -> None:
    simulation = federation(tmp_path, TINY, ward())
    site = simulation.sites["chur"]
    x = site.rows.x
    x[:, 0] = 50 + x[:, 0] / 10
    scale = {"mean": x.nanmean(0), "std": x.square().nanmean(0).sqrt()}
    assert compare_with_sites(site, scale) == compare_with_sites(site, {}) == []
    mean = float(scale["mean"][0])
    for factor, is_reported in [(1.3, False), (0.001, True), (30.0, True)]:
        scale["mean"][0] = factor * mean
        output = compare_with_sites(site, scale)
        assert [("column 'x0' has a mean of" in line) for line in output] == [
            True
        ] * is_reported
    with closing(site.open_ledger()) as ledger:
        ledger.store.keep("chur", "features", scale)
    assert collect_status(site)["data"].get("warnings") == output
    rows = torch.arange(len(x))
    x[:, 0] = torch.where(rows % 2 == 0, 37.5, 36.0)  # few numbers, with fractions
    scale["mean"][0] = 98.5
    assert len(compare_with_sites(site, scale)) == 1
    x[:, 0] = x[:, 0].floor()  # codes
    assert compare_with_sites(site, scale) == []
    simulation.close()


@pytest.mark.long
@pytest.mark.parametrize("is_masked", mark_long([False, True], [False]))
def test_the_coordinator_keeps_nothing_of_a_sites_own_box(
    is_masked: bool, tmp_path: Path
) -> None:
    """The coordinator has numbers of examples and the disclosed statistics of cells."""
    config = replace(TINY, privacy=Privacy(secure_sum=is_masked))
    simulation = federation(tmp_path, config, ward())
    assert simulation.program(pages=True).go()
    facts = describe_own_data(simulation.sites["chur"])
    assert facts["columns"][1]["missing"] > 0
    kept = [file for file in simulation.coordinator_folder.rglob("*") if file.is_file()]
    assert {"report.html", "study.json"} <= {file.name for file in kept}
    assert not {"data.json"} & {file.name for file in kept}
    for file in kept:
        content = file.read_bytes()
        assert b"chur-rows" not in content, file
        assert b"missing_at" not in content, file
        assert b"duplicates" not in content, file
    assert "x1 (mg, cells may be empty)" in (
        simulation.coordinator_folder / CARD
    ).read_text(encoding="utf-8")
    simulation.close()


@pytest.mark.long
@pytest.mark.parametrize("is_masked", mark_long([False, True], [False]))
def test_a_site_with_another_unit_is_told_before_and_after_training(
    is_masked: bool, tmp_path: Path
) -> None:
    """Two sites have mg/dL as agreed, and one has mmol/L; sums do not show which to the others."""
    data = rows(NAMES[:3])
    other = data.site_names.index("chur")
    for x, sites in ((data.x, data.sites), (data.x_test, data.sites_test)):
        assert sites is not None
        x[:, 0] = 90 + 8 * x[:, 0]  # about 150 mg/dL
        x[sites == other, 0] /= 18  # mmol/L
    glucose = Column("x0", "mg/dL", low=40, high=600)
    schema = schema_for(data)
    schema = replace(schema, columns=(glucose, *schema.columns[1:]))
    config = replace(TINY, privacy=Privacy(secure_sum=is_masked))
    simulation = federation(
        tmp_path, config, data, schema=schema, confirmed={"chur": ("x0",)}
    )
    outside = {
        name: [note for note in site.rows.notes if "are outside 40 to 600 mg/dL" in note]
        for name, site in simulation.sites.items()
    }
    assert [name for name, notes in outside.items() if notes] == ["chur"]
    assert "check that they are in the agreed unit" in outside["chur"][0]
    n_outside = len(simulation.sites["chur"].rows.x)
    assert f"{n_outside} of {n_outside} numbers" in outside["chur"][0]
    assert simulation.program().go()
    simulation.close()
    status = {name: collect_status(site) for name, site in simulation.sites.items()}
    warned = str(status["chur"]["data"].get("warnings"))
    assert warned.count("column 'x0' has a mean of") == 1
    assert "may have another unit" in warned
    for name in ("basel", "davos"):
        assert not status[name]["data"].get("warnings")


def test_a_site_whose_numbers_may_have_another_unit_starts_when_it_confirms_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rows.csv"
    numbers = [90.0, 120.0, 150.0, 5.0, 6.7, 8.3]
    file.write_text("x,y\n" + "".join(f"{number},no\n" for number in numbers))
    column = Column("x", "mg/dL", low=40, high=600, offset=3.0)
    agreed = Schema("table", "classification", "y", ("no", "yes"), (column,))
    check_units(read_rows(file, agreed), agreed, ())  # half are in the range
    file.write_text(file.read_text() + "4.4,yes\n")
    read = read_rows(file, agreed)
    check_units(read, agreed, ("x",))
    fix = r"4 of 7 numbers are outside 40 to 600 mg/dL; .* add 'x' to the setting confirmed"
    with pytest.raises(ValueError, match=fix):
        check_units(read, agreed, ("z",))
    without_range = replace(agreed, columns=(replace(column, low=None, high=None),))
    check_units(read, without_range, ())


def test_a_site_does_not_start_with_numbers_outside_the_agreed_range(
    tmp_path: Path,
) -> None:
    data = rows(NAMES[:2])
    low = float(data.x[:, 0].max()) + 1
    schema = schema_for(data)
    beyond = (replace(schema.columns[0], low=low), *schema.columns[1:])
    schema = replace(schema, columns=beyond)
    with pytest.raises(ValueError, match="add 'x0' to the setting confirmed"):
        federation(tmp_path / "refused", TINY, data, schema=schema)
    confirmed = dict.fromkeys(NAMES[:2], ("x0",))
    federation(tmp_path, TINY, data, schema=schema, confirmed=confirmed).close()


def test_units_in_cells_are_never_mixed_with_the_agreed_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    agreed = Schema("table", "classification", "y", ("no", "yes"), (Column("x", "mg/dL"),))
    for cells, is_read in (("90 mg/dL", True), ("5.1 mmol/L", False), ("90", True)):
        file.write_text("x,y\n" + "".join(f"{cells},no\n" for _ in range(12)))
        if is_read:
            assert float(read_rows(file, agreed).x.mean()) == 90
            continue
        with pytest.raises(ValueError, match=r"'5.1 mmol/L' is not .* give one in mg/dL"):
            read_rows(file, agreed)
    file.write_text("x,y\n" + "90 mg/dL,no\n5.1 mmol/L,yes\n" * 9)
    with pytest.raises(ValueError, match="is not a finite number; give one in mg/dL"):
        read_rows(file, agreed)


def range_of(low: float | None, high: float | None) -> Schema:
    columns = (Column("x", "mg", low=low, high=high), Column("z"))
    return Schema("table", "classification", "y", ("no", "yes"), columns)


@each_of(
    "separator, form, agreed, first, is_doubtful",
    [
        (",", "{}.5", range_of(None, None), 1.5, False),
        (";", "{},5", range_of(None, None), 1.5, False),
        (";", "{},215", range_of(0, 20), 1.215, False),
        (";", "{},215", range_of(1000, 20_000), 1215, False),
        (";", "{}.215", range_of(0, 20), 1.215, False),
        (";", "{}.215", range_of(1000, 20_000), 1215, False),
        (",", '"{},215"', range_of(0, 20), 1.215, False),
        (",", '"{},215"', range_of(1000, 20_000), 1215, False),
        (",", "{}.215", range_of(1000, 20_000), 1215, False),
        (";", "{},215", range_of(None, None), 1.215, True),
        (",", '"{},215"', range_of(None, None), 1215, True),
        (",", "{}.215", range_of(0, 20_000), 1.215, True),
    ],
)
def test_agreed_ranges_decide_the_decimal_mark_of_a_site(
    separator: str,
    form: str,
    agreed: Schema,
    first: float,
    is_doubtful: bool,
    tmp_path: Path,
) -> None:
    lines = [[form.format(row), str(row), "yes"] for row in range(1, 12)]
    lines.insert(0, ["x", "z", "y"])
    (tmp_path / "rows.csv").write_text("\n".join(map(separator.join, lines)))
    read = read_rows(tmp_path / "rows.csv", agreed)
    assert float(read.x[0, 0]) == pytest.approx(first)
    doubts = [note for note in read.notes if "because all have three digits" in note]
    assert bool(doubts) is is_doubtful
    assert all("set low = and high = of the column" in note for note in doubts)
    assert not any("are outside" in note for note in read.notes)
