"""Final table of a study: final scores, tests against the reference, and published results.

A table is created from records. Accuracies are in percent and their differences in points;
errors stay in their own unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from fallow.core.wording import count_noun
from fallow.experiment.metrics import labels_saved
from fallow.report.degenerate import (
    describe_baseline,
    describe_convergence,
    ends_diverged,
    find_equals,
    find_one_class,
)
from fallow.report.published import describe_differences
from fallow.settings.variants import ParsedStrategy
from fallow.study import names
from fallow.study import statistics as stats
from fallow.study.published import PublishedResult
from fallow.study.records import Measure, StudyManifest, StudyRecords, is_bound
from fallow.study.trainers import describe_trained


@dataclass(frozen=True)
class Spread:
    """A mean, its standard deviation (ddof=1; ``None`` if unknown) and the number of seeds."""

    mean: float
    sd: float | None
    seeds: int | None = None

    def text(self, digits: int = 2) -> str:
        """Return ``71.20 ± 1.05``, or only the mean if there is no spread."""
        mean = number(self.mean, digits)
        if self.sd is None:
            return mean
        return f"{mean} ± {number(self.sd, digits)}"


def spread_of(values: Sequence[float]) -> Spread:
    """Return the mean and the standard deviation of one or more numbers."""
    mean, sd = stats.mean_sd(values)
    return Spread(mean, sd, len(values))


def number(value: float, digits: int, sign: str = "") -> str:
    """Return a number with fixed decimals, or with three digits if it is very large.

    >>> number(0.72, 4), number(0.5, 2, "+"), number(123_456_789.0, 4)
    ('0.7200', '+0.50', '1.23e+08')
    """
    if abs(value) < 1e6:
        return f"{value:{sign}.{digits}f}"
    return f"{value:{sign}.2e}"


def p_text(p: float) -> str:
    """Return a p-value with three digits, never as 0.

    >>> p_text(0.03125), p_text(1e-7)
    ('0.031', '<0.001')
    """
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}"


def with_interval(value: float, interval: stats.Interval | None, digits: int) -> str:
    """Return a difference with its interval, if it has one."""
    text = number(value, digits, "+")
    if interval is None:
        return text
    return f"{text} [{number(interval.low, digits, '+')}, {number(interval.high, digits, '+')}]"


@dataclass(frozen=True)
class Row:
    """Row of the final table.

    Attributes
    ----------
    saved : float or None
        Percentage of labels saved relative to random sampling.
    comparison : Comparison or None
        Comparison with the reference, in the unit of the scores.
    labels : float
        Final number of labels.
    """

    strategy: str
    label: str
    is_bound: bool
    score: Spread | None
    area: Spread | None
    saved: float | None
    comparison: stats.Comparison | None
    published: Spread | None = None
    area_comparison: stats.Comparison | None = None  # of areas under the curve
    labels: float | None = None
    has_diverged: bool = False  # a seed ends without a usable model
    one_class: bool = False  # a seed ends with a model that predicts one class only
    same_as: str = ""  # the label of a strategy above whose scores are all the same

    @property
    def name(self) -> str:
        """Label, with a remark on bounds and on degenerate results."""
        text = self.label
        if self.is_bound:
            text += " (bound)"
        if self.has_diverged:
            text += " (diverged)"
        if self.one_class:
            text += " (one class)"
        if self.same_as:
            text += f" (same as {self.same_as})"
        return text


@dataclass(frozen=True)
class FinalTable:
    """Query strategies, best first, followed by upper bounds.

    Attributes
    ----------
    untested : str
        Reason why there is no test; empty for a single strategy.
    stopped : tuple of str
        Runs that ended before the last cycle and are excluded, one sentence per strategy.
    """

    name: str
    measure: Measure
    reference: str | None
    rows: tuple[Row, ...]
    untested: str
    published_in: str | None = None
    other_setting: str = ""  # differences to the setting of the published results
    is_scaled: bool = False  # errors are divided by the variance of the training targets
    heading: str = "Strategy"  # heading of its rows
    trainings_differ: bool = False
    stopped: tuple[str, ...] = ()
    trained: str = ""  # trainer, model or encoder, and head
    # sentences on training that decides more than the strategies do
    training: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the name of the table, with the training algorithm of its strategies."""
        return f"{self.name}: {self.trained}" if self.trained else self.name

    @property
    def digits(self) -> int:
        """Return the decimals of the scores: two for accuracies, four digits of the best
        error.
        """
        if self.measure.is_percent:
            return 2
        return decimals(row.score.mean for row in self.rows if row.score)

    @property
    def labels_differ(self) -> bool:
        """Whether strategies end with different numbers of labels."""
        bought = set()
        for row in self.rows:
            if row.labels is not None and not row.is_bound:
                bought.add(round(row.labels))
        return len(bought) > 1

    @property
    def reference_label(self) -> str:
        """Display name of the reference."""
        reference = self.row(self.reference or "")
        if reference is None:
            return "reference"
        return reference.label

    def kind(self, row: Row) -> str:
        """Return the role of a row: strategy, reference or bound."""
        if row.is_bound:
            return "bound"
        if row.strategy == self.reference:
            return "reference"
        return "strategy"

    def row(self, strategy: str) -> Row | None:
        """Return the row of a strategy, or None."""
        for row in self.rows:
            if row.strategy == strategy:
                return row
        return None


