"""Cases of a site: rows of one group, which annotators see and answer together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fallow.core.load_options import LoadOptions
from fallow.core.refusal import explain_errors
from fallow.data.dataset import take_some
from fallow.data.loaders.slices import SliceLocation, order_slices
from fallow.deployment.agreement import Agreement
from fallow.deployment.schema import Schema
from fallow.deployment.site.rows import ReadableRow, SiteRows, read_rows
from fallow.experiment.methods import check_cases, joins_groups, slices_of, with_pages
from fallow.settings.config import ExperimentConfig
from fallow.sites.cases import choose_slices

SEPARATOR = " | "
"""Between the cells of a column in the rows of a case."""


def read_site_rows(
    path: str | Path, agreement: Agreement, options: LoadOptions
) -> SiteRows:
    """Read the examples of a site, which are cases if its study selects cases.

    Raises ValueError as `read_rows` and `join_rows` do.
    """
    config = agreement.config
    if agreement.schema.kind == "images":
        options = with_pages(config, options)
    rows = read_rows(path, agreement.schema, options)
    return join_rows(rows, agreement.schema, config)


def join_rows(rows: SiteRows, schema: Schema, config: ExperimentConfig) -> SiteRows:
    """Return the cases of a site if its study selects cases, else the rows unchanged.

    Cases are in the order of their first rows.  They have the name of their group, and of their
    file if each file is a group.  Raises ValueError for rows without groups, and for a case with two
    labels.
    """
    check_cases(config, has_groups=rows.groups is not None)
    if not joins_groups(config) or rows.groups is None:
        return rows
    members: dict[str, list[int]] = {}
    for row, group in enumerate(rows.groups):
        members.setdefault(group, []).append(row)
    ids = tuple(_name_case(rows, group, own) for group, own in members.items())
    name, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{times} cases have the name {name!r}; make names unique")
    of_case = tuple(
        _order_rows(rows, own, name)
        for name, own in zip(ids, members.values(), strict=True)
    )
    labels = tuple(
        _find_label(rows, own, name, schema) for name, own in zip(ids, of_case, strict=True)
    )

    def describe(case: int) -> ReadableRow:
        return _describe(rows, of_case[case])

    case_of_row: dict[int, int] = {}
    for case, own in enumerate(of_case):
        for at in choose_slices(len(own), *slices_of(config)):
            case_of_row[own[at]] = case
    used = sorted(case_of_row)
    x = rows.x
    predictions = rows.predictions
    if len(used) < len(x):
        x = x[used]
        predictions = take_some(predictions, torch.tensor(used))
    return replace(
        rows,
        x=x,
        predictions=predictions,
        labels=labels,
        ids=ids,
        describe=describe,
        views=None,
        groups=None,
        is_page=(),
        each=rows,
        of_case=of_case,
        case_of=tuple(case_of_row[row] for row in used),
    )


def _name_case(rows: SiteRows, group: str, own: Sequence[int]) -> str:
    """Return the name of a case: its group, or the name of its file or folder if that is one."""
    first = own[0]
    shown = rows.describe(first)
    if not isinstance(shown, Path):
        return group
    if str(shown.parent.resolve()) == group:
        return shown.parent.name
    if str(shown.resolve()) != group:
        return group
    if rows.is_page and rows.is_page[first]:
        return rows.ids[first].rpartition("#")[0]
    return rows.ids[first]


def _order_rows(rows: SiteRows, own: Sequence[int], name: str) -> tuple[int, ...]:
    """Return the rows of a case, and the slices of each series in the order of their locations.

    Raises ValueError for a series whose slices are not those of one volume.
    """
    volumes: dict[str, dict[int, SliceLocation]] = {}  # locations of rows by series
    others: list[int] = []
    for row in own:
        location = rows.locations[row] if rows.locations else None
        if location is None:
            others.append(row)
        else:
            volumes.setdefault(location.series, {})[row] = location
    ordered: list[int] = []
    for volume in volumes.values():
        slices = list(volume)
        with explain_errors(f"the case {name!r} is no volume: "):
            order = order_slices([*volume.values()], [rows.ids[row] for row in slices])
        ordered += [slices[at] for at in order]
    return (*ordered, *others)


def _find_label(
    rows: SiteRows, own: Sequence[int], name: str, schema: Schema
) -> float | None:
    """Return the label of the rows of a case, None without any."""
    labels = {label for row in own if (label := rows.labels[row]) is not None}
    if len(labels) > 1:
        first, second, *_ = sorted(map(schema.words, labels))
        raise ValueError(
            f"rows of the case {name!r} have the labels {first!r} and {second!r}; give all the "
            "same one"
        )
    return next(iter(labels), None)


def _describe(rows: SiteRows, own: Sequence[int]) -> ReadableRow:
    """Return the first image of a case, or the cells of its rows side by side."""
    shown = [rows.describe(row) for row in own]
    tables = [cells for cells in shown if not isinstance(cells, Path)]
    if len(tables) < len(shown):
        return shown[0]
    return tuple(
        (column[0][0], SEPARATOR.join(text for _, text, _ in column), column[0][2])
        for column in zip(*tables, strict=True)
    )
