"""AHFAL, Section 5 and Appendix C: error of a mixture of two entropy estimates (Equations 5 to 9).

The entropies of the local and the global model estimate the entropy of the true class
probabilities.  Their mixture has the weight λ on the local one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EstimateErrors:
    """Moments of the errors of both estimates, over the examples of a class at a site.

    Attributes
    ----------
    local_bias, global_bias : float
        Mean errors (b and β in Eq. 5 and 6), in nats.
    local_variance, global_variance : float
        Variances of the errors (V_L and V_G).
    covariance : float
        Covariance of the errors (ρ).

    Notes
    -----
    The paper defines V_L, V_G and ρ by the estimates.  Equation 7 is exact with the moments of
    their errors; both agree if the true entropy is the same for all examples.
    """

    local_bias: float = 0.0
    global_bias: float = 0.0
    local_variance: float = 0.0
    global_variance: float = 0.0
    covariance: float = 0.0


def measure_errors(local: Tensor, common: Tensor, truth: Tensor) -> EstimateErrors:
    """Return the moments of the errors of two estimates (Eq. 5 and 6).

    Parameters
    ----------
    local, common, truth : Tensor
        Entropies of the examples of a class by the local model, by the global model and by the true
        class probabilities, in nats, (n,) each.

    Raises
    ------
    ValueError
        If the numbers of examples differ or are 0.
    """
    if not local.shape == common.shape == truth.shape or local.ndim != 1 or len(local) == 0:
        raise ValueError(
            f"the entropies have shapes {tuple(local.shape)}, {tuple(common.shape)} and "
            f"{tuple(truth.shape)}; give one of each for at least one example"
        )
    errors = torch.stack([local - truth, common - truth]).double()  # (2, n)
    bias = errors.mean(1)
    moments = torch.cov(errors, correction=0).reshape(2, 2)
    return EstimateErrors(
        local_bias=float(bias[0]),
        global_bias=float(bias[1]),
        local_variance=float(moments[0, 0]),
        global_variance=float(moments[1, 1]),
        covariance=float(moments[0, 1]),
    )


def squared_error(errors: EstimateErrors, weight: float) -> float:
    """Return the mean squared error of the mixture (Eq. 7).

    >>> squared_error(EstimateErrors(local_variance=1.0, global_variance=3.0), 0.5)
    1.0
    """
    rest = 1 - weight
    bias = weight * errors.local_bias + rest * errors.global_bias
    return (
        bias**2
        + weight**2 * errors.local_variance
        + rest**2 * errors.global_variance
        + 2 * weight * rest * errors.covariance
    )


def best_weight(errors: EstimateErrors) -> float:
    """Return the weight λ* of the local estimate with the smallest error (Eq. 8), in [0, 1].

    If both estimates have the same errors, every weight is as good, and the result is 1/2.

    >>> best_weight(EstimateErrors(local_variance=1.0, global_variance=3.0))
    0.75
    """
    apart = errors.global_bias - errors.local_bias
    scale = (
        errors.local_variance + errors.global_variance - 2 * errors.covariance + apart**2
    )
    if scale <= 0:
        return 0.5
    share = errors.global_variance - errors.covariance + errors.global_bias * apart
    return min(1.0, max(0.0, share / scale))


def is_hybrid_better(errors: EstimateErrors) -> bool:
    """Return whether the weight 1/2 has a smaller error than the local estimate (Eq. 9).

    Without a local bias, this is β² < 3 V_L - V_G - 2 ρ.

    >>> is_hybrid_better(EstimateErrors(local_variance=1.0, global_variance=2.9))
    True
    """
    return squared_error(errors, 0.5) < squared_error(errors, 1.0)
