"""Attacks that compute examples from exact sums of their features.

An attacker holds what an honest coordinator or the receiver of a model holds: sums over all sites,
the public encoder, and mean and standard deviation of each column.  Each attack is one function of
plain arrays.  Examples are in standard units throughout: column minus mean, divided by the standard
deviation.

Notation: phi(x) (D,) are the features of an example x (p,).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Order = NDArray[np.intp]
PullBack = Callable[[Array], Array]
"""Gradient (m, p) of the sum of features, weighted by (m, D), with respect to the examples."""
Progress = Callable[[int, int], None]
"""Receives the numbers of rows found and searched for."""

TOLERANCE = 0.02
"""A row is read if every column is within this many standard deviations."""
RELATIVE_RANK = 1e-5
"""Eigenvalues of products below this share of the largest are rounding."""
MINIMUM = 1e-6
"""Largest residual of an example in the span of the products, relative to its features."""
SAME = 1e-2
"""Distance of two results of a search, in standard deviations, below which they are one row."""
RESIDUAL = 1e-8
"""Residual of a sum, relative to it, at which its rows are found."""
TINY = 1e-300
SIMILAR_NOISE = 0.1  # in standard units, around a similar example
BATCH = 200  # points whose features are computed together
PATIENCE = 200  # starts without a new row
GREEDY_STARTS = 12
JOINT_STEPS = 150  # after each added row
LAST_STEPS = 3_000
RESTARTS = 6
SAME_PRODUCT = 1e-3
"""Rounding of a product of two columns in standard units, in float32 and fixed point."""
MOST_POSSIBILITIES = 200_000
"""Columns of levels that are tried for one column."""
MOST_SOLUTIONS = 500
"""Sets of columns of levels that are compared with the other products."""
MOST_ROWS = 40
"""Rows that one sum is searched for; the cost grows with their square."""


class FeatureMap(Protocol):
    """Differentiable features of examples in standard units."""

    @property
    def varies(self) -> Mask:
        """Whether features depend on a column, (p,)."""
        ...

    def linearize(self, x: Array) -> tuple[Array, PullBack]:
        """Return the features (m, D) of examples (m, p), and the pullback of their gradient."""
        ...


@final
@dataclass(frozen=True)
class CosineFeatures:
    """Random Fourier features, height cos(w x + c), minus ``center``, divided by ``scale``.

    w: (D, p) directions for examples in standard units; c: (D,); center and scale: (D,).
    """

    w: Array
    c: Array
    height: float
    center: Array
    scale: Array

    @property
    def varies(self) -> Mask:
        return np.asarray((self.w != 0).any(0))

    def linearize(self, x: Array) -> tuple[Array, PullBack]:
        angle = x @ self.w.T + self.c
        features = (self.height * np.cos(angle) - self.center) / self.scale

        def pull_back(weights: Array) -> Array:
            slope = -self.height * np.sin(angle) / self.scale
            return (weights * slope) @ self.w

        return features, pull_back


@final
@dataclass(frozen=True)
class LinearFeatures:
    """Columns themselves: x times ``scale``, plus ``shift``, both (p,).

    zero (p,): 0 in the units of the data, in standard units.  A column that is constant at all sites
    has scale 0.
    """

    scale: Array
    shift: Array
    zero: Array

    @property
    def varies(self) -> Mask:
        return self.scale > 0

    def linearize(self, x: Array) -> tuple[Array, PullBack]:
        return x * self.scale + self.shift, lambda weights: weights * self.scale

    def invert(self, total: Array) -> Array:
        """Return the example with these features, (p,); 0 in a column that does not vary."""
        divisor = np.where(self.varies, self.scale, np.inf)
        return (total - self.shift) / divisor


@final
@dataclass(frozen=True)
class NetworkFeatures:
    """Features of a PyTorch network, with gradients by automatic differentiation.

    Examples (m, p) become inputs (m, *shape) of the network: x times ``std`` plus ``mean``, both
    (p,).  Outputs are centered and scaled by ``center`` and ``scale``, both (D,).
    """

    network: nn.Module
    shape: tuple[int, ...]
    mean: Array
    std: Array
    center: Array
    scale: Array

    @property
    def varies(self) -> Mask:
        return np.ones(len(self.mean), dtype=bool)

    def linearize(self, x: Array) -> tuple[Array, PullBack]:
        with torch.enable_grad():
            inputs = torch.from_numpy(x * self.std + self.mean).requires_grad_()
            outputs = self.network(inputs.view(-1, *self.shape).float())

        def pull_back(weights: Array) -> Array:
            slope = torch.from_numpy(weights / self.scale).to(outputs.dtype)
            (gradient,) = torch.autograd.grad(outputs, inputs, slope, retain_graph=True)
            return np.asarray(gradient.double().numpy() * self.std)

        features = outputs.detach().double().numpy()
        return (features - self.center) / self.scale, pull_back

    @property
    def is_of_images(self) -> bool:
        """Whether examples have rows and columns of pixels."""
        return len(self.shape) > 1

    def align(self, candidates: Array, rows: Array) -> Array:
        """Return candidates (m, p) in the brightness and contrast of the nearest row of (n, p).

        Features of images may not depend on these, and an image shows the same without them.
        """
        aligned = []
        true = rows * self.std + self.mean
        for image in candidates * self.std + self.mean:
            columns = np.stack([image, np.ones_like(image)], 1)
            fits = np.linalg.lstsq(columns, true.T, rcond=None)[0]
            fitted = (columns @ fits).T  # (n, p)
            nearest = ((fitted - true) ** 2).sum(1).argmin()
            aligned.append(fitted[nearest])
        if not aligned:
            return candidates
        return np.asarray((np.stack(aligned) - self.mean) / self.std)


@final
@dataclass(frozen=True)
class ClippedFeatures:
    """Features with a norm of 1 at most, times ``factor``, as in sums with Gaussian noise."""

    features: FeatureMap
    factor: float

    @property
    def varies(self) -> Mask:
        return self.features.varies

    def linearize(self, x: Array) -> tuple[Array, PullBack]:
        z, pull_back_z = self.features.linearize(x)
        length = np.linalg.norm(z, axis=1, keepdims=True)
        is_long = length > 1
        divisor = np.where(is_long, length, 1.0)
        clipped = z / divisor

        def pull_back(weights: Array) -> Array:
            along = (weights * clipped).sum(1, keepdims=True) * clipped
            across = np.where(is_long, weights - along, weights)
            return pull_back_z(self.factor * across / divisor)

        return self.factor * clipped, pull_back


@final
@dataclass(frozen=True)
class WithConstant:
    """Features with a constant behind them, (m, D + 1), so that products contain the sums."""

    features: FeatureMap
    constant: float = 1.0

    @property
    def varies(self) -> Mask:
        return self.features.varies

    def linearize(self, x: Array) -> tuple[Array, PullBack]:
        z, pull_back = self.features.linearize(x)
        constant = np.full((len(x), 1), self.constant)
        return np.concatenate([z, constant], 1), lambda weights: pull_back(weights[:, :-1])


@final
@dataclass
class Search:
    """Limits and random numbers of a search.

    starts: number of starting points for products.  steps: of one descent.  similar: (m, p) examples
    of the same kind that the attacker knows, in standard units: every other start is near one of
    them, and the others are random.  seconds: CPU time of one attack.  notify: receives progress.
    """

    starts: int = 3_000
    seconds: float = 60.0
    seed: int = 0
    steps: int = 200
    similar: Array | None = None
    notify: Progress = lambda read, rows: None

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._ends = time.process_time() + self.seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is spent."""
        return time.process_time() > self._ends

    def draw(self, rows: int, varies: Mask) -> Array:
        """Return starting points, (rows, p), with the mean of columns that do not vary."""
        points = self._random.standard_normal((rows, len(varies))) * varies
        if self.similar is not None and len(self.similar):
            chosen = self._random.integers(len(self.similar), size=len(points[::2]))
            points[::2] = self.similar[chosen] + SIMILAR_NOISE * points[::2]
        return np.asarray(points)


