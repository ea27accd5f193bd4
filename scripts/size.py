"""Count the lines of each package, and of what a site process imports, beside those of a commit.

    python scripts/size.py            beside the last tag
    python scripts/size.py COMMIT     beside another commit

There is no limit.  A commit that adds more than 300 lines to the core gives a reason.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = "a site process"
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
    today = count_tree(ROOT / "src")
    before: dict[str, int] = {}
    if commit:
        with tempfile.TemporaryDirectory() as folder:
            archive = run_git("archive", "--format=tar", commit, "src/fallow")
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
            before = count_tree(Path(folder) / "src")
    sys.stdout.write(f"{'lines of code':20} {'today':>8} {commit[:10] or 'no tag':>10}\n")
    for name in {**before, **today}:
        sys.stdout.write(f"{name:20} {today.get(name, 0):8,} {before.get(name, 0):10,}\n")


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


def count_tree(source: Path) -> dict[str, int]:
    """Return the lines of each package below ``source``, of all, and of a site process."""
    counts: dict[str, int] = {}
    for path in sorted((source / "fallow").glob("**/*.py")):
        package = path.relative_to(source / "fallow").parent.parts[:1] or ("fallow",)
        counts[package[0]] = counts.get(package[0], 0) + count_lines(path)
    total = sum(counts.values())
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
    site = sum(count_lines(Path(line)) for line in done.stdout.splitlines())
    return {**counts, "all packages": total, SITE: site}


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
