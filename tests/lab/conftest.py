"""A small study written by a deterministic generator, as a finished run would leave it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CLASSES, SITES, POOL = 4, 3, 400
LIFT = {"ahfal": 0.05, "entropy": 0.02, "random": 0.0, "bound:all-labels": 0.12}


def _shares(gen: np.random.Generator, total: int) -> list[list[int]]:
    p = gen.dirichlet(np.full(CLASSES, 0.6), SITES)
    return (1 + np.floor(p * total / SITES)).astype(int).tolist()


def _record(query: str, seed: int, cycle: int, round_: int, gen: np.random.Generator
            ) -> dict[str, Any]:
    bound = query.startswith("bound:")
    labelled = POOL if bound else 40 + 40 * cycle
    score = 0.5 + 0.1 * cycle * (not bound) + 0.2 * bound + LIFT.get(query, 0.01) * (1 + cycle) / 3
    score = round(float(score + 0.01 * gen.standard_normal()), 4)
    held = _shares(gen, labelled)
    sigma = [5.0, 11.0, 14.0 - 2 * cycle, 20.0]
    return {
        "recipe": "tiny", "query": query, "training": "fedavg", "seed": seed, "cycle": cycle,
        "round": round_, "point": "post_agg", "labelled": labelled, "labels_validation": 0,
        "pool": POOL, "accuracy": score, "mse": None, "balanced_accuracy": score,
        "per_class": [score + 0.02, score, score - 0.01, None], "per_site": None,
        "seconds": 1.5 * (cycle + 1), "bytes_up": 1000 * (cycle + 1),
        "bytes_down": 2000 * (cycle + 1),
        "revealed": [{"kind": "sum", "verb": "share", "what": "class shares", "bytes": 48,
                      "sites": SITES, "exchanges": 1},
                     {"kind": "keep", "verb": "select", "what": "a count", "bytes": 24,
                      "sites": SITES, "exchanges": 1}] if query == "ahfal" else [],
        "cohort": [f"site-{i}" for i in range(SITES)], "executor": "loop", "threads": 1,
        "versions": {"torch": "2.13.0"}, "labelled_per_class": np.sum(held, 0).tolist(),
        "labelled_per_site": {f"site-{i}": held[i] for i in range(SITES)},
        "notes": {"sigma": sigma, "low": [s < 12 for s in sigma], "spread_tau": 12.0}
        if query == "ahfal" else {},
        "final": round_ == 2,
    }


def write_study(root: Path, queries: Sequence[str] = ("random", "entropy", "ahfal",
                                                      "bound:all-labels"),
                seeds: int = 6, cycles: int = 3, reference: str | None = "ahfal",
                **study: Any) -> Path:
    """A study directory with one records file and one partition per query and seed."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "study.json").write_text(json.dumps({
        "name": "tiny", "recipe": {"data": "digits", "alpha": 0.1}, "reference": reference,
        "queries": list(queries), "seeds": list(range(seeds)),
        "command": "fallow compare tiny --seeds 6", "published": None,
        "versions": {"fallow": "0.1", "torch": "2.13.0"}} | study))
    for q, query in enumerate(queries):
        for seed in range(seeds):
            gen = np.random.default_rng([q, seed])
            folder = root / "cells" / query / f"seed-{seed}"
            folder.mkdir(parents=True)
            rows = [_record(query, seed, cycle, round_, gen)
                    for cycle in range(1 if query.startswith("bound:") else cycles)
                    for round_ in (1, 2)]
            (folder / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
            matrix = _shares(np.random.default_rng(seed), POOL)
            (folder / "partition.json").write_text(json.dumps({
                "sites": [f"site-{i}" for i in range(SITES)],
                "classes": ["zero", "one", "two", "three"], "matrix": matrix,
                "sizes": np.sum(matrix, 1).tolist(), "absent": [0] * SITES, "kl": 0.5}))
    return root


@pytest.fixture
def study_dir(tmp_path: Path) -> Path:
    """Three strategies and a bound over six seeds and three cycles, AHFAL the reference."""
    return write_study(tmp_path / "tiny")


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[..., Path]:
    """`write_study` into a folder of this test."""
    def make(**options: Any) -> Path:
        return write_study(tmp_path / "made", **options)
    return make
