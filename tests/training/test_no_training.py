"""Studies that select examples and train nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import fallow as fl
from fallow import strategies
from fallow.core.build import names
from fallow.core.events import Event, describe_score
from fallow.experiment.event_log import EventLog
from fallow.experiment.methods import NO_EFFECT, list_untrained
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.report.page import write_report
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.callbacks import Callback, TrackedRun
from fallow.training.no_training import sum_distances
from tests.each import each_of

X = np.random.default_rng(0).normal(size=(40, 3))
SHARES = np.random.default_rng(1).dirichlet([1, 1], size=40)
LABELS = ["yes" if share > 0.5 else "no" for share in SHARES[:, 1]]
COLUMNS = ["a", "b", "c", "prediction:no", "prediction:yes"]


UNTRAINED = ExperimentConfig(
    "toy",
    training=Spec("none"),
    partition=Spec("iid"),
    sites=1,
    initial=0,
    budget=2,
    cycles=1,
    rounds=1,
    score_rounds=1,
)


def toy(*columns: np.ndarray, names: list[str] = COLUMNS) -> fl.Dataset:
    x = np.column_stack([X, *columns]).astype(np.float32)
    return fl.from_arrays(x, LABELS, columns=names)


def choose(data: fl.Dataset, strategy: str = "random", **settings: Any) -> fl.Run:
    usual: dict[str, Any] = {
        "sites": 2,
        "cycles": 1,
        "budget": 2,
        "initial": 1,
        "partition": "iid",
    }
    return fl.run(data, strategy, training="none", progress=False, **usual | settings)


def test_distances_equal_those_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, generator=generator)
    points = x[[2, 5]]
    nearest = [min(float((row - point).square().sum()) for point in points) for row in x]
    assert_close(float(sum_distances(x, points)), sum(nearest))


@each_of("strategy", list_untrained("features", "predictions"))
def test_strategies_for_studies_without_training_select_the_budget(strategy: str) -> None:
    config = replace(UNTRAINED, strategy=Spec(strategy))
    event_log = EventLog()
    simulation = environment_of(config, 0, toy(SHARES), event_log)
    ExperimentRun(simulation, event_log).go()
    assert len(event_log.load_labels("site-0")) == 2


def test_margin_selects_the_most_uncertain_given_predictions() -> None:
    run = choose(toy(SHARES), "margin", initial=0, sites=1)
    selected = run.labels["row"].tolist()
    data = toy(SHARES)
    federation = fl.Federation(data, fl.IID(), sites=1)
    margins = (data.x[:, 3] - data.x[:, 4]).abs()
    of_site = margins[torch.as_tensor(federation.rows()["site-0"])]
    assert selected == of_site.argsort()[:2].tolist()


def test_an_uncertainty_selects_as_the_margin_that_it_is() -> None:
    margin = choose(toy(SHARES), "margin")
    uncertainty = 1 - abs(SHARES[:, 0] - SHARES[:, 1])
    data = toy(uncertainty, names=["a", "b", "c", "uncertainty"])
    assert choose(data, "entropy").labels.equals(margin.labels)


def test_predictions_do_not_move_a_strategy_of_features() -> None:
    alone = choose(toy(names=["a", "b", "c"]), "max-herding")
    assert choose(toy(SHARES), "max-herding").labels.equals(alone.labels)


def test_the_score_is_the_distance_to_the_selected_examples_of_the_site() -> None:
    data = toy(names=["a", "b", "c"])
    run = choose(data, sites=1, cycles=0, initial=3, standardize="none", encoder=None)
    x = data.x[torch.as_tensor(fl.Federation(data, fl.IID(), sites=1).rows()["site-0"])]
    x = x.double()
    selected = x[torch.as_tensor(run.labels["row"].tolist())]
    near = (x[:, None] - selected[None]).square().sum(2).amin(1).sum()
    spread = (x - x.mean(0)).square().sum()
    record = run.records.iloc[-1]
    assert record["distance"] == pytest.approx(float(near / spread))
    assert record["random_distance"] != record["distance"]


def test_a_site_without_a_selected_example_is_as_far_as_its_mean() -> None:
    assert choose(toy(SHARES), initial=0, cycles=0).records.iloc[-1]["distance"] == 1


@each_of(
    "settings, sentence",
    [
        ({"strategy": "bald"}, "bald needs a trained model, and training is none; use "),
        ({"validation": 0.2}, "validation is '0.2', and training is none"),
        ({"model": "mlp"}, "model is 'mlp', and training is none"),
        ({"lr": 0.1}, "lr is a setting of gradient steps, and none trains nothing"),
        ({"privacy": fl.Privacy(epsilon=1.0)}, "does not support"),
    ],
)
def test_what_needs_a_model_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        choose(toy(SHARES), **settings)


def test_strategies_by_predictions_name_the_missing_columns() -> None:
    with pytest.raises(ValueError, match="add columns prediction:CLASS or uncertainty"):
        choose(toy(names=["a", "b", "c"]), "margin")


def test_all_settings_without_effect_exist() -> None:
    assert set(NO_EFFECT) <= set(fl.ExperimentConfig.__dataclass_fields__)


def test_all_strategies_declare_whether_they_need_training() -> None:
    listed = list_untrained("no", "features", "predictions")
    assert len(listed) == len(names(strategies))


def test_a_run_without_training_has_no_model_to_predict_with(tmp_path: Path) -> None:
    run = choose(toy(SHARES), out=tmp_path)
    with pytest.raises(ValueError, match="there is no model"):
        run.predict([[0.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match=r"trained nothing .*, so there is no model"):
        fl.load_model(tmp_path)


def test_progress_trackers_and_people_get_the_distance(tmp_path: Path) -> None:
    events: list[Event] = []

    class Kept(Callback):
        def take_scores(
            self, run: TrackedRun, cycle: int, scores: Mapping[str, float]
        ) -> None:
            events.append({"event": "scored", "cycle": cycle, **scores})  # type: ignore[typeddict-item]

    run = choose(toy(SHARES), callbacks=[Kept()])
    last = run.records.iloc[-1]
    assert events[-1]["distance"] == last["distance"]
    event: Event = {"event": "scored", "accuracy": None, "mse": None, "distance": 0.25}
    assert describe_score(event) == "distance 0.250"
    assert f"distance {last['distance']:.3g} (random: " in repr(run)


def test_the_report_compares_selections_with_random_ones(tmp_path: Path) -> None:
    choose(toy(SHARES), "margin", out=tmp_path)
    page = write_report([tmp_path]).read_text()
    assert "Random selections" in page
    assert "Selected examples after the last cycle" in page
    assert "Accuracy by class" not in page
