"""The figures of a study: learning curves, classes, partition, balance of labels, routing.

Each function takes records and returns a figure, or ``None`` when the records do not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fallow.lab import metrics
from fallow.lab.figures import (
    INK,
    Look,
    key_above,
    looks,
    name_ends,
    new_figure,
    plain,
    whole_ticks,
)
from fallow.lab.reading import Cell, Partition, Record, StudyRecords
from fallow.lab.stats import mean_sd
from fallow.lab.tables_final import label_of

_HEAT = LinearSegmentedColormap.from_list("fallow", ["#f3f6fa", "#8fb8d9", "#0b5a94", "#06304f"])
_NAMED_CLASSES = 12
"""Up to this many classes are named in a figure; more are numbered sparsely."""

BySeed = Mapping[int, Sequence[float]]
"""Cycle -> one value per seed."""


def _scale(study: StudyRecords) -> tuple[float, str]:
    return (100.0, "Test accuracy, %") if study.measure == "accuracy" else (1.0, "Test error (MSE)")


def _line(axes: Axes, x: Sequence[float], values: Sequence[Sequence[float]], look: Look
          ) -> tuple[float, float]:
    """Mean over seeds with a band of one standard deviation; where the line ends."""
    spread = [mean_sd(v) for v in values]
    mean = np.array([m for m, _ in spread])
    sd = np.array([s or 0.0 for _, s in spread])
    axes.plot(x, mean, color=look.colour, marker=look.marker)
    if (sd > 0).any():
        axes.fill_between(x, mean - sd, mean + sd, color=look.colour, alpha=0.14, linewidth=0)
    return float(x[-1]), float(mean[-1])


def learning_curves(study: StudyRecords) -> Figure | None:
    """Score against labelled share, mean ± sd over seeds; upper bounds as dashed lines."""
    figure, (axes,) = new_figure(3.7)
    scale, title = _scale(study)
    look, ends = looks(study), []
    for query in study.strategies:
        curve, x = study.curve(query), study.fractions(query)
        cycles = [c for c in curve if c in x]
        if cycles:
            end = _line(axes, [100 * x[c] for c in cycles],
                        [[scale * s for s in curve[c].values()] for c in cycles], look[query])
            ends.append((label_of(query, study.study), *end, look[query].colour))
    if not ends:
        return None
    right = max(x for _, x, _, _ in ends)
    for query in study.bounds:
        final = study.final(query)
        if final:
            level = scale * fmean(final.values())
            axes.axhline(level, color=look[query].colour, linestyle=(0, (5, 3)), linewidth=1.3)
            ends.append((label_of(query, study.study), right, level, look[query].colour))
    axes.set_xlabel("Labelled rows, % of all training rows")
    axes.set_title(title)
    name_ends(axes, ends)
    return figure


@dataclass(frozen=True)
class ClassScores:
    """Final per-class accuracy of a query in per cent, and its halves seed by seed."""

    query: str
    mean: tuple[float | None, ...]
    halves: tuple[metrics.Halves, ...]


def class_scores(study: StudyRecords) -> list[ClassScores]:
    """Per-class accuracy in the last cycle (over its rounds that count, then over seeds)."""
    found = []
    for query in study.strategies:
        last, done = study.last_cycle(query), study.final(query)
        rows, halves = [], []
        for cell in study.of(query):
            scored = [r["per_class"] for r in cell.records
                      if r.get("cycle") == last and r.get("final") and r.get("per_class")]
            if not scored or cell.seed not in done:
                continue
            rows.append(_class_means(scored))
            split = cell.partition and metrics.variance_gap(rows[-1], cell.partition.sigma)
            if split:
                halves.append(split)
        if rows:
            found.append(ClassScores(query, tuple(_class_means(rows)), tuple(halves)))
    return found


def _class_means(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Class-wise mean over rows, leaving out what is absent; ``None`` if nothing is left."""
    columns = [[a for a in column if a is not None] for column in zip(*rows, strict=True)]
    return [fmean(column) if column else None for column in columns]


def first_partition(study: StudyRecords) -> tuple[int, Partition] | None:
    """The partition of the first seed that has one."""
    held = sorted((cell.seed, i) for i, cell in enumerate(study.cells) if cell.partition)
    found = study.cells[held[0][1]] if held else None
    return (found.seed, found.partition) if found and found.partition else None


def _class_ticks(axes: Axes, names: Sequence[str], offset: float = 0.0) -> None:
    if len(names) <= _NAMED_CLASSES:
        slant = 35 if max(map(len, names)) > 4 else 0
        axes.set_xticks([i + offset for i in range(len(names))], list(map(plain, names)),
                        rotation=slant, ha="right" if slant else "center")


def class_accuracy(study: StudyRecords) -> Figure | None:
    """One dot per class and query, classes from worst to best by the mean of all queries."""
    scores = class_scores(study)
    if not scores:
        return None
    count = len(scores[0].mean)
    found = first_partition(study)
    names = found[1].classes if found else tuple(map(str, range(count)))
    middle = _class_means([s.mean for s in scores])
    shown = sorted((c for c in range(count) if middle[c] is not None),
                   key=lambda c: (middle[c] or 0.0, c))
    figure, (axes,) = new_figure(3.4)
    look = looks(study)
    for k, s in enumerate(scores):
        shift = 0.5 * (k - (len(scores) - 1) / 2) / len(scores)
        dots = [(i + shift, 100 * a) for i, c in enumerate(shown)
                if (a := s.mean[c]) is not None]
        axes.plot(*zip(*dots, strict=True), linestyle="none", color=look[s.query].colour,
                  marker=look[s.query].marker)
    _class_ticks(axes, [names[c] for c in shown])
    axes.set_xlabel("Class, from the worst to the best learned")
    axes.set_title("Test accuracy of each class, %")
    axes.grid(visible=False, axis="x")
    key_above(figure, [(label_of(s.query, study.study), look[s.query]) for s in scores])
    return figure