def label_of(strategy: str, study: StudyManifest) -> str:
    """Return the display name of a strategy."""
    printed = (study.published or {}).get("names") or {}
    nothing_is_chosen = study.config.get("cycles") == 0  # all labels are bought
    result = names.labels(
        dict.fromkeys((*study.strategies, strategy)),
        printed,
        names.training_of_config(study),
        known=study.known,
        by_training=nothing_is_chosen,
    )
    words = result[strategy]
    trainings_differ = names.trainings_differ(study) and not nothing_is_chosen
    if (
        is_bound(strategy)
        and trainings_differ
        and not ParsedStrategy.parse(strategy).settings
    ):
        # Name the training of the bound, because strategies with another training can
        # exceed it.
        words += f", {names.usual_training(study)}"
    return words


def decimals(errors: Iterable[float]) -> int:
    """Return the number of decimals that shows four digits of the smallest error, at most
    six.

    >>> decimals([0.72, 11.0]), decimals([0.0284]), decimals([7855.0]), decimals([])
    (4, 5, 0, 4)
    """
    sizes = [abs(error) for error in errors if error]
    magnitude = math.floor(math.log10(min(sizes, default=0.1)))
    return min(6, max(0, 3 - magnitude))


def digits_of(study: StudyRecords) -> int:
    """Return the decimals of the study's scores, as in `FinalTable.digits`."""
    if study.measure.is_percent:
        return 2
    finals = [study.final(strategy) for strategy in study.study.strategies]
    return decimals(fmean(by_seed.values()) for by_seed in finals if by_seed)


def rank_strategies(study: StudyRecords) -> tuple[str, ...]:
    """Return the strategies by mean final score, best first; those without a score come last."""
    means: dict[str, float] = dict.fromkeys(study.strategies, math.inf)
    for strategy in study.strategies:
        scores = study.final(strategy).values()
        if scores:
            means[strategy] = study.loss * fmean(scores)
    return tuple(sorted(study.strategies, key=means.__getitem__))


def _labels_saved(study: StudyRecords, strategy: str) -> float | None:
    """Return labels saved relative to random on the mean curves, in percent; None without
    random.
    """
    if is_bound(strategy) or strategy == "random" or "random" not in study.strategies:
        return None
    curves = []  # labeled fraction -> mean score, errors negated
    for name in (strategy, "random"):
        fractions = study.fractions(name)
        curve = {}
        for cycle, scores in study.curve(name).items():
            if cycle in fractions:
                curve[fractions[cycle]] = -study.loss * fmean(scores.values())
        if len(curve) < 2:
            return None
        curves.append(curve)
    saved = labels_saved(*curves)
    if saved is None:
        return None
    return 100 * saved


Scores = Callable[[str], Mapping[int, float]]


def comparisons(study: StudyRecords, of: Scores) -> tuple[list[stats.Comparison], str]:
    """Compare every strategy with the reference, or return the reason why there is no test.

    ``of(strategy)`` returns the score of each seed.
    """
    reference = study.study.reference
    scores = {}
    for strategy in study.strategies:
        by_seed = {seed: study.scale * score for seed, score in of(strategy).items()}
        if by_seed:
            scores[strategy] = by_seed
    if len(study.strategies) == 1:
        return [], ""
    if reference is None:
        return [], "No reference is set, so there are no tests."
    if reference not in scores:
        why = f"The reference {reference!r} has no final score yet, so there are no tests."
        return [], why
    if len(scores) < 2:
        return [], f"There is no strategy to compare with {reference!r}."
    testable = {}
    short = []
    for strategy, by_seed in scores.items():
        pairs = len(by_seed.keys() & scores[reference].keys())
        if pairs >= 2:
            testable[strategy] = by_seed
        elif strategy != reference:
            short.append(f"{strategy} ({pairs})")
    if len(testable) < 2:
        return [], (
            f"A paired test needs at least 2 common seeds with {reference!r}; no strategy "
            "has them."
        )
    reason = ""
    if short:
        reason = f"Not tested, because fewer than 2 seeds are common: {', '.join(short)}."
    tested = [(strategy, reference) for strategy in testable if strategy != reference]
    better = study.higher_is_better
    return stats.compare_pairs(testable, tested, higher_is_better=better), reason


