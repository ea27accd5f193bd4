"""Results of commands that collect values themselves, as printed with ``--json``.

Other results are declared where they are collected.  Commands import this module on demand, because
pydantic takes a tenth of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, with_config

from fallow.report.tables import TableRow
from fallow.storage.validation import STRICT, Count


@with_config(STRICT)
@dataclass(frozen=True)
class StudyResult:
    """Result of a study."""

    study: Annotated[str, Field(description="study folder", examples=["runs/mine"])]
    report: Annotated[str, Field(description="report page")]
    summary: Annotated[str, Field(description="conclusion in words")]
    table: Annotated[
        list[TableRow], Field(description="final table, one row for each strategy")
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class WrittenReport:
    """Files of a report."""

    report: Annotated[str, Field(description="report page")]
    notebook: Annotated[str | None, Field(description="notebook, if requested")] = None


@with_config(STRICT)
@dataclass(frozen=True)
class WrittenFile:
    """File that a command has written."""

    file: Annotated[str, Field(description="path of the file", examples=["records.csv"])]


@with_config(STRICT)
@dataclass(frozen=True)
class WrittenPredictions:
    """File with predictions."""

    file: Annotated[str, Field(description="path of the file")]
    rows: Annotated[Count, Field(description="number of predictions")]
    lacking: Annotated[
        Count, Field(description="number of examples with a missing feature")
    ]
    unclear: Annotated[
        Count | None,
        Field(
            description="number of examples whose prediction set has several classes or none; "
            "null without prediction sets"
        ),
    ] = None
    warnings: Annotated[
        tuple[str, ...], Field(description="differences from the training data")
    ] = ()


@with_config(STRICT)
@dataclass(frozen=True)
class ExportedModel:
    """Files of an exported model."""

    onnx: Annotated[str | None, Field(description="ONNX file, if requested")] = None
    torch: Annotated[str | None, Field(description="torch.export file, if requested")] = (
        None
    )


@with_config(STRICT)
@dataclass(frozen=True)
class Citation:
    """References of a study."""

    bibtex: Annotated[str, Field(description="BibTeX entries")]
    file: Annotated[str | None, Field(description="output file, if requested")] = None


@with_config(STRICT)
@dataclass(frozen=True)
class WrittenStudy:
    """New study file, and the data that it names."""

    file: Annotated[str, Field(description="path of the file", examples=["heart.toml"])]
    sheet: Annotated[str | None, Field(description="data sheet; null for a named dataset")]
    rows: Annotated[Count, Field(description="number of training examples")]
    classes: Annotated[
        tuple[str, ...], Field(description="class names; empty for regression")
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class NewFolder:
    """New folder with an example."""

    folder: Annotated[str, Field(description="path of the folder")]
    files: Annotated[tuple[str, ...], Field(description="names of its files")]


@with_config(STRICT)
@dataclass(frozen=True)
class NewSite:
    """New folder of a site."""

    folder: Annotated[str, Field(description="path of the folder", examples=["basel"])]
    join: Annotated[str, Field(description="file for the coordinator")]
    site: Annotated[str, Field(description="name of the site")]
    study: Annotated[str, Field(description="name of the study")]
    digest: Annotated[str, Field(description="fingerprint of the study agreement")]
    fingerprint: Annotated[str, Field(description="fingerprint of the site's keys")]
    rows: Annotated[Count, Field(description="number of examples")]
    labeled: Annotated[Count, Field(description="number of labeled examples")]
    limit: Annotated[Count | None, Field(description="label budget over all runs")]


@with_config(STRICT)
@dataclass(frozen=True)
class NewFederation:
    """New folder of a coordinator."""

    folder: Annotated[str, Field(description="path of the folder", examples=["heart"])]
    study: Annotated[str, Field(description="study agreement for the sites")]
    name: Annotated[str, Field(description="name of the study")]
    digest: Annotated[str, Field(description="fingerprint of the study agreement")]
    sites: Annotated[tuple[str, ...], Field(description="names of the sites")]
    address: Annotated[str, Field(description="address of the coordinator")]
    transport: Annotated[str, Field(description="transport", examples=["https"])]


@with_config(STRICT)
@dataclass(frozen=True)
class AdmittedSite:
    """Site that was admitted."""

    site: Annotated[str, Field(description="name of the site")]
    fingerprint: Annotated[str, Field(description="fingerprint of its keys")]
    again: Annotated[bool, Field(description="whether it had been admitted before")]


@with_config(STRICT)
@dataclass(frozen=True)
class Admission:
    """Sites that were admitted, and what is left to do."""

    admitted: Annotated[
        tuple[AdmittedSite, ...], Field(description="sites that were admitted")
    ]
    missing: Annotated[
        tuple[str, ...], Field(description="sites that are not admitted yet")
    ]
    digest: Annotated[str, Field(description="fingerprint of the study agreement")]
    restart: Annotated[
        bool, Field(description="whether a running coordinator uses the previous keys")
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class RevokedSite:
    """Site whose keys were revoked."""

    site: Annotated[str, Field(description="name of the site")]
    again: Annotated[bool, Field(description="whether they had been revoked before")]
    reason: Annotated[
        str | None, Field(description="why the study cannot proceed, or null")
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class Advance:
    """Pending labels or sites that the study proceeds without."""

    labels: Annotated[bool, Field(description="whether labeling tasks are withdrawn")]
    sites: Annotated[tuple[str, ...], Field(description="sites that are left out")] = ()


@with_config(STRICT)
@dataclass(frozen=True)
class Stopping:
    """Coordinator that was requested to stop."""

    folder: Annotated[str, Field(description="folder of the coordinator")]


@with_config(STRICT)
@dataclass(frozen=True)
class EventLine:
    """Event of a running coordinator or site, one line each."""

    time: Annotated[str, Field(description="time in UTC, ISO 8601")]
    event: Annotated[str, Field(description="kind of event", examples=["round"])]
    text: Annotated[str, Field(description="event in words")]


@with_config(STRICT)
@dataclass(frozen=True)
class LabelingPage:
    """Labeling page of a site."""

    site: Annotated[str, Field(description="name of the site")]
    address: Annotated[
        str, Field(description="address of the page, which contains its secret")
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class ConfigRow:
    """Experiment configuration that is available by name."""

    name: Annotated[str, Field(description="name", examples=["demo"])]
    title: Annotated[str, Field(description="title in reports")]
    data: Annotated[str, Field(description="dataset")]
    partition: Annotated[str, Field(description="partition of the examples")]
    sites: Annotated[Count, Field(description="number of sites")]
    model: Annotated[str, Field(description="model")]
    strategies: Annotated[tuple[str, ...], Field(description="query strategies")]
    seeds: Annotated[Count, Field(description="number of seeds")]
    published: Annotated[str | None, Field(description="published table, if there is one")]


@with_config(STRICT)
@dataclass(frozen=True)
class PaperRow:
    """Table or figure of a paper."""

    paper: Annotated[str, Field(description="paper")]
    item: Annotated[str, Field(description="table or figure", examples=["figure-2"])]
    title: Annotated[str, Field(description="content")]
    configuration: Annotated[
        tuple[str, ...], Field(description="experiment configurations")
    ]
    data: Annotated[tuple[str, ...], Field(description="datasets")]
    studies: Annotated[Count, Field(description="number of studies")]
    two_cores: Annotated[float | None, Field(description="estimated seconds on two cores")]
    one_gpu: Annotated[
        float | None, Field(description="assumed seconds on one GPU, not measured")
    ]
    done: Annotated[
        str, Field(description='scale of the measured results: "no", "reduced" or "full"')
    ]
    record: Annotated[str, Field(description="document with the measured results")]
    missing: Annotated[str, Field(description="what is missing to run it")]
