"""Differences between a study and the experiment whose published results it shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from fallow.catalog import name_of_data
from fallow.configs.find import find_config
from fallow.settings.spec import Spec
from fallow.study.records import StudyManifest

COMPARED = (
    "data",
    "model",
    "partition",
    "sites",
    "rows",
    "rounds",
    "initial",
    "budget",
    "cycles",
)
"""Settings without which published and measured results are not of the same experiment."""


def heading_of_published(differences: str) -> str:
    """Return the heading of published results, which names differences to their setting.

    >>> heading_of_published(""), heading_of_published("sites 5 instead of 10")
    ('Published', 'Published (other setting)')
    """
    return "Published (other setting)" if differences else "Published"


def describe_differences(study: StudyManifest) -> str:
    """Return the settings that differ from those of the published results; empty if none do.

    The published results name an experiment configuration with the settings of their paper.
    """
    if not study.published:
        return ""
    name = study.published["protocol"]
    try:
        protocol = find_config(name).to_dict()
    except ValueError:
        return f"the settings of {name} are not known here"
    differences = []
    for setting in COMPARED:
        if setting not in study.config:  # as in records of real sites
            continue
        here = _show_setting(setting, study.config[setting])
        published = _show_setting(setting, protocol[setting])
        if here != published:
            differences.append(f"{setting} {here} instead of {published}")
    return ", ".join(differences)


def _show_setting(name: str, value: object) -> str:
    """Return the value of a setting as text that does not depend on how it was written."""
    if name == "data":
        return PurePath(name_of_data(str(value))).name
    if name == "rows" and value is None:
        return "all"
    if isinstance(value, Mapping):
        spec = Spec(value["name"], dict(sorted(value["fields"].items())))
        return str(spec)
    return str(value)
