"""Groups of examples: no split and no partition divides them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fallow as fl
from fallow.core.build import build
from fallow.data.partition import partitions
from fallow.data.partition.groups import join_groups, label_groups, split_by_groups
from fallow.data.partition.shares import hold_back_groups, hold_out
from fallow.experiment.rows import resplit, split_rows, split_tests
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.each import each_of

RULES: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.5, "min_size": 1},
    "exact-dirichlet": {"alpha": 0.5},
    "fedma-dirichlet": {"alpha": 0.5},
    "shards": {"classes": 2},
    "long-tail": {"rho": 2, "inner": "iid"},
}
Draw = st.integers(0, 1 << 30)


def table(seed: int, n_groups: int = 60) -> pd.DataFrame:
    """Return rows of patients with 1 to 5 rows each, of which some are equal."""
    draw = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n_groups), draw.integers(1, 6, n_groups))
    draw.shuffle(patients)
    age = draw.normal(50, 9, len(patients))
    age[:4] = age[0]
    sick = np.array(["no", "yes", "yes", "maybe"])[(patients + draw.integers(0, 2)) % 4]
    return pd.DataFrame({"patient": patients, "age": age, "sick": sick})


def is_apart(*parts: Any) -> bool:
    names = [set(np.asarray(part).tolist()) for part in parts]
    return len(set().union(*names)) == sum(map(len, names))


@settings(max_examples=10, deadline=None)
@given(seed=Draw)
def test_no_partition_and_no_test_set_divides_a_group(seed: int) -> None:
    dataset = fl.from_frame(table(seed), label="sick", group="patient")
    assert dataset.groups is not None and dataset.groups_test is not None
    assert len(dataset.x_test) and is_apart(dataset.groups, dataset.groups_test)
    other = resplit(dataset, torch.Generator().manual_seed(seed))
    assert other.groups is not None and other.groups_test is not None
    assert 0 < len(other.x_test) <= len(dataset.x_test)
    assert is_apart(other.groups, other.groups_test)
    for name, fields in RULES.items():
        config = ExperimentConfig("", partition=Spec(name, fields), sites=3, test="own")
        try:
            shares = split_rows(config, dataset, seed)
        except ValueError as error:  # too few groups of a class for this draw
            assert "sites" in str(error) or "class" in str(error), name
            continue
        rows = np.concatenate([*shares.values()])
        assert len(rows) == len(set(rows.tolist()))
        assert is_apart(*(dataset.groups[rows] for rows in shares.values())), name
        tests = split_tests(config, dataset, shares, seed)
        assert tests is not None
        assert is_apart(*(dataset.groups_test[rows] for rows in tests.values())), name


@settings(max_examples=50, deadline=None)
@given(seed=Draw, share=st.floats(0.05, 0.9))
def test_validation_labels_divide_no_group_over_several_cycles(
    seed: int, share: float
) -> None:
    draw = np.random.default_rng(seed)
    groups = draw.integers(0, 12, 60)
    y = draw.integers(0, 3, 60)
    sides: dict[int, bool] = {}
    for rows in np.array_split(draw.permutation(60), 4):
        sides_of_rows = hold_back_groups(y[rows], groups[rows], share, draw, sides)
        for group, is_held in zip(
            groups[rows].tolist(), sides_of_rows.tolist(), strict=True
        ):
            assert sides.setdefault(group, is_held) == is_held
    assert set(sides.values()) == {True, False}


def test_every_row_is_assigned_by_a_complete_partition() -> None:
    groups = np.repeat(np.arange(20), 3)
    y = np.repeat([0, 1], 30)
    for name in ("iid", "exact-dirichlet"):
        rule = build(partitions, name, **RULES[name])
        parts = split_by_groups(rule, y, 4, np.random.default_rng(0), None, groups)
        assert sorted(np.concatenate(parts).tolist()) == list(range(60))


def test_copies_of_an_example_join_their_groups_on_one_side() -> None:
    x = torch.arange(60.0)[:, None]
    x[59] = x[0]  # a copy in another group
    groups = np.repeat(np.arange(20), 3)
    y = np.tile([0, 1], 30)
    for name in "abcdefgh":
        train, test = hold_out(name, x, y, groups)
        assert len(test) and is_apart(groups[train], groups[test])
        assert (0 in test) == (59 in test)
    assert len(np.unique(join_groups(np.arange(60) % 59, groups))) == 19


def test_a_group_has_its_most_frequent_class_or_its_mean_target() -> None:
    groups = np.array([3, 3, 3, 1, 1, 2])
    assert label_groups(np.array([0, 2, 2, 1, 0, 5]), groups)[1].tolist() == [0, 5, 2]
    numbers = np.array([1.0, 2.0, 6.0, 0.0, 1.0, 4.0])
    assert label_groups(numbers, groups)[1].tolist() == [0.5, 4.0, 3.0]


def test_groups_without_a_setting_change_nothing() -> None:
    frame = table(0)
    plain = fl.from_frame(frame.drop(columns="patient"), label="sick")
    assert plain.groups is None and plain.groups_test is None and plain.n_groups == 0


def test_every_way_in_reads_the_same_groups(tmp_path: Path) -> None:
    frame = table(1)
    path = tmp_path / "frame.csv"
    frame.to_csv(path, index=False)
    arrays = tmp_path / "frame.npz"
    x = frame[["age"]].to_numpy()
    labels = frame["sick"].to_numpy(str)
    np.savez(arrays, x=x, y=labels, group=frame["patient"].to_numpy())
    first = fl.from_frame(frame, label="sick", group="patient")
    others = [
        fl.load(frame, label="sick", group="patient"),
        fl.load(path, label="sick", group="patient"),
        fl.load(arrays),
        fl.from_arrays(x, labels, groups=frame["patient"], name="frame"),
    ]
    assert first.n_groups == 60 and "60 groups" in repr(first)
    for other in others:
        assert other.n_groups == 60
        assert is_apart(other.groups, other.groups_test)
        assert len(other.x) == len(first.x)


REPEATED = {
    "a repeated ID": ("patient_id", np.arange(40) % 20, True),
    "names": ("Subject", [f"P{n % 15}" for n in range(40)], True),
    "a unique ID": ("patient_id", np.arange(40), False),
    "few values": ("patient_id", np.arange(40) % 3, False),
    "measurements": ("patient_nr", np.arange(40) % 20 + 0.5, False),
    "pid": ("pid", np.arange(40) % 20, True),
    "a case in German": ("Fallnummer", np.arange(40) % 20, True),
    "mice": ("mouse", np.arange(40) % 20, True),
    "slides": ("slide_id", np.arange(40) % 20, True),
    "another name": ("age", np.arange(40) % 20, False),
}


@each_of("what", REPEATED)
def test_a_repeated_identifier_suggests_groups(what: str) -> None:
    name, values, is_suggested = REPEATED[what]
    frame = pd.DataFrame({"u": np.random.default_rng(0).normal(size=40), name: values})
    frame["y"] = ["a", "b"] * 20
    if not is_suggested:
        dataset = fl.from_frame(frame, label="y")
        assert not [finding for finding in dataset.findings if "group=" in finding.fix]
        return
    with pytest.warns(UserWarning, match=f"group='{name}'"):
        fl.from_frame(frame, label="y")
    assert not [
        f for f in fl.from_frame(frame, label="y", group=name).findings if "group=" in f.fix
    ]
    dropped = fl.from_frame(
        frame, label="y", drop=[name]
    )  # a note, which is no Python warning
    assert [f for f in dropped.findings if "group=" in f.fix]


DOUBTFUL: dict[str, tuple[list[Any], str]] = {
    "missing": (["NA", "p1", "p2", "p3"], "'NA' (8 rows) may mean a missing name"),
    "a point": ([".", "p1", "p2", "p3"], "'.' (8 rows) may mean a missing name"),
    "shortened": (["1.23457E+15", "1.3E+15"], "such as '1.23457E+15' are numbers"),
    "numbers of Excel": (
        [123456789012345678.0, 1.0, 2.0, 3.0],
        "such as '123456789012345680' are numbers whose last digits",
    ),
    "whole numbers": ([123456789012345678, 123456789012345679], ""),
    "names": (["p1", "p2", "p3"], ""),
}


@each_of("what", DOUBTFUL)
@pytest.mark.parametrize("role", ["site", "group"])
def test_a_name_that_may_be_missing_or_cut_is_a_warning(what: str, role: str) -> None:
    names, part = DOUBTFUL[what]
    frame = pd.DataFrame({"u": np.arange(32.0) ** 2, "y": ["a", "b", "b", "a"] * 8})
    frame[role] = [names[row % len(names)] for row in range(32)]
    options: Any = {role: role}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fl.from_frame(frame, label="y", **options)
    output = " | ".join(str(item.message) for item in caught)
    assert part in output
    assert bool(part) == ("missing name" in output or "last digits" in output)


X = torch.arange(8.0)[:, None]
Y = [0, 1] * 4
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": ({"groups": [1, 2]}, "groups has 2 values and x has 8 rows"),
    "a missing one": ({"groups": ["a", None] * 4}, "4 examples have none"),
    "an empty one": ({"groups": ["a", "", "b", "c"] * 2}, "groups: 2 examples have none"),
    "an empty site": ({"sites": ["a", "", "b", "c"] * 2}, "sites: 2 examples have none"),
    "test groups alone": ({"groups_test": [1]}, "groups of test examples, and no test"),
    "on both sides": (
        {
            "groups": [1, 1, 2, 2, 3, 3, 4, 4],
            "x_test": [[9.0], [10.0]],
            "y_test": [0, 1],
            "groups_test": [7, 4],
        },
        "1 group in both training and test examples .test row 1 and training row 6",
    ),
}


@each_of("what", WRONG)
def test_wrong_groups_are_errors_with_the_reason(what: str) -> None:
    options, sentence = WRONG[what]
    with pytest.raises(ValueError, match=sentence):
        fl.from_arrays(X, Y, **options)


def test_a_group_at_several_sites_is_named() -> None:
    groups = ["a", "a", "b", "b", "c", "c", "d", "d"]
    with pytest.warns(UserWarning, match="2 groups with examples at several sites"):
        fl.from_arrays(
            X, Y, [0, 1, 0, 0, 1, 0, 1, 1], x_test=[[9.0]], y_test=[0], groups=groups
        )


def test_more_sites_than_groups_are_an_error() -> None:
    dataset = fl.from_frame(table(0, n_groups=6), label="sick", group="patient")
    with pytest.raises(ValueError, match="9 sites are requested and the data has 5 groups"):
        fl.Federation(dataset, "iid", sites=9).sizes()


def test_a_subset_keeps_the_groups_of_its_examples() -> None:
    dataset = fl.from_frame(table(0), label="sick", group="patient")
    few = dataset.rows(10, torch.Generator())
    assert few.groups is not None and len(few.groups) == 10
    at = [dataset.x.tolist().index(row) for row in few.x.tolist()]
    assert len(at) == 10
    fewer = few.test_rows(2, torch.Generator())
    assert fewer.groups_test is not None and len(fewer.groups_test) == 2
    assert replace(dataset, groups=None).groups is None


def test_names_of_arrays_that_differ_in_writing_are_named_or_merged() -> None:
    labels = ["yes", "YES", "no", "no"] * 2
    sites = ["Basel", "basel", "bern", "bern"] * 2
    with pytest.warns(UserWarning, match="differ only in their writing") as warned:
        plain = fl.from_arrays(X, labels, sites)
    assert len(warned) == 2
    merged = fl.from_arrays(X, labels, sites, groups=list("aAbBcCdD"), merge=True)
    assert (plain.n_classes, plain.site_names) == (3, ("Basel", "basel", "bern"))
    assert (merged.n_classes, merged.site_names) == (2, ("Basel", "bern"))
    assert merged.n_groups == 4
