"""Disclosure: examples that can be computed from what a study sends, measured by attacking it.

The attacker has the sums of a closed-form classifier over all sites, the final model, the fitted
encoder, and mean and standard deviation of each column.  The attacks are those of
`fallow.measurements.attacks`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, starmap
from typing import NamedTuple, final

import numpy as np
import torch

from fallow.core.methods import Encoder
from fallow.core.types import State, Values
from fallow.encoders.base import EMPTY_CELLS, Exportable
from fallow.encoders.fourier import Fourier, draw_waves
from fallow.encoders.identity import Identity
from fallow.measurements.attacks import (
    MOST_ROWS,
    TOLERANCE,
    Array,
    ClippedFeatures,
    CosineFeatures,
    FeatureMap,
    LinearFeatures,
    Mask,
    NetworkFeatures,
    Search,
    WithConstant,
    read_columns,
    read_head,
    read_levels,
    read_products,
    read_sum,
)
from fallow.measurements.meter import SAFE_RATIO
from fallow.measurements.results import AttackResult
from fallow.training.parts import adassp
from fallow.training.parts.ridge import unpack_triangle

NEAR = 0.25
"""A row is recognizable if its error is below this share of the distance to other rows."""
STEPS = 200  # of one descent
STEPS_OF_IMAGES = 1_000
MOST_LEVELS = 5
"""Values of a column up to which an attacker tries each of them, as for a category or a code."""
MOST_LEVEL_ROWS = 24
"""Rows up to which columns are read by their levels."""
CLASS_ROWS = 20
"""Rows of a class up to which the sum of its features is attacked."""
TINY = 1e-300
COMPARED = 500  # rows whose distance to the nearest other one is measured
OF_POOL = "products of all examples"
"""Name of the attack on sums over labeled and unlabeled examples."""
OF_MODEL = "model alone"
"""Name of the attack on the weights of the final model."""
MOST_ATTACKS = 9
NO_COUNTS: Array = np.zeros(0)


# -- what an attacker holds -------------------------------------------------------------------


class Aggregates(NamedTuple):
    """Sums over the labeled examples of all sites, from one training phase.

    products (D + 1, D + 1): Σ [phi, constant] [phi, constant]'; classes (D, C): Σ phi y'.
    is_clipped: phi are clipped features, with noise in the sums.  is_signed: sums of rows that left
    are subtracted.  counts (C,): examples of each class; empty if they are not known.
    """

    rows: int
    products: Array
    classes: Array
    constant: float = 1.0
    is_clipped: bool = False
    is_signed: bool = False
    counts: Array = NO_COUNTS

    @property
    def numbers(self) -> int:
        """Number of different numbers in the sums."""
        width = len(self.products)
        return width * (width + 1) // 2 + self.classes.size


class Phase(NamedTuple):
    """Sums of one training phase, with the true examples (n, p) and their classes (n,)."""

    sums: Aggregates
    rows: Array
    labels: Array


@final
@dataclass(frozen=True)
class Observed:
    """Everything that an attacker holds after a run, with the true examples to compare with.

    folds: sums of the last phase by fold of cross-validation.  pool: products of all examples,
    labeled or not, which self-training sends.  head: (D, C) weights of the final model, or None.
    levels: possible values of each column, if they are few (`find_levels`).
    others: labeled examples of other sites that the model was trained on besides those of the phases.
    similar: (m, p) examples of the same kind that the attacker knows.  seconds: limit of CPU time
    of one attack.  notify: receives the name of an attack, rows found and rows searched for.
    """

    features: FeatureMap
    phases: Sequence[Phase]
    folds: Sequence[Phase] = ()
    pool: Phase | None = None
    head: Array | None = None
    others: int = 0
    levels: Sequence[Array] = ()
    similar: Array | None = None
    seconds: float = 30.0
    notify: Callable[[str, int, int], None] = lambda attack, read, rows: None


class Attempt(NamedTuple):
    """Result of an attack, its candidates (m, p) and the true examples (n, p), in standard units."""

    result: AttackResult
    candidates: Array
    rows: Array


def select_sums(aggregates: Sequence[Values]) -> Values:
    """Return the aggregate over most examples that can be attacked; {} without any."""
    chosen: Values = {}
    for sums in aggregates:
        if can_be_attacked(sums) and count_rows(sums) >= count_rows(chosen):
            chosen = sums
    return chosen


def can_be_attacked(sums: Values) -> bool:
    """Return whether an aggregate has products of labeled examples, exact or with noise."""
    return "noisy" in sums or {"products", "cross"} <= sums.keys()


def count_rows(sums: Values) -> int:
    """Return the number of examples in an aggregate."""
    return round(float(torch.as_tensor(sums.get("rows", 0))))


def read_aggregates(sums: Values, outputs: int) -> Aggregates | None:
    """Return the sums of a closed-form model from an aggregate; None for other aggregates.

    sums: reply of `ClosedForm.totals` or of `ClosedForm.noisy_totals`, over all sites; outputs:
    of the model.
    """
    rows = count_rows(sums)
    if "noisy" in sums:
        total = torch.as_tensor(sums["noisy"])
        width = _width_of_noisy(len(total) - adassp.ZEROS, outputs)
        noisy = adassp.read_products(total, width * outputs)
        return Aggregates(
            rows=rows,
            products=noisy.a.numpy(),
            classes=noisy.b[:-1].numpy(),
            constant=math.sqrt(adassp.CONSTANT),
            is_clipped=True,
        )
    if "products" not in sums or "cross" not in sums:
        return None
    products = _read_products(sums, "n")
    cross = torch.as_tensor(sums["cross"]).numpy()
    counts = NO_COUNTS
    if outputs > 1 and "targets" in sums:
        counts = torch.as_tensor(sums["targets"]).numpy()
    return Aggregates(rows, products, cross, counts=counts)


def read_pool(sums: Values) -> Aggregates:
    """Return the products of all examples from a reply of `ClosedForm.example_totals`."""
    products = _read_products(sums, "rows")
    return Aggregates(count_rows(sums), products, np.zeros((len(products) - 1, 0)))


def _read_products(sums: Values, mass: str) -> Array:
    """Return Σ [phi, 1] [phi, 1]', (D + 1, D + 1).  mass: name of the sum of weights."""
    total = torch.as_tensor(sums["features"])
    products = unpack_triangle(torch.as_tensor(sums["products"]), len(total))
    last = torch.cat([total, torch.as_tensor(sums[mass], dtype=total.dtype)[None]])
    whole = torch.cat([torch.cat([products, total[None]]), last[:, None]], dim=1)
    return np.asarray(whole.numpy())


