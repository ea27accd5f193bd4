"""Self-training of a ridge classifier with class probabilities that are smoothed at each site.

A site connects each of its examples, labeled or not, to its most similar ones.  Class probabilities
of a model spread along these connections, so that similar examples receive similar ones, and the
next model fits the result.  The model of the labeled examples alone anchors the probabilities, and
their means are held near its class shares.

    P = (1 - a) softmax(10 (W'z + b)) + a P0        labels are fixed; P0 by the model of labels
    Q = P; eight times Q <- 0.8 S Q + 0.2 P         S: connections of the site
    Q <- Q² and Q <- Q q / m                        q: wanted class shares, m: those of Q before
    W = (Z'Z + 0.03 I)^-1 Z'Q                       over all examples of all sites

Notation: z (m, D) examples of a site, P and Q (m, S, C) class probabilities by S models.

Related work: Zhou, Bousquet, Lal, Weston, Schölkopf. Learning with Local and Global Consistency.
NIPS 2003; Yarowsky (ACL 1995).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import ClientCall
from fallow.core.refusal import Refusal
from fallow.core.types import State, Values
from fallow.core.view import FOLDS, View
from fallow.training.parts.closed_form import FeatureRows, Labeled, LabeledRows
from fallow.training.parts.ridge import (
    MOST_AWAY,
    TEMPERATURES,
    TINY,
    LinearHead,
    Totals,
    add_up,
    centered,
    head_of_solved,
    log_losses,
    mixed,
    row_blocks,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DIRECTIONS = 64  # principal directions in which examples are compared
NEIGHBORS = 10
CHUNK = 256  # examples whose cosines with all others are in memory
LARGEST = 25_000  # examples compared with one another: time grows with the square
MANY = 12_500  # examples from which cosines are in single precision
SHARPNESS = 4  # power of the cosine in the weight of a connection
TEMPERATURE = 10.0  # of softmax
PASSES = 8  # at most
CONVERGED = 5e-5  # mean squared change of outputs in a pass, below which it is the last one
STEPS = 8  # of probabilities along connections, in each pass
SPREAD = 0.8  # share of the neighbors in a step
ANCHOR = 0.7  # a, share of the model of the labeled examples in the probabilities
LEVELING = 0.5  # power of the class shares: half way to equal classes
SMALLEST_SHARE = 1e-4
PENALTY = 0.03  # λ n, with the mean square norm of an example 1
FEATURES_A_CLASS = (
    10  # fewest: classes that follow clusters are otherwise no linear function
)
PSEUDO_LABELS = 5  # per class: with so many labels, both models have the same weight

FEWEST_A_CLASS = 5
FEWEST = 50
"""Numbers of labels, per class with a label and in all, that cross-validation needs."""


# -- connections of similar examples --------------------------------------------------------------


def connect(z: Tensor) -> csr_array:
    """Return the connections S (m, m) of similar examples, z (m, d).

    S = D^-1/2 (G + G') D^-1/2, where a row of G has the fourth powers of the cosines of the ten most
    similar examples, and D the sums of rows of G + G'.

    >>> connect(torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    from scipy.sparse import csr_array  # its import takes 0.1 s

    cosines, at = find_neighbors(z)
    size, neighbors = at.shape
    row = torch.arange(size).repeat_interleave(neighbors)
    weight = cosines.double().clamp_min(0).pow(SHARPNESS).flatten()
    one_way = csr_array(
        (weight.numpy(), (row.numpy(), at.flatten().numpy())), shape=(size, size)
    )
    both: csr_array = (one_way + one_way.T).tocsr()
    degree = torch.from_numpy(both.sum(1))
    unit = torch.where(degree > 0, degree, torch.inf).rsqrt().numpy()
    both.data *= unit.repeat(both.indptr[1:] - both.indptr[:-1]) * unit[both.indices]
    both.eliminate_zeros()
    return both


def find_neighbors(z: Tensor, largest: int = LARGEST) -> tuple[Tensor, Tensor]:
    """Return the ten most similar examples of each one, without itself: cosines and positions.

    z: (m, d) -> (m, k) twice, with k = min(10, m - 1).  Every second, third, ... example is
    compared with one another if there are more than ``largest``.
    """
    size = len(z)
    groups = max(math.ceil(size / largest), 1)
    k = max(min(NEIGHBORS, size // groups - 1), 0)
    best = torch.zeros(size, k, dtype=z.dtype)
    at = torch.zeros(size, k, dtype=torch.int64)
    for group in range(groups):
        rows = torch.arange(group, size, groups)
        cosines, nearest = compare_examples(z[rows], k)
        best[rows] = cosines.to(z.dtype)
        at[rows] = rows[nearest]
    return best, at


def compare_examples(z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k most similar examples of each one: cosines and positions, (m, k) twice."""
    if len(z) >= MANY:
        z = z.float()
    unit = torch.nn.functional.normalize(z)
    best = z.new_zeros(len(z), k)
    at = torch.zeros(len(z), k, dtype=torch.int64)
    for rows in torch.split(torch.arange(len(z)), CHUNK):
        cosines = unit[rows] @ unit.T
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        best[rows], at[rows] = cosines.topk(k, 1)
    return best, at


class Prepared(NamedTuple):
    """Examples of a site, their connections S (m, m) and anchors P0 (m, S, C), for all passes.

    positions: (m,), of the examples among all examples of the site.
    """

    positions: Tensor
    connections: csr_array
    anchors: Tensor

    def store(self) -> State:
        """Return the tensors for the memory of a site."""
        return {
            "positions": self.positions,
            "starts": torch.from_numpy(self.connections.indptr),
            "columns": torch.from_numpy(self.connections.indices),
            "weights": torch.from_numpy(self.connections.data),
            "anchors": self.anchors,
        }

    def without_left(self, present: Tensor) -> Prepared:
        """Return the same for the examples at ``present`` positions, if others left meanwhile."""
        if torch.equal(present, self.positions):
            return self
        at = torch.isin(self.positions, present).nonzero().squeeze(1)
        connections = self.connections[at.numpy()][:, at.numpy()]
        return Prepared(self.positions[at], connections, self.anchors[at])


def read_prepared(stored: State) -> Prepared:
    """Return what `Prepared.store` stored."""
    from scipy.sparse import csr_array

    size = len(stored["starts"]) - 1
    parts = (stored["weights"].numpy(), stored["columns"].numpy(), stored["starts"].numpy())
    return Prepared(
        stored["positions"], csr_array(parts, shape=(size, size)), stored["anchors"]
    )


# -- class probabilities --------------------------------------------------------------------------


def guess(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return softmax(10 (W'z + b)) of S models.  weight: (S, D, C), bias: (S, C) -> (m, S, C)"""
    models, features, classes = weight.shape
    heads = weight.permute(1, 0, 2).reshape(features, models * classes)
    outputs = (z @ heads).view(len(z), models, classes) + bias
    return torch.softmax(TEMPERATURE * outputs, 2)


def smooth(p: Tensor, connections: csr_array) -> Tensor:
    """Return probabilities that are spread along connections, and sharpened.  (m, S, C)"""
    start = p.flatten(1).numpy()
    q = start
    for _ in range(STEPS):
        q = SPREAD * (connections @ q) + (1 - SPREAD) * start
    spread = normalize(torch.from_numpy(q).view(p.shape))
    return normalize(spread.square())


def normalize(q: Tensor) -> Tensor:
    """Return numbers that sum to 1 over the last dimension."""
    return q / q.sum(-1, keepdim=True).clamp_min(TINY)


def level(shares: Tensor) -> Tensor:
    """Return class shares half way to equal ones.  (S, C)

    >>> level(torch.tensor([[0.9, 0.1]]))
    tensor([[0.7500, 0.2500]])
    """
    return normalize(shares.clamp_min(0).pow(LEVELING))


def hold_shares(q: Tensor, wanted: Tensor, shares: Tensor) -> Tensor:
    """Return probabilities with ``wanted`` class shares (S, C), nearly; ``shares`` are those of q."""
    return normalize(q * (wanted / shares.clamp_min(SMALLEST_SHARE)))


# -- client side ----------------------------------------------------------------------------------


def example_blocks(view: View, width: int) -> Iterator[Tensor]:
    """Yield all examples in float64, in blocks."""
    for (rows,) in row_blocks(FeatureRows(view, "all", width)):
        yield rows.double()


def guess_all(view: View, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the class probabilities of all examples by S models, (m, S, C)."""
    models, width, classes = weight.shape
    guesses = [guess(z, weight, bias) for z in example_blocks(view, width)]
    return torch.cat([weight.new_zeros(0, models, classes), *guesses])


def sum_examples(view: View, width: int, center: Tensor | None) -> Values:
    """Return the products of all examples of a site, about ``center`` (D,)."""
    z = FeatureRows(view, "all", width)
    nothing = torch.zeros(len(z), 0, dtype=torch.float64)
    total = add_up(z, nothing, torch.ones(len(z), dtype=torch.float64), center)
    return {
        "rows": float(len(z)),
        "features": total["features"],
        "products": total["products"],
    }


def prepare_examples(
    view: View, directions: Tensor, weight: Tensor, bias: Tensor
) -> Prepared:
    """Return the connections of all examples of a site, and their classes by S models of labels.

    directions: (D, d); weight: (S, D, C); bias: (S, C).
    """
    parts = [z @ directions for z in example_blocks(view, len(directions))]
    reduced = torch.cat([directions.new_zeros(0, directions.shape[1]), *parts])
    anchors = guess_all(view, weight, bias)
    return Prepared(view.positions_of("all"), connect(reduced), anchors)


def sum_anchors(view: View, prepared: Prepared, labels: Tensor) -> Values:
    """Return sums over all examples of their anchors, before and after a pass.  labels: (n, C)"""
    prepared = prepared.without_left(view.positions_of("all"))
    at = torch.searchsorted(prepared.positions, view.positions_of("labeled"))
    p = prepared.anchors.clone()
    fix_labels(p, at, labels, find_known(view.folds, p.shape[1]))
    return {"guessed": p.sum(0), "smoothed": smooth(p, prepared.connections).sum(0)}


def sum_soft_labels(
    view: View,
    prepared: Prepared,
    labels: Tensor,
    is_fixed: Tensor,
    weight: Tensor,
    bias: Tensor,
    wanted: Tensor,
    shares: Tensor,
    center: Tensor | None,
) -> Values:
    """Return sums over all examples of smoothed probabilities and their products with features.

    labels: (n, C) one-hot.  is_fixed: (n, S), labels that a model knows.  weight (S, D, C) and bias
    (S, C): models of the pass before.  wanted, shares: (S, C).
    """
    models, width, classes = weight.shape
    prepared = prepared.without_left(view.positions_of("all"))
    p = guess_all(view, weight, bias)
    if p.shape != prepared.anchors.shape:
        raise Refusal(
            f"{len(prepared.anchors)} examples and {prepared.anchors.shape[1]} models were "
            f"prepared for self-training, and not {len(p)} and {models}"
        )
    p.lerp_(prepared.anchors, ANCHOR)

    at = torch.searchsorted(prepared.positions, view.positions_of("labeled"))
    fix_labels(p, at, labels, is_fixed)
    smoothed = smooth(p, prepared.connections)
    q = hold_shares(smoothed, wanted, shares)
    fix_labels(q, at, labels, is_fixed)

    cross = torch.zeros(width, models * classes, dtype=torch.float64)
    first = 0
    for z in example_blocks(view, width):
        away = z if center is None else z - center
        cross += away.T @ q[first : first + len(z)].flatten(1)
        first += len(z)
    return {
        "smoothed": smoothed.sum(0),
        "targets": q.sum(0),
        "cross": cross.view(width, models, classes).permute(1, 0, 2).contiguous(),
    }


def fix_labels(p: Tensor, at: Tensor, labels: Tensor, is_fixed: Tensor) -> Tensor:
    """Set the known labels in class probabilities, in place, and return these.

    p: (m, S, C), at: (n,) positions of the labeled examples, labels: (n, C), is_fixed: (n, S).
    """
    known = labels[:, None, :].expand(-1, p.shape[1], -1)
    p[at] = torch.where(is_fixed[:, :, None], known, p[at])
    return p


def find_known(folds: Tensor, models: int) -> Tensor:
    """Return which labels each model knows, (n, S): the first one all, the others all but a fold.

    folds: (n,), of the labels.
    """
    if models not in (1, 1 + FOLDS):
        raise Refusal(f"{models} models were received instead of 1 or {1 + FOLDS}")
    is_known = torch.ones(len(folds), models, dtype=torch.bool)
    if models > 1:
        is_known[:, 1:] = folds[:, None] != torch.arange(FOLDS)
    return is_known


def take_fold(rows: LabeledRows, is_in: Tensor) -> Labeled:
    """Return the labeled examples of one fold.  is_in: (n,)"""
    z = []
    y = []
    for z_rows, y_rows, is_here in row_blocks(rows.z, rows.y, is_in):
        z.append(z_rows[is_here])
        y.append(y_rows[is_here])
    return Labeled(torch.cat(z), torch.cat(y), rows.s[is_in])


def sum_held_out(rows: LabeledRows, folds: Tensor, weight: Tensor, bias: Tensor) -> Values:
    """Return sums of losses on labeled examples, by models without their fold.

    folds: (n,), of the examples; weight: (K FOLDS, D, C), bias: (K FOLDS, C), of K kinds of models
    -> squared (K,), right (K,) and log (K, T), as in `ridge.losses`; ``squared`` is the Brier score
    of softmax(10 (W'z + b)).
    """
    models = len(weight)
    kinds = models // FOLDS
    if models % FOLDS or not kinds:
        raise Refusal(f"{models} models were received instead of {FOLDS} of each kind")
    squared = torch.zeros(kinds, dtype=torch.float64)
    right = torch.zeros(kinds, dtype=torch.float64)
    log = torch.zeros(kinds, len(TEMPERATURES), dtype=torch.float64)
    for z, y, s, at in row_blocks(rows.z, rows.y, rows.s, folds):
        for index in range(FOLDS):
            is_out = at == index
            y_out = y[is_out].double()
            s_out = s[is_out].double()
            outputs = z[is_out].double() @ weight[index::FOLDS]  # (K, n, C)
            away = y_out - outputs - bias[index::FOLDS, None]
            outputs = y_out - away.clamp(-MOST_AWAY, MOST_AWAY)
            p = torch.softmax(TEMPERATURE * outputs, 2)
            is_right = outputs.argmax(2) == y_out.argmax(1)
            squared += (p - y_out).square().sum(2) @ s_out
            right += is_right.double() @ s_out
            log += log_losses(outputs, y_out, s_out)
    return {"squared": squared, "right": right, "log": log}


# -- server side ----------------------------------------------------------------------------------


def has_enough(counts: Tensor) -> bool:
    """Return whether labels per class, (C,), are enough for cross-validation.

    >>> has_enough(torch.tensor([30.0, 25.0, 0.0])), has_enough(torch.tensor([4.0] * 20))
    (True, False)
    """
    labels = round(float(counts.sum()))
    classes = int((counts > 0.5).sum())
    return labels >= max(FEWEST, FEWEST_A_CLASS * classes)


def has_enough_features(features: int, classes: int) -> bool:
    """Return whether a linear model can be expected to fit smoothed probabilities.

    classes: 0 for regression, which has no probabilities.

    >>> has_enough_features(16, classes=26), has_enough_features(512, classes=26)
    (False, True)
    """
    return features >= FEATURES_A_CLASS * classes > 0


def train_totals(total: Totals, held_out: Sequence[Totals]) -> list[Totals]:
    """Return the aggregates without each fold.  held_out: those of all folds but the last"""
    without = [mixed(total, fold, -1.0) for fold in held_out]
    rest = held_out[0]
    for fold in held_out[1:]:
        rest = mixed(rest, fold, 1.0)
    return [*without, rest]


class Examples(NamedTuple):
    """All examples of all sites, labeled or not, with the decomposed matrix of their solution.

    mass () and mean (D,); directions (D, d): principal directions; root (D, D): Cholesky factor of
    a + 0.03 I.
    """

    mass: Tensor
    mean: Tensor
    directions: Tensor
    root: Tensor

    def solve(
        self, targets: Tensor, cross: Tensor, center: Tensor | None
    ) -> list[LinearHead]:
        """Return the solutions of S models, from sums of soft labels.

        targets: (S, C); cross: (S, D, C), about ``center``.
        """
        models, width, classes = cross.shape
        away = self.mean if center is None else self.mean - center
        b = cross - away[:, None] * targets[:, None, :]
        side_by_side = b.permute(1, 0, 2).reshape(width, models * classes)
        solved = torch.cholesky_solve(side_by_side, self.root)
        weights = solved.view(width, models, classes).unbind(1)
        means = targets / self.mass
        return [
            head_of_solved(weight, self.mean, mean)
            for weight, mean in zip(weights, means, strict=True)
        ]


def measure_change(
    root: Tensor, rows: float, before: Sequence[LinearHead], after: Sequence[LinearHead]
) -> float:
    """Return the largest mean squared change of the outputs of a model, about their means.

    root: (D, D), Cholesky factor of the products Σ z z' of ``rows`` examples about their mean.
    """
    changed = stack_heads(after)["weight"] - stack_heads(before)["weight"]  # (S, D, C)
    outputs = root.T @ changed.permute(1, 0, 2).flatten(1)
    squares = outputs.square().view(len(root), len(changed), -1).sum((0, 2))
    return float(squares.max()) / rows


def read_examples(total: Mapping[str, Tensor], center: Tensor | None) -> Examples:
    """Return the aggregates over all examples, from those of `sum_examples`."""
    parts = {name: total[name] for name in ("rows", "features", "products")}
    if center is not None:
        parts["center"] = center
    return decompose_examples(
        **{name: part.double().numpy().tobytes() for name, part in parts.items()}
    )


# until an example comes or leaves, the aggregates of all cycles are equal
@lru_cache(maxsize=1)
def decompose_examples(
    rows: bytes, features: bytes, products: bytes, center: bytes | None = None
) -> Examples:
    """Return the aggregates over all examples.  The arguments are tensors in float64, as bytes."""
    nothing = torch.zeros(1, dtype=torch.float64)
    z = read_numbers(features)
    whole = centered(
        {
            "n": read_numbers(rows)[0],
            "features": z,
            "products": read_numbers(products),
            "targets": nothing,
            "cross": nothing.expand(len(z), 1),
        },
        None if center is None else read_numbers(center),
    )
    directions = find_directions(whole.a + whole.mass * torch.outer(whole.z, whole.z))
    ridge = PENALTY * torch.eye(len(whole.a), dtype=torch.float64)
    return Examples(whole.mass, whole.z, directions, torch.linalg.cholesky(whole.a + ridge))


def read_numbers(numbers: bytes) -> Tensor:
    return torch.frombuffer(bytearray(numbers), dtype=torch.float64)


def find_directions(second: Tensor) -> Tensor:
    """Return the principal directions, (D, d), of second moments (D, D); d is at most 64.

    >>> find_directions(torch.eye(2, dtype=torch.float64)).shape
    torch.Size([2, 2])
    """
    from scipy.linalg import eigh  # all eigenvectors would take three times as long

    size = len(second)
    last = (max(size - DIRECTIONS, 0), size - 1)
    vectors = eigh(second.numpy(), subset_by_index=last)[1]
    return torch.from_numpy(vectors).contiguous()


def train_smoothed(
    ask: Ask,
    anchor_shares: ClientCall,
    soft_labels: ClientCall,
    plain: Sequence[LinearHead],
    examples: Examples,
    center: Tensor | None,
) -> list[LinearHead]:
    """Return the models after all passes, from those of labels: all labels, and all but each fold.

    Class shares of the models of labels come from ``anchor_shares``.  Later, the shares that are
    corrected are those of the pass before, which saves an exchange in each pass.  Passes end when the
    outputs of all models hardly change, which the products of all examples tell without an exchange.
    """
    first = sum_of_all(ask, anchor_shares)
    wanted = level(normalize(first["guessed"].clamp_min(0)))
    shares = first["smoothed"] / examples.mass
    heads = [*plain]
    for _ in range(PASSES):
        result = sum_of_all(
            ask,
            soft_labels,
            None,
            **stack_heads(heads),
            center=center,
            wanted=wanted,
            shares=shares,
        )
        shares = result["smoothed"] / examples.mass
        before = heads
        heads = examples.solve(result["targets"], result["cross"], center)
        change = measure_change(examples.root, float(examples.mass), before, heads)
        if change < CONVERGED:
            break
    return heads


def weigh_plain(labels: int, classes: int) -> float:
    """Return the weight v of the model of labels.

    >>> weigh_plain(labels=50, classes=10)
    0.5
    """
    return labels / (labels + PSEUDO_LABELS * classes)


def mix_heads(smoothed: LinearHead, plain: LinearHead, v: float) -> LinearHead:
    """Return (1 - v) times the model of all examples plus v times that of labels."""
    return LinearHead(
        (1 - v) * smoothed.weight + v * plain.weight,
        (1 - v) * smoothed.bias + v * plain.bias,
    )


def stack_heads(heads: Sequence[LinearHead]) -> dict[str, Tensor]:
    """Return the models as arguments of a client function."""
    return {
        "weight": torch.stack([head.weight for head in heads]),
        "bias": torch.stack([head.bias for head in heads]),
    }
