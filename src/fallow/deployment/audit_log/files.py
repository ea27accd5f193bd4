"""Audit log as files: a page and a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from fallow.deployment.audit_log.entries import FIELDS, KINDS, AuditLog
from fallow.storage.plain import cell, plain

PAGE = "audit.html"
TABLE = "audit.csv"
TEMPLATE = "audit_log.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Policy of the page: no external content and no scripts."""


def render_files(trail: AuditLog, summary: Mapping[str, object]) -> dict[str, bytes]:
    """Return the content of each file by name. ``summary`` is that of the manifest."""
    return {
        PAGE: _render_page(trail, summary),
        TABLE: _render_table(trail),
    }


def _render_table(trail: AuditLog) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for entry in trail.entries:
        values = entry.values()
        writer.writerow([cell(_on_one_line(value)) for value in values])
    return text.getvalue().encode()


def _render_page(trail: AuditLog, summary: Mapping[str, object]) -> bytes:
    text = _template().render(
        trail=trail,
        title=trail.title,
        summary=summary,
        kinds=KINDS,
        policy=POLICY,
        counts=_count(trail),
        annotators=_count_labels_of_annotators(trail),
        epsilon=_sum_epsilon(trail),
    )
    return text.encode()


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["line"] = _on_one_line
    return pages.get_template(TEMPLATE)


def _on_one_line(value: object) -> object:
    """Return a value on one line, because names and messages are untrusted texts."""
    if isinstance(value, str):
        return plain(value)
    return value


def _count(trail: AuditLog) -> dict[str, int]:
    """Return the number of entries of each kind that occurs."""
    counts: dict[str, int] = {}
    for kind in KINDS:
        many = sum(entry["event"] == kind for entry in trail.entries)
        if many:
            counts[kind] = many
    return counts


def _count_labels_of_annotators(trail: AuditLog) -> dict[str, int]:
    """Return the number of labels of each annotator, largest first. Empty for a coordinator."""
    counts: dict[str, int] = {}
    if trail.role == "site":
        for entry in trail.entries:
            if entry["party"]:
                counts[entry["party"]] = counts.get(entry["party"], 0) + 1
    ordered = sorted(counts, key=lambda annotator: (-counts[annotator], annotator))
    return {annotator: counts[annotator] for annotator in ordered}


def _sum_epsilon(trail: AuditLog) -> float:
    """Return the epsilon of all entries, for a coordinator over all sites."""
    return sum(float(entry["epsilon"]) for entry in trail.entries if entry["epsilon"] != "")
