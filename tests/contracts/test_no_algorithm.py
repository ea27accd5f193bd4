"""Packages that transport and check messages contain no field or argument of an algorithm.

Such names occur only in declarations, so a new algorithm needs no other file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow.core.client import declared
from fallow.deployment.annotators import Annotators
from tests.contracts.test_adversaries import METHODS, SIZES

SOURCE = Path(__file__).resolve().parents[2] / "src" / "fallow"
PACKAGES = ("transport", "deployment")
CHECKS = (
    "transport/checks.py",
    "transport/gathering.py",
    "transport/peer_messages.py",
    "transport/remote.py",
    "deployment/coordinator/plausible_sums.py",
    "deployment/coordinator/weights.py",
    "deployment/site/limits.py",
)
"""Modules that check instructions and replies; they use few words of the protocol."""
CHECKED = {
    "count": "number that a site replies to `Ask.keep`",
    "features": "step before the first cycle: standardization",
    "labels": "registered labels, by which a site weighs",
    "last": "step of a cycle: last exchange of training",
    "left": "field of an event: seconds that are left",
    "refused": "why a reply or a peer message does not count",
    "rows": "registered examples, by which a site weighs, and tested ones",
    "squares": "squared errors on test examples (`Annotators.score`)",
    "stats": "part of the global model",
    "w": "part of the global model",
}
"""Words of the protocol in `CHECKS`, and what they mean there."""
WORDS = {
    **CHECKED,
    "body": "content of an instruction and of an HTTP message",
    "chosen": "labels that were typed beside a prediction (`PredictionUse`)",
    "columns": "columns of the agreed schema",
    "conflicts": "labeling tasks that annotators disagree on",
    "counts": "a word for the terms of a study",
    "end": "last piece of a message in NVFlare",
    "fold": "column of a table of the ledger",
    "high": "largest value of a column",
    "log": "folder of Flower",
    "low": "smallest value of a column",
    "mean": "agreed mean of a column over all sites",
    "n": "number of things in a translated text",
    "noisy": "value of the setting `privacy.sums`",
    "numbers": "exact numbers that a site has sent (`Exposure`)",
    "one": "column of a table of the ledger",
    "order": "sequence of the languages in the table of translations",
    "purpose": "of an instruction: request, delivery or progress",
    "distance": "score of a study without training",
    "targets": "state with the unit of regression targets, and the step that computes it",
    "std": "agreed standard deviation of a column over all sites",
    "turn": "number of an exchange of a step",
    "unit": "unit of a column",
    "variance": "note with the unit of squared errors, and variance over sites",
    "weight": "weight of a selected example",
    "weights": "file with the weights of an encoder",
    "width": "of an image in a COCO file",
    "y": "labels in a file of arrays",
}
"""Words of the protocol that a field or an argument of some algorithm is called too."""


def find_names() -> dict[str, str]:
    """Return fields and arguments of all built-in algorithms, with their functions."""
    names: dict[str, str] = {}
    for method in METHODS:
        if isinstance(method, Annotators):  # the protocol itself
            continue
        for item in declared(method).values():
            fields = list(item.takes or {})
            if item.returns is not None:
                fields += [*item.returns.fields({}), *item.returns.fields(SIZES)]
            for name in fields:
                names[name] = f"{type(method).__name__}.{item.name}"
    return names


NAMES = find_names()


def list_texts() -> Iterator[tuple[str, int, str]]:
    """Yield file, line and text of every constant."""
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            file = path.relative_to(SOURCE).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield file, node.lineno, node.value


TEXTS = list(list_texts())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_is_a_field_or_an_argument_of_an_algorithm(package: str) -> None:
    faults: list[str] = []
    for file, line, text in TEXTS:
        allowed = CHECKED if file in CHECKS else WORDS
        if file.startswith(package) and text in NAMES and text not in allowed:
            faults.append(f"{file}:{line} knows {text!r} of {NAMES[text]}")
    assert faults == [], "declare it beside the client function, or list what it means here"


def test_every_listed_word_is_the_name_of_a_field_or_an_argument() -> None:
    assert sorted(WORDS.keys() - NAMES.keys()) == []
