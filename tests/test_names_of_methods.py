"""Shared packages name no algorithm or paper.

Names come from the package exports and the table of papers, so new ones are covered
automatically. Docstrings and comments may give examples.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow import strategies, training
from fallow.configs.find import load_configs
from fallow.configs.papers import load_papers
from fallow.core.build import names
from fallow.core.names import spell_class
from fallow.training import personal

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fallow"
ROOMS = (
    *("core", "storage", "privacy", "engine", "sites", "transport", "settings"),
    *("experiment", "study", "report", "deployment", "cli"),
)
PLAIN = {
    "random": "the strategy that others are compared with, and the default of a configuration",
    "entropy": "the default of a configuration, what pooled bounds choose by, and a number of labels",
    "fedavg": "the default of a configuration",
    "closedform": "the default training algorithm",
    "closedformlabels": "the default training algorithm for several labels per example",
    "typical": "initial labels, where a configuration says so",
    "demo": "a command",
    "benchmark": "a command, and a switch of cuDNN",
}
"""Names that the shared rooms may say, and why."""
WORDS = {
    "local": "a site's own model, in contracts and captions",
    "margin": "a distance",
    "ensemble": "several models",
    "robust": "an adjective",
    "complementary": "an adjective",
    "coverage": "of a confidence interval, or of tests",
    "own": "whose something is",
    "none": "the absence of something",
}
"""Names that are also ordinary words, which no search can tell apart."""


def fold_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def known_names() -> set[str]:
    """Return every spelling of every algorithm, class of public code, and paper."""
    outcome = set()
    for package in (strategies, training, personal):
        for name, cls in names(package).items():
            contract = cls.contract
            outcome |= {name, spell_class(cls), contract.short, *contract.aliases}
    for paper in load_papers():
        outcome |= {code.name for code in paper.codes}
    outcome |= {name.partition("/")[0] for name in load_configs()}
    kept = {fold_name(name) for name in outcome} - {
        fold_name(name) for name in (*PLAIN, *WORDS)
    }
    return kept - {"", "pycache", "personalal", "strategies"}


NAMES = known_names()


def words_of(text: str) -> Iterator[str]:
    """Return the words of a text, alone and joined with the next one or two.

    >>> sorted(words_of("core_set=1"))
    ['1', 'core', 'coreset', 'coreset1', 'set', 'set1']
    """
    parts = [part for part in re.split(r"[^A-Za-z0-9+]+", text) if part]
    parts = [fold_name(part) for part in parts]
    yield from parts
    for many in (2, 3):
        yield from ("".join(parts[i : i + many]) for i in range(len(parts) - many + 1))


def is_docstring(node: ast.Constant, parents: dict[int, ast.AST]) -> bool:
    """Check whether a text is a docstring or the description of a constant."""
    return isinstance(parents.get(id(node)), ast.Expr)


def list_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield texts and identifiers of a file with their lines."""
    parents = {
        id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if not is_docstring(node, parents):
                yield node.lineno, text
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
            case ast.alias(name=name):
                yield node.lineno, name


def find_names(code: str) -> list[str]:
    """Return one message for each name of an algorithm or paper in a file's code."""
    result = {
        f"line {line}: {word}"
        for line, text in list_texts(ast.parse(code))
        for word in words_of(text)
        if word in NAMES
    }
    return sorted(result)


def test_names_of_methods_and_papers_are_known() -> None:
    assert {"ahfal", "fale", "dpfl", "coreset", "ratioahfal", "kafal"} <= NAMES
    assert {"serversolve", "typiclust", "fedavgft", "fairfal"} <= NAMES


@pytest.mark.long
@pytest.mark.parametrize("room", ROOMS)
def test_a_shared_room_knows_no_method_and_no_paper_by_name(room: str) -> None:
    result = [
        f"{path.relative_to(SOURCE)}, {what}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for what in find_names(path.read_text(encoding="utf-8"))
    ]
    assert not result, "\n".join(["", *result])


@pytest.mark.parametrize(
    "code",
    [
        'if strategy.key == "fale": ...',
        'strategy = "core_set:model=global"',
        "from fallow.strategies import BADGE",
        "def ahfal_pairs(): ...",
        'use = "use training=server-solve:ridge=0.001"',
        "wins(fairfal=1)",
    ],
)
def test_a_name_in_code_is_found(code: str) -> None:
    assert find_names(code)


@pytest.mark.parametrize(
    "code",
    ['"""As in FALE."""', "x = 1  # BADGE", 'y = "random"', 'z = "the local model"'],
)
def test_an_example_in_words_and_an_ordinary_word_are_not(code: str) -> None:
    assert find_names(code) == []
