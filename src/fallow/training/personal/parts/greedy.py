"""GGC and BGGC (Kharrat, Canini, Horváth, 2025), Algorithms 2 and 3: whose models a site averages
with its own, chosen by what the average earns on the site's validation rows.

Both are one `Greedy` state that is stepped: `begin`, `add` every candidate to Y, `decide` on each.
GGC does so with all models at hand, BGGC with one batch after the other, so both add the same
numbers in the same order and end bit for bit the same (Theorem 1).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Reward = Callable[[Tensor], float | Tensor]
"""What a model (d,) in float64 earns; larger is better.  A number, or one for each validation row:
then their mean is what it earns."""

LOWEST = -sys.float_info.max / 4
"""The reward of a model whose loss is no finite number; a quarter, as two gains add up."""

FEWEST = 8
"""Validation rows; from fewer no gain is beyond chance."""


class Member(NamedTuple):
    """A site's model, (d,), and the labels it was trained on: its weight in averages."""

    w: Tensor
    n: float

    @property
    def is_usable(self) -> bool:
        """A model that is not finite would spoil every average, one without labels adds nothing."""
        return self.n > 0 and bool(self.w.isfinite().all())

    @property
    def share(self) -> Tensor:
        return self.n * self.w.double()


class Greedy(NamedTuple):
    """X grows from the site alone and Y shrinks from everybody until they meet.

    Every field is a tensor, so that the state can wait at a site between two batches.  Candidates
    have positions 0..m-1 in a fixed order, that of their names.
    """

    x: Tensor  # (d,) float64: sum of n_i w_i over X
    x_mass: Tensor  # (): sum of n_i
    x_reward: Tensor  # ()
    y: Tensor  # (d,)
    y_mass: Tensor  # ()
    y_reward: Tensor  # ()
    x_rows: Tensor  # (r,) of each validation row, where rewards are by row; else as one
    y_rows: Tensor  # (r,)
    alone: Tensor  # () reward of the site's own model; NaN before anything was evaluated
    order: Tensor  # (m,) int64: the positions as they are visited
    coins: Tensor  # (m,) in [0, 1), one for each visit, used or not
    room: Tensor  # () how many candidates may be chosen
    added: Tensor  # () candidates in Y so far
    at: Tensor  # () candidates visited so far
    chosen: Tensor  # (m,) bool by position
    refused: Tensor  # (m,) bool by position: not usable
    gains: Tensor  # (m, 2) by position: a of joining X, b of leaving Y; NaN: not visited
    past: Tensor  # (k, m, 2) gains of earlier choices that count beside these; NaN: none

    @property
    def is_full(self) -> bool:
        return int(self.chosen.sum()) >= int(self.room)

    @property
    def broke(self) -> bool:
        """Whether the budget ended the choice before every candidate was visited."""
        return self.is_full and int(self.at) < len(self.order)

    @property
    def evaluations(self) -> int:
        """How many models were evaluated: two to begin with and two for each candidate."""
        if bool(self.alone.isnan()):
            return 0
        visited = int((~self.gains[:, 0].isnan()).sum())
        return 2 + 2 * visited

    @property
    def conflicts(self) -> int:
        """How often both gains were positive, so that a coin decided."""
        return int((self.gains > 0).all(1).sum())


def begin(
    own: Member, order: Tensor, coins: Tensor, room: int, past: Tensor | None = None
) -> Greedy:
    """X and Y hold the site alone.  order: (m,) int64, coins: (m,) float64, past: (k, m, 2)."""
    m = len(order)
    share = own.share
    mass = torch.tensor(float(own.n), dtype=torch.float64)
    unknown = torch.tensor(torch.nan, dtype=torch.float64)
    none = torch.zeros(m, dtype=torch.bool)
    if past is None:
        past = torch.zeros(0, m, 2, dtype=torch.float64)
    return Greedy(
        x=share,
        x_mass=mass,
        x_reward=unknown,
        y=share,
        y_mass=mass,
        y_reward=unknown,
        x_rows=unknown[None],
        y_rows=unknown[None],
        alone=unknown,
        order=order,
        coins=coins,
        room=torch.tensor(room),
        added=torch.tensor(0),
        at=torch.tensor(0),
        chosen=none,
        refused=none,
        gains=unknown.expand(m, 2).clone(),
        past=past,
    )


