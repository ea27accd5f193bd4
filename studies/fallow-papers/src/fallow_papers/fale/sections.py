"""Report sections of FALE: wins, ties and losses, and controls with the same training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.core.extensions import fold_name
from fallow.core.wording import join_words
from fallow.report.blocks import NOTHING, Blocks, Note, Table
from fallow.report.comparisons import (
    StrategyPair,
    compare_final_scores,
    note_few_seeds,
    tested_cells,
)
from fallow.report.final_table import label_of
from fallow.report.published import describe_differences, heading_of_published
from fallow.report.regression import checkpoints, is_even
from fallow.report.section import Across, Section, SectionPosition, Sections, has_numbers
from fallow.settings.variants import ParsedStrategy
from fallow.study.names import label, training_of_config
from fallow.study.published import PublishedCounts
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL
from fallow_papers.fale.wins import (
    CHECKPOINTS,
    Matches,
    Rival,
    WinCounts,
    find_matches,
    matches_by_subject,
    total,
)

# -- wins, ties and losses -------------------------------------------------------------


def wins(study: StudyRecords, key: str) -> Blocks:
    """Return wins, ties and losses over checkpoints, with the published ones."""
    matches = find_matches(study)
    if not matches:
        return []
    cycles = checkpoints(study, CHECKPOINTS)
    seeds = max(len(study.final(block.subject)) for block in matches)
    text = (
        f"{len(cycles)} checkpoints (cycles {join_words([str(c) for c in cycles])}) x "
        f"{seeds} seeds. At each, a paired t-test over seeds: won or lost if p ≤ {LEVEL}, "
        "otherwise tied. The checkpoints of one run are not independent, because each "
        "continues the previous one or shares its data. There is no correction for "
        "multiple tests: ten wins are not ten findings."
    )
    if not is_even(study):
        text += (
            " At equal labels: compared with the rival's curve, interpolated linearly at "
            "equal numbers of labels; checkpoints outside of its range are not counted."
        )
    differences = describe_differences(study.study)
    if differences and any(printed_tallies(study, block.subject) for block in matches):
        text += f" Published results have other settings: {differences}."
    return [*(_tallies(study, block) for block in matches), Note(text)]


def _tallies(study: StudyRecords, block: Matches) -> Table:
    prints = printed_tallies(study, block.subject)
    even = is_even(study)
    tally = {r.strategy: _tally(study, r.strategy, prints) for r in block.rivals}

    def cells(words: str, rivals: Sequence[Rival]) -> list[str]:
        count = total(r.count for r in rivals)
        row = [words, str(count.win), str(count.tie), str(count.loss)]
        if not even:
            row.append(_count_text(total(r.at_equal_labels for r in rivals)))
        if prints:
            tallies = [tally[r.strategy] for r in rivals]
            row.append(_count_text(total(t for t in tallies if t is not None)))
        return row

    rows = [cells(label_of(r.strategy, study.study), [r]) for r in block.rivals]
    rows.append(cells("All", block.rivals))
    header = ["Against", "Wins", "Ties", "Losses"]
    if not even:
        header.append("At equal labels")
    if prints:
        header.append(heading_of_published(describe_differences(study.study)))
    marks = [""] * len(block.rivals) + ["first"]
    return Table(label_of(block.subject, study.study), header, rows, classes=marks)


def _count_text(count: WinCounts) -> str:
    """Return wins, ties and losses as text; a dash if nothing was counted."""
    if count.total == 0:
        return NOTHING
    return str(count)


def printed_tallies(study: StudyRecords, subject: str) -> list[PublishedCounts]:
    """Return the published results of the subject on the study's data."""
    where = study.study.published
    tables = study.study.known.published
    if not where or where["table"] not in tables.names("tallies"):
        return []
    data = str(where["setting"]).removeprefix("dataset=")
    method = _published_name(subject, study)
    rows = tables.tallies(where["table"])
    return [
        t for t in rows if (t.dataset, fold_name(t.method)) == (data, fold_name(method))
    ]


def _published_name(strategy: str, study: StudyRecords) -> str:
    """Return the published name of a strategy, without its training algorithm."""
    described = study.study
    training = training_of_config(described)
    return label(strategy, {}, training, known=described.known)


def _tally(
    study: StudyRecords, rival: str, prints: Iterable[PublishedCounts]
) -> PublishedCounts | None:
    name = fold_name(_published_name(rival, study))
    return next((t for t in prints if fold_name(t.rival) == name), None)


