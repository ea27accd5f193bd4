"""What a site decides for itself: its file ``site.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from fallow.core.build import nearest
from fallow.core.names import NamePolicy
from fallow.core.types import SiteId
from fallow.federation.address import check_address
from fallow.federation.toml import BARE, toml_of

SECTIONS = {
    "labels": {"limit": "limit", "annotators": "annotators", "shown": "shown"},
    "privacy": {"limit": "epsilon"},
    "scores": {"limit": "scores"},
    "runs": {"limit": "runs", "back": "back"},
}
ALLOW = "allow"
"""The section of distributions whose classes an agreement may name, with the digest of each."""
TEXTS = ("name", "data", "test", "superlink", "certificates")
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(TEXTS, ((str,), "a text in quotes")),
    **dict.fromkeys(
        ("limit", "annotators", "shown", "scores", "runs", "back"),
        ((int,), "a whole number"),
    ),
    "epsilon": ((int, float), "a number"),
}


RUNS = 10
"""Runs of one study that a site takes part in, where it says nothing else."""


@dataclass(frozen=True)
class Settings:
    """What a site decides for itself: the file ``site.toml``.

    data, test: its rows; paths count from the folder.  superlink: ``host:port`` of the coordinator;
    certificates: of the authority by which the coordinator's machine is known, None: those that
    the system trusts.  limit: labels that its people ever give; annotators: how many must agree on
    each; epsilon: what it ever spends on noise, None: as the agreement says.  shown: questions that
    its people ever see, None: twice the labels that they may be asked for; scores: how often models
    are scored on its test rows, None: twice as often as one run does.  All are over all runs, of
    which it takes part in ``runs``, None: `RUNS`; each may go ``back`` so often, None: as often as
    the study has sites, between 3 and 10 times.  allow: installed distributions whose classes the
    agreement may name beside Fallow's own, and their digests.
    """

    name: SiteId
    data: str
    test: str | None = None
    superlink: str | None = None
    certificates: str | None = None
    limit: int | None = None
    annotators: int = 1
    epsilon: float | None = None
    shown: int | None = None
    scores: int | None = None
    runs: int | None = None
    back: int | None = None
    allow: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> NamePolicy:
        """Whose classes an agreement may name at this site."""
        return NamePolicy(allowed=self.allow)

    def __post_init__(self) -> None:
        _ = self.names  # which refuses what is no digest
        for name, value in (("name", self.name), ("data", self.data)):
            if not value:
                raise ValueError(
                    f"{name} is empty; write it into site.toml, or give --{name}"
                )
        counts = {
            "labels.limit": self.limit,
            "labels.shown": self.shown,
            "scores.limit": self.scores,
            "runs.limit": self.runs,
            "runs.back": self.back,
        }
        for name, count in counts.items():
            if count is not None and count < 0:
                raise ValueError(f"{name} is {count}; it must be 0 or more")
        if self.annotators < 1:
            raise ValueError(
                f"labels.annotators is {self.annotators}; somebody must answer"
            )
        if self.epsilon is not None and not 0 < self.epsilon < inf:
            raise ValueError(
                f"privacy.limit is {self.epsilon}; it must be above 0 and finite, or left out"
            )
        if self.superlink is not None:
            check_address(self.superlink, "superlink")


def settings_from(tree: Mapping[str, Any]) -> Settings:
    """Settings from those of ``site.toml``; ValueError naming the one that is wrong."""
    flat = {
        key: (key, value)
        for key, value in tree.items()
        if key not in SECTIONS and key != ALLOW
    }
    if wrong := [key for key in flat if key not in TEXTS]:
        raise ValueError(
            f"{wrong[0]} is not a setting{nearest(wrong[0], [*TEXTS, *SECTIONS, ALLOW])}"
        )
    allow = tree.get(ALLOW, {})
    if not isinstance(allow, Mapping):
        raise ValueError(
            f"{ALLOW} is {allow!r}; write [{ALLOW}] on a line of its own and below it a line such "
            'as my-methods = "sha256:..."'
        )
    for section, names in SECTIONS.items():
        found = tree.get(section, {})
        if not isinstance(found, Mapping):
            raise ValueError(
                f"{section} is {found!r}; write [{section}] on a line of its own and "
                f"{' and '.join(names)} below it"
            )
        for key, value in found.items():
            if key not in names:
                raise ValueError(
                    f"{section}.{key} is not a setting{nearest(key, list(names))}"
                )
            flat[names[key]] = (f"{section}.{key}", value)
    for setting, (name, value) in flat.items():
        kinds, wanted = KINDS[setting]
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"{name} is {value!r}; give {wanted}")
    for name in ("name", "data"):
        if name not in flat:
            raise ValueError(f"{name} is missing; write a line {name} = ...")
    return Settings(**{name: value for name, (_, value) in flat.items()}, allow=dict(allow))


def _key(name: str) -> str:
    """A name as TOML has it before ``=``."""
    return name if BARE.fullmatch(name) else toml_of(name)


def settings_text(settings: Settings, study: str) -> str:
    """``site.toml``, for the people of the site to read and change."""

    def line(key: str, value: Any, otherwise: str) -> str:
        return (
            f"{key} = {toml_of(value)}" if value is not None else f"# {key} = {otherwise}"
        )

    return (
        "\n".join(
            [
                f'# Site "{settings.name}" of the study "{study}". What all sites agreed on stands in',
                "# study.toml; this file is the site's own. A change counts from the next start on.",
                line("name", settings.name, ""),
                "# rows to choose from, with or without labels; they must not change while the study"
                " runs",
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
                "# questions that the people here ever see, also those that nobody answers in time;",
                "# otherwise twice the labels that they may be asked for",
                line("shown", settings.shown, "200"),
                "\n[privacy]",
                "# what this site ever spends on noise (ε), whatever the agreement allows",
                line("limit", settings.epsilon, "4.0"),
                "\n[scores]",
                "# how often models are scored on the test rows; otherwise twice as often as one run",
                "# of the study does",
                line("limit", settings.scores, "100"),
                "\n[runs]",
                "# how often the study may begin here: each run can ask all its methods anew",
                line("limit", settings.runs, str(RUNS)),
                "# how often each may go back to ask something anew; otherwise as often as the study",
                "# has sites, between 3 and 10 times",
                line("back", settings.back, "4"),
                f"\n[{ALLOW}]",
                "# installed distributions whose classes study.toml may name beside Fallow's own: the",
                "# digest of each, as a message says it; write one here only after a look at its code",
                *(
                    f"{_key(name)} = {toml_of(mark)}"
                    for name, mark in settings.allow.items()
                ),
            ]
        )
        + "\n"
    )
