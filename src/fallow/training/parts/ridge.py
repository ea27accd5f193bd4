"""A linear head in closed form: totals of rows that add up over sites, the head of every penalty
from one decomposition, and what each row's prediction would be without that row.

Letters: z (n, D) features, y (n, C) one-hot classes or numbers, s (n,) weights, n = Σ s.  The head
W (D, C), b (C,) minimizes Σ s |y - W'z - b|² + λ n |W|²; the intercept is not penalized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

EPS = torch.finfo(torch.float64).eps
TINY = 1e-300  # what nothing is divided by
BLOCK = (
    8192  # rows at a time: features are float32, and only a block of them is ever float64
)


class ReadRows(Protocol):
    """Rows (n, d) that are read some at a time, so that they need not be in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def blocks(self, size: int) -> Iterator[Tensor]: ...


Rows = Tensor | ReadRows


class Totals(NamedTuple):
    """What a ridge regression needs to know of all rows, about their means.

    mass ()   n, the weight of all rows
    z (D,)    the mean of the features
    y (C,)    the mean of the answers
    a (D, D)  Σ s (z - z̄)(z - z̄)'
    b (D, C)  Σ s (z - z̄)(y - ȳ)'
    """

    mass: Tensor
    z: Tensor
    y: Tensor
    a: Tensor
    b: Tensor


class Path(NamedTuple):
    """All heads of one set of totals: a = U diag(e) U'.

    e (D,) ascending and at least 0; u (D, D); ub = U'b (D, C); mass, z, y as in `Totals`.
    """

    e: Tensor
    u: Tensor
    ub: Tensor
    mass: Tensor
    z: Tensor
    y: Tensor


class Head(NamedTuple):
    """weight (D, C) and bias (C,): the answer to a row is z @ weight + bias."""

    weight: Tensor
    bias: Tensor


# -- totals ---------------------------------------------------------------------------------------


def add_up(z: Rows, y: Rows, s: Tensor, center: Tensor | None = None) -> dict[str, Tensor]:
    """The totals of one site, about ``center`` (D,); 0 without one.  z: (n, D), y: (n, C), s: (n,)

    ``products`` holds the upper triangle of Σ s z z' row by row, D (D + 1) / 2 numbers: a
    symmetric matrix is sent once.

    >>> found = add_up(torch.tensor([[1.0, 2.0]]), torch.ones(1, 1), torch.ones(1))
    >>> found["products"].tolist()
    [1.0, 2.0, 4.0]
    """
    size = z.shape[1]
    n = s.new_zeros((), dtype=torch.float64)
    features = torch.zeros(size, dtype=torch.float64)
    answers = torch.zeros(y.shape[1], dtype=torch.float64)
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
        answers += s_block @ y_block
        cross += sz.T @ y_block
        add_products(products, root_sz)

    return {
        "n": n,
        "features": features,
        "answers": answers,
        "products": pack_triangle(products),
        "cross": cross,
    }


def row_blocks(*parts: Rows) -> Iterator[tuple[Tensor, ...]]:
    """Some rows of each part at a time; of several parts the same ones."""
    return zip(*(_split(part) for part in parts), strict=True)


def _split(rows: Rows) -> Iterable[Tensor]:
    if isinstance(rows, Tensor):
        return torch.split(rows, BLOCK)
    return rows.blocks(BLOCK)


def sum_features(z: Rows, s: Tensor) -> Tensor:
    """Σ s z in float64, (D,), of which only a block of rows is ever float64.  z: (n, D), s: (n,)"""
    total = torch.zeros(z.shape[1], dtype=torch.float64)
    for z_rows, s_rows in row_blocks(z, s):
        total += s_rows.double() @ z_rows.double()
    return total


def square_rows(y: Rows) -> Tensor:
    """|y|² of each row.  y: (n, C) -> (n,)"""
    return torch.cat([block.square().sum(1) for (block,) in row_blocks(y)])


