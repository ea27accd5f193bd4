"""Label all open tasks of the sites from files, in place of annotators.

``python annotate.py FOLDER`` labels for every site folder in FOLDER until it is ended. The labels of
site ``NAME`` are in ``FOLDER/data/NAME-answers.csv``.
"""

from __future__ import annotations

import csv
import sys
import time
from contextlib import closing
from pathlib import Path

from fallow.deployment.site.folder import SiteFolder

PAUSE = 2.0  # seconds between two checks for open tasks


def read_labels(file: Path) -> dict[str, str]:
    with file.open(newline="", encoding="utf-8") as lines:
        return {line["id"]: line["label"] for line in csv.DictReader(lines)}


def label_open_tasks(site: SiteFolder, labels: dict[str, str]) -> int:
    """Label all open tasks of a site, and return their number."""
    with closing(site.open_ledger()) as ledger:
        tasks = ledger.tasks(state="open")
        for task in tasks:
            value = site.agreement.schema.value(labels[site.rows.ids[task.row]])
            ledger.answer(task.row, value, "script")
    return len(tasks)


def main() -> None:
    folder = Path(sys.argv[1])
    sites = [SiteFolder.open(file.parent) for file in sorted(folder.glob("*/site.toml"))]
    labels = {
        site.name: read_labels(folder / "data" / f"{site.name}-answers.csv")
        for site in sites
    }
    while True:
        for site in sites:
            if n_labeled := label_open_tasks(site, labels[site.name]):
                print(f"{site.name}: {n_labeled} labels", flush=True)
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
