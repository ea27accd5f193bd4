"""Tuning of an encoder field with the initial labels, against explicit leave-one-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fallow.core.client import declared, find_wrong_argument
from fallow.core.methods import TunableEncoder
from fallow.core.missing import filled
from fallow.core.types import State
from fallow.core.values import SenderFacts
from fallow.data import Dataset
from fallow.encoders import Fourier
from fallow.encoders.fourier import GAMMAS
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.view import SiteView
from fallow.training.parts.ridge import PENALTIES
from fallow.training.tuning import Tuning
from tests.deployment.simulations import ward

EXPERIMENT = ExperimentConfig(
    "waves",
    partition=Spec("iid"),
    sites=3,
    encoder=Spec("fourier", {"features": 40, "gamma": "auto"}),
    training=Spec("closed-form"),
    model=Spec("linear"),
    initial=0.5,
    budget=0.1,
    cycles=0,
    rounds=1,
    score_rounds=1,
    bounds=(),
)


def draw_waves(turns: float, *, is_class: bool = False, rows: int = 120) -> Dataset:
    """Return targets that oscillate along a line; a quarter of them are for tests."""
    x = torch.linspace(-1, 1, rows)[torch.randperm(rows, generator=torch.Generator())]
    y = 1000 + 300 * torch.sin(turns * torch.pi * x)
    cut = rows * 3 // 4
    columns = ("at",)
    if not is_class:
        x = x[:, None]
        return Dataset("waves", x[:cut], y[:cut], x[cut:], y[cut:], columns=columns)
    label = (y > 1000).long()
    x = x[:, None]
    names = ("low", "high")
    return Dataset(
        "waves", x[:cut], label[:cut], x[cut:], label[cut:], classes=names, columns=columns
    )


def begin_run(
    config: ExperimentConfig, dataset: Dataset, event_log: EventLog | None = None
) -> ExperimentRun:
    event_log = event_log or EventLog()
    run = ExperimentRun(environment_of(config, 0, dataset, event_log), event_log)
    run.initial()
    return run


def fit_state(run: ExperimentRun) -> State:
    """Return the fitted state of the run's encoder before gamma was chosen."""
    state = run.simulation.encoded_by
    assert state is not None
    squared = state["length"].square() / state["gamma"]
    return {"distance": squared, "center": state["center"], "spread": state["spread"]}


def chosen_gamma(run: ExperimentRun) -> float:
    state = run.simulation.encoded_by
    assert state is not None
    return float(state["gamma"])


def lose_by_refitting(
    run: ExperimentRun,
    encoder: TunableEncoder,
    candidate: State,
    penalties: Sequence[float],
) -> float:
    """Return the least squared leave-one-out loss over penalties, by refitting."""
    assert isinstance(run.simulation, SimulatedEnvironment)
    members = run.simulation.members.values()
    x = torch.cat([site.x[site.labeled] for site in members])
    y = torch.cat([site.labels for site in members]).double().numpy()
    z = encoder.sketch().encode(x, candidate).double().numpy()
    if run.simulation.classes:
        y = np.eye(2)[y.astype(int)]
    least = np.inf
    for penalty in penalties:
        lost = 0.0
        for row in range(len(z)):
            others = np.arange(len(z)) != row
            model = Ridge(alpha=penalty * len(z), solver="cholesky")
            model.fit(z[others], y[others])
            lost += float(np.square(model.predict(z[row : row + 1]) - y[row]).sum())
        least = min(least, lost)
    return least


@pytest.mark.long
@pytest.mark.parametrize("is_class", [False, True])
def test_it_takes_the_gamma_that_refitted_heads_lose_least_with(is_class: bool) -> None:
    waves = draw_waves(3.0, is_class=is_class)
    run = begin_run(EXPERIMENT, waves)
    encoder = Fourier(features=40, gamma="auto")
    candidates = encoder.candidates(fit_state(run))
    lost = [
        lose_by_refitting(run, encoder, candidate, PENALTIES[2::4])
        for candidate in candidates
    ]
    best = GAMMAS[int(np.argmin(lost))]
    order = sorted(lost)
    assert order[1] > 1.02 * order[0], "two gammas are as good: nothing was compared"
    assert chosen_gamma(run) == best


@pytest.mark.long
def test_rough_answers_take_a_short_length_and_smooth_ones_a_long_one() -> None:
    rough = chosen_gamma(begin_run(EXPERIMENT, draw_waves(4.0)))
    smooth = chosen_gamma(begin_run(EXPERIMENT, draw_waves(0.5)))
    assert rough == 0.05
    assert smooth > 0.25


def test_the_choice_does_not_depend_on_who_holds_a_row() -> None:
    waves = draw_waves(3.0)
    states = []
    for sites in (1, 4):
        run = begin_run(replace(EXPERIMENT, initial=1.0, sites=sites), waves)
        states.append(run.simulation.encoded_by)
    assert states[0] is not None and states[1] is not None
    for name in states[0]:
        assert torch.equal(states[0][name], states[1][name])


def test_rows_are_seen_by_the_chosen_length_and_in_units_of_it() -> None:
    run = begin_run(EXPERIMENT, draw_waves(3.0))
    assert isinstance(run.simulation, SimulatedEnvironment)
    state = run.simulation.encoded_by
    assert state is not None
    seen = torch.cat([site.seen[:] for site in run.simulation.members.values()]).double()
    assert seen.shape == (90, 40)
    assert float(seen.square().sum(1).mean()) == pytest.approx(1.0, rel=1e-5)
    x = torch.cat([site.x for site in run.simulation.members.values()])
    plain = Fourier(features=40).encode(x, state).double()
    scaled = (plain - plain.mean(0)) / plain.std(0, correction=0) / 40**0.5
    torch.testing.assert_close(seen, scaled, atol=1e-4, rtol=1e-3)


