"""A phase is shared exactly if all its inputs are equal."""

from __future__ import annotations

from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.events import Event
from fallow.core.training_config import TrainingConfig, TrainingStage
from fallow.experiment.event_log import EventLog
from fallow.experiment.first_phase import phase_key
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Published, Spec
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import load_outcome, tiny

OTHER: dict[str, Any] = {
    "rows": 50,
    "test_rows": 20,
    "partition": Spec("iid"),
    "sites": 4,
    "model": Spec("mlp", {"hidden": [4]}),
    "training": Spec("fedprox"),
    "encoder": Spec("fourier", {"features": 5}),
    "head": "exact",
    "training_config": TrainingConfig((TrainingStage(2),), 8),
    "rounds": 4,
    "participation": 0.5,
    "initial": 0.2,
    "budget_allocation": "proportional",
    "score_rounds": 1,
    "metrics": ("auroc",),
    "coverage": 0.9,
    "measure": ("disclosure",),
    "executor": "loop",
    "channels_last": True,
    "dtype": "float64",
    "device": "cpu",
    "standardize": "federated",
    "target_scale": "none",
    "initial_by": "query",
    "validation": 0.2,
    "test": "own",
    "flip": 1,
    "privacy": Privacy(secure_sum=True),  # totals are rounded, and keys are exchanged
}
NEEDED: dict[str, dict[str, Any]] = {  # settings beside which a setting is valid
    "measure": {"training": Spec("closed-form"), "model": Spec("linear"), "rounds": 1}
}
LATER: dict[str, Any] = {  # no effect before the first query
    "restart": "continue",
    "local_source": "scratch",
    "local_training_config": TrainingConfig((TrainingStage(9),)),
    "strategy": Spec("entropy"),
    "protocol": "one_pass",
    "queries_per_cycle": 2,
    "fresh_first": True,
    "budget": 0.2,
    "cycles": 1,
    "evaluation_fraction": 0.5,
    "stop": "when another 100 labels bring less than 0.3 points with 90 % confidence",
}
WORDS: dict[str, Any] = {  # no effect at all
    "name": "other",
    "title": "Other",
    "strategies": ("random",),
    "reference": "random",
    "seeds": 3,
    "bounds": ("pooled",),
    "published": Published("ahfal-table1", "alpha=0.1", "ahfal/cifar10"),
}
# reach the key by other means, mostly by the examples and labels that result
DATA = {
    "data",
    "label",
    "sheet",
    "header_row",
    "merge",
    "site",
    "id",
    "drop",
    "columns",
    "task",
    "drop_rows",
    "channels",
    "classes",
    "labels",
    "resplit",
    "group",
    "physical_range",
    "decimal",
    "pages",
    "features",
    "precision",  # of a device, next to its name
}


@pytest.fixture
def config(tmp_path: Path) -> ExperimentConfig:
    return tiny(tmp_path)


def key(config: ExperimentConfig, seed: int = 0, **more: Any) -> str:
    event_log = EventLog()
    simulation = build_environment(config, seed, event_log, **more)
    ExperimentRun(simulation, event_log).initial()
    event_log.close()
    return phase_key(simulation)


def test_every_field_of_a_recipe_is_known_to_decide_the_first_phase_or_not() -> None:
    assert {f.name for f in fields(ExperimentConfig)} == {*OTHER, *LATER, *WORDS, *DATA}


@pytest.mark.parametrize("field", OTHER)
def test_another_setting_is_another_phase(config: ExperimentConfig, field: str) -> None:
    assert getattr(config, field) != OTHER[field]
    usual = replace(config, **NEEDED.get(field, {}))
    assert key(replace(usual, **{field: OTHER[field]})) != key(usual)


@pytest.mark.parametrize("field", [*LATER, *WORDS])
def test_what_comes_later_does_not_change_the_phase(
    config: ExperimentConfig, field: str
) -> None:
    assert getattr(config, field) != {**LATER, **WORDS}[field]
    assert key(replace(config, **{field: {**LATER, **WORDS}[field]})) == key(config)


def test_other_groups_of_examples_are_another_phase(config: ExperimentConfig) -> None:
    keys = set[str]()
    for groups in (None, range(99), [0] * 99):
        with closing(EventLog()) as event_log:
            simulation = build_environment(config, 0, event_log)
            for site in simulation.members.values():
                site.groups = (
                    None if groups is None else torch.tensor(groups[: len(site.x)])
                )
            keys.add(phase_key(simulation))
    assert len(keys) == 3


def test_noise_on_what_a_query_releases_does_not_change_the_phase(
    config: ExperimentConfig,
) -> None:
    assert key(replace(config, privacy=Privacy(epsilon=1.0))) == key(config)


def test_a_phase_with_noise_in_training_is_each_runs_own(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    """Check that noise is charged to the ledger of the run that uses it."""
    pytest.importorskip("opendp")
    noisy = replace(
        config,
        training=Spec("closed-form", {"delta": 1e-5}),
        model=Spec("linear"),
        encoder=Spec("identity"),
        privacy=Privacy(epsilon=1.0),
        validation=0.0,
        rounds=1,
        score_rounds=1,
        training_config=TrainingConfig(),
    )
    setup = Setup(noisy, tmp_path / "study")
    for strategy in ("random", "entropy"):
        run_one(setup, StudyRun(strategy, 0))
    assert not list((setup.out / "phases").glob("*.safetensors"))


def test_seed_runtime_and_data_are_part_of_the_phase(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    before = key(config)
    assert key(config, seed=1) != before
    assert key(config, runtime="bytes") != before
    (tmp_path / "renamed.npz").write_bytes(Path(config.data).read_bytes())
    assert key(replace(config, data=str(tmp_path / "renamed.npz"))) == before


@pytest.mark.parametrize("field", OTHER)
def test_what_a_run_computes_shows_in_its_digest(
    config: ExperimentConfig, field: str
) -> None:
    assert replace(config, **{field: OTHER[field]}).digest != config.digest


@pytest.mark.parametrize("field", WORDS)
def test_words_do_not_show_in_the_digest(config: ExperimentConfig, field: str) -> None:
    assert replace(config, **{field: WORDS[field]}).digest == config.digest


@pytest.mark.long
def test_a_run_that_takes_its_first_phase_from_the_cache_is_the_same_run(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    alone = Setup(config, tmp_path / "alone")
    shared = Setup(config, tmp_path / "shared")
    run_one(alone, StudyRun("ahfal", 0))
    run_one(shared, StudyRun("random", 0))
    events: list[Event] = []
    run_one(shared, StudyRun("ahfal", 0), events.append)
    assert load_outcome(shared, StudyRun("ahfal", 0)) == load_outcome(
        alone, StudyRun("ahfal", 0)
    )
    assert [e for e in events if e["event"] == "round" and e["cycle"] == 0] == []
    assert len(list((shared.out / "phases").glob("*.safetensors"))) == 1


@pytest.mark.long
def test_a_damaged_cached_phase_is_computed_again(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    setup = Setup(config, tmp_path / "study")
    run_one(setup, StudyRun("random", 0))
    (phase,) = (setup.out / "phases").glob("*.safetensors")
    content = bytearray(phase.read_bytes())
    content[-3] ^= 1  # one bit of one weight
    phase.write_bytes(content)
    run_one(setup, StudyRun("ahfal", 0))
    run_one(whole := Setup(config, tmp_path / "whole"), StudyRun("ahfal", 0))
    assert load_outcome(setup, StudyRun("ahfal", 0)) == load_outcome(
        whole, StudyRun("ahfal", 0)
    )
