"""Report sections of FairFAL: equal strategies with the local and the global model."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.blocks import NOTHING, Blocks, Note, Table
from fallow.report.comparisons import (
    StrategyPair,
    compare_final_scores,
    note_few_seeds,
    score_text,
)
from fallow.report.final_table import digits_of, label_of, p_text, with_interval
from fallow.report.section import Across, Section, SectionPosition, Sections, chooses
from fallow.settings.variants import ParsedStrategy
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, Comparison
from fallow_papers.sweeps import CUT, alike, alpha_of, rho_of


def model_pairs(strategies: Sequence[str]) -> list[StrategyPair]:
    """Return pairs of ``X:model=global`` and X with the local model (FairFAL's Observation
    1).

    >>> model_pairs(["entropy", "entropy:model=global"])[0].what
    'entropy'
    """
    outcome = []
    parsed = [ParsedStrategy.parse(q) for q in strategies]
    for by_global in parsed:
        fields = dict(by_global.spec.fields)
        if fields.pop("model", None) != "global":
            continue
        for other in parsed:
            rest = dict(other.spec.fields)
            is_local = rest.pop("model", "local") == "local"
            is_same_rule = other.key == by_global.key and rest == fields
            if is_local and is_same_rule and other.settings == by_global.settings:
                outcome.append(
                    StrategyPair(by_global.strategy, other.strategy, other.strategy)
                )
    return outcome


def models(study: StudyRecords, key: str) -> Blocks:
    """Return the section on FairFAL's Observation 1: local and global model with the same
    strategy.
    """
    tests = compare_final_scores(study, model_pairs(study.strategies))
    rows = []
    for pair, c in tests:
        shift = with_interval(c.shift, c.shift_interval, digits_of(study))
        rows.append(
            {
                "Strategy": label_of(pair.against, study.study),
                "Local model": score_text(study, pair.against),
                "Global model": score_text(study, pair.strategy),
                "Hodges-Lehmann": shift,
                "Holm p": p_text(c.holm),
                "Seeds": str(c.pairs),
                "Ahead": ahead(study, c),
            }
        )
    if not rows:
        return []
    return [
        Table.of("The same strategy with the local and the global model", rows),
        Note(
            "Hodges-Lehmann shift of global minus local, paired by seed, with its exact "
            "interval. The better model is given by its sign; ≈ marks differences within "
            "chance."
        ),
        *note_few_seeds(tests),
    ]


def ahead(study: StudyRecords, c: Comparison) -> str:
    """Return the better model, such as ``global``, or ``≈ local`` for a difference within
    chance.
    """
    if c.shift == 0:
        return "neither"
    is_larger = c.shift > 0
    side = "local"
    if is_larger is study.higher_is_better:
        side = "global"
    if c.holm <= LEVEL:
        return side
    return f"≈ {side}"


def selector(studies: Sequence[StudyRecords], key: str) -> list[tuple[str, Blocks]]:
    """Return the table of every group of studies that differ only in their partition."""
    title = "Better query model, by heterogeneity and class imbalance"
    return [(title, _choice(group)) for group in alike(studies, CUT)]


def _choice(group: Sequence[StudyRecords]) -> Blocks:
    """Return the better model, local or global, by alpha and rho (FairFAL's selector
    study).
    """
    result = {alpha_of(study) for study in group}
    alphas = sorted(alpha for alpha in result if alpha is not None)
    rhos = sorted({rho_of(s) for s in group})
    if len(alphas) * len(rhos) < 2:
        return []
    cells: dict[tuple[str, float | None, float], str] = {}  # by query, alpha and rho
    for study in group:
        for pair, c in compare_final_scores(study, model_pairs(study.strategies)):
            value = with_interval(c.shift, None, digits_of(study))
            key = (pair.what, alpha_of(study), rho_of(study))
            cells[key] = f"{ahead(study, c)} ({value})"

    rows = []
    for strategy in dict.fromkeys(strategy for strategy, _, _ in cells):
        for alpha in alphas:
            of_rhos = [cells.get((strategy, alpha, rho), NOTHING) for rho in rhos]
            rows.append([label_of(strategy, group[0].study), f"{alpha:g}", *of_rhos])
    if not rows:
        return []
    header = ["Strategy", "Alpha", *(f"rho {r:g}" for r in rhos)]
    return [
        Table("Better model (Hodges-Lehmann, global minus local)", header, rows, words=2),
        Note(
            "rho is the ratio of the largest to the smallest class (1: no long tail). ≈ "
            "marks differences within chance (exact Wilcoxon, Holm over the pairs of a "
            "study)."
        ),
    ]


SECTIONS = Sections(
    of_one=(Section("Better query model", SectionPosition.FINDINGS, models, chooses),),
    of_several=(Across(selector),),
)
