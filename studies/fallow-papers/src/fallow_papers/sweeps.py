"""Studies that differ in their partition: by alpha, or by the imbalance of a long tail."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from fallow.settings.config import OUTSIDE
from fallow.study.records import StudyRecords

CUT = (
    "alpha",
    "rho",
    "n_max",
    "inner",
    "inner_fields",
)  # skewness, and imbalance of the tail


def _partition(study: StudyRecords) -> Mapping[str, object]:
    """Return the partition in ``study.json``, a name and fields; empty if there is none."""
    partition = study.study.config.get("partition")
    if not isinstance(partition, Mapping):
        return {}
    return partition


def _fields(study: StudyRecords) -> dict[str, object]:
    """Return the fields of a study's partition, including those of an inner partition."""
    values: dict[str, object] = {}
    fields = _partition(study).get("fields")
    if isinstance(fields, Mapping):
        values |= fields
    inner = values.get("inner_fields")
    if isinstance(inner, Mapping):
        values |= inner
    return values


def alpha_of(study: StudyRecords) -> float | None:
    """Return Dirichlet's alpha, also of a partition inside a long tail, or None."""
    alpha = _fields(study).get("alpha")
    if not isinstance(alpha, int | float):
        return None
    return float(alpha)


def rho_of(study: StudyRecords) -> float:
    """Return the ratio of the largest to the smallest class; 1 without a long tail."""
    rho = _fields(study).get("rho")
    if not isinstance(rho, int | float):
        return 1.0
    return float(rho)


def _describe_rest(study: StudyRecords, skips: Sequence[str]) -> str:
    """Return every setting except the partition's fields ``skips`` and those that do not
    change a run.
    """
    rest = dict(study.study.config)
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
    """Group studies that differ only in the partition's fields ``skips``."""
    groups: dict[str, list[StudyRecords]] = {}
    for study in studies:
        groups.setdefault(_describe_rest(study, skips), []).append(study)
    yield from map(tuple, groups.values())


def alpha_sweeps(studies: Sequence[StudyRecords]) -> list[tuple[StudyRecords, ...]]:
    """Return groups of studies that differ only in alpha, with two or more alphas, in
    ascending order.
    """
    cut_by_alpha = [study for study in studies if alpha_of(study) is not None]
    sweeps = []
    for group in alike(cut_by_alpha, skips=("alpha", "inner_fields")):
        if len({alpha_of(study) for study in group}) > 1:
            ascending = sorted(group, key=lambda study: alpha_of(study) or 0.0)
            sweeps.append(tuple(ascending))
    return sweeps
