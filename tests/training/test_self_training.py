"""Closed-form classifiers that also learn from unlabeled examples."""

from __future__ import annotations

from collections.abc import Sequence

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
from fallow.core.types import State
from fallow.core.values import SenderFacts
from fallow.core.view import FOLDS
from fallow.data.partition.partitions import ExactDirichlet
from fallow.sites.folds import FoldAssignment
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.training import ClosedForm
from fallow.training.parts.closed_form import Labeled
from fallow.training.parts.ridge import TEMPERATURES
from fallow.training.parts.self_training import (
    CANDIDATES,
    FORMS,
    Validated,
    choose_candidate,
    has_enough,
    sum_held_out,
)
from tests.training.closed import (
    CLASSES,
    FEATURES,
    Hospitals,
    Rows,
    hospitals,
    weights_of,
)

Array = NDArray[np.float64]
LABELED = 80
UNLABELED = 300


def clusters(seed: int = 0, spread: float = 1.1) -> tuple[Rows, Tensor]:
    """Return labeled and unlabeled examples around one mean per class."""
    draw = stream(seed, "clusters")
    n = LABELED + UNLABELED
    y = torch.randint(CLASSES, (n,), generator=draw)
    means = torch.randn(CLASSES, FEATURES, generator=draw, dtype=torch.float64)
    z = means[y] + spread * torch.randn(n, FEATURES, generator=draw, dtype=torch.float64)
    ones = torch.ones(LABELED, dtype=torch.float64)
    return Rows(z[:LABELED], y[:LABELED], ones), z[LABELED:]


