"""Runs whose scores say little: a model that predicts one class only, strategies that agree in
everything."""

from __future__ import annotations

from collections.abc import Mapping

from fallow.study.records import RunRecords, StudyRecords


def predicts_one_class(cell: RunRecords) -> bool:
    """Whether the last model of a run gives every test row the same class.

    Then all rows of one class are right and none of any other, which nothing else brings about.
    """
    last = None
    for row in cell.records:
        if row.get("final") and row.get("per_class"):
            last = row["per_class"]
    if last is None:
        return False
    recalls = sorted(recall for recall in last if recall is not None)
    return len(recalls) > 1 and recalls[-1] == 1.0 and not any(recalls[:-1])


def find_one_class(study: StudyRecords) -> Mapping[str, list[int]]:
    """Query -> the seeds whose last model predicts one class only, where there are any."""
    found: dict[str, list[int]] = {}
    for cell in study.cells:
        if predicts_one_class(cell):
            found.setdefault(cell.query, []).append(cell.seed)
    return found


def find_equals(study: StudyRecords) -> Mapping[str, str]:
    """Strategy -> the first one in the study whose scores are the same to the last digit, in every
    cycle and under every seed.  Two scores at least, the first cycle aside: there nothing is
    chosen yet."""
    found: dict[str, str] = {}
    first_with: dict[tuple[tuple[int, int, float], ...], str] = {}
    for query in study.strategies:
        scores = []
        for cycle, by_seed in study.curve(query).items():
            scores += [(cycle, seed, score) for seed, score in sorted(by_seed.items())]
        chosen = [score for score in scores if score[0] > 0]
        if len(chosen) < 2:
            continue
        earlier = first_with.setdefault(tuple(scores), query)
        if earlier != query:
            found[query] = earlier
    return found
