"""How many labels each site may buy."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fallow.core.types import SiteId

Share = float | int
"""Labels that are bought at once: a fraction of all rows, or a whole number at each site."""

POLICIES = ("equal", "equal_rounded", "proportional")


def budgets(policy: str, share: Share, sizes: Mapping[SiteId, int]) -> dict[SiteId, int]:
    """Labels per site in one cycle.

    share: a fraction of all rows, or (an ``int``) labels per site.  ``"equal"``: ceil(q |D| / N)
    for every site (AHFAL); ``"equal_rounded"``: |D| is first rounded to hundreds, the result cut
    to whole labels (LoGo, FairFAL, IFAL); ``"proportional"``: ceil(q |D_i|) (KAFAL).

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
