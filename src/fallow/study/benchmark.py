"""Evaluation of a benchmark: learning curves, areas under them, and paired tests.

A strategy is better or worse than another on a task according to the exact signed-rank test over
seeds, with Holm's correction over all comparisons on the task.  *Not worse* is a separate claim that
does not follow from a missing difference.  It requires a difference above -`MARGIN` in a one-sided
t-test (lower half of the two one-sided tests; D. Schuirmann, 1987).
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, ValidationError, with_config

from fallow.core.kinds import LARGEST
from fallow.core.methods import Method
from fallow.core.wrong_values import describe_wrong_value
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import variant
from fallow.storage.plain import cell_text, csv_content
from fallow.storage.validation import STRICT, Count, Rule, adapter_of
from fallow.study.reading import is_bound, read_study
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
"""Margin of 0.3 points of accuracy: a smaller loss counts as not worse."""
LARGEST_FILE = 2**24
"""Largest size in bytes of a file of scores; that of the published benchmark has 2 MB."""
LONGEST = 500  # characters of a name
FARTHEST = 1e15  # largest absolute value of a score


def _is_word(text: str) -> bool:
    return 0 < len(text) <= LONGEST and text.isprintable()


def _is_score(value: float) -> bool:
    return abs(value) <= FARTHEST


def _is_score_or_nan(value: float) -> bool:
    return math.isnan(value) or _is_score(value)


Word = Annotated[str, Rule(_is_word, f"text of at most {LONGEST} characters, on one line")]
Score = Annotated[float, Rule(_is_score, "a finite number")]
ScoreOrNaN = Annotated[float, Rule(_is_score_or_nan, "a finite number or nan")]
KINDS = {
    "task": Word,
    "digest": Word,
    "strategy": Word,
    "seed": Count,
    "cycle": Count,
    "labels": Annotated[int, Field(ge=1, le=LARGEST)],
    "accuracy": Score,
    "balanced_accuracy": ScoreOrNaN,
    "worst_class": ScoreOrNaN,
    "bytes_up": Count,
}
"""Columns of a table of scores, with the types of their cells."""
COLUMNS = tuple(KINDS)
SMALL = ("accuracy", "balanced_accuracy", "worst_class")  # float32 is precise enough
Areas = Mapping[str, Mapping[int, float]]
"""Strategy -> seed -> area."""


def constants_of(method: Method) -> dict[str, object]:
    """Return the fixed parameters of an algorithm: its fields and the constants of its modules."""
    values: dict[str, object] = {}
    if is_dataclass(method):
        for item in fields(method):
            values[item.name] = getattr(method, item.name)
    module = sys.modules[type(method).__module__]
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, int | float | str | tuple):
            values[name] = value
    return dict(sorted(values.items()))


def collect_constants(methods: Mapping[str, Method]) -> Constants:
    """Return the constants of all algorithms with their digest.

    The benchmark page states the digest, so that a later change of a constant is visible.
    """
    constants = {name: constants_of(method) for name, method in methods.items()}
    written = json.dumps(constants, sort_keys=True)
    return Constants(constants, hashlib.sha256(written.encode()).hexdigest()[:16])


def area(labels: Sequence[int], scores: Sequence[float]) -> float:
    """Return the mean score over the logarithm of the labels, with linear interpolation.

    Raises ValueError unless there are at least two ascending, positive label budgets.

    >>> area([10, 100, 1000], [0.5, 0.7, 0.9])
    0.7
    """
    if len(labels) < 2 or labels[0] < 1 or (np.diff(labels) <= 0).any():
        raise ValueError(
            f"labels {list(labels)} cover no range; give at least two budgets, "
            "ascending, above 0"
        )
    x = np.log(np.asarray(labels, dtype=float))
    mean = np.trapezoid(np.asarray(scores, dtype=float), x) / (x[-1] - x[0])
    return round(float(mean), 12)


def not_worse(d: Sequence[float], margin: float = MARGIN) -> float:
    """Return the one-sided p-value against "worse by ``margin`` or more".

    ``d`` contains paired differences, ours - theirs.  For equal differences, p is 0 if they are above
    -margin, and 1 otherwise (limit).

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
    from scipy import special  # imported here, because the import takes 0.3 s

    return float(special.stdtr(len(x) - 1, -t))