def wins_across(studies: Sequence[StudyRecords], key: str) -> list[tuple[str, Blocks]]:
    """Return wins, ties and losses of equal strategies in several studies, and sums."""
    result = matches_by_subject([s for s in studies if not s.higher_is_better])
    if not result:
        return []
    note = (
        "Wins/ties/losses over the checkpoints of each study (paired t-test over its "
        f"seeds, level {LEVEL}). Published: the same pairs on the same data, without "
        "duplicates. Checkpoints of one run are not independent."
    )
    tables = [_table_over_studies(subject, rows) for subject, rows in result.items()]
    return [("Wins, ties and losses over studies", [*tables, Note(note)])]


def _table_over_studies(
    subject: str, results: Sequence[tuple[StudyRecords, Matches]]
) -> Table:
    """Return studies as rows and rivals as columns, as in FALE's Table 2."""
    # by rival, for each study
    counts: list[dict[str, WinCounts]] = []
    # by dataset and rival, without duplicates
    published: dict[tuple[str, str], PublishedCounts] = {}
    for study, block in results:
        counts.append({rival.strategy: rival.count for rival in block.rivals})
        prints = printed_tallies(study, subject)
        for rival in block.rivals:
            tally = _tally(study, rival.strategy, prints)
            if tally is not None:
                published[tally.dataset, rival.strategy] = tally
    rivals = list(dict.fromkeys(strategy for of_study in counts for strategy in of_study))

    rows = []
    for (study, _), of_study in zip(results, counts, strict=True):
        cells = [str(of_study.get(strategy, NOTHING)) for strategy in rivals]
        rows.append([study.study.name, *cells, str(total(of_study.values()))])
    marks = [""] * len(rows)

    sums = [total(c[strategy] for c in counts if strategy in c) for strategy in rivals]
    rows.append(["All", *map(str, sums), str(total(sums))])
    marks.append("first")

    if published:
        cells = []
        for strategy in rivals:
            tallies = [t for (_, rival), t in published.items() if rival == strategy]
            cells.append(_count_text(total(tallies)))
        differences = [describe_differences(study.study) for study, _ in results]
        heading = heading_of_published("".join(differences))
        rows.append([heading, *cells, str(total(published.values()))])
        marks.append("")

    first = results[0][0].study
    header = ["Study", *(label_of(strategy, first) for strategy in rivals), "All"]
    return Table(label_of(subject, first), header, rows, classes=marks)


# -- controls --------------------------------------------------------------------------


def control_pairs(strategies: Sequence[str]) -> list[StrategyPair]:
    """Return pairs of FALE and a control with the same training: uniform examples, or no
    weights.

    >>> control_pairs(
    ...     ["random", "random@training=server-solve", "fale@training=server-solve"]
    ... )[0]
    StrategyPair(strategy='fale@training=server-solve',
                 against='random@training=server-solve', what='random')
    """
    parsed = [ParsedStrategy.parse(q) for q in strategies]
    pairs = []
    for ours in parsed:
        if ours.key != "fale":
            continue
        for control in parsed:
            is_same_training = _training(control) == _training(ours)
            if is_same_training and _is_control(control, ours):
                pairs.append(
                    StrategyPair(ours.strategy, control.strategy, control.spec.name)
                )
    return pairs


def _is_control(control: ParsedStrategy, fale: ParsedStrategy) -> bool:
    """Return whether a strategy is random sampling, or has equal unweighted draws."""
    if control.key == "random":
        return True
    if control.key != "fale":
        return False
    fields = dict(control.spec.fields)
    is_bare = fields.pop("weights", "importance") == "none"
    others = dict(fale.spec.fields)
    is_weighted = others.pop("weights", "importance") != "none"
    return fields == others and is_bare and is_weighted


def _training(strategy: ParsedStrategy) -> list[str]:
    """Return the training algorithm; least squares with and without masks are the same."""
    words = []
    for word in strategy.trainer:
        if word.endswith("-solve"):
            words.append("training=solve")
        elif word != "training=fedavg":  # by default
            words.append(word)
    return sorted(words)


def controls(study: StudyRecords, key: str) -> Blocks:
    """Compare FALE with uniform examples, and with leverage without weights, with the same
    training.
    """
    tests = compare_final_scores(study, control_pairs(study.strategies))
    if not tests:
        return []
    rows = []
    for pair, c in tests:
        names = {
            "Strategy": label_of(pair.strategy, study.study),
            "Control": label_of(pair.against, study.study),
        }
        rows.append({**names, **tested_cells(study, c)})
    return [
        Table.of("Final error, query minus control", rows, words=2),
        Note(
            "Control and query have the same training, so the difference is due to the "
            "selected examples and their weights; negative values favor the query."
        ),
        *note_few_seeds(tests),
    ]


SECTIONS = Sections(
    of_one=(
        Section("Wins, ties and losses", SectionPosition.ERRORS, wins, has_numbers),
        Section(
            "Effect of the selection with the same training",
            SectionPosition.ERRORS,
            controls,
            has_numbers,
        ),
    ),
    of_several=(Across(wins_across),),
)
