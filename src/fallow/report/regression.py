"""The sections of a report about numbers to predict: errors by labels, wins, costs, divergence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fallow.core.words import listed, size
from fallow.report.columns import NOTHING
from fallow.report.comparisons import few, note, tested_cells
from fallow.report.costs import ends, mean_text
from fallow.report.final_table import Spread, digits_of, label_of, ranked
from fallow.report.findings import pairs as find
from fallow.report.findings.checkpoints import at_labels, checkpoints, is_even
from fallow.report.findings.diverged import FAR, diverged, diverged_at
from fallow.report.findings.wtl import CHECKPOINTS, Block, Rival, blocks, shared, total
from fallow.report.html import Html, section, table
from fallow.report.published import Tally, source, tallies
from fallow.study.names import Strategy, folded, heading
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, mean_sd

COLUMNS = 5
"""So many checkpoints have a column in the table of errors."""

MARK = " †"


def regression(study: StudyRecords) -> list[Html]:
    """Every section that a study of errors has, and none for one of accuracies."""
    if study.higher_is_better:
        return []
    found = [errors(study), wins(study), controls(study), costs(study)]
    return list(filter(None, found))


# -- divergence -------------------------------------------------------------------------------


def warning(study: StudyRecords) -> list[Html]:
    """Which runs diverged, and what to do about it; nothing when none did."""
    found = diverged(study)
    steps = {q: k for q, k in found.items() if not is_solved(study, q)}
    solved = {q: k for q, k in found.items() if is_solved(study, q)}
    said = []
    if steps:
        said.append(
            f"Diverged: {_who(study, steps)}. Their error is more than {FAR:g} times that of "
            "predicting the mean, or not a number. Scale the features, or lower the learning rate "
            "(plan.optimiser.lr)."
        )
    if solved:
        said.append(
            f"Diverged: {_who(study, solved)}. Least squares on few labels leave directions of the "
            "features to chance. Buy more labels, or use training=server-solve:ridge=0.001."
        )
    return [note(text) for text in said]


def is_solved(study: StudyRecords, query: str) -> bool:
    """Whether the models of a strategy are solved for and not trained step by step."""
    training = study.study.recipe.get("training")
    usual = str(training["name"]) if isinstance(training, Mapping) else ""
    return (Strategy.parse(query).training or folded(usual)).endswith("solve")


def _who(study: StudyRecords, found: Mapping[str, Mapping[int, int]]) -> str:
    """``random (seeds 0 and 2, from cycle 1)``, for each strategy."""
    said = []
    for query, seeds in found.items():
        which = (
            f"seed{'s' if len(seeds) > 1 else ''} {listed([str(k) for k in sorted(seeds)])}"
        )
        said.append(
            f"{label_of(query, study.study)} ({which}, first in cycle {min(seeds.values())})"
        )
    return listed(said)


# -- errors -----------------------------------------------------------------------------------


def errors(study: StudyRecords) -> Html | None:
    """Errors at a few checkpoints: cycle by cycle, and at equal numbers of labels."""
    cycles = checkpoints(study, COLUMNS)
    if not cycles:
        return None
    order, even, what = ranked(study), is_even(study), heading(study.study)
    rows = [
        [label_of(q, study.study), *(_error(study, q, c) for c in cycles)] for q in order
    ]
    bought = study.labels(order[0])
    header = [
        f"{bought[c]:,.0f} labels" if even and c in bought else f"Cycle {c}" for c in cycles
    ]
    parts = [
        table("Error by labels bought" if even else "Error by cycle", [what, *header], rows)
    ]
    if not even:
        parts.append(_at_equal_labels(study, cycles))
    text = "Mean ± standard deviation over seeds; lower is better."
    if any(cell.endswith(MARK) for row in rows for cell in row):
        text += f"{MARK}: a seed has diverged there."
    return section("Errors over cycles", *parts, note(text))


def _error(study: StudyRecords, query: str, cycle: int) -> str:
    mark = MARK if diverged_at(study, query, cycle) else ""
    return _spread(study, study.curve(query).get(cycle, {})) + mark


def _spread(study: StudyRecords, scores: Mapping[int, float]) -> str:
    return (
        Spread(*mean_sd([*scores.values()])).text(digits_of(study)) if scores else NOTHING
    )


def _at_equal_labels(study: StudyRecords, cycles: Sequence[int]) -> Html:
    """All strategies at the labels of the one that bought the fewest."""
    bought = [study.labels(q) for q in study.strategies if cycles[-1] in study.labels(q)]
    least = min(bought, key=lambda labels: labels[cycles[-1]])
    columns = [least[c] for c in cycles if c in least]
    rows = [
        [
            label_of(q, study.study),
            *(_spread(study, at_labels(study, q, n)) for n in columns),
        ]
        for q in ranked(study)
    ]
    caption = "Error by labels bought, first labels among them (curves joined linearly)"
    header = [heading(study.study), *(f"{n:,.0f} labels" for n in columns)]
    return table(caption, header, rows)


# -- wins, ties and losses --------------------------------------------------------------------


def wins(study: StudyRecords) -> Html | None:
    """Wins, ties and losses over checkpoints, beside the printed ones."""
    found = blocks(study)
    if not found:
        return None
    cycles = checkpoints(study, CHECKPOINTS)
    seeds = max(len(study.final(block.subject)) for block in found)
    text = (
        f"{len(cycles)} checkpoints (cycles {listed([str(c) for c in cycles])}) x {seeds} seeds. "
        f"At each a paired t-test over seeds: won or lost where p ≤ {LEVEL}, else tied. The "
        "checkpoints of one run are not independent, as each goes on from the one before or shares "
        "its data, and nothing corrects for so many tests: ten wins are not ten findings."
    )
    if not is_even(study):
        text += (
            " At equal labels: against the rival's curve, joined linearly, where it has as many "
            "labels; checkpoints that its curve does not reach are not counted."
        )
    return section(
        "Wins, ties and losses", *(_block(study, block) for block in found), note(text)
    )


def _block(study: StudyRecords, block: Block) -> Html:
    prints, even = printed(study, block.subject), is_even(study)
    tally = {r.query: _tally(study, r.query, prints) for r in block.rivals}

    def cells(words: str, rivals: Sequence[Rival]) -> list[str]:
        count, level = (
            total(r.count for r in rivals),
            total(r.at_equal_labels for r in rivals),
        )
        known = [t for r in rivals if (t := tally[r.query])]
        return [
            words,
            *map(str, (count.win, count.tie, count.loss)),
            *([] if even else [str(level) if level.total else NOTHING]),
            *([str(total(known)) if known else NOTHING] if prints else []),
        ]

    rows = [cells(label_of(r.query, study.study), [r]) for r in block.rivals]
    rows.append(cells("All", block.rivals))
    header = ["Against", "Wins", "Ties", "Losses"]
    header += [] if even else ["At equal labels"]
    header += ["Published"] if prints else []
    marks = [""] * len(block.rivals) + ["first"]
    return table(label_of(block.subject, study.study), header, rows, classes=marks)


def printed(study: StudyRecords, subject: str) -> list[Tally]:
    """What the study's published table says of the subject on the study's data."""
    where = study.study.published
    if not where or source(where["table"]).kind != "tallies":
        return []
    data, method = (
        str(where["setting"]).removeprefix("dataset="),
        label_of(subject, study.study),
    )
    rows = tallies(where["table"])
    return [t for t in rows if (t.dataset, folded(t.method)) == (data, folded(method))]


def _tally(study: StudyRecords, rival: str, prints: Iterable[Tally]) -> Tally | None:
    name = folded(label_of(rival, study.study))
    return next((t for t in prints if folded(t.rival) == name), None)


def wins_across(studies: Sequence[StudyRecords]) -> Html | None:
    """Wins, ties and losses of the same strategy in several studies, and their sum."""
    found = shared([s for s in studies if not s.higher_is_better])
    if not found:
        return None
    return section(
        "Wins, ties and losses over studies",
        *(_summed(subject, rows) for subject, rows in found.items()),
        note(
            "Wins/ties/losses over the checkpoints of each study (paired t-test over its seeds, "
            f"level {LEVEL}). Published: the same pairs on the same data, each once. Checkpoints "
            "of one run are not independent."
        ),
    )


def _summed(subject: str, found: Sequence[tuple[StudyRecords, Block]]) -> Html:
    """Studies down, rivals across, as in FALE's Table 2."""
    rivals = list(dict.fromkeys(r.query for _, block in found for r in block.rivals))
    counts = [{r.query: r.count for r in block.rivals} for _, block in found]
    rows = [
        [
            study.study.name,
            *(str(count.get(q, NOTHING)) for q in rivals),
            str(total(count.values())),
        ]
        for (study, _), count in zip(found, counts, strict=True)
    ]
    columns = [total(c[q] for c in counts if q in c) for q in rivals]
    rows.append(["All", *map(str, columns), str(total(columns))])
    known = {
        (t.dataset, r.query): t
        for study, block in found
        for r in block.rivals
        if (t := _tally(study, r.query, printed(study, subject)))
    }
    if known:
        sums = [[t for (_, rival), t in known.items() if rival == q] for q in rivals]
        cells = [str(total(s)) if s else NOTHING for s in sums]
        rows.append(["Published", *cells, str(total(known.values()))])
    first = found[0][0].study
    header = ["Study", *(label_of(q, first) for q in rivals), "All"]
    marks = [""] * len(found) + ["first"] + [""] * bool(known)
    return table(label_of(subject, first), header, rows, classes=marks)