class Minimum(NamedTuple):
    """Result of one descent: the point, flat, and the value of the objective."""

    point: Array
    value: float


# -- attacks ----------------------------------------------------------------------------------


def read_products(
    features: FeatureMap,
    products: Array,
    rows: int,
    search: Search,
    *,
    is_signed: bool = False,
) -> Array:
    """Return examples in the span of Σ phi phi', (m, p), at most ``rows``, best first.

    is_signed: some of the products are subtracted.

    Each row is a minimum of the distance of phi(x) to the span of the products, (D, D), relative to
    its length.  A row that was found is subtracted, so that the next start finds another one.  It
    needs fewer rows than features.  With similar examples, the search starts at those nearest to the
    span.
    """
    values, directions = np.linalg.eigh(products)
    if is_signed:
        by_size = np.abs(values).argsort()
        values, directions = values[by_size], directions[:, by_size]
    sizes = np.abs(values) if is_signed else values
    rank = int((sizes > RELATIVE_RANK * max(sizes[-1], TINY)).sum())
    rank = min(rank, rows)
    if rank == 0:
        return np.zeros((0, len(features.varies)))
    rest = Span(directions[:, -rank:], np.diag(values[-rank:]), is_signed)
    minima: list[Minimum] = []
    in_vain = 0
    starts = search.draw(search.starts, features.varies)
    is_ranked = False
    while len(starts):
        if search.similar is not None and not is_ranked:
            starts = starts[rank_by_distance(features, rest.directions, starts)]
            is_ranked = True
        minimum = descend(
            partial(measure_distance, features, rest.directions),
            starts[0],
            search.steps,
            search,
        )
        starts = starts[1:]
        is_new = _add_distinct(minima, minimum)
        if is_new and minimum.value < MINIMUM:
            phi, _ = features.linearize(minimum.point[None])
            rest = rest.without(phi[0])
            is_ranked = False
            in_vain = 0
        in_vain += 1
        search.notify(rank - rest.rank, rank)
        if rest.rank == 0 or in_vain > PATIENCE or search.is_over:
            break
    minima.sort(key=lambda minimum: minimum.value)
    return np.stack([minimum.point for minimum in minima[:rank]])


