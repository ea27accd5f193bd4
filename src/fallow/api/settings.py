"""Arguments of `fallow.run` and `fallow.compare`: their order, and conversion to a configuration."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fallow import strategies
from fallow.api.datasets import load
from fallow.api.federation import Federation
from fallow.api.objects import ParsedObjects
from fallow.configs.defaults import check_specified, default_training
from fallow.configs.find import find_config
from fallow.core.build import find
from fallow.core.load_options import NAMES
from fallow.core.names import BUILT_IN, lend
from fallow.data import Dataset
from fallow.settings.config import OF_FILES, ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.storage.received import read_toml

OF_A_TABLE = (
    "the column of labels of a table is unknown; read it with fl.from_frame(table, "
    "label='...', site='...')"
)


@dataclass(frozen=True)
class RunRequest:
    """Experiment configuration, data and custom classes of a run."""

    config: ExperimentConfig
    dataset: Dataset | None
    collected: ParsedObjects


def read_request(
    federation: Federation | Dataset | str | Path | None,
    config: ExperimentConfig | Mapping[str, Any] | str | Path | None,
    settings: Mapping[str, Any],
    strategies: Sequence[object] = (),
) -> RunRequest:
    """Build the experiment configuration from the arguments.

    Parameters
    ----------
    federation : Federation, Dataset, str or Path
        Federated dataset.
    config : ExperimentConfig, mapping, str or Path
        Experiment configuration that supplies each setting that is None.
    settings : mapping
        Settings by name.
    strategies : sequence, optional
        Query strategies to run instead of those in the configuration.  Without a training
        algorithm, they must be compatible with the default one (`default_training`).

    Raises
    ------
    ValueError
        If a setting is unknown (the message suggests the closest one) or its value is invalid.
    """
    collected = ParsedObjects()
    options: dict[str, Any] = {}
    if isinstance(federation, str | Path):
        options = {name: settings[name] for name in NAMES if settings.get(name) is not None}
        settings = {name: value for name, value in settings.items() if name not in options}
    request = _read_federation(federation, options, settings)
    words: dict[str, Any] = {}
    dataset = None
    if request is not None:
        collected.classes.update(request.collected.classes)
        words |= request.settings
        dataset = request.dataset
    elif _is_table(settings.get("data")):
        raise ValueError(OF_A_TABLE)
    elif config is None:
        raise ValueError(
            "there is nothing to run; give a federation such as fl.Federation(fl.load('digits')), or "
            "config='demo'"
        )
    if federation is not None:
        of_config = config if isinstance(config, Mapping) else {}
        _check_data_settings({**of_config, **settings}, federation)
    for name, value in settings.items():
        if value is None:
            continue
        words[name] = collected.setting(name, value)
    if request is not None and config is None:
        words.setdefault("name", request.dataset.name)
    texts = [collected.text(strategy) for strategy in strategies]
    with lend(collected.classes):
        start = None
        if config is None:
            if "training" not in words:
                words["training"] = default_training(words, texts)
            words.setdefault("training_config", {})  # defaults of the model family
        elif isinstance(config, ExperimentConfig):
            start = config
        elif isinstance(config, Mapping):
            written = {"name": "own", **config}
            if "training" not in {**written, **words}:
                written["training"] = default_training({**written, **words}, texts)
            written.setdefault("training_config", {})
            start = config_from(written)
        else:
            start = find_config(str(config), words, texts)
        chosen = config_from(words, start)
        specified = words
        if "training" not in words and not texts:
            specified = {**_settings_of(config), **words}
        check_specified(specified, chosen, texts)
    if chosen.budget_reading:
        warnings.warn(chosen.budget_reading, stacklevel=3)  # the caller of `run`
    return RunRequest(chosen, dataset, collected)


def _settings_of(config: object) -> Mapping[str, Any]:
    """Return the settings in a mapping or file."""
    if isinstance(config, Mapping):
        return config
    if isinstance(config, str | Path) and str(config).endswith(".toml"):
        return read_toml(Path(config))
    return {}


def _check_data_settings(
    settings: Mapping[str, Any], data: Federation | Dataset | str | Path
) -> None:
    """Raise ValueError for a setting that the data already determine."""
    receiver = "fl.load or fl.from_frame"
    names: tuple[str, ...] = OF_FILES
    if isinstance(data, Federation):
        receiver += ", or to fl.Federation"
        names += ("partition", "sites")
    for name in names:
        if settings.get(name) is not None:
            raise ValueError(
                f"{name} is a setting of the data, which are the first argument; give it to {receiver}"
            )


def _read_federation(
    data: Federation | Dataset | str | Path | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Federation | None:
    """Return a federated dataset; a file is read with these options of `fallow.load`."""
    if data is None or isinstance(data, Federation):
        return data
    if isinstance(data, str | Path):
        data = load(data, **options)
    if isinstance(data, Dataset):
        return Federation(data, settings.get("partition"), settings.get("sites"))
    if _is_table(data):
        raise ValueError(OF_A_TABLE)
    raise ValueError(
        "the first argument must be a fl.Federation, a dataset or the name of one, not "
        f"{type(data).__name__}"
    )


def _is_table(value: object) -> bool:
    """Return whether an object is a pandas or Polars table, without importing either."""
    return type(value).__name__ == "DataFrame"


def check_instruction(first: object, second: object, call: str, data: str) -> None:
    """Raise ValueError if the data and the query strategy are swapped.

    Parameters
    ----------
    first, second : object
        First two arguments of the call.
    call : str
        Correct form of the call, for the error message.
    data : str
        Name of the data argument, for the error message.
    """
    is_swapped = _is_strategy(first) and not _names_strategy(second)
    if is_swapped:
        raise ValueError(f"the first argument is a strategy; write {call}")
    if _is_data(second):
        raise ValueError(f"the second argument is a {data}; write {call}")


def _is_strategy(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_strategy(part) for part in value)
    if isinstance(value, str):
        return _names_strategy(value)
    is_function = inspect.isfunction(value)
    return is_function or (hasattr(value, "contract") and hasattr(value, "query"))


def _names_strategy(value: object) -> bool:
    """Return whether a string, or each string of a list, names a built-in query strategy."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_names_strategy(part) for part in value)
    if not isinstance(value, str):
        return False
    try:
        find(strategies, Spec.parse(value.partition("@")[0]).name, BUILT_IN)
    except ValueError:
        return False
    return True


def _is_data(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "name" not in value  # a strategy may be {"name": "ahfal", "tau": 15}
    is_table = type(value).__name__ == "DataFrame"
    return is_table or isinstance(value, Federation | Dataset | np.ndarray | torch.Tensor)
