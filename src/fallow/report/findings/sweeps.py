"""Studies that differ in how their rows are cut: by alpha, and by the length of the tail."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from fallow.settings.recipe import OUTSIDE
from fallow.study.records import StudyRecords

CUT = ("alpha", "rho", "n_max", "inner", "inner_fields")  # how skewed, how long a tail


def _partition(study: StudyRecords) -> Mapping[str, object]:
    """The partition as ``study.json`` has it, a name and fields; empty where it has none."""
    partition = study.study.recipe.get("partition")
    if not isinstance(partition, Mapping):
        return {}
    return partition


def _fields(study: StudyRecords) -> dict[str, object]:
    """The fields of a study's partition, those of the partition inside it among them."""
    values: dict[str, object] = {}
    fields = _partition(study).get("fields")
    if isinstance(fields, Mapping):
        values |= fields
    inner = values.get("inner_fields")
    if isinstance(inner, Mapping):
        values |= inner
    return values


def alpha_of(study: StudyRecords) -> float | None:
    """Dirichlet's alpha, also of a partition inside a long tail; ``None`` without one."""
    alpha = _fields(study).get("alpha")
    if not isinstance(alpha, int | float):
        return None
    return float(alpha)


def rho_of(study: StudyRecords) -> float:
    """Head over tail of the classes; 1 without a long tail."""
    rho = _fields(study).get("rho")
    if not isinstance(rho, int | float):
        return 1.0
    return float(rho)


def _describe_rest(study: StudyRecords, skips: Sequence[str]) -> str:
    """Every setting but the partition's ``skips`` and what does not change a run."""
    rest = dict(study.study.recipe)
    for name in (*OUTSIDE, "strategy"):
        rest.pop(name, None)
    fields = _fields(study)
    for name in skips:
        fields.pop(name, None)
    rest["partition"] = fields
    if "rho" not in skips:
        rest["cut"] = _partition(study).get("name")
    return json.dumps(rest, sort_keys=True, default=str)


def alike(
    studies: Sequence[StudyRecords], skips: Sequence[str]
) -> Iterator[tuple[StudyRecords, ...]]:
    """Groups of studies that differ in nothing but the partition's fields ``skips``."""
    groups: dict[str, list[StudyRecords]] = {}
    for study in studies:
        groups.setdefault(_describe_rest(study, skips), []).append(study)
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
