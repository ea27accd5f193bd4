"""Summary of a site's own files, for its users only. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fallow.core.types import State
from fallow.data import Dataset
from fallow.data.dataset import UNLABELED
from fallow.data.facts import DataFacts, describe_data
from fallow.data.loaders.units import shows_measurements
from fallow.data.reading import ColumnRead, Finding, Reading, list_notes
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.rows import SiteRows

FAR = 5.0
"""Standard deviations of a site from which the mean over all sites is far from its own."""
SMALLEST_RATIO = 1.5
"""Smallest ratio of the two means that may be due to another unit."""
LACKING = "a feature is missing or infinite"


def describe_own_data(folder: SiteFolder) -> DataFacts:
    """Summarize the rows of a site: sizes, classes, columns, empty cells and duplicates.

    Labels are those in its files, without later ones. Raises ValueError or StorageError if the files
    cannot be read or have changed.
    """
    facts = describe_data(collect_own_data(folder), comes_labeled=False)
    assert facts is not None  # noqa: S101 - it says how it was read
    return facts


def compare_with_sites(folder: SiteFolder, scale: State) -> list[str]:
    """Return a sentence for each column of numbers whose unit may differ between the sites.

    One site with another unit moves the mean over all sites away from the numbers of the others,
    which see it then.  scale: mean and standard deviation (d,) of the features over all sites.
    """
    schema = folder.agreement.schema
    config = folder.agreement.config
    names = schema.features
    if config.encoder is not None or config.standardize == "ranges":
        return []
    if "mean" not in scale or len(scale["mean"]) != len(names):
        return []
    sentences: list[str] = []
    for column in schema.columns:
        if column.kind != "number":
            continue
        at = names.index(column.name)
        numbers = folder.rows.x[:, at].double()
        numbers = numbers[~numbers.isnan()]
        is_scaled = float(scale["std"][at]) not in (0.0, 1.0)
        if not is_scaled or not shows_measurements(numbers.numpy()):
            continue
        offset = column.offset or 0.0
        mean = float(numbers.mean()) + offset
        std = float(numbers.std(correction=0))
        over_all = float(scale["mean"][at]) + offset
        is_far = abs(over_all - mean) > FAR * std
        if is_far and not 1 / SMALLEST_RATIO < over_all / mean < SMALLEST_RATIO:
            sentences.append(
                f"column {column.name!r} has a mean of {mean:.3g} here, and of {over_all:.3g} over "
                "all sites; a site may have another unit or decimal mark: compare with the others"
            )
    return sentences


def collect_own_data(folder: SiteFolder) -> Dataset:
    """Return the rows of a site as a dataset, with the errors of `describe_own_data`."""
    rows = folder.measured_rows
    rows = rows.each or rows
    tests = folder.measured_tests
    schema = folder.agreement.schema
    is_class = bool(schema.outcomes)
    parts = [rows]
    x_test = rows.x[:0]
    y_test = _encode_labels([], is_class)
    if tests is not None:
        parts.append(tests)
        x_test = tests.x
        y_test = _encode_labels(tests.labels, is_class)
    return Dataset(
        name=folder.name,
        x=rows.x,
        y=_encode_labels(rows.labels, is_class),
        x_test=x_test,
        y_test=y_test,
        classes=schema.classes,
        labels=schema.labels,
        sites=torch.zeros(len(rows.x), dtype=torch.long),
        sites_test=torch.zeros(len(x_test), dtype=torch.long),
        site_names=(folder.name,),
        columns=schema.features if schema.columns else (),
        missing=schema.missing,
        findings=_join_notes(rows, tests),
        reading=_join_readings(folder, parts),
    )


def _join_notes(rows: SiteRows, tests: SiteRows | None) -> tuple[Finding, ...]:
    """Return what was noted when the files were read."""
    sentences = [*rows.notes]
    if tests is not None:
        sentences += [f"test examples: {sentence}" for sentence in tests.notes]
    return list_notes(sentences)


def _encode_labels(labels: Sequence[float | None], is_class: bool) -> Tensor:
    """Return class IDs or numbers (n,), with `UNLABELED` or NaN for missing labels."""
    if is_class:
        ids = _fill_in(labels, UNLABELED)
        return torch.tensor(ids, dtype=torch.float64).long()
    numbers = _fill_in(labels, torch.nan)
    return torch.tensor(numbers, dtype=torch.float32)


def _fill_in(labels: Sequence[float | None], unlabeled: float) -> list[float]:
    """Return the labels with a number for each missing one."""
    filled: list[float] = []
    for label in labels:
        if label is None:
            filled.append(unlabeled)
        else:
            filled.append(label)
    return filled


def _join_readings(folder: SiteFolder, parts: Sequence[SiteRows]) -> Reading:
    """Combine the readings of both files."""
    files = [folder.settings.data, folder.settings.test]
    source = " and ".join(Path(file).name for file in files if file is not None)
    n_left_out = sum(part.n_left_out for part in parts)
    n_kept = sum(len(part.ids) for part in parts)
    columns: list[ColumnRead] = []
    for at in range(len(parts[0].columns)):  # all files have the columns of the schema
        in_each = [part.columns[at] for part in parts]
        columns.append(_count_missing(folder.name, in_each))
    reading = Reading(source, {folder.name: n_kept + n_left_out}, columns=tuple(columns))
    return reading.without(LACKING, {folder.name: n_left_out})


def _count_missing(site: str, reads: Sequence[ColumnRead]) -> ColumnRead:
    """Return a column with the empty cells of all files."""
    missing = sum(read.missing for read in reads)
    return replace(reads[0], missing=missing, missing_at={site: missing})
