"""The benchmark ``linear-379`` against a loop in NumPy."""

from __future__ import annotations

from dataclasses import replace

from bench.linear_379 import TASK
from bench.timing import Entry

ENTRY = Entry(
    "linear-379-numpy",
    "a loop of 15 lines in NumPy, site after site, batch 64",
    bar=1.0,
    compared="weights after up to 21 steps in float64: 1e-10",
    prepare=replace(TASK, reference="numpy").race,
)
