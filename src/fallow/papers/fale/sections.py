"""The report sections of FALE: wins, ties and losses, and controls with the same training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.core.words import listed
from fallow.papers.fale.wins import CHECKPOINTS, Matches, Rival, find_matches, shared, total
from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.comparisons import few, tested_cells
from fallow.report.final_table import label_of
from fallow.report.findings.checkpoints import checkpoints, is_even
from fallow.report.findings.pairs import Pair, compare_final_scores
from fallow.report.needs import has_numbers
from fallow.report.paper import Sections
from fallow.report.section import Across, Place, Section
from fallow.study.published import Tally
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL
from fallow.study.strategy import Strategy, folded

# -- wins, ties and losses --------------------------------------------------------------------


def wins(study: StudyRecords, key: str) -> Blocks:
    """Wins, ties and losses over checkpoints, beside the printed ones."""
    found = find_matches(study)
    if not found:
        return []
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
    return [*(_tallies(study, block) for block in found), Note(text)]


def _tallies(study: StudyRecords, block: Matches) -> Table:
    prints = printed(study, block.subject)
    even = is_even(study)
    tally = {r.query: _tally(study, r.query, prints) for r in block.rivals}

    def cells(words: str, rivals: Sequence[Rival]) -> list[str]:
        count = total(r.count for r in rivals)
        level = total(r.at_equal_labels for r in rivals)
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
    return Table(label_of(block.subject, study.study), header, rows, classes=marks)


def printed(study: StudyRecords, subject: str) -> list[Tally]:
    """What the study's published table says of the subject on the study's data."""
    where = study.study.published
    tables = study.study.known.published
    if not where or where["table"] not in tables.names("tallies"):
        return []
    data = str(where["setting"]).removeprefix("dataset=")
    method = label_of(subject, study.study)
    rows = tables.tallies(where["table"])
    return [t for t in rows if (t.dataset, folded(t.method)) == (data, folded(method))]


def _tally(study: StudyRecords, rival: str, prints: Iterable[Tally]) -> Tally | None:
    name = folded(label_of(rival, study.study))
    return next((t for t in prints if folded(t.rival) == name), None)


def wins_across(studies: Sequence[StudyRecords], key: str) -> list[tuple[str, Blocks]]:
    """Wins, ties and losses of the same strategy in several studies, and their sum."""
    found = shared([s for s in studies if not s.higher_is_better])
    if not found:
        return []
    note = (
        "Wins/ties/losses over the checkpoints of each study (paired t-test over its seeds, "
        f"level {LEVEL}). Published: the same pairs on the same data, each once. Checkpoints "
        "of one run are not independent."
    )
    tables = [_summed(subject, rows) for subject, rows in found.items()]
    return [("Wins, ties and losses over studies", [*tables, Note(note)])]


def _summed(subject: str, found: Sequence[tuple[StudyRecords, Matches]]) -> Table:
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
    return Table(label_of(subject, first), header, rows, classes=marks)


# -- controls ---------------------------------------------------------------------------------


def control_pairs(strategies: Sequence[str]) -> list[Pair]:
    """FALE, and what it is without its parts under the same training: uniform rows, no weights.

    >>> control_pairs(
    ...     ["random", "random@training=server-solve", "fale@training=server-solve"]
    ... )[0]
    Pair(query='fale@training=server-solve', against='random@training=server-solve', what='random')
    """
    parsed = [Strategy.parse(q) for q in strategies]
    return [
        Pair(ours.query, control.query, control.spec.name)
        for ours in parsed
        for control in parsed
        if ours.key == "fale" and _is_control(control, ours)
        if _training(control) == _training(ours)
    ]


def _is_control(control: Strategy, fale: Strategy) -> bool:
    """Random, or the same draws without the weights that the other has."""
    rest, fields = dict(fale.spec.fields), dict(control.spec.fields)
    is_bare = fields.pop("weights", "importance") == "none"
    is_weighted = rest.pop("weights", "importance") != "none"
    same_draws = (control.key, fields) == ("fale", rest)
    return control.key == "random" or (same_draws and is_bare and is_weighted)


def _training(strategy: Strategy) -> list[str]:
    """How models are trained; least squares at the server are the same with masks and without."""
    words = ("training=solve" if w.endswith("-solve") else w for w in strategy.trainer)
    return sorted(w for w in words if w != "training=fedavg")


def controls(study: StudyRecords, key: str) -> Blocks:
    """FALE against uniform rows, and against leverage without weights, with the same training."""
    tests = compare_final_scores(study, control_pairs(study.strategies))
    if not tests:
        return []
    rows = [
        [
            label_of(p.query, study.study),
            label_of(p.against, study.study),
            *tested_cells(study, c),
        ]
        for p, c in tests
    ]
    header = ["Query", "Control", "Difference [95 %]", "Holm p", "Seeds"]
    return [
        Table("Final error, query minus control", header, rows, words=2),
        Note(
            "Control and query are trained in the same way, so what is left is the choice of rows "
            "and their weights; below zero it helps."
        ),
        *few(tests),
    ]


SECTIONS = Sections(
    of_one=(
        Section("Wins, ties and losses", Place.ERRORS, wins, has_numbers),
        Section(
            "What choosing is worth with the same training",
            Place.ERRORS,
            controls,
            has_numbers,
        ),
    ),
    of_several=(Across(wins_across),),
)
