"""`python scripts/walk_findings.py [FOLDER]`: a trial with four findings in each image, with kills.

Three sites have drawn images that look like chest radiographs.  People answer to four findings of each
in a real browser, and five processes are killed on the way: coordinator, sites and labeling pages.  It
needs what ``scripts/walk.py`` needs, and ends with exit code 0 where every answer that was clicked is
one that its site trains on, nobody was asked twice, and the models predict the findings.

``--pictures`` keeps pictures of the page, at two widths, in light and dark, in the folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from walk import LEADER, Walk, chromium, demand, open_page

SITES = ("basel", "bern", "chur")
FINDINGS = ("cardiomegaly", "effusion", "nodule", "pneumothorax")
SIDE = 96  # pixels
INITIAL = 8  # images that each site labels first
BUDGET = 4  # and in each cycle
CYCLES = 2
UNLABELED = 36  # images of a site
TESTS = 40
WIDTHS = (1180, 420)  # of the pictures, in pixels


# -- images -----------------------------------------------------------------------------------


def draw_chest(findings: Mapping[str, bool], draw: np.random.Generator) -> Image.Image:
    """Return a drawn image with these findings."""
    image = Image.new("L", (SIDE, SIDE), 170)
    pen = ImageDraw.Draw(image)
    shift = int(draw.integers(-3, 4))
    lungs = ((14 + shift, 14, 44 + shift, 80), (54 + shift, 14, 84 + shift, 80))
    for box in lungs:
        pen.ellipse(box, fill=int(draw.integers(45, 65)))
    pen.rectangle((46 + shift, 8, 51 + shift, 88), fill=195)  # spine
    width = 36 if findings["cardiomegaly"] else 20
    pen.ellipse((52 - width // 2 + shift, 50, 54 + width // 2 + shift, 78), fill=205)
    if findings["effusion"]:
        left, _, right, bottom = lungs[int(draw.integers(2))]
        pen.rectangle((left, bottom - 18, right, bottom), fill=200)
    if findings["nodule"]:
        left, top, right, _ = lungs[int(draw.integers(2))]
        x = int(draw.integers(left + 9, right - 9))
        y = int(draw.integers(top + 14, top + 30))
        pen.ellipse((x - 5, y - 5, x + 5, y + 5), fill=230)
    if findings["pneumothorax"]:
        left, top, right, _ = lungs[int(draw.integers(2))]
        pen.chord((left, top, right, top + 50), 180, 360, fill=8)
    pixels = np.asarray(image.filter(ImageFilter.GaussianBlur(1.2)), dtype=np.float64)
    pixels = pixels + 6 * draw.standard_normal(pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_images(folder: Path, n: int, seed: int, *, labeled: bool) -> dict[str, str]:
    """Write images and the table that lists them, and return the findings by file."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    truth: dict[str, str] = {}
    for number in range(n):
        has = {name: bool(draw.random() < 0.4) for name in FINDINGS}
        name = f"{folder.name}-{number:03d}.png"
        draw_chest(has, draw).save(folder / name)
        truth[name] = ";".join(
            f"{label}={int(is_there)}" for label, is_there in has.items()
        )
    with (folder / "images.csv").open("w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow(["file", "findings"])
        for name, answers in truth.items():
            table.writerow([name, answers if labeled else ""])
    return truth


# -- the study --------------------------------------------------------------------------------


def list_options(**values: object) -> list[str]:
    """Return options of a command with their values as words."""
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def prepare(folder: Path) -> Walk:
    """Create the agreement, the sites and their images."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    walk = Walk(folder, {}, sites=SITES)
    (folder / LEADER).mkdir(parents=True)
    example = folder / "example"
    write_images(example, 12, 0, labeled=True)
    settings = {
        "labels": ",".join(FINDINGS),
        "training": "closed-form",
        "model": "linear",
        "encoder": "convolution",
        "strategy": "margin:over=max",
        "initial": INITIAL,
        "budget": BUDGET,
        "cycles": CYCLES,
        "rounds": 1,
        "score_rounds": 1,
    }
    changes = [
        word for name, value in settings.items() for word in ("--set", f"{name}={value}")
    ]
    study = walk.study(LEADER)
    options = list_options(
        name="chest",
        config="demo",
        sites=",".join(SITES),
        example=example,
        label="findings",
        sums="exact",
        host="127.0.0.1",
        address=address,
    )
    walk.run("coordinate", "init", study, *options, *changes)
    digest = walk.status(LEADER)["digest"]
    for number, site in enumerate(SITES):
        own = folder / site
        walk.truth |= write_images(
            own / f"{site}-images", UNLABELED, 10 + number, labeled=False
        )
        write_images(own / f"{site}-test", TESTS, 20 + number, labeled=True)
        options = list_options(
            study=f"{study}/study.toml",
            name=site,
            data=own / f"{site}-images",
            test=own / f"{site}-test",
            address=address,
            digest=digest,
        )
        walk.run("site", "init", walk.study(site), *options)
    joins = [f"{walk.study(site)}/join.json" for site in SITES]
    walk.run("coordinate", "admit", study, *joins)
    return walk


def answer(walk: Walk, page: Any, site: str, many: int) -> None:
    """Answer truly to all findings of the next images, with the mouse."""
    for _ in range(many):
        page.get_by_role("heading", name=re.compile("^Example ")).wait_for()
        page.wait_for_load_state()
        image = page.locator("h1").inner_text().removeprefix("Example ")
        truth = walk.truth[image]
        for at, part in enumerate(truth.split(";")):
            digit = part.rpartition("=")[2]
            page.locator(f'input[name="answer-{at}"][value="{digit}"]').check()
        with page.expect_navigation():
            page.locator("button.main[data-key=Enter]").click()
        clicked = walk.clicked.setdefault(site, {})
        demand(image not in clicked, f"{site} was asked for {image} twice")
        clicked[image] = truth


def take_pictures(browser: Any, page: Any, folder: Path) -> None:
    """Take pictures of a labeling task at two widths, in light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    state = page.context.storage_state()
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            context = browser.new_context(
                storage_state=state,
                color_scheme=scheme,
                viewport={"width": width, "height": 800},
            )
            shown = context.new_page()
            shown.goto(page.url)
            shown.get_by_role("heading", name=re.compile("^Example ")).wait_for()
            shown.screenshot(path=folder / f"findings-{width}-{scheme}.png", full_page=True)
            context.close()


def go(walk: Walk, browser: Any, pictures: Path | None) -> int:
    """Run the study with a kill of five processes, and return their number."""
    n_kills = 0
    for name in (LEADER, *SITES):
        walk.start_party(name)
    for number, asked in enumerate([INITIAL] + CYCLES * [BUDGET]):
        walk.notify(f"waiting for questions {number + 1} of {CYCLES + 1}")
        walk.wait_for_questions(asked)
        if number == 0:
            walk.restart(LEADER)
            n_kills += 1
        for site in SITES:
            page = open_page(walk, browser, site)
            answer(walk, page, site, asked // 2)
            if number == 0 and site == SITES[0]:
                if pictures is not None:
                    take_pictures(browser, page, pictures)
                # the page dies with its last answer just saved, and the site beside it
                walk.kill(f"page of {site}")
                walk.restart(site)
                n_kills += 2
                page = open_page(walk, browser, site)
            answer(walk, page, site, asked - asked // 2)
            walk.end(f"page of {site}")
        if number == 1:
            walk.restart(SITES[1])
            walk.restart(LEADER)
            n_kills += 2
    leader = walk.running[LEADER]
    walk.wait(lambda: leader.poll() == 0, "the coordinator's good end")
    walk.running.pop(LEADER)
    return n_kills


def check(walk: Walk, n_kills: int) -> None:
    """Every answer is a label, and the models predict the findings."""
    n_labels = INITIAL + CYCLES * BUDGET
    for site in SITES:
        clicked = walk.clicked[site]
        demand(len(clicked) == n_labels, f"{site} answered {len(clicked)} images")
        demand(walk.labels(site) == clicked, f"{site}: answers were lost")
    (record,) = Path(walk.study(LEADER)).rglob("records.jsonl")
    last = json.loads(record.read_text().splitlines()[-1])
    demand(last["labeled"] == len(SITES) * n_labels, last)
    demand(len(last["per_class"]) == len(FINDINGS), last)
    predicted = walk.folder / "predicted.csv"
    new = walk.folder / "new"
    new.mkdir()
    for image in (walk.folder / SITES[0] / f"{SITES[0]}-test").glob("*.png"):
        shutil.copy(image, new)  # without the table of their findings
    walk.run("predict", walk.study(SITES[0]), str(new), "--out", str(predicted))
    demand(len(predicted.read_text().splitlines()) == TESTS + 1, predicted)
    scores = zip(FINDINGS, last["per_class"], strict=True)
    by_label = ", ".join(f"{name} {100 * score:.0f} %" for name, score in scores)
    walk.notify(
        f"{last['labeled']} images with {len(FINDINGS)} answers each, {n_kills} kills; "
        f"accuracy {100 * last['accuracy']:.1f} %: {by_label}"
    )


def main(*words: str) -> int:
    parser = argparse.ArgumentParser("python scripts/walk_findings.py", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a new folder, which stays")
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the page")
    options = parser.parse_args(words or None)
    with tempfile.TemporaryDirectory() as passing:
        folder = options.folder or Path(passing) / "parties"
        walk = prepare(folder.absolute())
        try:
            with chromium() as browser:
                n_kills = go(walk, browser, options.pictures)
            check(walk, n_kills)
        finally:
            walk.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
