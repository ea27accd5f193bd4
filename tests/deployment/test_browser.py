"""Test that labels entered in a browser are used by the next cycle of a real study."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fallow.transport.kinds import HTTPS
from tests.deployment.browser import NEEDS, chromium
from tests.deployment.children import start_command, wait_until
from tests.deployment.real import LEADER, SHORT, Real, real, records

FEW = replace(
    SHORT, initial=2, budget=1
)  # number of initial labels and of labels in the only cycle, at a site
LONG = 600.0  # seconds; a busy machine takes minutes
pytestmark = NEEDS


def open_page(browser: Any, study: Real, site: str) -> Any:
    """Open the labeling page of a site at the address that its process prints."""
    name = f"page of {site}"
    words = (
        "label",
        str(study.folder / site),
        "--annotator",
        "Ann",
        "--no-open",
        "--port",
        "0",
    )
    study.running[name] = start_command(study.log(name), *words)
    wait_until(lambda: "/enter?token=" in study.text(name), LONG, name)
    match = re.search(r"http://\S+", study.text(name))
    assert match, study.read_logs()
    page = browser.new_context().new_page()
    page.set_default_timeout(1000 * LONG)
    page.goto(match[0])
    page.wait_for_url("**/")
    return page


def label_by_keyboard(page: Any, samples: int) -> dict[str, float]:
    """Label by keyboard, with the classes in turn; return the labels by example."""
    labels = {}
    for number in range(samples):
        page.get_by_role("heading", name=re.compile("^Example ")).wait_for()
        page.wait_for_load_state()  # from now on the page handles keys
        sample = page.locator("h1").inner_text().removeprefix("Example ")
        labels[sample] = float(number % 2)
        with page.expect_navigation():
            page.keyboard.press(str(1 + number % 2))
    page.get_by_role("heading", name="All done for now").wait_for()
    return labels


def load_labels(study: Real, site: str) -> dict[str, tuple[float, int]]:
    """Return the labels that a site trains on, with cycles, by name of the example."""
    rows = study.sites[site].rows.ids
    labels = dict(zip(sorted(study.sites), study.labels().values(), strict=True))[site]
    return {rows[label.row]: (label.value, label.cycle) for label in labels}


def test_what_is_typed_in_the_browser_is_what_the_next_cycle_learns(tmp_path: Path) -> None:
    check_typed(tmp_path, HTTPS)


def check_typed(folder: Path, transport: str) -> None:
    """Label two cycles of a study in the browser."""
    with real(folder, FEW, transport=transport) as study, chromium() as browser:
        study.done.set()  # all labels come from the browser
        study.start(LEADER, *study.sites)
        pages = {site: open_page(browser, study, site) for site in study.sites}
        first = {
            site: label_by_keyboard(page, int(FEW.initial)) for site, page in pages.items()
        }
        second = {
            site: label_by_keyboard(page, int(FEW.budget_of(0)))
            for site, page in pages.items()
        }
        study.finish(LONG)

        for site in study.sites:
            before = {sample: (value, -1) for sample, value in first[site].items()}
            asked = {sample: (value, 0) for sample, value in second[site].items()}
            assert load_labels(study, site) == before | asked
        run_folder = study.coordinator_folder.path / study.alike.program().cell.folder(
            Path()
        )
        assert [record["labeled"] for record in records(run_folder)] == [4, 6]

        page = browser.new_page()
        page.goto((study.coordinator_folder.path / "report.html").as_uri())
        assert page.get_by_text("The run is finished.").is_visible()
        sites = page.get_by_role("table").filter(has_text="No label").inner_text()
        assert all(site in sites for site in study.sites)