def test_without_labels_it_takes_the_usual_one() -> None:
    config = replace(EXPERIMENT, initial=0, budget=0.5, cycles=1, strategy=Spec("random"))
    assert chosen_gamma(begin_run(config, draw_waves(7.0))) == 0.25


def test_what_leaves_the_sites_is_said() -> None:
    run = begin_run(EXPERIMENT, draw_waves(3.0))
    done = run.initial()
    output = [row["function"] for row in done["revealed"]]
    assert {"moments", "products", "left_out", "encode"} <= set(output)
    assert set(done["encoder"]) == {"gamma", "length", "center", "spread"}


@pytest.mark.long
def test_a_resumed_run_takes_the_choice_from_its_journal() -> None:
    waves = draw_waves(3.0)
    event_log = EventLog()
    begun = begin_run(EXPERIMENT, waves, event_log)
    again = ExperimentRun(environment_of(EXPERIMENT, 0, waves, event_log), event_log)
    again.initial()
    assert chosen_gamma(again) == chosen_gamma(begun)
    assert (
        again.go()[-1]["mse"] == ExperimentRun(begun.simulation, event_log).go()[-1]["mse"]
    )


def test_noise_and_a_choice_by_labels_do_not_go_together() -> None:
    private = replace(EXPERIMENT, training=Spec("fedavg"), strategy=Spec("ahfal"))
    private = replace(private, privacy=replace(private.privacy, epsilon=1.0))
    with pytest.raises(ValueError, match=r"fourier.*does not support local privacy"):
        environment_of(private, 0, draw_waves(3.0, is_class=True), EventLog())


def test_first_rows_are_not_chosen_by_features_that_wait_for_labels() -> None:
    with pytest.raises(ValueError, match="initial_by is 'typical', which needs encoded"):
        environment_of(
            replace(EXPERIMENT, initial_by="typical"), 0, draw_waves(3.0), EventLog()
        )


def test_records_say_of_how_many_features_a_head_is() -> None:
    run = begin_run(EXPERIMENT, draw_waves(3.0))
    record = run.go()[-1]
    assert record["features"] == 40
    assert record["penalty"] > 0


@pytest.mark.long
def test_a_run_is_the_one_with_that_gamma_given() -> None:
    """Check regression, where the scaling of targets must be agreed on once."""
    waves = draw_waves(2.0)
    for penalty in ({}, {"penalty": 0.001}):
        config = replace(EXPERIMENT, training=Spec("closed-form", penalty), cycles=1)
        tuned = begin_run(config, waves)
        fields = {"features": 40, "gamma": chosen_gamma(tuned)}
        value = begin_run(replace(config, encoder=Spec("fourier", fields)), waves)
        for one, other in zip(tuned.go(), value.go(), strict=True):
            assert one["mse"] == pytest.approx(other["mse"], rel=0.02)
            assert one["left_out"] == pytest.approx(other["left_out"], rel=0.02)
            assert one["penalty"] == other["penalty"]


@pytest.mark.long
def test_empty_cells_are_filled_in_before_candidates_are_compared() -> None:
    config = replace(EXPERIMENT, partition=Spec("natural"), sites=0)
    result = ward()
    begun = begin_run(config, result)
    fill = begun.initial()["encoder"]["empty_cells"]
    whole = replace(
        result,
        x=filled(result.x, fill),
        x_test=filled(result.x_test, fill),
        missing=None,
    )
    again = begin_run(config, whole)
    assert chosen_gamma(begun) == chosen_gamma(again)
    for one, other in zip(begun.go(), again.go(), strict=True):
        for name in ("accuracy", "left_out", "penalty", "temperature"):
            assert one[name] == other[name]


# -- instructions refused by a site ----------------------------------------------------


def build_view(run: ExperimentRun) -> SiteView:
    """Return a site with examples that are not yet encoded."""
    assert isinstance(run.simulation, SimulatedEnvironment)
    site = next(iter(run.simulation.members.values()))
    site.remember("encode", None)
    site.remember("features", None)
    return SiteView(site, 0)


def test_a_site_declares_the_candidates_and_the_paths_that_it_takes() -> None:
    run = begin_run(EXPERIMENT, draw_waves(3.0))
    state = fit_state(run)
    tuning = Tuning(Fourier(features=40, gamma="auto"), (1,))
    assert tuning.products(build_view(run), 4, **state)["rows"] == 15.0
    functions = declared(tuning)
    takes = functions["products"].takes
    assert takes is not None
    known = SenderFacts({"outputs": 2})
    assert find_wrong_argument(takes, {"candidate": 4, **state}, known) is None
    why = find_wrong_argument(takes, {"candidate": 5, **state}, known)
    assert why == "candidate is 5, and it is a whole number of at most 4"
    takes = functions["left_out"].takes
    assert takes is not None
    assert find_wrong_argument(takes, {"path_e": torch.ones(5, 40)}, known) is None
    for wrong in (torch.ones(4, 40), torch.ones(5, 41), -torch.ones(5, 40)):
        assert find_wrong_argument(takes, {"path_e": wrong}, known) is not None
