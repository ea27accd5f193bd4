"""Summary of a user's own data, for inspection before and after a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from typing_extensions import TypedDict

from fallow.core.multilabel import PRESENT, read_digits
from fallow.core.wording import join_some
from fallow.data.dataset import Dataset, row_sums
from fallow.data.reading import ALL, ColumnRead, Reading, describe_columns


class SiteFacts(TypedDict):
    """Examples of one site."""

    site: Annotated[str, Field(description="name of the site")]
    read: Annotated[int, Field(ge=0, description="examples in the file")]
    kept: Annotated[int, Field(ge=0, description="examples that are used")]
    train: Annotated[int, Field(ge=0, description="training examples")]
    test: Annotated[int, Field(ge=0, description="test examples")]
    classes: Annotated[dict[str, int], Field(description="used examples by class")]


class ColumnFacts(TypedDict):
    """Column of the table."""

    name: Annotated[str, Field(description="name of the column")]
    kind: Annotated[str, Field(description="type of the cells")]
    role: Annotated[
        str, Field(description="use of the column, such as feature or left out")
    ]
    values: Annotated[list[str], Field(description="levels of a categorical column")]
    missing: Annotated[int, Field(ge=0, description="empty cells")]
    missing_at: Annotated[dict[str, int], Field(description="empty cells by site")]
    reason: Annotated[str, Field(description="why the column is not a feature, or empty")]


class LeftOutFacts(TypedDict):
    """Omitted examples."""

    reason: Annotated[str, Field(description="reason")]
    rows: Annotated[dict[str, int], Field(description="omitted examples by site")]


class DataFacts(TypedDict):
    """Summary of a user's own data."""

    source: Annotated[str, Field(description="file or folder")]
    read: Annotated[int, Field(ge=0, description="examples in the file")]
    kept: Annotated[int, Field(ge=0, description="examples that are used")]
    sites: Annotated[list[SiteFacts], Field(description="examples of each site")]
    lost: Annotated[list[str], Field(description="sites without examples")]
    left_out: Annotated[list[LeftOutFacts], Field(description="omitted examples")]
    columns: Annotated[list[ColumnFacts], Field(description="columns of a table")]
    classes: Annotated[
        dict[str, int], Field(description="used examples by class, or with each label")
    ]
    duplicates: Annotated[
        int, Field(ge=0, description="examples that are equal to an earlier one")
    ]
    crossing: Annotated[
        int, Field(ge=0, description="test examples that are equal to a training example")
    ]
    warnings: Annotated[list[str], Field(description="what to check in the data")]


def describe_data(dataset: Dataset, *, comes_labeled: bool = True) -> DataFacts | None:
    """Summarize a dataset that was read from a user's own files; None for any other.

    comes_labeled: False if annotators label later, so few labels are expected.
    """
    if dataset.reading is None:
        return None
    return summarize(dataset, comes_labeled=comes_labeled)


def summarize(dataset: Dataset, *, comes_labeled: bool = True) -> DataFacts:
    """Summarize any dataset, as `describe_data`."""
    reading = dataset.reading or _count_read(dataset)
    names = dataset.classes or dataset.labels
    sites = _count_sites(dataset, reading)
    sums = row_sums(dataset.x)
    sums_test = row_sums(dataset.x_test)
    together = len(sums) + len(sums_test)
    classes: Counter[str] = Counter()
    for site in sites:
        classes.update(site["classes"])
    lost = [site["site"] for site in sites if site["kept"] == 0]
    left_out = []
    for item in reading.left_out:
        rows = {site: n for site, n in item.rows.items() if n}
        left_out.append(LeftOutFacts(reason=item.reason, rows=rows))
    warnings = [*_warn_of_sites(sites, lost)]
    if comes_labeled:
        warnings += _warn_of_labels(names, classes)
    return DataFacts(
        source=reading.source,
        read=reading.total,
        kept=len(dataset.x) + len(dataset.x_test),
        sites=[site for site in sites if site["kept"]],
        lost=lost,
        left_out=left_out,
        columns=[_describe_column(column) for column in reading.columns],
        classes={name: classes[name] for name in names},
        duplicates=together - len(np.unique(np.concatenate([sums, sums_test]))),
        crossing=int(np.isin(sums_test, sums).sum()),
        warnings=warnings,
    )