def predict(z: Tensor, head: Head) -> Tensor:
    """What a head answers to rows, in float64.  z: (n, D) -> (n, C)"""
    answers = torch.empty(len(z), head.weight.shape[1], dtype=torch.float64)
    for rows in torch.split(torch.arange(len(z)), BLOCK):
        answers[rows] = z[rows].double() @ head.weight + head.bias
    return answers


def add_products(total: Tensor, z: Tensor) -> None:
    """Add z'z to the upper triangle of ``total`` (D, D), in place; what is below it means nothing.

    BLAS's syrk makes one triangle alone: half the work of a matrix product.  It sees arrays column
    by column, so ``total`` is handed over as its transpose, whose lower triangle is ours above.
    """
    from scipy.linalg.blas import dsyrk

    dsyrk(1.0, z.numpy().T, beta=1.0, c=total.numpy().T, lower=1, overwrite_c=1)


def centered(total: Mapping[str, Tensor], center: Tensor | None = None) -> Totals:
    """The totals of all sites about their means, from those of `add_up` about ``center``."""
    n = total["n"]
    size = len(total["features"])
    weight = n.clamp_min(EPS)  # without a label all totals are 0, and so are the means

    z = total["features"] / weight
    y = total["answers"] / weight
    a = unpack_triangle(total["products"], size)
    a -= n * torch.outer(z, z)
    b = total["cross"] - n * torch.outer(z, y)
    if center is not None:
        z = z + center
    return Totals(n, z, y, a, b)


def mixed(total: Totals, own: Totals, copies: float) -> Totals:
    """The totals of ``total`` with so many more copies of the rows of ``own``, about the mean of
    all of them."""
    n = total.mass + copies * own.mass
    z = (total.mass * total.z + copies * own.mass * own.z) / n
    y = (total.mass * total.y + copies * own.mass * own.y) / n

    a = torch.zeros_like(total.a)
    b = torch.zeros_like(total.b)
    for part, times in ((total, 1.0), (own, copies)):
        z_away = part.z - z
        y_away = part.y - y
        a += times * (part.a + part.mass * torch.outer(z_away, z_away))
        b += times * (part.b + part.mass * torch.outer(z_away, y_away))
    return Totals(n, z, y, a, b)


# LAPACK sees arrays column by column, so its lower triangle, packed column by column, is our upper
# one row by row.


def pack_triangle(matrix: Tensor) -> Tensor:
    """The upper triangle of a matrix (D, D) of float64 row by row, (D (D + 1) / 2,).

    >>> pack_triangle(torch.tensor([[1.0, 2.0], [9.0, 3.0]]).double()).tolist()
    [1.0, 2.0, 3.0]
    """
    from scipy.linalg.lapack import dtrttp

    packed, _ = dtrttp(matrix.numpy().T, uplo="L")
    return torch.from_numpy(packed)