def final_table(study: StudyRecords) -> FinalTable:
    """Return the final table of a study, with published results if available."""
    tests, untested = comparisons(study, study.final)
    of_areas, _ = comparisons(study, study.areas)
    by_strategy = {test.strategy: test for test in tests}
    by_area = {test.strategy: test for test in of_areas}
    rows = []
    for strategy in (*rank_strategies(study), *study.bounds):
        rows.append(_row(study, strategy, by_strategy.get(strategy), by_area.get(strategy)))
    table = FinalTable(
        name=study.study.name,
        measure=study.measure,
        reference=study.study.reference,
        rows=tuple(rows),
        untested=untested,
        is_scaled=study.is_scaled,
        heading=names.heading(study.study),
        trainings_differ=names.trainings_differ(study.study),
        stopped=tuple(list_left_out(study)),
        trained=describe_trained(study),
        training=tuple(
            filter(None, (describe_baseline(study), describe_convergence(study)))
        ),
    )
    where = study.study.published
    if not where:
        return table
    tables = study.study.known.published
    if where["table"] not in tables.names():
        return replace(
            table, published_in=f"{where['table']} (no paper here has this table)"
        )
    if tables.source(where["table"]).kind != "cells":  # same order as the tallies
        return table
    named = where["table"]
    if where["setting"]:
        named = f"{where['table']}, {where['setting']}"
    differences = describe_differences(study.study)
    if differences:
        named += f" (other setting: {differences})"
    table = replace(table, other_setting=differences)
    return beside(table, tables.cells(where["table"]), where["setting"], named)


def list_left_out(study: StudyRecords) -> list[str]:
    """Describe the runs that a stopping rule ended before the last cycle.

    Their scores are at other numbers of labels, so they are not part of a mean of final
    scores.
    """
    sentences = []
    for strategy in study.strategies:
        curve = study.curve(strategy)
        seeds = []
        labels = []
        scores = []
        for cell in study.of(strategy):
            is_stopped = any("stopped" in record for record in cell.records)
            if not is_stopped or cell.cycles[-1] == study.last_cycle(strategy):
                continue
            score = curve.get(cell.cycles[-1], {}).get(cell.seed)
            if score is not None:
                seeds.append(str(cell.seed))
                labels.append(cell.records[-1]["labeled"])
                scores.append(study.scale * score)
        if seeds:
            sentences.append(
                f"{label_of(strategy, study.study)}: {count_noun(len(seeds), 'run')} stopped "
                f"early and not counted in the row (seed {', '.join(seeds)}); mean labels at "
                f"the end {fmean(labels):,.0f}, score "
                f"{spread_of(scores).text(digits_of(study))}."
            )
    return sentences


def _row(
    study: StudyRecords,
    strategy: str,
    comparison: stats.Comparison | None,
    of_area: stats.Comparison | None,
) -> Row:
    """Return the row of one strategy or bound."""
    final = study.final(strategy)
    areas = study.areas(strategy)
    row = Row(
        strategy=strategy,
        label=label_of(strategy, study.study),
        is_bound=is_bound(strategy),
        score=None,
        area=None,
        area_comparison=of_area,
        saved=_labels_saved(study, strategy),
        comparison=comparison,
        has_diverged=ends_diverged(study, strategy),
        one_class=strategy in find_one_class(study),
    )
    equal = find_equals(study).get(strategy)
    if equal:
        row = replace(row, same_as=label_of(equal, study.study))
    if areas:
        row = replace(row, area=spread_of([study.scale * area for area in areas.values()]))
    if final:
        score = spread_of([study.scale * score for score in final.values()])
        labels = study.labels(strategy).get(study.last_cycle(strategy) or 0)
        row = replace(row, score=score, labels=labels)
    return row


def beside(
    table: FinalTable, cells: Iterable[PublishedResult], setting: str, source: str
) -> FinalTable:
    """Return the table with the published numbers of one setting.

    Without a setting, it has the numbers of all settings, and rows are named by method and
    setting.
    """
    printed = {}
    for cell in cells:
        if setting not in ("", cell.setting) or cell.mean is None:
            continue
        label = cell.method
        if not setting:
            label = f"{cell.method} {cell.setting}"
        printed[label] = Spread(cell.mean, cell.sd)
    rows = tuple(replace(row, published=printed.get(row.label)) for row in table.rows)
    if not any(row.published for row in rows):
        source += " (has none of these strategies)"
    return replace(table, rows=rows, published_in=source)


@dataclass(frozen=True)
class Sign:
    """Measured and published difference of one strategy to the reference, in points."""

    label: str
    measured: float
    printed: float

    @property
    def agrees(self) -> bool:
        """Return whether both have the same sign (zero agrees only with zero)."""
        return bool(np.sign(self.measured) == np.sign(self.printed))


def signs(table: FinalTable) -> list[Sign]:
    """Return the signs of measured and published differences where both exist."""
    reference = table.row(table.reference or "")
    if reference is None or reference.published is None or reference.score is None:
        return []
    values = []
    for row in table.rows:
        if row.strategy == table.reference or row.is_bound:
            continue
        if row.published is None or row.score is None:
            continue
        measured = row.score.mean - reference.score.mean
        printed = row.published.mean - reference.published.mean
        values.append(Sign(row.label, round(measured, 9), round(printed, 9)))
    return values
