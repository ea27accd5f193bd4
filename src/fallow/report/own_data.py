"""Report section on the user's data: examples, sites, columns and excluded rows."""

from __future__ import annotations

from typing import cast

from fallow.core.wording import show_count
from fallow.data.facts import DataFacts, summarize_data
from fallow.report.blocks import (
    Block,
    Blocks,
    CollapsibleBlock,
    Note,
    Notes,
    Paragraph,
    Table,
)
from fallow.report.by_class import name_outcome
from fallow.storage.received import parse_json, read_regular
from fallow.study.preparation import FACTS
from fallow.study.records import StudyRecords

SHEET = "data.html"
"""Data sheet in the folder of a study."""


def read_facts(study: StudyRecords) -> DataFacts | None:
    """Return the facts that the study recorded about its data, or None if there are none."""
    path = study.path / FACTS
    try:
        json = parse_json(read_regular(path))
    except (OSError, ValueError):
        return None
    is_whole = isinstance(json, dict) and DataFacts.__required_keys__ <= json.keys()
    if not is_whole:
        return None
    return cast(DataFacts, json)


def has_facts(study: StudyRecords) -> bool:
    """Return whether the study is about the user's own data."""
    return read_facts(study) is not None


def own_data(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the user's data: files, interpretation, examples in use."""
    facts = read_facts(study)
    if facts is None:
        return ()
    blocks: list[Block] = [Paragraph(summarize_data(facts))]
    if facts["warnings"]:
        blocks.append(
            Notes([f"{warning[0].upper()}{warning[1:]}." for warning in facts["warnings"]])
        )
    outcome, _ = name_outcome(study)
    blocks.append(_sites(facts, outcome))
    if (study.path / SHEET).is_file():
        blocks.append(Note(f"The data sheet is {SHEET} in the folder of the study."))
    if facts["columns"]:
        blocks.append(
            CollapsibleBlock("Columns, and their interpretation", [_columns(facts)])
        )
    return blocks


def _sites(facts: DataFacts, outcome: str) -> Table:
    classes = list(facts["classes"])
    reasons = [item["reason"] for item in facts["left_out"]]
    header = ["Site", "Read", "Kept", "Training", "Test", *reasons, *classes]
    rows = []
    for site in facts["sites"]:
        removed = [f"{entry['rows'].get(site['site'], 0):,}" for entry in facts["left_out"]]
        counts = [show_count(site["classes"].get(name, 0)) for name in classes]
        numbers = [site["read"], site["kept"], site["train"], site["test"]]
        shown = [f"{number:,}" for number in numbers]
        rows.append([site["site"] or "all rows", *shown, *removed, *counts])
    caption = f"Examples of each site, and of each {outcome} after exclusions"
    return Table(caption, header, rows)


def _columns(facts: DataFacts) -> Table:
    rows = []
    for column in facts["columns"]:
        how = column["kind"]
        if column["kind"] == "category":
            how = f"category: {', '.join(column['values'])}"
        if column["role"] != "feature":
            how = column["role"]
        if column["reason"]:
            how += f": {column['reason']}"
        missing = [
            f"{site} {show_count(n)}" for site, n in column["missing_at"].items() if n
        ]
        rows.append(
            {
                "Column": column["name"],
                "How it was read": how,
                "Missing cells by site": ", ".join(missing),
                "Missing cells": show_count(column["missing"]),
            }
        )
    return Table.of("Columns of the table", rows, words=3)
