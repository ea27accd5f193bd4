"""Settings of privacy, and the algorithms that support them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from fallow.core.limits import Conflict, Limits, PositiveFinite, check_limits
from fallow.core.optional import import_privacy
from fallow.core.suggestions import explain_constructor
from fallow.core.wording import join_disclosures, join_words
from fallow.privacy.ledger import add_up, as_written

if TYPE_CHECKING:
    from fallow.core.contract import Contract

SMALLEST = 3
"""Minimum number of sites in secure aggregation: of two, each can compute the other's contribution."""

MIN_EPSILON = 1e-6
MAX_EPSILON = 1e6
"""Range of ε of one release.  Outside of it, the scale of the noise is numerically unusable; far below
``MAX_EPSILON`` there is no protection."""


EPSILON = Limits(ge=MIN_EPSILON, le=MAX_EPSILON)
Sums = Literal["exact", "noisy"]
"""How sums of labeled examples leave a site."""
CONFLICTS = (
    Conflict(
        ("sums", "epsilon"),
        lambda sums, epsilon: sums == "noisy" and epsilon is None,
        ", so no noise is added; set privacy.epsilon, the budget of one release",
    ),
    Conflict(
        ("sums", "epsilon"),
        lambda sums, epsilon: sums == "exact" and epsilon is not None,
        ", which adds noise; set privacy.sums=noisy, or leave out privacy.epsilon",
    ),
    Conflict(
        ("total", "epsilon"),
        lambda total, epsilon: total is not None and epsilon is None,
        ", so nothing would be spent; set privacy.epsilon, the budget of one release",
    ),
    Conflict(
        ("total", "epsilon"),
        lambda total, epsilon: None not in (total, epsilon) and total < epsilon,
        " for one release, which exceeds the total; raise privacy.total or lower "
        "privacy.epsilon",
    ),
    Conflict(
        ("mechanism", "epsilon"),
        lambda mechanism, epsilon: mechanism != "laplace" and epsilon is None,
        ", so no noise is added; set privacy.epsilon, or leave out privacy.mechanism",
    ),
)
"""Settings that exclude each other."""


@explain_constructor
@dataclass(frozen=True)
class Privacy:
    """Protection of replies before they leave a site.

    Parameters
    ----------
    sums : {"exact", "noisy"}, optional
        How sums of labeled examples leave a site: exactly, or with noise, which is the only
        protection of examples against the coordinator.  None: as ``epsilon`` implies, in a
        simulation; the agreement of a federation states it.
    epsilon : float, optional
        ε of one release.  It protects one labeled example in the counts that a query releases.
        Releases add up (sequential composition), because early labels are in every later histogram.
        None: no noise.
    total : float, optional
        Privacy budget ε of a site in a run.  None: epsilon x number of queries.
    mechanism : {"laplace", "discrete_laplace"}
        Noise mechanism.
    secure_sum : bool
        Use secure aggregation with pairwise masks.
    bound : float, optional
        Largest absolute value of a contribution in secure aggregation, if the algorithm declares
        none.  Larger values reduce the precision of the aggregate.

    Examples
    --------
    >>> Privacy(epsilon=0.5, secure_sum=True).epsilon
    0.5
    """

    sums: Sums | None = None
    epsilon: Annotated[float, EPSILON] | None = (
        None  # ε of one release; None: counts are sent without noise
    )
    # ε a site may spend in a run; None: epsilon x number of queries
    total: PositiveFinite | None = None
    mechanism: Literal["laplace", "discrete_laplace"] = "laplace"
    secure_sum: bool = False
    bound: PositiveFinite | None = None
    CONFLICTS = CONFLICTS

    def __post_init__(self) -> None:
        check_limits(self, "privacy.")

    @property
    def stated_sums(self) -> Sums:
        """How sums leave a site, also if only ``epsilon`` says so."""
        return "exact" if self.epsilon is None else "noisy"

    def over(self, queries: int, closes: int = 0, delta: float = 0.0) -> Privacy:
        """Return the settings of a run, with a number as ``total``.

        Parameters
        ----------
        queries : int
            Number of queries in the run.
        closes : int, default=0
            Number of times that a training algorithm releases aggregates with Gaussian noise; together
            these cost less than separately.
        delta : float, default=0.0
            δ of this noise.

        Examples
        --------
        >>> Privacy(epsilon=0.5).over(4).total
        2.0
        >>> round(Privacy(epsilon=1.0).over(0, closes=4, delta=1e-5).total, 2)
        2.14
        """
        if self.epsilon is None or self.total is not None:
            return self
        from fallow.privacy.gaussian import costs_of  # imports PyTorch

        exact = as_written(self.epsilon) * queries
        exact += add_up(costs_of(closes, self.epsilon, delta))
        exact = exact or as_written(self.epsilon)
        total = float(exact)
        if as_written(total) < exact:  # rounded down, the last release would be rejected
            total = math.nextafter(total, math.inf)
        return replace(self, total=total)


