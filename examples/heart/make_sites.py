"""Create the files of four hospitals: unlabeled examples, test examples, and labels for annotate.py.

``python make_sites.py FOLDER`` writes for each hospital ``NAME.csv``, ``NAME-test.csv`` and
``NAME-answers.csv``, and ``example.csv``, from which the columns are taken; it prints the names.
The rows are those of the heart disease data (``processed.*.data`` in the folder FALLOW_DATA
names), else those of breast_cancer, which comes with scikit-learn, cut into four.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer

from fallow.catalog import data_folder, find_entry, find_files
from fallow.core.streams import stream

TEXTS = {
    "sex": {0: "female", 1: "male"},
    "chest_pain": {
        1: "typical angina",
        2: "atypical angina",
        3: "other pain",
        4: "no pain",
    },
    "fasting_sugar": {0: "up to 120 mg/dl", 1: "above 120 mg/dl"},
    "resting_ecg": {0: "normal", 1: "ST-T abnormality", 2: "hypertrophy"},
    "exercise_angina": {0: "no", 1: "yes"},
    "st_slope": {1: "up", 2: "flat", 3: "down"},
    "thallium_scan": {3: "normal", 6: "fixed defect", 7: "reversible defect"},
}
COLUMNS = (
    *("age", "sex", "chest_pain", "resting_pressure", "cholesterol", "fasting_sugar"),
    *("resting_ecg", "max_heart_rate", "exercise_angina", "st_depression", "st_slope"),
    *("vessels", "thallium_scan"),
)
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va_long_beach")
TEST = 0.25  # share of a hospital's rows
DIAGNOSES = {True: "ill", False: "healthy"}
Rows = list[list[str]]  # cells; the last one is the diagnosis


def heart() -> tuple[list[str], dict[str, Rows]]:
    """Return the columns and the examples of each hospital; 1,759 cells are empty.

    Raises ValueError if the files are not in the folder FALLOW_DATA.
    """
    files = find_files(find_entry("heart"), data_folder(None))
    (file,) = files.edition.files
    sites: dict[str, Rows] = {}
    for name, member in zip(HOSPITALS, file.members, strict=True):
        with files.open(file, member) as stream:
            lines = stream.read().decode().splitlines()
        sites[name] = []
        for *raw, target in csv.reader(lines):
            cells = []
            for column, cell in zip(COLUMNS, raw, strict=True):
                cells.append(describe(column, cell))
            sites[name].append([*cells, DIAGNOSES[float(target) > 0]])
    return list(COLUMNS), sites


def describe(column: str, cell: str) -> str:
    """Return the text of a coded cell, or its number; an empty cell for a missing value."""
    if cell == "?":
        return ""
    if column in TEXTS:
        return TEXTS[column][int(float(cell))]
    return f"{float(cell):g}"


def breast() -> tuple[list[str], dict[str, Rows]]:
    """Ten measurements of cells; four sites of equal size."""
    breast_cancer = load_breast_cancer()
    columns = [str(name).replace(" ", "_") for name in breast_cancer.feature_names[:10]]
    rows = []
    for x, is_benign in zip(breast_cancer.data, breast_cancer.target, strict=True):
        cells = [f"{value:.6g}" for value in x[:10]]
        rows.append([*cells, DIAGNOSES[not is_benign]])
    sites = ("east", "north", "south", "west")
    return columns, {name: rows[first::4] for first, name in enumerate(sites)}


def write(path: Path, head: list[str], rows: Rows) -> None:
    """Write a table with its header as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def write_site(folder: Path, name: str, columns: list[str], rows: Rows) -> None:
    """One hospital: every fourth row, in a random order, is one to test on."""
    order = torch.randperm(len(rows), generator=stream(0, "test rows", name)).tolist()
    held_back = set(order[: int(TEST * len(rows))])
    test: Rows = []
    train: Rows = []  # without their labels, which annotators add
    answers: Rows = []
    for at, (*cells, diagnosis) in enumerate(rows):
        row_name = f"{name}-{at:03d}"
        if at in held_back:
            test.append([row_name, *cells, diagnosis])
        else:
            train.append([row_name, *cells, ""])
            answers.append([row_name, diagnosis])
    head = ["id", *columns, "disease"]
    write(folder / f"{name}-test.csv", head, test)
    write(folder / f"{name}.csv", head, train)
    write(folder / f"{name}-answers.csv", ["id", "label"], answers)


def example(sites: dict[str, Rows]) -> Rows:
    """Return the example rows of the coordinator: those of one site, with every text and class.

    A last row has an empty cell in every column that has empty cells at some site.
    """
    first = next(iter(sites.values()))
    last = first[-1]
    is_empty = [False] * len(last)
    for rows in sites.values():
        for row in rows:
            is_empty = [
                known or not cell for known, cell in zip(is_empty, row, strict=True)
            ]
    if not any(is_empty):
        return first
    hollow = ["" if empty else cell for empty, cell in zip(is_empty, last, strict=True)]
    return [*first, hollow]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        columns, sites = heart()
    except ValueError:
        columns, sites = breast()
    for name, rows in sites.items():
        write_site(folder, name, columns, rows)
    write(folder / "example.csv", [*columns, "disease"], example(sites))
    print(",".join(sites))


if __name__ == "__main__":
    main()
