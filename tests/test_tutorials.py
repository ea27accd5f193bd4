"""The documentation builds without warnings, and its tutorials run."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from sphinx.search.en import SearchEnglish

from tests.deployment.browser import browser_test, chromium

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.long
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
THEME = "furo" if os.environ.get("FALLOW_SOAK") else "basic"

SHORTER = {
    "01_first_comparison": {
        "seeds=3": "seeds=2",
        "cycles=3,": "cycles=1,",
    },
    "02_images_and_model": {'"rounds": 10': '"rounds": 1', "range(600)": "range(300)"},
    "03_query_strategy": {"seeds=3": "seeds=2", "cycles=3,": "cycles=1,"},
    "04_regression": {},
    "05_texts": {"seeds=3": "seeds=2", "cycles=3": "cycles=1"},
    "06_exported_features": {"seeds=3": "seeds=2", "cycles=8": "cycles=1"},
}
"""Settings of a tutorial, and the smaller ones that are tested here."""


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_without_a_warning(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    short = tmp_path / path.name
    short.write_text(shorten(path))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Scores of shortened tutorials may mean nothing.
        for end in ("identical", "has not converged", "is the problem"):
            warnings.filterwarnings("ignore", f".*{end}", RuntimeWarning)
        runpy.run_path(str(short), run_name="__main__")
    assert list(folder.iterdir()) == []  # a tutorial leaves no files


def shorten(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    for long, short in SHORTER.get(path.stem, {}).items():
        assert text.count(long) == 1, f"{path.name}: {long}"
        text = text.replace(long, short)
    return text


def test_there_are_tutorials() -> None:
    assert {path.stem for path in TUTORIALS} == SHORTER.keys()


@pytest.fixture(scope="module")
def site(build_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return the pages, built once for all workers."""
    pytest.importorskip("sphinx")
    return build_once("docs", build_pages) / "html"


def build_pages(out: Path) -> None:
    """Build the pages without running tutorials and without the theme.

    The sidebar on every page takes more than half of the time.
    """
    source = out / "source"
    subprocess.run(["cp", "-r", str(DOCS), str(source)], check=True)
    for made in ("gallery_pages", "reference_pages", "tutorials_run"):
        subprocess.run(["rm", "-rf", str(source / made)], check=True)
    for read in ("examples", "src", "studies"):
        subprocess.run(["ln", "-s", str(ROOT / read), str(out / read)], check=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    plain = ["-D", f"html_theme={THEME}", "-D", "html_copy_source=0"]
    done = subprocess.run(
        [*command, *plain, str(source), str(out / "html")],
        env={**os.environ, "FALLOW_DOCS_RUN": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_has_its_page(site: Path) -> None:
    from fallow._names import WHERE

    pages = {path.stem for path in (site / "reference_pages" / "names").glob("*.html")}
    assert pages == {f"fallow.{name}" for name in WHERE}


def test_every_strategy_has_a_page_with_words_and_what_it_costs(site: Path) -> None:
    from fallow.core.names import spell_class
    from fallow.settings.classes import classes_of

    strategies = {spell_class(cls) for cls in classes_of("strategy").values()}
    pages = {
        path.stem: path.read_text() for path in (site / "gallery_pages").glob("*.html")
    }
    assert set(pages) == strategies | {"index"}
    for name in strategies:
        assert "Disclosures" in pages[name]
    assert "When it does not" in pages["margin"]
    assert "1 exchange with the sites" in pages["margin"]
    assert 'aria-label="Accuracy of margin beside random' in pages["margin"]
    assert "fl.Margin()" in re.sub(r"<[^>]+>", "", pages["margin"])
    assert "There is no figure" in pages["oracle-histogram"]
    assert "does not support differential privacy" in pages["typical"]


def test_every_document_is_in_the_table_of_contents(site: Path) -> None:
    pages = {path.stem for path in DOCS.glob("*.md")}
    text = (site / "index.html").read_text()
    missing = {page for page in pages - {"index"} if f'href="{page}.html"' not in text}
    assert not missing


def test_links_between_pages_lead_somewhere(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'href="(?![a-z]+:)([^"#?]+)', page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(site)}: {target}")
    assert broken == []


def test_the_search_needs_no_network(site: Path) -> None:
    assert (site / "searchindex.js").stat().st_size > 100_000
    text = (site / "search.html").read_text()
    assert not re.findall(r'<script[^>]+src="https?:', text)


@pytest.mark.parametrize(
    "words",
    [
        "non-IID",
        "heterogeneity",
        "secure aggregation",
        "differential privacy",
        "batch size",
        "learning rate",
        "hyperparameter",
        "learning curve",
        "regression",
        "epoch",
        "client",
    ],
)
def test_the_search_finds_the_standard_terms(site: Path, words: str) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    index = index.removeprefix("Search.setIndex(").removesuffix(")")
    terms = json.loads(index)["terms"]
    stemmer = SearchEnglish({})
    pages = [
        terms.get(stemmer.stem(word.lower()), [])
        for word in re.findall(r"[\w]+", words)
        if stemmer.word_filter(word.lower())
    ]
    on = [set(listed if isinstance(listed, list) else [listed]) for listed in pages]
    assert set.intersection(*on), words


@browser_test
def test_what_is_typed_into_the_search_is_found_without_a_server(site: Path) -> None:
    with chromium() as browser:
        tab = browser.new_page()
        tab.goto((site / "index.html").as_uri())
        tab.locator("input[name=q]").first.fill("secure aggregation")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/search.html*")
        result = tab.locator("#search-results li a[href*='privacy.html']").first
        result.click()
        tab.wait_for_url("**/privacy.html*")
        assert "privacy.html" in tab.url
