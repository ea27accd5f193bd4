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
# A first study

`rows.csv` has {rows} synthetic patients at three sites; `study.toml` has the settings of
the comparison.

    fallow compare study.toml --dry-run    # check the data, estimate time and traffic
    fallow compare study.toml              # takes less than a minute and writes a report

## Your own data

1. Replace `rows.csv` by your table (CSV, Excel or Parquet), with one header line and one
  example per row.  One column has the labels (here `outcome`).  Another one may have the
  site (here `site`).  Leave missing cells empty.
2. Set the names of these columns in `study.toml` (`label`, `site`, `id`, `drop`), or create
  a new file: `fallow init mine.toml --data mine.csv --label COLUMN --site COLUMN`.
3. `fallow compare study.toml --dry-run` shows how each column was read, and which rows and
  columns were left out.
4. `fallow settings` lists every setting, `fallow algorithms` every strategy.

Simulations know every label, so they can measure how many labels each strategy needs.  If
examples must not leave their sites and are not labeled yet, set up a federation: see
`fallow coordinate init --help`.
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
