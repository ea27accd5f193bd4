"""Write docs/input-tests.md: the kinds of input, with the number of their tests.

    python scripts/input_tests.py

Rows of a table of cases count as one input each (``each_of`` and ``parametrize``), and so does a
test without a table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "input-tests.md"
KINDS: Mapping[str, tuple[str, Sequence[str]]] = {
    "technical columns": (
        "saved indexes, row counters",
        ["data.test_kinds_technical"],
    ),
    "columns that tell the label": (
        "a single column that predicts the label",
        ["data.test_kinds_giveaways"],
    ),
    "loss of digits": (
        "times, coordinates, money in cents",
        ["data.test_kinds_digits"],
    ),
    "number syntax": (
        "`1.234,5`, `10_20`, `5 %`, `0.123 mg`",
        ["data.test_kinds_numbers", "data.test_kinds_marks"],
    ),
    "units": (
        "two units in a column, or at the sites",
        ["data.test_kinds_units"],
    ),
    "codes and names": (
        "`01` beside `1`, postal codes, Unicode forms",
        ["data.test_kinds_codes"],
    ),
    "missing values": (
        "masks, words, 999, -1, empty cells at sites",
        ["data.test_kinds_missing", "data.test_own_missing", "data.test_drop_rows"],
    ),
    "types": (
        "Decimal, dates, categories, bytes, sparse matrices",
        ["data.test_kinds_types"],
    ),
    "delimited text": (
        "separators, quotes, encodings, blank and long rows",
        ["data.test_kinds_delimited", "data.test_own_files"],
    ),
    "spreadsheets": (
        "titles, sheets, merged and hidden cells, formulas",
        ["data.test_kinds_spreadsheets"],
    ),
    "files of instruments, spreadsheets and cameras": (
        "`120/80`, `−1.5`, 20240131, repeated headers, totals, masks",
        ["data.test_kinds_ugly", "data.test_kinds_extra_rows"],
    ),
    "free text": ("columns of texts", ["data.test_texts"]),
    "arrays": (
        "`.npz`, channels last, pixels of integers, targets",
        [
            "data.test_own_archive",
            "data.test_own_channels",
            "data.test_own_pixels",
            "data.test_embedded",
        ],
    ),
    "pictures": (
        "orientation, palettes, alpha, CMYK, 16 bits, pages, damage",
        ["data.test_shown_images", "data.test_own_images", "data.test_own_pages"],
    ),
    "medical images": (
        "slope, inverted gray, signed bits, palettes",
        ["data.test_own_scans"],
    ),
    "folders": (
        "splits, empty classes, links, tables of targets",
        ["data.test_own_folders", "data.test_own_layouts"],
    ),
    "groups": (
        "several rows of one patient",
        ["data.test_groups"],
    ),
    "packed files": ("bombs and damaged archives", ["data.test_unpacking"]),
    "published datasets": (
        "IDX, CIFAR, MedMNIST, UCI, OpenML",
        ["data.test_named", "catalog.test_folder", "catalog.test_download"],
    ),
    "answers": (
        "encodings, separators, IDs as numbers, other spellings, Excel",
        ["deployment.test_labels_io"],
    ),
    "predict": (
        "other ranges, orders, columns and units",
        ["data.test_kinds_predict"],
    ),
}
"""Kind of input -> examples, and the modules of its tests."""
HEAD = """\
# Tests of inputs

`scripts/input_tests.py` counts the tests of each kind of input that `fl.load` and `fallow` read.
Each row of a table of cases is one input, which is read right or refused with its reason.

| kind | such as | inputs | tests |
|---|---|---:|---|
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(build_page(), encoding="utf-8")
    sys.stdout.write(f"Wrote {PAGE.relative_to(ROOT)}\n")


def build_page() -> str:
    """Return the text of the page."""
    text = HEAD
    total = 0
    for kind, (examples, names) in KINDS.items():
        modules = [import_module(f"tests.{name}") for name in names]
        number = sum(count_inputs(module) for module in modules)
        total += number
        files = ", ".join(f"`{name.replace('.', '/')}.py`" for name in names)
        text += f"| {kind} | {examples} | {number} | {files} |\n"
    return text + f"| all | | {total} | |\n"


def count_inputs(module: ModuleType) -> int:
    """Return the number of rows of all tests of a module."""
    return sum(count_rows(test) for test in _list_tests(module))


def _list_tests(module: ModuleType) -> Iterator[Any]:
    for name, function in vars(module).items():
        if name.startswith("test_") and function.__module__ == module.__name__:
            yield function


def count_rows(test: Any) -> int:
    """Return the number of rows of the tables of a test, 1 without a table."""
    rows = getattr(test, "__rows__", 1)
    marks = getattr(test, "pytestmark", [])
    tables = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    return prod([rows, *(len(list(table)) for table in tables)])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