def _width_of_noisy(numbers: int, outputs: int) -> int:
    """Return W of W (W + 1) / 2 + W outputs numbers."""
    half = outputs + 0.5
    return round(math.sqrt(half * half + 2 * numbers) - half)


def units_of(columns: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return mean and unit of columns (n, p), (p,) each.

    The unit is the standard deviation, which pixels of an image (``shape`` of several dimensions)
    share.  That of a constant column is 1: it may vary at other sites, and is then unknown as well.
    """
    std = columns.std(0)
    if len(shape) > 1:
        std = np.full_like(std, columns.std())
    return columns.mean(0), np.where(std > 0, std, 1.0)


def find_levels(columns: Array) -> list[Array]:
    """Return the values of each column (n, p) that has few; an attacker knows them by the schema."""
    levels = []
    for column in columns.T:
        values = np.unique(column)
        if len(values) > MOST_LEVELS:
            values = np.zeros(0)
        levels.append(values)
    return levels


def is_differentiable(encoder: Encoder) -> bool:
    """Return whether examples, and not only their features, can be attacked by gradients."""
    return isinstance(encoder, Exportable)


def differentiate(
    encoder: Encoder | None,
    state: State | None,
    scale: State | None,
    shape: tuple[int, ...],
    mean: Array,
    std: Array,
) -> FeatureMap:
    """Return the features of examples in standard units as a differentiable map.

    Parameters
    ----------
    encoder, state : Encoder and State, or None
        Fitted encoder.
    scale : State or None
        Mean and standard deviation of features; None without scaling.
    shape : tuple of int
        Shape of an example before encoding.
    mean, std : ndarray of shape (p,)
        Units of examples.  With an encoder that has no gradient, such as one of texts, they are
        those of its features, which are attacked instead of the examples.
    """
    if isinstance(encoder, Fourier) and state is not None:
        center, divisor = _units(scale, encoder.features)
        normal, phase = draw_waves(encoder.seed, encoder.features, len(mean))
        spread = state["spread"].numpy()
        per_column = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        w = (normal / state["length"]).float().double().numpy() * per_column
        shift = (2 * math.pi * phase).float().double().numpy()
        shift = shift + w @ (mean - state["center"].numpy())
        height = math.sqrt(2 / encoder.features)
        return CosineFeatures(w * std, shift, height, center, divisor)
    is_encoded = encoder is not None and not isinstance(encoder, Identity)
    if is_encoded and isinstance(encoder, Exportable) and state is not None:
        fitted = {name: value for name, value in state.items() if name != EMPTY_CELLS}
        network = encoder.network(shape, fitted).eval()
        center, divisor = _units(scale, encoder.width(shape))
        return NetworkFeatures(network, shape, mean, std, center, divisor)
    center, divisor = _units(scale, len(mean))
    return LinearFeatures(std / divisor, (mean - center) / divisor, -mean / std)


def _units(scale: State | None, width: int) -> tuple[Array, Array]:
    """Return mean and standard deviation of features, (width,); a constant feature becomes 0."""
    if scale is None:
        return np.zeros(width), np.ones(width)
    std = scale["std"].double().numpy()
    return scale["mean"].double().numpy(), np.where(std > 0, std, np.inf)


# -- attacks ----------------------------------------------------------------------------------


def attack(observed: Observed) -> list[Attempt]:
    """Attack everything that an attacker holds after a run, and compare with the true examples."""
    phases = observed.phases
    results = []
    if phases:
        first = phases[0]
        results += [
            _attack_products("first products", observed, first.sums, first.rows),
            _attack_class_sums("first class sums", observed, first),
        ]
    if len(phases) > 1:
        before, last = phases[-2:]
        added = subtract(before, last)
        results += [
            _attack_products("difference of products", observed, added.sums, added.rows),
            _attack_class_sums("difference of class sums", observed, added),
            _attack_products("last products", observed, last.sums, last.rows),
        ]
    if len(phases) > 2:
        added_by_phase = (phases[0], *starmap(subtract, pairwise(phases)))
        results.append(_attack_parts("all releases", observed, added_by_phase))
    if observed.folds:
        results.append(_attack_parts("folds of the last labels", observed, observed.folds))
    if observed.pool is not None:
        pool = observed.pool
        results.append(_attack_products(OF_POOL, observed, pool.sums, pool.rows))
    if phases and observed.head is not None:
        results.append(_attack_head(OF_MODEL, observed, observed.head, phases[-1].rows))
    return results


def subtract(before: Phase, after: Phase) -> Phase:
    """Return the sums over the rows that differ between two phases, and these rows.

    The sums of rows that left are subtracted.
    """
    known = {row.tobytes() for row in before.rows}
    kept = {row.tobytes() for row in after.rows}
    is_new = np.array([row.tobytes() not in known for row in after.rows], dtype=bool)
    has_left = np.array([row.tobytes() not in kept for row in before.rows], dtype=bool)
    n_left = int(has_left.sum())
    sums = after.sums._replace(
        rows=max(after.sums.rows - before.sums.rows + 2 * n_left, 0),
        is_signed=n_left > 0,
        products=after.sums.products - before.sums.products,
        classes=after.sums.classes - before.sums.classes,
        counts=after.sums.counts - before.sums.counts,
    )
    rows = np.concatenate([after.rows[is_new], before.rows[has_left]])
    labels = np.concatenate([after.labels[is_new], before.labels[has_left]])
    return Phase(sums, rows, labels)


def _attack_products(
    name: str, observed: Observed, sums: Aggregates, rows: Array
) -> Attempt:
    """Read examples from products, if there are fewer of them than features."""
    started = time.process_time()
    candidates = np.zeros((0, rows.shape[1]))
    if sums.rows < len(sums.products):
        features = WithConstant(_sent_features(observed, sums), sums.constant)
        candidates = read_products(
            features,
            sums.products,
            sums.rows,
            _search(observed, name),
            is_signed=sums.is_signed,
        )
    if isinstance(observed.features, LinearFeatures) and not sums.is_clipped:
        alone = read_columns(observed.features, sums.products, sums.constant)
        candidates = np.concatenate([candidates, alone])
        are_few = 0 < sums.rows <= MOST_LEVEL_ROWS and not sums.is_signed
        if are_few and observed.levels:
            of_classes = None
            if len(sums.counts):
                counted = sums.constant * sums.counts[None]
                of_classes = np.concatenate([sums.classes, counted])
            by_level = read_levels(
                observed.features,
                sums.products,
                sums.constant,
                sums.rows,
                observed.levels,
                _search(observed, name),
                of_classes,
            )
            candidates = np.concatenate([candidates, by_level])
    return _compare(observed, name, candidates, rows, sums.numbers, started)


def _attack_class_sums(name: str, observed: Observed, phase: Phase) -> Attempt:
    """Read examples from the sum of features of each class alone, without products."""
    sums, rows, labels = phase
    started = time.process_time()
    search = _search(observed, name)
    features = _sent_features(observed, sums)
    totals = [sums.products[:-1, -1] / sums.constant]  # of numbers: a single class
    counts = [len(rows)]
    if sums.classes.shape[1] > 1:
        totals = list(sums.classes.T)
        counts = np.bincount(labels.astype(int), minlength=len(totals)).tolist()
    candidates = [np.zeros((0, rows.shape[1]))]
    for total, count in zip(totals, counts, strict=True):
        is_enough = len(total) >= SAFE_RATIO * count * rows.shape[1]
        are_few = 0 < count <= CLASS_ROWS and not sums.is_signed
        if are_few and is_enough and not search.is_over:
            candidates.append(read_sum(features, total, count, search))
    return _compare(
        observed, name, np.concatenate(candidates), rows, sums.classes.size, started
    )


def _attack_parts(name: str, observed: Observed, parts: Sequence[Phase]) -> Attempt:
    """Read examples from sums over parts of them: what each phase added, or each fold."""
    started = time.process_time()
    one = replace(observed, seconds=observed.seconds / (2 * len(parts)))
    candidates = []
    numbers = 0
    for part in parts:
        of_products = _attack_products(name, one, part.sums, part.rows)
        of_classes = _attack_class_sums(name, one, part)
        candidates += [of_products.candidates, of_classes.candidates]
        numbers += part.sums.numbers
    together = np.concatenate(candidates)
    return _compare(observed, name, together, observed.phases[-1].rows, numbers, started)


def _attack_head(name: str, observed: Observed, head: Array, rows: Array) -> Attempt:
    """Read examples from the weights of the final model alone."""
    started = time.process_time()
    outputs = max(head.shape[1] - 1, 1)  # those of all classes add up to a constant
    trained = len(rows) + observed.others
    unknowns = trained * (rows.shape[1] + outputs)
    numbers = len(head) * outputs
    candidates = np.zeros((0, rows.shape[1]))
    if trained <= MOST_ROWS and numbers >= SAFE_RATIO * unknowns:
        search = _search(observed, name)
        candidates = read_head(observed.features, head, trained, search)
    return _compare(observed, name, candidates, rows, numbers, started, unknowns)


def _sent_features(observed: Observed, sums: Aggregates) -> FeatureMap:
    """Return the features whose sums were sent, which are clipped if there is noise."""
    if not sums.is_clipped:
        return observed.features
    return ClippedFeatures(observed.features, math.sqrt(1 - adassp.CONSTANT))


def _search(observed: Observed, name: str) -> Search:
    def notify(read: int, rows: int) -> None:
        observed.notify(name, read, rows)

    steps = STEPS_OF_IMAGES if isinstance(observed.features, NetworkFeatures) else STEPS
    return Search(
        steps=steps, similar=observed.similar, seconds=observed.seconds, notify=notify
    )


def _compare(
    observed: Observed,
    name: str,
    candidates: Array,
    rows: Array,
    numbers: int,
    started: float,
    unknowns: int | None = None,
) -> Attempt:
    """Return which true rows (n, p) the candidates (m, p) of an attack are."""
    aligned = candidates
    if isinstance(observed.features, NetworkFeatures) and observed.features.is_of_images:
        aligned = observed.features.align(candidates, rows)
    return compare_values(name, aligned, rows, numbers, started, unknowns=unknowns)


def compare_values(
    name: str,
    candidates: Array,
    rows: Array,
    numbers: int,
    started: float,
    *,
    unknowns: int | None = None,
    is_read: Mask | None = None,
) -> Attempt:
    """Return the result of an attack: true rows (n, p) against its candidates (m, p).

    is_read (n,): which rows were read, if not those within the tolerance.
    """
    farthest, root = match_rows(candidates, rows)
    if is_read is None:
        is_read = farthest <= TOLERANCE
    seconds = time.process_time() - started
    result: AttackResult = {
        "attack": name,
        "rows": len(rows),
        "numbers": numbers,
        "unknowns": rows.size if unknowns is None else unknowns,
        "read": int(is_read.sum()),
        "near": int((root <= NEAR * _typical_distance(rows)).sum()),
        "error": float(farthest[is_read].max()) if is_read.any() else None,
        "seconds": seconds,
    }
    return Attempt(result, candidates, rows)


def match_rows(candidates: Array, rows: Array) -> tuple[Array, Array]:
    """Return the errors of the nearest candidates (m, p) of each row (n, p).

    These are the smallest of the largest errors of a column, (n,), and the smallest root mean
    square error, (n,); infinite without candidates.
    """
    farthest = np.full(len(rows), np.inf)
    root = np.full(len(rows), np.inf)
    for position, row in enumerate(rows):
        if len(candidates):
            away = np.abs(candidates - row)
            farthest[position] = away.max(1).min()
            root[position] = np.sqrt((away * away).mean(1).min())
    return farthest, root


def _typical_distance(rows: Array) -> float:
    """Return the median over rows of the distance to the nearest other row, root mean square."""
    if len(rows) < 2:
        return 1.0  # two independent rows are √2 apart
    nearest = []
    for position, row in enumerate(rows[:COMPARED]):
        others = np.delete(rows, position, axis=0)
        nearest.append(math.sqrt(float(((others - row) ** 2).mean(1).min())))
    return float(np.median(nearest))
