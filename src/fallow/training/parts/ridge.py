"""Closed-form ridge regression from aggregates over sites, for a path of penalties.

One decomposition gives the solutions of all penalties and exact leave-one-out predictions.

Notation: z (n, D) features, y (n, C) one-hot classes or regression targets, s (n,) weights, n = Σ
s.  The solution W (D, C), b (C,) minimizes Σ s |y - W'z - b|² + λ n |W|²; the intercept is not
penalized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

EPS = torch.finfo(torch.float64).eps
TINY = 1e-300  # divisor for empty aggregates
BLOCK = 8192  # examples per block: features are float32, and one block at a time is float64
STRIP = 64  # rows of a triangle that are copied at once
OUTPUTS = 2**20  # leave-one-out outputs per block, of all penalties


class ReadRows(Protocol):
    """Examples (n, d) that are read in blocks, so that they need not be in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def blocks(self, size: int) -> Iterator[Tensor]: ...


Rows = Tensor | ReadRows


class Totals(NamedTuple):
    """Sufficient statistics of ridge regression, about the means.

    mass ()   n, the total weight
    z (D,)    mean of the features
    y (C,)    mean of the targets
    a (D, D)  Σ s (z - z̄)(z - z̄)'
    b (D, C)  Σ s (z - z̄)(y - ȳ)'
    """

    mass: Tensor
    z: Tensor
    y: Tensor
    a: Tensor
    b: Tensor


class Path(NamedTuple):
    """Solutions of all penalties for the same aggregates: a = U diag(e) U'.

    e (D,) ascending and at least 0; u (D, D); ub = U'b (D, C); mass, z, y as in `Totals`.
    """

    e: Tensor
    u: Tensor
    ub: Tensor
    mass: Tensor
    z: Tensor
    y: Tensor


class LinearHead(NamedTuple):
    """Weight (D, C) and bias (C,): the output is z @ weight + bias."""

    weight: Tensor
    bias: Tensor


# -- totals ---------------------------------------------------------------------------------------


def add_up(z: Rows, y: Rows, s: Tensor, center: Tensor | None = None) -> dict[str, Tensor]:
    """Return the contribution of one site, about ``center`` (D,).  z: (n, D), y: (n, C), s: (n,)

    ``products`` contains the upper triangle of the symmetric Σ s z z' row by row, D (D + 1) / 2
    numbers.

    >>> moments = add_up(torch.tensor([[1.0, 2.0]]), torch.ones(1, 1), torch.ones(1))
    >>> moments["products"].tolist()
    [1.0, 2.0, 4.0]
    """
    size = z.shape[1]
    n = s.new_zeros((), dtype=torch.float64)
    features = torch.zeros(size, dtype=torch.float64)
    targets = torch.zeros(y.shape[1], dtype=torch.float64)
    products = torch.zeros(size, size, dtype=torch.float64)
    cross = torch.zeros(size, y.shape[1], dtype=torch.float64)

    for z_rows, y_rows, s_rows in row_blocks(z, y, s):
        z_block = z_rows.double()
        if center is not None:
            z_block = z_block - center
        y_block = y_rows.double()
        s_block = s_rows.double()
        sz = z_block
        root_sz = z_block
        if bool((s_block != 1).any()):
            sz = s_block[:, None] * z_block
            root_sz = s_block.sqrt()[:, None] * z_block

        n += s_block.sum()
        features += sz.sum(0)
        targets += s_block @ y_block
        cross += sz.T @ y_block
        add_products(products, root_sz)

    return {
        "n": n,
        "features": features,
        "targets": targets,
        "products": pack_triangle(products),
        "cross": cross,
    }


def row_blocks(*parts: Rows, size: int = BLOCK) -> Iterator[tuple[Tensor, ...]]:
    """Yield blocks of up to ``size`` examples, the same ones of all parts."""
    size = min(size, BLOCK)
    return zip(*(_split(part, size) for part in parts), strict=True)


