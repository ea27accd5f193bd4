"""Description of the sites' data before a study, in a sentence; it needs the core alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from fallow.core.wording import join_words
from fallow.experiment.description import FILE, Description
from fallow.report.live import format_moment
from fallow.storage.received import parse_json, read_regular
from fallow.storage.validation import find_error


def read_description(folder: Path) -> Description | None:
    """Return the description in the folder of a study, or None without a valid one."""
    try:
        json = parse_json(read_regular(folder / FILE))
    except (OSError, ValueError):
        return None
    if find_error(Description, json) is not None:
        return None
    return cast(Description, json)


def summarize(folder: Path) -> list[str]:
    """Return a sentence on the date of a description and its strongest drift.

    Returns nothing without a description.
    """
    facts = read_description(folder)
    if facts is None:
        return []
    at = datetime.fromtimestamp((folder / FILE).stat().st_mtime, UTC).isoformat()
    line = f"The data of the sites were described on {format_moment(at)}"
    if not any(column["sites"] for column in facts["columns"]):
        return [f"{line}, without drift between sites (secure aggregation)."]
    strong = []
    for column in facts["columns"]:
        for site in column["sites"]:
            drift = site["drift"] or 0.0
            if drift > (site["chance"] or 0.0):
                strong.append((drift, f"{column['name']} at {site['site']} {drift:.4g}"))
    if not strong:
        return [f"{line}. No drift exceeds the one by chance."]
    strong.sort(key=lambda pair: pair[0], reverse=True)
    return [f"{line}. Strongest drift: {join_words([text for _, text in strong[:3]])}."]