def unpack_triangle(packed: Tensor, size: int) -> Tensor:
    """The symmetric matrix (size, size) whose upper triangle row by row is ``packed``.

    >>> unpack_triangle(torch.tensor([1.0, 2.0, 3.0]).double(), 2).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    from scipy.linalg.lapack import dtpttr

    triangle, _ = dtpttr(size, packed.numpy(), uplo="L")
    upper = torch.from_numpy(triangle.T).triu_()
    return upper + upper.triu(1).T


# -- heads ----------------------------------------------------------------------------------------


def decompose(total: Totals) -> Path:
    """The path of all heads; one decomposition serves every λ."""
    e, u = torch.linalg.eigh(total.a)
    u = u.contiguous()  # as a wire delivers it: other strides give other last bits
    return Path(e.clamp_min(0), u, u.T @ total.b, total.mass, total.z, total.y)


def head_of(path: Path, penalty: float) -> Head:
    """The head of one λ = ``penalty`` > 0.

    >>> z = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> path = decompose(centered(add_up(z, 3 * z, torch.ones(2))))
    >>> head_of(path, 1e-12).weight.round(decimals=6).tolist()
    [[3.0]]
    """
    weight = path.u @ (path.ub / shrunk(path, penalty)[:, None])
    bias = path.y - path.z @ weight
    return Head(weight, bias)


def shrunk(path: Path, penalty: float) -> Tensor:
    """The denominators d = e + λ n, (D,); above 0 also where there is no row, and the head is 0."""
    return (path.e + penalty * path.mass).clamp_min(TINY)


def validation_score(path: Path, penalty: float, squares: float, rows: int) -> float:
    """Generalized cross-validation, from totals alone: the mean squared error divided by
    (1 - degrees of freedom / rows)².  ``squares``: Σ s |y - ȳ|².

    Source: Golub, Heath and Wahba, 1979.

    Notes
    -----
    Degrees of freedom are shared by rows, whatever these weigh: divided by n = Σ s they would
    depend on the unit of the weights, and so would the best λ.
    """
    d = shrunk(path, penalty)
    n = float(path.mass)
    explained = (path.ub.square() * (2 / d - path.e / d.square())[:, None]).sum()
    error = (squares - float(explained)) / n
    left = max(1 - float(freedom(path, penalty)) / rows, EPS)
    return error / left**2


def freedom(path: Path, penalty: float) -> Tensor:
    """Degrees of freedom of the head, (): the sum of all leverages, one of the intercept."""
    return (path.e / shrunk(path, penalty)).sum() + 1


# -- leave-one-out --------------------------------------------------------------------------------


class LeftOut(NamedTuple):
    """One block of rows under one penalty: ``outputs`` (m, C) are those of the head that has not
    seen the row itself; ``rows`` says which of the site's rows they are, ``y`` (m, C) and ``s``
    (m,) are theirs, in float64."""

    penalty: int  # its place in the grid
    rows: Tensor
    outputs: Tensor
    y: Tensor
    s: Tensor


def leave_one_out(
    path: Path, z: Rows, y: Rows, s: Tensor, penalties: list[float]
) -> Iterator[LeftOut]:
    """What the head without row i answers to row i, for every row and penalty: exactly, without
    solving again.  z: (n, D) rows that are in the totals, y: (n, C), s: (n,)

    With r = (z - z̄) U the fitted answer is f = ȳ + r (ub / d), the leverage of the row is
    h = s (Σ r² / d + 1 / n), and without the row the answer is y - (y - f) / (1 - h), where λ n is
    that of all rows.
    """
    d = torch.stack([shrunk(path, penalty) for penalty in penalties], dim=1)  # (D, L)
    heads = torch.cat([path.ub / column[:, None] for column in d.T], dim=1)  # (D, L C)
    inverse = d.reciprocal()
    classes = y.shape[1]

    first = 0  # row of the block
    for z_rows, y_block, s_block in row_blocks(z, y, s):
        rows = torch.arange(first, first + len(z_rows))
        first += len(z_rows)
        r = (z_rows.double() - path.z) @ path.u  # (m, D)
        fitted = path.y + (r @ heads).view(len(rows), len(penalties), classes)
        s_rows = s_block.double()
        leverage = s_rows[:, None] * (r.square() @ inverse + 1 / path.mass)
        left = (1 - leverage).clamp_min(EPS)  # a lone row has leverage 1
        y_rows = y_block.double()
        for index in range(len(penalties)):
            away = (y_rows - fitted[:, index]) / left[:, index, None]
            yield LeftOut(index, rows, y_rows - away, y=y_rows, s=s_rows)


# -- one penalty alone -------------------------------------------------------------------------


class Solved(NamedTuple):
    """The totals under one λ: (a + λ n)⁻¹ = half half'.

    half (D, D); rotated = half'b (D, C); mass, z, y as in `Totals`.
    """

    half: Tensor
    rotated: Tensor
    mass: Tensor
    z: Tensor
    y: Tensor

    def head(self) -> Head:
        weight = self.half @ self.rotated
        return Head(weight, self.y - self.z @ weight)

    def leave_one_out(
        self, z: Tensor, y: Tensor, s: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Blocks of rows, (m,), and what the head without each answers to it, (m, C).

        Arguments and mathematics are those of `leave_one_out`, with r = (z - z̄) half.
        """
        for rows in torch.split(torch.arange(len(z)), BLOCK):
            r = (z[rows].double() - self.z) @ self.half  # (m, D)
            fitted = self.y + r @ self.rotated
            leverage = s[rows].double() * (r.square().sum(1) + 1 / self.mass)
            left = (1 - leverage).clamp_min(EPS)
            y_rows = y[rows].double()
            yield rows, y_rows - (y_rows - fitted) / left[:, None]


