"""A Dirichlet partition for regression: targets are binned, and bins are treated like classes.

This is the partition of FALE's experiments (Tang et al., 2025): as many bins as sites, alpha 5.
Full sites are treated as in FedLab's ``hetero_dir`` (Zeng et al., 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from fallow.core.limits import PositiveFinite, PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.data.partition.base import IntArray
from fallow.data.partition.dirichlet import cut_classes

Binning = Literal["quantile", "equal-width"]


@explain_constructor
@final
@dataclass(frozen=True)
class TargetDirichlet:
    """Distribute each bin of targets over sites by Dir(alpha); smaller alpha = more skew.

    The partition is complete, with unequal sizes.  y: (n,) targets, or integers used as such.

    Parameters
    ----------
    alpha : float
        Concentration of the Dirichlet distribution.
    bins : int, optional
        Number of bins.  None: the number of sites, as in the paper.
    binning : {"quantile", "equal-width"}
        Kind of bins.
    allocation : {"hetero", "plain"}
        "hetero": a site with n / N examples or more gets none of later (higher) bins.
    min_size : int, optional
        Minimum number of examples of a site.  None: the number of bins.  The partition is drawn
        again until it is reached, at most 2000 times; then ValueError is raised.

    Notes
    -----
    The paper specifies neither the kind of bins nor the rule for full sites; quantile bins and
    "hetero" are our interpretation.

    Examples
    --------
    >>> y = np.linspace(0.0, 1.0, 200)
    >>> parts = TargetDirichlet(alpha=5.0).split(y, 4, np.random.default_rng(0))
    >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 4
    (200, True)
    """

    alpha: PositiveFinite = 5.0  # as in the paper
    bins: PositiveInt | None = None  # None: number of sites, as in the paper
    binning: Binning = "quantile"
    allocation: Literal["hetero", "plain"] = "hetero"
    min_size: PositiveInt | None = (
        None  # minimum number of examples of a site; None: number of bins
    )

    def split(
        self,
        y: npt.NDArray[np.number],
        sites: int,
        rng: np.random.Generator,
        natural: IntArray | None = None,
    ) -> list[IntArray]:
        bins = self.bins or sites
        return cut_classes(
            target_bins(y, bins, self.binning),
            sites,
            rng,
            alpha=self.alpha,
            min_size=self.min_size or bins,
            cap=self.allocation == "hetero",
            rule="TargetDirichlet",
        )


def target_bins(
    y: npt.NDArray[np.number], bins: int, binning: Binning = "quantile"
) -> IntArray:
    """Return the bin of each target, 0 for the lowest: (n,) -> (n,) in 0..bins-1.

    "quantile": bins of equal size, to one example, without equal targets; "equal-width": equal
    parts of the range.  Equal targets share a bin, so bins can be empty.  Raises ValueError for a
    non-finite target.

    >>> y = np.array([1.0, 2.0, 30.0, 40.0, 90.0, 100.0])
    >>> target_bins(y, 3).tolist(), target_bins(y, 3, "equal-width").tolist()
    ([0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 2, 2])
    """
    targets = y.astype(np.float64)
    bad = int((~np.isfinite(targets)).sum())
    if bad:
        raise ValueError(
            f"{bad} of {len(targets)} targets are NaN or infinite, so they have no bin; "
            "omit these rows, or use IID or Natural"
        )
    if binning == "equal-width":
        low = targets.min()
        width = np.ptp(targets) or 1.0  # equal targets share bin 0
        scaled: IntArray = np.floor((targets - low) / width * bins).astype(np.int64)
        return scaled.clip(max=bins - 1)  # the largest target is the end of the last bin
    _, which, sizes = np.unique(targets, return_inverse=True, return_counts=True)
    middle = 2 * np.cumsum(sizes) - sizes  # twice the middle rank of each value
    bin_of: IntArray = (middle * bins // (2 * len(targets)))[which]
    return bin_of
