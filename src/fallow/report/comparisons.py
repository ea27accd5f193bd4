"""The sections of a report that only some studies have: pairs that differ in one thing, and slopes.

Each returns nothing where the study has no such pair with two seeds in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import fmean

from matplotlib.figure import Figure

from fallow.core.words import listed
from fallow.report.columns import NOTHING, p_text, with_interval
from fallow.report.figures import findings as draw
from fallow.report.figures.style import to_svg
from fallow.report.final_table import Spread, digits_of, label_of
from fallow.report.findings import pairs as find
from fallow.report.findings.crossed import interactions
from fallow.report.findings.families import FAMILIES, Family
from fallow.report.findings.labels import over_cycles
from fallow.report.findings.slopes import FEWEST, Slopes, slopes
from fallow.report.html import Html, el, picture, section, table
from fallow.study.names import Strategy
from fallow.study.records import Record, StudyRecords
from fallow.study.statistics import LEVEL, Comparison, mean_sd

Tested = list[tuple[find.Pair, Comparison]]


def findings(study: StudyRecords, key: str, *, with_slopes: bool) -> list[Html]:
    """Every such section that the study has; ``with_slopes`` unless a sweep shows them."""
    found = [oracle(study, key), models(study), settings(study), codes(study)]
    found.append(crossed(study))
    lines = slopes([study]) if with_slopes else None
    return [*filter(None, found), *([class_slopes(lines, study, key)] if lines else [])]


def drawn(figure: Figure, key: str, caption: str) -> Html:
    """A figure with its caption, also for a screen reader."""
    return picture(to_svg(figure, key, escape(caption)), caption)


def note(text: str) -> Html:
    return el("p", text, class_="note")


def unit_of(study: StudyRecords) -> str:
    """What a difference of scores is measured in."""
    return "points" if study.measure == "accuracy" else "mean squared error"


def _score(study: StudyRecords, query: str) -> str:
    scale = 100 if study.measure == "accuracy" else 1
    values = [scale * s for s in study.final(query).values()]
    return Spread(*mean_sd(values)).text(digits_of(study)) if values else NOTHING


def tested_cells(study: StudyRecords, c: Comparison) -> list[str]:
    """Mean difference, adjusted p of the exact test, pairs."""
    difference = with_interval(c.difference, c.interval, digits_of(study))
    return [difference, p_text(c.holm), str(c.pairs)]


TYPICALITY = (
    "Typicality: the plain strategy chooses by clusters (TypiClust); with the shares known, rows "
    "of a class are ordered by the same density without clusters."
)
TESTS = ["Difference [95 %]", "Holm p", "Seeds"]


def few(tests: Tested) -> list[Html]:
    """Why no difference can be called distinguishable, if the seeds are too few."""
    return [note(text + ".") for text in dict.fromkeys(c.note for _, c in tests if c.note)]


def _pairs(study: StudyRecords, rule: Callable[[Sequence[str]], list[find.Pair]]) -> Tested:
    return find.compared(study, rule(study.strategies))


def oracle(study: StudyRecords, key: str) -> Html | None:
    """AHFAL's Figure 4: what the true class shares are worth to a plain heuristic."""
    tests = _pairs(study, find.oracle_pairs)
    if not tests:
        return None
    rows = [
        [p.what, _score(study, p.against), _score(study, p.query), *tested_cells(study, c)]
        for p, c in tests
    ]
    return section(
        "What knowing the classes would be worth",
        drawn(
            draw.lifts(tests, unit_of(study)),
            f"{key}-lifts",
            "A bar to the right: the heuristic gains when each site buys what its labels lack to "
            "the true class shares of all sites. Mean over seeds, 95 % Student interval. No real "
            "site knows the true class of an unlabelled row: this is an upper bound.",
        ),
        table(
            "Plain, and with the true class shares",
            ["Heuristic", "Plain", "Shares known", *TESTS],
            rows,
        ),
        *([note(TYPICALITY)] if any(p.what == "typicality" for p, _ in tests) else []),
        *few(tests),
    )


def models(study: StudyRecords) -> Html | None:
    """FairFAL's Observation 1: the same rule by the local and by the global model."""
    tests = _pairs(study, find.model_pairs)
    if not tests:
        return None
    rows = [
        [
            label_of(p.against, study.study),
            _score(study, p.against),
            _score(study, p.query),
            with_interval(c.shift, c.shift_interval, digits_of(study)),
            *tested_cells(study, c)[1:],
            ahead(study, c),
        ]
        for p, c in tests
    ]
    header = ["Query", "Local model", "Global model", "Hodges-Lehmann", *TESTS[1:], "Ahead"]
    return section(
        "Which model should choose",
        table("The same rule by the local and by the global model", header, rows),
        note(
            "Hodges-Lehmann shift of global minus local, seed by seed, with its exact interval. "
            "Ahead goes by its sign; ≈ marks one that chance explains."
        ),
        *few(tests),
    )


