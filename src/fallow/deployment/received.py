"""Safe reading of untrusted files: limits on size and depth, and checks of texts.

Files are parsed only. Nothing that they name is imported, built or evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from fallow.core.refusal import explain_errors
from fallow.storage.plain import is_unfit
from fallow.storage.received import parse_toml, read_named

MOST_LETTERS = 10_000  # longest text in a file
DEPTH = 12  # deepest nesting of tables and lists
CERTIFICATE = "federation.authority"
"""The only setting that may exceed the length limit."""
WITH_LINES = {CERTIFICATE: "\r\n", "federation.guideline": "\n"}
"""Multi-line settings and their permitted line ends."""


def read_bytes(file: Path, otherwise: str) -> bytes:
    """Return the content of a file.

    Raises ValueError for a file that is missing, unreadable or too large. ``otherwise`` completes
    the message with the fix.
    """
    with explain_errors(f"{file} cannot be read (", after=f"): {otherwise}", of=OSError):
        return read_named(file)


def read_toml(file: Path, otherwise: str) -> dict[str, object]:
    """Return the settings in a TOML file. Raises ValueError for any other content."""
    content = read_bytes(file, otherwise)
    with explain_errors(f"{file} is not valid TOML: ", of=UnicodeDecodeError):
        text = content.decode()
    return parse_toml(text, file)


def check_texts(tree: Mapping[str, object]) -> None:
    """Raise ValueError, naming the setting, for unsafe or long texts and deep nesting."""
    # pending entries: setting, value and depth
    waiting: list[tuple[str, object, int]] = []
    for key, value in tree.items():
        waiting.append((key, value, 1))
    for key in tree:
        _check_text("a setting", key)
    while waiting:
        where, value, depth = waiting.pop()
        if depth > DEPTH:
            raise ValueError(
                f"{where:.80} is nested too deeply; use fewer nested lists and tables"
            )
        if isinstance(value, str):
            _check_text(where, value)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                _check_text(f"a setting in {where}", key)
                waiting.append((f"{where}.{key}", inner, depth + 1))
        elif isinstance(value, list | tuple):
            for inner in value:
                waiting.append((where, inner, depth + 1))


def _check_text(where: str, text: str) -> None:
    if len(text) > MOST_LETTERS and where != CERTIFICATE:
        raise ValueError(
            f"{where:.80} has {len(text)} characters, more than {MOST_LETTERS}"
        )
    allowed = WITH_LINES.get(where, "")
    for before, character in pairwise(f" {text}"):
        if is_unfit(character, before) and character not in allowed:
            raise ValueError(
                f"{where:.80} is {text!r:.80}, with the character {character!r}, which changes "
                "how other text is shown; leave it out"
            )
