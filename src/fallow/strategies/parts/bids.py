"""Maximum over all sites from counts, without disclosing the bids of sites.

A bid is an integer with `DIGITS` digits.  Sites contribute a 1 at the next digit of their bid if
its first digits equal those of the highest bid.  The highest digit with a 1 is the next digit of
the highest bid.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.strategies.parts.bundles import check_clusters

DIGITS = 2
BASE = 128
CHANCES = 16  # equal bids are ordered by a number that each site draws
STEPS = 32  # number of bids per factor of two
NO_BID = -1


def bids_of(amount: Tensor, generator: torch.Generator) -> Tensor:
    """Return bids for amounts (K,) of 0 or more, in steps of a 32nd of an octave: (K,) int64.

    An amount below 0 is no bid, -1.  Equal bids of different sites get random last digits.
    """
    levels = BASE**DIGITS // CHANCES
    octaves = amount.double().clamp_min(1e-30).log2()
    level = (STEPS * octaves + levels / 2).floor().clamp(0, levels - 1).long()
    draw = torch.randint(CHANCES, amount.shape, generator=generator)
    return torch.where(amount >= 0, CHANCES * level + draw, NO_BID)


def next_digits(bids: Tensor, prefix: Tensor, digit: int) -> Tensor:
    """Return 0 and 1 at the next digit of each bid that begins with ``prefix``: (K, BASE).

    >>> found = next_digits(torch.tensor([130, 5]), torch.tensor([1, 1]), digit=1)
    >>> found.nonzero().tolist()  # 130 is 1, 2 in base 128, and 5 is 0, 5
    [[0, 2]]
    """
    check_clusters(len(prefix))
    if not 0 <= digit < DIGITS:
        raise ValueError(f"digit {digit} of a bid was requested, and bids have {DIGITS}")
    counts = torch.zeros(len(prefix), BASE, dtype=torch.float32)
    rest = DIGITS - digit - 1
    begins_so = (bids >= 0) & (bids // BASE ** (rest + 1) == prefix)
    at = begins_so.nonzero().squeeze(1)
    counts[at, bids[at] // BASE**rest % BASE] = 1
    return counts


def add_digit(prefix: Tensor, bids: Tensor) -> Tensor:
    """Return the first digits of the highest bids, one digit longer.

    prefix: (K,), -1 without a bid; bids: (K, B) number of sites with each digit.

    >>> add_digit(
    ...     torch.tensor([0, 3, -1]), torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    ... )
    tensor([ 1, -1, -1])
    """
    base = bids.shape[1]
    is_bid = bids > 0.5  # masked sums are integers up to rounding
    highest = (is_bid * torch.arange(base)).amax(1)  # (K,)
    is_none = (prefix < 0) | ~is_bid.any(1)
    return (prefix * base + highest).masked_fill(is_none, NO_BID)
