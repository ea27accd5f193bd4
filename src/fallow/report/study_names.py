"""Names of the studies on a page. Equal names are followed by settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.report.costs import set_words
from fallow.settings.recipe import OUTSIDE
from fallow.study.records import StudyManifest, StudyRecords

MOST = 2
"""Maximum number of settings that are named."""


def names_of(studies: Sequence[StudyRecords]) -> list[str]:
    """Return a unique name for each study.

    Studies with equal names are named by the settings in which they differ. They are
    numbered if they differ in none, or in too many.
    """
    names = []
    for study in studies:
        name = study.study.name
        alike = [other.study for other in studies if other.study.name == name]
        names.append(f"{name}{_difference(study.study, alike)}")

    numbered = []
    for at, name in enumerate(names):
        if names.count(name) > 1:
            number = names[: at + 1].count(name)
            name = f"{name} ({number})"
        numbered.append(name)
    return numbered


def _difference(study: StudyManifest, alike: Sequence[StudyManifest]) -> str:
    """Return the settings that distinguish a study, such as ``, partition.alpha=0.1``.

    Return "" if there are none or too many.
    """
    settings = [_settings(other) for other in alike]
    keys: dict[str, None] = {}  # a set that keeps its order
    for of_study in settings:
        keys |= dict.fromkeys(of_study)
    differing = []
    for key in keys:
        values = {of_study.get(key) for of_study in settings}
        if len(values) > 1:
            differing.append(key)
    if not differing or len(differing) > MOST:
        return ""
    own = _settings(study)
    return "".join(f", {key}={own.get(key, 'none')}" for key in differing)


def _settings(study: StudyManifest) -> dict[str, str]:
    """Return the settings of a run as text. A class and each of its fields are separate."""
    words: dict[str, str] = {}
    for key, value in study.recipe.items():
        if key in OUTSIDE:
            continue
        if isinstance(value, Mapping) and value.keys() == {"name", "fields"}:
            value = {"": value["name"], **value["fields"]}
        for name, text in set_words(key, value):
            words[name.rstrip(".")] = text
    return words
