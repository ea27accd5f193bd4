"""What a benchmark says: scores by labels, areas under them, and paired tests over its tasks.

A strategy is better or worse than another on a task by the exact signed-rank test over seeds, with
Holm's correction over the strategies it is compared with there.  That it is *not worse* is another
claim, which a missing difference does not show: for that the difference must be above
-`MARGIN` by a one-sided t-test (the lower half of the two one-sided tests; D. Schuirmann, 1987).
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fallow.core.methods import Method
from fallow.experiment.record import Record
from fallow.settings.recipe import Recipe
from fallow.settings.variants import variant
from fallow.study.reading import RunRecords, is_bound, read_study
from fallow.study.statistics import (
    LEVEL,
    Comparison,
    Interval,
    compare_pairs,
    differences,
    mean_sd,
    t_interval,
)

MARGIN = 0.003
"""0.3 points of accuracy: what is not worse by more than that is not worse."""
COLUMNS = (
    "task",
    "digest",
    "strategy",
    "seed",
    "cycle",
    "labels",
    "accuracy",
    "balanced_accuracy",
    "worst_class",
    "bytes_up",
)
SMALL = ("accuracy", "balanced_accuracy", "worst_class")  # float32 is enough
Areas = Mapping[str, Mapping[int, float]]
"""Strategy -> seed -> area."""


def constants_of(method: Method) -> dict[str, object]:
    """What is fixed in a method: its fields, and the constants of its module, its own and those that
    it takes from parts, by name."""
    found: dict[str, object] = {}
    if is_dataclass(method):
        for item in fields(method):
            found[item.name] = getattr(method, item.name)
    module = sys.modules[type(method).__module__]
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, int | float | str | tuple):
            found[name] = value
    return dict(sorted(found.items()))


def digest_constants(methods: Mapping[str, Method]) -> str:
    """A digest of all constants of methods, by their names.

    A results page states it, so that everybody can see whether a constant was changed after data
    were looked at.
    """
    told = {name: constants_of(methods[name]) for name in sorted(methods)}
    written = json.dumps(told, sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def area(labels: Sequence[int], scores: Sequence[float]) -> float:
    """Mean score over the logarithm of the labels, joined linearly.

    Raises ValueError unless there are two budgets, ascending and above 0.

    >>> area([10, 100, 1000], [0.5, 0.7, 0.9])
    0.7
    """
    if len(labels) < 2 or labels[0] < 1 or (np.diff(labels) <= 0).any():
        raise ValueError(
            f"labels {list(labels)} span nothing; give at least two budgets, ascending, above 0"
        )
    x = np.log(np.asarray(labels, dtype=float))
    mean = np.trapezoid(np.asarray(scores, dtype=float), x) / (x[-1] - x[0])
    return round(float(mean), 12)


def not_worse(d: Sequence[float], margin: float = MARGIN) -> float:
    """One-sided p against "worse by ``margin`` or more".  d: paired differences, ours - theirs.

    Equal differences: 0 where they are above -margin, else 1 (limit).

    >>> not_worse([0.01, 0.02, 0.015]) < 0.05
    True
    >>> not_worse([-0.01, 0.01, 0.0]) < 0.05
    False
    """
    x = np.asarray(d, dtype=float)
    if len(x) < 2:
        raise ValueError(f"{len(x)} difference(s) cannot be tested; run at least two seeds")
    if np.ptp(x) == 0:
        return float(x[0] <= -margin)
    t = (x.mean() + margin) / (x.std(ddof=1) / math.sqrt(len(x)))
    from scipy import special  # 0.3 s, which nobody else need spend

    return float(special.stdtr(len(x) - 1, -t))


def read_scores(studies: Sequence[tuple[Recipe, Path]]) -> pd.DataFrame:
    """One row for each task, strategy, seed and budget that is done.  studies: tasks, each with the
    folder of its study.

    Columns are `COLUMNS`; ``digest`` says what was computed, so that rows of other settings are
    known for what they are.
    """
    rows = []
    for task, folder in studies:
        study = read_study(folder)
        for cell in study.cells:
            if is_bound(cell.strategy):
                continue
            digest = variant(task, cell.strategy).digest
            scores = study.curve(cell.strategy)
            for cycle in cell.cycles:
                last = cell.last_of(cycle)
                score = scores.get(cycle, {}).get(cell.seed)
                if last is None or score is None or not last.get("labeled"):
                    continue
                row = _row(cell, last, score)
                rows.append((task.name, digest, *row))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(SMALL, "float32"))


def _row(
    cell: RunRecords, last: Record, score: float
) -> tuple[str, int, int, int, float, float, float, int]:
    """What a record says of a budget; a score is the mean over the rounds that count."""
    of_classes = [outcome for outcome in last.get("per_class") or () if outcome is not None]
    return (
        cell.strategy,
        cell.seed,
        int(last["cycle"]),
        int(last["labeled"]),
        score,
        last.get("balanced_accuracy") or math.nan,
        min(of_classes, default=math.nan),
        int(last.get("bytes_up") or 0),
    )


def areas(frame: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Strategy -> seed -> area, of the rows of one task; seeds without the last cycle are left
    out."""
    outcome: dict[str, dict[int, float]] = {}
    last = frame["cycle"].max()
    for (strategy, seed), rows in frame.groupby(["strategy", "seed"], sort=False):
        ordered = rows.sort_values("cycle")
        if ordered["cycle"].iloc[-1] == last:
            of_strategy = outcome.setdefault(str(strategy), {})
            of_strategy[int(seed)] = area(
                ordered["labels"].tolist(), ordered["accuracy"].tolist()
            )
    return outcome


