"""The site of documents builds without a warning, and its tutorials run."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_without_a_warning(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(path), run_name="__main__")
    assert list(tmp_path.iterdir()) == []  # a tutorial leaves nothing behind


def test_there_are_tutorials() -> None:
    assert len(TUTORIALS) >= 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, with tutorials that were not run."""
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("docs")
    source = out / "source"
    subprocess.run(["cp", "-r", str(DOCS), str(source)], check=True)
    for made in ("reference_pages", "tutorials_run"):
        subprocess.run(["rm", "-rf", str(source / made)], check=True)
    subprocess.run(["ln", "-s", str(ROOT / "src"), str(out / "src")], check=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, str(source), str(out / "html")],
        env={**os.environ, "FALLOW_DOCS_RUN": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return out / "html"


def test_every_public_name_has_its_page(site: Path) -> None:
    from fallow._face import WHERE

    pages = {path.stem for path in (site / "reference_pages" / "names").glob("*.html")}
    assert pages == {f"fallow.{name}" for name in WHERE}


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
