"""Conversion of objects and names to the strings of an experiment configuration."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from fallow.core.function_strategy import strategy_class
from fallow.core.kinds import LARGEST
from fallow.core.refusal import explain_errors
from fallow.core.step_training import StepTraining
from fallow.core.training_config import TrainingConfig, as_lists
from fallow.encoders.module import Network, encoder_class
from fallow.models.custom import Template
from fallow.settings.spec import Spec

PARTS = ("partition", "model", "training", "strategy", "features", "encoder")
"""Settings of an experiment configuration that name a class."""


@dataclass
class ParsedObjects:
    """Custom classes that the settings of a study refer to.

    An experiment configuration contains only strings and numbers, so that a study can be stored and
    reloaded.  A class defined in the calling program has no importable name.  It is kept here and
    registered (`fallow.core.names`) while the study runs.
    """

    classes: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def spec(self, value: object, what: str) -> Spec:
        """Return the specification of an object, and keep its class if it is not built in."""
        if what == "encoder" and _is_network(value):
            value = encoder_class(cast(Network, value))
        if what == "model" and is_factory(value):
            return self._lend_factory(value)
        if what == "strategy":
            value = _read_strategy(value)
        if isinstance(value, torch.nn.Module):
            raise ValueError(
                f"{what} is a module with weights; give the name or the class of a model"
            )
        if isinstance(value, Mapping):
            name = value.get("name")
            if name is None:
                raise ValueError(
                    f"{what} is {dict(value)!r}, which has no name; give name="
                )
            fields = dict(value)
            del fields["name"]
            return Spec(str(name), fields)
        with explain_errors(f"{what}: "):
            spec = Spec.of(value)
        cls = _class_of(value)
        if cls is not None and ":" in spec.name:
            self._lend(spec.name, cls)
        return spec

    def _lend(self, name: str, cls: Callable[..., Any]) -> None:
        known = self.classes.setdefault(name, cls)
        if known is not cls:
            raise ValueError(
                f"two different classes are called {name.rpartition(':')[2]}; rename one of them"
            )

    def _lend_factory(self, value: Any) -> Spec:
        """Return the name under which a custom model is built while a study runs."""
        if isinstance(value, torch.nn.Module):
            name = f"{UNNAMED}:{type(value).__name__}"
            self._lend(name, Template(copy.deepcopy(value)))
            return Spec(name)
        if isinstance(value, partial) and not value.args and _is_written(value.keywords):
            spec = self._lend_factory(value.func)
            return Spec(spec.name, value.keywords)
        title = getattr(value, "__name__", type(value).__name__)
        if isinstance(value, partial):
            title = getattr(value.func, "__name__", "partial")
        home = UNNAMED
        if title.isidentifier() and not isinstance(value, partial):
            home = value.__module__
        name = f"{home}:{title.strip('<>')}"
        self._lend(name, value)
        return Spec(name)

    def text(self, value: object, what: str = "strategy") -> str:
        """Return `spec` as a string, as in a study and on the command line."""
        if isinstance(value, str):
            return value
        spec = self.spec(value, what)
        text = str(spec)
        back = Spec.parse(text)
        if back.name != spec.name or as_lists(back.fields) != as_lists(spec.fields):
            raise ValueError(
                f"{value!r} has a setting that cannot be written as parameter=value ({text}); "
                "use numbers, words or lists of them"
            )
        return text

    def setting(self, name: str, value: Any) -> Any:
        """Convert the value of a setting to its TOML form."""
        if name in PARTS and value is not None:
            if name == "training":
                _check_training(value)
            spec = self.spec(value, name)
            chosen = dict(spec.fields)
            if name == "training":
                chosen |= _training_config_of(value)
            return {"name": spec.name, "fields": chosen}
        if name in ("training_config", "local_training_config") and isinstance(
            value, TrainingConfig
        ):
            return value.to_dict()
        if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        return plain(value)


def _check_training(value: object) -> None:
    """Raise ValueError for an optimizer of PyTorch, and for a class without a contract."""
    kind = value
    if not isinstance(value, type):
        kind = type(value)
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
        raise ValueError(
            f"training is {kind.__name__}, an optimizer of PyTorch; give a training algorithm, "
            "such as training='fedavg', and the optimizer by optimizer='sgd', 'adam' or 'adamw'"
        )
    if isinstance(value, type) and not hasattr(value, "contract"):
        raise ValueError(
            f"training is {value.__name__}, which is no training algorithm: it has no contract; "
            "give one such as training='fedavg'"
        )


def _training_config_of(algorithm: object) -> dict[str, object]:
    """Return the training configuration passed to a training algorithm, as one of its fields."""
    if isinstance(algorithm, StepTraining):
        explicit: object = plain(algorithm.explicit)
    else:
        config = getattr(algorithm, "training_config", None)
        if isinstance(algorithm, type) or not isinstance(config, TrainingConfig):
            return {}
        explicit = {}
        if config != TrainingConfig():
            explicit = plain(config.to_dict())
    if not explicit:
        return {}
    return {"training_config": explicit}


UNNAMED = "given"
"""Module name for objects that cannot be imported by name: instances and lambdas."""


def is_factory(value: object) -> bool:
    """Return whether an object builds a model: a module, a module class or a function."""
    if isinstance(value, partial):
        return is_factory(value.func)
    if isinstance(value, type):
        is_own = not value.__module__.startswith("fallow.")
        return is_own and issubclass(value, torch.nn.Module)
    if isinstance(value, str | Spec | Mapping) or is_dataclass(value):
        return False
    return callable(value)


def _read_strategy(value: Any) -> Any:
    """Wrap a plain function in a query strategy class, and return anything else unchanged."""
    if inspect.isfunction(value):
        return strategy_class(value)
    if isinstance(value, partial) and inspect.isfunction(value.func):
        built: Callable[..., Any] = strategy_class(value.func)
        return partial(built, *value.args, **value.keywords)
    owner = value if isinstance(value, type) else type(value)
    is_unfinished = hasattr(owner, "select") and not hasattr(owner, "query")
    if is_unfinished and not isinstance(value, str | Spec | Mapping):
        raise ValueError(
            f"{owner.__name__} has a select method and is not a query strategy; write "
            f"class {owner.__name__}(fl.Strategy)"
        )
    return value


def _is_written(fields: Mapping[str, Any]) -> bool:
    """Return whether fields can be written as settings."""
    try:
        return bool(json.loads(json.dumps(fields)) == as_lists(fields))
    except TypeError:
        return False


def _is_network(value: object) -> bool:
    """Return whether an encoder is a network that is called on examples."""
    if isinstance(value, torch.nn.Module) or inspect.isfunction(value):
        return True
    is_named = isinstance(value, str | Spec | type | partial | Mapping)
    return not is_named and not is_dataclass(value) and callable(value)


def _class_of(value: object) -> type[Any] | None:
    if isinstance(value, str | Spec):
        return None
    if isinstance(value, partial):
        value = value.func
        if not isinstance(value, type):
            return None
    if isinstance(value, type):
        return value
    return type(value)


def read_seed(value: object, what: str = "seed") -> int:
    """Convert a seed to int, or raise ValueError.

    >>> read_seed(np.int64(3))
    3
    """
    return read_whole(value, what, "give a whole number, 0 or more", least=0)


def read_whole(
    value: object,
    what: str,
    fix: str = "give a whole number",
    least: int = -LARGEST,
) -> int:
    """Convert a number to int, or raise ValueError with the advice ``fix``.

    >>> read_whole(np.float64(2), "n")
    Traceback (most recent call last):
    ...
    ValueError: n is 2.0; give a whole number
    """
    number = plain(value)
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or not least <= number <= LARGEST:
        raise ValueError(f"{what} is {number!r}; {fix}")
    return int(number)


def plain(value: Any) -> Any:
    """Convert NumPy and torch scalars to Python numbers, also inside lists and mappings.

    >>> plain(np.int64(3)), plain([np.float64(0.5)]), plain("all")
    (3, [0.5], 'all')
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(part) for part in value)
    return value