def read_scores(studies: Sequence[tuple[ExperimentConfig, Path]]) -> pd.DataFrame:
    """Return one row for each task, strategy, seed and label budget.

    ``studies`` contains tasks with the folders of their studies.  The columns are `COLUMNS`.
    ``digest`` identifies the settings.
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
                last = cell.last_records[cycle]
                # the mean over the rounds that count
                score = scores.get(cycle, {}).get(cell.seed)
                if score is None or not last.get("labeled"):
                    continue
                balanced = last.get("balanced_accuracy")
                recalls = [one for one in last.get("per_class") or () if one is not None]
                row = {
                    "task": task.name,
                    "digest": digest,
                    "strategy": cell.strategy,
                    "seed": cell.seed,
                    "cycle": cycle,
                    "labels": int(last["labeled"]),
                    "accuracy": score,
                    "balanced_accuracy": math.nan if balanced is None else balanced,
                    "worst_class": min(recalls, default=math.nan),
                    "bytes_up": int(last.get("bytes_up") or 0),
                }
                rows.append(row)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(SMALL, "float32"))


def write_score_file(scores: pd.DataFrame) -> bytes:
    """Return scores as CSV, which `read_score_file` reads."""
    return csv_content(COLUMNS, scores[list(COLUMNS)].astype(object).to_numpy().tolist())


def read_score_file(file: Path) -> pd.DataFrame:
    """Read the scores of an earlier benchmark from a file of others.

    Raises ValueError with the file, and the row and column of a wrong cell.
    """
    advice = "give the scores.csv of a benchmark"
    if not file.is_file():
        raise ValueError(f"there is no file {file}; {advice}")
    if file.suffix.lower() != ".csv":
        raise ValueError(f"{file} is not a CSV file; {advice}")
    if file.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{file} has more than {LARGEST_FILE} bytes; {advice}")
    from fallow.data.loaders.table_files import read_file

    cells = read_file(file)
    missing = [name for name in COLUMNS if name not in cells.columns]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}; {advice}")
    columns = {name: _read_column(file, name, cells.texts(name)) for name in COLUMNS}
    scores = pd.DataFrame(columns).astype(dict.fromkeys(SMALL, "float32"))
    if scores.duplicated(["task", "strategy", "seed", "cycle"]).any():
        raise ValueError(f"{file} contains a cycle of a run twice; {advice}")
    return scores


def _read_column(file: Path, name: str, cells: Sequence[str]) -> list[object]:
    """Return the values of a column, checked by its declared type."""
    kind = KINDS[name]
    texts = [cell_text(cell) for cell in cells]
    try:
        values: list[object] = adapter_of(list[kind]).validate_python(texts)  # type: ignore[valid-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        row, *_ = first["loc"]
        wrong = describe_wrong_value(kind, [{**first, "loc": ()}], whole=name)
        raise ValueError(f"{file}, row {int(row) + 1}: {wrong}") from error
    return values


def areas(frame: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Return the area of each strategy and seed on one task, without incomplete runs."""
    outcome: dict[str, dict[int, float]] = {}
    last = frame["cycle"].max()
    by_cycle = frame.sort_values("cycle", kind="stable")
    for (strategy, seed), ordered in by_cycle.groupby(["strategy", "seed"], sort=False):
        if ordered["cycle"].iloc[-1] == last:
            of_strategy = outcome.setdefault(str(strategy), {})
            of_strategy[int(seed)] = area(
                ordered["labels"].tolist(), ordered["accuracy"].tolist()
            )
    return outcome


@with_config(STRICT)
@dataclass(frozen=True)
class TaskLine:
    """Result of a strategy on a task; scores are fractions, differences ours - reference."""

    strategy: Annotated[str, Field(description="query strategy")]
    seeds: Annotated[int, Field(ge=1, description="number of seeds")]
    area: Annotated[float, Field(description="mean area under the learning curve")]
    area_sd: Annotated[float | None, Field(description="its standard deviation over seeds")]
    few: Annotated[
        float, Field(description="accuracy at 10 labels per class, or the nearest number")
    ]
    final: Annotated[float, Field(description="accuracy at the last budget")]
    worst: Annotated[
        float, Field(description="accuracy of the worst class at the last budget")
    ]
    difference: Annotated[
        float | None, Field(description="difference of the area from the reference")
    ]
    interval: Annotated[
        Interval | None, Field(description="confidence interval of the difference")
    ]
    holm: Annotated[float | None, Field(description="p-value with Holm's correction")]