class Span(NamedTuple):
    """Products of features in their span: directions (D, k), and products (k, k) in these.

    is_signed: some of the products are subtracted.
    """

    directions: Array
    products: Array
    is_signed: bool = False

    @property
    def rank(self) -> int:
        """Number of rows in the span."""
        return int(self.directions.shape[1])

    def without(self, phi: Array) -> Span:
        """Return the span of the other rows, after ``phi`` (D,), one of the rows, is subtracted."""
        own = self.directions.T @ phi
        share = float(own @ np.linalg.pinv(self.products) @ own)
        if abs(share) < TINY or not self.is_signed:
            share = max(share, TINY)
        rest = self.products - np.outer(own, own) / share
        values, turn = np.linalg.eigh(rest)
        # the direction that is no longer used has the smallest value
        dropped = int(np.abs(values).argmin()) if self.is_signed else 0
        turn = np.delete(turn, dropped, axis=1)
        return Span(self.directions @ turn, turn.T @ rest @ turn, self.is_signed)


def measure_distance(
    features: FeatureMap, span: Array, point: Array
) -> tuple[float, Array]:
    """Return the squared distance of phi to a span (D, k), relative to |phi|², and its gradient."""
    phi, pull_back = features.linearize(point[None])
    length = float((phi * phi).sum()) + TINY
    outside = phi - (phi @ span) @ span.T
    share = float((outside * outside).sum()) / length
    return share, pull_back(2 * (outside - share * phi) / length)[0]


