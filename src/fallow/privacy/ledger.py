"""Ledger of permanent releases of a site, with their ε."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol, Required, TypedDict

from fallow.core.refusal import Refusal

if TYPE_CHECKING:
    from torch import Tensor

    from fallow.core.types import SiteId, Tree, Values


class Released(NamedTuple):
    """A noisy reply, its cost and the request that it answers.

    Without a ``digest``, the reply is unknown: the site may have sent it, and counts it as spent.
    For Gaussian noise, ``rho`` is its cost in zCDP, and ``epsilon`` is the increase of ε over all
    releases with such noise (`fallow.privacy.gaussian`), so ε of all entries adds up.  ``delta``: of
    all such releases of a run, in the entry of the first.
    """

    epsilon: float
    digest: str
    reply: Values
    rho: float = 0.0
    delta: float = 0.0

    def to_line(self, key: str) -> Tree:
        """Return the fields as stored in a ledger; ``rho`` and ``delta`` only if they are set.

        key: key of the release, which is stored with it.
        """
        fields = self._asdict()
        for name in ("rho", "delta"):
            if not fields[name]:
                del fields[name]
        fields["key"] = key
        return fields

    @staticmethod
    def from_line(line: Tree, key: str) -> Released | None:
        """Return the release of a stored line, or None if it has another key."""
        if line.pop("key") != key:
            return None
        return Released(**line)


class SumKey(TypedDict, total=False):
    """Key of a site for one attempt at secure aggregation, and its masked contribution."""

    name: Required[str]  # name of the attempt
    public: Tensor  # (32,) uint8
    secret: Tensor  # (32,) uint8; deleted once a contribution is masked
    digest: str  # of the request
    reply: Values  # the masked contribution


class ReleaseLedger(Protocol):
    """Ledger of a site.  An entry and its reply are written in one transaction."""

    def spend(self, site: SiteId, key: str, released: Released) -> None: ...

    # by key, in the order of spending
    def load_releases(self, site: SiteId) -> dict[str, Released]: ...

    # replaces the one before
    def hide(self, site: SiteId, secret: SumKey) -> None: ...

    def load_secret(self, site: SiteId) -> SumKey | None: ...


def check_delta(site: SiteId, delta: float, examples: int) -> None:
    """Raise Refusal for a delta above 1 / the number of examples of a site.

    Publishing one example at random would provide the same privacy.
    """
    if delta * examples > 1:
        raise Refusal(
            f"delta is {delta:g}, above 1/{examples} = {1 / examples:.3g}, one "
            f"divided by the number of examples of site {site}: it would permit "
            "publishing one of them; agree on a much smaller one, such as 1e-5"
        )


def check_budget(
    site: SiteId, releases: Mapping[str, Released], epsilon: float, total: float | None
) -> None:
    """Raise ValueError if one more release would exceed ``total``.

    Releases compose sequentially: ε adds up, because earlier labels are in every later count.
    """
    if total is None:
        return
    spent = add_up(line.epsilon for line in releases.values())
    if spent + as_written(epsilon) > as_written(total):
        raise Refusal(
            f"site {site} has spent epsilon {float(spent):g} of {total:g} in "
            f"{len(releases)} releases {doubtful(releases.values())}and rejects another one, "
            f"which would cost {epsilon:g}; raise privacy.total, lower "
            "privacy.epsilon or reduce the number of queries, in a new run"
        )


def as_written(epsilon: float) -> Fraction:
    """Return the decimal number as a fraction: 0.1 is one tenth, not the nearest binary fraction.

    >>> as_written(0.1) * 3 == as_written(0.3)
    True
    """
    return Fraction(repr(float(epsilon)))


def add_up(costs: Iterable[float]) -> Fraction:
    """Add ε of several releases exactly, so comparisons need no tolerance.

    >>> add_up([0.1, 0.1, 0.1]) == as_written(0.3)
    True
    """
    return sum(map(as_written, costs), Fraction(0))


def doubtful(lines: Iterable[Released]) -> str:
    """Describe the spent privacy budget whose release is uncertain; empty if there is none."""
    cost = add_up(line.epsilon for line in lines if not line.digest)
    if not cost:
        return ""
    return f"({float(cost):g} of it because its ledger was restored from a backup) "
