"""What a site has let out under its name for good: releases and the ε that they cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple, Protocol, Required, TypedDict

from torch import Tensor

from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId, Tree


class Released(NamedTuple):
    """One noisy answer: what it cost, what it answered to, and itself.

    Without a ``digest`` nothing is known of the answer: the site may have given one, and counts it
    as spent.  Of Gaussian noise ``rho`` is what it cost as zCDP, and ``epsilon`` by how much it
    raised the ε of all releases with such noise (`fallow.privacy.gauss`): so ε of all lines adds up.
    ``delta``: that of all releases of a run with such noise, in the line of the first.
    """

    epsilon: float
    digest: str
    answer: Answer
    rho: float = 0.0
    delta: float = 0.0

    def to_line(self) -> Tree:
        """The fields as a ledger holds them: ``rho`` and ``delta`` only where there is one."""
        fields = self._asdict()
        for name in ("rho", "delta"):
            if not fields[name]:
                del fields[name]
        return fields


class SumKey(TypedDict, total=False):
    """The key of a site for one attempt at one secure sum, and what it has masked."""

    name: Required[str]  # of the attempt
    public: Tensor  # (32,) uint8
    secret: Tensor  # (32,) uint8; gone once a part is masked
    digest: str  # of what was asked
    answer: Answer  # the masked part


class ReleaseLedger(Protocol):
    """The site's own book.  An entry is in the same transaction as the answer it allows out."""

    def spend(self, site: SiteId, key: str, released: Released) -> None: ...

    # by key, in the order of spending
    def load_releases(self, site: SiteId) -> dict[str, Released]: ...

    # replaces the one before
    def hide(self, site: SiteId, secret: SumKey) -> None: ...

    def load_secret(self, site: SiteId) -> SumKey | None: ...


def check_delta(site: SiteId, delta: float, examples: int) -> None:
    """Raise Refusal for a delta above 1 divided by the examples of a site: publishing a whole example
    at random would be as private."""
    if delta * examples > 1:
        raise Refusal(
            f"delta is {delta:g}, above 1/{examples} = {1 / examples:.3g}, 1 divided by the examples "
            f"of site {site}: it allows to publish one of them; agree on one well below, such as 1e-5"
        )


def check_budget(
    site: SiteId, book: Mapping[str, Released], epsilon: float, total: float | None
) -> None:
    """Raise ValueError where one more release would spend more than ``total``.

    Releases compose sequentially: ε adds up, because earlier labels are in every later count.
    """
    if total is None:
        return
    spent = add_up(line.epsilon for line in book.values())
    if spent + as_written(epsilon) > as_written(total):
        raise Refusal(
            f"site {site} has spent epsilon {float(spent):g} of {total:g} in {len(book)} releases "
            f"{doubtful(book.values())}and releases nothing more: another would cost {epsilon:g}; "
            "raise privacy.total, lower privacy.epsilon or ask fewer queries, in a new run"
        )


def as_written(epsilon: float) -> Fraction:
    """The number that a person reads: 0.1 is one tenth, not the nearest binary fraction.

    >>> as_written(0.1) * 3 == as_written(0.3)
    True
    """
    return Fraction(repr(float(epsilon)))


def add_up(costs: Iterable[float]) -> Fraction:
    """ε of several releases, without any rounding: no slack is needed where it is compared.

    >>> add_up([0.1, 0.1, 0.1]) == as_written(0.3)
    True
    """
    return sum(map(as_written, costs), Fraction(0))


def doubtful(lines: Iterable[Released]) -> str:
    """How much of what is spent the site only may have spent, in words; empty where it is none."""
    cost = add_up(line.epsilon for line in lines if not line.digest)
    if not cost:
        return ""
    return f"({float(cost):g} of it because its ledger was put back from a copy) "