def task_lines(frame: pd.DataFrame, reference: str, classes: int) -> list[TaskLine]:
    """Return the strategies of one task, best first, each tested against the reference."""
    result = areas(frame)
    tested = _compare_common(result, [(name, reference) for name in result])
    lines = []
    for strategy, of_seeds in result.items():
        rows = frame[(frame["strategy"] == strategy) & frame["seed"].isin(list(of_seeds))]
        mean, sd = mean_sd(list(of_seeds.values()))
        of_cycles = rows.groupby("cycle")[["labels", "accuracy", "worst_class"]].mean()
        few = (of_cycles["labels"] - 10 * classes).abs().idxmin()
        last = of_cycles.iloc[-1]
        line = TaskLine(
            strategy=strategy,
            seeds=len(of_seeds),
            area=mean,
            area_sd=sd,
            few=float(of_cycles["accuracy"][few]),
            final=float(last["accuracy"]),
            worst=float(last["worst_class"]),
            difference=None,
            interval=None,
            holm=None,
        )
        test = tested.get((strategy, reference))
        if test is not None:
            difference = test.difference
            line = replace(
                line, difference=difference, interval=test.interval, holm=test.holm
            )
        lines.append(line)
    return sorted(lines, key=lambda line: -line.area)


def _compare_common(
    areas: Areas, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Comparison]:
    """Compare the pairs of different strategies with two or more common seeds."""
    common = []
    for ours, theirs in pairs:
        seeds = set(areas.get(ours, ())) & set(areas.get(theirs, ()))
        if ours != theirs and len(seeds) > 1:
            common.append((ours, theirs))
    return dict(zip(common, compare_pairs(areas, common), strict=True))


@with_config(STRICT)
@dataclass(frozen=True)
class Verdict:
    """Comparison of a strategy with the best other strategy on a task, by area."""

    task: Annotated[str, Field(description="name of the task")]
    strategy: Annotated[str, Field(description="query strategy")]
    rival: Annotated[str, Field(description="best other strategy")]
    seeds: Annotated[int, Field(ge=1, description="number of common seeds")]
    difference: Annotated[float, Field(description="difference of the areas")]
    interval: Annotated[
        Interval, Field(description="confidence interval of the difference")
    ]
    holm: Annotated[
        float,
        Field(
            description="p-value with Holm's correction over all other strategies of the task"
        ),
    ]
    not_worse: Annotated[
        float, Field(description=f"p-value against being worse by {MARGIN:g}")
    ]

    @property
    def outcome(self) -> str:
        """Conclusion: ``better``, ``worse``, ``not worse`` or ``open`` (inconclusive)."""
        if self.holm <= LEVEL and self.difference > 0:
            return "better"
        if self.holm <= LEVEL and self.difference < 0:
            return "worse"
        if self.not_worse <= LEVEL:
            return "not worse"
        return "open"


@with_config(STRICT)
@dataclass(frozen=True)
class BenchmarkResult:
    """Result of a benchmark."""

    tables: Annotated[
        Mapping[str, Sequence[TaskLine]],
        Field(description="results of the strategies, by title of the task"),
    ]
    verdicts: Annotated[
        Sequence[Verdict],
        Field(description="comparisons with the best other strategy of each task"),
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class Constants:
    """Fixed parameters of query strategies."""

    constants: Annotated[
        Mapping[str, Mapping[str, Any]],
        Field(description="parameters and constants of modules, by strategy"),
    ]
    digest: Annotated[str, Field(description="digest of all constants")]


def judge(task: str, areas: Areas, strategy: str, rivals: Sequence[str]) -> Verdict | None:
    """Compare a strategy with the best other strategy on a task, over their common seeds.

    Returns None if there are fewer than two common seeds with each other strategy.
    """
    compared = _compare_common(areas, [(strategy, rival) for rival in rivals])
    if not compared:
        return None
    pair = max(compared, key=lambda pair: mean_sd(list(areas[pair[1]].values()))[0])
    chosen = compared[pair]
    d = differences(areas[strategy], areas[chosen.reference])
    return Verdict(
        task=task,
        strategy=strategy,
        rival=chosen.reference,
        seeds=chosen.pairs,
        difference=chosen.difference,
        interval=t_interval(d),
        holm=chosen.holm,
        not_worse=not_worse(d),
    )
