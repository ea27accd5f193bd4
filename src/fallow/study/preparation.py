"""Checks of a study before a file is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from fallow import training
from fallow.core.build import names
from fallow.core.names import spell_class
from fallow.core.refusal import explain_errors
from fallow.core.wording import count_noun, join_some, join_words
from fallow.data.dataset import Dataset
from fallow.data.facts import DataFacts, describe_data
from fallow.data.partition.basic import natural_sites
from fallow.data.reading import ReportBytes, ignore_bytes
from fallow.experiment.encoding import encoder_for_texts, shape_seen
from fallow.experiment.methods import methods_of, placement_of, versions
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.rows import open_data
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.experiment.suitability import check_task
from fallow.settings.config import (
    OUTSIDE,
    ExperimentConfig,
    config_from,
    named_classes,
    with_settings,
)
from fallow.settings.spec import Spec
from fallow.settings.training_defaults import (
    REGRESSION,
    choose_training,
    complete_from,
)
from fallow.settings.variants import BOUND, check_distinct, variant
from fallow.sites.store import MemoryStore
from fallow.storage.errors import StorageError
from fallow.storage.files import only_one, write_json
from fallow.storage.received import (
    check_no_link,
    check_no_links_below,
    parse_json,
    read_regular,
)
from fallow.study.study_run import Setup, StudyRun
from fallow.study.trainers import describe_trainers
from fallow.training import personal

FACTS = "data.json"
"""File in the folder of a study with the facts about the user's own data."""
FITTED = 256
"""Number of images in an outline if an encoder is fitted to them."""


Suited = Callable[[Sequence[str], ExperimentConfig, Dataset], tuple[str, ...]]
"""Function that selects the strategies that support the data with a configuration."""


class StartedRuns(TypedDict):
    """Runs with which a study started."""

    strategies: list[str]
    seeds: list[int]


def prepare_study(
    setup: Setup,
    strategies: Sequence[str],
    seed: int,
    outline: bool = False,
    suited: Suited | None = None,
    notify: ReportBytes = ignore_bytes,
    at_sites: Mapping[str, str] | None = None,
) -> tuple[Setup, SimulatedEnvironment]:
    """Complete the configuration from the data, and create the environment of the first run.

    ``sites=0`` is replaced by the number of natural sites, and settings for classes are dropped for
    regression.  Raises ValueError for an invalid configuration.

    Parameters
    ----------
    outline : bool
        Whether to read only the first of many compressed images (see `fallow.data.load_outline`),
        which suffices for an estimate.
    suited : callable, optional
        Function that chooses default strategies that support the data, stored in
        ``setup.config.strategies``.
    notify : callable
        See `open_data`.
    at_sites : mapping, optional
        Settings that apply if the data name the site of each example.
    """
    check_distinct(strategies)
    placement_of(setup.config)  # a device that is missing is reported before data are read
    pictures: int | None = None  # all of them
    if outline:
        pictures = 1
        for item in (variant(setup.config, strategy) for strategy in strategies):
            if item.encoder is not None or item.features is not None:
                pictures = FITTED  # a component is fitted to them
    data = open_data(
        setup.config,
        seed,
        setup.data_dir,
        setup.dataset,
        outline=pictures,
        notify=notify,
    )
    config = setup.config
    if at_sites and data.sites is not None:
        config = with_settings(config, at_sites)
    config = settle_config(config, data)
    if suited is not None:
        others = suited(strategies, config, data)
        reference = config.reference
        if len(strategies) == len(others):
            renamed = dict(zip(strategies, others, strict=True))
            reference = renamed.get(reference or "", reference)
        config = replace(config, strategies=others, reference=reference)
        strategies = others
    for strategy in strategies:
        check_task(variant(config, strategy), data)
        is_one_pass(variant(config, strategy))  # raises if the protocol does not support it
    check_options(config, strategies)
    variants = [variant(config, strategy) for strategy in strategies]
    is_masked = any(item.privacy.secure_sum for item in variants)
    if config.privacy.bound is not None and not is_masked:
        raise ValueError(
            "privacy.bound is a setting of secure aggregation, and privacy.secure_sum is False; set "
            "privacy.secure_sum=true, or omit privacy.bound"
        )
    simulation = environment_of(variant(config, strategies[0]), seed, data, MemoryStore())
    return replace(setup, config=config), simulation


def describe_partition(partition: Spec) -> str:
    """Describe the partition of examples over sites.

    >>> describe_partition(Spec("exact-dirichlet", {"alpha": 0.1}))
    'partition exact-dirichlet (alpha=0.1)'
    """
    fields = ", ".join(f"{name}={value}" for name, value in partition.fields.items())
    return f"partition {partition.name}" + (f" ({fields})" if fields else "")


def describe_prepared(
    setup: Setup, simulation: SimulatedEnvironment, cells: Sequence[StudyRun]
) -> str:
    """Describe strategies, seeds, examples, sites, training algorithms, model and encoder in a line."""
    config = setup.config
    shape = tuple(simulation.dataset.x.shape[1:])

    def width(strategy: str) -> int:
        return math.prod(shape_seen(variant(config, strategy), shape))

    strategies = dict.fromkeys(cell.strategy for cell in cells)
    chosen = [name for name in strategies if not name.startswith(BOUND)]
    trained = describe_trainers(config, chosen, width, len(simulation.classes))
    seeds = dict.fromkeys(str(cell.seed) for cell in cells)
    which = "strategies"
    if len(chosen) == 1:
        which = "strategy"
    examples = count_noun(sum(simulation.sizes.values()), "example")
    by = describe_partition(config.partition)
    sites = f"{examples} at {count_noun(config.sites, 'site')} by {by}"
    n_groups = simulation.dataset.n_groups
    if n_groups:
        sites += f", {count_noun(n_groups, 'group')} that no split divides"
    return (
        f"{len(chosen)} {which} ({join_some(chosen)}), {count_noun(len(seeds), 'seed')} "
        f"({join_some(list(seeds))}), {sites}; trained by {trained}"
    )


