"""What a site decides for itself: its file ``site.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fallow.core.types import SiteId
from fallow.federation.toml import toml_of

SECTIONS = {"labels": {"limit": "limit", "annotators": "annotators"},
            "privacy": {"limit": "epsilon"}}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What a site decides for itself: the file ``site.toml``.

    data, test: its rows; paths count from the folder.  superlink: ``host:port`` of the coordinator;
    certificates: of the authority by which the coordinator's machine is known, None: those that
    the system trusts.  limit: labels that its people ever give; annotators: how many must agree on
    each; epsilon: what it ever spends on noise, None: as the agreement says.
    """

    name: SiteId
    data: str
    test: str | None = None
    superlink: str | None = None
    certificates: str | None = None
    limit: int | None = None
    annotators: int = 1
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"labels.limit is {self.limit}; it must be 0 or more")
        if self.annotators < 1:
            raise ValueError(f"labels.annotators is {self.annotators}; somebody must answer")
        if self.epsilon is not None and not self.epsilon > 0:
            raise ValueError(f"privacy.limit is {self.epsilon}; it must be above 0")
        host, _, port = (self.superlink or "h:1").rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"superlink is {self.superlink!r}; give host:port of the coordinator")


def settings_from(tree: Mapping[str, Any]) -> Settings:
    """Settings from those of ``site.toml``; ValueError naming the one that is wrong."""
    flat = {key: value for key, value in tree.items() if key not in SECTIONS}
    for section, names in SECTIONS.items():
        for key, value in dict(tree.get(section, {})).items():
            if key not in names:
                raise ValueError(f"{section}.{key} is not a setting; known: {', '.join(names)}")
            flat[names[key]] = value
    known = ("name", "data", "test", "superlink", "certificates", "limit", "annotators", "epsilon")
    if wrong := [key for key in flat if key not in known]:
        raise ValueError(f"{wrong[0]} is not a setting; known: {', '.join(known[:5])}")
    try:
        found: Settings = TypeAdapter(Settings).validate_python(flat)
    except ValidationError as error:
        first = error.errors()[0]
        where, said = ".".join(map(str, first["loc"])), str(first["msg"])
        said = said.removeprefix("Value error, ")
        raise ValueError(f"{where}: {said}" if where else said) from error
    return found


def settings_text(settings: Settings, study: str) -> str:
    """``site.toml``, for the people of the site to read and change."""

    def line(key: str, value: Any, otherwise: str) -> str:
        return f"{key} = {toml_of(value)}" if value is not None else f"# {key} = {otherwise}"

    return "\n".join([
        f'# Site "{settings.name}" of the study "{study}". What all sites agreed on stands in',
        "# study.toml; this file is the site's own. A change counts from the next start on.",
        line("name", settings.name, ""),
        "# rows to choose from, with or without labels; they must not change while the study runs",
        line("data", settings.data, ""),
        "# rows with labels that models are tested on",
        line("test", settings.test, '"test.csv"'),
        "# the coordinator's machine, and the authority by which it is known",
        line("superlink", settings.superlink, '"coordinator.example:9092"'),
        line("certificates", settings.certificates, '"keys/authority.pem"'),
        "\n[labels]",
        "# labels that the people here ever give, whatever the study asks for",
        line("limit", settings.limit, "100"),
        "# people who must agree on a label",
        line("annotators", settings.annotators, "1"),
        "\n[privacy]",
        "# what this site ever spends on noise (ε), whatever the agreement allows",
        line("limit", settings.epsilon, "4.0"),
    ]) + "\n"  # fmt: skip
