"""Collaboration graphs of a run over its rounds, and the measures that papers report.

Rows of a graph are receivers, columns are senders. Measures are of the last cycle of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

import torch
from torch import Tensor

from fallow.experiment.record import Record
from fallow.study.records import RunRecords, StudyRecords
from fallow.training.personal.parts.graphs import graph_of
from fallow_papers.dpfl import graph_measures as measure

NAN = float("nan")


@dataclass(frozen=True)
class Graphs:
    """The graphs of one run, (N, N) bool over ``sites``.

    ``omega``: the candidates of the cycle, if the algorithm has them; ``wrong``: (N,) bool,
    sites with flipped labels.
    """

    strategy: str
    seed: int
    sites: tuple[str, ...]
    by_round: Mapping[int, Tensor]
    omega: Tensor | None
    wrong: Tensor
    conflicts: (
        float  # share of visited candidates with both gains positive; NaN without any
    )

    @property
    def first(self) -> int:
        return min(self.by_round)

    @property
    def last(self) -> int:
        return max(self.by_round)

    @property
    def base(self) -> float:
        """Return the share of wrong sites among the peers of a correct site; NaN without
        any.
        """
        wrong = int(self.wrong.sum())
        if wrong == 0:
            return NAN
        return wrong / (len(self.sites) - 1)


@dataclass(frozen=True)
class GraphMeasures:
    """Measures of one graph, or means over several.  Shares in [0, 1]; NaN where not
    defined.

    ``churn``: mean Jaccard distance from the graph before it; ``wrong``: links from sites
    with flipped labels among those of the others; ``popular``: the largest number of
    receivers that one sender has; ``distance``: total variation of classes between a site
    and those it receives from.
    """

    sparsity: float
    with_self: float
    agreement: float
    reciprocity: float
    churn: float
    wrong: float
    popular: float
    distance: float


def graphs_of(cell: RunRecords, is_flipped: bool) -> Graphs | None:
    """Return the graphs that a run recorded; None for an algorithm without graphs.

    is_flipped: some sites have flipped labels, those without a score.
    """
    rows = [r for r in cell.records if r["cycle"] == cell.cycles[-1] and "graph" in r]
    if not rows:
        return None
    last = rows[-1]
    sites = tuple(sorted(last["labeled_per_site"]))
    by_round = {int(r["round"]): graph_of(r["graph"], sites) for r in rows}

    omega = None
    if "omega" in last:
        omega = graph_of(last["omega"], sites)

    wrong = torch.zeros(len(sites), dtype=torch.bool)
    scores = last.get("per_site")
    if is_flipped and scores:  # sites with wrong labels are not scored
        wrong = torch.tensor([site not in scores for site in sites])

    return Graphs(
        strategy=cell.strategy,
        seed=cell.seed,
        sites=sites,
        by_round=by_round,
        omega=omega,
        wrong=wrong,
        conflicts=_conflicts(rows, omega),
    )


def _conflicts(rows: Sequence[Record], omega: Tensor | None) -> float:
    """Return the share of conflicts: a site evaluates two models at the start and two per
    candidate.
    """
    if omega is None or not any(r.get("evaluations") for r in rows):
        return NAN
    to_begin_with = 2 * int(omega.any(1).sum()) * len(rows)
    visited = (sum(r.get("evaluations") or 0 for r in rows) - to_begin_with) / 2
    if visited <= 0:
        return NAN
    return sum(r.get("conflicts") or 0 for r in rows) / visited


def all_graphs(study: StudyRecords) -> dict[str, list[Graphs]]:
    """Return strategy -> the graphs of its runs by seed, for those that have any."""
    is_flipped = bool(study.study.config.get("flip"))
    values: dict[str, list[Graphs]] = {}
    for strategy in study.strategies:
        for cell in study.of(strategy):
            graphs = graphs_of(cell, is_flipped)
            if graphs is not None:
                values.setdefault(strategy, []).append(graphs)
    return values


def measure_graph(run: Graphs, turn: int, matrix: Tensor | None = None) -> GraphMeasures:
    """Measure the graph of a round.

    matrix: (N, C) labels of the sites by class, if known.
    """
    graph = run.by_round[turn]

    churn = NAN
    earlier = [t for t in run.by_round if t < turn]
    if earlier:
        churn = measure.churn(run.by_round[max(earlier)], graph)

    wrong = NAN
    if bool(run.wrong.any()):
        wrong = measure.share_from(graph, run.wrong)

    distance = NAN
    if matrix is not None and bool(graph.any()):
        distance = float(distances(matrix)[graph].mean())

    return GraphMeasures(
        sparsity=measure.sparsity(graph),
        with_self=measure.sparsity(graph, with_self=True),
        agreement=measure.agreement(graph),
        reciprocity=measure.reciprocity(graph),
        churn=churn,
        wrong=wrong,
        popular=float(graph.sum(0).max()),
        distance=distance,
    )


def distances(matrix: Tensor) -> Tensor:
    """Return the total variation between the classes of every two sites. (N, C) counts ->
    (N, N) in [0, 1]

    >>> distances(torch.tensor([[2, 0], [1, 1]]))
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]])
    """
    share = matrix / matrix.sum(1, keepdim=True).clamp_min(1)
    return (share[:, None] - share).abs().sum(2) / 2


def classes_of(study: StudyRecords, run: Graphs) -> Tensor | None:
    """Return the number of examples of each class at each site, in the order of sites: (N,
    C).
    """
    part = study.partitions.get(run.seed)
    if part is None or sorted(part.sites) != list(run.sites):
        return None
    counts = dict(zip(part.sites, part.matrix, strict=True))
    return torch.tensor([counts[site] for site in run.sites])


def at(
    study: StudyRecords, runs: Sequence[Graphs], when: Callable[[Graphs], int]
) -> GraphMeasures:
    """Return means over runs, each at the round that ``when`` returns."""
    measures = [measure_graph(run, when(run), classes_of(study, run)) for run in runs]
    means = {}
    for field in fields(GraphMeasures):
        means[field.name] = mean(getattr(m, field.name) for m in measures)
    return GraphMeasures(**means)


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN for none.

    >>> mean([1.0, float("nan"), 2.0])
    1.5
    """
    numbers = [v for v in values if not math.isnan(v)]
    if not numbers:
        return NAN
    return fmean(numbers)


