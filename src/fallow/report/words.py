"""What a study shows, in plain words: who is ahead, and whether chance explains it."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.core.words import counted, some
from fallow.report.final_table import FinalTable, Row, Spread, number
from fallow.report.findings.personal import left_out
from fallow.report.tables import p_text
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, Comparison


def _gap(table: FinalTable, points: float) -> str:
    size = number(abs(points), table.digits)
    return f"{size} points" if table.measure == "accuracy" else size


def leader(table: FinalTable) -> tuple[Row, Spread] | None:
    """The strategy with the best mean, and its score; of equals the first."""
    rows = [(r, r.score) for r in table.rows if r.score and not r.is_bound]
    best = max if table.measure == "accuracy" else min
    return best(rows, key=lambda pair: pair[1].mean) if rows else None


def _standing(table: FinalTable, top: Row, score: Spread) -> str:
    """Who leads, and with what score."""
    if table.measure == "accuracy":
        shown = f"{score.text()} % accuracy"
    else:
        shown = f"a mean squared error of {score.text(table.digits)}"
    seeds = "one seed" if score.seeds == 1 else f"mean ± sd over {score.seeds} seeds"
    is_alone = len(table.rows) == 1
    has = "ends at" if is_alone else "has the best final score:"
    return f"{top.label} {has} {shown} ({seeds})."


def _is_worse(table: FinalTable, c: Comparison) -> bool:
    """Whether the query of a comparison scored worse than the reference."""
    return c.difference < 0 if table.measure == "accuracy" else c.difference > 0


def _side(table: FinalTable, c: Comparison) -> str:
    """Where the reference stands to the query of a comparison."""
    if not c.is_distinct:
        return "not told apart from"
    return "ahead of" if _is_worse(table, c) else "behind"


def _verdicts(table: FinalTable, tests: Sequence[Comparison]) -> list[str]:
    """What may be said about the reference against each other query."""
    names = {row.query: row.label for row in table.rows}
    reference = names.get(table.reference or "", "the reference")
    groups: dict[str, list[str]] = {"ahead of": [], "behind": [], "not told apart from": []}
    for c in tests:
        groups[_side(table, c)].append(names[c.query])
    open_ = groups.pop("not told apart from")
    told = [f"{side} {some(found)}" for side, found in groups.items() if found]
    said = []
    if told:
        said.append(
            f"{reference} is distinguishably {' and '.join(told)} (exact Wilcoxon after Holm, "
            f"p ≤ {LEVEL})."
        )
    if not open_ or not all(c.can_tell for c in tests):
        return said
    if told:
        said.append(f"Its difference to {some(open_)} is within what chance explains.")
    else:
        said.append(
            f"No difference is distinguishable from chance: {reference} cannot be "
            f"told apart from {some(open_)}."
        )
    return said


def _about_random(table: FinalTable, top: Row, tests: Sequence[Comparison]) -> str:
    """Whether choosing was worth it: random is the bar that a query has to clear."""
    chance = table.row("random")
    if chance is None or chance.score is None:
        return ""
    if top.query == "random":
        return "Random is as good as any method here: no method has a better mean."
    pair = next((c for c in tests if {c.query, c.reference} == {"random", top.query}), None)
    if pair is None or pair.is_distinct or not pair.can_tell:
        return ""
    return (
        f"Random is as good: {top.label} is ahead by {_gap(table, pair.difference)} only "
        f"(Holm p = {p_text(pair.holm)})."
    )


def summary(study: StudyRecords, table: FinalTable) -> str:
    """The study in a few honest sentences."""
    found = leader(table)
    if found is None:
        return "No run has a final score yet."
    top, score = found
    tests = [row.comparison for row in table.rows if row.comparison]
    said = [_standing(table, top, score)]
    gone = left_out(study)
    if gone and not study.study.recipe.get("flip"):
        said.append(f"Last scores are without {some(gone)}, which told none.")
    if tests:
        said += _verdicts(table, tests)
        said += _too_few(tests)
    else:
        said.append(table.untested)
    said.append(_about_random(table, top, tests))
    total = len(study.study.queries) * len(study.study.seeds)
    if study.missing:
        done = total - len(study.missing)
        said.append(f"Preliminary: {done} of {total} runs are complete.")
    return " ".join(filter(None, said))


def _too_few(tests: Sequence[Comparison]) -> list[str]:
    """Why no order is claimed, where the seeds are too few to tell one."""
    few = [c for c in tests if not c.can_tell]
    if not few:
        return []
    return [
        f"With {few[0].pairs} paired seeds the exact test cannot reach p = {LEVEL} "
        f"over {counted(len(tests), 'comparison')}, so no order is claimed."
    ]


many = counted  # by this name the other rooms know it