def add(g: Greedy, batch: Sequence[Member]) -> Greedy:
    """Pass 1: the next candidates, by position, enter Y; those that are not usable never do."""
    y = g.y
    mass = g.y_mass
    refused = g.refused.clone()
    for position, peer in enumerate(batch, start=int(g.added)):
        if peer.is_usable:
            y = y + peer.share
            mass = mass + peer.n
        refused[position] = not peer.is_usable
    return g._replace(y=y, y_mass=mass, refused=refused, added=g.added + len(batch))


def decide(
    g: Greedy,
    own: Member,
    batch: Sequence[Member],
    reward: Reward,
    tol: float = 0.0,
    gate: float = 0.0,
) -> Greedy:
    """Pass 2: the next candidates, in the order of their visits, join X or leave Y, until there is
    no room.  Two evaluations for each: of R(X), R(Y) and the two trials one is always known."""
    if bool(g.alone.isnan()):
        x, x_rows = _value(reward, _mean(g.x, g.x_mass, own))
        y, y_rows = _value(reward, _mean(g.y, g.y_mass, own))
        g = g._replace(x_reward=x, x_rows=x_rows, y_reward=y, y_rows=y_rows, alone=x)
    for peer in batch:
        if g.is_full:  # the published break, and out of every later batch too
            break
        g = _visit(g, own, peer, reward, tol, gate)
    return g


def _visit(
    g: Greedy, own: Member, peer: Member, reward: Reward, tol: float, gate: float
) -> Greedy:
    """One candidate joins X or leaves Y, by its gains and its coin."""
    j = int(g.order[g.at])
    coin = float(g.coins[g.at])
    g = g._replace(at=g.at + 1)
    if bool(g.refused[j]):
        return g

    # the two trials: X with the candidate, Y without it
    x = g.x + peer.share
    x_mass = g.x_mass + peer.n
    y = g.y - peer.share
    y_mass = g.y_mass - peer.n
    with_j, x_rows = _value(reward, _mean(x, x_mass, own))
    without_j, y_rows = _value(reward, _mean(y, y_mass, own))

    a = 0.0
    if is_clear(x_rows - g.x_rows, gate):
        a = _gain(with_j - g.x_reward, tol)
    b = 0.0
    if is_clear(y_rows - g.y_rows, gate):
        b = _gain(without_j - g.y_reward, tol)
    gains = g.gains.clone()
    gains[j] = torch.tensor([a, b], dtype=torch.float64)
    g = g._replace(gains=gains)

    now_and_before = torch.cat([gains[None, j], g.past[:, j]])  # (1 + k, 2)
    a, b = now_and_before.nanmean(0).tolist()
    if coin < chance(a, b):
        chosen = g.chosen.clone()
        chosen[j] = True
        return g._replace(x=x, x_mass=x_mass, x_reward=with_j, x_rows=x_rows, chosen=chosen)
    return g._replace(y=y, y_mass=y_mass, y_reward=without_j, y_rows=y_rows)


def chance(a: float, b: float) -> float:
    """With which probability a candidate joins X, from the gains of joining and of leaving.

    Where neither gains anything it joins: so a group is found whose members help together only.

    >>> chance(0.0, 0.0), chance(4.0, 0.0), chance(1.0, 1.0), chance(0.0, 2.0)
    (1.0, 1.0, 0.5, 0.0)
    """
    if a + b == 0:
        return 1.0
    return a / (a + b)


def is_clear(gain: Tensor, gate: float) -> bool:
    """Whether the mean gain is above ``gate`` standard errors; with ``gate`` 0 every gain counts.

    gain: (r,) of each validation row.  From fewer than `FEWEST` rows no gain is clear;
    one to or from a loss that is no finite number has no error, and counts.

    >>> (
    ...     is_clear(torch.tensor([3.0, -1.0] * 4), 0.5),
    ...     is_clear(torch.tensor([3.0, -1.0] * 4), 2.0),
    ... )
    (True, False)
    """
    if gate == 0 or not bool(gain.isfinite().all()):
        return True
    if len(gain) < FEWEST:
        return False
    standard_error = gain.std() / math.sqrt(len(gain))
    return bool(gain.mean() > gate * standard_error)


