from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.data import (
    Dataset,
    check_leak,
    drop_leaks,
    row_hashes,
    standardize,
)


def toy(n: int = 6, **changes: Any) -> Dataset:
    """Return a data set of n training examples and two other test examples.

    Training examples are (0, 1), (2, 3), ... Keyword arguments replace fields.
    """
    dataset = Dataset(
        name="toy",
        x=torch.arange(2.0 * n).reshape(n, 2),
        y=torch.arange(n) % 2,
        x_test=torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
        y_test=torch.tensor([0, 1]),
        classes=("no", "yes"),
        columns=("age", "dose"),
    )
    return replace(dataset, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(0, 2), "y": torch.zeros(0, dtype=torch.int64)}, "has no data"),
        (
            {"x_test": torch.zeros(2, 3)},
            r"training row has shape \(2,\) and a test row \(3,\)",
        ),
        ({"y": torch.tensor([0, 1])}, "6 training rows but labels of shape"),
        ({"x": torch.zeros(6, 2).double()}, "torch.float64; give torch.float32"),
        ({"y": torch.tensor([0, 1, 2, 0, 1, 0])}, "1 training labels are out of range .*2"),
        ({"y_test": torch.tensor([0, -1])}, "1 test labels are out of range"),
        ({"classes": ("only",)}, "at least 2"),
        ({"classes": ("same", "same")}, "not distinct"),
        ({"columns": ("age",)}, "1 column names"),
        ({"ids": ("a",)}, "1 row names for 6 rows"),
        (
            {"sites": torch.tensor([0, 1, 2, 0, 1, 2]), "site_names": ("a", "b")},
            "2 sites have",
        ),
        ({"sites": torch.zeros(3, dtype=torch.int64)}, "one per row"),
        (
            {"y_test": torch.tensor([0.0, 1.0])},
            "torch.int64 class ids or torch.float32 targets",
        ),
    ],
)
def test_a_data_set_that_does_not_fit_together_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        toy(**changes)


def test_a_feature_that_is_not_finite_is_named_with_its_column_and_count() -> None:
    x = toy().x.clone()
    x[1:3, 1] = torch.tensor([float("nan"), float("inf")])
    with pytest.raises(ValueError, match="column 'dose' of the training rows has 2 values"):
        toy(x=x)


def test_the_type_of_the_labels_tells_the_task() -> None:
    assert toy().task == "classification"
    targets: dict[str, Any] = {
        "y": torch.linspace(0, 1, 6),
        "y_test": torch.ones(2),
        "classes": (),
    }
    assert toy(**targets).task == "regression"


def test_rows_without_a_label_are_allowed_in_training_alone() -> None:
    d = toy(y=torch.tensor([0, 1, -1, -1, 0, 1]))
    assert d.is_labeled.tolist() == [True, True, False, False, True, True]
    nan = float("nan")
    targets: dict[str, Any] = {
        "y": torch.tensor([1.0, nan, 2, 3, 4, 5]),
        "y_test": torch.ones(2),
        "classes": (),
    }
    assert toy(**targets).is_labeled.tolist() == [True, False, True, True, True, True]
    with pytest.raises(ValueError, match="only in training rows"):
        toy(**targets | {"y_test": torch.tensor([nan, 1.0])})


def test_a_subset_of_rows_keeps_rows_labels_sites_and_names_together() -> None:
    d = toy(
        sites=torch.tensor([0, 0, 1, 1, 2, 2]),
        site_names=("a", "b", "c"),
        ids=tuple("uvwxyz"),
    )
    some = d.rows(3, torch.Generator().manual_seed(0))
    picked = (some.x[:, 0] / 2).long()
    assert len(set(picked.tolist())) == 3 and picked.tolist() == sorted(picked.tolist())
    assert some.sites is not None and d.sites is not None
    assert torch.equal(some.y, d.y[picked]) and torch.equal(some.sites, d.sites[picked])
    assert some.ids == tuple("uvwxyz"[i] for i in picked)
    again = d.rows(3, torch.Generator().manual_seed(0))
    assert torch.equal(some.x, again.x) and len(some.x_test) == 2


def test_test_rows_are_drawn_without_touching_the_training_rows() -> None:
    d = toy().test_rows(1, torch.Generator().manual_seed(0))
    assert len(d.x_test) == len(d.y_test) == 1 and len(d.x) == 6
    with pytest.raises(ValueError, match="3 rows of 2 test rows of toy are requested"):
        toy().test_rows(3, torch.Generator())


def test_two_rows_have_one_hash_exactly_when_they_are_equal() -> None:
    x = torch.randint(0, 2, (40, 4), generator=torch.Generator().manual_seed(0)).float()
    hashes = row_hashes(x)
    for i in range(40):
        for j in range(i):
            assert (hashes[i] == hashes[j]) == torch.equal(x[i], x[j])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert row_hashes(x[order]) == [hashes[i] for i in order.tolist()]


def test_a_planted_duplicate_is_found_and_dropped() -> None:
    d = toy()
    check_leak(d)
    assert drop_leaks(d) is d
    planted = toy(x_test=torch.stack([d.x_test[0], d.x[4]]))
    with pytest.raises(
        ValueError,
        match=r"1 of 2 test examples .*test row 1 is training row 4.*fallow.data.drop_leaks",
    ):
        check_leak(planted)
    clean = drop_leaks(planted)
    check_leak(clean)
    assert clean.y_test.tolist() == [0] and "1 test examples" in clean.notes[0]


def test_standardizing_uses_training_rows_alone() -> None:
    d = toy()
    scaled = standardize(d)
    torch.testing.assert_close(scaled.x.mean(0), torch.zeros(2))
    torch.testing.assert_close(scaled.x.std(0, correction=0), torch.ones(2))
    other = standardize(dataclasses.replace(d, x_test=d.x_test * 1000))
    assert torch.equal(other.x, scaled.x) and not torch.equal(other.x_test, scaled.x_test)


def test_a_constant_column_becomes_zero_even_where_its_mean_is_not_exact() -> None:
    x = torch.full((7, 2), 0.1)
    x[:, 1] = torch.arange(7.0)
    scaled = standardize(toy(7, x=x))
    assert not scaled.x[:, 0].any() and not scaled.x_test[:, 0].any()