@dataclass(frozen=True)
class TaskLine:
    """A strategy on a task; scores are fractions, differences ours - the reference."""

    strategy: str
    seeds: int
    area: float
    area_sd: float | None
    few: float  # accuracy at 10 labels a class, or what is nearest to it
    most: float  # accuracy at the last budget
    worst: float  # accuracy of the worst class at the last budget
    difference: float | None  # of areas, from the reference
    interval: Interval | None
    holm: float | None


def task_lines(frame: pd.DataFrame, reference: str, classes: int) -> list[TaskLine]:
    """The strategies of one task, best first.  reference: what each is tested against."""
    result = areas(frame)
    others = [strategy for strategy in result if strategy != reference]
    tested: dict[str, Comparison] = {}
    if reference in result and others:
        pairs = [
            (strategy, reference)
            for strategy in others
            if len(set(result[strategy]) & set(result[reference])) > 1
        ]
        if pairs:
            tested = {item.strategy: item for item in compare_pairs(result, pairs)}
    lines = []
    for strategy, of_seeds in result.items():
        rows = frame[(frame["strategy"] == strategy) & frame["seed"].isin(list(of_seeds))]
        mean, sd = mean_sd(list(of_seeds.values()))
        few = _cycle_nearest(rows, 10 * classes)
        last = rows[rows["cycle"] == rows["cycle"].max()]
        test = tested.get(strategy)
        lines.append(
            TaskLine(
                strategy=strategy,
                seeds=len(of_seeds),
                area=mean,
                area_sd=sd,
                few=float(rows[rows["cycle"] == few]["accuracy"].mean()),
                most=float(last["accuracy"].mean()),
                worst=float(last["worst_class"].mean()),
                difference=None if test is None else test.difference,
                interval=None if test is None else test.interval,
                holm=None if test is None else test.holm,
            )
        )
    return sorted(lines, key=lambda line: -line.area)


def _cycle_nearest(rows: pd.DataFrame, labels: int) -> int:
    """The cycle after which the number of labels, as the mean over seeds, is nearest to this."""
    bought = rows.groupby("cycle")["labels"].mean()
    return int((bought - labels).abs().idxmin())


@dataclass(frozen=True)
class Verdict:
    """A strategy against the best rival of a task, by areas.

    ``holm``: over all rivals of the task; ``not_worse``: p against being worse by `MARGIN`.
    """

    task: str
    strategy: str
    rival: str
    seeds: int
    difference: float
    interval: Interval
    holm: float
    not_worse: float

    @property
    def outcome(self) -> str:
        """``better``, ``worse``, ``not worse`` or ``open``: what the seeds can show."""
        if self.holm <= LEVEL and self.difference > 0:
            return "better"
        if self.holm <= LEVEL and self.difference < 0:
            return "worse"
        if self.not_worse <= LEVEL:
            return "not worse"
        return "open"


def judge(task: str, found: Areas, strategy: str, rivals: Sequence[str]) -> Verdict | None:
    """A strategy against the best of the rivals on a task, over the seeds both have; None where
    fewer than two seeds are shared with any rival."""
    others = [rival for rival in rivals if rival != strategy and rival in found]
    pairs = [
        (strategy, rival)
        for rival in others
        if len(set(found.get(strategy, ())) & set(found[rival])) > 1
    ]
    if not pairs:
        return None
    compared = {item.reference: item for item in compare_pairs(found, pairs)}
    best = max(compared, key=lambda rival: mean_sd(list(found[rival].values()))[0])
    chosen = compared[best]
    d = differences(found[strategy], found[best])
    return Verdict(
        task=task,
        strategy=strategy,
        rival=best,
        seeds=chosen.pairs,
        difference=chosen.difference,
        interval=t_interval(d),
        holm=chosen.holm,
        not_worse=not_worse(d),
    )