def rank_by_distance(features: FeatureMap, span: Array, points: Array) -> Order:
    """Return the order (m,) of points (m, p) by the distance of phi to a span (D, k)."""
    shares = []
    for position in range(0, len(points), BATCH):
        phi, _ = features.linearize(points[position : position + BATCH])
        length = (phi * phi).sum(1) + TINY
        inside = ((phi @ span) ** 2).sum(1)
        shares.append(1 - inside / length)
    return np.concatenate(shares).argsort()


def read_columns(features: LinearFeatures, products: Array, constant: float) -> Array:
    """Return the examples that alone have a nonzero value in some column, from their products.

    products: of columns with a constant behind them (`WithConstant`).  In units of the data, a
    column that one row holds *is* that row, times its value there, such as a rare category or
    word.  The result, (m, p), has one candidate for each column, or a mixture of several rows.
    """
    varies = features.scale > 0
    divisor = np.where(varies, features.scale, np.inf)
    offset = np.where(varies, -features.shift / divisor - features.zero, 0.0) / constant
    to_data = np.concatenate([np.diag(1 / divisor), offset[:, None]], 1)
    of_data = to_data @ products @ to_data.T
    squares = np.diag(of_data)
    used = squares > RELATIVE_RANK * max(squares.max(), TINY)
    rows = (of_data[:, used] / np.sqrt(squares[used])).T
    return np.asarray(rows + np.where(varies, features.zero, 0.0))


def read_levels(
    features: LinearFeatures,
    products: Array,
    constant: float,
    rows: int,
    levels: Sequence[Array],
    search: Search,
    classes: Array | None = None,
) -> Array:
    """Return examples from the products of their columns, if enough columns have few levels.

    Products determine columns up to a rotation, and few rotations keep all levels: columns of levels
    are searched for one after the other.  If they are as many as the rows, independent ones, all
    other columns follow from their products with them.

    products: of columns with a constant behind them (`WithConstant`).  rows: their number.  levels:
    possible values of each column, in standard units; empty if they are many.  classes: products
    (p + 1, C) with 0 and 1 for each class, which are columns with two levels; None without.
    """
    varies = features.varies
    width = len(varies)
    divisor = np.where(varies, features.scale, np.inf)
    to_units = np.diag(np.append(1 / divisor, 1 / constant))
    to_units[:-1, -1] = np.where(varies, -features.shift / divisor, 0.0) / constant
    known = to_units @ products @ to_units.T  # Σ [x, 1] [x, 1]', (p + 1, p + 1)
    if classes is not None:
        of_classes = to_units @ classes  # Σ [x, 1] y', (p + 1, C)
        known = _insert_classes(known, of_classes)
        levels = [*levels, *[np.array([0.0, 1.0])] * classes.shape[1]]
        varies = np.append(varies, np.ones(classes.shape[1], dtype=bool))
    means = known[:-1, -1] / rows
    spread = np.diag(known)[:-1] / rows - means**2
    is_open: list[int] = np.flatnonzero(varies & (spread > SAME_PRODUCT)).tolist()
    searched = [at for at in is_open if len(levels[at])]
    best = Minimum(np.zeros(0), np.inf)
    for solved in _list_level_columns(known, rows, searched, levels, search):
        x = np.tile(means, (rows, 1))
        for at, values in solved.items():
            x[:, at] = values
        with_one = np.concatenate([x, np.ones((rows, 1))], 1)
        columns = with_one[:, [*solved, -1]]  # (n, q)
        left = [at for at in is_open if at not in solved]
        of_left = known[[*solved, -1]][:, left]  # (q, m), products of both
        with_one[:, left] = np.linalg.pinv(columns.T) @ of_left
        error = float(np.abs(with_one.T @ with_one - known).max())
        if error < best.value:
            best = Minimum(with_one[:, :-1], error)
    if not len(best.point):
        return np.zeros((0, width))
    return best.point[:, :width]


