"""Status of a site, collected from its folder for the command and for monitoring."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Annotated, cast

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.client import GROUPS, Group
from fallow.data.facts import DataFacts
from fallow.deployment.annotator_statistics import AnnotatorAgreement, PredictionUse
from fallow.deployment.building import build_study
from fallow.deployment.ledger.instructions import SentReplies, sum_replies
from fallow.deployment.site.agreement_text import Disclosed, list_disclosures
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.own_data import compare_with_sites, describe_own_data
from fallow.deployment.site.serve import read_status
from fallow.measurements.meter import Exposure, count_values, measure_exposure
from fallow.storage.errors import StorageError
from fallow.storage.moments import Moment
from fallow.storage.validation import STRICT, Count


@with_config(STRICT)
class CountedLabels(TypedDict):
    """Labeling progress of a site in the newest cycle."""

    asked: Annotated[Count, Field(description="labeling tasks")]
    answered: Annotated[Count, Field(description="labeled examples")]
    declined: Annotated[
        Count, Field(description="examples with an answer that is no label")
    ]
    conflicts: Annotated[Count, Field(description="examples on which annotators disagree")]
    open: Annotated[Count, Field(description="open labeling tasks")]
    deadline: Annotated[Moment | None, Field(description="when open labeling tasks expire")]


@with_config(STRICT)
class SentGroup(TypedDict):
    """Replies of one kind that left the site over all runs."""

    kind: Annotated[Group, Field(description="kind of the data")]
    exchanges: Annotated[Count, Field(description="number of replies")]
    bytes: Annotated[Count, Field(description="size of the replies in bytes")]


@with_config(STRICT)
class UnreadableData(TypedDict):
    """Reason why the data of the site cannot be read."""

    problem: Annotated[str, Field(description="reason")]


@with_config(STRICT)
class SiteProgress(TypedDict):
    """Connection, labels, sent replies and privacy budget of a site."""

    site: Annotated[str, Field(description="name of the site")]
    study: Annotated[str, Field(description="name of the study")]
    digest: Annotated[str, Field(description="fingerprint of the study agreement")]
    pid: Annotated[
        Count | None, Field(description="process of the site; null: not running")
    ]
    since: Annotated[
        str | None, Field(description="start of the connection; null: just started")
    ]
    problem: Annotated[
        str | None, Field(description="why the coordinator is unreachable, or null")
    ]
    labels: Annotated[
        CountedLabels, Field(description="labeling progress in the newest cycle")
    ]
    agreement: Annotated[
        AnnotatorAgreement, Field(description="agreement of the annotators")
    ]
    predictions: Annotated[
        PredictionUse, Field(description="labels given beside predictions and without")
    ]
    none_of_these: Annotated[
        Count, Field(description="examples that no class fits, over all runs")
    ]
    decided: Annotated[Count, Field(description="examples with an answer over all runs")]
    asked: Annotated[Count, Field(description="requested annotations over all runs")]
    limit: Annotated[Count | None, Field(description="label budget over all runs")]
    copied: Annotated[
        str | None, Field(description="time of the restored copy of the ledger, or null")
    ]
    copy_age: Annotated[
        float | None,
        Field(description="age of the newest copy of the ledger in seconds, or null"),
    ]
    put_back: Annotated[
        str | None, Field(description="privacy budget charged for a restored ledger")
    ]
    epsilon: Annotated[float, Field(ge=0, description="privacy budget spent (ε)")]
    epsilon_limit: Annotated[float | None, Field(description="privacy budget (ε)")]
    delta: Annotated[float, Field(ge=0, description="delta spent on Gaussian noise")]
    delta_limit: Annotated[
        float | None,
        Field(description="delta budget; null without Gaussian noise"),
    ]
    sent: Annotated[list[SentReplies], Field(description="replies that left the site")]


@with_config(STRICT)
class SiteStatus(SiteProgress):
    """Status of a site, as `fallow site status --json` prints it."""

    kinds: Annotated[
        list[SentGroup], Field(description="replies that left the site, by kind")
    ]
    exposure: Annotated[
        Exposure,
        Field(
            description="exact numbers that left the site over all runs, and values of examples"
        ),
    ]
    data: Annotated[
        DataFacts | UnreadableData, Field(description="summary of the site's own data")
    ]


def collect_progress(folder: SiteFolder) -> SiteProgress:
    """Return the status of a site without a summary of its data, which takes longer."""
    process = read_status(folder)
    with closing(folder.open_ledger()) as ledger:
        none, decided = ledger.requests.count_none()
        age = None
        if ledger.copy.exists():
            age = max(0.0, time.time() - ledger.copy.stat().st_mtime)
        progress = ledger.progress()
        until = None
        cycle = max(ledger.cycles(), default=None)
        if progress.open and cycle is not None:
            until = ledger.find_deadline(cycle)
        return {
            "site": folder.name,
            "study": folder.agreement.name,
            "digest": folder.agreement.digest,
            "pid": process.pid,
            "since": process.since,
            "problem": process.problem,
            "labels": cast(CountedLabels, {**asdict(progress), "deadline": until}),
            "agreement": ledger.measure_agreement(),
            "predictions": ledger.measure_predictions(),
            "none_of_these": none,
            "decided": decided,
            "asked": ledger.requests.asked,
            "limit": folder.settings.limit,
            "copied": ledger.store.find_copy_time(),
            "copy_age": age,
            "put_back": ledger.store.describe_restored_ledger(),
            "epsilon": ledger.store.sum_spent(),
            "epsilon_limit": folder.epsilon,
            "delta": ledger.store.sum_spent_delta(),
            "delta_limit": folder.delta,
            "sent": ledger.instructions.traffic(),
        }


def collect_status(folder: SiteFolder) -> SiteStatus:
    """Return the status of a site with a summary of its data."""
    with closing(folder.open_ledger()) as ledger:
        labels = ledger.store.load_labels(folder.name)
        scale = ledger.store.load_states(folder.name).get("features", {})
    data: DataFacts | UnreadableData
    try:
        facts = describe_own_data(folder)
        facts["warnings"] += compare_with_sites(folder, scale)
        data = facts
    except (ValueError, StorageError) as error:  # the rest of the status is valid
        data = {"problem": str(error)}
    progress = collect_progress(folder)
    built = build_study(folder.agreement)
    schema = folder.agreement.schema
    return {
        **progress,
        "exposure": measure_exposure(
            built.methods,
            built.dims,
            count_values(schema.features, schema.shape),
            sum_replies(progress["sent"]),
            [sum(not label.is_validation for label in labels)],
            is_noisy=folder.agreement.config.privacy.epsilon is not None,
        ),
        "kinds": group_sent(progress["sent"], list_disclosures(folder)),
        "data": data,
    }


def group_sent(
    sent: Iterable[SentReplies], disclosures: Iterable[Disclosed]
) -> list[SentGroup]:
    """Return the replies that left the site by the kind of their data.

    Replies without data, such as those to training, are status.
    """
    groups = {disclosure.function: disclosure.group for disclosure in disclosures}
    totals: dict[Group, SentGroup] = {}
    for line in sent:
        group = groups.get(line["function"], "status")
        total = totals.setdefault(group, {"kind": group, "exchanges": 0, "bytes": 0})
        total["exchanges"] += line["exchanges"]
        total["bytes"] += line["bytes"]
    return [totals[group] for group in GROUPS if group in totals]
