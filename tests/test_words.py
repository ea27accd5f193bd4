"""`scripts/words.py` finds variables without meaning."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.mark.parametrize(
    "line",
    [
        "picks = 3",
        "MOST = 3",
        "class Found: ...",
        "def f(about): ...",
        "import os as place",
        "a.told = 1",
        "try: ...\nexcept OSError as said: ...",
        "match a:\n    case [held, *told]: ...",
    ],
)
def test_a_name_without_meaning_is_found(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    words = import_module("words")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(line + "\nresult = 1\n")
    assert list(words.find_names(tmp_path / "a.py"))
