"""Studies that differ in how their rows are cut: by alpha, and by the length of the tail."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fallow.settings.recipe import OUTSIDE
from fallow.study.records import StudyRecords

CUT = ("alpha", "rho", "n_max", "inner", "inner_fields")  # how skewed, how long a tail


def _partition(study: StudyRecords) -> Mapping[str, Any]:
    """The partition as ``study.json`` has it, a name and fields; empty where it has none."""
    partition = study.study.recipe.get("partition")
    return partition if isinstance(partition, Mapping) else {}


def _fields(study: StudyRecords) -> dict[str, Any]:  # values of JSON
    """The fields of a study's partition, those of the partition inside it among them."""
    fields = dict(_partition(study).get("fields") or {})
    inner = dict(fields.get("inner_fields") or {})
    return fields | inner


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
    changes_nothing = {*OUTSIDE, "query"}
    recipe = study.study.recipe
    rest = {key: recipe[key] for key in recipe if key not in changes_nothing}
    fields = _fields(study)
    rest["partition"] = {key: fields[key] for key in fields if key not in skips}
    if "rho" not in skips:
        rest["cut"] = _partition(study).get("name")
    return json.dumps(rest, sort_keys=True, default=str)


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
    cut_by_alpha = [study for study in studies if alpha_of(study) is not None]
    sweeps = []
    for group in alike(cut_by_alpha, skips=("alpha", "inner_fields")):
        if len({alpha_of(study) for study in group}) > 1:
            ascending = sorted(group, key=lambda study: alpha_of(study) or 0.0)
            sweeps.append(tuple(ascending))
    return sweeps
