"""Count the lines of each package, and of what a site process imports, beside those of a commit.

Also count conditional expressions (``a if p else b``), and those that are arguments of a call.

    python scripts/size.py            beside the last tag
    python scripts/size.py COMMIT     beside another commit

There is no limit.  A commit that adds more than 300 lines to the core gives a reason.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORTS = """
import sys
import fallow.cli.site, fallow.deployment.site.serve
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "fallow":
        print(module.__file__)
"""


def main() -> None:
    """Write the table."""
    commit = sys.argv[1] if len(sys.argv) > 1 else find_tag()
    today, site = count_tree(ROOT / "src"), count_site(ROOT / "src")
    before: Counter[str] = Counter()
    site_before: Counter[str] = Counter()
    density, density_before = count_conditions(ROOT / "src"), (0, 0)
    if commit:
        with tempfile.TemporaryDirectory() as folder:
            archive = run_git("archive", "--format=tar", commit, "src/fallow")
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
            before = count_tree(Path(folder) / "src")
            site_before = count_site(Path(folder) / "src")
            density_before = count_conditions(Path(folder) / "src")
    sys.stdout.write(f"{'':20} {'all packages':>21} {'a site process':>21}\n")
    since = commit[:10] or "no tag"
    heads = 2 * f"      today {since:>10}"
    sys.stdout.write(f"{'lines of code':20}{heads}\n")
    columns = (today, before, site, site_before)
    for name in [*{**before, **today}, ""]:
        numbers = [column[name] if name else sum(column.values()) for column in columns]
        cells = " ".join(f"{number:10,}" for number in numbers)
        sys.stdout.write(f"{name or 'sum':20} {cells}\n")
    titles = ("conditions", "in arguments")
    for title, n, n_before in zip(titles, density, density_before, strict=True):
        sys.stdout.write(f"{title:20} {n:10,} {n_before:10,}\n")


def find_tag() -> str:
    """Return the last tag, or an empty text if there is none."""
    line = ["git", "describe", "--tags", "--abbrev=0"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def run_git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout


def count_tree(source: Path) -> Counter[str]:
    """Return the lines of each package below ``source``."""
    return _count(source, sorted((source / "fallow").glob("**/*.py")))


def count_site(source: Path) -> Counter[str]:
    """Return the lines of each package that a site process imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=source,  # comes first in the search path, before the installed source
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"a site process of {source} does not start: {done.stderr}")
    return _count(source, map(Path, done.stdout.splitlines()))


def _count(source: Path, files: Iterable[Path]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for path in files:
        package = path.relative_to(source / "fallow").parent.parts[:1] or ("fallow",)
        counts[package[0]] += count_lines(path)
    return counts


def count_conditions(source: Path) -> tuple[int, int]:
    """Return the number of conditional expressions, and of those that are arguments of a call."""
    n_all = 0
    n_arguments = 0
    for path in (source / "fallow").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            n_all += isinstance(node, ast.IfExp)
            if isinstance(node, ast.Call):
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                n_arguments += sum(isinstance(value, ast.IfExp) for value in values)
    return n_all, n_arguments


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
