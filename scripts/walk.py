"""`python scripts/walk.py [--transport flower] [FOLDER]`: a trial of three parties, with kills.

The parties are those of deploy/prepare.sh, on this machine, started as a stranger starts them.  People
label in a real browser, and each party is killed before, amid and after the labels of each cycle.

It needs `fallow` with the extra `deploy` on the path (or FALLOW=PROGRAM), over Flower `fallow-flower`
from a wheel, and for the browser the package `playwright` and Chromium (or BROWSER=PROGRAM).  It ends
with exit code 0 where every label that was clicked is one that its site trains on, nobody was asked
twice, and the model has them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FALLOW = os.environ.get("FALLOW", "fallow")
BROWSER = os.environ.get("BROWSER", "/usr/bin/chromium")
LEADER = "coordinator"
SITES = ("north", "south")
LONG = 900.0  # seconds; a machine that is busy with other things takes minutes
PAUSE = 1.0  # seconds between two looks
FIRST = 10  # labels that a site is asked for first
EACH = 5  # and in each cycle
CYCLES = 2
CLASSES = ("ill", "well")  # as the page has them, by their keys 1 and 2


@dataclass
class Walk:
    """The parties of a trial: their folders, and the processes that run."""

    folder: Path
    truth: dict[str, str]  # the outcome of each person
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    clicked: dict[str, dict[str, str]] = field(default_factory=dict)  # by site and person
    sites: tuple[str, ...] = SITES

    def notify(self, line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)

    def study(self, name: str) -> str:
        return str(self.folder / name / "study")

    def run(self, *words: str) -> str:
        """Return the output of a command, which must succeed."""
        done = subprocess.run(
            [FALLOW, *words], capture_output=True, text=True, check=False, timeout=LONG
        )
        if done.returncode:
            raise SystemExit(f"fallow {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    # -- processes --------------------------------------------------------------------------

    def log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def start(self, name: str, *words: str) -> None:
        with self.log(name).open("ab") as out:
            self.running[name] = subprocess.Popen(
                [FALLOW, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def start_party(self, name: str) -> None:
        what = "site"
        if name == LEADER:
            what = "coordinate"
        self.start(name, what, "start", self.study(name))

    def kill(self, name: str) -> None:
        """Kill a process. Its child processes are not touched."""
        process = self.running.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.notify(f"kill -9: {name}")

    def end(self, name: str) -> None:
        """End a process as Ctrl-C does."""
        process = self.running.pop(name)
        process.terminate()
        process.wait(LONG)

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start_party(name)

    def close(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()

    def wait(self, is_there: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LONG
        while not is_there():
            for name, process in self.running.items():
                if process.poll() not in (None, 0):
                    raise SystemExit(
                        f"{name} has ended:\n{self.log(name).read_text()[-3000:]}"
                    )
            if time.monotonic() > end:
                raise SystemExit(
                    f"not within {LONG:g} seconds: {what}\n{self.last_words()}"
                )
            time.sleep(PAUSE)

    def wait_for_questions(self, asked: int) -> None:
        """Until each site's people have so many open questions."""

        def are_there() -> bool:
            return all(self.n_open(site) == asked for site in self.sites)

        self.wait(are_there, "questions")

    def last_words(self) -> str:
        return "\n".join(f"-- {n}: {self.log(n).read_text()[-1500:]}" for n in self.running)

    # -- what is seen -----------------------------------------------------------------------

    def status(self, name: str) -> dict[str, Any]:
        what = "site"
        if name == LEADER:
            what = "coordinate"
        result: dict[str, Any] = json.loads(
            self.run(what, "status", self.study(name), "--json")
        )
        return result

    def n_open(self, site: str) -> int:
        return int(self.status(site)["labels"]["open"])

    def labels(self, site: str) -> dict[str, str]:
        """The labels of a site by person, as its own command exports them."""
        file = self.folder / f"{site}-labels.csv"
        self.run("site", "export", self.study(site), str(file), "--labels")
        with file.open(newline="") as lines:
            result: dict[str, str] = {}
            for line in csv.DictReader(lines):
                demand(line["id"] not in result, f"{line['id']} has two labels at {site}")
                result[line["id"]] = line["label"]
        return result