def partition_map(study: StudyRecords) -> Figure | None:
    """Rows of each class at each site before anything is labelled, for the first seed."""
    found = first_partition(study)
    if not found:
        return None
    part, n = found[1], np.array(found[1].matrix)
    sites = len(n)
    figure, (axes,) = new_figure(min(7.0, 1.1 + 0.27 * max(sites, 6)))
    mesh = axes.pcolormesh(n, cmap=_HEAT, vmin=0, rasterized=n.size > 2500)
    if n.size <= 200:
        for (i, j), rows in np.ndenumerate(n):
            axes.text(j + 0.5, i + 0.5, str(rows), ha="center", va="center", fontsize=8,
                      color="#ffffff" if rows > 0.45 * n.max() else "#222222")
    _class_ticks(axes, part.classes, offset=0.5)
    if sites <= 30:
        axes.set_yticks(np.arange(sites) + 0.5, list(map(plain, part.sites)))
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title("Rows of each class (across) at each site (down)")
    bar = figure.colorbar(mesh, ax=axes, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    return figure


def over_cycles(study: StudyRecords, query: str, value: Callable[[Record], float | None]
                ) -> dict[int, list[float]]:
    """Cycle -> one value per seed, of the last record of each cycle; without what is absent."""
    found: dict[int, list[float]] = {}
    for cell in study.of(query):
        for cycle in cell.cycles:
            row = cell.last_of(cycle)
            number = value(row) if row else None
            if number is not None:
                found.setdefault(cycle, []).append(number)
    return dict(sorted(found.items()))


def minority_share(row: Record) -> float | None:
    """Share of the rarer half of the classes among the labels, per cent."""
    counts = row.get("labelled_per_class")
    return 100 * metrics.imbalance(counts).minority_share \
        if counts and len(counts) > 1 and sum(counts) else None


def label_kl(row: Record) -> float | None:
    """KL of a site's labelled classes from all labelled classes, mean over sites, nats."""
    sites = row.get("labelled_per_site")
    if not sites or not any(map(sum, sites.values())):
        return None
    return metrics.kl_to_global(list(sites.values()))


def label_balance(study: StudyRecords) -> Figure | None:
    """Minority share of all labels, and KL of sites' labels to all labels, over labelled share."""
    figure, panels = new_figure(3.1, columns=2)
    look, drawn = looks(study), []
    for axes, value in zip(panels, (minority_share, label_kl), strict=True):
        for query in study.strategies:
            values, x = over_cycles(study, query, value), study.fractions(query)
            cycles = [c for c in values if c in x]
            if cycles:
                _line(axes, [100 * x[c] for c in cycles], [values[c] for c in cycles],
                      look[query])
                drawn.append(query)
        axes.set_xlabel("Labelled rows, %")
    if not drawn:
        return None
    panels[0].set_title("Share of the rarer classes, %")
    panels[1].set_title("Sites' labels against all, KL (nats)")
    key_above(figure, [(label_of(q, study.study), look[q]) for q in dict.fromkeys(drawn)])
    return figure


def routed(study: StudyRecords) -> tuple[str, ...]:
    """Queries whose records say how each class was routed."""
    return tuple(q for q in study.strategies
                 if over_cycles(study, q, lambda r: 1.0 if _sigma(r) else None))


def _sigma(row: Record) -> Sequence[float] | None:
    notes = row.get("notes") or {}
    return notes.get("sigma")


def _low_classes(row: Record) -> float | None:
    low = (row.get("notes") or {}).get("low")
    return None if low is None else float(sum(map(bool, low)))


def _mean_sigma(cells: Sequence[Cell]) -> dict[int, list[float]]:
    """Cycle -> spread of each class, mean over seeds."""
    found: dict[int, list[Sequence[float]]] = {}
    for cell in cells:
        for cycle in cell.cycles:
            row = cell.last_of(cycle)
            sigma = _sigma(row) if row else None
            if sigma:
                found.setdefault(cycle, []).append(sigma)
    return {c: [fmean(s) for s in zip(*rows, strict=True)] for c, rows in sorted(found.items())}


def routing(study: StudyRecords) -> Figure | None:
    """Spread of each class against the threshold, and how many classes are below it."""
    queries = routed(study)
    if not queries:
        return None
    shown = study.study.reference if study.study.reference in queries else queries[0]
    figure, (left, right) = new_figure(3.1, columns=2)
    look, cells = looks(study), study.of(shown or queries[0])
    sigma = _mean_sigma(cells)
    for line in zip(*sigma.values(), strict=True):
        left.plot(list(sigma), line, color=look[cells[0].query].colour, alpha=0.55, linewidth=1.1,
                  marker="." if len(sigma) == 1 else None)
    tau = next((r["notes"]["spread_tau"] for c in cells for r in c.records
                if (r.get("notes") or {}).get("spread_tau") is not None), None)
    if tau is not None:
        left.axhline(tau, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
        left.annotate(f"threshold {tau:g}", (1, tau), xycoords=("axes fraction", "data"),
                      xytext=(0, 3), textcoords="offset points", ha="right", fontsize=9)
    for query in queries:
        low = over_cycles(study, query, _low_classes)
        if low:
            _line(right, list(low), list(low.values()), look[query])
    left.set_title(f"Class spread (points), {plain(label_of(cells[0].query, study.study))}")
    right.set_title("Classes below the threshold")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Query after cycle")
        whole_ticks(axes)
    key_above(figure, [(label_of(q, study.study), look[q]) for q in queries])
    return figure
