"""Numbers in two units without a unit in their cells: in one column, or at one of the sites."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

import fallow as fl
from fallow.data import Dataset
from fallow.data.loaders.units import warn_of_units
from tests.data.kinds import column_of, quietly, sentences
from tests.each import each_of

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
N = 120
rng = np.random.default_rng(8)
CELSIUS = rng.normal(37.2, 0.6, N).round(1)
METERS = rng.normal(1.72, 0.1, N).round(2)
CREATININE = rng.lognormal(-0.1, 0.3, N).round(2)  # mg/dl
GLUCOSE = rng.lognormal(1.7, 0.3, N).round(1)  # mmol/l
KILOGRAMS = rng.normal(72, 9, N).round(1)
AGE = rng.normal(55, 9, N).round()
IS_OTHER = np.arange(N) % 3 == 0
FAHRENHEIT = (CELSIUS * 1.8 + 32).round(1)


@each_of(
    "numbers, others",
    [
        (CELSIUS, FAHRENHEIT),
        (METERS, (METERS * 100).round()),
        (CREATININE, (CREATININE * 88.4).round()),
        (GLUCOSE, (GLUCOSE * 18).round()),
        (CREATININE, CREATININE / 1000),
        (METERS, METERS * 0.01),
    ],
)
def test_two_units_in_one_column_are_reported(numbers: Numbers, others: Numbers) -> None:
    mixed = np.where(IS_OTHER, others, numbers)
    (finding,) = warn_of_units("column 'c'", mixed)
    assert finding.severity == "warning"
    assert "may have two units" in finding.sentence
    assert f"{numbers[~IS_OTHER].max():g}" in finding.sentence
    assert f"{others[IS_OTHER].min():g}" in finding.sentence


@each_of(
    "numbers",
    [
        CELSIUS,
        AGE,
        rng.lognormal(0, 2, N),  # one wide range
        rng.choice([1, 2, 3, 4, 5, 100], N),  # codes
        rng.choice([0, 1], N),
        np.r_[rng.poisson(3, N), 40, 50],  # outliers
        np.r_[-AGE, AGE],
        np.r_[np.zeros(N), AGE],
        np.r_[rng.uniform(0.1, 6, N), rng.uniform(15, 80, N)],  # wide parts
        np.array([np.inf, *AGE]),
        np.zeros(0),
    ],
)
def test_one_unit_is_not_reported(numbers: Numbers) -> None:
    assert warn_of_units("column 'c'", np.asarray(numbers, dtype=np.float64)) == []


@each_of(
    "numbers, is_reported",
    [
        ([36.6, 37.1, 98.6, 99.5], True),
        ([36.6] * 90 + [98.6], True),
        ([36, 37, 38, 97, 99, 100], True),
        ([40, 100, 40, 100], False),  # two doses
        ([36.6, 37.1, 38.0, 39.2], False),
        ([96.8, 97.5, 99.1, 98.6], False),
        ([36.6, 98.6], False),
        ([36.6, 37.1, 98.6, 99.5, 12.0], False),
    ],
)
def test_few_temperatures_in_two_units_are_reported(
    numbers: list[float], is_reported: bool
) -> None:
    findings = warn_of_units("column 'c'", np.array(numbers, dtype=np.float64))
    assert bool(findings) is is_reported
    assert all("(°C), and" in finding.sentence for finding in findings)


def load_sites(numbers: Numbers, others: Numbers, n_sites: int = 3) -> Dataset:
    sites = np.arange(N) % n_sites
    frame = pd.DataFrame({"v": np.where(sites == 1, others, numbers), "s": sites})
    frame["age"] = AGE
    frame["y"] = np.where(rng.random(N) < 0.5, "no", "yes")
    return quietly(lambda: fl.load(frame, label="y", site="s"))


@each_of(
    "numbers, others",
    [
        (KILOGRAMS, KILOGRAMS * 2.2046),
        (CREATININE, CREATININE * 88.4),
        (AGE, AGE * 12),
        (CELSIUS, FAHRENHEIT),
        (AGE, AGE * 1000),  # 55,000 for 55.000
    ],
)
def test_another_unit_at_a_site_is_reported(numbers: Numbers, others: Numbers) -> None:
    data = load_sites(numbers, others.round(2))
    warned = [f for f in data.findings if "another unit" in f.sentence]
    assert len(warned) == 1
    assert warned[0].severity == "warning"
    assert "column 'v'" in warned[0].sentence and "site '1'" in warned[0].sentence
    two = load_sites(numbers, others.round(2), n_sites=2)
    assert any("another unit" in f.sentence for f in two.findings)


@each_of(
    "others",
    [
        lambda: KILOGRAMS * 1.2,
        lambda: KILOGRAMS + rng.normal(20, 9, N),
        lambda: rng.choice([1.0, 2.0], N),  # codes of a device
        lambda: KILOGRAMS,
    ],
)
def test_different_people_at_a_site_are_not_reported(others: Callable[[], Numbers]) -> None:
    data = load_sites(KILOGRAMS, others())
    assert not any("unit" in f.sentence for f in data.findings)


def test_a_few_rows_of_a_site_tell_no_unit() -> None:
    sites = np.array(["a", "b", *["c"] * (N - 2)])
    frame = pd.DataFrame({"v": np.r_[1000, 2000, KILOGRAMS[2:]], "s": sites})
    frame["y"] = np.where(np.arange(N) % 2, "no", "yes")
    data = quietly(lambda: fl.load(frame, label="y", site="s"))
    assert not any("another unit" in f.sentence for f in data.findings)


@each_of(
    "units, is_reported",
    [
        (["mg/dL", "mmol/L"], True),
        (["kg", "lb"], True),
        (["°C", "°F"], True),
        (["ICU", "ER"], False),
        (["kg"], False),
        (["surgery 1", "surgery 2"], False),
    ],
)
@each_of("name", ["glu_unit", "Units", "Einheit", "valueuom"])
def test_a_column_of_several_units_is_reported(
    units: list[str], name: str, is_reported: bool
) -> None:
    column = column_of([units[row % len(units)] for row in range(N)], name)
    assert ("so that numbers in other columns" in sentences(column)) == is_reported


def load_test(**changes: object) -> Dataset:
    frame = pd.DataFrame({"w": KILOGRAMS, "smokes": np.arange(N) % 2, "age": AGE})
    frame["sex"] = np.where(rng.random(N) < 0.5, "f", "m")
    frame["y"] = np.where(rng.random(N) < 0.5, "no", "yes")
    train, test = frame[: N // 2], frame[N // 2 :].assign(age=AGE[N // 2 :] + 0.5)
    for name, change in changes.items():
        test[name] = change(test[name]) if callable(change) else change
    return quietly(lambda: fl.from_frame(train, test=test, label="y"))


TESTS = {  # change of the test table -> part of the warning
    "kg and lb": ({"w": lambda w: w * 2.2}, "column 'w' goes from"),
    "months": ({"age": lambda age: age * 12}, "in the test table"),
    "other codes": ({"smokes": lambda s: s + 1}, "column 'smokes' has 2 in the test table"),
    "other words": (
        {"sex": lambda s: s.map({"f": "female", "m": "male"})},
        "column 'sex': the texts female and male occur only in the test table (60 rows)",
    ),
    "one rare word": (
        {"sex": lambda s: ["x", *s[1:]]},
        "the texts x occur only in the test table (1 row)",
    ),
    "nothing": ({}, ""),
    "one value": ({"smokes": 1, "sex": "f"}, ""),
}


@each_of("changes, part", TESTS.values())
def test_a_test_table_that_is_written_otherwise_is_reported(
    changes: dict[str, object], part: str
) -> None:
    warned = [f for f in load_test(**changes).findings if f.severity == "warning"]
    assert len(warned) == bool(part)
    assert all(part in finding.sentence for finding in warned)
    assert all(finding.is_doubtful == ("(1 row)" in part) for finding in warned)
