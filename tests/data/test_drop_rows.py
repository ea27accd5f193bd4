"""User data with missing features, and numbers that resemble a missing label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.core.load_options import LoadOptions
from fallow.data import from_arrays, from_table, open_dataset
from fallow.data.reading import note

HEADER = "id,age,ward,clinic,sick"


def table(
    folder: Path, *rows: str, header: str = HEADER, name: str = "patients.csv"
) -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_rows_that_lack_a_feature_are_left_out_when_asked(
    tmp_path: Path,
) -> None:
    rows = [f"p{i},{i},A,{'ns'[i % 2]},{i / 4}" for i in range(20)]
    rows[3] = "p3,,A,s,0.75"
    rows[8] = "p8,8,?,n,2.0"
    rows[9] = "p9,1e39,A,s,2.25"
    rows[10] = "p10,10,A,n,"  # an example without a target stays in the unlabeled pool
    path = table(tmp_path, *rows)
    with pytest.raises(
        ValueError, match=r"column 'age' has 1 infinite values .*row 10; .* with drop_rows"
    ):
        open_dataset(path, label="sick", site="clinic")
    d = open_dataset(path, label="sick", site="clinic", drop_rows=True)
    assert d.ids is not None and len(d.x) + len(d.x_test) == 17
    assert not {"p3", "p8", "p9"} & set(d.ids) and "p10" in d.ids
    assert "rows with missing or infinite features left out: 3" in d.notes
    assert d.columns == ("age", "ward=A") and d.sites is not None
    for row_name, x, y, site in zip(d.ids, d.x, d.y, d.sites, strict=True):
        number = int(row_name[1:])
        assert x.tolist() == [number, 1] and site == number % 2
        assert y == number / 4 or (number == 10 and y.isnan())


def test_rows_are_left_out_of_both_tables(tmp_path: Path) -> None:
    train = table(tmp_path, "1,0.5", ",1.5", "3,2.5", header="x,y")
    test = table(
        tmp_path, "4,0.5", "inf,1.5", "6,2.5", "7,1", header="x,y", name="test.csv"
    )
    d = from_table(train, LoadOptions(label="y", drop_rows=True), test=test)
    assert d.x.flatten().tolist() == [1, 3] and d.x_test.flatten().tolist() == [4, 6, 7]
    assert d.y_test.tolist() == [0.5, 2.5, 1]
    assert d.notes == ("rows with missing or infinite features left out: 2",)


def test_arrays_with_nan_are_refused_by_column_and_count_or_lose_those_rows() -> None:
    x = np.arange(40.0).reshape(20, 2)
    y = np.linspace(0, 1, 20)
    sites = np.arange(20) // 10
    x[4, 1], x[5, 1], x[17, 1], x[6, 0] = np.nan, np.inf, 1e39, -np.inf
    with pytest.raises(
        ValueError, match=r"column 0 of the rows has 1 values .* with drop_rows"
    ):
        from_arrays(x, y, sites)
    with pytest.raises(
        ValueError, match="column 'b' of the rows has 3 values that are not fin"
    ):
        from_arrays(np.where(x == -np.inf, 0, x), y, sites, columns=("a", "b"))
    d = from_arrays(x, y, sites, drop_rows=True, findings=[note("mine")])
    assert len(d.x) + len(d.x_test) == 16 and d.sites is not None
    assert d.notes == ("mine", "examples with NaN or infinite features left out: 4")
    assert torch.equal(d.sites, (d.x[:, 0] >= 20).long())
    torch.testing.assert_close(d.y, d.x[:, 0] / 38)
    both = from_arrays(x[:10], y[:10], x_test=x[10:], y_test=y[10:], drop_rows=True)
    assert (len(both.x), len(both.x_test)) == (7, 9) and both.notes[0].endswith("out: 4")
    assert from_arrays(x[10:14], y[10:14], drop_rows=True).notes == ()


def test_minus_one_is_a_target_where_numbers_are_predicted() -> None:
    y = np.array([-1, 0, 1, 2, -1, 4])
    x = np.arange(12.0).reshape(6, 2)
    d = from_arrays(x, y, x_test=x + 0.5, y_test=y, task="regression")
    assert bool(d.is_labeled.all()) and d.y.tolist() == d.y_test.tolist() == y.tolist()


def test_a_named_set_keeps_its_own_rule_for_missing_values() -> None:
    with pytest.raises(
        ValueError,
        match=r"diabetes is a named dataset: drop_rows=True does not apply to it; omit --drop-rows",
    ):
        open_dataset("diabetes", drop_rows=True)
