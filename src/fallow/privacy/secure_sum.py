"""Secure aggregation: the server side adds masked contributions and learns the aggregate only.

The server side is honest but curious: it follows the protocol, passes public keys on unchanged, and
reads everything it receives.  Together with some of the sites it learns the aggregate of the
others; with all but one, it learns the contribution of that site.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fallow.core.aggregation import align_replies, check_contribution
from fallow.core.messages import Masked
from fallow.core.refusal import Refusal, RunHalted
from fallow.core.types import SiteId, Values
from fallow.privacy.masks import mask
from fallow.privacy.settings import SMALLEST
from fallow.privacy.wide import WIDE, decode_wide, encode_wide

FINEST = 40
"""Fractional bits.  With 40, a variance from two aggregates is accurate to 2e-6, with 24 to 3e-4."""


def bits(bound: float | None, sites: int) -> int:
    """Return the number of fractional bits with which ``sites`` contributions stay below 2^63.

    >>> bits(None, 10), bits(1.0, 10), bits(1e9, 10)
    (40, 40, 29)
    """
    if bound is None:
        return FINEST
    return min(FINEST, math.floor(62.999 - math.log2(sites * bound)))


def limit(bound: float | None, sites: int) -> float:
    """Return the largest absolute value of a contribution of one of ``sites`` sites."""
    if bound is not None:
        return bound
    return 2.0 ** (63 - FINEST) / sites * (1 - 1e-9)


def encode_any(value: Tensor, bound: float, sites: int) -> Tensor:
    """Encode finite numbers of any size as int64 modulo 2^64.

    A number beyond the bound makes the aggregate wrong, without other effects.
    """
    fraction = bits(bound, sites)
    rest = value.double().fmod(2.0 ** (64 - fraction))  # exact, so the multiple is finite
    rest = (rest * 2.0**fraction).round()
    rest = torch.where(rest >= 2.0**63, rest - 2.0**64, rest)
    rest = torch.where(rest < -(2.0**63), rest + 2.0**64, rest)
    return rest.long()


def encode(
    site: SiteId, function: str, name: str, value: Tensor, bound: float | None, sites: int
) -> Tensor:
    """Encode a tensor as int64 of the same shape, rounded to steps of 2^-bits.

    Raises ValueError for a non-finite value, and Refusal for one beyond the limit, with a message
    that may leave the site and does not contain the value.
    """
    value = value.double()
    check_contribution(site, function, name, value, None)
    largest = float(value.abs().max()) if value.numel() else 0.0
    top = limit(bound, sites)
    if largest > top:
        raise Refusal(
            f"site {site}: {name} for {function!r} exceeds {top:.6g}, the limit of each "
            f"of {sites} contributions in secure aggregation: provide features in "
            "smaller units, or raise privacy.bound, for instance to 1000 times "
            "that, in a new study; a larger bound reduces the precision of "
            "aggregates"
        )
    return (value * 2.0 ** bits(bound, sites)).round().long()


def decode(total: Tensor, bound: float | None, sites: int) -> Tensor:
    """Return the aggregate, float64, from the sum modulo 2^64 of encoded contributions.

    >>> import torch
    >>> parts = [
    ...     encode("a", "v", "x", torch.tensor([x]), None, 3) for x in (0.5, -2.25, 1.0)
    ... ]
    >>> decode(parts[0] + parts[1] + parts[2], None, 3)
    tensor([-0.7500], dtype=torch.float64)
    """
    return total.double() / 2.0 ** bits(bound, sites)


CHECK = "mask/check"
"""Name of a field to which every site adds 1; an aggregate other than their number shows that masks
did not cancel."""


@final
@dataclass(frozen=True)
class SecureSum:
    """Server side of secure aggregation; `mask_reply` is the client side."""

    bound: float | None = None  # if an algorithm declares none

    def check(self, sites: Sequence[SiteId], function: str) -> None:
        """Raise RunHalted if too few sites are left."""
        if len(sites) < SMALLEST:
            raise RunHalted(
                f"the aggregation of {function!r} has {len(sites)} sites left "
                f"({', '.join(sites)}) but needs {SMALLEST}; nothing was unmasked: "
                "run again with --resume when more sites are connected"
            )

    def total(
        self,
        replies: Mapping[SiteId, Values],
        owner: str,
        function: str,
        bound: float | None,
    ) -> Values:
        """Return the unmasked aggregates in float64 and the number of contributing sites.

        Raises RunHalted if the masks do not cancel: a contribution is missing or of another exchange.
        """
        largest = bound or self.bound
        totals: Values = {}
        for name, total in add_masked(replies, function).items():
            if name.endswith(WIDE):
                totals[name.removesuffix(WIDE)] = decode_wide(total)
            else:
                totals[name] = decode(total, largest, len(replies))
        totals["sites"] = torch.tensor(float(len(replies)), dtype=torch.float64)
        return totals


def add_masked(replies: Mapping[SiteId, Values], function: str) -> dict[str, Tensor]:
    """Return the sum of all masked contributions under common masks: int64 in fixed point.

    Raises RunHalted if the masks do not cancel.
    """
    parts = align_replies(replies, function, torch.int64)
    names = list(next(iter(parts.values()), {}))
    sums = {
        name: torch.stack([part[name] for part in parts.values()]).sum(0) for name in names
    }
    if int(sums.pop(CHECK, torch.tensor(0))) != len(parts):
        raise RunHalted(
            f"the masks of {function!r} over {', '.join(parts)} do not cancel: a "
            "contribution is missing, damaged or of another exchange; nothing was "
            "unmasked: run again with --resume"
        )
    return sums


def mask_reply(
    reply: Values,
    *,
    site: SiteId,
    secret: bytes,
    function: str,
    cohort: Masked,
    bound: float | None,
    wide_fields: Collection[str] = (),
) -> Values:
    """Return a site's masked contribution: every field as int64 in fixed point.

    ``reply``: the unmasked contribution, whose shapes are kept. ``secret``: private key of the
    site for this aggregation. ``cohort``: exchange, attempt and public keys of all sites. ``bound``:
    the largest absolute value that the study declares, or None for the range of fixed point.
    ``wide_fields``: fields without a bound, encoded as several whole numbers.

    A bound from the server side in ``cohort`` only sets the precision. If a contribution could be
    rejected for it, chosen bounds would reveal its size bit by bit.

    Raises ValueError for a number that is not finite or, if ``cohort`` has no bound, exceeds the
    declared one.
    """
    sites = len(cohort.keys)
    fields: dict[str, Tensor] = {}
    for name in sorted(reply):
        value = torch.as_tensor(reply[name])
        if name in wide_fields:
            fields[f"{name}{WIDE}"] = encode_wide(site, function, name, value)
        elif cohort.bound is None:
            fields[name] = encode(site, function, name, value, bound, sites)
        else:
            check_contribution(site, function, name, value, None)
            fields[name] = encode_any(value, cohort.bound, sites)
    fields[CHECK] = torch.tensor(1)
    publics = {other: bytes(key.tolist()) for other, key in cohort.keys.items()}
    purpose = f"fallow secure sum|{cohort.exchange}|{cohort.attempt}|{function}"
    length = sum(value.numel() for value in fields.values())
    cover = mask(site, secret, publics, purpose, length)  # (length,) int64
    part: Values = {}
    begin = 0
    for name, value in fields.items():
        end = begin + value.numel()
        part[name] = value + cover[begin:end].view(value.shape)  # modulo 2^64: int64 wraps
        begin = end
    return part
