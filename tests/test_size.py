"""Line counts of packages and of a site process."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "size.py"


def test_lines_are_counted_per_package_and_for_what_a_site_imports(tmp_path: Path) -> None:
    files = {
        "fallow/__init__.py": "",
        "fallow/cli/__init__.py": "",
        "fallow/core/__init__.py": "",
        "fallow/deployment/__init__.py": "",
        "fallow/deployment/site/__init__.py": "",
        "fallow/cli/site.py": "import fallow.core.used\n\nNAME = 1\n",
        "fallow/core/used.py": "X = 1\n",
        "fallow/core/unused.py": "A = 1\nB = 2\n",
        "fallow/deployment/site/serve.py": "Y = 1\n",
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    script = runpy.run_path(str(SCRIPT))
    assert script["count_tree"](tmp_path) == {
        "fallow": 0,
        "cli": 3,
        "core": 3,
        "deployment": 1,
    }
    assert script["count_site"](tmp_path) == {
        "fallow": 0,
        "cli": 3,
        "core": 1,
        "deployment": 1,
    }


def test_conditional_expressions_are_counted_with_those_in_arguments(
    tmp_path: Path,
) -> None:
    code = """
a = 1 if b else 2
f(1 if b else 2, *c, d=3 if b else 4)
f([1 if b else 2])
"""
    (tmp_path / "fallow").mkdir()
    (tmp_path / "fallow" / "dense.py").write_text(code)
    assert runpy.run_path(str(SCRIPT))["count_conditions"](tmp_path) == (4, 2)
