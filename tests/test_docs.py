"""Run every ```python block of README.md and docs/ in a fresh namespace and folder.

A block after the comment ``<!-- fragment -->`` is compiled and not run. In bash blocks the
commands of `fallow` must have the options that they name; blocks of other languages are for
reading.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests.commands import check_command, commands_of

REPOSITORY = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^\s*(?P<marks>`{3,}|~{3,})\s*(?P<language>[^\s`]*)[^`]*$")
FRAGMENT = "<!-- fragment -->"
TRAINS = ("fl.compare(", "fl.run(")


@dataclass(frozen=True)
class Block:
    """A fenced block: ``line`` is the line of its first code line in ``path``, from 1."""

    path: Path
    line: int
    language: str
    code: str
    is_fragment: bool

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"

    def compiled(self) -> CodeType:
        """Compile the code with the document's line numbers in tracebacks."""
        padded = "\n" * (self.line - 1) + self.code
        return compile(padded, str(self.path), "exec", dont_inherit=True)


def blocks(path: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a Markdown file; fences may be nested."""
    lines = path.read_text(encoding="utf-8").splitlines()
    opened, before = None, ""
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened = (fence["marks"], fence["language"], number, before == FRAGMENT)
        elif fence and fence["marks"].startswith(opened[0]) and not fence["language"]:
            _, language, start, is_fragment = opened
            code = dedent("\n".join(lines[start : number - 1])) + "\n"
            yield Block(path, start + 1, language, code, is_fragment)
            opened = None
        before = line.strip() or before
    if opened:
        raise ValueError(f"{path.name}: the fence of line {opened[2]} is never closed")


def blocks_of(language: str) -> list[Block]:
    """Return the blocks of a language in all documents."""
    documents = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    result = [block for path in documents if path.exists() for block in blocks(path)]
    return [block for block in result if block.language == language]


SHORTER = {
    "filters=8": "filters=2",
    "training=local": "training=local@rounds=2",
    "seeds=2, cycles=1": "seeds=2, cycles=1, encoder=fl.Convolution(filters=2)",
}
"""Settings of a comparison of images, and the smaller ones that are tested here."""


def shorten(block: Block) -> Block:
    """Return a block whose comparisons of images have fewer features and rounds."""
    if "fl.compare(" not in block.code or "digits" not in block.code:
        return block
    code = block.code
    for long, short in SHORTER.items():
        code = code.replace(long, short)
    return replace(block, code=code)


def run(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a block as a module, so that its dataclasses can resolve names."""
    module = ModuleType("fallow_docs_block")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(block.compiled(), module.__dict__)


def list_examples() -> list[Any]:
    """Return the Python blocks; those that train models take seconds."""
    return [
        pytest.param(
            block,
            id=str(block),
            marks=pytest.mark.long if is_long(block) else (),
        )
        for block in blocks_of("python")
    ]


def is_long(block: Block) -> bool:
    return any(call in block.code for call in TRAINS)


def test_blocks_that_take_seconds_are_compiled() -> None:
    long = [block for block in blocks_of("python") if is_long(block)]
    assert len(long) > 10
    for block in long:
        block.compiled()


# Scores of shortened blocks may mean nothing, of which `fl.compare` warns.
@pytest.mark.filterwarnings("default::RuntimeWarning")
@pytest.mark.parametrize("block", list_examples())
def test_a_block_of_the_documents_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if block.is_fragment:
        block.compiled()
    else:
        run(shorten(block), monkeypatch)


def test_every_command_in_a_bash_block_has_its_options() -> None:
    wrong = []
    commands = 0
    for block in blocks_of("bash"):
        for words in commands_of(block.code):
            commands += 1
            try:
                check_command(words)
            except AssertionError as error:
                wrong.append(f"{block}: {error}")
    assert commands > 50
    assert wrong == []


def write(tmp_path: Path, text: str) -> list[Block]:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    return list(blocks(path))


def test_a_block_knows_its_language_and_its_line(tmp_path: Path) -> None:
    (block,) = write(tmp_path, "# Title\n\n```python\nx = 1\n```\n")
    assert (block.language, block.line, block.code) == ("python", 4, "x = 1\n")
    assert not block.is_fragment


def test_an_indented_block_is_read_without_its_indent(tmp_path: Path) -> None:
    (block,) = write(tmp_path, "1. Do:\n\n   ```python\n   if x:\n       y()\n   ```\n")
    assert block.code == "if x:\n    y()\n"


def test_a_fragment_is_marked_by_the_comment_right_before_it(tmp_path: Path) -> None:
    text = f"{FRAGMENT}\n\n```python\nf(...)\n```\n\n```python\ng()\n```\n"
    assert [block.is_fragment for block in write(tmp_path, text)] == [True, False]


def test_a_fence_inside_a_longer_fence_is_text(tmp_path: Path) -> None:
    (block,) = write(tmp_path, "````text\n```python\n1 / 0\n```\n````\n")
    assert block.language == "text"


def test_a_fence_that_is_never_closed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1 is never closed"):
        write(tmp_path, "```python\nx = 1\n")


def test_a_block_that_fails_fails_at_the_line_of_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = write(tmp_path, "words\n\n```python\nx = 1\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run(block, monkeypatch)
    assert caught.traceback[-1].lineno == 4  # zero-based: line 5 of the page


def test_a_dataclass_in_a_block_finds_its_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    code += "from typing import get_type_hints\n@dataclass\nclass A:\n    next: A | None\n"
    code += "assert get_type_hints(A)['next'] == A | None\n"
    (block,) = write(tmp_path, f"```python\n{code}```\n")
    run(block, monkeypatch)
