"""A study with hostile names is safe in all output and all written files."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fallow.cli import main
from fallow.cli.terminal import Spinner, show_table
from fallow.report.blocks import harmless
from fallow.report.final_table import final_table
from fallow.report.tables import to_rich
from fallow.storage.plain import cell, cell_text, is_unfit
from fallow.study.reading import read_study
from tests.report.conftest import rewrite, write_study

STEERS = "\x1b]8;;http://evil.example\x07here\x1b]8;;\x07\x9b31m\u202eback\u2066"
MARKUP = "</style><script>alert(1)</script><img src=x onerror=alert(1)>"
LINKS = "![p](http://evil.example/p.png)[t](http://evil.example)<http://evil.example>"
WORDS = (
    "'''; import os #\\write18{ls}$\\href{http://evil.example}{y}$[link=http://x]z[/link]"
)
LINES = "first\n\n# second\r| 1 | 2 |"
EVIL = "".join((STEERS, MARKUP, LINKS, WORDS, LINES))
FORMULAS = ["=1+1", "-2+3+cmd|' /C calc'!A0", "\uff1d1+1", "Ann;=1+1", 'Ann;"=1+1;"']
NAMED = re.sub(r"[^\x20-\x7e]", "", EVIL.replace("/", "_"))[:150]
"""As the name of a strategy, which is the name of a folder too."""


def _write_evil_study(root: Path) -> Path:
    """Write a study of two strategies over two seeds with hostile names elsewhere."""
    named = {"name": EVIL, "fields": {EVIL: EVIL}}
    config = {"data": EVIL, "title": EVIL, "training": named, "model": named, EVIL: EVIL}
    write_study(
        root,
        strategies=("random", f"-2+cmd|' _C'!A{NAMED}"),
        seeds=2,
        cycles=2,
        reference="random",
        name=EVIL,
        config=config,
        command=EVIL,
        classes=[EVIL],
        versions={"fallow": EVIL, EVIL: EVIL},
    )
    sites = [f"{formula}{EVIL}" for formula in FORMULAS[:3]]
    for file in root.glob("cells/*/*/partition.json"):
        part = json.loads(file.read_text())
        part |= {"sites": sites, "classes": [f"{i}{EVIL}" for i in range(4)]}
        file.write_text(json.dumps(part))
    named_by_others: dict[str, object] = {"notes": {EVIL: EVIL}, "versions": {EVIL: EVIL}}
    named_by_others |= {"training": EVIL, "executor": EVIL}
    rewrite(root, lambda record, _: {"config": EVIL, "cohort": sites} | named_by_others)
    return root


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_evil_study(tmp_path_factory.mktemp("evil") / "study")


@pytest.fixture(scope="module")
def written(study: Path) -> dict[str, str]:
    """Return the text of all files and the screen output of each command."""
    files = {
        "html": (
            "report",
            study,
            "--out",
            study / "r.html",
            "--notebook",
            study / "r.ipynb",
        ),
        "csv": ("export", study, "--out", study / "r.csv"),
        "md": ("export", study, "--to", "markdown", "--out", study / "r.md"),
        "tex": ("export", study, "--to", "latex", "--out", study / "r.tex"),
        "cite": ("cite", study),
        "forecast": ("forecast", study),
        "advise": ("advise", study),
    }
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of figures without space for such names
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        for words in files.values():
            patch.setattr(sys, "argv", ["fallow", *map(str, words)])
            with pytest.raises(SystemExit):
                main()
    result = {path.suffix[1:]: path.read_text() for path in study.glob("r.*")}
    return result | {"screen": screen.getvalue()}


def test_nothing_that_is_shown_steers_a_terminal_or_turns_around(
    written: dict[str, str],
) -> None:
    kinds = {"html", "ipynb", "csv", "md", "tex", "screen"}
    assert written.keys() == kinds, written["screen"]
    for kind, text in written.items():
        shown = text
        if kind == "ipynb":
            cells = json.loads(text)["cells"]
            shown = "\n".join(cell["source"] for cell in cells)
        unfit = {sign for sign in shown if is_unfit(sign)} - set("\n\t\r")
        assert not unfit, kind
    assert "this is a bug" not in written["screen"]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                self.addresses.append(str(value))


def test_names_are_no_code_and_no_address_of_a_page(written: dict[str, str]) -> None:
    parser = _Parser()
    parser.feed(written["html"])
    assert not {"script", "img"} & parser.tags
    assert all(address.startswith(("#", "data:")) for address in parser.addresses)


def test_a_command_that_is_copied_from_a_report_is_one_line(
    written: dict[str, str],
) -> None:
    (command,) = re.findall(
        r"<pre[^>]*><code>(.*?)</code></pre>", written["html"], re.DOTALL
    )
    assert "# second" in command and "\n" not in command


def test_no_cell_of_any_table_is_a_formula(written: dict[str, str]) -> None:
    tables = [written["csv"]]
    for result in re.findall(
        r"data:text/csv;charset=utf-8;base64,([^\"]+)", written["html"]
    ):
        tables.append(base64.b64decode(result).decode("utf-8-sig"))
    assert len(tables) > 4
    for text in tables:
        for separator in ",;":
            for row in csv.reader(io.StringIO(text), delimiter=separator):
                for value in row:
                    _check_no_formula(value)


def _check_no_formula(value: str) -> None:
    assert not value.lstrip().startswith(("=", "@", "\uff1d"))
    assert not re.match(r"[+-].*[(|!]", value), value


def test_a_name_is_one_line_of_markdown_without_links_tags_or_formulas(
    written: dict[str, str],
) -> None:
    details = json.loads(written["ipynb"])["cells"]
    (first, *_) = [item["source"] for item in details if item["cell_type"] == "markdown"]
    for text in (first, written["md"]):
        assert not re.search(r"<[a-z/!]|\]\(|(?<!\\)\$", text)
        assert not re.search(r"^# second|^\| 1 \| 2 \|", text, re.MULTILINE)
    rows = [line for line in written["md"].splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {
        rows[0].count("|")
    }


def test_names_are_no_code_of_a_notebook(written: dict[str, str]) -> None:
    for item in json.loads(written["ipynb"])["cells"]:
        if item["cell_type"] == "code":
            assert "import os" not in item["source"]


def test_a_folder_whose_name_is_code_is_quoted_in_a_notebook(tmp_path: Path) -> None:
    from fallow.report.notebook import write_notebook

    root = write_study(tmp_path / "a'); import os; ('", ("random",), 1, 1, None)
    out = write_notebook([root], tmp_path / "n.ipynb")
    sources = [item["source"] for item in json.loads(out.read_text())["cells"]]
    (code,) = [source for source in sources if "read_study" in source]
    names = compile(code, "cell", "exec").co_names
    assert "os" not in names and "read_study" in names


def test_a_line_of_latex_is_one_line_and_runs_no_command(written: dict[str, str]) -> None:
    assert "\\write18" not in written["tex"] and "\\href" not in written["tex"]
    caption = written["tex"].partition("\\caption{")[2]
    assert "\n" not in caption[: caption.index("second")]


def test_tables_of_a_terminal_obey_no_name(study: Path) -> None:
    table = final_table(read_study(study))
    screen = Console(force_terminal=True, file=io.StringIO(), width=200)
    screen.print(to_rich(table))
    show_table(screen, f"a{EVIL}", [f"b{EVIL}"], [[EVIL]])
    with Spinner(screen, f"reading {EVIL}"):
        pass
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    for steering in ("\x1b]", "\x9b", "\u202e", "\u2066"):
        assert steering not in shown
    assert "[link=http://x]z" in re.sub(r"\s", "", shown)


def test_a_field_that_no_record_has_is_refused_in_a_line_that_steers_nothing(
    tmp_path: Path,
) -> None:
    root = write_study(tmp_path / "s", ("random",), 1, 1, None)
    rewrite(root, lambda record, _: {EVIL: EVIL})
    with pytest.raises(ValueError, match="is not a field") as refused:
        read_study(root)
    assert not any(is_unfit(sign) for sign in str(refused.value))


def test_a_strategy_that_is_no_line_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for name in ("a\nb", "a\x1b[1m", "..", ""):
        root = write_study(tmp_path / "s", ("random",), 1, 1, None)
        study = json.loads((root / "study.json").read_text()) | {"strategies": [name]}
        (root / "study.json").write_text(json.dumps(study))
        with pytest.raises(ValueError, match="must be the name of a strategy"):
            read_study(root)
        for file in root.glob("cells/*/*/*"):
            file.unlink()
        for folder in (*root.glob("cells/*/*"), *root.glob("cells/*")):
            folder.rmdir()


@pytest.mark.parametrize("text", FORMULAS)
def test_what_is_a_formula_behind_a_semicolon_is_text_and_comes_back(text: str) -> None:
    once = str(cell(text))
    assert cell_text(once) == text and cell_text(str(cell(once))) == once
    for shown in (once, harmless(text)):
        line = pd.DataFrame([["first", shown]]).to_csv(index=False, header=False)
        for separator in ",;":
            for value in next(csv.reader([line], delimiter=separator)):
                _check_no_formula(value.lstrip('"'))


def test_any_text_comes_back_from_a_cell() -> None:
    draw = np.random.default_rng(0)
    for _ in range(500):
        text = "".join(draw.choice(list("=-'\"; \n1a"), size=6))
        assert cell_text(str(cell(text))) == text