# -- controls and costs -----------------------------------------------------------------------


def controls(study: StudyRecords) -> Html | None:
    """FALE against uniform rows, and against leverage without weights, with the same training."""
    tests = find.compared(study, find.control_pairs(study.strategies))
    if not tests:
        return None
    rows = [
        [
            label_of(p.query, study.study),
            label_of(p.against, study.study),
            *tested_cells(study, c),
        ]
        for p, c in tests
    ]
    header = ["Query", "Control", "Difference [95 %]", "Holm p", "Seeds"]
    return section(
        "What choosing is worth with the same training",
        table("Final error, query minus control", header, rows, words=2),
        note(
            "Control and query are trained in the same way, so what is left is the choice of rows "
            "and their weights; below zero it helps."
        ),
        *few(tests),
    )


def costs(study: StudyRecords) -> Html | None:
    """The error at the end beside what crossed between server and sites to get there."""
    shown = [q for q in ranked(study) if study.final(q)]
    if not shown:
        return None
    rows = [
        [
            label_of(q, study.study),
            _spread(study, study.final(q)),
            mean_text(ends(study, q, "labelled"), lambda n: f"{n:,.0f}"),
            mean_text(_exchanges(study, q), lambda n: f"{n:,.0f}"),
            mean_text(ends(study, q, "bytes_up"), size),
            mean_text(ends(study, q, "bytes_down"), size),
        ]
        for q in shown
    ]
    header = [
        heading(study.study),
        "Error",
        "Labels",
        "Exchanges",
        "Sites to server",
        "Server to sites",
    ]
    return section(
        "What the error cost",
        table("At the last checkpoint, mean over seeds", header, rows),
        note(
            "Exchanges are round trips between the server and all sites: models, totals and orders "
            "together. Bytes are of all sites. Over a network the exchanges cost seconds each."
        ),
    )


def _exchanges(study: StudyRecords, query: str) -> list[float]:
    """Round trips of a whole run, one number per seed whose records count them."""
    told = [cell.records[-1].get("revealed") for cell in study.of(query) if cell.records]
    return [
        float(sum(e.get("exchanges") or 0 for e in entries)) for entries in told if entries
    ]
