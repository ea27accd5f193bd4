"""Content of ``fallow new``: example data and a README."""

from __future__ import annotations

import csv
import io
import math

import numpy as np

ROWS = 360
SITES = ("east", "north", "south")
COLUMNS = ("person", "site", "age", "pressure", "smoker", "outcome")

README = """\
# A study to begin with

`rows.csv` holds {rows} made-up people of three sites, nobody's data; `study.toml` says what is
compared.

    fallow compare study.toml --dry-run    # what was read, and what it would cost
    fallow compare study.toml              # less than a minute; the last line names the report page

## Your own rows

1. Put your table in the place of `rows.csv`: one header line, one row each; CSV, Excel and Parquet are
   read.  A column holds the labels (here `outcome`), and one may say whose row it is (here `site`).
   Missing cells stay empty.
2. Write the names of these columns into `study.toml` (`label`, `site`, `id`, `drop`), or have it
   written anew: `fallow init mine.toml --data mine.csv --label COLUMN --site COLUMN`.
3. `fallow compare study.toml --dry-run` says how each column was read, what was left out and why.
4. `fallow settings` lists every setting, `fallow algorithms` every strategy.

Simulations know every label: they tell which strategy would have needed how many.  Where rows may not
leave their sites and people have yet to label them: `fallow coordinate init --help`.
"""


def write_table() -> bytes:
    """Write `ROWS` synthetic patients as CSV, the same each time.

    Older smokers with high blood pressure are ill more often, and all sites differ.
    """
    draw = np.random.default_rng(7)
    text = io.StringIO()
    lines = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    lines.writeheader()
    for number in range(ROWS):
        site = SITES[number % len(SITES)]
        age = round(draw.normal(48 + 6 * SITES.index(site), 12))
        pressure = round(draw.normal(112 + 0.4 * age, 14))
        smoker = draw.random() < 0.3
        risk = 0.09 * (age - 54) + 0.06 * (pressure - 134) + 1.5 * smoker
        ill = draw.random() < 1 / (1 + math.exp(-1.5 * risk))
        known = draw.random() > 0.05  # missing measurements
        cells: dict[str, object] = {
            "person": f"p{number + 1:03}",
            "site": site,
            "age": age,
            "pressure": "",
            "smoker": "no",
            "outcome": "well",
        }
        if known:
            cells["pressure"] = pressure
        if smoker:
            cells["smoker"] = "yes"
        if ill:
            cells["outcome"] = "ill"
        lines.writerow(cells)
    return text.getvalue().encode()


def write_readme() -> bytes:
    """Return the README of the folder."""
    return README.format(rows=ROWS).encode()
