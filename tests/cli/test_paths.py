"""Simulations import modules from the current folder; sites do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.cli.paths import leave_current_folder, use_current_folder

PLANTED = ("fastapi", "jinja2", "uvicorn", "flwr", "opendp", "pyarrow")
"""Packages that commands import when they need them."""
RUN = """
from fallow.cli import main
try:
    main()
finally:
    import jinja2
"""
"""A command, and an import that commands make after their first checks."""


def ended(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``fallow`` by ``python -c``, which adds a folder of modules to the path."""
    for name in PLANTED:
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'ran')!r}, 'w').write({name!r})"
        )
    return subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("label", "SITE"), marks=pytest.mark.long),
        ("site", "start", "SITE"),
        pytest.param(("coordinate", "start", "DIR"), marks=pytest.mark.long),
    ],
)
def test_a_module_in_the_current_folder_is_not_imported_at_a_site(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    before = os.environ.get("PYTHONPATH", "")
    done = ended(tmp_path, *words, PYTHONPATH=f"{before}{os.pathsep}")
    assert done.returncode == 2 and "is not the folder of" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_current_folder_leaves_by_whatever_name_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    others = ["/elsewhere", str(tmp_path / "inside")]
    here = ["", ".", str(tmp_path), str(tmp_path / "link"), f"{tmp_path}/"]
    monkeypatch.setattr(sys, "path", [*here, *others])
    leave_current_folder()
    assert sys.path == others
    use_current_folder()
    assert sys.path == ["", *others]


def test_the_folder_in_which_fallow_lies_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import fallow

    source = str(Path(fallow.__path__[0]).parent)
    monkeypatch.chdir(source)
    monkeypatch.setattr(sys, "path", ["", source])
    leave_current_folder()
    assert sys.path == [source]