def check_options(config: ExperimentConfig, strategies: Sequence[str]) -> None:
    """Raise ValueError if a setting applies to certain algorithms only, and none of them is used."""
    usual = ExperimentConfig(config.name)
    used = set()
    for strategy in strategies:
        trainer = methods_of(variant(config, strategy))["training"]
        used |= set(trainer.contract.options)
    algorithms: dict[str, list[str]] = {}  # by setting
    for cls in names((training, personal)).values():
        for option in cls.contract.options:
            algorithms.setdefault(option, []).append(spell_class(cls))
    for option, makers in algorithms.items():
        is_on = getattr(config, option) != getattr(usual, option)
        if is_on and option not in used:
            raise ValueError(
                f"{option} is a setting of {join_words(makers, last='or')}, which no "
                f"strategy of this study uses; omit it, or add @training={makers[0]} to a "
                "strategy"
            )


def settle_config(config: ExperimentConfig, dataset: Dataset) -> ExperimentConfig:
    """Return the configuration completed from its data."""
    if config.features is None:
        encoder = encoder_for_texts(config.encoder, dataset.columns)
        config = replace(config, encoder=encoder)
    if config.sites == 0:
        config = replace(config, sites=len(natural_sites(dataset.sites)))
    if dataset.task == "regression":
        training_config = complete_from(config.training_config, REGRESSION)
        config = replace(config, training_config=training_config)
        # pooled active learning uses entropy
        others = [bound for bound in config.bounds if bound != "pooled"]
        config = replace(config, bounds=tuple(others))
    return replace(config, training=choose_training(config.training, dataset.task))


def open_study(setup: Setup, cells: Sequence[StudyRun], command: str, resume: bool) -> None:
    """Create the folder of the study, or check that it contains the same study.

    Raises ValueError if the folder has a study and ``resume`` is off, or a different study.
    """
    path = setup.out / "study.json"
    config = setup.config
    with only_one(setup.out / "study.lock"):
        begun: StartedRuns = {"strategies": [], "seeds": []}
        if path.exists():
            for beside in setup.out.iterdir():
                check_no_link(beside)
            check_no_links_below(setup.out / "cells")  # runs are written there
            begun = check_same(path, config, resume)
        of_cells = [cell.strategy for cell in cells]
        strategies = list(dict.fromkeys(begun["strategies"] + of_cells))
        strategies.sort(key=lambda strategy: strategy.startswith(BOUND))
        seeds = {cell.seed for cell in cells} | set(begun["seeds"])
        references = [q for q in (config.reference, "random") if q in strategies]
        labels = config.labels
        if setup.dataset is not None:
            labels = setup.dataset.labels
        write_json(
            path,
            {
                "labels": list(labels) or None,
                "name": config.name,
                "title": config.title,
                "config": config.to_dict(),
                "digest": config.digest,
                "reference": next(iter(references), None),
                "strategies": strategies,
                "seeds": sorted(seeds),
                "command": command,
                "versions": versions(),
                "published": config.to_dict()["published"],
            },
        )


def keep_facts(folder: Path, dataset: Dataset) -> DataFacts | None:
    """Store a summary of the user's data for the report, and return it; None for built-in datasets."""
    facts = describe_data(dataset)
    if facts is not None:
        write_json(folder / FACTS, dict(facts))
    return facts


def check_same(path: Path, config: ExperimentConfig, resume: bool) -> StartedRuns:
    """Return the runs of the study at ``path`` if ``config`` may resume it.

    Raises ValueError if ``resume`` is off or settings differ, and StorageError for a damaged file.
    """
    if not resume:
        raise ValueError(
            f"{path.parent} already contains a study; add --resume to continue it, or "
            "choose another folder with --out"
        )
    with explain_errors(
        f"{path} is damaged (",
        after="): choose another folder with --out",
        of=(ValueError, KeyError, TypeError, AttributeError),
        to=StorageError,
    ):
        old: Any = parse_json(read_regular(path))  # Any: checked below
        before = config_from(old["config"])
        same: StartedRuns = {
            "strategies": list(old["strategies"]),
            "seeds": list(old["seeds"]),
        }
    # a module that only this file names is not imported
    has_other_names = named_classes(before) != named_classes(config)
    if has_other_names or not before.is_digested_as(config.digest):
        now = config.to_dict()
        then = before.to_dict()
        changed = [name for name in now if now[name] != then[name] and name not in OUTSIDE]
        raise ValueError(
            f"{path.parent} was started with other settings ({', '.join(changed)} differ); resume "
            "it with the settings in its study.json, or choose another folder with --out"
        )
    if old.get("digest") != before.digest:
        version = dict(old.get("versions") or {}).get("fallow", "of another version")
        raise ValueError(
            f"{path.parent} was started by Fallow {version}, in which some of these "
            "settings had other defaults or another form: resume it with that version, "
            "or choose another folder with --out"
        )
    return same
