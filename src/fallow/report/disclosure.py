"""Report section on examples that were computed from sums and models (``measure=disclosure``)."""

from __future__ import annotations

from statistics import fmean

from fallow.measurements.results import AttackResult, describe_attack
from fallow.report.blocks import Blocks, Cells, Note, Table
from fallow.report.final_table import label_of, number
from fallow.study.names import heading
from fallow.study.records import StudyRecords

EXPLANATION = (
    "Each attack has what an honest coordinator, or the receiver of the model, holds: sums over "
    "all sites, the encoder, and mean and standard deviation of each column. An example is read "
    "if every column is within 0.02 standard deviations of the truth, and near if its error is "
    "below a quarter of its distance to other examples. Means over seeds. An attack that reads "
    "nothing proves nothing: a stronger search may read more. Sums of fewer numbers than unknown "
    "values are not attacked, except products."
)


def has_attacks(study: StudyRecords) -> bool:
    """Return whether a run was attacked."""
    return any("disclosure" in cell.last for cell in study.cells)


def disclosure(study: StudyRecords, key: str) -> Blocks:
    """Return the table of attacks, by strategy."""
    rows: list[Cells] = []
    for strategy in study.strategies:
        attacks: dict[str, list[AttackResult]] = {}
        for cell in study.of(strategy):
            for attack in cell.last.get("disclosure", ()):
                attacks.setdefault(attack["attack"], []).append(attack)
        for name, of_seeds in attacks.items():
            rows.append(
                {
                    heading(study.study): label_of(strategy, study.study),
                    "Attacker sees": name,
                    "Numbers": _mean([attack["numbers"] for attack in of_seeds]),
                    "Values": _mean([attack["unknowns"] for attack in of_seeds]),
                    "Examples": _mean([attack["rows"] for attack in of_seeds]),
                    "Read": _mean([attack["read"] for attack in of_seeds]),
                    "Near": _mean([attack["near"] for attack in of_seeds]),
                    "CPU s": number(fmean(attack["seconds"] for attack in of_seeds), 1),
                }
            )
    return [Table.of("Examples read by attacks", rows, words=2), Note(EXPLANATION)]


def list_attacks(study: StudyRecords) -> list[str]:
    """Return a sentence for each attack on the first run that was attacked."""
    for cell in study.cells:
        attacks = cell.last.get("disclosure")
        if attacks:
            return [describe_attack(attack) for attack in attacks]
    return []


def _mean(values: list[int]) -> str:
    """Return a mean of counts, without decimals if it is whole."""
    mean = fmean(values)
    if mean.is_integer():
        return f"{mean:,.0f}"
    return f"{mean:,.1f}"
