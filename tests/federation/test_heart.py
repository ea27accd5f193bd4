"""The try-out of four hospitals: files of one schema, and a script that answers what is asked."""

from __future__ import annotations

import runpy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fallow.core.streams import stream
from fallow.federation.agreement import Agreement, at_sites
from fallow.federation.building import build_study
from fallow.federation.ledger.purchases import ChosenRow
from fallow.federation.schema import Schema, schema_of
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.rows import read_rows, read_tests
from fallow.federation.study_file import write_agreement
from fallow.papers import find_recipe
from fallow.privacy.signing import new_signing_key, verify_key
from tests.federation.worlds import Federation, rows

pytest.importorskip("cryptography")
HEART = Path(__file__).parents[2] / "examples" / "heart"


def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Schema]:
    """The names of the sites whose files are now in a folder, and their schema."""
    monkeypatch.setattr("sys.argv", ["make_sites.py", str(folder)])
    runpy.run_path(str(HEART / "make_sites.py"), run_name="__main__")
    sites = sorted(path.stem.removesuffix("-test") for path in folder.glob("*-test.csv"))
    return sites, schema_of(folder / "example.csv", "disease")


def test_the_hospitals_share_columns_and_classes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(data_dir))
    sites, schema = files(tmp_path, monkeypatch)
    assert sites == ["cleveland", "hungarian", "switzerland", "va_long_beach"]
    assert (schema.classes, len(schema.columns)) == (("healthy", "ill"), 8)
    rows = [read_rows(tmp_path / f"{site}.csv", schema, drop_rows=True) for site in sites]
    assert [len(part.x) for part in rows] == [228, 220, 87, 108]
    assert not any(part.labelled for part in rows)


def test_without_their_data_four_sites_share_what_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path / "nowhere"))
    sites, schema = files(tmp_path, monkeypatch)
    tests = [read_tests(tmp_path / f"{site}-test.csv", schema) for site in sites]
    assert [len(part.x) for part in tests] == [35, 35, 35, 35]
    recipe = at_sites(find_recipe(str(HEART / "settings.toml")), "heart", 4, schema)
    about = build_study(Agreement("heart", recipe, schema, tuple(sites), b"k" * 32))
    assert recipe.privacy.secure_sum  # without it a head in closed form is refused
    assert recipe.rounds == 1
    weights = about.fresh(stream(0, "init", 0))["w"]
    assert weights.shape == (2 * (128 + 1),)  # of features, and a bias


def test_the_script_answers_whatever_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path / "nowhere"))
    sites, schema = files(tmp_path / "data", monkeypatch)
    recipe = at_sites(find_recipe(str(HEART / "settings.toml")), "heart", 4, schema)
    write_agreement(
        tmp_path / "study.toml", Agreement("heart", recipe, schema, tuple(sites), b"k" * 32)
    )
    site = SiteFolder.create(
        tmp_path / "east",
        tmp_path / "study.toml",
        name="east",
        data=str(tmp_path / "data" / "east.csv"),
    )
    script: dict[str, Any] = runpy.run_path(str(HEART / "annotate.py"))
    known = script["answers"](tmp_path / "data" / "east-answers.csv")
    with closing(site.open_ledger()) as ledger:
        ledger.orders.begin("run")
        ledger.purchases.ask(
            "run",
            "0/query",
            cycle=0,
            allowed=2,
            deadline=None,
            rows=[ChosenRow(5), ChosenRow(3)],
        )
    assert script["label"](site, known) == 2
    with closing(site.open_ledger()) as ledger:
        given = {
            q.row: schema.words(q.value or 0.0) for q in ledger.questions(state="answered")
        }
    assert given == {row: known[site.rows.ids[row]] for row in (5, 3)}
    assert script["label"](site, known) == 0


def test_the_settings_run_at_four_sites_behind_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In units of their own: squares of measurements are large numbers for masked sums."""
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path / "nowhere"))
    names, schema = files(tmp_path / "data", monkeypatch)
    recipe = at_sites(find_recipe(str(HEART / "settings.toml")), "heart", 4, schema)
    secret = new_signing_key()
    agreed = Agreement("heart", recipe, schema, tuple(names), verify_key(secret))
    write_agreement(tmp_path / "study.toml", agreed)
    sites = {}
    for name in names:
        sites[name] = SiteFolder.create(
            tmp_path / name,
            tmp_path / "study.toml",
            name=name,
            data=str(tmp_path / "data" / f"{name}.csv"),
            test=str(tmp_path / "data" / f"{name}-test.csv"),
        )
    script: dict[str, Any] = runpy.run_path(str(HEART / "annotate.py"))
    answers = {
        name: script["answers"](tmp_path / "data" / f"{name}-answers.csv") for name in names
    }

    def who(site: str, row: int) -> float:
        return schema.value(answers[site][sites[site].rows.ids[row]])

    world = Federation(tmp_path, agreed, rows(), secret, sites, who=who)
    assert world.program().go()
    assert [len(labels) for labels in world.labels().values()] == [8 + 2 * 6] * 4
    assert world.records()[-1]["accuracy"] > 0.8
    world.close()
