"""Appearance of a report: files, contents, colors, ticks, and text alternatives."""

from __future__ import annotations

import base64
import csv
import io
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from fallow.report.blocks import Table
from fallow.report.figures.style import _COLORS, colors_of, looks
from fallow.report.render import render_blocks
from fallow.report.side_by_side import names_of
from tests.deployment.browser import NEEDS, chromium
from tests.report.conftest import rewrite, write_study
from tests.report.reading import across, read_study, write_report
from tests.report.regression import write_regression


def needs_browser(test: Any) -> Any:
    """Mark a test that starts a real browser."""
    for mark in NEEDS:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def page(kept_study: Path) -> str:
    return write_report([kept_study]).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = write_regression(tmp_path_factory.mktemp("errors") / "a")
    return write_report([root]).read_text(encoding="utf-8")


def files(page: str) -> dict[str, list[list[str]]]:
    """Return the data files of a page's tables by name."""
    links = re.findall(r'download="([^"]*)" href="data:text/csv[^,]*,([^"]*)"', page)
    read = {name: base64.b64decode(content).decode("utf-8-sig") for name, content in links}
    return {name: list(csv.reader(io.StringIO(text))) for name, text in read.items()}


def test_every_table_is_a_file_one_click_away(page: str) -> None:
    result = files(page)
    assert len(result) == page.count("<table>") > 5
    assert result["labels-at-the-end.csv"][0][0] == "Strategy"
    assert [row[0] for row in result["labels-at-the-end.csv"][1:]] == [
        "ahfal",
        "entropy",
        "random",
    ]


def test_the_file_of_final_scores_has_every_number_in_its_own_column(page: str) -> None:
    header, *rows = files(page)["final-score.csv"]
    assert {"mean", "sd", "low", "high", "Wilcoxon Holm p"} <= set(header)
    means = [float(row[header.index("mean")]) for row in rows]
    assert means == sorted(means[:3], reverse=True) + means[3:]


def test_a_cell_with_a_comma_a_quote_and_markup_survives_the_file_and_the_page() -> None:
    odd = 'a, "b" <i>'
    table = Table("Odd", ["Name", "Value"], [[odd, "-1"]])
    text = render_blocks([table])
    assert "<i>" not in text
    assert files(text)["odd.csv"] == [["Name", "Value"], [odd, "-1"]]


def test_no_cell_of_a_file_is_a_formula_to_a_spreadsheet() -> None:
    cells = ["=1+1", "@sum(a)", "+cmd", "-x", "\t=1", "-0.5", "+0.56 [−1, 2]", "–"]
    table = Table("Told by a site", ["Why"], [[cell] for cell in cells])
    read = [row[0] for row in files(render_blocks([table]))["told-by-a-site.csv"][1:]]
    assert read[:4] == [f"'{cell}" for cell in cells[:4]]
    assert read[4] == "'\t'=1"  # after a tab some spreadsheets start a new cell
    assert read[5:] == cells[5:]


def test_the_contents_lead_to_every_section(page: str) -> None:
    contents = page[page.index('<nav class="contents"') : page.index("</nav>")]
    links = re.findall(r'<a href="#([^"]*)">(.*?)</a>', contents)
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert [title for _, title in links] == titles
    for target, _ in links:
        assert page.count(f'id="{target}"') == 1


def test_settings_are_folded(page: str) -> None:
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "Settings, in the form of --set" in folded
    assert "open" not in folded[:12]


def test_what_scrolls_has_an_edge_that_shows_it(page: str) -> None:
    assert page.count('class="scroll"') == page.count("<table>") + page.count("<svg")
    assert "background-attachment: local, local, scroll, scroll" in page


def test_marks_say_their_values(page: str, errors: str) -> None:
    output = [unescape(text) for text in re.findall(r"<title>(.*?)</title>", page)]
    assert any(
        re.fullmatch(r"ahfal, 30 % labeled: \d+\.\d\d ± \d+\.\d\d", s) for s in output
    )
    assert any(re.fullmatch(r"random: -\d\.\d\d \[.*\], 6 seeds", s) for s in output)
    assert "labels: 0." in errors
    assert "tip%3A" not in page and 'id="tip' not in page


