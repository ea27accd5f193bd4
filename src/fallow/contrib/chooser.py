"""A query strategy that learns which of several query strategies to use.

Each query is made by one arm, drawn with exponential weights of a bandit (Auer et al., 2002).
Active learning by learning (Hsu, Lin, 2015) draws a strategy for each example of one pool.
Here an arm makes the whole query of all sites, and its reward is computed from aggregates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from typing import ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.build import build
from fallow.core.client import list_relays
from fallow.core.contract import Contract
from fallow.core.local import LocalTraining
from fallow.core.methods import Query, SiteFunction, site_function
from fallow.core.suggestions import explain_constructor
from fallow.core.types import Value, Values
from fallow.core.values import Count, NonNegative, Real, Share, Triangle, Whole
from fallow.core.view import Release, SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
)
from fallow.strategies.parts import read_shared_features

ARMS = ("typical", "coverage", "margin", "prices")
FLOOR = 0.2  # share of the probability that is uniform over arms
RATE = 2.0  # growth rate of weights with rewards
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # λ, in units of the mean square of a feature
FEW = 2  # minimum number of labeled examples for a loss
OWN = ("products", "left_out", "begin")
"""Client functions of the chooser itself; all others belong to its arms."""


@explain_constructor
@final
@dataclass(frozen=True)
class Chooser:
    """Select a query strategy for each query with a multi-armed bandit.

    Each of the ``arms`` is a query strategy.  After a query, its reward is the decrease of the
    leave-one-out loss of a closed-form classifier on labeled examples.

    Arm k is drawn with probability p_k = 0.8 w_k / Σ w + 0.2 / K.  Once the labels of its query
    have arrived, w_k is multiplied by exp(2 r / (K p_k)), where r = 1 - loss / previous loss, at
    least -1.  The division by p_k makes the expected update independent of how often an arm is
    drawn.

    Parameters
    ----------
    arms : sequence of str
        Names of the query strategies to choose from.
    shown : {"totals", "parts"}
        ``"parts"`` permits the coordinator to see contributions of single sites, without secure
        aggregation.

    Notes
    -----
    *Loss.*  The loss is that of ridge regression on one-hot classes, or on regression targets, with
    each example left out of the fit in turn.  From the products of all labeled examples, the
    coordinator computes weights and the inverse and sends them to the sites.  A site computes its
    residuals y - z'w, each divided by 1 - z'Az.  λ is selected from four values by generalized
    cross-validation.

    *Examples that count.*  Selected examples are harder than others, and how much harder depends on
    the query strategy.  Only labels with a known probability of selection count, each weighted
    by its inverse. With ``evaluation_fraction = 0.1``, a tenth of each label budget is drawn
    uniformly, and these examples measure the value of the other nine tenths.  Without an
    evaluation set, all labeled examples have the same weight, which favors strategies that select
    easy examples.

    *Draw.*  Every site contributes a random number; the fractional part of their sum selects the
    arm.

    *Cost.*  The strategy needs three exchanges in addition to those of the arm.  Each site sends D
    (D + 1) / 2 products of features and D C products with classes, and receives D² numbers and the
    number of the arm: 1 MB and 2 MB at 512 features.  With a single arm there is no additional
    cost.

    *Disclosure.*  An aggregate over one site's labeled examples can consist of a single example and
    then reveals it.  Federations therefore need secure aggregation or ``shown="parts"``.  Arms are
    query strategies of Fallow with default settings that train no model and use each site's own
    label budget.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    >>> arms = ("margin",)  # one arm alone: that strategy itself
    >>> fl.select([[0.0], [1.0], [2.0]], fl.contrib.Chooser(arms), outputs=outputs, n=1)
    array([1])
    """

    arms: Sequence[str] = ARMS
    shown: Literal["totals", "parts"] = "totals"

    contract: ClassVar[Contract] = Contract(
        title="Chooser among strategies",
        short="Chooser",
        draws=True,
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: rewards are computed over all sites; a resumed run asks again",
        options=("evaluation_fraction",),
        regression=False,  # depends on the arms: `join_contracts`
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.arms, str) or not self.arms:
            raise ValueError(
                f"Chooser's arms are {self.arms!r}; list names of strategies, such as {list(ARMS)}"
            )
        object.__setattr__(self, "arms", tuple(self.arms))
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"Chooser's arms {list(self.arms)} name a strategy twice")
        object.__setattr__(self, "contract", join_contracts(self))

    def declarations(self) -> dict[str, client.Declaration]:
        """Return the client functions of the chooser and of all arms."""
        of_arms: dict[str, client.Declaration] = {}
        for name in self.arms:
            of_arms = join_declarations(of_arms, client.declared(find_arm(name)))
        if len(self.arms) == 1:
            return of_arms
        own = {item.name: item for item in client.list_declared_by(self)}
        return {**own, **of_arms}

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        memos = dict(memo.get("arms", {}))
        if len(self.arms) == 1:
            done = find_arm(self.arms[0]).query(ask, budget, memos.get(self.arms[0], {}))
            return {"arms": {self.arms[0]: done}, "notes": done.get("notes", {})}

        total = sum_of_all(ask, self.products)
        loss = self.find_loss(ask, total)
        logs = self.learn(memo, loss)  # (K,) of weights
        chances = mix(logs)
        k = draw_arm(chances, float(total["draw"]))
        arm = self.arms[k]
        ask.keep(self.begin, arm=k)
        memos[arm] = find_arm(arm).query(ask, budget, memos.get(arm, {}))
        shown = {
            "arm": arm,
            "chances": dict(zip(self.arms, chances.tolist(), strict=True)),
            "loss": loss,
        }
        return {
            "arms": memos,
            "weights": logs.tolist(),
            "last": {"arm": k, "chance": float(chances[k]), "loss": loss},
            "notes": {**memos[arm].get("notes", {}), **shown},
        }

    def learn(self, memo: Memo, loss: float | None) -> Tensor:
        """Return the log weights, (K,), updated by the labels of the last query."""
        logs = torch.zeros(len(self.arms), dtype=torch.float64)
        if "weights" in memo:
            logs = torch.tensor(memo["weights"], dtype=torch.float64)
        last = memo.get("last")
        if last is None or loss is None or not last["loss"]:
            return logs
        worth = max(1 - loss / last["loss"], -1.0)
        logs[last["arm"]] += RATE * worth / (len(self.arms) * last["chance"])
        return logs

    def find_loss(self, ask: Ask, total: Mapping[str, Tensor]) -> float | None:
        """Return the mean leave-one-out loss; None with too few labels."""
        rows = round(float(total["rows"]))
        if rows < FEW:
            return None
        head = solve(fold(total["products"]), total["cross"], float(total["squares"]), rows)
        losses = sum_of_all(ask, self.left_out, inverse=head.inverse, weight=head.weight)
        if float(losses["known"]) > FEW - 0.5:
            return float(losses["loss_known"] / losses["by_chance"])
        return float(losses["loss"] / rows)

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of products of labeled examples and labels",
        returns={
            "products": Real(Triangle("columns")),
            "cross": Real(("columns", "outputs")),
            "squares": NonNegative(),
            "rows": Count(of="labels"),
            "draw": Share(),
        },
        reveals_parts="the coordinator sees products of each site's labeled examples; "
        "those of a single example reveal it",
    )
    def products(self, view: View) -> Values:
        """Return products of labeled examples, as an upper triangle, and with labels."""
        z, y = read_labeled(view)
        row, column = torch.triu_indices(z.shape[1], z.shape[1])
        drawn = torch.rand((), generator=view.stream("arm"), dtype=torch.float64)
        return {
            "products": (z.T @ z)[row, column],
            "cross": z.T @ y,
            "squares": y.square().sum(),
            "rows": float((z[:, -1] > 0).sum()),
            "draw": drawn,
        }

    @client.sum(
        "aggregates of leave-one-out losses, by inverse probability",
        returns={
            "loss": NonNegative(),
            "loss_known": NonNegative(),
            "by_chance": NonNegative(),
            "known": Count(of="labels"),
        },
        takes={
            "inverse": Real(("columns", "columns")),
            "weight": Real(("columns", "outputs")),
        },
    )
    def left_out(self, view: View, inverse: Tensor, weight: Tensor) -> Values:
        """Return squared leave-one-out residuals of labeled examples.

        Examples with a known selection probability are weighted by its inverse.
        """
        z, y = read_labeled(view)
        leverage = ((z @ inverse) * z).sum(1).clamp(0, 1 - 1e-6)
        residual = (y - z @ weight) / (1 - leverage[:, None])
        loss = residual.square().sum(1)  # (n,)
        is_there = z[:, -1] > 0
        is_known = is_there & view.chances.isfinite()
        stands_for = 1 / view.chances[is_known]
        return {
            "loss": loss[is_there].sum(),
            "loss_known": stands_for @ loss[is_known],
            "by_chance": stands_for.sum(),
            "known": float(is_known.sum()),
        }

    @client.keep(
        "number of tensors kept",
        takes=lambda self: {"arm": Whole(upto=(len(self.arms) - 1,))},
    )
    def begin(self, view: View, arm: int) -> Values:
        return {"arm": torch.tensor(arm)}

    def __getattr__(self, name: str) -> SiteFunction:
        """Return a client function of the current arm; the contract lists those of all arms."""
        if name.startswith("_") or name not in self.contract.disclosures:
            raise AttributeError(f"Chooser has no {name!r}")
        return partial(self.reply_as_arm, name)

    def reply_as_arm(
        self, function: str, view: View, **sent: Value
    ) -> Values | SelectedExamples | Release:
        """Return the reply of the current arm."""
        at = 0
        if len(self.arms) > 1:
            if "begin" not in view.memory:
                raise ValueError(
                    f"site {view.site} was asked for {function!r} without the strategy of "
                    "this query: start the query again"
                )
            at = int(view.memory["begin"]["arm"])
        return site_function(find_arm(self.arms[at]), function)(view, **sent)


@lru_cache
def find_arm(name: str) -> Query:
    """Return the query strategy of Fallow with this name, with default settings.

    The name is looked up among the query strategies, as in an experiment configuration.  No
    other module is ever imported.  Raises ValueError for any other name.
    """
    arm: Query = build(import_module("fallow.strategies"), name)
    return arm


def join_contracts(chooser: Chooser) -> Contract:
    """Return the contract of a chooser.

    Raises ValueError for a strategy that cannot be an arm.
    """
    arms = chooser.arms
    contracts = {name: find_arm(name).contract for name in arms}
    for name in arms:
        why = explain_no_arm(find_arm(name))
        if why:
            raise ValueError(f"{name!r} cannot be an arm of Chooser: {why}")
    if len(arms) == 1:
        (only,) = contracts.values()
        return replace(only, title=f"Chooser: {only.title}", short="", aliases=())

    needs: list[str] = []
    for contract in contracts.values():
        needs += [need for need in contract.needs if need not in needs]
    return Chooser.contract.narrowed(
        chooser,
        needs=needs,
        cohort=max(part.cohort for part in contracts.values()),
        secure_sum=all(part.secure_sum for part in contracts.values()),
        regression=all(takes_numbers(part) for part in contracts.values()),
        classes=all(part.classes for part in contracts.values()),
    )


def join_declarations(
    one: Mapping[str, client.Declaration], other: Mapping[str, client.Declaration]
) -> dict[str, client.Declaration]:
    """Return the client functions of two arms.

    Functions of one name take the arguments of both.  Raises ValueError if they differ otherwise.
    """
    joined = dict(one)
    for name, item in other.items():
        before = one.get(name, item)
        takes = {**(before.takes or {}), **(item.takes or {})}
        is_same = (item.operation, item.returns) == (before.operation, before.returns)
        if not is_same or not takes.items() >= (before.takes or {}).items():
            raise ValueError(
                f"two arms of Chooser reply differently to {name!r}: with {before.discloses}, and "
                f"with {item.discloses}; leave one out"
            )
        shown = dict.fromkeys((before.reveals_parts, item.reveals_parts))
        joined[name] = replace(
            before,
            takes=takes,
            times=max(item.times, before.times),
            reveals_parts="; ".join(filter(None, shown)),
        )
    return joined


def explain_no_arm(arm: Query) -> str:
    """Return why a strategy cannot be an arm; "" if it can."""
    contract = arm.contract
    if any(function in OWN for function in contract.disclosures):
        return "its client functions have names that the chooser uses"
    if isinstance(arm, LocalTraining) or contract.fit.models or list_relays(arm):
        return "it trains its own models, or sends peer messages"
    if contract.local_source != "last_round":
        return "it needs local models that are trained from scratch"
    if contract.simulator_only or contract.one_pass or contract.budget_of != "site":
        return "it does not select within each site's budget in each cycle"
    return ""


def takes_numbers(contract: Contract) -> bool:
    """Return whether a strategy supports regression."""
    if contract.regression is None:
        return not contract.needs
    return contract.regression


def mix(logs: Tensor) -> Tensor:
    """Return the probabilities of arms from log weights: (K,) -> (K,), with sum 1.

    >>> mix(torch.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return (1 - FLOOR) * logs.softmax(0) + FLOOR / len(logs)


def draw_arm(chances: Tensor, drawn: float) -> int:
    """Return the arm that the fractional part of a number selects.

    >>> draw_arm(torch.tensor([0.25, 0.75]), 3.2), draw_arm(torch.tensor([0.25, 0.75]), 7.9)
    (0, 1)
    """
    fraction = drawn - math.floor(drawn)
    return min(int((chances.cumsum(0) <= fraction).sum()), len(chances) - 1)


def read_labeled(view: View) -> tuple[Tensor, Tensor]:
    """Return labeled features with a column of ones, (n, D + 1), and targets, (n, C).

    Targets are one-hot classes or regression targets.  Both are 0 for a non-finite example.
    float64.
    """
    x = read_shared_features(view, "labeled").double()
    z = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    if view.classes:
        y = one_hot(view.labels.long(), view.classes).double()
    else:
        y = view.labels.double()[:, None]
    is_finite = z.isfinite().all(1, keepdim=True)
    return z.masked_fill(~is_finite, 0.0), y.masked_fill(~is_finite, 0.0)


def fold(triangle: Tensor) -> Tensor:
    """Return the symmetric matrix of an upper triangle: (k (k + 1) / 2,) -> (k, k)."""
    k = round(((8 * len(triangle) + 1) ** 0.5 - 1) / 2)
    upper = triangle.new_zeros(k, k)
    row, column = torch.triu_indices(k, k)
    upper[row, column] = triangle
    return upper + upper.triu(1).T


class RidgeFit(NamedTuple):
    """Ridge regression: A = (Z'Z + λ n I)⁻¹, (k, k), and A Z'y, (k, C)."""

    inverse: Tensor
    weight: Tensor


def solve(products: Tensor, cross: Tensor, squares: float, rows: int) -> RidgeFit:
    """Solve a ridge regression, with the penalty of least generalized cross-validation.

    products: (k, k) Z'Z, with the unpenalized intercept last; cross: (k, C) Z'y; squares: Σ y²;
    rows: n.
    """
    usual = float(products.diagonal()[:-1].mean()) / rows
    penalized = torch.ones(len(products), dtype=products.dtype)
    penalized[-1] = 0
    best: RidgeFit | None = None
    least = math.inf
    for penalty in PENALTIES:
        ridge = penalty * rows * max(usual, 1e-12) * penalized
        inverse = torch.linalg.inv(products + ridge.diag())
        weight = inverse @ cross
        explained = 2 * (weight * cross).sum() - (weight * (products @ weight)).sum()
        freedom = min(float((inverse * products).sum()) / rows, 1 - 1e-6)
        score = max(squares - float(explained), 0.0) / (1 - freedom) ** 2
        if best is None or score < least:
            best = RidgeFit(inverse, weight)
            least = score
    assert best is not None  # noqa: S101 - there are penalties
    return best
