"""Extensions: classes that installed distributions add under short names.

A distribution declares an entry point in its ``pyproject.toml``::

    [project.entry-points."fallow.encoders"]
    wavelets = "my_wavelets:Wavelets"

The name is then short for ``my_wavelets:Wavelets``.  Entry points are read as metadata.  A class is
loaded only when a configuration or an option names it, under the `NamePolicy` that also applies to
``module:Class``.  A name of Fallow's own always takes precedence.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fallow.core.names import CLASS_KINDS, ClassKind, NamePolicy, load_class

DATASETS = (
    *("bike", "california", "cifar100", "cinic10", "ct", "diamonds", "diamonds_onehot"),
    *("digit_angle", "elevators", "femnist", "femnist_letters", "kegg"),
    *("kegg_undirected", "kin40k", "mlr_knn_rng", "online_video", "parkinsons", "pol"),
    *("protein", "sarcos", "sarcos_full", "stock", "svhn", "wec_sydney"),
    "wine_red",
)
"""Datasets of fallow-papers."""
OFFICIAL: Mapping[str, Mapping[str, str]] = {
    "fallow.callbacks": {
        "mlflow": "fallow-trackers[mlflow]",
        "tensorboard": "fallow-trackers[tensorboard]",
        "wandb": "fallow-trackers[wandb]",
    },
    "fallow.datasets": dict.fromkeys(DATASETS, "fallow-papers"),
    "fallow.encoders": {
        "onnx": "fallow-encoders[onnx]",
        "open-clip": "fallow-encoders[open-clip]",
        "sentence-transformers": "fallow-encoders[sentence-transformers]",
        "tabpfn": "fallow-encoders[tabpfn]",
        "timm": "fallow-encoders[timm]",
    },
    "fallow.labeling_tools": {
        "cvat": "fallow-labeling-tools",
        "label-studio": "fallow-labeling-tools",
    },
    "fallow.transports": {"flower": "fallow-flower", "nvflare": "fallow-nvflare"},
}
"""Group -> names of Fallow's own integrations -> the requirement that installs them."""
NETWORKS = {
    "open-clip": ("clip", "vit-b-", "vit-l-", "vit-h-"),
    "sentence-transformers": ("minilm", "mpnet", "bert", "sentence"),
    "timm": tuple("0123456789"),
}
"""Names of `OFFICIAL` -> substrings of the names of their pretrained networks, in this order."""
FIRST_SETTINGS = "fallow.first_settings"
"""Group of entry points ``name = "setting"``: ``name:VALUE`` is short for ``name:setting=VALUE``."""


def fold_name(name: str) -> str:
    """Return a name without the differences that are ignored: case, ``-`` and ``_``.

    >>> fold_name("Label-Studio") == fold_name("label_studio")
    True
    """
    return name.replace("-", "").replace("_", "").lower()


def list_extensions(group: str) -> list[str]:
    """Return the names of all extensions of a group, installed or Fallow's own, sorted."""
    installed = [entry.name for entry in list_entry_points(group)]
    return sorted({*installed, *OFFICIAL.get(group, {})})


def list_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of all installed distributions in a group."""
    return _read_entries(group, tuple(sys.path))


@cache
def _read_entries(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group.  path: ``sys.path``, which determines what is installed.

    Reading the metadata of a hundred distributions takes 20 ms, and a name is looked up often.
    """
    return tuple(entry_points(group=group))


def find_extension(kind: ClassKind, name: str) -> str | None:
    """Return the ``module:Class`` of an installed extension, or None.  Nothing is imported.

    Raises ValueError if two distributions use the name for different classes.
    """
    if kind.group is None:
        return None
    matches: dict[str, EntryPoint] = {}
    for entry in list_entry_points(kind.group):
        if fold_name(entry.name) == fold_name(name):
            matches[entry.value] = entry
    if len(matches) > 1:
        owners = sorted(str(entry.dist and entry.dist.name) for entry in matches.values())
        raise ValueError(
            f"two installed distributions have the {kind.what} {name!r}: {' and '.join(owners)}; "
            "uninstall one, or write module:Class"
        )
    return next(iter(matches), None)


def find_short_name(cls: type) -> str | None:
    """Return the name under which an installed distribution adds a class, or None."""
    target = f"{cls.__module__}:{cls.__qualname__}"
    for kind in CLASS_KINDS.values():
        if kind.group is not None:
            for entry in list_entry_points(kind.group):
                if entry.value == target:
                    return entry.name
    return None


def find_first_setting(name: str) -> str | None:
    """Return the setting that ``name:VALUE`` sets for an extension, or None.

    Raises ValueError for an integration of Fallow that is not installed.
    """
    for entry in list_entry_points(FIRST_SETTINGS):
        if fold_name(entry.name) == fold_name(name):
            return entry.value
    for kind in CLASS_KINDS.values():
        if find_extension(kind, name) is None:
            missing = explain_missing(kind, name)
            if missing is not None:
                raise ValueError(missing)
    return None


def suggest_network(name: str) -> str:
    """Return how to write the encoder for the name of a pretrained network, or None."""
    for encoder, parts in NETWORKS.items():
        if any(part in name.lower() for part in parts):
            return f"for the pretrained network, write '{encoder}:{name}'"
    return ""


def explain_missing(kind: ClassKind, name: str) -> str | None:
    """Return how to install the integration of Fallow that has this name, or None."""
    for official, distribution in OFFICIAL.get(kind.group or "", {}).items():
        if fold_name(official) == fold_name(name):
            folder = "studies" if distribution == "fallow-papers" else "integrations"
            path = shlex.quote(f"./{folder}/{distribution}")
            return (
                f"the {kind.what} {name!r} needs the package {distribution}, which is not "
                f"installed; install its wheel, or in a clone: pip install {path}"
            )
    return None


def load_extension(kind: ClassKind, name: str, policy: NamePolicy) -> Any:
    """Return the class of an extension, or of ``module:Class``.

    Raises ValueError for a name that no installed distribution has, for one that ``policy`` does not
    allow, and for a class of another kind.
    """
    target = name
    if ":" not in name:
        target = require_extension(kind, name)
    loaded = load_class(target, policy, kind)
    kind.check(repr(name), loaded)
    return loaded


def require_extension(kind: ClassKind, name: str) -> str:
    """Return the ``module:Class`` of an extension.  Raises ValueError if it is not installed."""
    target = find_extension(kind, name)
    if target is None:
        raise ValueError(explain_missing(kind, name) or _explain_unknown(kind, name))
    return target


def _explain_unknown(kind: ClassKind, name: str) -> str:
    known = list_extensions(kind.group or "")
    if not known:
        return f"there is no {kind.what} {name!r}; no installed package has one"
    return f"there is no {kind.what} {name!r}; there are {', '.join(known)}"
