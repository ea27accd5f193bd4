"""Result of a description: figures of each column, over all sites and by site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from fallow.core.types import SiteId
from fallow.engine.column_counts import (
    QUANTILES,
    DescribedColumn,
    Floats,
    find_quantile,
    measure_drift,
)
from fallow.storage.received import parse_json, read_regular
from fallow.storage.validation import find_error

FILE = "description.json"
"""File of a description in the folder of a study."""


class QuantileFacts(TypedDict):
    """Quantile of a column, with the bounds between which it lies."""

    share: Annotated[float, Field(description="share of the values that are smaller")]
    value: Annotated[float | None, Field(description="interpolated value")]
    low: Annotated[float | None, Field(description="lower bound")]
    high: Annotated[float | None, Field(description="upper bound")]


class CountFacts(TypedDict):
    """Counts of a column at a site, or at all sites."""

    site: Annotated[str, Field(description='site; "" for all sites')]
    values: Annotated[int, Field(ge=0, description="examples with a value")]
    missing: Annotated[int, Field(ge=0, description="examples without a value")]
    counts: Annotated[
        list[int],
        Field(description="examples by level, or below, in each bin, and above the bins"),
    ]
    quantiles: Annotated[list[QuantileFacts], Field(description="quantiles of numbers")]
    drift: Annotated[
        float | None, Field(description="Jensen-Shannon distance from all other sites")
    ]
    chance: Annotated[
        float | None, Field(description="95 % quantile of this distance by chance")
    ]


class ColumnDescription(TypedDict):
    """Description of a column."""

    name: Annotated[str, Field(description="name of the column")]
    levels: Annotated[list[str], Field(description="levels; none for numbers")]
    edges: Annotated[list[float], Field(description="edges of the bins of numbers")]
    all: Annotated[CountFacts, Field(description="counts of all sites")]
    sites: Annotated[
        list[CountFacts],
        Field(description="counts of each site; none under secure aggregation"),
    ]


class Description(TypedDict):
    """Description of the data of all sites."""

    columns: Annotated[list[ColumnDescription], Field(description="columns and labels")]
    silent: Annotated[
        list[str],
        Field(description="sites that do not describe their data (describe.allowed)"),
    ]
    notes: Annotated[list[str], Field(description="what the figures leave out")]


BY_SITE = (
    "Secure aggregation shows only sums of all sites; figures by site and drift need a study "
    "with privacy.secure_sum = false."
)


def describe_counts(
    columns: Sequence[DescribedColumn],
    edges: Floats,
    counts: Mapping[SiteId, Sequence[Floats]],
    *,
    of_sites: bool,
) -> Description:
    """Return the description that follows from the counts of each site, or of all under "".

    edges: (numeric columns, BINS + 1).  counts: the counts of the cells of each column.
    """
    names = list(counts) if of_sites else []
    own_edges = iter(edges)
    described: list[ColumnDescription] = []
    for at, column in enumerate(columns):
        bins = np.zeros(0) if column.values else next(own_edges)
        cells = {site: columns_of_site[at] for site, columns_of_site in counts.items()}
        total = np.sum([*cells.values()], axis=0)
        sites = [_describe(column, site, cells[site], bins) for site in names]
        if sites:
            values = np.stack([cells[site][1:] for site in names])
            drifts = measure_drift(values, is_ordered=not column.values)
            for site_facts, drift, chance in zip(sites, *drifts, strict=True):
                if not np.isnan(drift):
                    site_facts["drift"] = float(drift)
                    site_facts["chance"] = float(chance)
        described.append(
            ColumnDescription(
                name=column.name,
                levels=list(column.values),
                edges=bins.tolist(),
                all=_describe(column, "", total, bins),
                sites=sites,
            )
        )
    silent = [site for site in names if not any(cells.sum() for cells in counts[site])]
    return Description(
        columns=described,
        silent=silent,
        notes=[] if of_sites else [BY_SITE],
    )


def _describe(
    column: DescribedColumn, site: SiteId, cells: Floats, edges: Floats
) -> CountFacts:
    """Return the figures of a column at one site, or at all."""
    values = cells[1:]
    quantiles: list[QuantileFacts] = []
    if not column.values:
        for share in QUANTILES:
            item = find_quantile(cells, edges, share)
            quantiles.append(
                QuantileFacts(share=share, value=item.value, low=item.low, high=item.high)
            )
    return CountFacts(
        site=site,
        values=round(float(values.sum())),
        missing=round(float(cells[0])),
        counts=[round(float(count)) for count in values],
        quantiles=quantiles,
        drift=None,
        chance=None,
    )


def read_description(folder: Path) -> Description | None:
    """Return the description in the folder of a study, or None without a valid one."""
    try:
        json = parse_json(read_regular(folder / FILE))
    except (OSError, ValueError):
        return None
    if find_error(Description, json) is not None:
        return None
    return cast(Description, json)