def _split(rows: Rows, size: int) -> Iterable[Tensor]:
    if isinstance(rows, Tensor):
        return torch.split(rows, size)
    return rows.blocks(size)


def sum_features(z: Rows, s: Tensor) -> Tensor:
    """Return Σ s z in float64, (D,), with one block in float64 at a time.  z: (n, D), s: (n,)"""
    total = torch.zeros(z.shape[1], dtype=torch.float64)
    for z_rows, s_rows in row_blocks(z, s):
        total += s_rows.double() @ z_rows.double()
    return total


def square_rows(y: Rows) -> Tensor:
    """Return |y|² of each example.  y: (n, C) -> (n,)"""
    return torch.cat([block.square().sum(1) for (block,) in row_blocks(y)])


def predict(z: Tensor, head: LinearHead) -> Tensor:
    """Return the outputs of a solution in float64.  z: (n, D) -> (n, C)"""
    outputs = torch.empty(len(z), head.weight.shape[1], dtype=torch.float64)
    for rows in torch.split(torch.arange(len(z)), BLOCK):
        outputs[rows] = z[rows].double() @ head.weight + head.bias
    return outputs


def add_products(total: Tensor, z: Tensor) -> None:
    """Add z'z to the upper triangle of ``total`` (D, D), in place; the rest is undefined.

    BLAS's syrk computes one triangle, which halves the work of a matrix product.  It uses
    column-major order, so it receives the transpose of ``total``, whose lower triangle is our upper
    triangle.
    """
    from scipy.linalg.blas import dsyrk

    dsyrk(1.0, z.numpy().T, beta=1.0, c=total.numpy().T, lower=1, overwrite_c=1)


def centered(total: Mapping[str, Tensor], center: Tensor | None = None) -> Totals:
    """Return the aggregates about their means, from those of `add_up` about ``center``."""
    n = total["n"]
    size = len(total["features"])
    weight = n.clamp_min(EPS)  # without labels, all aggregates and means are 0

    z = total["features"] / weight
    y = total["targets"] / weight
    a = unpack_triangle(total["products"], size)
    a.addr_(z, z, alpha=-float(n))
    b = total["cross"] - n * torch.outer(z, y)
    if center is not None:
        z = z + center
    return Totals(n, z, y, a, b)


def mixed(total: Totals, own: Totals, copies: float) -> Totals:
    """Return ``total`` with ``copies`` additional copies of the examples of ``own``, about the new
    mean; -1 removes them."""
    n = total.mass + copies * own.mass
    z = (total.mass * total.z + copies * own.mass * own.z) / n
    between = total.mass * copies * own.mass / n
    away = total.z - own.z
    a = torch.add(total.a, own.a, alpha=copies).addr_(away, away, alpha=float(between))
    y, b = shift_targets(total, own, copies, n, z)
    return Totals(n, z, y, a, b)


