"""A run with an encoder uses features from the first exchange to the saved model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.core.names import BUILT_IN
from fallow.data import Dataset
from fallow.encoders.base import encode_rows
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import Phases
from fallow.experiment.predict import outputs_of
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.experiment.suitability import check_task
from fallow.settings.config import ExperimentConfig, config_from, with_settings
from fallow.settings.spec import Spec
from fallow.sites.seen_rows import SeenRows
from fallow.sites.view import SiteView
from fallow.storage import features as features_room
from fallow.storage.features import FeatureStore, digest_of_rows
from fallow.storage.files import load_tree, save_tree
from fallow.study.study import run_study
from fallow.study.study_run import Setup, StudyRun
from tests.encoders.asks import draw_pictures

TINY = ExperimentConfig(
    "tiny",
    partition=Spec("dirichlet", {"alpha": 1.0}),
    sites=4,
    encoder=Spec("convolution", {"filters": 3, "patch": 3}),
    strategy=Spec("entropy"),
    initial=0.1,
    budget=0.1,
    cycles=1,
    rounds=2,
    score_rounds=1,
    bounds=(),
)


def photos(rows: int = 80) -> Dataset:
    x = draw_pictures(rows, 3, 9, 9)
    y = (x.mean((1, 2, 3)) > x.mean()).long()
    cut = rows * 3 // 4
    return Dataset("photos", x[:cut], y[:cut], x[cut:], y[cut:], classes=("dark", "light"))


def begin_run(
    config: ExperimentConfig, dataset: Dataset, kept: FeatureStore | None = None
) -> ExperimentRun:
    """Start a run whose sites see features."""
    event_log = EventLog()
    run = ExperimentRun(environment_of(config, 0, dataset, event_log, kept=kept), event_log)
    run.initial()
    return run


def seen_by_row(run: ExperimentRun, dataset: Dataset) -> torch.Tensor:
    """Return the features of each example of a data set, in its order."""
    simulation = run.simulation
    assert isinstance(simulation, SimulatedEnvironment)
    assert simulation.features is not None
    seen = torch.zeros(len(dataset.x), simulation.features.encoder.width((3, 9, 9)))
    for name, at in simulation.features.at.items():
        seen[at] = simulation.members[name].seen[:]
    return seen


@pytest.mark.parametrize("name", ["convolution", "fourier", "identity"])
def test_features_are_the_same_for_every_partition(name: str) -> None:
    result = photos()
    fields = {"convolution": {"filters": 3, "patch": 3}, "fourier": {"features": 20}}
    config = replace(TINY, encoder=Spec(name, fields.get(name, {})))
    kept = FeatureStore()
    runs = [
        begin_run(replace(config, partition=partition, sites=sites), result, kept)
        for partition, sites in (
            (Spec("dirichlet", {"alpha": 0.01}), 3),
            (Spec("dirichlet", {"alpha": 1.0}), 5),
            (Spec("iid"), 6),
        )
    ]
    states = [run.simulation.encoded_by for run in runs]
    for state in states[1:]:
        assert state is not None
        assert states[0] is not None
        assert {k: v.tolist() for k, v in state.items()} == {
            k: v.tolist() for k, v in states[0].items()
        }
    raw = []
    for run in runs:
        assert isinstance(run.simulation, SimulatedEnvironment)
        assert run.simulation.features is not None
        some = next(iter(run.simulation.members.values()))
        source, _ = run.simulation.features.of_site(some.id, some.x, some.memory["encode"])
        raw.append(source)
    assert all(source is raw[0] for source in raw), "features were computed again"


def test_rows_are_looked_up_once_and_not_once_for_each_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows_digested = []

    def count(x: torch.Tensor) -> str:
        rows_digested.append(len(x))
        return digest_of_rows(x)

    monkeypatch.setattr(features_room, "digest_of_rows", count)
    result = photos()
    run = begin_run(replace(TINY, partition=Spec("iid"), sites=12), result)
    run.go()
    assert rows_digested.count(len(result.x)) == 1


def test_features_have_mean_0_and_a_mean_square_length_of_1() -> None:
    result = photos()
    run = begin_run(TINY, result)
    seen = seen_by_row(run, result).double()
    assert seen.mean(0).abs().max() < 1e-6
    is_constant = seen.square().sum(0) == 0
    wanted = float((~is_constant).double().mean())
    assert float(seen.square().sum(1).mean()) == pytest.approx(wanted, rel=1e-5)


def test_test_rows_are_seen_as_the_rows_of_sites_are() -> None:
    result = photos()
    twin = replace(result, x_test=result.x[:7], y_test=result.y[:7])
    run = begin_run(TINY, twin)
    assert isinstance(run.simulation, SimulatedEnvironment)
    assert torch.allclose(run.simulation.x_test, seen_by_row(run, result)[:7], atol=1e-6)


def test_units_are_left_out_where_the_recipe_says_so() -> None:
    result = photos()
    run = begin_run(replace(TINY, standardize="none"), result)
    assert run.simulation.scale is None
    assert isinstance(run.simulation, SimulatedEnvironment)
    assert run.simulation.features is not None
    state = run.simulation.encoded_by
    assert state is not None
    z = encode_rows(run.simulation.features.encoder, result.x, state)
    assert torch.allclose(seen_by_row(run, result), z, atol=1e-6)


def test_a_study_keeps_many_features_in_its_folder_and_few_in_memory(
    tmp_path: Path,
) -> None:
    result = photos()
    small = ExperimentRun(
        environment_of(TINY, 0, result, event_log := EventLog()), event_log
    )
    records = small.go()
    kept = FeatureStore(tmp_path / "features", memory=0)
    large = ExperimentRun(
        environment_of(TINY, 0, result, event_log := EventLog(), kept=kept), event_log
    )
    again = large.go()
    assert isinstance(large.simulation, SimulatedEnvironment)
    some = next(iter(large.simulation.members.values()))
    assert isinstance(some.seen, SeenRows)
    for one, other in zip(records, again, strict=True):
        assert one["accuracy"] == other["accuracy"]
    # the examples of all sites, and the test examples
    assert len([path for path in (tmp_path / "features").iterdir() if path.is_dir()]) == 2


def test_outputs_for_rows_in_a_file_are_those_for_rows_in_memory(tmp_path: Path) -> None:
    result = photos()
    kept = FeatureStore(tmp_path, memory=0)
    runs = [begin_run(TINY, result), begin_run(TINY, result, kept)]
    looks = []
    for run in runs:
        assert isinstance(run.simulation, SimulatedEnvironment)
        site = next(iter(run.simulation.members.values()))
        site.remember("global", run.simulation.fresh(torch.Generator().manual_seed(0)))
        view = SiteView(site, 0)
        assert sum(len(rows) for rows in view.blocks("pool", 4)) == view.pool
        looks.append(view.logits("global"))
        assert torch.equal(view.logits("global"), looks[-1])
        assert view.embed("global").shape == (view.pool, 48)
    assert torch.allclose(looks[0], looks[1], atol=1e-6)


def test_more_features_than_can_be_solved_for_are_refused_with_a_way_out() -> None:
    many = replace(
        TINY, encoder=Spec("fourier", {"features": 9000}), training=Spec("closed-form")
    )
    with pytest.raises(ValueError, match=r"9,000 features. More than 8,192 .* GB at"):
        check_task(many, photos())
    check_task(replace(many, training=Spec("fedavg")), photos())
    check_task(replace(many, encoder=Spec("fourier", {"features": 8192})), photos())


def test_a_run_goes_on_from_its_journal_with_the_same_features(tmp_path: Path) -> None:
    result = photos()
    whole = ExperimentRun(
        environment_of(TINY, 0, result, event_log := EventLog()), event_log
    ).go()
    event_log = EventLog(tmp_path / "event_log.sqlite")
    ExperimentRun(environment_of(TINY, 0, result, event_log), event_log).first_phase()
    event_log.close()
    event_log = EventLog(tmp_path / "event_log.sqlite")
    again = ExperimentRun(environment_of(TINY, 0, result, event_log), event_log).go()
    assert [r["accuracy"] for r in again] == [r["accuracy"] for r in whole]
    event_log.close()


def test_an_encoder_without_fitted_numbers_is_remembered_too(tmp_path: Path) -> None:
    result = photos()
    config = replace(TINY, encoder=Spec("identity"))
    path = tmp_path / "event_log.sqlite"
    event_log = EventLog(path)
    ExperimentRun(environment_of(config, 0, result, event_log), event_log).initial()
    event_log.close()
    event_log = EventLog(path)
    run = ExperimentRun(environment_of(config, 0, result, event_log), event_log)
    run.initial()
    assert isinstance(run.simulation, SimulatedEnvironment)
    assert next(iter(run.simulation.members.values())).seen[:].shape[1] == 3 * 9 * 9
    event_log.close()


def test_strategies_share_the_first_phase_and_its_features(tmp_path: Path) -> None:
    result = photos()
    phases = Phases(tmp_path)
    records = []
    for strategy in ("entropy", "random", "entropy"):
        config = replace(TINY, strategy=Spec(strategy))
        run = ExperimentRun(
            environment_of(config, 0, result, event_log := EventLog()), event_log, phases
        )
        records.append([r["accuracy"] for r in run.go()])
    assert records[0] == records[2]
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    other = replace(TINY, encoder=Spec("fourier", {"features": 12}))
    ExperimentRun(
        environment_of(other, 0, result, event_log := EventLog()), event_log, phases
    ).go()
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


# -- the saved model -------------------------------------------------------------------


def finish_study(config: ExperimentConfig, folder: Path) -> tuple[ExperimentRun, Path]:
    event_log = EventLog(folder / "event_log.sqlite")
    run = ExperimentRun(
        environment_of(config, 0, photos(), event_log), event_log, folder=folder
    )
    run.go()
    event_log.close()
    return run, folder / "model.safetensors"


def test_a_saved_model_encodes_new_rows_as_it_was_trained(tmp_path: Path) -> None:
    run, path = finish_study(TINY, tmp_path)
    saved = load_tree(path, tmp_path)
    result = photos()
    outputs = outputs_of(TINY, saved, saved["state"], result.x_test)
    hits = float((outputs.argmax(1) == result.y_test).double().mean())
    records = (tmp_path / "records.jsonl").read_text().splitlines()
    assert f'"accuracy": {hits}' in records[-1]
    assert run.config.encoder == TINY.encoder


def test_a_model_from_before_there_were_encoders_still_predicts(tmp_path: Path) -> None:
    config = replace(TINY, encoder=None)
    _, path = finish_study(config, tmp_path)
    saved = load_tree(path, tmp_path)
    assert "encoder" not in saved
    outputs = outputs_of(config, saved, saved["state"], photos().x_test)
    assert outputs.shape == (20, 2)


def test_a_model_of_another_version_of_its_encoder_is_refused(tmp_path: Path) -> None:
    _, path = finish_study(TINY, tmp_path)
    saved = load_tree(path, tmp_path)
    saved["encoder"]["digest"] = "0" * 32
    save_tree(path, saved)
    with pytest.raises(ValueError, match="differs from the one in training"):
        outputs_of(TINY, load_tree(path, tmp_path), saved["state"], photos().x_test)
    del saved["encoder"]
    with pytest.raises(ValueError, match="saved without the fitted state of its encoder"):
        outputs_of(TINY, saved, saved["state"], photos().x_test)


# -- settings --------------------------------------------------------------------------


def test_an_encoder_is_named_in_words_objects_and_toml() -> None:
    wanted = Spec("convolution", {"filters": 8})
    assert with_settings(TINY, {"encoder": "convolution:filters=8"}).encoder == wanted
    written = {"name": "a", "encoder": {"name": "convolution", "filters": 8}}
    assert config_from(written).encoder == wanted
    assert config_from({"name": "a", "encoder": "convolution:filters=8"}).encoder == wanted


def test_an_encoder_beside_features_is_refused() -> None:
    with pytest.raises(ValueError, match="both compute features of examples: omit one"):
        replace(TINY, features=Spec("lenet"))


def test_a_name_that_is_not_allowed_is_refused_before_it_is_imported() -> None:
    from fallow.deployment.agreement import check_names

    with pytest.raises(ValueError, match="encoder: 'subprocess:Popen' names code"):
        check_names(replace(TINY, encoder=Spec("subprocess:Popen")), BUILT_IN)


def test_rows_that_an_encoder_cannot_take_are_refused_before_anything_is_done() -> None:
    table = Dataset(
        "table",
        torch.rand(40, 5),
        torch.arange(40) % 2,
        torch.rand(9, 5),
        torch.arange(9) % 2,
        classes=("a", "b"),
    )
    with pytest.raises(ValueError, match="encodes images"):
        environment_of(TINY, 0, table, EventLog())


@pytest.mark.long
def test_a_study_with_an_encoder_runs_in_several_processes(tmp_path: Path) -> None:
    result = photos()
    np.savez(
        tmp_path / "photos.npz",
        x=result.x.numpy(),
        y=result.y.numpy(),
        x_test=result.x_test.numpy(),
        y_test=result.y_test.numpy(),
    )
    config = replace(TINY, data=str(tmp_path / "photos.npz"), cycles=0)
    cells = [StudyRun("random", 0), StudyRun("random", 1)]
    setup = Setup(config, tmp_path / "study")
    assert run_study(setup, cells, jobs=2) == []
    assert all((cell.folder(setup.out) / "records.jsonl").exists() for cell in cells)
