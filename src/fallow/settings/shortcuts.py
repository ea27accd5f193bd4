"""Short names of settings on the command line: ``lr`` for ``training_config.optimizer.lr``."""

from __future__ import annotations

from collections.abc import Mapping

from fallow.core.training_config import KEYWORDS
from fallow.core.words import join_words
from fallow.settings.classes import PARTS, fields_of
from fallow.settings.listing import list_settings
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

SECOND = "local_training_config."
"""The training configuration of a query's local model. Short names refer to
`training_config`, so its settings have none.
"""


def expand(recipe: Recipe, settings: Mapping[str, str]) -> dict[str, str]:
    """Replace short names of settings by full names, in the same order.

    Parameters of a component that ``settings`` name are recognized too.  Raises ValueError if a short
    name is ambiguous.

    >>> expand(Recipe("a"), {"lr": "0.1", "alpha": "1.0"})
    {'training_config.optimizer.lr': '0.1', 'partition.alpha': '1.0'}
    """
    named = {}
    for part in PARTS:
        spec: Spec | None = getattr(recipe, part)
        if spec is not None:
            named[part] = spec.name
    full: dict[str, str] = {}
    for key, text in settings.items():
        if key in PARTS:
            named[key] = text.partition(":")[0]
        name = full_name(key, named)
        if full.get(name, text) != text:
            raise ValueError(f"{name} is {full[name]} and {text}, as {key}; give it once")
        full[name] = text
    return full


def full_name(key: str, named: Mapping[str, str]) -> str:
    """Return the full name of a setting, or the name itself if it is unknown.

    ``named`` maps each setting to the class it names.  Raises ValueError if the name is ambiguous.
    """
    settings = [setting.name for setting in list_settings()]
    tops = {name.partition(".")[0] for name in settings}
    if key.partition(".")[0] in tops | {"name"}:
        return key
    meant = []
    if key in KEYWORDS:
        meant.append(".".join(("training_config", *KEYWORDS[key])))
    for name in settings:
        is_second = name.startswith(SECOND) or name in meant
        if name.endswith(f".{key}") and not is_second:
            meant.append(name)
    for part, cls in named.items():
        if key in fields_of(part, cls):
            meant.append(f"{part}.{key}")
    if len(meant) > 1:
        raise ValueError(f"{key} may be {join_words(meant, last='or')}; write one of them")
    if meant:
        return meant[0]
    return key
