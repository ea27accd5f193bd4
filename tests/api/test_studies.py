"""Comparisons of query strategies: records do not depend on how a study is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import fallow as fl
from fallow.configs.find import load_configs

Settings = dict[str, Any]
SCORES = ["strategy", "seed", "cycle", "round", "labeled", "accuracy"]


@pytest.fixture(scope="module")
def study(simulation: fl.Federation, quick: Settings, tmp_path_factory: Any) -> fl.Study:
    out = tmp_path_factory.mktemp("studies") / "a"
    strategies = [fl.Random(), "entropy:model=global", fl.AHFAL]
    return fl.compare(simulation, strategies, seeds=3, out=out, **quick)


def test_objects_classes_and_names_are_compared(study: fl.Study) -> None:
    assert set(study.records["strategy"]) == {"random", "entropy:model=global", "ahfal"}
    assert set(study.records["seed"]) == {0, 1, 2}


def test_the_table_is_a_frame_of_numbers(study: fl.Study) -> None:
    table = study.table(columns="all")
    assert isinstance(table, pd.DataFrame)
    assert table["mean"].is_monotonic_decreasing
    assert table["mean"].between(0, 100).all()
    tested = table[table["strategy"] != "random"]
    assert tested["p_holm"].between(0, 1).all()
    assert (tested["low"] <= tested["difference"]).all()
    best = table.iloc[0]
    last = study.records[
        (study.records["strategy"] == best["strategy"]) & (study.records["cycle"] == 1)
    ]
    assert best["mean"] == pytest.approx(100 * last["accuracy"].mean())


def test_the_table_shows_p_in_100_characters(study: fl.Study) -> None:
    table = study.table()
    assert list(table.columns) == [
        *("strategy", "mean", "sd", "difference", "low", "high", "p", "p_holm")
    ]
    with pd.option_context("display.width", 100, "display.max_columns", 0):
        lines = repr(table).splitlines()
    assert len(lines) == 1 + len(table)
    assert lines[0].split()[-2:] == ["p", "p_holm"]
    assert max(map(len, lines)) <= 100
    whole = study.table(columns="all")
    assert len(whole.columns) == 16
    assert table["mean"].tolist() == whole["mean"].round(2).tolist()
    assert study.table(columns=["strategy", "wins"]).equals(whole[["strategy", "wins"]])
    with pytest.raises(ValueError, match=r"no column 'winz'; did you mean 'wins'"):
        study.table(columns=["winz"])


def test_a_study_prints_as_one_line_and_draws_itself(study: fl.Study) -> None:
    assert repr(study) == (
        "Study(three classes: random, entropy:model=global, ahfal; 3 seeds, 9 runs)"
    )
    assert "<table" in study._repr_html_()
    assert isinstance(study.plot(), Figure)


def test_a_study_has_its_runs_with_their_models(study: fl.Study, rows: fl.Dataset) -> None:
    run = study.run(fl.AHFAL(), seed=2)
    assert run.seed == 2
    assert len(run.predict(rows.x_test)) == 60
    with pytest.raises(
        ValueError, match="no finished run of badge with seed 0; its strategies"
    ):
        study.run(fl.BADGE())


@pytest.mark.long
def test_a_kept_study_is_found_again(study: fl.Study) -> None:
    assert study.folder is not None
    again = fl.read_study(study.folder)
    assert again.table().equals(study.table())
    assert again.run("random").records.equals(study.run("random").records)
    page = fl.write_report([study, study.folder], study.folder / "two.html")
    assert page.stat().st_size > 10_000


def test_the_same_call_goes_on_where_it_stopped(
    study: fl.Study, simulation: fl.Federation, quick: Settings
) -> None:
    files = {p: p.stat().st_mtime_ns for p in study.setup.out.rglob("records.jsonl")}
    more = fl.compare(
        simulation, [fl.Random(), "ahfal"], seeds=4, out=study.folder, **quick
    )
    assert set(more.records["seed"]) == {0, 1, 2, 3}
    assert all(path.stat().st_mtime_ns == when for path, when in files.items())


@pytest.mark.long
def test_a_study_without_a_folder_goes_with_its_object(
    simulation: fl.Federation,
    quick: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    study = fl.compare(simulation, "random", seeds=[5], **quick)
    folder = study.setup.out
    assert study.folder is None
    assert study.report() == Path("report.html")
    with pytest.raises(ValueError, match="was not stored; use"):
        fl.write_report(study)
    assert folder.exists()
    del study
    assert not folder.exists()


@pytest.mark.long
def test_results_do_not_depend_on_the_number_of_processes(
    simulation: fl.Federation, quick: Settings
) -> None:
    strategies = [fl.Random(), fl.Entropy()]
    one = fl.compare(simulation, strategies, seeds=2, jobs=1, **quick).records[SCORES]
    two = fl.compare(simulation, strategies, seeds=2, jobs=2, **quick).records[SCORES]
    assert one.equals(two)


@pytest.mark.long
def test_bounds_and_a_reference_can_be_asked_for(
    simulation: fl.Federation, quick: Settings
) -> None:
    study = fl.compare(
        simulation,
        ["random", "entropy"],
        seeds=2,
        bounds=True,
        reference=fl.Entropy(),
        **quick,
    )
    table = study.table()
    assert {"bound:all-labels", "bound:pooled"} < set(table["strategy"])
    assert table.set_index("strategy")["difference"].notna()["random"]


@pytest.mark.long
def test_strategies_of_a_recipe_are_compared_where_none_are_given(quick: Settings) -> None:
    study = fl.compare(config="demo", seeds=1, bounds=(), rows=200, **quick)
    demo = load_configs()["demo"]
    assert len(demo.strategies) > 1
    assert tuple(study.study_records.study.strategies) == demo.strategies
    assert study.study_records.study.reference == demo.reference


def test_a_world_in_the_place_of_strategies_is_told_apart(
    simulation: fl.Federation,
) -> None:
    with pytest.raises(ValueError, match=r"write fl\.compare\(federation, strategies"):
        fl.compare(["random"], simulation)  # type: ignore[arg-type]  # that is what is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 0}, "seeds is 0; it must be at least 1"),
        ({"seeds": ["a"]}, "one of seeds is 'a'; give a whole number, 0 or more"),
        ({"seeds": [0, -1]}, "one of seeds is -1; give a whole number, 0 or more"),
        ({"seeds": [True]}, "one of seeds is True; give a whole number"),
        ({"seeds": []}, "give a number of seeds, or whole numbers"),
        ({"seeds": 2.5}, "seeds is 2.5; give a number of seeds, or whole numbers"),
        ({"seeds": "ab"}, "seeds is 'ab'; give a number of seeds, or whole numbers"),
        ({"jobs": 0}, "jobs is 0; give a whole number"),
        ({"strategies": []}, "there are no strategies to compare"),
        ({"strategies": ["entrpy"]}, "did you mean 'entropy'?"),
        ({"strategies": ["random@rows=3"]}, "which all strategies of a study share"),
    ],
)
def test_a_study_that_cannot_be_is_refused(
    simulation: fl.Federation, quick: Settings, changes: Settings, words: str
) -> None:
    settings: Settings = {"strategies": ["random"], "seeds": 1, **quick, **changes}
    with pytest.raises(ValueError) as error:
        fl.compare(simulation, **settings)
    assert words in str(error.value)


# -- user data -------------------------------------------------------------------------


def patients() -> pd.DataFrame:
    """Return 60 patients of two wards; every tenth age is missing."""
    ages = [None if i % 10 == 0 else 20.5 + i % 37 for i in range(60)]
    sick = ["no", "yes", "yes", "no"] * 15
    return pd.DataFrame({"age": ages, "ward": ["north", "south"] * 30, "sick": sick})


@pytest.mark.long
def test_the_report_of_a_comparison_says_what_was_read_of_a_frame(tmp_path: Path) -> None:
    data = fl.from_frame(patients(), label="sick", site="ward", name="patients")
    study = fl.compare(
        data,
        "random",
        seeds=1,
        out=tmp_path / "a",
        cycles=0,
        training="fedavg",
        rounds=1,
        progress=False,
    )
    page = study.report().read_text()
    assert "Your data" in page
    assert "patients holds 60 rows; 60 of them are in this study" in page
    assert "north 6" in page  # missing ages


def test_the_report_of_one_run_says_what_was_read_of_arrays(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = fl.from_arrays(draw.normal(size=(50, 3)), np.arange(50) % 2, name="mine")
    run = fl.run(
        data,
        fl.Random(),
        out=tmp_path / "b",
        cycles=0,
        training="fedavg",
        rounds=1,
        progress=False,
        sites=2,
    )
    page = run.report(tmp_path / "page.html").read_text()
    assert "Your data" in page and "mine holds 50 rows" in page


def test_the_report_of_a_named_set_has_no_such_box(tmp_path: Path) -> None:
    run = fl.run(
        "wine",
        out=tmp_path / "c",
        sites=2,
        cycles=0,
        training="fedavg",
        rounds=1,
        progress=False,
    )
    page = run.report(tmp_path / "page.html").read_text()
    assert "Your data" not in page
    assert not (tmp_path / "c" / "data.json").exists()


@pytest.mark.long
def test_numbers_to_predict_have_strategies_of_their_own() -> None:
    study = fl.compare(
        "diabetes",
        None,
        seeds=1,
        cycles=0,
        training="fedavg",
        rounds=1,
        sites=2,
        progress=False,
    )
    assert "badge@training=closed-form" in set(study.records["strategy"])
    with pytest.raises(ValueError, match="entropy requires classes"):
        fl.compare("diabetes", ["entropy"], seeds=1, sites=2, progress=False)
