"""Report sections of our own studies."""

from __future__ import annotations

from fallow.report.blocks import Blocks, Note, Table
from fallow.report.comparisons import StrategyPair, note_few_seeds
from fallow.report.final_table import digits_of, p_text, with_interval
from fallow.report.section import Section, SectionPosition, Sections
from fallow.settings.variants import ParsedStrategy
from fallow.study.records import StudyRecords
from fallow_papers.own.crossed import interactions


def crossed_gains(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the interaction of selection and training, if a study crosses
    them.
    """
    outcome = interactions(study)
    if not outcome:
        return []
    digits = digits_of(study)
    plain = ParsedStrategy.parse(outcome[0].test.reference).training
    rows = []
    for item in outcome:
        gain, plain_gain = (f"{gain:+.{digits}f}" for gain in item.gains)
        test = item.test
        rows.append(
            {
                "Strategy": item.strategy,
                "Training": item.training,
                f"Gain under {plain}": plain_gain,
                "Gain": gain,
                "Interaction [95 %]": with_interval(test.difference, test.interval, digits),
                "Holm p": p_text(test.holm),
                "Seeds": str(test.pairs),
            }
        )
    return [
        Table.of("Gain of a query over random sampling, by training algorithm", rows),
        Note("Interaction: the gain minus the gain under plain training, paired by seed."),
        *note_few_seeds(
            [(StrategyPair(i.strategy, "random", ""), i.test) for i in outcome]
        ),
    ]


SECTIONS = Sections(
    of_one=(
        Section(
            "Interaction of selection and training", SectionPosition.FINDINGS, crossed_gains
        ),
    )
)
