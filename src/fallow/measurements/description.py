"""Description of the data of all sites before a study, from counts in two exchanges.

The result has figures of each column, over all sites and by site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import TypedDict

from fallow.core import client
from fallow.core.ask import Ask, each_of_all, sum_of_all
from fallow.core.client import ClientCall
from fallow.core.composites import Composite, Parts
from fallow.core.contract import Contract
from fallow.core.exchange_key import ExchangeKey
from fallow.core.types import SiteId, Values
from fallow.core.values import Count, Kind, Real, SenderFacts
from fallow.core.view import Rows, View
from fallow.core.wording import join_some, was_or_were
from fallow.engine.column_counts import (
    BINS,
    CELLS,
    FIRST_CELLS,
    FIRST_EDGES,
    QUANTILES,
    DescribedColumn,
    Floats,
    choose_edges,
    count_levels,
    count_numbers,
    find_quantile,
    join_labels,
    measure_drift,
)
from fallow.storage.received import parse_json, read_regular
from fallow.storage.validation import find_error

FILE = "description.json"
"""File of a description in the folder of a study."""
DESCRIBE = ExchangeKey("describe", "describe")
MOST_COLUMNS = 200
"""Largest number of described columns; further ones are left out."""
MOST_NUMBERS = 30
"""Largest number of unnamed numbers of an example that are described one by one."""
KINDS: tuple[Rows, ...] = ("pool", "labeled", "validation")
TESTED = " (test)"
"""Suffix of the label of the test examples."""
DISCLOSED = (
    "counts of each column's values, also of single ones, if the coordinator requests a "
    "description and the site allows it (describe.allowed)"
)


@final
@dataclass(frozen=True)
class ColumnCounts(Composite):
    """Counts of the cells of columns.

    ``n_numbers``, ``cells``: number of numeric columns and of their cells.  ``levels``: number of
    cells of each categorical column.  No column has more examples than the site.
    """

    n_numbers: int
    cells: int
    levels: tuple[int, ...] = ()

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "number_counts": Count((self.n_numbers, self.cells), of="rows"),
            "level_counts": Count(sum(self.levels), of="rows"),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        limit = known.rows * (1 + 1e-6)
        for counts in (*parts["number_counts"], *self.split(parts["level_counts"])):
            total = float(counts.sum())
            if total > limit + known.room * len(counts):
                return (
                    f"a column has {total:g} examples, and {known.describe_limit('rows')}"
                )
        return None

    def split(self, levels: Tensor) -> Sequence[Tensor]:
        """Return the counts of each categorical column."""
        return torch.split(levels, list(self.levels))


@final
@dataclass(frozen=True)
class Describe:
    """Describe the columns and labels of all sites by counts.

    The first exchange counts numbers between the same edges for every column and study, and the
    levels of categories.  From the sum, the server side chooses edges of bins of equal width, and
    the second exchange counts between these.

    Parameters
    ----------
    columns : sequence of DescribedColumn
        Columns of the examples.
    label : DescribedColumn
        The label.
    secure_sum : bool
        Only sums of all sites leave the sites.
    is_allowed : bool
        At a site: whether it describes its data (setting ``describe.allowed``); else all counts
        are 0.
    tests : Tensor, optional
        At a site: labels of its test examples (m,).
    left_out : sequence of str
        Columns that are not described.
    """

    columns: tuple[DescribedColumn, ...] = (DescribedColumn("x0"),)
    label: DescribedColumn = DescribedColumn("label")
    secure_sum: bool = False
    is_allowed: bool = True
    tests: Tensor | None = field(default=None, compare=False, repr=False)
    left_out: tuple[str, ...] = field(default=(), compare=False)

    contract: ClassVar[Contract] = Contract(title="Description of the data")

    @property
    def all_columns(self) -> tuple[DescribedColumn, ...]:
        """The columns, the label, and the label of the test examples."""
        of_tests = DescribedColumn(self.label.name + TESTED, self.label.values)
        return (*self.columns, self.label, of_tests)

    @property
    def first_counts(self) -> ColumnCounts:
        """Declaration of the first reply."""
        levels = tuple(column.cells for column in self.all_columns if column.values)
        return ColumnCounts(self._n_numbers, FIRST_CELLS, levels)

    @property
    def bin_counts(self) -> ColumnCounts:
        """Declaration of the second reply."""
        return ColumnCounts(self._n_numbers, CELLS)

    @property
    def _n_numbers(self) -> int:
        return sum(not column.values for column in self.all_columns)

    # -- server side ------------------------------------------------------------------------

    def describe(self, ask: Ask) -> Description:
        """Return the description of all sites, and of each without secure aggregation."""
        first = self._collect(ask, self.first)
        total = sum(torch.as_tensor(part["number_counts"]) for part in first.values())
        rows = torch.as_tensor(total).numpy()
        edges = np.stack([choose_edges(row) for row in rows] or [np.zeros(BINS + 1)])
        edges = edges[: self._n_numbers]
        bins = self._collect(ask, self.bins, edges=torch.from_numpy(edges))
        counts = {site: self._sort(first[site], bins[site]) for site in first}
        facts = describe_counts(
            self.all_columns, edges, counts, of_sites=not self.secure_sum
        )
        if self.left_out:
            facts["notes"].append(
                f"{join_some(self.left_out)} {was_or_were(len(self.left_out))} not described: columns "
                f"of free text, and columns after the first {MOST_COLUMNS}, are left out."
            )
        return facts

    def _collect(
        self, ask: Ask, function: ClientCall, **args: Any
    ) -> Mapping[SiteId, Values]:
        """Return the replies of all sites, or their sum under an empty name."""
        if self.secure_sum:
            return {"": dict(sum_of_all(ask, function, **args))}
        return each_of_all(ask, function, **args)

    def _sort(self, first: Values, bins: Values) -> list[Floats]:
        """Return the counts of each column in order."""
        numbers = iter(torch.as_tensor(bins["number_counts"]).double().round())
        levels = torch.as_tensor(first["level_counts"]).double().round()
        parts = iter(self.first_counts.split(levels))
        cells = []
        for column in self.all_columns:
            part = next(parts) if column.values else next(numbers)
            cells.append(part.numpy())
        return cells

    # -- client side --------------------------------------------------------------------------

    def at_site(self, is_allowed: bool, tests: Tensor) -> Describe:
        return replace(self, is_allowed=is_allowed, tests=tests)

    @client.each(
        DISCLOSED,
        returns=lambda self: self.first_counts,
        when=lambda self: not self.secure_sum,
    )
    @client.sum(
        f"aggregates of {DISCLOSED}",
        returns=lambda self: self.first_counts,
        when=lambda self: self.secure_sum,
    )
    def first(self, view: View) -> Values:
        """Count all columns between the first edges."""
        numbers: list[Tensor] = []
        levels: list[Tensor] = []
        for column, values in zip(self.all_columns, self._read(view), strict=True):
            if column.values:
                counts = count_levels(values, len(column.values))
                levels.append(torch.from_numpy(counts))
            else:
                numbers.append(torch.from_numpy(count_numbers(values, FIRST_EDGES)))
        return self._reply(self.first_counts, numbers, levels)

    @client.each(
        DISCLOSED,
        returns=lambda self: self.bin_counts,
        takes=lambda self: {"edges": Real((self.bin_counts.n_numbers, BINS + 1))},
        when=lambda self: not self.secure_sum,
    )
    @client.sum(
        f"aggregates of {DISCLOSED}",
        returns=lambda self: self.bin_counts,
        takes=lambda self: {"edges": Real((self.bin_counts.n_numbers, BINS + 1))},
        when=lambda self: self.secure_sum,
    )
    def bins(self, view: View, edges: Tensor) -> Values:
        """Count numbers between the edges (n, BINS + 1)."""
        if bool((edges.diff(dim=1) <= 0).any()):
            raise ValueError("the edges of bins do not increase")
        pairs = zip(self.all_columns, self._read(view), strict=True)
        columns = [values for column, values in pairs if not column.values]
        numbers: list[Tensor] = []
        for values, own in zip(columns, edges.double().numpy(), strict=True):
            numbers.append(torch.from_numpy(count_numbers(values, own)))
        return self._reply(self.bin_counts, numbers, [])

    def _reply(
        self, form: ColumnCounts, numbers: Sequence[Tensor], levels: Sequence[Tensor]
    ) -> Values:
        shape = (form.n_numbers, form.cells)
        counts = torch.zeros(0, dtype=torch.int64)
        of_numbers = torch.cat([counts, *numbers]).double().reshape(shape)
        of_levels = torch.cat([counts, *levels]).double()
        if not self.is_allowed:
            of_numbers = torch.zeros_like(of_numbers)
            of_levels = torch.zeros_like(of_levels)
        return {"number_counts": of_numbers, "level_counts": of_levels}

    def _read(self, view: View) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Return the values of each column of `all_columns`, NaN for missing ones."""
        parts: list[list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = []
        parts += [[] for _ in self.columns]
        for which in KINDS:
            for rows in view.blocks(which):
                if not len(rows):
                    continue
                flat = rows.flatten(1)
                for part, column in zip(parts, self.columns, strict=True):
                    part.append(column.read(flat))
        columns = [np.concatenate(part) for part in parts]
        labels = torch.cat([view.labels.double(), view.validation_labels.double()])
        tests = torch.zeros(0) if self.tests is None else self.tests
        return [*columns, join_labels(labels, view.pool), join_labels(tests, 0)]


def list_table_columns(
    levels: Sequence[tuple[str, tuple[str, ...]]], features: Sequence[str]
) -> tuple[DescribedColumn, ...]:
    """Return the described columns of a table.

    levels: name and levels (none for numbers) of each column.  features: names of the features, in
    which a level is ``name=level``.

    >>> list_table_columns([("sex", ("f", "m")), ("age", ())], ["age", "sex=f", "sex=m"])[
    ...     0
    ... ].start
    1
    """
    position = {name: at for at, name in enumerate(features)}
    columns = []
    for name, values in levels[:MOST_COLUMNS]:
        start = position[f"{name}={values[0]}" if values else name]
        columns.append(DescribedColumn(name, values, start, start + max(len(values), 1)))
    return tuple(columns)


def list_array_columns(shape: Sequence[int]) -> tuple[DescribedColumn, ...]:
    """Return the described numbers of an example without named columns.

    They are the numbers themselves, if there are few, and otherwise mean and standard deviation of
    each channel (the first dimension) or of the whole example.

    >>> [column.name for column in list_array_columns((1, 28, 28))]
    ['mean', 'standard deviation']
    >>> [column.name for column in list_array_columns((2,))]
    ['x0', 'x1']
    """
    size = math.prod(shape)
    if len(shape) == 1 and size <= MOST_NUMBERS:
        return tuple(DescribedColumn(f"x{at}", (), at, at + 1) for at in range(size))
    channels = 1
    if len(shape) > 1 and shape[0] <= MOST_NUMBERS:
        channels = shape[0]
    columns = []
    step = size // channels
    for at in range(channels):
        of = f" of channel {at + 1}" if channels > 1 else ""
        start, stop = at * step, (at + 1) * step
        columns.append(DescribedColumn(f"mean{of}", (), start, stop, "mean"))
        columns.append(
            DescribedColumn(f"standard deviation{of}", (), start, stop, "deviation")
        )
    return tuple(columns)


# -- result: figures of each column, over all sites and by site ------------------------------------


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
    notes = [] if of_sites else [BY_SITE]
    return Description(
        columns=described,
        silent=silent,
        notes=notes,
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
