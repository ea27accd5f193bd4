"""Closed-form classifiers that also learn from unlabeled examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from torch import Tensor
from torch.nn.functional import one_hot
from torch.testing import assert_close

from fallow.core.client import declared, find_wrong_argument
from fallow.core.refusal import Refusal
from fallow.core.streams import stream
from fallow.core.values import SenderFacts
from fallow.core.view import FOLDS
from fallow.sites.folds import FoldAssignment
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.training import ClosedForm
from fallow.training.parts.ridge import (
    LinearHead,
    add_up,
    centered,
    decompose,
    mixed,
    predict,
    rotate,
    rotate_back,
    solve_head,
)
from fallow.training.parts.self_training import (
    find_neighbors,
    has_enough,
    measure_change,
    prepare_examples,
)
from fallow.transport.serialized import SerializingChannel
from tests.each import each_of
from tests.training.closed import CLASSES, Hospitals, Rows, hospitals, weights_of

Array = NDArray[np.float64]
FEATURES = 48
LABELED = 80
FEW = 40
UNLABELED = 300
PLAIN = ClosedForm(unlabeled="off")
PARTS = (range(0, 25), range(25, 31), range(31, LABELED))


def clusters(
    seed: int = 0, spread: float = 1.5, features: int = FEATURES
) -> tuple[Rows, Tensor]:
    """Return labeled and unlabeled examples around one mean per class."""
    draw = stream(seed, "clusters")
    n = LABELED + UNLABELED
    y = torch.randint(CLASSES, (n,), generator=draw)
    means = torch.randn(CLASSES, features, generator=draw, dtype=torch.float64)
    z = means[y] + spread * torch.randn(n, features, generator=draw, dtype=torch.float64)
    z = z / features**0.5
    ones = torch.ones(LABELED, dtype=torch.float64)
    return Rows(z[:LABELED], y[:LABELED], ones), z[LABELED:]


def first(rows: Rows, n: int) -> Rows:
    return Rows(rows.z[:n], rows.y[:n], rows.s[:n])


def sites_of(
    rows: Rows,
    unlabeled: Tensor,
    parts: Sequence[Sequence[int]] = (range(LABELED),),
    method: ClosedForm | None = None,
    secure: bool = False,
    carried: type[InProcessChannel] | type[SerializingChannel] = InProcessChannel,
) -> Hospitals:
    """Return sites with these labeled examples; unlabeled ones are assigned in turn.

    An example has the fold that it has at one site with all examples.
    """
    sites = hospitals(
        rows,
        method or ClosedForm(),
        parts,
        secure=secure,
        carried=carried,
        unlabeled=[unlabeled[index :: len(parts)] for index in range(len(parts))],
    )
    folds = folds_of(rows)
    for site, part in zip(sites.members.values(), parts, strict=True):
        site.fold[: len(part)] = folds[list(part)]
    return sites


def folds_of(rows: Rows) -> Tensor:
    """Return the folds of labeled examples of one site, (n,)."""
    lines = [Label(row, float(y), 0) for row, y in enumerate(rows.y)]
    labels = FoldAssignment(0, "a", CLASSES).assign(lines)
    return torch.tensor([label.fold for label in labels], dtype=torch.int64)


@each_of(
    "labels, features, has_center",
    [(20, 48, False), (20, 48, True), (80, 12, False), (80, 12, True), (20, 19, False)],
)
def test_products_in_coordinates_of_the_path_give_the_models_without_a_fold(
    labels: int, features: int, has_center: bool
) -> None:
    draw = stream(0, "coordinates", labels, features)
    z = torch.randn(labels, features, generator=draw, dtype=torch.float64) + 3
    z[-1] = z[0]  # a duplicate
    y = one_hot(torch.randint(CLASSES, (labels,), generator=draw), CLASSES).double()
    s = torch.rand(labels, generator=draw, dtype=torch.float64) + 0.5
    center = z.mean(0) + 0.1 if has_center else None
    part = slice(0, labels // 5)
    total = centered(add_up(z, y, s, center), center)
    axes, whole = rotate(decompose(total), center)
    assert axes.shape[1] <= min(labels - 1, features)
    away = z if center is None else z - center
    fold = centered(add_up(away[part] @ axes, y[part], s[part]))
    own = centered(add_up(z[part], y[part], s[part], center), center)
    for penalty in (1e-6, 1e-2):
        head = rotate_back(solve_head(mixed(whole, fold, -1.0), penalty), axes, center)
        expected = solve_head(mixed(total, own, -1.0), penalty)
        assert_close(predict(z, head), predict(z, expected), rtol=0, atol=1e-8)


# -- the reference: the formulas, in NumPy ----------------------------------------------


class Model(NamedTuple):
    weight: Array  # (D, C)
    bias: Array  # (C,)

    def predict(self, z: Array) -> Array:
        return z @ self.weight + self.bias


def softmax(outputs: Array) -> Array:
    powers = np.exp(10 * (outputs - outputs.max(1, keepdims=True)))
    return normalized(powers)


def normalized(q: Array) -> Array:
    result: Array = q / q.sum(1, keepdims=True)
    return result


def fit(z: Array, y: Array, alpha: float) -> Model:
    ridge = Ridge(alpha=alpha, solver="svd").fit(z, y)
    return Model(ridge.coef_.T, ridge.intercept_)


def similarities(z: Array, directions: Array) -> Array:
    """Return the matrix S of one site."""
    reduced = z @ directions
    reduced = reduced / np.linalg.norm(reduced, axis=1, keepdims=True)
    cosines = reduced @ reduced.T
    np.fill_diagonal(cosines, -np.inf)
    weights = np.zeros_like(cosines)
    for row, of_row in enumerate(cosines):
        for column in np.argsort(-of_row)[:10]:
            weights[row, column] = max(of_row[column], 0) ** 4
    weights = weights + weights.T
    degrees = weights.sum(1)
    normal: Array = weights / np.sqrt(np.outer(degrees, degrees))
    return normal


class Part(NamedTuple):
    """Examples of one site, the labeled ones last, with their labels, (n,)."""

    z: Array
    y: NDArray[np.int64]


def self_train(
    parts: Sequence[Part], known: Sequence[Sequence[NDArray[np.bool_]]], plain: list[Model]
) -> list[Model]:
    """Return the models of all examples after up to eight passes.

    known: labels that each model uses, by site.  The outputs of no model change in the last pass.
    """
    z = np.concatenate([part.z for part in parts])
    directions = np.linalg.eigh(z.T @ z)[1][:, -64:]
    graphs = [similarities(part.z, directions) for part in parts]

    def fix(p: Array, at: int, labels: NDArray[np.bool_]) -> Array:
        fixed = p.copy()
        part = parts[at]
        rows = np.flatnonzero(labels) + len(part.z) - len(part.y)
        fixed[rows] = np.eye(CLASSES)[part.y[labels]]
        return fixed

    def spread(p: Array, at: int) -> Array:
        q = p
        for _ in range(8):
            q = 0.8 * graphs[at] @ q + 0.2 * p
        return normalized(normalized(q) ** 2)

    anchors = [[softmax(one.predict(part.z)) for part in parts] for one in plain]
    wanted = []
    shares = []
    for own, of_sites in zip(known, anchors, strict=True):
        starts = [fix(p, at, own[at]) for at, p in enumerate(of_sites)]
        roots = np.concatenate(starts).mean(0) ** 0.5
        wanted.append(roots / roots.sum())
        shares.append(
            np.concatenate([spread(p, at) for at, p in enumerate(starts)]).mean(0)
        )
    models = plain
    for _ in range(8):
        before = models
        models = []
        changes = []
        for number, model in enumerate(before):
            smoothed = []
            targets = []
            for at, part in enumerate(parts):
                labels = known[number][at]
                guessed = softmax(model.predict(part.z))
                p = fix(0.3 * guessed + 0.7 * anchors[number][at], at, labels)
                q = spread(p, at)
                smoothed.append(q)
                weighed = normalized(q * wanted[number] / np.maximum(shares[number], 1e-4))
                targets.append(fix(weighed, at, labels))
            shares[number] = np.concatenate(smoothed).mean(0)
            models.append(fit(z, np.concatenate(targets), 0.03))
            away = models[number].predict(z) - model.predict(z)
            changes.append(((away - away.mean(0)) ** 2).sum(1).mean())
        if max(changes) < 5e-5:
            break
    return models


def mixture(smoothed: Model, plain: Model, v: float) -> Model:
    return Model(
        (1 - v) * smoothed.weight + v * plain.weight,
        (1 - v) * smoothed.bias + v * plain.bias,
    )


def parts_of(
    rows: Rows, unlabeled: Tensor, division: Sequence[Sequence[int]]
) -> list[Part]:
    parts = []
    for index, at in enumerate(division):
        own = rows.z[list(at)]
        both = torch.cat([unlabeled[index :: len(division)], own])
        parts.append(Part(both.numpy(), rows.y[list(at)].numpy()))
    return parts


def assert_model(state: dict[str, Tensor], expected: Model) -> None:
    weight, bias = weights_of(state)
    temperature = state["temperature"]
    assert_close(weight / temperature, torch.from_numpy(expected.weight), rtol=0, atol=1e-8)
    assert_close(bias / temperature, torch.from_numpy(expected.bias), rtol=0, atol=1e-8)


@pytest.mark.parametrize("division", [PARTS, (range(0, 40), [], range(40, 80))])
def test_with_few_labels_it_is_the_formula_with_a_weight_by_their_number(
    division: tuple[Sequence[int], ...],
) -> None:
    rows, unlabeled = clusters()
    few = first(rows, FEW)
    own = [[at for at in part if at < FEW] for part in division]
    state = sites_of(few, unlabeled, own).solve()
    supervised = sites_of(few, unlabeled, own, PLAIN).solve()
    penalty = float(supervised["penalty"])
    plain = fit(few.z.numpy(), np.eye(CLASSES)[few.y.numpy()], penalty * FEW)
    parts = parts_of(few, unlabeled, own)
    everything = [np.ones(len(part.y), bool) for part in parts]
    (smoothed,) = self_train(parts, [everything], [plain])
    v = FEW / (FEW + 5 * CLASSES)
    assert_model(state, mixture(smoothed, plain, v))
    assert float(state["unlabeled"]) == pytest.approx(1 - v)
    assert "unlabeled_gain" not in state
    for name in ("penalty", "temperature", "left_out"):
        assert torch.equal(state[name], supervised[name])


@pytest.mark.parametrize(("spread", "features"), [(1.5, 48), (4.0, 48), (4.0, 240)])
def test_with_more_labels_five_folds_choose_the_weight(
    spread: float, features: int
) -> None:
    rows, unlabeled = clusters(0, spread, features)
    state = sites_of(rows, unlabeled, PARTS).solve()
    penalty = float(state["penalty"])
    z = rows.z.numpy()
    y = np.eye(CLASSES)[rows.y.numpy()]
    parts = parts_of(rows, unlabeled, PARTS)
    fold = folds_of(rows).numpy()
    known = [np.ones(LABELED, bool), *(fold != index for index in range(FOLDS))]
    plain = [fit(z[rows], y[rows], penalty * rows.sum()) for rows in known]
    smoothed = self_train(
        parts, [[rows[list(at)] for at in PARTS] for rows in known], plain
    )

    v = LABELED / (LABELED + 5 * CLASSES)
    outputs = {weight: np.zeros_like(y) for weight in (1.0, v, 0.0)}
    for index in range(FOLDS):
        held_out = fold == index
        for weight in outputs:
            model = mixture(smoothed[1 + index], plain[1 + index], weight)
            outputs[weight][held_out] = model.predict(z[held_out])
    losses = {weight: ((softmax(p) - y) ** 2).sum() for weight, p in outputs.items()}
    best = min(losses, key=lambda weight: losses[weight])

    assert_model(state, mixture(smoothed[0], plain[0], best))
    assert float(state["unlabeled"]) == pytest.approx(1 - best)
    hits = {weight: (p.argmax(1) == rows.y.numpy()).mean() for weight, p in outputs.items()}
    assert float(state["unlabeled_gain"]) == pytest.approx(hits[best] - hits[1.0])


def test_the_model_that_changes_most_decides_on_the_end() -> None:
    before = LinearHead(torch.zeros(2, 1), torch.zeros(1))
    after = LinearHead(torch.ones(2, 1), torch.zeros(1))
    assert measure_change(torch.eye(2), 4, [before, before], [before, after]) == 0.5


# -- properties ------------------------------------------------------------------------


def test_it_depends_on_the_distribution_over_sites() -> None:
    rows, unlabeled = clusters()
    few = first(rows, FEW)
    whole = sites_of(few, unlabeled, [range(FEW)]).solve()
    shared = sites_of(few, unlabeled, [range(0, 20), range(20, FEW)]).solve()
    assert (shared["w"] - whole["w"]).abs().max() > 1e-3


def test_a_large_site_compares_every_third_example_with_one_another() -> None:
    z = clusters()[1][:31]
    cosines, at = find_neighbors(z, largest=12)
    for group in range(3):
        expected = find_neighbors(z[group::3])
        assert torch.equal(at[group::3], group + 3 * expected[1][:, : at.shape[1]])
        assert_close(cosines[group::3], expected[0][:, : at.shape[1]])


def test_centered_features_give_the_same_model() -> None:
    rows, unlabeled = clusters()
    plain = sites_of(rows, unlabeled, PARTS).solve()
    method = ClosedForm(passes=2)
    centered = sites_of(rows, unlabeled, PARTS, method).solve()
    assert_close(centered["w"], plain["w"], rtol=0, atol=1e-8)


def test_secure_aggregation_gives_the_same_model() -> None:
    rows, unlabeled = clusters(0, 4.0)
    plain = sites_of(rows, unlabeled, PARTS).solve()
    masked = sites_of(rows, unlabeled, PARTS, secure=True).solve()
    assert_close(masked["w"], plain["w"], rtol=1e-4, atol=1e-3)
    for name in ("unlabeled", "penalty", "temperature"):
        assert_close(masked[name], plain[name], rtol=1e-12, atol=0)


def test_it_is_the_same_as_bytes() -> None:
    rows, unlabeled = clusters()
    plain = sites_of(rows, unlabeled, PARTS).solve()
    bytes_of = sites_of(rows, unlabeled, PARTS, carried=SerializingChannel).solve()
    assert torch.equal(bytes_of["w"], plain["w"])


@each_of("settings", [{"balance": "class"}, {"reveal": "head"}, {"penalty": 0.01}])
def test_it_works_with_other_settings(settings: dict[str, object]) -> None:
    rows, unlabeled = clusters()
    method = ClosedForm(**settings)  # type: ignore[arg-type]
    state = sites_of(rows, unlabeled, PARTS, method).solve()
    weight, bias = weights_of(state)
    assert ((rows.z @ weight + bias).argmax(1) == rows.y).double().mean() > 0.9


def test_it_gains_accuracy_where_classes_are_clusters() -> None:
    gained = []
    for seed in range(4):
        rows, unlabeled = clusters(seed, 3.0)
        draw = stream(seed, "clusters")
        truth = torch.randint(CLASSES, (LABELED + UNLABELED,), generator=draw)[LABELED:]
        scores = []
        for method in (PLAIN, ClosedForm()):
            state = sites_of(first(rows, 20), unlabeled, [range(20)], method).solve()
            weight, bias = weights_of(state)
            is_right = (unlabeled @ weight + bias).argmax(1) == truth
            scores.append(float(is_right.double().mean()))
        gained.append(scores[1] - scores[0])
    assert np.mean(gained) > 0.03
    assert min(gained) > 0


# -- when the supervised model is kept -------------------------------------------------


@each_of("features, unlabeled", [(9 * CLASSES, UNLABELED), (FEATURES, 0)])
def test_the_supervised_model_stays_with_few_features_or_without_unlabeled_examples(
    features: int, unlabeled: int
) -> None:
    rows, more = clusters(features=features)
    parts = [range(0, 10), range(10, LABELED)]
    state = sites_of(rows, more[:unlabeled], parts).solve()
    supervised = sites_of(rows, more[:unlabeled], parts, PLAIN).solve()
    assert torch.equal(state["w"], supervised["w"])
    assert float(state.get("unlabeled", 0)) == 0


def test_without_any_label_the_model_stays() -> None:
    rows, unlabeled = clusters()
    state = sites_of(rows, unlabeled, [[], []]).solve()
    assert state["w"].abs().max() == 0


def test_few_labels_of_any_class_are_counted_by_class_and_in_all() -> None:
    assert has_enough(torch.tensor([25.0, 25.0]))
    assert not has_enough(torch.tensor([24.0, 25.0]))
    assert has_enough(torch.tensor([60.0, 3.0, 0.0]))
    assert not has_enough(torch.full((20,), 4.0))


# -- refusals --------------------------------------------------------------------------


@each_of(
    "method, features, classes, text",
    [
        (
            ClosedForm(),
            40,
            4,
            "self-training on unlabeled examples in up to 17 more exchanges",
        ),
        (ClosedForm(), 39, 4, "no self-training, because there are fewer than 10 per"),
        (ClosedForm(), 39, 0, ""),
        (ClosedForm(delta=1e-5), 40, 4, "no self-training, because delta is set"),
        (PLAIN, 40, 4, ""),
    ],
)
def test_data_and_noise_decide_whether_it_is_used(
    method: ClosedForm, features: int, classes: int, text: str
) -> None:
    narrowed = method.narrowed_to(features, classes)
    described = method.describe_extras(features, classes)
    assert described.startswith(text)
    assert bool(described) == bool(text)
    assert narrowed.learns_unlabeled == described.startswith("self-training")
    assert ("soft_labels" in declared(narrowed)) == narrowed.learns_unlabeled


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(
        ValueError, match="unlabeled is 'always'; it must be 'auto' or 'off'"
    ):
        ClosedForm(unlabeled="always")  # type: ignore[arg-type]


def test_without_it_no_function_is_allowed_that_reads_unlabeled_examples() -> None:
    own = {"example_totals", "prepare", "soft_labels", "held_out", "class_counts"}
    assert not own & declared(PLAIN).keys()
    assert own <= declared(ClosedForm()).keys()


def view() -> SiteView:
    rows, unlabeled = clusters()
    return SiteView(sites_of(rows, unlabeled).members["a"], 0)


def models(n: int = 1 + FOLDS) -> dict[str, Tensor]:
    return {
        "weight": torch.zeros(n, FEATURES, CLASSES, dtype=torch.float64),
        "bias": torch.zeros(n, CLASSES, dtype=torch.float64),
    }


SHARES = torch.full((1 + FOLDS, CLASSES), 1 / CLASSES)
SOFT = {**models(), "wanted": SHARES, "shares": SHARES}


@each_of(
    "function, args, why",
    [
        (
            "fold_totals",
            {"fold": FOLDS},
            "fold is 5, and it is a whole number of at most 4",
        ),
        ("fold_totals", {"fold": -1}, "fold is -1, and it is a whole number"),
        ("held_out", {**models(), "fold": 0}, "has the argument 'fold'"),
        (
            "soft_labels",
            {**SOFT, "bias": torch.zeros(3, CLASSES)},
            "bias has the shape (3, 4) and not (6, 4)",
        ),
        (
            "soft_labels",
            {**SOFT, "wanted": SHARES * torch.inf},
            "wanted is NaN or infinite",
        ),
        ("soft_labels", {**SOFT, "shares": -SHARES}, "shares is below 0"),
        (
            "soft_labels",
            {**SOFT, "center": torch.zeros(FEATURES)},
            "center is given, which this study does not use",
        ),
        ("example_totals", {"center": torch.zeros(FEATURES)}, "center is given"),
    ],
)
def test_a_site_refuses_other_arguments(
    function: str, args: dict[str, object], why: str
) -> None:
    takes = declared(ClosedForm())[function].takes
    assert takes is not None
    known = SenderFacts({"features": FEATURES, "classes": CLASSES, "outputs": CLASSES})
    assert why in str(find_wrong_argument(takes, args, known))


def start(site: SiteView, n: int) -> None:
    """Prepare a site for passes of n models."""
    directions = torch.eye(FEATURES, dtype=torch.float64)
    prepared = prepare_examples(site, directions, **models(n))
    site._site.memory["prepare"] = prepared.store()


def soft_labels(site: SiteView, n: int) -> dict[str, Tensor]:
    equal = torch.ones(n, CLASSES, dtype=torch.float64)
    values = ClosedForm().soft_labels(site, **models(n), wanted=equal, shares=equal)
    return {name: torch.as_tensor(value) for name, value in values.items()}


def test_an_example_that_leaves_between_passes_is_in_no_later_sum() -> None:
    site = view()
    start(site, 1)
    before = soft_labels(site, 1)
    site._site.leave([0, LABELED])  # one with a label and one without
    after = soft_labels(site, 1)
    for name in ("smoothed", "targets"):
        assert float(before[name].sum()) == pytest.approx(LABELED + UNLABELED)
        assert float(after[name].sum()) == pytest.approx(LABELED + UNLABELED - 2)
    known = one_hot(site.labels, CLASSES).sum(0)
    by_equal = (UNLABELED - 1) / CLASSES  # models of zeros
    anchors = ClosedForm().anchor_shares(site)
    assert_close(anchors["guessed"], (known + by_equal)[None], check_dtype=False)


@each_of("n", [0, 7])
def test_a_site_refuses_models_that_are_not_one_for_each_fold(n: int) -> None:
    method = ClosedForm()
    with pytest.raises(Refusal, match=f"{n} models were received instead of 5 of each"):
        method.held_out(view(), **models(n))
    site = view()
    start(site, 1 + FOLDS)
    with pytest.raises(Refusal, match=f"{n} models were received instead of 1 or 6"):
        soft_labels(site, n)
    with pytest.raises(Refusal, match=r"and 6 models were prepared .* and 1$"):
        soft_labels(site, 1)
