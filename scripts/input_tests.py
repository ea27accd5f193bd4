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
CHANGED = (
    (
        "413691d7",
        "images of uint8",
        "0 to 255",
        "0 to 1",
        "models learned nothing from them",
    ),
    (
        "0a023bde",
        "images in folders",
        "-1 to 1",
        "0 to 1",
        "arrays of the same images differed",
    ),
    ("cb1ff10a", "labels -1 and NA among numbers", "classes", "unlabeled", "as in arrays"),
    ("7a50d4ec", "true and false", "two columns", "1 and 0", "as in frames"),
    ("7a50d4ec", "numbers as text in frames", "categories", "numbers", "as in CSV files"),
    (
        "7a50d4ec",
        "numbers with one unit",
        "categories",
        "numbers",
        "the unit is on the sheet",
    ),
    (
        "7a50d4ec",
        "numbers far from 0",
        "as written",
        "shifted",
        "float32 lost their differences",
    ),
    (
        "7a50d4ec",
        "007, 1_0, full-width digits",
        "numbers",
        "names",
        "codes keep their zeros",
    ),
    (
        "7a50d4ec",
        "filtered row counters",
        "numbers",
        "left out",
        "they have the order of rows",
    ),
    (
        "5d5a0b15",
        "rotated or transparent images",
        "as stored",
        "as shown",
        "annotators see these",
    ),
    (
        "5d5a0b15",
        "DICOM with a slope",
        "by bits",
        "physical",
        "scanners store different numbers",
    ),
    ("b933ec06", "0,137 in an unclear file", "137", "0.137", "no thousands begin with 0"),
    ("6c3d5785", "1,5 as text in Excel", "a category", "1.5", "as in CSV files"),
    ("8509b302", "labels -1 beside texts", "a class", "unlabeled", "as beside numbers"),
    ("edb6fde2", "1,234 beside 14.30", "a category", "1.234", "14.30 is a time of day"),
    ("0b17676a", "DICOM colors in YBR", "converted twice", "once", "pydicom converts them"),
)
"""Changed values of existing fixtures: commit, cells, before, now, and reason."""
CHANGED_HEAD = """
## Changed values

Values of features and labels in existing fixtures that changed, oldest first:

| commit | cells | before | now | reason |
|---|---|---|---|---|
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
    text += f"| all | | {total} | |\n{CHANGED_HEAD}"
    for commit, *cells in CHANGED:
        text += f"| `{commit}` | {' | '.join(cells)} |\n"
    return text


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
