"""What a person's own data came to, counted: for those who look at it before and after a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import torch

from fallow.core.words import join_some
from fallow.data.dataset import Dataset, row_sums
from fallow.data.reading import ALL, Reading


class SiteFacts(TypedDict):
    """Rows of one site: read, kept, of which for training and for tests, and kept by class."""

    site: str
    read: int
    kept: int
    train: int
    test: int
    classes: dict[str, int]


class ColumnFacts(TypedDict):
    """A column of the table: what it is, its texts, empty cells in all and by site."""

    name: str
    kind: str
    values: list[str]
    missing: int
    missing_at: dict[str, int]
    why: str


class LeftOutFacts(TypedDict):
    """Rows that were left out, by site, and why."""

    why: str
    rows: dict[str, int]


class DataFacts(TypedDict):
    """All of it.  duplicates: rows that have an equal one above them; crossing: of those, test rows
    that are also training rows."""

    source: str
    read: int
    kept: int
    sites: list[SiteFacts]
    lost: list[str]
    left_out: list[LeftOutFacts]
    columns: list[ColumnFacts]
    classes: dict[str, int]
    duplicates: int
    crossing: int
    warnings: list[str]


def describe_data(found: Dataset, *, comes_labelled: bool = True) -> DataFacts | None:
    """The facts of a data set that was read from a person's own files; None of any other.

    comes_labelled: else people label later, and it is no surprise that labels are few.
    """
    reading = found.reading
    if reading is None:
        return None
    sites = _sites(found, reading)
    sums = row_sums(found.x)
    sums_test = row_sums(found.x_test)
    together = len(sums) + len(sums_test)
    classes: Counter[str] = Counter()
    for site in sites:
        classes.update(site["classes"])
    lost = [site["site"] for site in sites if site["kept"] == 0]
    return DataFacts(
        source=reading.source,
        read=reading.total,
        kept=len(found.x) + len(found.x_test),
        sites=[site for site in sites if site["kept"]],
        lost=lost,
        left_out=[
            LeftOutFacts(why=each.why, rows={s: n for s, n in each.rows.items() if n})
            for each in reading.left_out
        ],
        columns=[
            ColumnFacts(
                name=column.name,
                kind=column.kind,
                values=list(column.values),
                missing=column.missing,
                missing_at=dict(column.missing_at),
                why=column.why,
            )
            for column in reading.columns
        ],
        classes={name: classes[name] for name in found.classes},
        duplicates=together - len(np.unique(np.concatenate([sums, sums_test]))),
        crossing=int(np.isin(sums_test, sums).sum()),
        warnings=_warnings(found, sites, lost, classes if comes_labelled else None),
    )


def _sites(found: Dataset, reading: Reading) -> list[SiteFacts]:
    """Each site that was read; one without a name where the data names none."""
    if found.groups is None or ALL in reading.rows:
        return [_site(found, ALL, reading.total, None)]
    number = {name: group for group, name in enumerate(found.group_names)}
    return [_site(found, site, n, number.get(site, -1)) for site, n in reading.rows.items()]


def _site(found: Dataset, name: str, read: int, group: int | None) -> SiteFacts:
    """The facts of a site by the number of its group; None: of all rows."""
    y = found.y
    y_test = found.y_test
    if group is not None and found.groups is not None:
        y = y[found.groups == group]
        is_here = found.groups_test == group if found.groups_test is not None else None
        y_test = y_test[is_here] if is_here is not None else y_test[:0]
    counts: dict[str, int] = {}
    if found.classes:
        both = torch.cat([y, y_test])
        numbers = torch.bincount(both[both >= 0], minlength=found.n_classes).tolist()
        counts = dict(zip(found.classes, numbers, strict=True))
    return SiteFacts(
        site=name,
        read=read,
        kept=len(y) + len(y_test),
        train=len(y),
        test=len(y_test),
        classes=counts,
    )


def _warnings(
    found: Dataset,
    sites: Sequence[SiteFacts],
    lost: Sequence[str],
    classes: Mapping[str, int] | None,
) -> list[str]:
    """What should be looked at before anything starts, in sentences.

    classes: how many rows have each; None: they are labelled later.
    """
    said: list[str] = []
    single = [s["site"] for s in sites if s["kept"] == 1 and s["site"] != ALL]
    if single:
        said.append(f"only one row at {join_some(single)}: nothing can be chosen there")
    if lost:
        said.append(
            f"{join_some(list(lost))}: no row is left, so no site of that name takes part"
        )
    bare = [s["site"] for s in sites if s["kept"] > 1 and not s["train"]]
    if bare:
        said.append(f"{join_some(bare)}: test rows alone, and none to train on")
    if classes is None:
        return said
    once = [name for name in found.classes if classes[name] == 1]
    if once:
        said.append(
            f"one label in all of {join_some(once)}: it can be learnt or tested, not both"
        )
    never = [name for name in found.classes if classes[name] == 0]
    if never:
        said.append(f"no row is labelled {join_some(never)}")
    return said


def data_lines(facts: DataFacts) -> list[str]:
    """The facts in a few lines, as a command shows them."""
    lines = [f"Your data: {facts['source']}"]
    kept = f"{facts['kept']:,} kept" if facts["kept"] < facts["read"] else "all kept"
    lines.append(f"  rows: {facts['read']:,} read, {kept}")
    for gone in facts["left_out"]:
        at = [f"{site} {n:,}" for site, n in gone["rows"].items() if site != ALL]
        where = f" ({join_some(at)})" if at else ""
        lines.append(f"    {sum(gone['rows'].values()):,} left out: {gone['why']}{where}")
    named = [site for site in facts["sites"] if site["site"] != ALL]
    if named:
        lost = f"; lost: {join_some(facts['lost'])}" if facts["lost"] else ""
        lines.append(f"  sites: {len(named)}{lost}")
        for site in named[:MOST_LINES]:
            by_class = ", ".join(f"{name} {n:,}" for name, n in site["classes"].items())
            by_class = f" ({by_class})" if 0 < len(site["classes"]) <= FEW_CLASSES else ""
            lines.append(
                f"    {site['site']}: {site['train']:,} training and {site['test']:,} test "
                f"rows{by_class}"
            )
        if len(named) > MOST_LINES:
            lines.append(f"    and {len(named) - MOST_LINES} others")
    if facts["classes"]:
        sizes = [f"{name} {n:,}" for name, n in facts["classes"].items()]
        lines.append(f"  classes: {len(sizes)} ({join_some(sizes)})")
    lines += _column_lines(facts)
    crossing = facts["crossing"]
    across = "none across training and test rows"
    if crossing:
        across = f"{crossing:,} of them across training and test rows"
    lines.append(f"  duplicates: {facts['duplicates']:,} rows, {across}")
    lines += [f"  look at this: {said}" for said in facts["warnings"]]
    return lines


MOST_LINES = 12
"""Sites that have a line of their own."""
FEW_CLASSES = 6
"""Classes that are counted in such a line."""


def _column_lines(facts: DataFacts) -> list[str]:
    lines: list[str] = []
    by_kind: dict[str, list[ColumnFacts]] = {}
    for column in facts["columns"]:
        by_kind.setdefault(column["kind"], []).append(column)
    numbers = [column["name"] for column in by_kind.get("number", [])]
    if numbers:
        lines.append(f"  numbers: {join_some(numbers)}")
    texts = [f"{c['name']} ({join_some(c['values'])})" for c in by_kind.get("category", [])]
    if texts:
        lines.append(f"  categories: {'; '.join(texts[:MOST_LINES])}")
    lines += [
        f"  left out: {column['name']}, {column['why']}"
        for column in by_kind.get("left out", [])
    ]
    used = [c for c in facts["columns"] if c["kind"] != "left out" and c["missing"]]
    holes = [f"{c['name']} {c['missing']:,}" for c in used]
    if holes:
        total = sum(c["missing"] for c in used)
        lines.append(f"  missing cells: {total:,} ({join_some(holes)})")
    return lines