def settings(study: StudyRecords) -> Html | None:
    """AHFAL's Table 7 and the like: a strategy with and without a setting of its own."""
    tests = _pairs(study, find.setting_pairs)
    if not tests:
        return None
    rows = [
        [
            label_of(p.against, study.study),
            p.what,
            _score(study, p.against),
            _score(study, p.query),
            *tested_cells(study, c),
        ]
        for p, c in tests
    ]
    header = ["Query", "Setting", "Without", "With", *TESTS]
    made = table("The same strategy with and without a setting", header, rows, words=2)
    return section("What a setting changes", made, *few(tests))


def crossed(study: StudyRecords) -> Html | None:
    """Whether choosing rows and training belong together, where a study crosses them."""
    found = interactions(study)
    if not found:
        return None
    digits = digits_of(study)
    rows = [
        [
            i.query,
            i.training,
            *(f"{gain:+.{digits}f}" for gain in reversed(i.gains)),
            *tested_cells(study, i.test),
        ]
        for i in found
    ]
    plain = Strategy.parse(found[0].test.reference).training
    header = [
        "Query",
        "Training",
        f"Gain under {plain}",
        "Gain",
        "Interaction [95 %]",
        *TESTS[1:],
    ]
    return section(
        "Choosing rows and training together",
        table(
            "What a query gains over random rows, by how models are trained", header, rows
        ),
        note(
            "Interaction: the gain minus the gain under the plain training, seed by seed."
        ),
        *few([(find.Pair(i.query, "random", ""), i.test) for i in found]),
    )


def codes(study: StudyRecords) -> Html | None:
    """What a paper's public code runs beside what the paper says."""
    tests = _pairs(study, find.code_pairs)
    if not tests:
        return None
    nan = {p.query: _nan_sites(study, p.query) for p, _ in tests}
    has_nan = any(nan.values())
    rows = [
        [
            p.what,
            label_of(p.against, study.study),
            _score(study, p.query),
            _score(study, p.against),
            *tested_cells(study, c),
            *([nan[p.query] or NOTHING] if has_nan else []),
        ]
        for p, c in tests
    ]
    header = ["Code", "Paper", "As published code", "As in the paper", *TESTS]
    header += ["NaN sites"] if has_nan else []
    text = "Differences are code minus paper, seed by seed."
    if has_nan:
        text += (
            " NaN sites: where scores were NaN, so that the code labels rows in arbitrary order; "
            "mean over cycles and seeds."
        )
    return section(
        "As in the public code and as in the paper",
        table("The same method twice", header, rows, words=2),
        note(text),
        *few(tests),
    )


def _nan_sites(study: StudyRecords, query: str) -> str:
    """``9.3 of 10``: sites with NaN scores, mean over cycles and seeds; empty if not noted."""

    def noted(row: Record) -> float | None:
        return (row.get("notes") or {}).get("nan_sites")

    values = [v for of_cycle in over_cycles(study, query, noted).values() for v in of_cycle]
    sites = max(
        (len(r.get("labelled_per_site") or ()) for c in study.of(query) for r in c.records),
        default=0,
    )
    return f"{fmean(values):.1f} of {sites}" if values else ""


def class_slopes(found: Slopes, study: StudyRecords, key: str) -> Html:
    """AHFAL's Figure 3, with the slopes in numbers."""
    rows = []
    for kind, line in found.lines.items():
        steeper = found.steeper.get(kind)
        rows.append(
            [
                FAMILIES[kind].capitalize(),
                with_interval(line.slope, line.interval, 2),
                with_interval(*steeper, 2) if steeper else NOTHING,
                str(line.points),
            ]
        )
    header = ["Family", "Slope [95 %]", "Minus local only [95 %]", "Points"]
    few = (
        f"Intervals need {FEWEST} runs or more to draw again; there are {found.runs}. "
        if not all(line.interval for line in found.lines.values())
        else f"Intervals: the {found.runs} runs (study and seed) drawn again with replacement. "
    )
    return section(
        "Class spread and accuracy",
        drawn(
            draw.slopes(found),
            f"{key}-slopes",
            "A line that falls less steeply loses less on classes that few sites hold. Least "
            "squares over all classes, strategies and seeds; marks are means of equally many "
            "points, ordered by CV.",
        ),
        table("Points of accuracy per unit of CV", header, rows),
        note(few + who(study, {kind: line.queries for kind, line in found.lines.items()})),
    )


def who(study: StudyRecords, members: Mapping[Family, tuple[str, ...]]) -> str:
    """A sentence with the members of each family."""
    names = (
        f"{FAMILIES[kind]}: {listed([label_of(q, study.study) for q in queries])}"
        for kind, queries in members.items()
    )
    return "Strategies by what they read; " + "; ".join(names) + "."


def ahead(study: StudyRecords, c: Comparison) -> str:
    """Which model won, as ``global`` or ``≈ local`` when chance explains it."""
    shift = c.shift if study.higher_is_better else -c.shift
    side = "neither" if shift == 0 else "global" if shift > 0 else "local"
    return side if c.holm <= LEVEL or side == "neither" else f"≈ {side}"
