"""Configurations can be built, and agree with published results and settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fallow_papers
from fallow.catalog import is_named
from fallow.configs.find import find_config, load_configs
from fallow.configs.papers import load_paper_results
from fallow.core.build import build
from fallow.data import Dataset
from fallow.data.partition import partitions as rules
from fallow.experiment.methods import methods_of
from fallow.experiment.rows import draw_flipped_sites
from fallow.report.published import describe_differences
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import variant
from fallow.study.records import StudyManifest
from fallow.training.personal import DPFL
from tests.each import each_of

TABLES = load_paper_results().published
published = TABLES.cells
tables = TABLES.names
tallies = TABLES.tallies

every = each_of("config", load_configs().values())

# data, sites, rounds x epochs, lr, weight decay, batch, initial labels, per cycle, end,
# participation
PROTOCOLS: dict[str, tuple[Any, ...]] = {
    "ahfal/cifar10": ("cifar10", 10, 100, 5, 0.1, 5e-4, 128, 0.10, 0.05, 0.35, 1.0),
    "ahfal/svhn": ("svhn", 10, 100, 5, 0.1, 5e-4, 128, 0.10, 0.05, 0.40, 1.0),
    "ahfal/cifar100": ("cifar100", 10, 100, 5, 0.1, 5e-4, 128, 0.10, 0.05, 0.35, 1.0),
    "ahfal/mobilenet": ("cifar10", 10, 100, 5, 0.1, 5e-4, 128, 0.10, 0.05, 0.35, 1.0),
    "ahfal/mnist": ("mnist", 10, 10, 10, 0.1, 5e-4, 128, 0.10, 0.05, 0.40, 1.0),
    "ahfal/low": ("cifar10", 10, 100, 5, 0.1, 5e-4, 128, 0.05, 0.025, 0.15, 1.0),
    "ahfal/high": ("cifar10", 10, 100, 5, 0.1, 5e-4, 128, 0.20, 0.10, 0.60, 1.0),
    "kafal/cifar10": ("cifar10", 10, 50, 40, 0.1, 5e-4, 128, 0.10, 0.05, 0.35, 0.8),
    "logo/cifar10": ("cifar10", 10, 100, 5, 0.01, 1e-5, 64, 0.05, 0.05, 0.80, 1.0),
    "fairfal/fmnist": ("fashion_mnist", 10, 100, 5, 0.01, 1e-5, 64, 0.05, 0.05, 0.45, 1.0),
    "fairfal/cifar10": ("cifar10", 10, 100, 5, 0.01, 1e-5, 64, 0.05, 0.05, 0.45, 1.0),
    "fairfal/cifar100": ("cifar100", 10, 100, 5, 0.01, 1e-5, 64, 0.05, 0.05, 0.45, 1.0),
}

# data, sites, rounds x epochs, lr, weight decay, batch, seeds
PERSONAL: dict[str, tuple[Any, ...]] = {
    "dpfl/cifar10-patho": ("cifar10", 100, 100, 5, 0.01, 1e-3, 16, 3),
    "dpfl/cifar10-dir0.1": ("cifar10", 100, 100, 5, 0.01, 1e-3, 16, 3),
    "dpfl/cinic10-patho": ("cinic10", 200, 50, 5, 0.01, 1e-3, 16, 3),
    "dpfl/cinic10-dir0.1": ("cinic10", 200, 50, 5, 0.01, 1e-3, 16, 3),
    "dpfl/femnist": ("femnist_letters", 100, 50, 2, 0.001, 1e-3, 10, 3),
    "dpfl/tau-init": ("cifar10", 100, 100, 5, 0.01, 1e-3, 16, 3),
    "dpfl/period": ("cifar10", 100, 100, 5, 0.01, 1e-3, 16, 1),
}


@pytest.mark.parametrize(
    "name", ["ahfal/svhn-alpha0.5", "fairfal/cifar10", "pivotal/bike-mini"]
)
def test_a_file_of_a_recipe_is_the_recipe(name: str) -> None:
    (file,) = Path(fallow_papers.__file__).parent.rglob(f"{name}.toml")
    config = find_config(str(file))
    assert config.name == file.stem
    assert replace(config, name=name) == find_config(name)


@every
def test_its_data_partition_and_every_strategy_exist(config: ExperimentConfig) -> None:
    assert is_named(config.data)
    build(rules, config.partition.name, **config.partition.fields)
    for strategy in (*config.strategies, str(config.strategy)):
        assert methods_of(variant(config, strategy))["query"].contract.title
    assert config.reference in (None, *config.strategies)


@every
def test_its_printed_numbers_are_in_the_table_it_names(config: ExperimentConfig) -> None:
    if config.published is None:
        return
    if config.published.table in tables("tallies"):
        rows = {row.dataset for row in tallies(config.published.table)}
        named = {row.method for row in tallies(config.published.table)}
        assert config.published.setting in rows
        assert set(config.published.names.values()) <= named | {
            row.rival for row in tallies(config.published.table)
        }
        assert set(config.published.names) <= set(config.strategies)
        return
    cells = published(config.published.table)
    setting = config.published.setting
    printed = {cell.method for cell in cells if cell.setting == setting}
    known = {cell.method for cell in cells}
    if not setting:  # rows are named by algorithm and setting
        printed = known = {f"{cell.method} {cell.setting}" for cell in cells}
    assert printed
    shown = {
        config.published.names[q] for q in config.strategies if q in config.published.names
    }
    assert shown <= known | {
        "Entropy",
        "BADGE",
        "Core-Set",
    }  # not available for every setting
    assert shown & printed


@every
def test_a_reduced_version_alone_has_another_setting_than_its_paper(
    config: ExperimentConfig,
) -> None:
    if config.published is None:
        return
    whole: dict[str, Any] = config.to_dict()
    study = StudyManifest(
        config.name, whole, None, (), (), "", whole["published"], versions={}
    )
    assert config.published.protocol.split("/")[0] == config.name.split("/")[0]
    assert bool(describe_differences(study)) == ("mini" in config.name)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_full_protocol_is_the_papers(name: str) -> None:
    r = load_configs()[name]
    sgd = r.training_config.optimizer
    end = sum(r.purchases)
    protocol = (
        r.data,
        r.sites,
        r.rounds,
        r.training_config.epochs,
        sgd.lr,
        sgd.weight_decay,
        r.training_config.batch_size,
        r.initial,
        r.budget,
        round(end, 3),
        r.participation,
    )
    assert protocol == PROTOCOLS[name]
    assert sgd.momentum == 0.9
    assert r.score_rounds == 1  # a published number is one evaluation


def test_moments_and_schedules_follow_the_public_codes() -> None:
    ahfal = load_configs()["ahfal/cifar10"].training_config
    logo = load_configs()["logo/cifar10"].training_config
    assert ahfal.optimizer.persist and not logo.optimizer.persist
    # 5 local epochs per round: the 260th epoch starts round 52 (zero-based)
    assert ahfal.schedule.at(51, 4, 5) == 1.0 and ahfal.schedule.at(52, 0, 5) == 0.1
    assert logo.schedule.at(75, 0, 5) == 1.0 and logo.schedule.at(76, 0, 5) == 0.1


def test_every_published_table_of_classification_has_a_small_recipe_and_a_full_one() -> (
    None
):
    tables = {f"ahfal-table{i}" for i in (1, 4, 5, 6, 7, 8, 9)} | {"fairfal-final"}
    small = {
        r.published.table for n, r in load_configs().items() if r.published and "mini" in n
    }
    full = {
        r.published.table
        for n, r in load_configs().items()
        if r.published and "mini" not in n
    }
    assert tables <= small
    assert tables | {"ahfal-table3", "fairfal-ablation", "fairfal-cifar100"} <= full


def test_table_2_of_fale_has_a_small_and_a_full_recipe_for_each_of_its_data_sets() -> None:
    printed = {row.dataset for row in tallies("fale-table2")}
    of_fale = [
        r
        for r in load_configs().values()
        if r.published and r.published.table == "fale-table2"
    ]
    for end in (300, 1500):
        assert {
            r.published.setting
            for r in of_fale
            if 10 * r.budget_of(0) == end and r.published
        } == (printed)
    full = load_configs()["fale/protein"]
    assert full.budget_of(0) * full.sites * full.cycles == 15_000
    assert full.budget_of(0) / full.queries_per_cycle == 5
    assert (
        full.training_config.optimizer.name,
        full.training_config.optimizer.lr,
        full.training_config.epochs,
    ) == (
        "adam",
        0.01,
        25,
    )
    assert (full.initial, full.sites, full.partition.fields["alpha"], full.resplit) == (
        0.01,
        10,
        5.0,
        True,
    )


@pytest.mark.parametrize("name", PERSONAL)
def test_a_full_protocol_of_dpfl_is_the_papers(name: str) -> None:
    r = load_configs()[name]
    sgd = r.training_config.optimizer
    result = (
        r.data,
        r.sites,
        r.rounds,
        r.training_config.epochs,
        sgd.lr,
        sgd.weight_decay,
        r.training_config.batch_size,
        r.seeds,
    )
    assert result == PERSONAL[name]
    assert (sgd.momentum, r.validation, r.test) == (0.9, 0.2, "own")


OF_DPFL = [config for name, config in load_configs().items() if name.startswith("dpfl/")]


def test_every_recipe_of_dpfl_labels_all_rows_first_and_records_every_round() -> None:
    for config in OF_DPFL:
        assert (config.initial, config.cycles, config.budget_allocation) == (
            1.0,
            0,
            "proportional",
        )
        assert config.score_rounds == config.rounds
        assert {variant(config, q).strategy.name for q in config.strategies} == {"random"}


def test_table_1_of_dpfl_has_a_row_for_every_method_that_it_prints() -> None:
    for name in ("dpfl/cifar10-patho", "dpfl/cifar10-dir0.1", "dpfl/femnist"):
        config = load_configs()[name]
        assert config.published
        assert set(config.published.names) <= set(config.strategies)
        printed = {cell.method for cell in published("dpfl-table1")}
        assert set(config.published.names.values()) == printed


def test_tables_2_and_3_of_dpfl_have_a_strategy_for_every_number() -> None:
    for name, table in (("dpfl/tau-init", "dpfl-table2"), ("dpfl/period", "dpfl-table3")):
        config = load_configs()[name]
        assert config.published
        rows = {f"{cell.method} {cell.setting}" for cell in published(table)}
        assert {config.published.names[q] for q in config.strategies} == rows


def test_who_sends_and_never_averages_are_the_sites_with_flipped_labels() -> None:
    config = load_configs()["dpfl/flip-one-way-mini"]
    one_way = variant(config, config.strategies[-1])
    dataset = Dataset(
        "ten",
        torch.zeros(40, 1),
        torch.arange(40) % 10,
        torch.zeros(1, 1),
        torch.zeros(1, dtype=torch.int64),
        classes=tuple("0123456789"),
    )
    sites = [f"site-{k:02d}" for k in range(config.sites)]
    drawn = {
        draw_flipped_sites(config, dataset, sites, seed) for seed in range(config.seeds)
    }
    assert len(drawn) == config.seeds == 5
    for wrong in drawn:
        training = methods_of(one_way, wrong)["training"]
        assert isinstance(training, DPFL) and training.alone == wrong
    assert methods_of(config, sites)["training"] == methods_of(config)["training"]


def test_three_sites_of_the_synergy_study_hold_the_papers_rows() -> None:
    config = load_configs()["dpfl/synergy"]
    rule = build(rules, config.partition.name, **config.partition.fields)
    y = np.repeat(np.arange(10), 600)
    counts_by_site = [
        np.bincount(y[part], minlength=10)
        for part in rule.split(y, 3, np.random.default_rng(0))
    ]
    assert [int(counts.sum()) for counts in counts_by_site] == [200, 1000, 1000]
    assert counts_by_site[0].tolist() == [50, 0, 0, 0, 50, 0, 50, 0, 50, 0]
    assert counts_by_site[1].tolist() == [300, 200, 0, 200, 0, 0, 300, 0, 0, 0]
    assert counts_by_site[2].tolist() == [0, 0, 0, 0, 300, 200, 0, 200, 300, 0]


def test_every_recipe_of_fale_runs_its_controls() -> None:
    for name, config in load_configs().items():
        if name.startswith("fale/"):
            assert {"random@training=server-solve", "random@trainer=10x25"} <= set(
                config.strategies
            )
            assert "fale:weights=none@training=server-solve@initial=0" in config.strategies
            assert "bound:all-labels@training=server-solve" in config.strategies
