"""Check that the data comes first and the query strategy second."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fallow import strategies
from fallow.api.federation import Federation
from fallow.core.build import find
from fallow.core.names import BUILT_IN
from fallow.data import Dataset
from fallow.settings.spec import Spec


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
