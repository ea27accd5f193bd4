"""Report sections of our own studies."""

from __future__ import annotations

from fallow.report.blocks import Blocks, Note, Table
from fallow.report.comparisons import TESTS, few, tested_cells
from fallow.report.final_table import digits_of
from fallow.report.findings.pairs import StrategyPair
from fallow.report.section import Section, SectionPosition, Sections
from fallow.study.records import StudyRecords
from fallow.study.strategy import ParsedStrategy
from fallow_papers.own.crossed import interactions


def crossed_gains(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the interaction of selection and training, if a study crosses
    them.
    """
    outcome = interactions(study)
    if not outcome:
        return []
    digits = digits_of(study)
    rows = []
    for i in outcome:
        gain, plain_gain = (f"{gain:+.{digits}f}" for gain in i.gains)
        rows.append(
            [i.strategy, i.training, plain_gain, gain, *tested_cells(study, i.test)]
        )
    plain = ParsedStrategy.parse(outcome[0].test.reference).training
    header = [
        "Strategy",
        "Training",
        f"Gain under {plain}",
        "Gain",
        "Interaction [95 %]",
        *TESTS[1:],
    ]
    return [
        Table("Gain of a query over random sampling, by training algorithm", header, rows),
        Note("Interaction: the gain minus the gain under plain training, paired by seed."),
        *few([(StrategyPair(i.strategy, "random", ""), i.test) for i in outcome]),
    ]


SECTIONS = Sections(
    of_one=(
        Section(
            "Interaction of selection and training", SectionPosition.FINDINGS, crossed_gains
        ),
    )
)