def sites_of(
    rows: Rows,
    unlabeled: Tensor,
    parts: Sequence[Sequence[int]] = (range(LABELED),),
    method: ClosedForm | None = None,
    secure: bool = False,
) -> Hospitals:
    """Return sites with these labeled examples; unlabeled ones are assigned in turn.

    An example has the fold that it has at one site with all examples.
    """
    sites = hospitals(
        rows,
        method or ClosedForm(unlabeled="auto"),
        parts,
        secure=secure,
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


def is_used(state: State) -> bool:
    return float(state["unlabeled"]) > 0


def a_case_with(form: str | None) -> tuple[Rows, Tensor]:
    """Return examples for which this form is selected; None: any."""
    for spread in (1.1, 0.8, 1.5, 2.0):
        for seed in range(12):
            rows, unlabeled = clusters(seed, spread)
            state = sites_of(rows, unlabeled).solve()
            chosen = FORMS[int(state["unlabeled"])]
            if chosen == form or (form is None and chosen != "off"):
                return rows, unlabeled
    raise AssertionError(f"{form} is selected for none of these examples")


# -- the reference: pooled examples, scikit-learn --------------------------------------


def fit(z: Array, y: Array, s: Array, alpha: float) -> Ridge:
    return Ridge(alpha=alpha, solver="svd").fit(z, y, sample_weight=s)


def self_train(
    z: Array, y: Array, unlabeled: Array, penalty: float, temperature: float, form: str
) -> Ridge:
    """Run self-training on pooled examples with scikit-learn's ridge regression."""
    alpha = penalty * len(z)  # not multiplied by the number of examples there
    model = fit(z, y, np.ones(len(z)), alpha)
    if form == "off":
        return model
    candidate = CANDIDATES[form]
    for _ in range(candidate.passes):
        outputs = (candidate.temperature or temperature) * model.predict(unlabeled)
        p = np.exp(outputs - outputs.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        weights = np.concatenate(
            [np.ones(len(z)), np.full(len(unlabeled), candidate.weight)]
        )
        both = np.concatenate([z, unlabeled])
        model = fit(both, np.concatenate([y, p]), weights, alpha)
    return model


def pooled(rows: Rows, unlabeled: Tensor, supervised: State) -> tuple[str, float, Ridge]:
    """Return the selected form, the temperature and the model, from pooled examples."""
    penalty = float(supervised["penalty"])
    temperature = float(supervised["temperature"])
    fold = folds_of(rows).numpy()
    z = rows.z.numpy()
    y = np.eye(CLASSES)[rows.y.numpy()]
    more = unlabeled.numpy()

    outputs = {form: np.zeros_like(y) for form in FORMS}
    for index in range(FOLDS):
        others = fold != index
        for form in FORMS:
            model = self_train(z[others], y[others], more, penalty, temperature, form)
            outputs[form][~others] = model.predict(z[~others])
    hits = {form: outputs[form].argmax(1) == rows.y.numpy() for form in FORMS}
    best = "off"
    for form in CANDIDATES:
        gain = int(hits[form].sum()) - int(hits["off"].sum())
        changed = int((hits[form] != hits["off"]).sum())
        if hits[form].sum() > hits[best].sum() and gain > changed**0.5:
            best = form

    losses = []
    for candidate in TEMPERATURES:
        away = candidate * outputs[best]
        away -= away.max(1, keepdims=True)
        losses.append(float((np.log(np.exp(away).sum(1)) - (away * y).sum(1)).sum()))
    chosen = TEMPERATURES[int(np.argmin(losses))]
    return best, chosen, self_train(z, y, more, penalty, temperature, best)


@pytest.mark.parametrize("form", ["one-pass", "soft", "sharp"])
def test_it_is_self_training_by_scikit_learn_on_pooled_examples(form: str) -> None:
    rows, unlabeled = a_case_with(form)
    parts = (range(0, 25), range(25, 31), range(31, LABELED))
    state = sites_of(rows, unlabeled, parts).solve()
    supervised = hospitals(rows, ClosedForm(), [range(LABELED)]).solve()
    best, temperature, expected = pooled(rows, unlabeled, supervised)
    assert best == form == FORMS[int(state["unlabeled"])]
    assert float(state["temperature"]) == temperature
    weight, bias = weights_of(state)
    coefficients = torch.from_numpy(expected.coef_).T
    assert_close(weight / temperature, coefficients, rtol=0, atol=1e-8)
    assert_close(
        bias / temperature, torch.from_numpy(expected.intercept_), rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_form_and_its_gain_are_those_of_pooled_examples(seed: int) -> None:
    rows, unlabeled = clusters(seed)
    state = sites_of(rows, unlabeled).solve()
    supervised = hospitals(rows, ClosedForm(), [range(LABELED)]).solve()
    best, _, _ = pooled(rows, unlabeled, supervised)
    assert FORMS[int(state["unlabeled"])] == best
    assert (float(state["unlabeled_gain"]) > 0) == (best != "off")


# -- properties ------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 1.0])
def test_the_distribution_over_sites_does_not_matter(alpha: float) -> None:
    rows, unlabeled = a_case_with(None)
    whole = sites_of(rows, unlabeled).solve()
    parts = ExactDirichlet(alpha=alpha).split(rows.y.numpy(), 5, np.random.default_rng(0))
    shared = sites_of(rows, unlabeled, [part.tolist() for part in parts]).solve()
    assert is_used(whole)
    assert_close(shared["w"], whole["w"], rtol=0, atol=1e-9)
    for name in ("unlabeled", "unlabeled_gain", "penalty", "temperature", "left_out"):
        assert_close(shared[name], whole[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{"passes": 2}, {"balance": "class"}])
def test_it_works_with_other_settings_at_any_distribution(
    settings: dict[str, object],
) -> None:
    rows, unlabeled = a_case_with(None)
    method = ClosedForm(unlabeled="auto", **settings)  # type: ignore[arg-type]
    whole = sites_of(rows, unlabeled, method=method).solve()
    parts = [range(0, 30), range(30, 60), range(60, LABELED)]
    shared = sites_of(rows, unlabeled, parts, method=method).solve()
    assert_close(shared["w"], whole["w"], rtol=0, atol=1e-9)
    assert torch.equal(shared["unlabeled"], whole["unlabeled"])


def test_centered_features_give_the_same_model() -> None:
    rows, unlabeled = a_case_with(None)
    plain = sites_of(rows, unlabeled).solve()
    method = ClosedForm(unlabeled="auto", passes=2)
    centered = sites_of(rows, unlabeled, method=method).solve()
    assert is_used(plain)
    assert_close(centered["w"], plain["w"], rtol=0, atol=1e-9)


def test_secure_aggregation_gives_the_same_model() -> None:
    rows, unlabeled = a_case_with(None)
    parts = [range(0, 30), range(30, 60), range(60, LABELED)]
    plain = sites_of(rows, unlabeled, parts).solve()
    masked = sites_of(rows, unlabeled, parts, secure=True).solve()
    assert is_used(plain)
    assert_close(masked["w"], plain["w"], rtol=1e-4, atol=1e-4)
    for name in ("unlabeled", "penalty", "temperature"):
        assert torch.equal(masked[name], plain[name])


def test_it_gains_accuracy_where_classes_are_clusters() -> None:
    gained = []
    for seed in range(6):
        rows, unlabeled = clusters(seed, 1.1)
        draw = stream(seed, "clusters")
        truth = torch.randint(CLASSES, (LABELED + UNLABELED,), generator=draw)[LABELED:]
        scores = []
        for method in (ClosedForm(), ClosedForm(unlabeled="auto")):
            weight, bias = weights_of(sites_of(rows, unlabeled, method=method).solve())
            scores.append(
                float(((unlabeled @ weight + bias).argmax(1) == truth).double().mean())
            )
        gained.append(scores[1] - scores[0])
    assert np.mean(gained) >= 0
    assert max(gained) > 0.003


# -- when the supervised model is kept -------------------------------------------------


def test_with_few_labels_the_supervised_model_stays_bit_for_bit() -> None:
    rows, unlabeled = clusters()
    few = Rows(rows.z[:40], rows.y[:40], rows.s[:40])
    parts = [range(0, 10), range(10, 40)]
    state = sites_of(few, unlabeled, parts).solve()
    supervised = sites_of(few, unlabeled, parts, ClosedForm()).solve()
    assert torch.equal(state["w"], supervised["w"])
    assert float(state["unlabeled"]) == 0
    assert "unlabeled_gain" not in state


def test_without_unlabeled_examples_the_supervised_model_stays() -> None:
    rows, unlabeled = clusters()
    state = sites_of(rows, unlabeled[:0]).solve()
    supervised = sites_of(rows, unlabeled[:0], method=ClosedForm()).solve()
    assert_close(state["w"], supervised["w"], rtol=0, atol=1e-12)
    assert float(state["unlabeled"]) == 0


def test_without_any_label_the_model_stays() -> None:
    rows, unlabeled = clusters()
    state = sites_of(rows, unlabeled, [[], []]).solve()
    assert state["w"].abs().max() == 0


@pytest.mark.parametrize(
    ("right", "changed", "best"),
    [
        ([50, 50, 50], [0, 0, 0], 0),
        ([50, 53, 52], [0, 9, 2], 2),  # the first changes 9, of which 3 is one error
        ([50, 54, 54], [0, 4, 4], 1),  # the first of equal ones
        ([50, 53, 58], [0, 4, 60], 2),
        ([50, 49, 48], [0, 1, 2], 0),
        ([50, 50.0004, 50], [0, 0, 0], 0),  # rounding of secure aggregation
    ],
)
def test_a_form_must_be_better_by_more_than_one_standard_error(
    right: list[float], changed: list[float], best: int
) -> None:
    validated = Validated(
        torch.tensor(right).double(), torch.tensor(changed).double(), torch.zeros(3, 1)
    )
    assert choose_candidate(validated) == best


@pytest.mark.parametrize("unit", [1.0, 100.0])
def test_the_unit_of_weights_does_not_matter_to_the_selection(unit: float) -> None:
    # The candidate predicts 16 of 100 examples right that supervised training does not, and 12
    # the other way round: less than a standard error, which is the root of 28.
    z = torch.zeros(100, 2, dtype=torch.float64)
    z[:16, 0] = 1.0
    z[16:28, 1] = 1.0
    y = one_hot(torch.zeros(100, dtype=torch.int64), 2).double()
    rows = Labeled(z, y, torch.full((100,), unit, dtype=torch.float64))
    weight = torch.zeros(2 * FOLDS, 2, 2, dtype=torch.float64)
    weight[:FOLDS, 0, 1] = 2.0  # supervised models are wrong about the first 16
    weight[FOLDS:, 1, 1] = 2.0  # those of the candidate about the next 12
    bias = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(2 * FOLDS, 2)
    folds = torch.zeros(100, dtype=torch.int64)
    held_out = sum_held_out(rows, folds, weight, bias)
    right, changed, log = (torch.as_tensor(value) for value in held_out.values())
    assert (right[1] - right[0]) / unit == 4
    assert choose_candidate(Validated(right, changed, log)) == 0


def test_few_labels_of_any_class_are_counted_by_class_and_in_all() -> None:
    assert has_enough(torch.tensor([25.0, 25.0]))
    assert not has_enough(torch.tensor([24.0, 25.0]))
    assert has_enough(torch.tensor([60.0, 3.0, 0.0]))
    assert not has_enough(torch.full((20,), 4.0))


# -- refusals --------------------------------------------------------------------------


def test_it_is_refused_with_differential_privacy() -> None:
    with pytest.raises(ValueError, match="unlabeled is 'auto' and its delta 1e-05"):
        ClosedForm(unlabeled="auto", delta=1e-5)


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(
        ValueError, match="unlabeled is 'always'; it must be 'off' or 'auto'"
    ):
        ClosedForm(unlabeled="always")  # type: ignore[arg-type]


def test_without_it_no_function_is_allowed_that_reads_unlabeled_examples() -> None:
    own = {"unlabeled_totals", "soft_labels", "held_out", "class_counts"}
    assert not own & declared(ClosedForm()).keys()
    assert own <= declared(ClosedForm(unlabeled="auto")).keys()


def view() -> SiteView:
    rows, unlabeled = clusters()
    return SiteView(sites_of(rows, unlabeled).members["a"], 0)


def models(n: int = 2 * FOLDS) -> dict[str, Tensor]:
    return {
        "weight": torch.zeros(n, FEATURES, CLASSES, dtype=torch.float64),
        "bias": torch.zeros(n, CLASSES, dtype=torch.float64),
    }


@pytest.mark.parametrize(
    ("function", "args", "why"),
    [
        ("totals", {"fold": FOLDS}, "fold is 5, and it is a whole number of at most 4"),
        ("totals", {"fold": -1}, "fold is -1, and it is a whole number"),
        ("held_out", {**models(), "fold": 0}, "has the argument 'fold'"),
        (
            "soft_labels",
            {**models(), "bias": torch.zeros(3, CLASSES), "temperature": torch.ones(10)},
            "bias has the shape (3, 4) and not (10, 4)",
        ),
        (
            "soft_labels",
            {**models(), "temperature": torch.full((10,), torch.inf)},
            "temperature is NaN or infinite",
        ),
        (
            "soft_labels",
            {**models(), "temperature": torch.ones(10), "center": torch.zeros(FEATURES)},
            "center is given, which this study does not use",
        ),
        ("unlabeled_totals", {"center": torch.zeros(FEATURES)}, "center is given"),
    ],
)
def test_a_site_refuses_other_arguments(
    function: str, args: dict[str, object], why: str
) -> None:
    takes = declared(ClosedForm(unlabeled="auto"))[function].takes
    assert takes is not None
    known = SenderFacts({"features": FEATURES, "classes": CLASSES, "outputs": CLASSES})
    assert why in str(find_wrong_argument(takes, args, known))


@pytest.mark.parametrize("n", [0, 7])
def test_a_site_refuses_models_that_are_not_one_for_each_fold(n: int) -> None:
    with pytest.raises(Refusal, match=f"{n} models were received instead of 5 of each"):
        ClosedForm(unlabeled="auto").held_out(view(), **models(n))
