"""A single run: its output files, and its equality with the run of the command line."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fallow as fl
from fallow.api.progress import ProgressLine
from fallow.configs.find import load_configs
from fallow.settings.config import with_settings
from fallow.study.reading import read_study
from fallow.study.study import run_study
from fallow.study.study_run import Setup, StudyRun

Settings = dict[str, Any]


@pytest.fixture(scope="module")
def run(simulation: fl.Federation, quick: Settings) -> fl.Run:
    return fl.run(
        simulation, fl.Entropy(), model=fl.MLP(hidden=[8]), **{**quick, "rounds": 3}
    )


def test_records_are_a_frame_with_a_row_for_each_evaluation(run: fl.Run) -> None:
    assert isinstance(run.records, pd.DataFrame)
    assert run.records["cycle"].tolist() == [0, 1]
    assert run.records["labeled"].is_monotonic_increasing
    assert run.records["accuracy"].between(0, 1).all()


def test_the_model_is_the_one_that_was_scored(run: fl.Run, rows: fl.Dataset) -> None:
    assert isinstance(run.model, nn.Module)
    assert not run.model.training
    named = run.predict(rows.x_test)
    right = (named == np.array(rows.classes)[rows.y_test]).mean()
    assert right == pytest.approx(run.records["accuracy"].iloc[-1])
    with torch.no_grad():
        shares = run.model(rows.x_test).softmax(1).double().numpy()
    assert np.allclose(shares, run.predict_proba(rows.x_test.numpy()), atol=1e-6)


def test_every_label_that_was_bought_is_told_with_its_cycle(
    run: fl.Run, simulation: fl.Federation
) -> None:
    assert len(run.labels) == run.records["labeled"].iloc[-1]
    assert set(run.labels["cycle"]) == {-1, 0}
    true_rows = simulation.rows(seed=0)
    for site, result in run.labels.groupby("site"):
        rows = true_rows[str(site)][result["row"]]
        assert simulation.dataset.y[rows].tolist() == result["value"].tolist()


def test_what_left_the_sites_is_told_in_words(run: fl.Run) -> None:
    assert set(run.revealed["function"]) == {"select", "upload"}
    assert run.revealed["description"].str.contains("aggregates of").any()
    assert (run.revealed["bytes"] > 0).all()


def test_a_run_prints_as_one_line_and_draws_itself_in_a_notebook(run: fl.Run) -> None:
    assert "\n" not in repr(run)
    assert repr(run).startswith("Run(entropy on three classes, seed 0: 2 phases, 36 labels")
    assert "<table" in run._repr_html_()


def test_nothing_is_left_on_the_disk_unless_asked(
    simulation: fl.Federation,
    quick: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    values = fl.run(simulation, **quick)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="this run was not stored; use"):
        values.report(tmp_path / "a.html")
    with pytest.raises(ValueError, match="training diverged"):
        fl.run(
            simulation, training_config={"optimizer": {"lr": 1e30}}, model="mlp", **quick
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_kept_run_goes_on_and_has_a_report(
    simulation: fl.Federation, quick: Settings, tmp_path: Path
) -> None:
    first = fl.run(simulation, "entropy", out=tmp_path / "a", **quick)
    again = fl.run(simulation, fl.Entropy(), out=tmp_path / "a", **quick)
    assert again.records.equals(first.records)
    assert first.report(tmp_path / "page.html").stat().st_size > 10_000
    other = fl.run(simulation, fl.Random(), out=tmp_path / "a", seed=1, **quick)
    assert other.seed == 1
    with pytest.raises(
        ValueError, match=r"was started with other settings \(rounds differ"
    ):
        fl.run(simulation, fl.Random(), out=tmp_path / "a", **{**quick, "rounds": 2})


def test_other_rows_of_the_same_name_are_refused_in_a_kept_folder(
    rows: fl.Dataset, quick: Settings, tmp_path: Path
) -> None:
    fl.run(fl.Federation(rows, sites=3), out=tmp_path / "a", **quick)
    moved = replace(rows, x=rows.x + 1)
    with pytest.raises(
        ValueError, match="was started with other data under the name 'three classes'"
    ):
        fl.run(fl.Federation(moved, sites=3), out=tmp_path / "a", **quick)


def test_a_class_that_was_edited_is_refused_in_a_kept_folder(
    simulation: fl.Federation, quick: Settings, tmp_path: Path
) -> None:
    def version(turn: int) -> type[Any]:
        lines = [
            "class Mine(fl.Strategy):",
            "    contract = fl.Contract(title='Mine')",
            "    def select(self, view, n):",
            f"        return fl.SelectedExamples((torch.arange(view.pool) + {turn})[:n] % view.pool)",
        ]
        names: Settings = {"fl": fl, "torch": torch, "__name__": "notebook"}
        exec("\n" * turn + "\n".join(lines), names)
        mine: type[Any] = names["Mine"]
        return mine

    fl.run(simulation, version(1)(), out=tmp_path / "a", **quick)
    fl.run(simulation, version(1)(), out=tmp_path / "a", **quick)
    with pytest.raises(ValueError, match="Mine has been edited since"):
        fl.run(simulation, version(2)(), out=tmp_path / "a", **quick)


def test_a_run_of_objects_is_the_run_of_the_command_line(tmp_path: Path) -> None:
    words = {
        "cycles": "1",
        "rounds": "1",
        "strategy": "ahfal:tau=15",
        "training": "fedprox:mu=0.1",
    }
    config = with_settings(
        load_configs()["demo"], {"bounds": "false", "rows": "300", **words}
    )
    cell = StudyRun("ahfal:tau=15", 2)
    assert not run_study(Setup(config, tmp_path / "a"), [cell])
    (tmp_path / "a/study.json").write_text(
        '{"name": "demo", "strategies": ["ahfal:tau=15"], "seeds": [2]}'
    )
    typed = [dict(r) for r in read_study(tmp_path / "a").cells[0].records]
    run = fl.run(
        config="demo",
        strategy=fl.AHFAL(tau=15),
        training=fl.FedProx(mu=0.1),
        cycles=1,
        rounds=1,
        rows=300,
        seed=2,
    )
    for mine, theirs in zip(run.records.to_dict("records"), typed, strict=True):
        assert mine["accuracy"] == theirs["accuracy"]
        assert mine["labeled_per_site"] == theirs["labeled_per_site"]


def test_a_world_of_objects_is_the_world_of_the_words(quick: Settings) -> None:
    objects = fl.Federation(fl.load("digits"), fl.ExactDirichlet(alpha=0.1), sites=4)
    by_object = fl.run(objects, model=fl.Linear(), **quick).records
    by_words = fl.run(config={"sites": 4, "score_rounds": 1}, **quick).records
    assert by_object["accuracy"].tolist() == by_words["accuracy"].tolist()


def test_a_recipe_in_toml_gives_what_is_not_said(
    tmp_path: Path, simulation: fl.Federation
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'training = "fedavg"\n'
        'strategy = "entropy"\nrounds = 2\ncycles = 0\nmodel = {name = "mlp", hidden = [5]}'
    )
    run = fl.run(simulation, config=file, initial=5)
    assert run.config.rounds == 2
    assert isinstance(run.model, nn.Module)
    assert run.model.state_dict()["head.weight"].shape[1] == 5
    assert run.config.data == "three classes"


def test_a_personalized_run_has_a_model_for_each_site(
    simulation: fl.Federation, quick: Settings, rows: fl.Dataset
) -> None:
    run = fl.run(simulation, model="mlp", **{**quick, "training": fl.Ditto()})
    assert isinstance(run.model, dict)
    assert set(run.model) == {"site-0", "site-1", "site-2"}
    with pytest.raises(
        ValueError, match="each site has a personalized model; choose one with site="
    ):
        run.predict(rows.x_test)
    sites = "site-0, site-1 and site-2"
    with pytest.raises(ValueError, match=f"there is no site 'site-9'; the run had {sites}"):
        run.predict(rows.x_test, site="site-9")
    assert len(run.predict(rows.x_test, site="site-1")) == 60


def test_a_common_model_predicts_for_its_sites_and_for_no_other(
    simulation: fl.Federation, quick: Settings, rows: fl.Dataset
) -> None:
    run = fl.run(simulation, model="mlp", **quick)
    at_site = run.predict(rows.x_test, site="site-1")
    assert (at_site == run.predict(rows.x_test)).all()
    for wrong in (run.predict, run.predict_proba):
        with pytest.raises(ValueError) as error:
            wrong(rows.x_test, site="zzz")
        assert str(error.value) == (
            "there is no site 'zzz'; the run had site-0, site-1 and site-2"
        )


def test_a_method_that_predicts_with_rows_of_the_site_says_so(
    simulation: fl.Federation, quick: Settings, rows: fl.Dataset
) -> None:
    run = fl.run(simulation, **{**quick, "training": fl.KNNPer()})
    with pytest.raises(ValueError, match="predicts with the labeled examples of a site"):
        run.predict(rows.x_test)


@pytest.mark.long
def test_a_frame_is_predicted_in_its_own_units(quick: Settings) -> None:
    draw = np.random.default_rng(0)
    n = 120
    df = pd.DataFrame(
        {
            "age": 1000 + 50 * draw.normal(size=n),
            "kind": draw.choice(["cat", "dog"], n),
            "clinic": draw.choice(["east", "west"], n),
        }
    )
    df["sick"] = np.where((df["age"] > 1000) ^ (df["kind"] == "cat"), "yes", "no")
    data = fl.from_frame(df, label="sick", site="clinic", name="clinics")
    run = fl.run(
        fl.Federation(data),
        training="fedavg",
        model="mlp",
        initial=0.9,
        cycles=0,
        rounds=20,
        training_config={"batch_size": 8},
    )
    values = run.predict(df.sample(frac=1, random_state=0).drop(columns=["clinic"]))
    assert set(values) <= {"yes", "no"}
    assert (run.predict(df) == df["sick"]).mean() > 0.85
    with pytest.raises(
        ValueError, match="row 1: 'cow' is not one of the texts that the model"
    ):
        run.predict(df.assign(kind="cow"))
    with pytest.raises(ValueError, match="frame has no column 'kind'"):
        run.predict(df[["age"]])
    with pytest.raises(ValueError, match="1 of 120 examples have a missing"):
        run.predict(df.assign(age=[np.nan, *df["age"][1:]]))


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        (np.zeros((3, 5)), r"examples have shape \(5,\), and the model needs \(2,\)"),
        (np.zeros(2), r"the input has shape \(2,\), that of a single example"),
    ],
)
def test_rows_of_another_shape_are_refused(run: fl.Run, examples: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run.predict(examples)


def test_numbers_are_predicted_in_the_units_of_the_data() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=draw)
    y = 500 + 100 * x[:, 0] + torch.randn(200, generator=draw)
    simulation = fl.Federation(fl.from_arrays(x, y), fl.IID(), sites=2)
    run = fl.run(
        simulation,
        initial=0.5,
        cycles=0,
        training="fedavg",
        rounds=10,
        training_config={"batch_size": 8},
    )
    assert np.corrcoef(run.predict(x), y)[0, 1] > 0.95
    assert abs(run.predict(x).mean() - 500) < 50
    assert "mse" in repr(run)


@pytest.mark.long
def test_a_strategy_that_chooses_in_one_pass_tells_its_labels_too() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=draw)
    y = x @ torch.ones(3) + 0.1 * torch.randn(120, generator=draw)
    simulation = fl.Federation(fl.from_arrays(x, y), fl.IID(), sites=2)
    run = fl.run(
        simulation, fl.FALE(), training=fl.ServerSolve(), initial=0, budget=0.05, cycles=10
    )
    assert run.records["cycle"].iloc[-1] == 10
    assert len(run.labels) == run.records["labeled"].iloc[-1]


# -- progress --------------------------------------------------------------------------


def shown(seconds: float, isatty: bool, shown: bool | None = None) -> str:
    screen = io.StringIO()
    screen.isatty = lambda: isatty  # type: ignore[method-assign]
    config = fl.ExperimentConfig("a", rounds=2, cycles=1)
    with ProgressLine(config, [StudyRun("ahfal", 0)], shown, screen) as watch:
        watch.progress.started -= seconds
        watch({"event": "round", "strategy": "ahfal", "seed": 0, "cycle": 0, "round": 1})
    return screen.getvalue()


def test_a_run_that_takes_a_while_says_where_it_stands() -> None:
    text = shown(10.0, isatty=True)
    assert "fallow  50%, about 10.0 s left  run 1 of 1: ahfal, seed 0, cycle 0" in text
    assert text.endswith("\r" + 100 * " " + "\r")


def test_a_strategy_of_one_round_is_as_far_as_one_of_many() -> None:
    screen = io.StringIO()
    config = fl.ExperimentConfig("a", rounds=4, cycles=1)
    names = ("random", "random@training=closed-form", "bound:all-labels")
    with ProgressLine(config, [StudyRun(name, 0) for name in names], True, screen) as watch:
        watch.progress.started -= 10
        assert watch.progress.total == 2 + 2 + 1
        watch({"event": "round", "strategy": names[1], "seed": 0, "cycle": 0, "round": 0})
    assert "fallow  20%, about 40" in screen.getvalue()
    assert "left  run 1 of 3: random + closed-form" in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "isatty", "wanted"),
    [(1.0, True, None), (10.0, False, None), (10.0, True, False)],
)
def test_short_runs_and_log_files_are_left_alone(
    seconds: float, isatty: bool, wanted: bool | None
) -> None:
    assert shown(seconds, isatty, wanted) == ""