def over_rounds(
    runs: Sequence[Graphs], value: Callable[[Graphs, int], float]
) -> dict[int, list[float]]:
    """Return round -> one value per run, if it is defined."""
    result: dict[int, list[float]] = {}
    for run in runs:
        for turn in run.by_round:
            number = value(run, turn)
            if not math.isnan(number):
                result.setdefault(turn, []).append(number)
    return dict(sorted(result.items()))


def links_and_dropped(run: Graphs, turn: int) -> tuple[Tensor, Tensor]:
    """Return the links of a round, and the candidates without a link: (N, N) each.

    Without candidates, the links of the first round are used.
    """
    graph = run.by_round[turn]
    candidates = run.omega
    if candidates is None:
        candidates = run.by_round[run.first]
    return graph, candidates & ~graph


def snapshots(run: Graphs, limit: int) -> list[int]:
    """Return up to a number of evenly spaced rounds of a run, including the first and the
    last.

    >>> none = torch.zeros(0)
    >>> snapshots(Graphs("q", 0, (), dict.fromkeys(range(10), none), None, none, 0.0), 4)
    [0, 3, 6, 9]
    """
    turns = sorted(run.by_round)
    n = min(limit, len(turns))
    last = len(turns) - 1
    shown = []
    for i in range(n):
        at = i * last / max(n - 1, 1)  # evenly spaced from the first to the last
        shown.append(turns[round(at)])
    return shown
