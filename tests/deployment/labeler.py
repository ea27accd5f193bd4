"""Label at several sites from one process, which may be killed.

Run as ``python -m tests.deployment.labeler F``.

The process answers open labeling tasks one by one with the labels in ``F/truth.json``. At
odd sites it writes to the ledger, as the labeling page does; at the others it exports,
completes and imports a CSV file. Each line of ``F/given.txt`` is an acknowledged label. The
line is on disk before the next label is given, so that a test can check that none is lost.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fallow.deployment.ledger import Ledger
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.labels_io import import_labels, list_open_tasks

SAVED_FILE, TRUTH = "given.txt", "truth.json"
PAUSE = 0.3  # seconds between two labels, because annotators take time
ANNOTATOR = "Ann"


@dataclass(frozen=True)
class Labeler:
    """Answer labeling tasks; truth: the class of each row, by site."""

    folder: Path
    sites: list[SiteFolder]
    truth: dict[str, list[int]]

    def look(self) -> None:
        """Answer all open labeling tasks of all sites."""
        for number, site in enumerate(self.sites):
            if not site.ledger_path.exists():
                continue
            with closing(site.open_ledger()) as ledger:
                if number % 2:
                    self.answer_one_by_one(site, ledger)
                else:
                    self.answer_by_file(site, ledger)

    def answer_one_by_one(self, site: SiteFolder, ledger: Ledger) -> None:
        for question in ledger.tasks(state="open"):
            ledger.answer(
                question.row, float(self.truth[site.name][question.row]), ANNOTATOR
            )
            self.acknowledge(site.name, question.row)
            time.sleep(PAUSE)

    def answer_by_file(self, site: SiteFolder, ledger: Ledger) -> None:
        schema = site.agreement.schema
        file = self.folder / f"{site.name}-questions.csv"
        if not write_lines(file, list_open_tasks(ledger, schema, site.rows)):
            return
        with file.open(newline="", encoding="utf-8") as opened:
            lines = list(csv.DictReader(opened))
        for line in lines:
            line["label"] = schema.classes[self.truth[site.name][int(line["row"])]]
            line["annotator"] = ANNOTATOR
        with file.open("w", newline="", encoding="utf-8") as opened:
            writer = csv.DictWriter(opened, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
        time.sleep(PAUSE)
        import_labels(ledger, schema, site.rows, file, ANNOTATOR)
        for line in lines:
            self.acknowledge(site.name, int(line["row"]))

    def acknowledge(self, site: str, row: int) -> None:
        with (self.folder / SAVED_FILE).open("a", encoding="utf-8") as file:
            file.write(f"{site} {row} {self.truth[site][row]}\n")
            file.flush()
            os.fsync(file.fileno())


def main() -> None:
    folder = Path(sys.argv[1])
    truth = json.loads((folder / TRUTH).read_text())
    people = Labeler(folder, [SiteFolder.open(folder / name) for name in truth], truth)
    while True:
        people.look()
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
