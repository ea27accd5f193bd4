"""The example of the home page, verbatim."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import fallow as fl
from tests.simulations import PLAIN

RUN = """
import fallow as fl

digits = fl.load("digits")                                   # or fl.from_arrays(x, y, sites=...), fl.from_frame(df, label=, site=, id=)
simulation = fl.Federation(digits, fl.Dirichlet(alpha=0.1), sites=10)

run = fl.run(simulation, strategy=fl.AHFAL(tau=12), training=fl.FedProx(mu=0.01), model=fl.MLP(hidden=[64]),
             budget=0.05, cycles=3, rounds=15, seed=0)
run.records            # pandas DataFrame, one row per evaluation
run.model              # the trained nn.Module (or one per site); run.predict(frame); run.revealed: what left each site
"""  # noqa: E501
COMPARE = """
study = fl.compare(simulation, [fl.Random(), fl.Entropy(), fl.AHFAL()], seeds=10, out="runs/a")   # also names and "ahfal:tau=15"
study.table()          # DataFrame; in a notebook it draws itself; study.report("a.html"); study.plot()
"""  # noqa: E501
SELECT = """
selected = fl.select(x, fl.BADGE(), model=module, labeled=(x0, y0), n=20, seed=0)          # one site, plain arrays
selected = fl.select(z, fl.KSAS(), outputs={"local": p, "global": q}, labeled=(z0, y0), n=20)   # no module at all: outputs and features
selected = fl.select({"a": fl.Site(...), "b": fl.Site(...)}, fl.AHFAL(), n=20)             # a federation of arrays, server half included
"""  # noqa: E501
OWN = """
class EGL(fl.Strategy):                                         # a strategy in a notebook: objects are accepted wherever names are
    power: float = 1.0
    contract = fl.Contract(title="EGL", paper="Settles, 2007", needs=["local"])
    def select(self, view, n): ...                           # query() defaults to ask.keep(self.select)
"""  # noqa: E501


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.mark.long
def test_a_run_of_the_example(elsewhere: Path) -> None:
    names: dict[str, object] = {}
    exec(RUN, names)
    run = names["run"]
    assert isinstance(run, fl.Run)
    assert isinstance(run.records, pd.DataFrame)
    assert len(run.records) == 4 * 5  # number of phases times evaluated rounds
    assert isinstance(run.model, nn.Module)
    assert run.records["accuracy"].iloc[-1] > 0.6
    assert os.listdir(elsewhere) == []


QUICK = f"seeds=2, encoder=fl.Convolution(filters=8), training={PLAIN!r}"


@pytest.mark.long
def test_a_comparison_of_the_example(elsewhere: Path) -> None:
    """Run the comparison of the home page with two of its ten seeds, without self-training."""
    names = {
        "fl": fl,
        "simulation": fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=10),
    }
    exec(COMPARE.replace("seeds=10", QUICK), names)
    study = names["study"]
    assert isinstance(study, fl.Study)
    assert (elsewhere / "runs/a/study.json").exists()
    assert len(study.table()) == 3
    assert study.report("a.html") == Path("a.html")
    assert (elsewhere / "a.html").stat().st_size > 10_000
    assert isinstance(study.plot(), Figure)
    assert "<table" in study._repr_html_()


def test_selections_of_the_example() -> None:
    draw = torch.Generator().manual_seed(0)
    x, x0 = torch.randn(60, 5, generator=draw), torch.randn(30, 5, generator=draw)
    y0 = torch.randint(0, 3, (30,), generator=draw)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    p, q = (torch.randn(60, 3, generator=draw).softmax(1) for _ in range(2))
    names: dict[str, Any] = {"fl": fl, "x": x, "x0": x0, "y0": y0, "module": module}
    names |= {"z": x.numpy(), "z0": x0.numpy(), "p": p, "q": q}
    site = 'fl.Site(z, labeled=(z0, y0), outputs={"local": p, "global": q})'
    for line in SELECT.strip().splitlines():
        exec(line.replace("fl.Site(...)", site), names)
        result = names["selected"]
        for selected in result.values() if isinstance(result, dict) else [result]:
            assert len(set(selected.tolist())) == 20


def test_a_class_of_the_example() -> None:
    names: dict[str, Any] = {"fl": fl}
    exec(OWN, names)
    egl = names["EGL"]
    assert repr(egl(power=2.0)) == "EGL(power=2.0)"
    assert egl(power=2.0) == egl(power=2.0) != egl()