def test_no_tick_is_a_power_of_ten(page: str, errors: str) -> None:
    for text in (page, errors):
        assert "<tspan" not in text  # parts of a formula, such as a power
        ticks = re.findall(r"<text[^>]*>([^<]*)</text>", text)
        assert ticks
        assert [
            tick for tick in ticks if "×" in tick or "10^" in tick or "e+" in tick
        ] == []


@pytest.mark.long
def test_huge_and_tiny_errors_have_plain_ticks_too(tmp_path: Path) -> None:
    for factor in (1e8, 1e-5):
        root = write_regression(tmp_path / f"{factor}")
        rewrite(root, lambda r, _: {"mse": factor * r["mse"], "target_variance": None})  # noqa: B023
        text = write_report([root]).read_text(encoding="utf-8")
        ticks = re.findall(r"<text[^>]*>([^<]*)</text>", text)
        assert [tick for tick in ticks if re.search(r"\de[-−+]?\d", tick)] == []


def test_who_cannot_see_a_figure_is_told_who_is_ahead(page: str, errors: str) -> None:
    labels = [unescape(s) for s in re.findall(r'<svg[^>]*aria-label="([^"]*)"', page)]
    curves = next(s for s in labels if s.startswith("Learning curves"))
    assert re.search(
        r"best first: ahfal \d\d\.\d\d %, entropy \d\d\.\d\d %, random", curves
    )
    assert "and all labels (bound) " in curves
    gaps = next(s for s in labels if s.startswith("Paired differences to ahfal"))
    assert re.search(r"random -\d\.\d\d \[-\d\.\d\d, -\d\.\d\d\]", gaps)
    assert any("is distributed most unevenly" in s for s in labels)
    assert any("The lowest mean over strategies is" in s for s in labels)
    assert "best first: FALE 0.7369, " in errors


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser_nothing_is_wider_than_the_page_and_files_are_saved(
    width: int, kept_study: Path
) -> None:
    path = write_report([kept_study])
    with chromium() as browser:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, accept_downloads=True
        )
        tab = context.new_page()
        output: list[str] = []
        tab.on("console", lambda message: output.append(message.text))
        tab.goto(path.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        for name in ("ahfal", "all labels"):  # at the ends of lines, inside the figure
            right = tab.locator("figure text", has_text=name).first.bounding_box()
            assert right["x"] + right["width"] <= width
        with tab.expect_download() as saved:
            tab.click("a.file >> nth=0")
        assert saved.value.suggested_filename == "final-score.csv"
        text = Path(saved.value.path()).read_text(encoding="utf-8-sig")
        assert text.startswith("strategy,kind,seeds,mean")
        tab.locator("summary").click()
        assert tab.evaluate("document.querySelector('details').open")
        assert output == []  # consistent with the page's own policy


def test_figures_are_written_in_the_type_of_the_page(
    page: str,
) -> None:
    styles = re.findall(r'<text [^>]*style="([^"]*)"', page)
    assert styles
    for style in styles:
        assert "font-family" not in style and "DejaVu" not in style
        assert re.search(r"font-size: [\d.]+px", style), style


@needs_browser
def test_on_a_phone_the_type_of_figures_is_not_tiny_and_not_clipped(
    kept_study: Path,
) -> None:
    path = write_report([kept_study])
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": 390, "height": 900})
        tab.goto(path.as_uri())
        smallest = tab.evaluate(
            """() => Math.min(...[...document.querySelectorAll("figure svg")].flatMap((svg) => {
                const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
                return [...svg.querySelectorAll("text")].map(
                    (text) => scale * parseFloat(getComputedStyle(text).fontSize));
            }))"""
        )
        assert smallest >= 8.5, f"{smallest:.1f} pixels"
        clipped = tab.evaluate(
            """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
                const right = svg.getBoundingClientRect().right;
                return [...svg.querySelectorAll("text")].filter(
                    (text) => text.getBoundingClientRect().right > right + 1
                ).map((text) => text.textContent);
            })"""
        )
        assert clipped == []


def test_a_strategy_keeps_its_color_from_page_to_page(tmp_path: Path) -> None:
    one = write_study(tmp_path / "a", ("random", "entropy", "ahfal"), 1, 1, "ahfal")
    two = write_study(tmp_path / "b", ("ahfal", "random"), 1, 1, "random")
    first = looks(read_study(one))
    second = looks(read_study(two))
    for strategy in ("random", "ahfal"):
        assert first[strategy].color == second[strategy].color
    assert first["random"].color == "#8c8c8c"
    assert colors_of(["Random", "ahfal"])["Random"] == "#8c8c8c"  # in any font
    assert first["ahfal"].width > first["entropy"].width  # the reference


MIX = re.compile(r"fill: (#\w{6}); fill: color-mix\(in srgb, \1 (\d+)%, var\(--ink\)\)")


def luminance(color: str) -> float:
    """Return the relative luminance of a color (WCAG 2.2)."""
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in shares
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def mix(color: str, percent: int, ink: str) -> str:
    """Return ``color-mix(in srgb, color percent%, ink)``."""
    channels = [
        round(
            (
                percent * int(color[at : at + 2], 16)
                + (100 - percent) * int(ink[at : at + 2], 16)
            )
            / 100
        )
        for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in channels)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_names_of_lines_have_the_contrast_of_text(page: str, scheme: int) -> None:
    paper = re.findall(r"--paper: (#\w{6})", page)[scheme]
    ink = re.findall(r"--ink: (#\w{6})", page)[scheme]
    styles = re.findall(r'<text [^>]*style="([^"]*)"[^>]*>(?:ahfal|entropy|random)<', page)
    assert len(styles) >= 3
    mixes = [match for style in styles if (match := MIX.search(style))]
    assert len({match[1] for match in mixes}) == 3
    for color in _COLORS:
        name = luminance(mix(color, int(mixes[0][2]), ink))
        low, high = sorted((name, luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, color


def test_colors_do_not_depend_on_the_order_and_differ() -> None:
    strategies = [
        "random",
        "entropy",
        "badge",
        "core_set",
        "ksas",
        "logo",
        "fairfal",
        "ahfal",
    ]
    outcome = colors_of(strategies)
    assert colors_of(strategies[::-1]) == outcome
    assert len(set(outcome.values())) == len(strategies)
    assert colors_of(["core-set"])["core-set"] == colors_of(["core_set"])["core_set"]


def test_studies_of_one_name_are_called_by_what_differs(tmp_path: Path) -> None:
    def at(alpha: float, folder: str, **more: object) -> Path:
        partition = {"name": "exact-dirichlet", "fields": {"alpha": alpha}}
        config = {"data": "digits", "partition": partition, **more}
        return write_study(tmp_path / folder, seeds=1, cycles=1, config=config)

    studies = [read_study(root) for root in (at(0.1, "a"), at(1.0, "b"))]
    assert names_of(studies) == [
        "tiny, partition.alpha=0.1",
        "tiny, partition.alpha=1.0",
    ]
    assert names_of([studies[0], studies[0]]) == ["tiny (1)", "tiny (2)"]
    text = across(studies, "across") or ""
    assert text.count('<th scope="col" class="number">tiny, partition.alpha=') == 2


def test_studies_stand_in_one_table_strategies_down_and_studies_across(
    tmp_path: Path,
) -> None:
    roots = [
        write_study(tmp_path / "a", ("random", "ahfal"), 6, 2, "random", name="one"),
        write_study(tmp_path / "b", ("random", "ahfal", "entropy"), 6, 2, name="two"),
        write_study(tmp_path / "c", ("ksas",), 2, 1, "ksas", name="alone"),
    ]
    text = across([read_study(root) for root in roots], "across") or ""
    scores = text[: text.index("</table>")]
    assert "alone" not in scores and "entropy" not in scores
    header = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', scores)
    assert header == ["Strategy", "one", "two"]
    assert re.findall(r'<th scope="row"[^>]*>(.*?)</th>', scores) == ["ahfal", "random"]
    assert scores.count(" *</td>") == 2
