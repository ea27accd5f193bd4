"""Allocation of the label budget to the sites."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fallow.core.types import SiteId

Share = float | int
"""Labels that are bought at once: a fraction of all rows, or a whole number at each site."""

POLICIES = ("equal", "equal_rounded", "proportional")


def budgets(policy: str, share: Share, sizes: Mapping[SiteId, int]) -> dict[SiteId, int]:
    """Return the label budget of each site in one cycle.

    Parameters
    ----------
    policy : {"equal", "equal_rounded", "proportional"}
        Budget allocation.  "equal": ceil(q |D| / N) for each site (AHFAL).  "equal_rounded": the
        same, with |D| rounded to hundreds and the result rounded down (LoGo, FairFAL, IFAL).
        "proportional": ceil(q |D_i|) (KAFAL).
    share : float or int
        Fraction of all examples, or (int) number of labels per site.
    sizes : mapping of str to int
        Number of examples of each site.

    >>> budgets("equal_rounded", 0.05, {str(i): 7326 for i in range(10)})["0"]
    366
    """
    if isinstance(share, int):
        return dict.fromkeys(sizes, share)
    everything = sum(sizes.values())
    if policy == "equal":
        return dict.fromkeys(sizes, math.ceil(share * everything / len(sizes) - 1e-9))
    if policy == "equal_rounded":
        return dict.fromkeys(sizes, int(round(everything, -2) * share / len(sizes) + 1e-9))
    return {site: math.ceil(share * n - 1e-9) for site, n in sizes.items()}
