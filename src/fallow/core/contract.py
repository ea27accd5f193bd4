"""What a method promises, in one place that tables and refusals read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True)
class Contract:
    """One row of the contract table.

    ``verbs`` maps every verb that a server may call to what it reveals beyond the site, in words;
    a site runs no other function.
    """

    title: str
    paper: str
    year: int
    verbs: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # models whose predictions it reads: "local", "global"
    local_source: Literal["last_round", "scratch"] = "last_round"  # the paper's local model
    cohort: int = 1  # the smallest number of sites that makes sense
    secure_sum: bool = True  # works when the server sees totals only
    local_dp: bool = True  # works when released counts are noisy
    missing: str = "goes on with the sites that answer"
    one_pass: bool = False  # the paper chooses for every budget from nothing, not cycle by cycle
    draws: bool = False  # picks depend on a random stream even without ties
    regression: bool | None = None  # works on targets; None: unless it reads predictions
    classes: bool = True  # works on classes
    linear: bool = False  # works for the model "linear" alone
    everyone: bool = False  # trains only where all sites take part in every round
    at_server: tuple[str, ...] = ()  # parts of a training method's state that no site is sent
    simulator_only: bool = False  # reads hidden labels: an upper bound, never at a real site


@runtime_checkable
class Method(Protocol):
    """A query, training or personalisation algorithm: both halves in one frozen class."""

    contract: Contract