def _count_read(dataset: Dataset) -> Reading:
    """Return the summary of a dataset that was not read from a user's own files."""
    rows = {ALL: len(dataset.x) + len(dataset.x_test)}
    if dataset.sites is not None:
        rows = dict.fromkeys(dataset.site_names, 0)
        for sites in (dataset.sites, dataset.sites_test):
            if sites is not None:
                for site, n in Counter(sites.tolist()).items():
                    rows[dataset.site_names[site]] += n
    return Reading(dataset.name, rows)


def _describe_column(column: ColumnRead) -> ColumnFacts:
    return ColumnFacts(
        name=column.name,
        kind=column.kind,
        role=column.role,
        values=list(column.values),
        missing=column.missing,
        missing_at=dict(column.missing_at),
        reason=column.reason,
    )


def _count_sites(dataset: Dataset, reading: Reading) -> list[SiteFacts]:
    """Summarize each site; one without a name if the data name no sites."""
    if dataset.sites is None or ALL in reading.rows:
        return [_count_site(dataset, ALL, reading.total, None)]
    number_of = {name: at for at, name in enumerate(dataset.site_names)}
    sites = []
    for site, read in reading.rows.items():
        at = number_of.get(site, -1)  # None: no example is left
        sites.append(_count_site(dataset, site, read, at))
    return sites


def _count_site(dataset: Dataset, name: str, read: int, at: int | None) -> SiteFacts:
    """Summarize a site by its number; None: all examples."""
    y = dataset.y
    y_test = dataset.y_test
    if at is not None and dataset.sites is not None:
        y = y[dataset.sites == at]
        if dataset.sites_test is None:  # test examples without a site
            y_test = y_test[:0]
        else:
            y_test = y_test[dataset.sites_test == at]
    counts: dict[str, int] = {}
    if dataset.classes:
        both = torch.cat([y, y_test])
        numbers = torch.bincount(both[both >= 0], minlength=dataset.n_classes).tolist()
        counts = dict(zip(dataset.classes, numbers, strict=True))
    if dataset.labels:
        present = read_digits(torch.cat([y, y_test]), len(dataset.labels)) == PRESENT
        counts = dict(zip(dataset.labels, present.sum(0).tolist(), strict=True))
    return SiteFacts(
        site=name,
        read=read,
        kept=len(y) + len(y_test),
        train=len(y),
        test=len(y_test),
        classes=counts,
    )


def _warn_of_sites(sites: Sequence[SiteFacts], lost: Sequence[str]) -> Iterator[str]:
    """Yield warnings about sites with too few examples, as sentences."""
    single = [s["site"] for s in sites if s["kept"] == 1 and s["site"] != ALL]
    if single:
        yield (
            f"only one example at {join_some(single)}: strategies have nothing to select "
            "there"
        )
    if lost:
        yield f"no example remains of {join_some(list(lost))}, so it does not take part"
    bare = [s["site"] for s in sites if s["kept"] > 1 and not s["train"]]
    if bare:
        yield f"only test examples, and none for training, at {join_some(bare)}"


def _warn_of_labels(names: Sequence[str], classes: Mapping[str, int]) -> Iterator[str]:
    """Yield warnings about classes with too few labels.  classes: number of labels of each."""
    rare = [name for name in names if classes[name] == 1]
    if rare:
        yield (
            f"only one label of {join_some(rare)}: it can be used for training or "
            "testing, not both"
        )
    never = [name for name in names if classes[name] == 0]
    if never:
        yield f"no example is labeled {join_some(never)}"


def format_facts(facts: DataFacts) -> list[str]:
    """Format the summary in a few lines, for a command."""
    lines = [f"Your data: {facts['source']}"]
    kept = "all kept"
    if facts["kept"] < facts["read"]:
        kept = f"{facts['kept']:,} kept"
    lines.append(f"  rows: {facts['read']:,} read, {kept}")
    for left_out in facts["left_out"]:
        total = sum(left_out["rows"].values())
        line = f"    {total:,} left out: {left_out['reason']}"
        by_site = {site: n for site, n in left_out["rows"].items() if site != ALL}
        if by_site:
            line += f" ({join_some(_format_counts(by_site))})"
        lines.append(line)
    lines += _format_sites(facts)
    if facts["classes"]:
        sizes = _format_counts(facts["classes"])
        lines.append(f"  classes: {len(sizes)} ({join_some(sizes)})")
    lines += _format_columns(facts)
    crossing = facts["crossing"]
    across = "none between training and test examples"
    if crossing:
        across = f"{crossing:,} of them between training and test examples"
    noun = "rows"
    if facts["duplicates"] == 1:
        noun = "row"
    lines.append(f"  duplicates: {facts['duplicates']:,} {noun}, {across}")
    lines += [f"  warning: {output}" for output in facts["warnings"]]
    return lines


