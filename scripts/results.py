"""Run the commands of the results pages again, and compare the output with the published numbers.

    python scripts/results.py                  # `make results`: the sections that take an hour together
    python scripts/results.py --list           # all sections with their minutes
    python scripts/results.py --only heart     # the sections with this word in their name

A section is a heading of docs/results.md or studies/*.md with commands below it; results.toml has
its minutes on two idle cores. Its commands run in a clone of the last commit, build/results/checkout,
so that they change neither pages nor records here: `git -C build/results/checkout diff` shows what
they wrote. build/results/PAGE-SECTION.md has the commit, the published cells that the output does
not contain (nor the reports of the new studies), the tables of these studies, and the output.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fallow.report.final_table import final_table, number, spread_of
from fallow.report.tables import to_markdown
from fallow.study.reading import read_study

ROOT = Path(__file__).resolve().parents[1]
COSTS = ROOT / "scripts" / "results.toml"
OUT = ROOT / "build" / "results"
CHECKOUT = OUT / "checkout"


@dataclass
class Section:
    """A heading with its shell commands and the rows of its tables."""

    page: str
    title: str
    commands: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the section, and of the file of its output."""
        return (
            re.sub(r"\W+", "-", f"{Path(self.page).stem} {self.title}").strip("-").lower()
        )


def list_pages() -> list[str]:
    """Return the pages with results."""
    studies = sorted((ROOT / "studies").glob("*.md"))
    return ["docs/results.md", *(f"studies/{page.name}" for page in studies)]


def read_sections(page: str) -> list[Section]:
    """Return the sections of a page that have commands.

    Tables below a heading without commands belong to the section before it.
    """
    headings = [Section(page, "")]
    language = None
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            language = None if language is not None else line.strip("`")
        elif language == "bash":
            headings[-1].commands.append(line)
        elif language is None and line.startswith("#"):
            headings.append(Section(page, line.strip("# ")))
        elif language is None and line.startswith("| "):
            headings[-1].rows.append(
                [cell.strip() for cell in line.strip("|").split(" | ")]
            )
    sections: list[Section] = []
    for heading in headings:
        if heading.commands:
            sections.append(heading)
        elif sections:
            sections[-1].rows += heading.rows
    return sections


def read_costs() -> dict[str, dict[str, float | str]]:
    """Return page -> section -> minutes, or the reason why no minutes are given."""
    return tomllib.loads(COSTS.read_text(encoding="utf-8"))


def find_missing(rows: Sequence[Sequence[str]], output: str) -> tuple[int, list[str]]:
    """Return the number of published decimal cells, and those that the output lacks.

    >>> rows = [["margin", "97.5 ± 0.4", "**0.8**"], ["random", "96.7 ± 0.3", "-"]]
    >>> find_missing(rows, "| margin | 97.5 ± 0.4 | 10.8 |")
    (3, ['margin: 0.8', 'random: 96.7 ± 0.3'])
    """
    total = 0
    missing = []
    for label, *cells in rows:
        for cell in cells:
            value = cell.replace("*", "").replace("\\", "").strip()
            if not re.search(r"\d\.\d", value):
                continue
            total += 1
            if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\d)", output):
                missing.append(f"{label}: {value}")
    return total, missing


def describe_study(folder: Path) -> str:
    """Return the final table of a study and its scores by cycle, as the pages show them."""
    study = read_study(folder)
    digits = 2 if study.measure.is_percent else 4
    lines = [f"### {folder.relative_to(CHECKOUT)}", "", to_markdown(final_table(study))]
    for strategy in study.study.strategies:
        cells = [strategy]
        for scores in study.curve(strategy).values():
            spread = spread_of(list(scores.values()))
            shown = number(study.measure.scale * spread.mean, digits)
            if spread.sd is not None:
                shown += f" ± {number(study.measure.scale * spread.sd, digits)}"
            cells.append(shown)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def clone() -> str:
    """Clone the last commit into `CHECKOUT`, and return it."""
    shutil.rmtree(CHECKOUT, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    call = ["git", "clone", "--quiet", "--shared", str(ROOT), str(CHECKOUT)]
    subprocess.run(call, check=True)
    call = ["git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()


def run_section(section: Section, commit: str, data: Path) -> str:
    """Run the commands of a section, write its file, and return one line about it."""
    code = "\n".join(
        line for line in section.commands if not line.startswith("pip install")
    )
    code = re.sub(r"\bDATA\b", str(data), code)
    sources = [CHECKOUT / "src", *CHECKOUT.glob("*/*/src")]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
        "FALLOW_DATA": str(data),
        "OMP_NUM_THREADS": "1",
    }
    before = set(CHECKOUT.glob("runs/**/study.json"))
    start = time.monotonic()
    done = subprocess.run(
        ["bash", "-e", "-c", code],
        cwd=CHECKOUT,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    minutes = (time.monotonic() - start) / 60
    new = sorted(set(CHECKOUT.glob("runs/**/study.json")) - before)
    tables = "\n".join(describe_study(file.parent) for file in new)
    reports = [file.with_name("report.html") for file in new]
    pages = [file.read_text(encoding="utf-8") for file in reports if file.exists()]
    shown = re.sub(r"<[^>]*>", " ", " ".join(pages))
    total, missing = find_missing(section.rows, " ".join((done.stdout, tables, shown)))
    summary = f"{section.name}: {total - len(missing)} of {total} published cells, {minutes:.1f} min"
    if done.returncode != 0:
        summary += f", stopped with exit code {done.returncode}"
    text = [f"# {section.page}: {section.title}", "", f"Commit {commit}. {summary}.", ""]
    text += [f"* not in the output: {cell}" for cell in missing]
    text += ["", tables, "```text", done.stdout, "```", ""]
    (OUT / f"{section.name}.md").write_text("\n".join(text), encoding="utf-8")
    return summary


def main() -> None:
    """Choose the sections, and run them one after the other, the shortest first."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--minutes", type=float, default=60, help="time for all sections")
    options.add_argument(
        "--only", metavar="WORD", help="run sections with WORD in their name"
    )
    options.add_argument(
        "--list", action="store_true", help="list all sections, and run none"
    )
    options.add_argument(
        "--data-dir", type=Path, help="folder of the data files (FALLOW_DATA)"
    )
    chosen = options.parse_args()
    costs = read_costs()
    timed = []
    for page in list_pages():
        for section in read_sections(page):
            cost = costs[page][section.title]
            if isinstance(cost, str):
                sys.stdout.write(f"not run: {section.name} ({cost})\n")
            else:
                timed.append((cost, section))
    timed.sort(key=lambda item: item[0])
    left = chosen.minutes
    planned = []
    for cost, section in timed:
        wanted = cost <= left if chosen.only is None else chosen.only in section.name
        if wanted and not chosen.list:
            planned.append(section)
            left -= cost
        else:
            sys.stdout.write(f"not run: {section.name} ({cost:g} min)\n")
    if not planned:
        return
    data = chosen.data_dir or os.environ.get("FALLOW_DATA")
    if data is None:
        sys.exit(
            "the folder of the data files is missing: set FALLOW_DATA, or add --data-dir FOLDER"
        )
    commit = clone()
    for section in planned:
        sys.stdout.write(f"{run_section(section, commit, Path(data).resolve())}\n")
        sys.stdout.flush()
    sys.stdout.write(f"Commit {commit}; the tables are in {OUT.relative_to(ROOT)}/.\n")


if __name__ == "__main__":
    main()
