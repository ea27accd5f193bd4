"""What several studies show together: the trade-off over alpha, slopes, and which model chose."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.core.words import listed
from fallow.report.columns import NOTHING, with_interval
from fallow.report.comparisons import ahead, class_slopes, drawn, note, unit_of, who
from fallow.report.figures import findings as draw
from fallow.report.final_table import digits_of, label_of
from fallow.report.findings import pairs as find
from fallow.report.findings.families import FAMILIES
from fallow.report.findings.slopes import slopes
from fallow.report.findings.sweeps import CUT, alike, alpha_of, alpha_sweeps, rho_of
from fallow.report.findings.tradeoff import Tradeoff, tradeoff
from fallow.report.html import Html, el, section, table
from fallow.report.regression import wins_across
from fallow.study.records import StudyRecords

Sweep = tuple[StudyRecords, ...]


def across(studies: Sequence[StudyRecords], key: str) -> Html | None:
    """The article over all studies; nothing when no two of them belong together."""
    parts: list[Html] = []
    for i, sweep in enumerate(alpha_sweeps(studies)):
        parts += _sweep(sweep, f"{key}-{i}")
    parts += [made for group in alike(studies, CUT) if (made := _choice(group))]
    parts += filter(None, [wins_across(studies)])
    return el("article", el("h2", "Across studies"), *parts, id=key) if parts else None


def swept(studies: Sequence[StudyRecords]) -> list[StudyRecords]:
    """The studies whose slopes stand in the article over all."""
    return [s for sweep in alpha_sweeps(studies) if slopes(sweep) for s in sweep]


def _sweep(sweep: Sweep, key: str) -> list[Html]:
    """AHFAL's Figures 2 and 3 over studies that differ in alpha alone."""
    found, lines, first = tradeoff(sweep), slopes(sweep), sweep[0]
    parts = [class_slopes(lines, first, key)] if lines else []
    if found is None:
        return parts
    names = listed([s.study.name for s in sweep])
    return [
        section(
            "Local or global model, over alpha",
            drawn(
                draw.tradeoff(found, unit_of(first)),
                f"{key}-tradeoff",
                "Above zero, strategies that read the global model end better than those that "
                "read each site's own; a line that crosses zero is the trade-off. Means of the "
                "strategies of a family, paired by seed, with 95 % Student intervals.",
            ),
            _points(found),
            note(
                f"Studies: {names}. {who(first, found.members)} AHFAL's paper (Figure 2) calls the "
                "first family centralised, and strategies that read the global model decentralised."
            ),
        ),
        *parts,
    ]


def _points(found: Tradeoff) -> Html:
    """The points of the figure in numbers."""
    rows = [
        [
            f"{p.alpha:g}",
            FAMILIES[kind].capitalize(),
            with_interval(p.difference, p.interval, 2),
            str(p.seeds),
        ]
        for kind, points in found.points.items()
        for p in points
    ]
    header = ["Alpha", "Family", "Difference [95 %]", "Seeds"]
    return table("Minus strategies of the local model only", header, rows, words=2)


def _choice(group: Sweep) -> Html | None:
    """FairFAL's selector study: who is ahead, the local or the global model, by alpha and rho."""
    alphas = sorted({a for s in group if (a := alpha_of(s)) is not None})
    rhos = sorted({rho_of(s) for s in group})
    if len(alphas) * len(rhos) < 2:
        return None
    cells = {}
    for study in group:
        for pair, c in find.compared(study, find.model_pairs(study.strategies)):
            value = with_interval(c.shift, None, digits_of(study))
            cells[pair.what, alpha_of(study), rho_of(study)] = (
                f"{ahead(study, c)} ({value})"
            )
    rows = [
        [
            label_of(q, group[0].study),
            f"{a:g}",
            *(cells.get((q, a, r), NOTHING) for r in rhos),
        ]
        for q in dict.fromkeys(what for what, _, _ in cells)
        for a in alphas
    ]
    if not rows:
        return None
    header = ["Query", "Alpha", *(f"rho {r:g}" for r in rhos)]
    return section(
        "Which model should choose, by skew and tail",
        table("Model ahead (Hodges-Lehmann, global minus local)", header, rows, words=2),
        note(
            "rho is the largest over the smallest class (1: no long tail). A model with ≈ is ahead "
            "by no more than chance explains (exact Wilcoxon, Holm over the pairs of a study)."
        ),
    )
