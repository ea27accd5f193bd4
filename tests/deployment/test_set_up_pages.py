"""Test that the commands in the documentation set up a federation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fallow.cli.app import build_app
from fallow.core.names import OWN
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import read_agreement
from fallow.transport.kinds import HTTPS
from tests.commands import commands_of

pytest.importorskip("cryptography")
DOCS = Path(__file__).resolve().parents[2] / "docs"
SITES = ("basel", "bern", "zug")


def commands(page: str) -> list[list[str]]:
    """Return the commands of all bash blocks of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [words for block in blocks for words in commands_of(block)]


def run(words: list[str], typed: str | None = None) -> str:
    done = CliRunner().invoke(build_app(), words, input=typed)
    assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"
    return done.output


def write_files() -> None:
    """Write the files that the pages assume, for a coordinator and a site."""
    head = "id,age,pressure,smoker,outcome\n"
    lines = [
        f"p{number},{30 + number},{110 + 7 * number % 50},{'yes' if number % 3 else 'no'}"
        for number in range(40)
    ]
    labeled = [f"{line},{'ill' if n % 2 else 'well'}\n" for n, line in enumerate(lines)]
    Path("example.csv").write_text(head + "".join(labeled[:8]))
    Path("rows.csv").write_text(head + "".join(f"{line},\n" for line in lines[:30]))
    Path("test.csv").write_text(head + "".join(labeled[30:]))


def transport_of(words: list[str]) -> str:
    if "--transport" not in words:
        return HTTPS  # the default
    return words[words.index("--transport") + 1]


def as_site(words: list[str], name: str) -> list[str]:
    return [word.replace("basel", name) for word in words]


@pytest.mark.long
def test_the_page_sets_up_a_federation_of_three_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files()
    pages = commands("deployment.md")
    (init,) = [words for words in pages if words[:2] == ["coordinate", "init"]]
    (join,) = [words for words in pages if words[:2] == ["site", "init"]]
    (admit,) = [words for words in pages if words[:2] == ["coordinate", "admit"]]
    run(init)
    shutil.copy("heart/study.toml", "study.toml")
    digest = read_agreement("study.toml").digest
    assert digest in run(["coordinate", "status", "heart"])
    for name in SITES:
        adjudicators = ["--adjudicators", "Ann,Bob"]
        run(as_site([*join, *adjudicators], name), typed=f"{digest[:8]}\n")
        shutil.copy(f"{name}-site/join.json", f"{name}.json")
    run(admit)
    assert CoordinatorFolder.open("heart").missing == []
    site = SiteFolder.open("basel-site")
    assert site.settings.limit == 200
    assert site.settings.adjudicators == ("Ann", "Bob")
    assert site.agreement.config.privacy.secure_sum  # as the page states for three sites
    run(["site", "status", "basel-site"])


def set_up(transport: str) -> SiteFolder:
    """Set up the site of basel in the current folder with the commands for a transport."""
    write_files()
    pages = commands("transports.md")
    inits = [n for n, words in enumerate(pages) if words[:2] == ["coordinate", "init"]]
    (at,) = [n for n in inits if transport_of(pages[n]) == transport]
    init, join = pages[at : at + 2]
    run(init)
    shutil.copy("heart/study.toml", "study.toml")
    agreement = read_agreement("study.toml", OWN)
    digests = [described.digest for described in agreement.distributions.values()]
    join = [word.replace("DIGEST", "".join(digests)) for word in join]
    run(join, typed=f"{agreement.digest}\n\n")
    return SiteFolder.open("basel-site")


def test_https_is_set_up_by_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set_up(HTTPS).agreement.transport == HTTPS