def _insert_classes(known: Array, of_classes: Array) -> Array:
    """Return products of [x, y, 1] from those of [x, 1] and those with 0 and 1 of each class."""
    counts = of_classes[-1:]  # (1, C)
    above = [known[:-1, :-1], of_classes[:-1], known[:-1, -1:]]
    within = [of_classes[:-1].T, np.diag(counts[0]), counts.T]
    return np.block([above, within, [known[-1:, :-1], counts, known[-1:, -1:]]])


def _list_level_columns(
    known: Array,
    rows: int,
    searched: Sequence[int],
    levels: Sequence[Array],
    search: Search,
) -> Iterator[dict[int, Array]]:
    """Yield columns of levels with these products, (n,) each, up to the order of the rows.

    known: products of the columns and a 1.  Rows that are equal so far form a cell, within which
    their order is free.  The column with the fewest possibilities comes next.
    """
    yielded = 0
    stack: list[dict[int, Array]] = [{}]
    while stack and yielded < MOST_SOLUTIONS and not search.is_over:
        solved = stack.pop()
        columns = np.stack([np.ones(rows), *solved.values()], 1)
        _, cell_of = np.unique(columns, axis=0, return_inverse=True)
        sizes = np.bincount(cell_of.ravel())
        open_columns = [at for at in searched if at not in solved]
        counted = [
            (math.prod(math.comb(size + len(levels[at]) - 1, size) for size in sizes), at)
            for at in open_columns
        ]
        if not counted or min(counted)[0] > MOST_POSSIBILITIES:
            yielded += 1
            yield solved
            continue
        _, column = min(counted)
        at = [len(known) - 1, *solved]
        for values in _list_values(
            levels[column],
            cell_of.ravel(),
            columns,
            known[at, column],
            known[column, column],
        ):
            stack.append({**solved, column: values})


def _list_values(
    levels: Array, cell_of: NDArray[np.intp], columns: Array, products: Array, square: float
) -> Iterator[Array]:
    """Yield columns of levels, (n,), with these products with known columns (n, q) and itself.

    cell_of: (n,) cell of each row.
    """
    order = np.argsort(cell_of, kind="stable")
    partial = [np.zeros((1, 0))]
    for size in np.bincount(cell_of):
        choices = np.array(list(combinations_with_replacement(levels, int(size))))
        last = partial[-1]
        together = np.concatenate(
            [np.repeat(last, len(choices), 0), np.tile(choices, (len(last), 1))], 1
        )
        room = square - (together**2).sum(1)
        partial = [together[room > -SAME_PRODUCT]]
    values = np.empty_like(partial[-1])
    values[:, order] = partial[-1]
    is_equal = np.abs(values @ columns - products) < SAME_PRODUCT
    is_equal = is_equal.all(1) & (np.abs((values**2).sum(1) - square) < SAME_PRODUCT)
    yield from values[is_equal]


def read_sum(features: FeatureMap, total: Array, rows: int, search: Search) -> Array:
    """Return the examples whose features add up to ``total`` (D,), (rows, p)."""
    if rows == 1 and isinstance(features, LinearFeatures):
        return features.invert(total)[None]
    return _read_combination(features, total[:, None], rows, search, is_weighted=False)


def read_head(features: FeatureMap, head: Array, rows: int, search: Search) -> Array:
    """Return examples of which ``head`` (D, C) is a weighted sum of features, (m, p).

    rows: largest number of examples; the search ends when fewer suffice.  The weights of a ridge
    regression are Σ phi(x_i) a_i' (representer theorem).
    """
    return _read_combination(features, head, rows, search, is_weighted=True)


