"""Exact numbers that a site sends about its examples, from declarations and numbers of exchanges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from fallow.core.methods import methods_by_owner
from fallow.deployment.agreement import Agreement
from fallow.deployment.building import BuiltStudy
from fallow.measurements.meter import Exposure, count_numbers

OF_LABELS = ("training", "head", "tuning")
"""Owners whose aggregates are about labeled examples, unless they declare otherwise."""
OF_ROWS = ("filling", "encoder", "scaling")
"""Owners whose aggregates are about all examples, unless they declare otherwise."""
LABELED = "labeled examples"
ALL = "examples, labeled or not"


def count_in_reply(built: BuiltStudy) -> dict[str, tuple[str, int]]:
    """Return, by client function, which examples a reply is about, and its exact numbers."""
    counts: dict[str, tuple[str, int]] = {}
    methods = methods_by_owner(built.methods)
    for owner in (*OF_LABELS, *OF_ROWS):
        if owner not in methods:
            continue
        for item in methods[owner].contract.functions:
            subject = LABELED if owner in OF_LABELS else ALL
            if item.weighted_by:
                subject = {"labels": LABELED, "rows": ALL}[item.weighted_by]
            numbers = count_numbers(item, built.dims)
            if numbers:
                counts[item.name] = subject, numbers
    return counts


def measure_exposure(
    agreement: Agreement,
    built: BuiltStudy,
    sent: Mapping[str, int],
    rows: Mapping[str, int],
) -> list[Exposure]:
    """Return the exact numbers about labeled examples, and about all examples.

    Parameters
    ----------
    agreement : Agreement
        Study.
    built : BuiltStudy
        The study's algorithms, with their declarations.
    sent : mapping
        Number of replies by client function.
    rows : mapping
        Number of examples, by `LABELED` and `ALL`.
    """
    numbers: Counter[str] = Counter()
    for function, (subject, n) in count_in_reply(built).items():
        replies = sent.get(function, 0)
        if subject == ALL:  # sums over the same examples are equal in all runs
            replies = min(replies, 1)
        numbers[subject] += n * replies
    values = math.prod(agreement.schema.shape)
    return [
        Exposure(
            subject=subject, numbers=numbers[subject], rows=rows[subject], values=values
        )
        for subject in (LABELED, ALL)
        if numbers[subject] and rows.get(subject)
    ]


def describe_planned(agreement: Agreement, built: BuiltStudy) -> list[str]:
    """Describe, before anything is sent, the exact numbers of one training phase."""
    n = sum(
        numbers for subject, numbers in count_in_reply(built).values() if subject == LABELED
    )
    if not n:
        return []
    values = math.prod(agreement.schema.shape)
    needed = n // values + 1
    return [
        f"each training phase sends {n:,} exact numbers about labeled examples of {values:,} values: "
        f"examples can be computed, unless all sites together have {needed:,} labels or more; "
        "'fallow site attack' tries it"
    ]
