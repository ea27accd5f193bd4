"""Count names, spellings and openings of sentences that the style guide replaces.

    python scripts/words.py            print the counts, and fail where one exceeds its limit
    python scripts/words.py names      list each place of a kind: names, spelling, openings

The limits are the counts of the last cleanup: a change may lower them and not raise them.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "src",
    "scripts",
    "bench",
    "docs",
    "examples",
    "integrations",
    "studies",
    "tests",
)
NAMES = {
    *(
        "about",
        "addend",
        "anew",
        "each",
        "errand",
        "found",
        "given",
        "gone",
        "held",
        "letters",
    ),
    *(
        "most",
        "news",
        "office",
        "picks",
        "place",
        "purse",
        "recipe",
        "recipes",
        "said",
        "told",
    ),
    *("verb", "verbs", "who", "world", "worlds"),
}
ALLOWED = {"each": "operation of the protocol: `ask.each`, `client.each`, `Contract.each`"}
"""Names that stay outside function bodies, and why: methods, fields and module attributes."""
EXAMPLE = re.compile(rf"\s*>>> [\w, ]*\b({'|'.join(sorted(NAMES))})\b[\w, ]*=(?!=)")
"""Line of a docstring that assigns to a name of `NAMES`."""
OPENINGS = re.compile(
    r"(What|Who|Whose|So many|So much|Of|Behind|By(?! default))\b(?!.*\?)"
)
OPENED = re.compile(r"(#[#: ]*|\"{3}\s*)(What|Who|Whose|So|Of|Behind|By)\b")
"""Part of the files that are worth reading by tokens, which is slow."""
TITLE = "What leaves a site"
"""Title of a page and of a section of reports, which may open so."""
BRITISH = re.compile(
    r"\w*(?:(?:un)?labell(?:ed|ing)\b|(?<!aria-)colour|neighbour|behaviour|favour|centre|catalogue|"
    r"licence|learnt\b|grey\b|(?:standard|normal|optim|personal|general|penal|initial|recogn|minim|"
    r"maxim|central|serial|author|summar)is(?:e|ed|es|ing|ation|er)\b)\w*",
    re.IGNORECASE,
)
NAMED = (
    ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.ClassDef
    | ast.ExceptHandler
    | ast.MatchAs
    | ast.MatchStar
)
LIMITS = {"names": 0, "spelling": 0, "openings": 0}

Finding = tuple[str, int, str]
"""File, line and what is there."""


def list_files(*endings: str) -> list[Path]:
    """Files of the repository with these endings, README.md included."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    for folder in FOLDERS:
        files.extend(sorted((ROOT / folder).rglob("*")))
    itself = Path(__file__).resolve()
    return [file for file in files if file.suffix in endings and file != itself]


def find_names(path: Path) -> Iterator[Finding]:
    """Variables, parameters, fields and functions with a name of `NAMES`."""
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if match := EXAMPLE.match(line):
            yield str(path.relative_to(ROOT)), number, match[1]
    tree = ast.parse(text)
    local = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if node is not function
    }
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.alias):
            name = node.asname
        elif isinstance(node, NAMED):
            name = node.name
        if name is None:
            continue
        name = name.lower()
        if name in NAMES and (id(node) in local or name not in ALLOWED):
            yield str(path.relative_to(ROOT)), getattr(node, "lineno", 0), str(name)


def find_spelling(path: Path) -> Iterator[Finding]:
    """British spellings, in code and prose."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for match in BRITISH.finditer(line):
            yield str(path.relative_to(ROOT)), number, match[0]


def find_openings(path: Path) -> Iterator[Finding]:
    """Docstrings, comments and paragraphs that begin with a word of `OPENINGS`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        paragraphs = _list_paragraphs(text)
    else:
        paragraphs = _list_comments(text)
    for number, paragraph in paragraphs:
        if OPENINGS.match(paragraph) and paragraph != TITLE:
            yield str(path.relative_to(ROOT)), number, paragraph[:60]


def _list_paragraphs(text: str) -> Iterator[tuple[int, str]]:
    is_code = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        if not is_code and not before.strip():
            yield number, line.lstrip("#*-> ")
        before = line


def _list_comments(text: str) -> Iterator[tuple[int, str]]:
    if not OPENED.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
        elif token.type == tokenize.STRING and '"""' in token.string[:5]:
            yield token.start[0], token.string.lstrip('rbf"').strip()


KINDS: dict[str, tuple[Callable[[Path], Iterator[Finding]], tuple[str, ...]]] = {
    "names": (find_names, (".py",)),
    "spelling": (find_spelling, (".py", ".md", ".html", ".toml")),
    "openings": (find_openings, (".py", ".md")),
}


def main(wanted: list[str]) -> int:
    """Print counts, or the places of the kinds that are named; 1 where a limit is exceeded."""
    is_over = False
    for kind, (find, endings) in KINDS.items():
        findings = [finding for path in list_files(*endings) for finding in find(path)]
        if kind in wanted:
            for file, line, text in findings:
                print(f"{file}:{line}: {text}")
        print(f"{kind}: {len(findings)} (at most {LIMITS[kind]})")
        is_over |= len(findings) > LIMITS[kind]
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
