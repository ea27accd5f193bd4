"""Draw the packages of Fallow from their imports: ``docs/packages.svg``.

    python scripts/draw_house.py

A package is a folder of ``src/fallow``.  It stands one row above the highest package that it imports.
An arrow that follows from others (a to b to c, and a to c) is not drawn.
"""

from __future__ import annotations

import ast
import html
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "fallow"
PICTURE = REPOSITORY / "docs" / "packages.svg"

WIDTH = 960
ROW_HEIGHT = 96
BOX_HEIGHT = 46
BOX_WIDTH = 132
MARGIN = 24

Arrows = dict[str, set[str]]


def read_arrows(source: Path) -> Arrows:
    """The packages below ``source``, and the packages that each one imports."""
    packages = {path.name for path in source.iterdir() if any(path.glob("**/*.py"))}
    arrows: Arrows = {package: set() for package in packages}
    for package in packages:
        for path in (source / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            arrows[package] |= imported_packages(tree) & packages - {package}
    return arrows


def imported_packages(tree: ast.Module) -> set[str]:
    """The folders of Fallow that a module imports from."""
    packages: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "fallow" and rest:
                packages.add(rest.partition(".")[0])
    return packages


def find_rows(arrows: Arrows) -> dict[str, int]:
    """Return the row of each package, from the bottom; ValueError for an import cycle."""
    rows: dict[str, int] = {}
    waiting = set(arrows)
    while waiting:
        ready = {package for package in waiting if arrows[package] <= rows.keys()}
        if not ready:
            raise ValueError(
                f"these packages import one another: {', '.join(sorted(waiting))}"
            )
        for package in ready:
            below = [rows[other] for other in arrows[package]]
            rows[package] = max(below, default=-1) + 1
        waiting -= ready
    return rows


def without_shortcuts(arrows: Arrows) -> Arrows:
    """The arrows that do not follow from others."""
    rows = find_rows(arrows)
    reached: Arrows = {}
    for package in sorted(arrows, key=rows.__getitem__):
        reached[package] = set(arrows[package])
        for other in arrows[package]:
            reached[package] |= reached[other]
    kept: Arrows = {}
    for package, targets in arrows.items():
        indirect: set[str] = set()
        for target in targets:
            indirect |= reached[target]
        kept[package] = targets - indirect
    return kept


def count_lines(package: Path) -> tuple[int, int]:
    """How many Python files a package has, and how many lines they have."""
    files = list(package.rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    return len(files), lines


def place_boxes(rows: dict[str, int]) -> dict[str, tuple[float, float]]:
    """The upper left corner of each package's box; row 0 is at the bottom."""
    top = max(rows.values())
    corners: dict[str, tuple[float, float]] = {}
    for row in range(top + 1):
        in_row = sorted(package for package, its_row in rows.items() if its_row == row)
        gap = (WIDTH - 2 * MARGIN - len(in_row) * BOX_WIDTH) / (len(in_row) + 1)
        for column, package in enumerate(in_row):
            x = MARGIN + gap * (column + 1) + BOX_WIDTH * column
            y = MARGIN + ROW_HEIGHT * (top - row)
            corners[package] = (x, y)
    return corners


STYLE = """
.box { fill: #f4f6f8; stroke: #5b6773; stroke-width: 1.2 }
.name { font: 600 14px system-ui, sans-serif; fill: #16202a }
.size { font: 11px system-ui, sans-serif; fill: #5b6773 }
.arrow { stroke: #9aa5b1; stroke-width: 1.2; fill: none }
@media (prefers-color-scheme: dark) {
  .box { fill: #1f2933; stroke: #9aa5b1 }
  .name { fill: #f4f6f8 }
  .size { fill: #cbd2d9 }
  .arrow { stroke: #616e7c }
}
"""


def draw(arrows: Arrows, source: Path) -> str:
    """The picture as SVG.  The arrows stand in it as text too, for a test."""
    rows = find_rows(arrows)
    corners = place_boxes(rows)
    shown = without_shortcuts(arrows)
    height = 2 * MARGIN + ROW_HEIGHT * max(rows.values()) + BOX_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The packages of Fallow: each imports only packages below it</title>",
        f"<desc>{html.escape(describe(arrows))}</desc>",
        f"<style>{STYLE}</style>",
    ]
    for package in sorted(shown):
        x, y = corners[package]
        for target in sorted(shown[package]):
            to_x, to_y = corners[target]
            start = f"{x + BOX_WIDTH / 2:.0f} {y + BOX_HEIGHT:.0f}"
            bend = f"{x + BOX_WIDTH / 2:.0f} {to_y - 24:.0f}"
            end = f"{to_x + BOX_WIDTH / 2:.0f} {to_y:.0f}"
            parts.append(f'<path class="arrow" d="M {start} Q {bend} {end}"/>')
    for package in sorted(corners):
        x, y = corners[package]
        n_files, n_lines = count_lines(source / package)
        middle = x + BOX_WIDTH / 2
        parts += [
            f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="6"/>',
            f'<text class="name" x="{middle:.0f}" y="{y + 20:.0f}" text-anchor="middle">'
            f"{package}</text>",
            f'<text class="size" x="{middle:.0f}" y="{y + 36:.0f}" text-anchor="middle">'
            f"{n_files} files, {n_lines / 1000:.1f}k lines</text>",
        ]
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def describe(arrows: Arrows) -> str:
    """The arrows in words, one package after another."""
    lines = [
        f"{package}: {', '.join(sorted(arrows[package])) or '-'}"
        for package in sorted(arrows)
    ]
    return "; ".join(lines)


def described_in(picture: Path) -> str:
    """The arrows that stand in a picture."""
    match = re.search("<desc>(.*?)</desc>", picture.read_text(encoding="utf-8"))
    return html.unescape(match.group(1)) if match else ""


if __name__ == "__main__":
    PICTURE.write_text(draw(read_arrows(SOURCE), SOURCE), encoding="utf-8")
