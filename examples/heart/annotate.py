"""People who answer at once: gives the labels in a file to whatever a site is asked for.

``python annotate.py FOLDER`` does so for every site folder in FOLDER until it is ended; the answers
of ``NAME`` stand in ``FOLDER/data/NAME-answers.csv``.
"""

from __future__ import annotations

import csv
import sys
import time
from contextlib import closing
from pathlib import Path

from fallow.deployment.site.folder import SiteFolder

PAUSE = 2.0  # seconds between two looks


def answers(file: Path) -> dict[str, str]:
    with file.open(newline="", encoding="utf-8") as lines:
        return {line["id"]: line["label"] for line in csv.DictReader(lines)}


def label(site: SiteFolder, known: dict[str, str]) -> int:
    """Answer all open questions of a site; how many there were."""
    with closing(site.open_ledger()) as ledger:
        asked = ledger.tasks(state="open")
        for question in asked:
            value = site.agreement.schema.value(known[site.rows.ids[question.row]])
            ledger.answer(question.row, value, "script")
    return len(asked)


def main() -> None:
    folder = Path(sys.argv[1])
    sites = [SiteFolder.open(file.parent) for file in sorted(folder.glob("*/site.toml"))]
    known = {
        site.name: answers(folder / "data" / f"{site.name}-answers.csv") for site in sites
    }
    while True:
        for site in sites:
            if many := label(site, known[site.name]):
                print(f"{site.name}: {many} labels", flush=True)
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