def noise_refusal(name: str, contract: Contract) -> str | None:
    """Return why an algorithm does not support noisy counts; None if it does."""
    if contract.local_dp:
        return None
    if contract.delta_field:
        return (
            f"{name} sends exact aggregates, which local privacy (privacy.epsilon) "
            f"does not permit: set its {contract.delta_field}, such as "
            f"{name.partition(':')[0]}:{contract.delta_field}=1e-5, to add noise to "
            "them, or leave privacy.epsilon out"
        )
    return (
        f"{name} does not support local privacy (privacy.epsilon), because noise would change or "
        "miss the content of its replies; choose another algorithm or leave privacy.epsilon out"
    )


def masks_refusal(name: str, contract: Contract) -> str | None:
    """Return why an algorithm does not support secure aggregation; None if it does."""
    if contract.secure_sum:
        return None
    aggregates = join_disclosures(contract.disclosures)
    return (
        f"{name} does not support secure aggregation (privacy.secure_sum), because "
        f"its server side reads replies of single sites: {aggregates}; choose "
        "another algorithm ('fallow algorithms' lists those that support it), or "
        "set privacy.secure_sum=false"
    )


def check_targets(privacy: Privacy, target_scale: str) -> None:
    """Raise ValueError for regression targets that exact sums would scale in spite of noise."""
    if privacy.epsilon is not None and target_scale != "none":
        raise ValueError(
            f"target_scale is {target_scale!r}, which sends exact sums of labeled targets, "
            "and privacy.epsilon adds noise to such sums: set target_scale=none and provide "
            "targets in units near 1, or leave privacy.epsilon out"
        )


def check_fit(privacy: Privacy, methods: dict[str, Contract], cohort: int) -> None:
    """Raise ValueError unless all algorithms, by name, support ``privacy``.

    ``cohort``: number of sites per round (0: unknown). The check runs before a study starts.
    """
    for name, contract in methods.items():
        if contract.always_noisy and privacy.epsilon is None:
            raise ValueError(
                f"{name} adds noise to its aggregates, but privacy.epsilon is not "
                "set: set it to the budget of one release, or leave out "
                f"{contract.delta_field}"
            )
        reasons = (
            noise_refusal(name, contract) if privacy.epsilon is not None else None,
            masks_refusal(name, contract) if privacy.secure_sum else None,
        )
        for reason in filter(None, reasons):
            raise ValueError(reason)
    functions = [item for contract in methods.values() for item in contract.functions]
    if privacy.epsilon is not None and not any(item.release for item in functions):
        raise ValueError(
            f"privacy.epsilon is {privacy.epsilon:g}, and {join_words(list(methods))} send nothing "
            "to which noise is added: use closed-form with a delta or a strategy that sends counts "
            "with noise, or leave out privacy.epsilon (in a comparison, set it for one strategy: "
            "NAME@privacy.epsilon=1)"
        )
    if privacy.secure_sum:
        import_privacy("cryptography", "a secure sum")
        if 0 < cohort < SMALLEST:
            raise ValueError(
                f"secure aggregation needs at least {SMALLEST} sites in every round, "
                "because one of two sites could subtract its own contribution; this "
                f"run has {cohort}; use more sites or a larger participation"
            )
