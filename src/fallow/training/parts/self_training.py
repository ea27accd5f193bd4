"""Self-training of a ridge classifier from aggregates over sites.

A model predicts class probabilities P of unlabeled examples, and the next model minimizes

    Σ s |y - W'z - b|² + w Σ_u |p - W'z - b|² + λ n |W|²,

where the first sum and n = Σ s are over labeled examples and the second sum is over unlabeled ones.
P = softmax(T (W'z + b)) with the model before.  The result depends on the examples of all sites
together and their folds, which each site decides when a label arrives.

Related work: Yarowsky (ACL 1995); Lee (ICML workshop 2013) calls P pseudo-labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import ClientCall
from fallow.core.refusal import Refusal
from fallow.core.types import Values
from fallow.core.view import FOLDS, View
from fallow.training.parts.closed_form import (
    FeatureRows,
    Labeled,
    LabeledRows,
    SelectedPenalty,
)
from fallow.training.parts.ridge import (
    MOST_AWAY,
    TEMPERATURES,
    LinearHead,
    Totals,
    add_up,
    centered,
    head_of_solved,
    log_losses,
    mixed,
    row_blocks,
    shift_targets,
)


class Candidate(NamedTuple):
    """One form of self-training.

    weight: w, of an unlabeled example; temperature: T, or None for that of the model of labeled
    examples; passes: number of models that are solved for, one after the other.
    """

    weight: float
    temperature: float | None
    passes: int


CANDIDATES: Mapping[str, Candidate] = {
    "one-pass": Candidate(0.1, None, 1),
    "soft": Candidate(0.1, None, 3),
    "sharp": Candidate(1.0, 10.0, 3),
    "smooth": Candidate(0.1, 5.0, 3),
}
FORMS = ("off", *CANDIDATES)
"""Names by the position in a record: none, and the candidates."""
FEWEST_A_CLASS = 5
FEWEST = 50
"""Numbers of labels, per class with a label and in all, that cross-validation needs."""
STRICT = 1.0  # standard errors by which a candidate must be better than supervised training
EVEN = 1e-3  # examples: rounding of secure aggregation


class Validated(NamedTuple):
    """Cross-validation of candidates, with supervised training first.

    right (1 + K,)    weight of held-out examples whose class is predicted
    changed (1 + K,)  squared weight of those that only one of the candidate and supervised training
                      predicts: the variance of the difference in right
    log (1 + K, T)    log loss of every temperature, summed over them
    """

    right: Tensor
    changed: Tensor
    log: Tensor


# -- client side ----------------------------------------------------------------------------------


def take_fold(rows: LabeledRows, is_in: Tensor) -> Labeled:
    """Return the labeled examples of one fold.  is_in: (n,)"""
    z = []
    y = []
    for z_rows, y_rows, is_here in row_blocks(rows.z, rows.y, is_in):
        z.append(z_rows[is_here])
        y.append(y_rows[is_here])
    return Labeled(torch.cat(z), torch.cat(y), rows.s[is_in])


def sum_unlabeled(view: View, width: int, center: Tensor | None) -> Values:
    """Return the products of the unlabeled examples of a site, about ``center`` (D,)."""
    z = FeatureRows(view, "pool", width)
    nothing = torch.zeros(len(z), 0, dtype=torch.float64)
    ones = torch.ones(len(z), dtype=torch.float64)
    total = add_up(z, nothing, ones, center)
    return {
        "pool": float(len(z)),
        "features": total["features"],
        "products": total["products"],
    }


def sum_soft_labels(
    view: View,
    width: int,
    weight: Tensor,
    bias: Tensor,
    temperature: Tensor,
    center: Tensor | None,
) -> Values:
    """Return sums over unlabeled examples of probabilities, and of their products with features.

    weight: (S, D, C), bias: (S, C), temperature: (S,), of S models -> targets (S, C), cross
    (S, D, C), about ``center`` (D,).
    """
    models, _, classes = weight.shape
    heads = weight.permute(1, 0, 2).reshape(width, models * classes)
    targets = torch.zeros(models, classes, dtype=torch.float64)
    cross = torch.zeros(width, models * classes, dtype=torch.float64)
    for (rows,) in row_blocks(FeatureRows(view, "pool", width)):
        z = rows.double()
        outputs = (z @ heads).view(len(z), models, classes) + bias
        p = torch.softmax(temperature[:, None] * outputs, 2)  # (m, S, C)
        targets += p.sum(0)
        away = z if center is None else z - center
        cross += away.T @ p.flatten(1)
    return {
        "targets": targets,
        "cross": cross.view(width, models, classes).permute(1, 0, 2).contiguous(),
    }


def sum_held_out(rows: LabeledRows, folds: Tensor, weight: Tensor, bias: Tensor) -> Values:
    """Return sums over labeled examples of the fields of `Validated`, by models without their fold.

    folds: (n,), of the examples; weight: (K FOLDS, D, C), bias: (K FOLDS, C), of K kinds of models,
    supervised ones first.
    """
    models = len(weight)
    kinds = models // FOLDS
    if models % FOLDS or not kinds:
        raise Refusal(f"{models} models were received instead of {FOLDS} of each kind")
    right = torch.zeros(kinds, dtype=torch.float64)
    changed = torch.zeros(kinds, dtype=torch.float64)
    log = torch.zeros(kinds, len(TEMPERATURES), dtype=torch.float64)
    for z, y, s, at in row_blocks(rows.z, rows.y, rows.s, folds):
        for index in range(FOLDS):
            is_out = at == index
            z_out = z[is_out].double()
            y_out = y[is_out].double()
            s_out = s[is_out].double()
            hits = []
            for kind in range(kinds):
                model = kind * FOLDS + index
                away = y_out - z_out @ weight[model] - bias[model]
                outputs = y_out - away.clamp(-MOST_AWAY, MOST_AWAY)
                hits.append(outputs.argmax(1) == y_out.argmax(1))
                log[kind] += log_losses(outputs, y_out, s_out)
            are_right = torch.stack(hits)  # (K, m)
            right += are_right.double() @ s_out
            changed += (are_right != are_right[0]).double() @ s_out.square()
    return {"right": right, "changed": changed, "log": log}


# -- server side ----------------------------------------------------------------------------------


def has_enough(counts: Tensor) -> bool:
    """Return whether labels per class, (C,), are enough for cross-validation.

    >>> has_enough(torch.tensor([30.0, 25.0, 0.0])), has_enough(torch.tensor([4.0] * 20))
    (True, False)
    """
    labels = round(float(counts.sum()))
    classes = int((counts > 0.5).sum())
    return labels >= max(FEWEST, FEWEST_A_CLASS * classes)


def train_totals(total: Totals, held_out: Sequence[Totals]) -> list[Totals]:
    """Return the aggregates without each fold.  held_out: those of all folds but the last"""
    without = [mixed(total, fold, -1.0) for fold in held_out]
    rest = held_out[0]
    for fold in held_out[1:]:
        rest = mixed(rest, fold, 1.0)
    return [*without, rest]


class Mixture(NamedTuple):
    """Labeled and unlabeled examples, of weight w, with the decomposed matrix of their solution.

    root (D, D): Cholesky factor of a + λ n; mass and mean (D,) of all.
    """

    labeled: Totals
    unlabeled: Totals
    weight: float
    mass: Tensor
    mean: Tensor
    root: Tensor

    def solve(self, targets: Tensor, cross: Tensor, center: Tensor | None) -> LinearHead:
        """Return the solution, from the sums of soft labels, (C,) and (D, C) about ``center``."""
        away = self.unlabeled.z if center is None else self.unlabeled.z - center
        soft = self.unlabeled._replace(
            y=targets / self.unlabeled.mass,
            b=cross - torch.outer(away, targets),
        )
        y, b = shift_targets(self.labeled, soft, self.weight, self.mass, self.mean)
        return head_of_solved(torch.cholesky_solve(b, self.root), self.mean, y)


def mix(labeled: Totals, unlabeled: Totals, weight: float, penalty: float) -> Mixture:
    """Return the mixture with the penalty λ of labeled examples."""
    both = mixed(labeled, unlabeled, weight)
    both.a.diagonal().add_(penalty * labeled.mass)
    root = torch.linalg.cholesky(both.a)
    return Mixture(labeled, unlabeled, weight, both.mass, both.z, root)


def read_unlabeled(
    total: Mapping[str, Tensor], classes: int, center: Tensor | None
) -> Totals:
    """Return the aggregates of unlabeled examples, without targets, from `sum_unlabeled`."""
    size = len(total["features"])
    filled = {
        "n": total["pool"],
        "features": total["features"],
        "products": total["products"],
        "targets": torch.zeros(classes, dtype=torch.float64),
        "cross": torch.zeros(size, classes, dtype=torch.float64),
    }
    return centered(filled, center)


def train_candidates(
    ask: Ask,
    soft_labels: ClientCall,
    labeled: Sequence[Totals],
    start: Sequence[LinearHead],
    unlabeled: Totals,
    supervised: SelectedPenalty,
    center: Tensor | None,
) -> list[list[LinearHead]]:
    """Return the models of each of `CANDIDATES`, one for each of the aggregates ``labeled``.

    They ``start`` from supervised models, with λ and T of ``supervised``.  Candidates that differ in
    the number of passes alone share them.  Sites reply to ``soft_labels`` once per pass.
    """
    passes: dict[tuple[float, float], int] = {}
    for candidate in CANDIDATES.values():
        form = form_of(candidate, supervised)
        passes[form] = max(passes.get(form, 0), candidate.passes)
    mixtures = {}
    for weight, _ in passes:
        if weight not in mixtures:
            mixtures[weight] = [
                mix(totals, unlabeled, weight, supervised.penalty) for totals in labeled
            ]
    models = {form: [[*start]] for form in passes}  # by pass, and by aggregate
    for number in range(max(passes.values())):
        forms = [form for form in passes if passes[form] > number]
        heads = []
        temperatures = []
        for form in forms:
            heads += models[form][-1]
            temperatures += [form[1]] * len(labeled)
        result = sum_of_all(
            ask,
            soft_labels,
            None,
            **stack_heads(heads),
            temperature=torch.tensor(temperatures, dtype=torch.float64),
            center=center,
        )
        sums = zip(result["targets"], result["cross"], strict=True)
        for form in forms:
            solved = [mixture.solve(*next(sums), center) for mixture in mixtures[form[0]]]
            models[form].append(solved)
    return [
        models[form_of(candidate, supervised)][candidate.passes]
        for candidate in CANDIDATES.values()
    ]


def form_of(candidate: Candidate, supervised: SelectedPenalty) -> tuple[float, float]:
    """Return w and T of a candidate."""
    return candidate.weight, candidate.temperature or supervised.temperature


def choose_candidate(validated: Validated) -> int:
    """Return the position of the candidate to use; 0 is supervised training.

    A candidate must be better than supervised training by more than one standard error of the
    difference.  Of these, the one with the most held-out examples right is chosen, and the first of
    equal ones.
    """
    more = validated.right - validated.right[0]
    error = validated.changed.clamp_min(0).sqrt()
    best = 0
    for index in range(1, len(more)):
        is_better = more[index] > more[best] + EVEN
        if is_better and more[index] > STRICT * error[index] + EVEN:
            best = index
    return best


def stack_heads(heads: Sequence[LinearHead]) -> dict[str, Tensor]:
    """Return the models as arguments of a client function."""
    return {
        "weight": torch.stack([head.weight for head in heads]),
        "bias": torch.stack([head.bias for head in heads]),
    }
