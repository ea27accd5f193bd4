"""A finished regression study: errors, and one-pass strategies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FALE = "fale@training=server-solve"
LOCAL = "fale:weights=none"
STRATEGIES = ("random", "lcmd", "random@training=server-solve", FALE, LOCAL)
LEVEL = {
    "random": 0.80,
    "lcmd": 0.83,
    "random@training=server-solve": 0.74,
    FALE: 0.72,
    LOCAL: 0.9,
}
POOL = 4000
FIRST = 40
STEP = 20


def is_one_pass(strategy: str) -> bool:
    return strategy.startswith("fale")


def error(strategy: str, seed: int, cycle: int) -> float:
    """Return an error that falls with the cycle, with equal order for all seeds."""
    noise = np.random.default_rng([len(strategy), seed, cycle]).normal() * 0.002
    return float(LEVEL.get(strategy, 0.85) * (1 + 0.3 / (1 + cycle)) + noise)


def line(strategy: str, seed: int, cycle: int, cycles: int) -> dict[str, Any]:
    """Return a record; one-pass strategies have no initial labels."""
    first = FIRST
    turns = cycle + 1
    if is_one_pass(strategy):
        first = 0
        turns = 1
    shown = [
        {
            "kind": "keep",
            "function": "select",
            "description": "number of selected examples",
            "bytes": 80 * turns,
            "bytes_down": 80 * turns,
            "sites": 10,
            "exchanges": turns,
        },
        {
            "kind": "sum",
            "function": "upload",
            "description": "weighted models",
            "bytes": 900 * turns,
            "bytes_down": 900 * turns,
            "sites": 10,
            "exchanges": 2 * turns,
        },
    ]
    return {
        "config": "made",
        "strategy": strategy,
        "training": "fedavg",
        "seed": seed,
        "cycle": cycle,
        "round": 0,
        "point": "post_agg",
        "final": True,
        "accuracy": None,
        "balanced_accuracy": None,
        "per_class": None,
        "mse": error(strategy, seed, cycle),
        "target_variance": 5.0,
        "per_site": None,
        "labeled": first + STEP * cycle,
        "pool": POOL,
        "labeled_per_site": {"site-0": [first + STEP * cycle]},
        "labeled_per_class": None,
        "seconds": float(turns),
        "bytes_up": 980 * turns,
        "bytes_down": 980 * turns,
        "revealed": shown,
        "executor": "stacked",
        "threads": 1,
        "versions": {"torch": "2"},
        "notes": {},
        "pseudo_labels": None,
    }


def write_regression(
    root: Path,
    strategies: Sequence[str] = STRATEGIES,
    seeds: int = 4,
    cycles: int = 12,
    reference: str | None = "random",
    **study: Any,
) -> Path:
    """Write a study of errors; strategies called ``fale`` start at cycle 1."""
    described = {
        "name": "made",
        "config": {"data": "protein", "training": {"name": "fedavg", "fields": {}}},
        "reference": reference,
        "strategies": list(strategies),
        "seeds": list(range(seeds)),
        "command": "fallow compare made",
        "published": None,
        "versions": {"torch": "2"},
    }
    root.mkdir(parents=True)
    (root / "study.json").write_text(json.dumps(described | study))
    for strategy in strategies:
        for seed in range(seeds):
            folder = root / "cells" / strategy / f"seed-{seed}"
            folder.mkdir(parents=True)
            rows = [
                line(strategy, seed, c, cycles)
                for c in range(is_one_pass(strategy), cycles + 1)
            ]
            (folder / "records.jsonl").write_text(
                "".join(json.dumps(r) + "\n" for r in rows)
            )
            (folder / "partition.json").write_text('{"sites": ["site-0"], "classes": []}')
    return root
