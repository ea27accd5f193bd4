"""Studies that differ in how their rows are cut: by alpha, and by the length of the tail."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fallow.settings.recipe import OUTSIDE
from fallow.study.records import StudyRecords

CUT = ("alpha", "rho", "n_max", "inner", "inner_fields")  # how skewed, how long a tail


def _fields(study: StudyRecords) -> dict[str, Any]:
    """The fields of a study's partition, those of the partition inside it among them."""
    partition = study.study.recipe.get("partition") or {}
    found = dict(partition.get("fields") or {}) if isinstance(partition, Mapping) else {}
    return found | dict(found.get("inner_fields") or {})


def alpha_of(study: StudyRecords) -> float | None:
    """Dirichlet's alpha, also of a partition inside a long tail; ``None`` without one."""
    alpha = _fields(study).get("alpha")
    return float(alpha) if isinstance(alpha, int | float) else None


def rho_of(study: StudyRecords) -> float:
    """Head over tail of the classes; 1 without a long tail."""
    rho = _fields(study).get("rho", 1)
    return float(rho) if isinstance(rho, int | float) else 1.0


def _rest(study: StudyRecords, skips: Sequence[str]) -> str:
    """Every setting but the partition's ``skips`` and what does not change a run."""
    kept = {k: v for k, v in study.study.recipe.items() if k not in (*OUTSIDE, "query")}
    kept["partition"] = {k: v for k, v in _fields(study).items() if k not in skips}
    if "rho" not in skips:
        kept["cut"] = (study.study.recipe.get("partition") or {}).get("name")
    return json.dumps(kept, sort_keys=True, default=str)


def alike(
    studies: Sequence[StudyRecords], skips: Sequence[str]
) -> Iterator[tuple[StudyRecords, ...]]:
    """Groups of studies that differ in nothing but the partition's fields ``skips``."""
    groups: dict[str, list[StudyRecords]] = {}
    for study in studies:
        groups.setdefault(_rest(study, skips), []).append(study)
    yield from map(tuple, groups.values())


def alpha_sweeps(studies: Sequence[StudyRecords]) -> list[tuple[StudyRecords, ...]]:
    """Studies that differ in alpha alone, two alphas or more, by ascending alpha."""
    cut = [s for s in studies if alpha_of(s) is not None]
    groups = [
        sorted(g, key=lambda s: alpha_of(s) or 0.0)
        for g in alike(cut, ("alpha", "inner_fields"))
    ]
    return [tuple(g) for g in groups if len({alpha_of(s) for s in g}) > 1]