def average_chosen(g: Greedy, own: Member) -> Tensor:
    """The average over X, (d,) in the model's dtype; alone it is the site's model, bit for bit."""
    if not bool(g.chosen.any()):
        return own.w
    return _mean(g.x, g.x_mass, own).to(own.w.dtype)


def remember_gains(last: Greedy, candidates: int, rounds: int) -> Tensor | None:
    """The gains of the last ``rounds`` choices, (k, m, 2), of those that the last one took; None
    where it was among others or nothing is to be remembered."""
    if rounds == 0 or len(last.chosen) != candidates:
        return None
    past = torch.cat([last.gains[None], last.past])[:rounds]
    return torch.where(last.chosen[:, None], past, torch.nan)


def stay_alone_if_better(g: Greedy, own: Member) -> Greedy:
    """The site alone, where X ended below it: the greedy, above all with a budget, may do worse."""
    if not bool(g.x_reward < g.alone):
        return g
    mass = torch.tensor(float(own.n), dtype=torch.float64)
    nobody = torch.zeros_like(g.chosen)
    return g._replace(x=own.share, x_mass=mass, x_reward=g.alone, chosen=nobody)


def with_each(g: Greedy, own: Member, peers: Sequence[Member], reward: Reward) -> Tensor:
    """What X earns with one more of these, each by itself.  -> (len(peers),) float64"""
    rewards = []
    for peer in peers:
        x = g.x
        mass = g.x_mass
        if peer.is_usable:
            x = x + peer.share
            mass = mass + peer.n
        earned, _ = _value(reward, _mean(x, mass, own))
        rewards.append(earned)
    return torch.stack(rewards)


def mean(own: Member, peers: Sequence[Member]) -> Tensor:
    """The average of a site's model and its peers', weighted by labels (Eq. 4), (d,).

    Summed in float64 in the given order; peers that are not usable are left out.

    >>> w = torch.tensor
    >>> mean(Member(w([1.0]), 1), [Member(w([3.0]), 3), Member(w([torch.nan]), 5)])
    tensor([2.5000])
    """
    usable = [peer for peer in peers if peer.is_usable]
    if not usable:
        return own.w
    total = sum((peer.share for peer in usable), start=own.share)
    mass = own.n + sum(peer.n for peer in usable)
    return (total / mass).to(own.w.dtype)


def ggc(
    own: Member,
    peers: Sequence[Member],
    reward: Reward,
    order: Tensor,
    coins: Tensor,
    room: int | None = None,
    tol: float = 0.0,
    batch: int | None = None,
    gate: float = 0.0,
) -> Greedy:
    """The whole choice.  ``batch``: so many models at a time (BGGC); None: all at once (GGC).

    >>> at = lambda *p: Member(torch.tensor(p), 1)
    >>> peers, coins = [at(5.0, 0.0), at(-5.0, 0.0)], torch.tensor([0.5, 0.5])
    >>> far = lambda w: -float(w @ w)  # each peer alone is worse than none, both are better
    >>> ggc(at(0.0, 1.0), peers, far, torch.tensor([1, 0]), coins).chosen
    tensor([True, True])
    """
    m = len(peers)
    size = batch or max(m, 1)
    if room is None:
        room = m
    g = begin(own, order, coins, room)
    for first in range(0, m, size):  # pass 1
        g = add(g, peers[first : first + size])
    for first in range(0, m, size):  # pass 2
        visited = [peers[j] for j in order[first : first + size]]
        g = decide(g, own, visited, reward, tol=tol, gate=gate)
    return g


def _mean(total: Tensor, mass: Tensor, own: Member) -> Tensor:
    """A site without labels weighs nothing, and its model is all there is where nobody does."""
    if float(mass) > 0:
        return total / mass
    return own.w.double()


def _value(reward: Reward, w: Tensor) -> tuple[Tensor, Tensor]:
    """What a model earns, (), and by row, (r,)."""
    rows = torch.as_tensor(reward(w), dtype=torch.float64).reshape(-1)
    mean = rows.mean()
    if not bool(mean.isfinite()):
        mean = torch.full_like(mean, LOWEST)
    return mean, rows


def _gain(difference: Tensor, tol: float) -> float:
    """What a trial earns more, 0 where that is ``tol`` or less."""
    gain = float(difference)
    if gain > tol:
        return gain
    return 0.0