def _read_combination(
    features: FeatureMap, target: Array, rows: int, search: Search, *, is_weighted: bool
) -> Array:
    """Return the examples whose features, weighted or not, add up to ``target`` (D, C).

    Greedy: the example that fits the residual best is added, then all are fitted jointly.
    """
    columns = len(features.varies)
    outputs = target.shape[1]
    norm = float((target * target).sum()) + TINY
    best = Minimum(np.zeros(0), np.inf)
    for _ in range(RESTARTS):
        x = np.zeros((0, columns))
        weights = np.zeros((0, outputs))
        for row in range(rows):
            residual = target
            if row:
                phi, _ = features.linearize(x)
                residual = target - phi.T @ weights
            added = _fit_one(features, residual, search, is_weighted=is_weighted)
            x = np.concatenate([x, added[None]])
            phi, _ = features.linearize(x[-1:])
            start = np.ones((1, outputs))
            if is_weighted:
                start = phi @ residual / (float((phi * phi).sum()) + TINY)
            weights = np.concatenate([weights, start])
            steps = LAST_STEPS if row == rows - 1 else JOINT_STEPS
            fitted = _fit_jointly(
                features, target, x, weights, steps, search, is_weighted=is_weighted
            )
            x = fitted.point[: x.size].reshape(x.shape)
            if is_weighted:
                weights = fitted.point[x.size :].reshape(weights.shape)
            search.notify(row + 1, rows)
            if search.is_over or fitted.value < RESIDUAL * norm:
                break
        if fitted.value < best.value:
            best = Minimum(x.copy(), fitted.value)
        if best.value < RESIDUAL * norm or search.is_over:
            break
    return best.point


def _fit_one(
    features: FeatureMap, residual: Array, search: Search, *, is_weighted: bool
) -> Array:
    """Return the example whose features explain most of ``residual`` (D, C), the best of some."""

    def misfit(point: Array) -> tuple[float, Array]:
        phi, pull_back = features.linearize(point[None])
        along = phi @ residual  # (1, C)
        if not is_weighted:
            return -float(along[0, 0]), -pull_back(residual.T)[0]
        length = float((phi * phi).sum()) + TINY
        share = float((along * along).sum()) / length
        return -share, -pull_back(2 * (along @ residual.T - share * phi) / length)[0]

    starts = search.draw(GREEDY_STARTS, features.varies)
    ends = [descend(misfit, start, search.steps, search) for start in starts]
    return min(ends, key=lambda end: end.value).point


def _fit_jointly(
    features: FeatureMap,
    target: Array,
    x: Array,
    weights: Array,
    steps: int,
    search: Search,
    *,
    is_weighted: bool,
) -> Minimum:
    """Fit examples (k, p), and their weights (k, C) if any, to ``target`` (D, C)."""
    n_values = x.size

    def misfit(point: Array) -> tuple[float, Array]:
        phi, pull_back = features.linearize(point[:n_values].reshape(x.shape))
        a = weights
        if is_weighted:
            a = point[n_values:].reshape(weights.shape)
        residual = phi.T @ a - target
        gradient = pull_back(2 * a @ residual.T).ravel()
        if is_weighted:
            gradient = np.concatenate([gradient, (2 * phi @ residual).ravel()])
        return float((residual * residual).sum()), gradient

    start = x.ravel()
    if is_weighted:
        start = np.concatenate([start, weights.ravel()])
    return descend(misfit, start, steps, search)


def descend(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    steps: int,
    search: Search,
) -> Minimum:
    """Minimize an objective with its gradient by L-BFGS, until the time is spent."""
    from scipy.optimize import minimize

    def check_time(xk: Array) -> None:
        if search.is_over:
            raise StopIteration

    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=check_time,
        options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-15, "gtol": 1e-12},
    )
    return Minimum(result.x, float(result.fun))


def _add_distinct(minima: list[Minimum], minimum: Minimum) -> bool:
    """Add a minimum, and return whether it is new; the better one of two results is kept."""
    for position, other in enumerate(minima):
        if np.abs(other.point - minimum.point).max() < SAME:
            if minimum.value < other.value:
                minima[position] = minimum
            return False
    minima.append(minimum)
    return True
