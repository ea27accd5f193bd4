"""Missing cells are imputed jointly by the sites from training examples only."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fallow as fl
from fallow.data import Dataset, open_dataset
from fallow.encoders.base import EMPTY_CELLS
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.store import MemoryStore
from tests.training.test_scaling import rows_of

KINDS = ("mild", "grave", "grave", "grave", "")


def ward(path: Path, n: int = 60, low: float = 0.0) -> Path:
    """Return n patients at three hospitals; every 4th age and 5th kind is missing.

    ``low`` is added to the ages of the last ten.
    """
    rng = np.random.default_rng(5)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "kind", "dose", "hospital", "sick"])
        for i in range(n):
            age = round(40 + 10 * rng.normal(), 2) + (low if i >= n - 10 else 0)
            shown = "" if i % 4 == 0 else f"{age:.2f}"
            dose = f"{rng.normal():.3f}"
            lines.writerow([shown, KINDS[i % 5], dose, "abc"[i % 3], ("no", "yes")[i % 2]])
    return path


def begun(dataset: Dataset, **settings: Any) -> SimulatedEnvironment:
    """Return the sites after scaling and imputation values are agreed on."""
    config = ExperimentConfig(
        "missing",
        data="ward.csv",
        partition=Spec("natural"),
        sites=3,
        cycles=0,
        rounds=1,
        initial=5,
        **settings,
    )
    run = ExperimentRun(environment_of(config, 0, dataset, MemoryStore()), EventLog())
    run.initial()
    assert isinstance(run.simulation, SimulatedEnvironment)
    return run.simulation


def test_empty_cells_become_the_mean_of_a_number_and_the_most_frequent_text(
    tmp_path: Path,
) -> None:
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    assert d.columns == (
        "age",
        "kind=grave",
        "kind=mild",
        "dose",
        "age_missing",
        "kind_missing",
    )
    assert len(d.x) + len(d.x_test) == 60
    assert any("empty cells: 27 (age 15 and kind 12)" in note for note in d.notes)
    simulation = begun(d, standardize="none")
    scale = simulation.scale
    assert scale is not None and scale.fill is not None
    ages = d.x[:, 0]
    expected = float(ages[~ages.isnan()].double().mean())
    assert float(scale.fill[0]) == pytest.approx(expected)
    assert scale.fill[1:3].tolist() == [1.0, 0.0]  # the most frequent value is grave
    for site in simulation.members.values():
        empty = site.x[:, 0].isnan()
        seen = rows_of(site)
        assert bool(empty.any()) and bool(seen.isfinite().all())
        torch.testing.assert_close(
            seen[empty, 0], torch.full_like(seen[empty, 0], expected)
        )
        assert torch.equal(seen[:, 4], empty.float())
    assert bool(simulation.dataset.x_test.isfinite().all())


def test_what_fills_them_is_learned_from_training_rows_alone(tmp_path: Path) -> None:
    """Check that test examples do not affect scaling and imputation."""
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    assert d.missing is not None
    other = torch.where(d.x_test.isnan(), d.x_test, d.x_test + 1000.0)
    changed = Dataset(
        d.name,
        d.x,
        d.y,
        other,
        d.y_test,
        d.classes,
        d.sites,
        d.sites_test,
        d.site_names,
        d.columns,
        missing=d.missing,
    )
    one = begun(d).scale
    two = begun(changed).scale
    assert one is not None and two is not None and one.fill is not None
    for name, values in one.state.items():
        assert torch.equal(values, two.state[name])


def test_units_are_those_of_the_filled_rows_and_say_what_left_the_sites(
    tmp_path: Path,
) -> None:
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    simulation = begun(d)
    assert simulation.scale is not None and simulation.scale.fill is not None
    whole = torch.where(d.x.isnan(), simulation.scale.fill.float(), d.x).double()
    torch.testing.assert_close(simulation.scale.mean, whole.mean(0))
    torch.testing.assert_close(simulation.scale.std, whole.std(0, correction=0))
    run = fl.run(
        fl.Federation(d),
        fl.Random(),
        training="fedavg",
        model="linear",
        cycles=0,
        rounds=1,
        initial=5,
    )
    revealed = run.revealed
    assert "cells" in set(revealed["function"]) and "columns" not in set(
        revealed["function"]
    )
    assert "of its non-empty cells" in " ".join(revealed["description"])


def test_secure_sums_fill_the_same_cells(tmp_path: Path) -> None:
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    plain = begun(d).scale
    masked = begun(d, privacy=fl.Privacy(secure_sum=True)).scale
    assert plain is not None and masked is not None
    for name, values in plain.state.items():
        torch.testing.assert_close(values, masked.state[name], rtol=1e-3, atol=1e-3)


def test_a_model_that_knows_empty_cells_predicts_rows_with_them(tmp_path: Path) -> None:
    import pandas as pd

    path = ward(tmp_path / "ward.csv")
    df = pd.read_csv(path)
    d = fl.from_frame(df, label="sick", site="hospital")
    read = open_dataset(path, label="sick", site="hospital")
    assert (d.columns, d.missing) == (read.columns, read.missing)
    run = fl.run(
        fl.Federation(d), fl.Random(), cycles=0, training="fedavg", rounds=2, initial=5
    )
    shares = run.predict_proba(df)
    assert shares.shape == (60, 2) and np.isfinite(shares).all()
    # an indicator column distinguishes an empty cell from its imputed value
    at = df.index[df["age"].isna()][0]
    value = df.assign(age=df["age"].fillna(df["age"].mean()))
    assert not np.allclose(run.predict_proba(value)[at], shares[at])


def test_a_table_without_empty_cells_asks_for_what_it_always_asked(tmp_path: Path) -> None:
    import pandas as pd

    df = pd.read_csv(ward(tmp_path / "ward.csv")).dropna()
    d = fl.from_frame(df, label="sick", site="hospital")
    assert d.missing is None
    run = fl.run(
        fl.Federation(d), fl.Random(), cycles=0, training="fedavg", rounds=1, initial=3
    )
    assert "cells" not in set(run.revealed["function"])


def test_frozen_features_of_rows_with_empty_cells_are_refused(tmp_path: Path) -> None:
    from fallow.data import embed_rows

    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick")
    with pytest.raises(ValueError, match="has empty cells, which a frozen model does not"):
        embed_rows(d, torch.nn.Linear(6, 2))


# -- before an encoder -----------------------------------------------------------------

FOURIER = Spec("fourier", {"features": 16})


def test_an_encoder_sees_whole_rows(tmp_path: Path) -> None:
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    simulation = begun(d, encoder=FOURIER)
    assert simulation.encoded_by is not None
    fill = simulation.encoded_by[EMPTY_CELLS]
    ages = d.x[:, 0]
    expected = float(ages[~ages.isnan()].double().mean())
    assert float(fill[0]) == pytest.approx(expected, rel=2**-11)
    assert fill[1:3].tolist() == [1.0, 0.0]  # the most frequent value is grave
    for site in simulation.members.values():
        assert rows_of(site).shape == (len(site.x), 16)
        assert bool(rows_of(site).isfinite().all())
    assert simulation.x_test.shape == (len(d.x_test), 16)
    assert bool(simulation.x_test.isfinite().all())


def test_rows_filled_by_hand_have_the_features_of_those_that_the_sites_filled(
    tmp_path: Path,
) -> None:
    """Compare with manually imputed examples, including the state of a fitted encoder."""
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    filled_by_sites = begun(d, encoder=FOURIER)
    assert filled_by_sites.encoded_by is not None
    fill = filled_by_sites.encoded_by[EMPTY_CELLS].float()
    whole = dataclasses.replace(
        d,
        x=torch.where(d.x.isnan(), fill, d.x),
        x_test=torch.where(d.x_test.isnan(), fill, d.x_test),
        missing=None,
    )
    filled_by_hand = begun(whole, encoder=FOURIER)
    for name, site in filled_by_sites.members.items():
        assert torch.equal(rows_of(site), rows_of(filled_by_hand.members[name]))
    assert torch.equal(filled_by_sites.x_test, filled_by_hand.x_test)


def test_test_rows_teach_an_encoder_nothing(tmp_path: Path) -> None:
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    other = torch.where(d.x_test.isnan(), d.x_test, d.x_test + 1000.0)
    one = begun(d, encoder=FOURIER).encoded_by
    two = begun(dataclasses.replace(d, x_test=other), encoder=FOURIER).encoded_by
    assert one is not None and two is not None
    for name, values in one.items():
        assert torch.equal(values, two[name]), name


def test_secure_sums_fill_the_cells_that_an_encoder_sees(tmp_path: Path) -> None:
    d = open_dataset(ward(tmp_path / "ward.csv"), label="sick", site="hospital")
    plain = begun(d, encoder=FOURIER).encoded_by
    masked = begun(d, encoder=FOURIER, privacy=fl.Privacy(secure_sum=True)).encoded_by
    assert plain is not None and masked is not None
    for name, values in plain.items():
        torch.testing.assert_close(values, masked[name], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["identity", "fourier:features=16"])
def test_a_model_behind_an_encoder_predicts_rows_with_empty_cells(
    name: str, tmp_path: Path
) -> None:
    import pandas as pd

    df = pd.read_csv(ward(tmp_path / "ward.csv"))
    d = fl.from_frame(df, label="sick", site="hospital")
    run = fl.run(
        fl.Federation(d),
        fl.Random(),
        encoder=name,
        cycles=0,
        training="fedavg",
        rounds=2,
        initial=5,
    )
    shares = run.predict_proba(df)
    assert shares.shape == (60, 2) and np.isfinite(shares).all()
    output = run.revealed.set_index("function")["description"]
    assert "of its non-empty cells" in output["cells"]