def solve_one(total: Totals, penalty: float) -> Solved:
    """The head of one λ > 0 and what tells its rows left out, by Cholesky: a quarter of the time of
    `decompose`, which serves every λ and is used where rounding leaves no square root.

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
    return Solved(half, half.T @ total.b, total.mass, total.z, total.y)


# -- what the grid of penalties loses -------------------------------------------------------------

MOST_AWAY = 10.0
"""How far an answer without its row may be from the truth, in what sites tell of it: a class is 0 or
1 and a number is in deviations.  Else one row could outweigh all others."""

PENALTIES = [10.0 ** (power / 2) for power in range(-12, 1)]  # λ: 1e-6, 3.2e-6, ..., 1
LOG_ROWS = 128  # rows of which all exponentials are held at once
TEMPERATURES = [1000.0 ** (step / 32) for step in range(33)]  # T: 1 ... 1000


def losses(
    path: Path, z: Rows, y: Rows, s: Tensor, penalties: list[float], is_class: bool
) -> dict[str, Tensor]:
    """Totals over one site's rows of what `leave_one_out` loses.

    squared (L,)   Σ s |y - left out|² for every penalty; of classes it is the Brier score
    right (L,)     Σ s over rows whose class has the largest output; of classes alone
    log (L, T)     Σ s of the log-loss of softmax(T times left out); of classes alone
    """
    squared = torch.zeros(len(penalties), dtype=torch.float64)
    right = torch.zeros(len(penalties), dtype=torch.float64)
    log = torch.zeros(len(penalties), len(TEMPERATURES), dtype=torch.float64)

    for values in leave_one_out(path, z, y, s, penalties):
        away = (values.y - values.outputs).clamp(-MOST_AWAY, MOST_AWAY)
        squared[values.penalty] += values.s @ away.square().sum(1)
        if is_class:
            outputs = values.y - away
            is_right = outputs.argmax(1) == values.y.argmax(1)
            right[values.penalty] += values.s @ is_right.double()
            log[values.penalty] += log_losses(outputs, values.y, values.s)

    if not is_class:
        return {"squared": squared}
    return {"squared": squared, "right": right, "log": log}


def log_losses(
    outputs: Tensor, y: Tensor, s: Tensor, before: Tensor | None = None
) -> Tensor:
    """Σ s of -log softmax(T output) at the true class, for every temperature, added to what was
    found ``before`` of other rows.  outputs, y: (n, C), y one-hot, s: (n,) -> (T,)"""
    # Less the largest output, all exponents are 0 or less, whatever the temperature is.
    away = outputs - outputs.amax(1, keepdim=True)  # (n, C)
    of_truth = (away * y).sum(1)
    found = s.new_zeros(len(TEMPERATURES))
    if before is not None:
        found += before
    temperatures = s.new_tensor(TEMPERATURES)
    for rows in torch.split(torch.arange(len(away)), LOG_ROWS):
        powers = (away[rows] * temperatures[:, None, None]).exp_()  # (T, b, C)
        log_total = powers.sum(2).log_()
        found += (log_total - temperatures[:, None] * of_truth[rows]) @ s[rows]
    return found
