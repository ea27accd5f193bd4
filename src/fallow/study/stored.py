"""Files of a study: ``study.json`` and ``partition.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, get_type_hints

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.kinds import show_name, show_value
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Published
from fallow.storage.plain import one_line
from fallow.storage.validation import STRICT, Count, Number, Rule, is_usable

LETTERS = 10_000
"""Letters of a setting."""


def is_name(text: str) -> bool:
    """Return whether a text on one line can name a folder and a cell of a table."""
    return text == one_line(text) and text not in ("", ".", "..")


if TYPE_CHECKING:
    ConfigSettings = dict[str, Any]
else:
    ConfigSettings = with_config({"extra": "allow"})(
        TypedDict("ConfigSettings", get_type_hints(ExperimentConfig), total=False)
    )
"""Settings of an experiment configuration, possibly of another version."""


@with_config(STRICT)
class StudyFile(TypedDict):
    """Content of ``study.json``."""

    name: Annotated[str, Field(description="name of the study")]
    title: NotRequired[Annotated[str, Field(description="title of the study")]]
    config: NotRequired[
        Annotated[
            ConfigSettings | None,
            Field(description="settings of the experiment configuration"),
        ]
    ]
    digest: NotRequired[
        Annotated[str, Field(description="digest of the settings that affect results")]
    ]
    reference: NotRequired[
        Annotated[str | None, Field(description="strategy that others are compared with")]
    ]
    strategies: Annotated[
        list[Annotated[str, Rule(is_name, "the name of a strategy")]],
        Field(description="query strategies"),
    ]
    seeds: Annotated[list[Count], Field(description="seeds")]
    command: NotRequired[
        Annotated[str | None, Field(description="command that began the study")]
    ]
    versions: NotRequired[
        Annotated[dict[str, str] | None, Field(description="versions of packages")]
    ]
    published: NotRequired[
        Annotated[Published | None, Field(description="published results to compare with")]
    ]
    classes: NotRequired[
        Annotated[
            list[str] | None, Field(description="names of the classes, at real sites")
        ]
    ]


@with_config(STRICT)
class PartitionFile(TypedDict):
    """Content of ``partition.json``; regression has no counts by class."""

    sites: Annotated[list[str], Field(description="names of the sites")]
    classes: Annotated[list[str], Field(description="names of the classes")]
    flipped: NotRequired[Annotated[list[str], Field(description="sites with wrong labels")]]
    matrix: NotRequired[
        Annotated[list[list[Count]], Field(description="examples by site and class")]
    ]
    sizes: NotRequired[Annotated[list[Count], Field(description="examples by site")]]
    cv: NotRequired[
        Annotated[
            list[Number],
            Field(description="coefficient of variation over sites, by class"),
        ]
    ]
    sigma_pp: NotRequired[
        Annotated[
            list[Number],
            Field(
                description="standard deviation of shares over sites in points, by class"
            ),
        ]
    ]
    absent: NotRequired[
        Annotated[list[Count], Field(description="classes without examples, by site")]
    ]
    kl: NotRequired[
        Annotated[
            list[Number | None],
            Field(description="KL divergence from the pooled shares in nats, by site"),
        ]
    ]
    mean_kl: NotRequired[Annotated[Number, Field(description="mean of `kl`")]]


def check_settings(value: object, name: str) -> None:
    """Raise ValueError for a text or number in a setting that no page can display."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            check_settings(part, f"{name}.{show_name(key)}")
    elif isinstance(value, list):
        for at, part in enumerate(value):
            check_settings(part, f"{name}.{at}")
    elif isinstance(value, str) and len(value) > LETTERS:
        raise ValueError(
            f"{name} has {len(value):,} characters; it must have {LETTERS:,} or fewer"
        )
    elif isinstance(value, float | int) and (value != value or not is_usable(value)):
        raise ValueError(f"{name} is {show_value(value)}; it must be a number")