def notes_beside_facts(dataset: Dataset) -> list[str]:
    """Return notes about the import that `format_facts` does not contain."""
    reading = dataset.reading
    if reading is None:
        return list(dataset.notes)
    by_column = [finding.sentence for finding in describe_columns(reading.columns)]
    return [
        note for note in dataset.notes if note not in by_column and LEFT_OUT not in note
    ]


LEFT_OUT = "left out: "
"""Part of every note on excluded rows and columns, before their number or the reason."""
MOST_LINES = 12
"""Maximum number of sites with a separate line."""
FEW_CLASSES = 6
"""Maximum number of classes that are counted in such a line."""


def _format_counts(counts: Mapping[str, int]) -> list[str]:
    return [f"{name} {n:,}" for name, n in counts.items()]


def _format_sites(facts: DataFacts) -> Iterator[str]:
    """Format a line about all sites and one about each; none if the data name no sites."""
    named = [site for site in facts["sites"] if site["site"] != ALL]
    if not named:
        return
    line = f"  sites: {len(named)}"
    if facts["lost"]:
        line += f"; lost: {join_some(facts['lost'])}"
    yield line
    for site in named[:MOST_LINES]:
        line = (
            f"    {site['site']}: {site['train']:,} training and {site['test']:,} "
            "test examples"
        )
        if 0 < len(site["classes"]) <= FEW_CLASSES:
            line += f" ({', '.join(_format_counts(site['classes']))})"
        yield line
    if len(named) > MOST_LINES:
        yield f"    and {len(named) - MOST_LINES} others"


def _format_columns(facts: DataFacts) -> Iterator[str]:
    """Describe the columns and the number of their empty cells."""
    by_kind: dict[str, list[ColumnFacts]] = {}
    for column in facts["columns"]:
        if column["role"] not in ("feature", "left out"):
            continue
        kind = column["role"] if column["role"] == "left out" else column["kind"]
        by_kind.setdefault(kind, []).append(column)
    numbers = [column["name"] for column in by_kind.get("number", [])]
    if numbers:
        yield f"  numbers: {join_some(numbers)}"
    texts = []
    for column in by_kind.get("category", []):
        texts.append(f"{column['name']} ({join_some(column['values'])})")
    if texts:
        yield f"  categories: {'; '.join(texts[:MOST_LINES])}"
    if by_kind.get("text"):
        names = [column["name"] for column in by_kind["text"]]
        yield f"  texts: {join_some(names)}"
    for column in by_kind.get("left out", []):
        yield f"  left out: {column['name']}, {column['reason']}"
    missing: dict[str, int] = {}
    for column in facts["columns"]:
        if column["role"] != "left out" and column["missing"]:
            missing[column["name"]] = column["missing"]
    if missing:
        total = sum(missing.values())
        yield f"  missing cells: {total:,} ({join_some(_format_counts(missing))})"


def summarize_data(facts: DataFacts) -> str:
    """Describe the numbers of rows that were read, kept and excluded, and duplicates."""
    function = "holds"
    if " and " in facts["source"]:  # two files
        function = "hold"
    parts = [f"{facts['source']} {function} {facts['read']:,} rows"]
    parts.append(f"{facts['kept']:,} of them are in this study")
    for item in facts["left_out"]:
        n = sum(item["rows"].values())
        parts.append(f"{n:,} were excluded: {item['reason']}")
    sentences = [f"{'; '.join(parts)}."]
    if facts["lost"]:
        sentences.append(f"No row remains of {join_some(facts['lost'])}.")
    if facts["crossing"]:
        sentence = f"{facts['crossing']:,} test examples are also training examples."
        if facts["crossing"] == 1:
            sentence = "1 test example is also a training example."
        sentences.append(sentence)
    else:
        sentences.append(
            f"{facts['duplicates']:,} rows are duplicates of earlier rows, and none of "
            "them is in both training and test data."
        )
    return " ".join(sentences)