def shift_targets(
    total: Totals, own: Totals, copies: float, n: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the targets of `mixed`, ȳ (C,) and b (D, C), about the new mean z (D,) of mass n."""
    y = (total.mass * total.y + copies * own.mass * own.y) / n
    b = torch.zeros_like(total.b)
    for part, times in ((total, 1.0), (own, copies)):
        b += times * (part.b + part.mass * torch.outer(part.z - z, part.y - y))
    return y, b


# LAPACK uses column-major order, so its packed lower triangle is our upper triangle in row-major
# order.


def pack_triangle(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a float64 matrix (D, D) row by row, (D (D + 1) / 2,).

    >>> pack_triangle(torch.tensor([[1.0, 2.0], [9.0, 3.0]]).double()).tolist()
    [1.0, 2.0, 3.0]
    """
    from scipy.linalg.lapack import dtrttp

    packed, _ = dtrttp(matrix.numpy().T, uplo="L")
    return torch.from_numpy(packed)


def unpack_triangle(packed: Tensor, size: int) -> Tensor:
    """Return the symmetric matrix (size, size) with this upper triangle, row by row.

    >>> unpack_triangle(torch.tensor([1.0, 2.0, 3.0]).double(), 2).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    from scipy.linalg.lapack import dtpttr

    triangle, _ = dtpttr(size, packed.numpy(), uplo="L")
    matrix = torch.from_numpy(triangle.T)
    for first in range(0, size, STRIP):
        last = first + STRIP
        square = matrix[first:last, first:last].triu_()
        square += square.triu(1).T
        matrix[last:, first:last] = matrix[first:last, last:].T
    return matrix


# -- heads ----------------------------------------------------------------------------------------


def decompose(total: Totals) -> Path:
    """Return the path of all solutions; one decomposition is sufficient for every λ."""
    try:
        e, u = torch.linalg.eigh(total.a)
    except RuntimeError:  # divide and conquer, with many features that are 0
        from scipy.linalg import eigh

        values, vectors = eigh(total.a.numpy(), driver="ev")  # slower, and always converges
        e = torch.from_numpy(values)
        u = torch.from_numpy(vectors)
    u = u.contiguous()  # as received: other strides give other rounding errors
    return Path(e.clamp_min(0), u, u.T @ total.b, total.mass, total.z, total.y)


def head_of(path: Path, penalty: float) -> LinearHead:
    """Return the solution of one λ = ``penalty`` > 0.

    >>> z = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> path = decompose(centered(add_up(z, 3 * z, torch.ones(2))))
    >>> head_of(path, 1e-12).weight.round(decimals=6).tolist()
    [[3.0]]
    """
    weight = path.u @ (path.ub / shrunk(path, penalty)[:, None])
    return head_of_solved(weight, path.z, path.y)


def head_of_solved(weight: Tensor, z: Tensor, y: Tensor) -> LinearHead:
    """Return the solution with these weights and the intercept of the means."""
    return LinearHead(weight, y - z @ weight)


def shrunk(path: Path, penalty: float) -> Tensor:
    """Return d = e + λ n, (D,); above 0 also without examples, where the solution is 0."""
    return (path.e + penalty * path.mass).clamp_min(TINY)


def validation_score(path: Path, penalty: float, squares: float, rows: int) -> float:
    """Return the generalized cross-validation score (Golub, Heath, Wahba, 1979).

    It is computed from aggregates: the mean squared error divided by (1 - degrees of freedom /
    rows)².  ``squares``: Σ s |y - ȳ|².

    Notes
    -----
    Degrees of freedom are divided by the number of examples, not by n = Σ s: otherwise they, and
    the best λ, would depend on the unit of the weights.
    """
    d = shrunk(path, penalty)
    n = float(path.mass)
    explained = (path.ub.square() * (2 / d - path.e / d.square())[:, None]).sum()
    error = (squares - float(explained)) / n
    left = max(1 - float(freedom(path, penalty)) / rows, EPS)
    return error / left**2


def freedom(path: Path, penalty: float) -> Tensor:
    """Return the degrees of freedom, (): the sum of all leverages, plus one for the intercept."""
    return (path.e / shrunk(path, penalty)).sum() + 1


# -- leave-one-out --------------------------------------------------------------------------------


class LeaveOneOut(NamedTuple):
    """Leave-one-out outputs of a block of examples with one penalty.

    ``outputs`` (m, C) are predicted without the example itself.  ``rows`` are the positions of the
    examples at the site; ``y`` (m, C), ``s`` (m,) and ``left`` (m,) are their targets, weights and
    1 - h, in float64.
    """

    penalty: int  # index in the grid
    rows: Tensor
    outputs: Tensor
    y: Tensor
    s: Tensor
    left: Tensor


def leave_one_out(
    path: Path, z: Rows, y: Rows, s: Tensor, penalties: list[float]
) -> Iterator[LeaveOneOut]:
    """Yield exact leave-one-out outputs for every example and penalty, without refitting.

    z: (n, D) examples that are in the aggregates, y: (n, C), s: (n,).  With r = (z - z̄) U, the
    fitted output is f = ȳ + r (ub / d), and the leverage of an example is h = s (Σ r² / d + 1 / n).
    Without the example, the output is y - (y - f) / (1 - h), where λ n is that of all examples.
    The penalties of a block of examples follow each other.
    """
    d = torch.stack([shrunk(path, penalty) for penalty in penalties], dim=1)  # (D, L)
    heads = torch.cat([path.ub / column[:, None] for column in d.T], dim=1)  # (D, L C)
    inverse = d.reciprocal()
    classes = y.shape[1]

    size = max(1, OUTPUTS // heads.shape[1])  # examples

    first = 0  # first example of the block
    for z_rows, y_block, s_block in row_blocks(z, y, s, size=size):
        rows = torch.arange(first, first + len(z_rows))
        first += len(z_rows)
        r = (z_rows.double() - path.z) @ path.u  # (m, D)
        fitted = path.y + (r @ heads).view(len(rows), len(penalties), classes)
        s_rows = s_block.double()
        leverage = s_rows[:, None] * (r.square() @ inverse + 1 / path.mass)
        left = (1 - leverage).clamp_min(EPS)  # a single example has leverage 1
        y_rows = y_block.double()
        for index in range(len(penalties)):
            away = (y_rows - fitted[:, index]) / left[:, index, None]
            yield LeaveOneOut(
                index, rows, y_rows - away, y=y_rows, s=s_rows, left=left[:, index]
            )


def leave_groups_out(
    path: Path, z: Rows, y: Rows, s: Tensor, penalties: list[float], groups: Tensor
) -> Iterator[LeaveOneOut]:
    """Yield exact outputs for every example and penalty without the examples of its group.

    The arguments are those of `leave_one_out`, and groups: (n,).
    """
    z_rows = torch.cat([block for (block,) in row_blocks(z)])
    y_rows = torch.cat([block for (block,) in row_blocks(y)]).double()
    for rows in split_groups(groups):  # (g, m)
        r = (z_rows[rows].double() - path.z) @ path.u  # (g, m, D)
        y_block = y_rows[rows]  # (g, m, C)
        s_rows = s[rows].double()
        for index, penalty in enumerate(penalties):
            d = shrunk(path, penalty)
            away = y_block - path.y - r @ (path.ub / d[:, None])
            scaled = with_intercept(r / d.sqrt(), path.mass)
            without = residuals_without(scaled, away, s_rows)
            leverage = s_rows * scaled.square().sum(2)
            yield LeaveOneOut(
                index,
                rows.flatten(),
                (y_block - without).flatten(0, 1),
                y=y_block.flatten(0, 1),
                s=s_rows.flatten(),
                left=(1 - leverage).clamp_min(EPS).flatten(),
            )


def split_groups(groups: Tensor) -> Iterator[Tensor]:
    """Yield the positions (g, m) of the examples of groups of m, about `BLOCK` at a time.

    >>> [rows.tolist() for rows in split_groups(torch.tensor([7, 3, 7, 5]))]
    [[[1], [3]], [[0, 2]]]
    """
    _, group_of, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    by_group = group_of.argsort(stable=True)
    firsts = sizes.cumsum(0) - sizes
    for size in sizes.unique().tolist():
        of_size = firsts[sizes == size]
        for some in torch.split(of_size, max(BLOCK // size, 1)):
            yield by_group[some[:, None] + torch.arange(size)]


def with_intercept(scaled: Tensor, mass: Tensor) -> Tensor:
    """Return features (g, m, D) with the feature of the intercept, 1 / √n: (g, m, D + 1)."""
    intercept = mass.rsqrt().expand(*scaled.shape[:2], 1)
    return torch.cat([scaled, intercept], dim=2)


def residuals_without(b: Tensor, e: Tensor, s: Tensor) -> Tensor:
    """Return residuals (g, m, C) of solutions without the group, from those with it, ``e``.

    b: (g, m, k) features, scaled so that b b' s are leverages; s: (g, m).  With V = √s B, these are
    e + B V'(I - V V')⁻¹ √s e = e + B (I - V'V)⁻¹ V' √s e, of which the smaller matrix is decomposed.
    """
    root = s.sqrt()[:, :, None]
    v = root * b
    if v.shape[1] <= v.shape[2]:
        values, vectors = torch.linalg.eigh(v @ v.mT)
        left = (1 - values).clamp_min(EPS)[:, :, None]  # a group of all examples has 0
        inner = v.mT @ (vectors @ (vectors.mT @ (root * e) / left))
    else:
        values, vectors = torch.linalg.eigh(v.mT @ v)
        left = (1 - values).clamp_min(EPS)[:, :, None]
        inner = vectors @ (vectors.mT @ (v.mT @ (root * e)) / left)
    without: Tensor = e + b @ inner
    return without


# -- one penalty alone -------------------------------------------------------------------------


class RidgeSolution(NamedTuple):
    """Solution with one λ: (a + λ n)⁻¹ = half half'.

    half (D, D); rotated = half'b (D, C); mass, z, y as in `Totals`.
    """

    half: Tensor
    rotated: Tensor
    mass: Tensor
    z: Tensor
    y: Tensor

    def head(self) -> LinearHead:
        return head_of_solved(self.half @ self.rotated, self.z, self.y)

    def leave_one_out(
        self, z: Tensor, y: Tensor, s: Tensor, groups: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield blocks of examples, (m,), their leave-one-out outputs, (m, C), and 1 - h, (m,).

        Arguments and formulas are those of `leave_one_out` and `leave_groups_out`, with
        r = (z - z̄) half.
        """
        if groups is not None:
            yield from self._leave_groups_out(z, y, s, groups)
            return
        for rows in torch.split(torch.arange(len(z)), BLOCK):
            r = (z[rows].double() - self.z) @ self.half  # (m, D)
            fitted = self.y + r @ self.rotated
            leverage = s[rows].double() * (r.square().sum(1) + 1 / self.mass)
            left = (1 - leverage).clamp_min(EPS)
            y_rows = y[rows].double()
            yield rows, y_rows - (y_rows - fitted) / left[:, None], left

    def _leave_groups_out(
        self, z: Tensor, y: Tensor, s: Tensor, groups: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for rows in split_groups(groups):  # (g, m)
            r = (z[rows].double() - self.z) @ self.half  # (g, m, D)
            y_rows = y[rows].double()
            s_rows = s[rows].double()
            scaled = with_intercept(r, self.mass)
            away = y_rows - self.y - r @ self.rotated
            outputs = y_rows - residuals_without(scaled, away, s_rows)
            leverage = s_rows * scaled.square().sum(2)
            left = (1 - leverage).clamp_min(EPS)
            yield rows.flatten(), outputs.flatten(0, 1), left.flatten()


def solve_one(total: Totals, penalty: float) -> RidgeSolution:
    """Solve for one λ > 0 by Cholesky decomposition, with leave-one-out outputs.

    It takes a quarter of the time of `decompose`, which handles every λ and is the fallback if
    rounding makes the matrix indefinite.

    >>> z = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> total = centered(add_up(z, 3 * z, torch.ones(2)))
    >>> solve_one(total, 1e-12).head().weight.round(decimals=6).tolist()
    [[3.0]]
    """
    inverse = total.a.clone()
    inverse.diagonal().add_(penalty * total.mass)
    root, failed = torch.linalg.cholesky_ex(inverse)
    if bool(failed):
        path = decompose(total)
        half = path.u / shrunk(path, penalty).sqrt()
    else:
        one = torch.eye(len(root), dtype=root.dtype)
        half = torch.linalg.solve_triangular(root, one, upper=False).T
    return RidgeSolution(half, half.T @ total.b, total.mass, total.z, total.y)


def rotate(path: Path, center: Tensor | None) -> tuple[Tensor, Totals]:
    """Return an orthonormal basis (D, r) of the differences of examples, and their aggregates in it.

    Aggregates are about ``center``.  Any solution is in the span of the basis, so that no number is
    lost.  r is below the number of examples.
    """
    is_used = path.e > EPS * len(path.e) * path.e.max()
    axes = path.u[:, is_used]
    mean = path.z if center is None else path.z - center
    a = path.e[is_used].diag()
    return axes, Totals(path.mass, axes.T @ mean, path.y, a, path.ub[is_used])


def rotate_back(head: LinearHead, axes: Tensor, center: Tensor | None) -> LinearHead:
    """Return the solution for features from the one in coordinates of `rotate`."""
    weight = axes @ head.weight
    if center is None:
        return LinearHead(weight, head.bias)
    return LinearHead(weight, head.bias - center @ weight)


def solve_head(total: Totals, penalty: float) -> LinearHead:
    """Solve for one λ > 0, without leave-one-out outputs: ten times faster than `solve_one`.

    SciPy's LAPACK takes a third of the time of PyTorch's.

    >>> z = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> total = centered(add_up(z, 3 * z, torch.ones(2)))
    >>> solve_head(total, 1e-12).weight.round(decimals=6).tolist()
    [[3.0]]
    """
    from scipy.linalg.lapack import dposv

    matrix = total.a.clone()
    matrix.diagonal().add_(penalty * total.mass)
    symmetric = matrix.numpy().T  # column-major, and overwritten
    _, weight, failed = dposv(symmetric, total.b.numpy(), lower=1, overwrite_a=1)
    if failed:
        return solve_one(total, penalty).head()
    return head_of_solved(torch.from_numpy(weight).contiguous(), total.z, total.y)


# -- losses of the grid of penalties -------------------------------------------------------------

MOST_AWAY = 10.0
"""Bound on the leave-one-out error of an example.  Classes are 0 or 1, and targets are in standard
deviations.  Without the bound, one example could dominate the loss."""

PENALTIES = [10.0 ** (power / 2) for power in range(-12, 1)]  # λ: 1e-6, 3.2e-6, ..., 1
EXPONENTIALS = 2**20  # bytes of those of a block of outputs, which fit the cache
MANY_CLASSES = 64  # from this number on, exponentials are in single precision
SMALLEST = -80.0  # exponent: smaller numbers in single precision are denormal, and slow
TEMPERATURES = [1000.0 ** (step / 32) for step in range(33)]  # T: 1 ... 1000


def losses(
    path: Path,
    z: Rows,
    y: Rows,
    s: Tensor,
    penalties: list[float],
    is_class: bool,
    groups: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return sums of leave-one-out losses over the examples of one site.

    groups: (n,) of examples that are left out together; None: each alone.

    squared (L,)   Σ s |y - left out|² for every penalty; the Brier score for classes
    right (L,)     Σ s over examples whose class has the largest output; classes only
    log (L, T)     Σ s of the log loss of softmax(T times left out); classes only
    """
    squared = torch.zeros(len(penalties), dtype=torch.float64)
    right = torch.zeros(len(penalties), dtype=torch.float64)
    log = torch.zeros(len(penalties), len(TEMPERATURES), dtype=torch.float64)

    blocks = leave_one_out(path, z, y, s, penalties)
    if groups is not None:
        blocks = leave_groups_out(path, z, y, s, penalties, groups)
    of_penalties: list[Tensor] = []  # outputs of one block of examples
    for values in blocks:
        of_penalties.append(values.outputs)
        if len(of_penalties) < len(penalties):
            continue
        away = (values.y - torch.stack(of_penalties)).clamp(-MOST_AWAY, MOST_AWAY)
        of_penalties.clear()
        squared += away.square().sum(2) @ values.s
        if is_class:
            outputs = values.y - away  # (L, m, C)
            is_right = outputs.argmax(2) == values.y.argmax(1)
            right += is_right.double() @ values.s
            log += log_losses(outputs, values.y, values.s)

    if not is_class:
        return {"squared": squared}
    return {"squared": squared, "right": right, "log": log}


def log_losses(
    outputs: Tensor, y: Tensor, s: Tensor, before: Tensor | None = None
) -> Tensor:
    """Return Σ s of -log softmax(T output) at the true class, for every temperature.

    It is added to ``before``, the sum over other examples.  The error of an example is at most 1e-5
    with `MANY_CLASSES` or more, and of double precision with fewer.  outputs: (..., n, C) of one
    model or of several, y: (n, C) one-hot, s: (n,) -> (..., T)
    """
    # After subtraction of the maximum, all exponents are at most 0 for every temperature.
    away = outputs - outputs.amax(-1, keepdim=True)  # (..., n, C)
    of_truth = (away * y).sum(-1)  # (..., n)
    temperatures = s.new_tensor(TEMPERATURES)
    rows = away.flatten(0, -2)  # (rows, C)
    if rows.shape[1] < MANY_CLASSES:
        totals = _sum_by_class(rows, temperatures)
    else:
        totals = _sum_in_single_precision(rows, temperatures)
    log_totals = totals.log_().reshape(len(temperatures), *of_truth.shape)  # (T, ..., n)
    losses = (log_totals @ s).movedim(0, -1) - (of_truth @ s)[..., None] * temperatures
    if before is not None:
        losses += before
    return losses


def _sum_by_class(away: Tensor, temperatures: Tensor) -> Tensor:
    """Return Σ exp(T away) over the classes.  away: (rows, C) -> (T, rows).

    Exponentials of a block stay in the cache; sums over the first dimension are fastest.
    """
    by_class = away.T.contiguous()  # (C, rows)
    classes, n = by_class.shape
    totals = away.new_empty(len(temperatures), n)
    size = _count_rows(away, temperatures)
    memory = away.new_empty(classes, len(temperatures), min(size, n))
    for first in range(0, n, size):
        block = slice(first, first + size)
        exponents = by_class[:, None, block]  # (C, 1, b)
        powers = memory[:, :, : exponents.shape[2]]
        torch.mul(exponents, temperatures[:, None], out=powers)
        totals[:, block] = powers.exp_().sum(0)
    return totals


def _sum_in_single_precision(away: Tensor, temperatures: Tensor) -> Tensor:
    """Return Σ exp(T away) over the classes, in blocks of whole rows: a block has few of them.

    away: (rows, C) -> (T, rows) in double precision.
    """
    by_row = away.float()
    temperatures = temperatures.float()
    totals = away.new_empty(len(temperatures), len(away))
    size = _count_rows(by_row, temperatures)
    memory = by_row.new_empty(min(size, len(away)), len(temperatures), away.shape[1])
    for first in range(0, len(away), size):
        block = slice(first, first + size)
        exponents = by_row[block, None]  # (b, 1, C)
        powers = memory[: len(exponents)]
        torch.mul(exponents, temperatures[:, None], out=powers)
        totals[:, block] = powers.clamp_min_(SMALLEST).exp_().sum(2).T
    return totals


def _count_rows(away: Tensor, temperatures: Tensor) -> int:
    """Return the number of rows of a block, whose exponentials take `EXPONENTIALS` bytes."""
    bytes_of_row = away.element_size() * len(temperatures) * away.shape[1]
    return max(1, EXPONENTIALS // bytes_of_row)
