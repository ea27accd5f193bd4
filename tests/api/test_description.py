"""Test `fallow.describe_sites`: figures of tables, images and regression, plain and by sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fallow as fl
from fallow.data import Dataset


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 600
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 12, n).round(),
            "pressure": rng.normal(130, 20, n).astype(np.float32),
            "sex": rng.choice(["f", "m"], n),
            "stage": rng.choice(["I", "II", "III", "IV"], n, p=[0.5, 0.3, 0.19, 0.01]),
            "site": rng.choice(["basel", "bern", "chur"], n),
            "ill": rng.choice(["no", "yes"], n),
        }
    )
    table.loc[table.site == "chur", "pressure"] += 25
    table.loc[rng.random(n) < 0.1, "pressure"] = np.nan
    return table


@pytest.fixture(scope="module")
def dataset(frame: pd.DataFrame) -> Dataset:
    return fl.from_frame(frame, label="ill", site="site")


def test_single_examples_have_the_counts_of_pandas(dataset: Dataset) -> None:
    table = fl.describe_sites(dataset).to_frame()
    pressure = dataset.x[:, dataset.columns.index("pressure")].numpy()
    sites = dataset.sites
    assert sites is not None
    for site, name in enumerate(dataset.site_names):
        of_site = (table["column"] == "pressure") & (table["site"] == name)
        row = table[of_site].iloc[0]
        own = pressure[sites == site]
        assert row["values"] == (~np.isnan(own)).sum()
        assert row["missing_share"] == pytest.approx(np.isnan(own).mean())
        assert row["50% low"] <= np.nanmedian(own) <= row["50% high"]
    stage = table.query("column == 'stage' and site == ''").iloc[0]["levels"]
    first = dataset.columns.index("stage=I")
    counts = dataset.x[:, first : first + 4].sum(0).tolist()
    assert [*stage.values()] == counts
    label = table.query("column == 'label' and site == ''").iloc[0]["levels"]
    assert [*label.values()] == torch.bincount(dataset.y).tolist()


def test_drift_is_largest_where_a_column_differs(dataset: Dataset) -> None:
    described = fl.describe_sites(dataset)
    table = described.to_frame().dropna(subset=["drift"])
    worst = table.loc[(table["drift"] / table["drift_by_chance"]).idxmax()]
    assert (worst["column"], worst["site"]) == ("pressure", "chur")
    assert f">{worst['drift']:.2f} *</td>" in described.to_html()


def test_sums_are_those_of_plain_counts_and_have_no_sites(dataset: Dataset) -> None:
    plain = fl.describe_sites(dataset).facts
    summed = fl.describe_sites(dataset, secure_sum=True).facts
    for one, other in zip(plain["columns"], summed["columns"], strict=True):
        assert one["all"] == other["all"]
        assert one["edges"] == other["edges"]
        assert other["sites"] == []
    assert "need a study with privacy.secure_sum = false" in summed["notes"][0]


def test_a_page_has_a_table_a_figure_and_each_site(
    dataset: Dataset, tmp_path: Path
) -> None:
    described = fl.describe_sites(dataset)
    page = described.to_html(tmp_path / "data.html")
    assert (tmp_path / "data.html").read_text() == page
    for text in ("Numbers at all sites", "pressure, by site", "Drift of each column"):
        assert text in page


def test_images_are_described_by_their_channels() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((90, 3, 8, 8)).astype(np.float32)
    images = fl.from_arrays(x, np.arange(90) % 3, sites=np.repeat(["a", "b", "c"], 30))
    described = fl.describe_sites(images)
    assert "mean of channel 2" in described.to_frame()["column"].tolist()
    row = described.to_frame().query("column == 'mean of channel 2' and site == ''").iloc[0]
    assert row["values"] == len(images.x)
    assert row["5%"] < 0.5 < row["95%"]


def test_regression_targets_and_unlabeled_examples_are_counted() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(5, 1, 80).astype(np.float32)
    y[:40] = np.nan
    with pytest.warns(UserWarning, match="40 of 80 labels are NaN"):
        numbers = fl.from_arrays(rng.random((80, 2)).astype(np.float32), y)
    federation = fl.Federation(numbers, fl.IID(), sites=2)
    row = fl.describe_sites(federation).to_frame().query("column == 'label'").iloc[0]
    labels = numbers.y[~numbers.y.isnan()]
    assert row["values"] == len(labels)
    assert row["missing"] == len(numbers.y) - len(labels)
    assert row["50% low"] <= float(labels.quantile(0.5)) <= row["50% high"]


def test_small_counts_are_shown_as_below_five_and_stay_exact_in_the_facts() -> None:
    frame = pd.DataFrame(
        {
            "age": np.arange(50.0),
            "stage": ["I"] * 40 + ["II"] * 9 + ["III"],
            "ill": ["no", "yes"] * 25,
            "site": ["basel", "bern"] * 25,
        }
    )
    described = fl.describe_sites(fl.from_frame(frame, label="ill", site="site"))
    row = described.to_frame().query("column == 'stage' and site == ''").iloc[0]
    (first, second, third) = row["levels"].values()
    assert third == 1
    page = described.to_html()
    assert f"I {first}, II {second}, III &lt;5" in page
    assert "III 1" not in page
