"""A small study from a deterministic generator, in the form of a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CLASSES = 4
SITES = 3
POOL = 400
NAMES = [f"site-{i}" for i in range(SITES)]
LIFT = {"ahfal": 0.05, "entropy": 0.02, "random": 0.0, "bound:all-labels": 0.12}


def _shares(gen: np.random.Generator, total: int) -> list[list[int]]:
    p = gen.dirichlet(np.full(CLASSES, 0.6), SITES)
    shares: list[list[int]] = (1 + np.floor(p * total / SITES)).astype(int).tolist()
    return shares


def _exchange(
    kind: str, function: str, what: str, size: int, exchanges: int
) -> dict[str, Any]:
    output = {
        "kind": kind,
        "function": function,
        "description": what,
        "bytes": size * exchanges,
    }
    return output | {"bytes_down": 0, "sites": SITES, "exchanges": exchanges}


def _note_query(strategy: str, cycle: int) -> dict[str, Any]:
    """Add the fields that only a query with communication writes to a record."""
    if strategy != "ahfal":
        return {"revealed": [], "notes": {}}
    sigma = [5.0, 11.0, 14.0 - 2 * cycle, 20.0]
    shown = [
        _exchange("sum", "share", "class shares", 48, cycle),
        _exchange("keep", "select", "a count", 24, cycle),
    ]
    low = [s < 12 for s in sigma]
    return {"revealed": shown, "notes": {"sigma": sigma, "low": low, "spread_tau": 12.0}}


def _scores(strategy: str, cycle: int, gen: np.random.Generator) -> dict[str, Any]:
    """Return a noisy accuracy that grows with the cycle and the query's quality."""
    base = 0.5 + 0.1 * cycle
    if strategy.startswith("bound:"):
        base = 0.7
    score = base + LIFT.get(strategy, 0.01) * (1 + cycle) / 3
    score = round(float(score + 0.01 * gen.standard_normal()), 4)
    per_class = [score + 0.02, score, score - 0.01, None]
    return {
        "accuracy": score,
        "mse": None,
        "balanced_accuracy": score,
        "per_class": per_class,
    }


def _record(
    strategy: str, seed: int, cycle: int, round_: int, gen: np.random.Generator
) -> dict[str, Any]:
    labeled = 40 + 40 * cycle
    if strategy.startswith("bound:"):
        labeled = POOL
    scores = _scores(strategy, cycle, gen)
    shares = dict(zip(NAMES, _shares(gen, labeled), strict=True))
    header = {"config": "tiny", "strategy": strategy, "training": "fedavg", "seed": seed}
    when = {"cycle": cycle, "round": round_, "point": "post_agg", "final": round_ == 2}
    labels = {"labeled": labeled, "labels_validation": 0, "pool": POOL}
    counts = {
        "labeled_per_class": np.sum([*shares.values()], 0).tolist(),
        "labeled_per_site": shares,
    }
    spent = {"seconds": 1.5, "bytes_up": 1000, "bytes_down": 2000}
    ran = {
        "cohort": NAMES,
        "executor": "loop",
        "threads": 1,
        "versions": {"torch": "2.13.0"},
    }
    grown = {name: cost * (cycle + 1) for name, cost in spent.items()}
    asked = _note_query(strategy, cycle)
    return (
        header | when | labels | scores | {"per_site": None} | counts | grown | ran | asked
    )


def _write_cell(
    folder: Path, strategy: str, seed: int, cycles: int, gen: np.random.Generator
) -> None:
    folder.mkdir(parents=True)
    n_cycles = cycles
    if strategy.startswith("bound:"):
        n_cycles = 1
    rows: list[dict[str, Any]] = []
    for cycle in range(n_cycles):
        for round_ in (1, 2):
            rows.append(_record(strategy, seed, cycle, round_, gen))
    (folder / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    matrix = _shares(np.random.default_rng(seed), POOL)
    sizes = np.sum(matrix, 1).tolist()
    part = {"sites": NAMES, "classes": ["zero", "one", "two", "three"], "matrix": matrix}
    part |= {"sizes": sizes, "absent": [0] * SITES, "kl": [0.5] * SITES}
    (folder / "partition.json").write_text(json.dumps(part))


def write_study(
    root: Path,
    strategies: Sequence[str] = ("random", "entropy", "ahfal", "bound:all-labels"),
    seeds: int = 6,
    cycles: int = 3,
    reference: str | None = "ahfal",
    **study: Any,
) -> Path:
    """Write a study directory with records and a partition per query and seed."""
    root.mkdir(parents=True, exist_ok=True)
    described = {
        "name": "tiny",
        "config": {"data": "digits", "alpha": 0.1},
        "reference": reference,
        "strategies": list(strategies),
        "seeds": list(range(seeds)),
        "command": "fallow compare tiny --seeds 6",
        "published": None,
        "versions": {"fallow": "0.1", "torch": "2.13.0"},
    }
    (root / "study.json").write_text(json.dumps(described | study))
    for q, strategy in enumerate(strategies):
        for seed in range(seeds):
            folder = root / "cells" / strategy.replace("/", "_") / f"seed-{seed}"
            _write_cell(folder, strategy, seed, cycles, np.random.default_rng([q, seed]))
    return root


def rewrite(root: Path, change: Callable[[dict[str, Any], Path], dict[str, Any]]) -> None:
    """Replace each record of a study by ``change(record, its cell's folder)``."""
    for path in root.glob("cells/*/*/records.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        text = (json.dumps(r | change(r, path.parent)) + "\n" for r in rows)
        path.write_text("".join(text))


@pytest.fixture
def study_dir(tmp_path: Path) -> Path:
    """Return three strategies and a bound over six seeds and three cycles."""
    return write_study(tmp_path / "tiny")


@pytest.fixture(scope="session")
def kept_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a read-only copy of ``study_dir``, written once."""
    return write_study(tmp_path_factory.mktemp("kept") / "tiny")


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[..., Path]:
    """Call `write_study` for a folder of this test."""

    def make(**options: Any) -> Path:
        return write_study(tmp_path / "made", **options)

    return make