def prepare(folder: Path, transport: str) -> Walk:
    """Run `prepare.sh` as the documentation describes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for name in (LEADER, *SITES):
        (folder / name).mkdir(parents=True)
    path = os.environ["PATH"]
    if os.sep in FALLOW:
        path = f"{Path(FALLOW).parent.absolute()}{os.pathsep}{path}"
    subprocess.run(
        ["sh", str(ROOT / "deploy" / "prepare.sh"), str(folder), address],
        check=True,
        env={**os.environ, "PATH": path, "TRANSPORT": transport},
    )
    walk = Walk(folder, {})
    walk.run("new", str(folder / "truth"), "--quiet")
    with (folder / "truth" / "rows.csv").open(newline="") as lines:
        walk.truth = {line["person"]: line["outcome"] for line in csv.DictReader(lines)}
    return walk


# -- people -----------------------------------------------------------------------------------


def open_page(walk: Walk, browser: Any, site: str) -> Any:
    """A labeling page, by the address that its process prints."""
    name = f"page of {site}"
    walk.log(name).unlink(missing_ok=True)
    words = ("--annotator", f"Ann of {site}", "--no-open", "--port", "0")
    walk.start(name, "label", walk.study(site), *words)
    log = walk.log(name)
    walk.wait(lambda: "/enter?token=" in log.read_text(), name)
    (address,) = re.findall(r"http://\S+", log.read_text())
    page = browser.new_context().new_page()
    page.set_default_timeout(1000 * LONG)
    page.goto(address)
    page.wait_for_url("**/")
    return page


def click(walk: Walk, page: Any, site: str, many: int) -> None:
    """Label the next samples truly, with the mouse."""
    for _ in range(many):
        page.get_by_role("heading", name=re.compile("^Example ")).wait_for()
        page.wait_for_load_state()
        person = page.locator("h1").inner_text().removeprefix("Example ")
        outcome = walk.truth[person]
        button = page.locator("button[name=value]", has_text=re.compile(rf"{outcome}$"))
        with page.expect_navigation():
            button.click()
        value = walk.clicked.setdefault(site, {})
        demand(person not in value, f"{site} was asked for {person} twice")
        value[person] = outcome


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def go(walk: Walk, browser: Any) -> None:
    """The study, with a kill of each party before, amid and after the labels of each cycle."""
    for name in (LEADER, *SITES):
        walk.start_party(name)
    for number, asked in enumerate([FIRST] + CYCLES * [EACH]):
        walk.notify(f"waiting for questions {number + 1} of {CYCLES + 1}")
        walk.wait_for_questions(asked)
        walk.restart(LEADER)
        pages = {site: open_page(walk, browser, site) for site in SITES}
        for site, page in pages.items():
            click(walk, page, site, asked // 2)
        # the page dies with its last label just saved, and the site beside it
        walk.kill("page of north")
        walk.restart("north")
        pages["north"] = open_page(walk, browser, "north")
        walk.restart("south")
        for site, page in pages.items():
            click(walk, page, site, asked - asked // 2)
            walk.kill(f"page of {site}")
        walk.restart(LEADER)
        walk.notify(f"labels were clicked: {sum(map(len, walk.clicked.values()))}")
    leader = walk.running[LEADER]
    walk.wait(lambda: leader.poll() == 0, "the coordinator's good end")
    walk.running.pop(LEADER)


def demand(is_so: bool, otherwise: object) -> None:
    """End with a sentence where something is not as it must be."""
    if not is_so:
        raise SystemExit(f"the walk has failed: {otherwise}")


def check(walk: Walk) -> None:
    """Every click is a label, and the models have them."""
    details = walk.status(LEADER)
    demand(details["state"] == "finished", details)
    for site in SITES:
        clicked = walk.clicked[site]
        demand(
            len(clicked) == FIRST + CYCLES * EACH, f"{site} clicked {len(clicked)} labels"
        )
        demand(walk.labels(site) == clicked, f"{site}: labels were lost")
        study = Path(walk.study(site))
        demand((study / "model.safetensors").exists(), f"{site} has no model")
        rows = walk.folder / site / "test.csv"
        predicted = walk.folder / f"{site}-predictions.csv"
        walk.run("predict", str(study), str(rows), "--out", str(predicted))
    (record,) = Path(walk.study(LEADER)).rglob("records.jsonl")
    last = json.loads(record.read_text().splitlines()[-1])
    n_labels = len(SITES) * (FIRST + CYCLES * EACH)
    demand(last["labeled"] == n_labels, last)
    score = f"accuracy on test rows {last['accuracy']:.3f}"
    walk.notify(f"{n_labels} labels reached the model; {score}")


def main() -> int:
    parser = argparse.ArgumentParser("python scripts/walk.py", description=__doc__)
    parser.add_argument("--transport", choices=("https", "flower"), default="https")
    parser.add_argument("folder", type=Path, nargs="?", help="a new folder, which stays")
    options = parser.parse_args()
    if shutil.which(FALLOW) is None:
        raise SystemExit(f"there is no {FALLOW}: install Fallow, or give FALLOW=PROGRAM")
    with tempfile.TemporaryDirectory() as passing:
        folder = options.folder or Path(passing) / "parties"
        walk = prepare(folder.absolute(), options.transport)
        try:
            with chromium() as browser:
                go(walk, browser)
            check(walk)
        finally:
            walk.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
