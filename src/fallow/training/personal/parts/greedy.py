"""GGC and BGGC (Kharrat, Canini, Horváth, 2025), Algorithms 2 and 3: greedy collaboration.

A site selects models that it averages with its own by the reward of the average on its validation
examples.  Both algorithms step one `Greedy` state: `begin`, `add` every candidate to Y, `decide` on
each.  GGC does so with all models available, BGGC with one batch after the other.  Both add the
same numbers in the same order and give identical results (Theorem 1).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Reward = Callable[[Tensor], float | Tensor]
"""Reward of a model (d,) in float64; larger is better.  One number, or one for each validation
example, whose mean is the reward."""

LOWEST = -sys.float_info.max / 4
"""Reward of a model with a non-finite loss: a quarter of the range, because two gains add up."""

FEWEST = 8
"""Minimum number of validation examples for a significant gain."""


class Member(NamedTuple):
    """Model of a site, (d,), and its number of labels, which is its weight in averages."""

    w: Tensor
    n: float

    @property
    def is_usable(self) -> bool:
        """Whether the model is finite and has labels."""
        return self.n > 0 and bool(self.w.isfinite().all())

    @property
    def share(self) -> Tensor:
        return self.n * self.w.double()


class Greedy(NamedTuple):
    """State in which X grows from the site alone and Y shrinks from all sites until they meet.

    Every field is a tensor, so a site can store the state between batches.  Candidates have
    positions 0..m-1 in the order of their names.
    """

    x: Tensor  # (d,) float64: sum of n_i w_i over X
    x_mass: Tensor  # (): sum of n_i
    x_reward: Tensor  # ()
    y: Tensor  # (d,)
    y_mass: Tensor  # ()
    y_reward: Tensor  # ()
    x_rows: Tensor  # (r,) by validation example, if rewards are; else a single one
    y_rows: Tensor  # (r,)
    alone: Tensor  # () reward of the site's own model; NaN before any evaluation
    order: Tensor  # (m,) int64: positions in the order of visits
    coins: Tensor  # (m,) in [0, 1), one for each visit
    room: Tensor  # () maximum number of selected candidates
    added: Tensor  # () candidates in Y so far
    at: Tensor  # () candidates visited so far
    chosen: Tensor  # (m,) bool by position
    refused: Tensor  # (m,) bool by position: not usable
    gains: (
        Tensor  # (m, 2) by position: a of joining X, b of leaving Y; NaN: not visited yet
    )
    past: Tensor  # (k, m, 2) gains of earlier selections, averaged with these; NaN: none

    @property
    def is_full(self) -> bool:
        return int(self.chosen.sum()) >= int(self.room)

    @property
    def broke(self) -> bool:
        """Whether the budget ended the selection before all candidates were visited."""
        return self.is_full and int(self.at) < len(self.order)

    @property
    def evaluations(self) -> int:
        """Number of evaluated models: two at the start and two for each candidate."""
        if bool(self.alone.isnan()):
            return 0
        visited = int((~self.gains[:, 0].isnan()).sum())
        return 2 + 2 * visited

    @property
    def conflicts(self) -> int:
        """Number of visits in which both gains were positive, so that a coin decided."""
        return int((self.gains > 0).all(1).sum())


def begin(
    own: Member, order: Tensor, coins: Tensor, room: int, past: Tensor | None = None
) -> Greedy:
    """Start with X and Y of the site alone.  order: (m,) int64, coins: (m,), past: (k, m, 2)."""
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
    """Run pass 1: add the next candidates to Y, by position, except those that are not usable."""
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
    """Run pass 2: the next candidates join X or leave Y, in the order of their visits.

    It stops when the budget is spent.  Each candidate needs two evaluations, because one of R(X),
    R(Y) and the two trials is always known.
    """
    if bool(g.alone.isnan()):
        x, x_rows = _value(reward, _mean(g.x, g.x_mass, own))
        y, y_rows = _value(reward, _mean(g.y, g.y_mass, own))
        g = g._replace(x_reward=x, x_rows=x_rows, y_reward=y, y_rows=y_rows, alone=x)
    for peer in batch:
        if g.is_full:  # the published break, which also skips later batches
            break
        g = _visit(g, own, peer, reward, tol, gate)
    return g


def _visit(
    g: Greedy, own: Member, peer: Member, reward: Reward, tol: float, gate: float
) -> Greedy:
    """Let one candidate join X or leave Y, by its gains and its coin."""
    j = int(g.order[g.at])
    coin = float(g.coins[g.at])
    g = g._replace(at=g.at + 1)
    if bool(g.refused[j]):
        return g

    # two trials: X with the candidate, Y without it
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
    """Return the probability that a candidate joins X, from the gains of joining and leaving.

    If both gains are 0, it joins.  This finds groups whose members only help together.

    >>> chance(0.0, 0.0), chance(4.0, 0.0), chance(1.0, 1.0), chance(0.0, 2.0)
    (1.0, 1.0, 0.5, 0.0)
    """
    if a + b == 0:
        return 1.0
    return a / (a + b)


def is_clear(gain: Tensor, gate: float) -> bool:
    """Return whether the mean gain exceeds ``gate`` standard errors; with 0 every gain does.

    gain: (r,) by validation example.  With fewer than `FEWEST` examples no gain does.  A gain to or
    from a non-finite loss has no error, and counts.

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
    """Return the average over X, (d,) in the model's dtype; exactly the site's model if alone."""
    if not bool(g.chosen.any()):
        return own.w
    return _mean(g.x, g.x_mass, own).to(own.w.dtype)


def remember_gains(last: Greedy, candidates: int, rounds: int) -> Tensor | None:
    """Return the gains of the last ``rounds`` selections, (k, m, 2), for candidates of the last.

    None if the candidates have changed or no gains are stored.
    """
    if rounds == 0 or len(last.chosen) != candidates:
        return None
    past = torch.cat([last.gains[None], last.past])[:rounds]
    return torch.where(last.chosen[:, None], past, torch.nan)


def stay_alone_if_better(g: Greedy, own: Member) -> Greedy:
    """Return the site alone if the reward of X is lower than that of its own model."""
    if not bool(g.x_reward < g.alone):
        return g
    mass = torch.tensor(float(own.n), dtype=torch.float64)
    nobody = torch.zeros_like(g.chosen)
    return g._replace(x=own.share, x_mass=mass, x_reward=g.alone, chosen=nobody)


def with_each(g: Greedy, own: Member, peers: Sequence[Member], reward: Reward) -> Tensor:
    """Return the reward of X with each of these models separately.  -> (len(peers),) float64"""
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
    """Return the average of the models of a site and its peers, weighted by labels (Eq. 4), (d,).

    It is summed in float64 in the order of ``peers``, without those that are not usable.

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
    """Run the whole selection.  ``batch``: number of models at a time (BGGC); None: all (GGC).

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
    """Divide a sum of models by its weight; return the own model if the weight is 0."""
    if float(mass) > 0:
        return total / mass
    return own.w.double()


def _value(reward: Reward, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the reward of a model, (), and by example, (r,)."""
    rows = torch.as_tensor(reward(w), dtype=torch.float64).reshape(-1)
    mean = rows.mean()
    if not bool(mean.isfinite()):
        mean = torch.full_like(mean, LOWEST)
    return mean, rows


def _gain(difference: Tensor, tol: float) -> float:
    """Return the gain of a trial, 0 if it is at most ``tol``."""
    gain = float(difference)
    if gain > tol:
        return gain
    return 0.0
