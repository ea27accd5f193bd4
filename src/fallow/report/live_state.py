"""State of a run at real sites: ``live.json``, and the status of its coordinator."""

from __future__ import annotations

from typing import Annotated, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.storage.moments import Moment
from fallow.storage.validation import STRICT, Count


@with_config(STRICT)
class LabelCounts(TypedDict, total=False):
    """Labeling progress of a site in a step."""

    asked: Required[Annotated[Count, Field(description="labeling tasks of the step")]]
    answered: Required[Annotated[Count, Field(description="labeled examples")]]
    declined: Annotated[
        Count, Field(description="examples with an answer that is no label")
    ]
    open: Annotated[Count, Field(description="open labeling tasks")]
    conflicts: Annotated[Count, Field(description="examples on which annotators disagree")]


@with_config(STRICT)
class PredictionCounts(TypedDict):
    """Labels beside predictions and without, over all runs of a site."""

    blind: Annotated[Count, Field(description="labels given without a prediction")]
    blind_agreed: Annotated[Count, Field(description="those that equal the prediction")]
    chosen: Annotated[
        Count, Field(description="labels given one by one beside predictions")
    ]
    chosen_agreed: Annotated[
        Count, Field(description="those that equal the likeliest class")
    ]
    confirmed: Annotated[Count, Field(description="predictions confirmed on sheets")]
    again: Annotated[Count, Field(description="confirmed labels that were given again")]
    again_agreed: Annotated[Count, Field(description="those that are equal")]


@with_config(STRICT)
class NoneCounts(TypedDict):
    """Examples that no class fits, over all runs of a site."""

    none_of_these: Annotated[Count, Field(description="examples that no class fits")]
    decided: Annotated[Count, Field(description="examples with an answer")]


@with_config(STRICT)
class SiteState(TypedDict, total=False):
    """State of a site."""

    online: Annotated[bool, Field(description="whether the site is connected")]
    awaited: Annotated[
        Moment | None, Field(description="time since which its reply is pending, or null")
    ]
    seen: Annotated[Moment | None, Field(description="time of its last message")]
    rows: Annotated[Count | None, Field(description="number of training examples")]
    test: Annotated[Count | None, Field(description="number of test examples")]
    labels: Annotated[LabelCounts | None, Field(description="labeling progress")]
    counted: Annotated[Moment | None, Field(description="time of the labeling progress")]
    alpha: Annotated[
        float | None, Field(description="agreement of its annotators, if it is sent")
    ]
    predictions: Annotated[
        PredictionCounts | None, Field(description="labels beside predictions, if sent")
    ]
    none_of_these: Annotated[
        NoneCounts | None, Field(description="examples that no class fits, if sent")
    ]


@with_config(STRICT)
class RejectedReply(TypedDict):
    """Reply that is rejected, limited or unusual."""

    site: Annotated[str, Field(description="name of the site")]
    at: Annotated[Moment, Field(description="time of the latest rejection")]
    exchange: Annotated[str, Field(description="key of the exchange")]
    reason: Annotated[str, Field(description="reason")]


@with_config(STRICT)
class AbsentSite(TypedDict):
    """Site that a round or query proceeds without."""

    site: Annotated[str, Field(description="name of the site")]
    exchange: Annotated[str, Field(description="round or query")]
    at: Annotated[Moment, Field(description="since when")]


@with_config(STRICT)
class WaitingState(TypedDict):
    """Exchange that waits for sites."""

    key: Annotated[str, Field(description="key of the exchange")]
    sites: Annotated[list[str], Field(description="pending sites")]
    needed: Annotated[Count, Field(description="number of replies needed")]
    since: Annotated[Moment, Field(description="since when the exchange waits")]
    until: Annotated[Moment, Field(description="when the exchange ends at the latest")]
    can_advance: Annotated[
        bool, Field(description="whether `advance` proceeds without the pending sites")
    ]
    is_of_all: Annotated[
        bool, Field(description="whether `advance` removes the sites from the study")
    ]


@with_config(STRICT)
class EndedLabels(TypedDict, total=False):
    """Step whose labeling has ended."""

    step: Required[Annotated[str, Field(description="the step")]]
    tasks: Required[Annotated[str, Field(description="name of its labeling tasks")]]
    reason: Required[
        Annotated[str, Field(description="`advance`, `deadline` or another reason")]
    ]
    open: Annotated[Count | None, Field(description="labeling tasks that were still open")]


@with_config(STRICT)
class LiveState(TypedDict, total=False):
    """State of a run at real sites, the content of ``live.json``."""

    state: Required[
        Annotated[
            str,
            Field(
                description="`running`, `stopped`, `finished`, `failed` or `not started`"
            ),
        ]
    ]
    reason: Annotated[str | None, Field(description="reason why the run does not proceed")]
    name: Annotated[str, Field(description="name of the study")]
    pid: Annotated[Count, Field(description="process of the coordinator")]
    started: Annotated[Moment, Field(description="start of the coordinator")]
    updated: Annotated[Moment, Field(description="time of this state")]
    phase: Annotated[str, Field(description="what the run does")]
    step: Annotated[str | None, Field(description="step that is labeled")]
    tasks: Annotated[str | None, Field(description="name of its labeling tasks")]
    cycle: Annotated[Count | None, Field(description="cycle, from 0")]
    cycles: Annotated[Count | None, Field(description="number of cycles")]
    round: Annotated[Count | None, Field(description="round, from 0")]
    rounds: Annotated[Count | None, Field(description="number of rounds in a cycle")]
    deadline: Annotated[Moment | None, Field(description="when open labeling tasks expire")]
    waiting: Annotated[
        WaitingState | None, Field(description="exchange that waits for sites")
    ]
    silent: Annotated[
        dict[str, Moment | None] | None,
        Field(description="last message of sites that do not report their progress"),
    ]
    ended: Annotated[EndedLabels | None, Field(description="step whose labeling has ended")]
    absent: Annotated[
        list[AbsentSite] | None,
        Field(description="sites that rounds or queries proceed without"),
    ]
    left: Annotated[
        dict[str, Moment], Field(description="sites removed from the study, and when")
    ]
    sites: Required[
        Annotated[dict[str, SiteState], Field(description="state of each site")]
    ]
    refusals: Annotated[
        list[RejectedReply] | None,
        Field(description="latest rejected, limited and unusual replies"),
    ]


@with_config(STRICT)
class Status(LiveState):
    """Status of a coordinator, as `fallow coordinate status --json` prints it."""

    digest: Annotated[str, Field(description="fingerprint of the study agreement")]
    alive: Annotated[bool, Field(description="whether a coordinator process is running")]
    closing: Annotated[
        bool,
        Field(description="whether open labeling tasks are being withdrawn on request"),
    ]
    missing: Annotated[list[str], Field(description="sites that are not admitted yet")]
    description: Annotated[
        list[str],
        Field(
            description="sentence on the description of the sites' data, if there is one"
        ),
    ]
    forecast: Annotated[
        list[str], Field(description="sentences on early stops and on further labels")
    ]
    headline: Annotated[
        str | None, Field(description="first sentence of the report, if there is one")
    ]
    measured: Annotated[
        list[str], Field(description="sentences on measurements of the setting measure")
    ]
    hidden: Annotated[
        str | None,
        Field(description="sentence on unusual values that secure aggregation hides"),
    ]
