"""Every client function that releases exact statistics of labeled examples waits for new labels.

The functions are found by running studies of all algorithms with a view that records what is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, final

import pytest

import fallow as fl
from fallow import training
from fallow.core.build import names
from fallow.core.methods import site_function
from fallow.core.view import Release
from fallow.settings.classes import classes_of
from fallow.sites import answering
from fallow.training import personal

LABELS = frozenset({"labels", "weights", "counts", "chances", "answers", "held"})
OF_ROWS = frozenset({"rows", "blocks", "logits", "embed"})
EXEMPT = {
    # models, and the number of labels that weighs them, which every site reports anyway
    *(("FedRep", verb) for verb in ("upload",)),
    *(("PFedGraph", verb) for verb in ("upload",)),
    *(("Robust", verb) for verb in ("upload",)),
    *(("Entropy", verb) for verb in ("upload",)),
    *(("DPFL", verb) for verb in ("model", "weigh", "found")),
    *((name, "upload") for name in ("FedAvg", "FedProx", "KCFU", "Evidential")),
    *((name, "upload") for name in ("APFL", "Ditto", "FedAvgPost", "KNNPer", "PerFedAvg")),
    *((name, "upload") for name in ("FedAvgFT", "FedProxFT")),
    # over all examples, labeled or not: a label moves none of them
    *(("ExactHead", verb) for verb in ("columns", "spread")),
    *(("Scaling", verb) for verb in ("columns", "cells", "spread")),
    *(
        (name, verb)
        for name in ("FALE", "Pivotal")
        for verb in ("totals", "spread", "gram")
    ),
    *(("Fourier", verb) for verb in ("moments",)),
    # of clusters: docs/threats.md says what they show
    *((name, "size") for name in ("Typical", "TypicalUnsure", "Coverage")),
    *((name, "found") for name in ("Typical", "TypicalUnsure")),
    ("Coverage", "reach"),
    # in simulations alone
    ("OracleHistogram", "histogram"),
    # it tells nothing of fewer answers than the minimum
    ("Audit", "tally"),
}


@final
class Recorder:
    """A view that notes whether labels, or rows because they are labeled, are read."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self.is_read = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._view, name)
        if name in LABELS:
            self.is_read = True
        if name not in OF_ROWS:
            return value

        def of_rows(*args: Any, **more: Any) -> Any:
            if {"labeled", "validation"} & {*map(str, args), *map(str, more.values())}:
                self.is_read = True
            return value(*args, **more)

        return of_rows


Reads = set[tuple[str, str]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Client functions that leave something of labeled examples without noise, as they are run."""
    seen: Reads = set()

    def recording(method: Any, verb: str) -> Callable[..., Any]:
        run_function: Any = site_function(method, verb)

        def run(view: Any, **args: Any) -> Any:
            recorder = Recorder(view)
            result = run_function(recorder, **args)
            contract = method.contract
            is_private = isinstance(result, Release) and result.delta > 0
            is_sent = verb in {*contract.sum, *contract.each, *contract.relay}
            if (
                recorder.is_read
                and is_sent
                and not is_private
                and verb not in contract.waits
            ):
                seen.add((type(method).__name__, verb))
            return result

        return run

    monkeypatch.setattr(answering, "site_function", recording)
    return seen


def run_small(strategy: str, algorithm: Any, data: str, **settings: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sites = fl.Federation(data, fl.IID(), sites=3)
        small = {"cycles": 1, "rounds": 1, "initial": 6, "budget": 4, **settings}
        fl.run(sites, strategy, training=algorithm, **small)


STRATEGIES = sorted(classes_of("strategy").items())
TRAINING = sorted({**names(training), **names(personal)}.items())


@pytest.mark.parametrize(("name", "cls"), STRATEGIES, ids=str)
def test_statistics_of_labels_in_a_query_wait(name: str, cls: Any, reads: Reads) -> None:
    contract = cls.contract
    data = "iris" if contract.classes else "diabetes"
    algorithm = "fedavg" if contract.classes else "server-solve"
    settings: dict[str, Any] = {}
    if contract.classes:
        settings["model"] = "mlp"
    if "audit" in contract.options:
        settings["audit"] = 0.5
    run_small(name, algorithm, data, **settings)
    assert reads <= EXEMPT


@pytest.mark.parametrize(("name", "cls"), TRAINING, ids=str)
def test_statistics_of_labels_in_training_wait(name: str, cls: Any, reads: Reads) -> None:
    contract = cls.contract
    data = "iris" if contract.classes else "diabetes"
    settings: dict[str, Any] = {}
    if contract.linear:
        settings["model"] = "linear"
    if name == "DPFL":
        settings["validation"] = 0.4
    run_small("random", name, data, **settings)
    assert reads <= EXEMPT


def test_statistics_of_labels_beside_query_and_training_wait(reads: Reads) -> None:
    run_small("margin", "fedavg", "iris", model="mlp", head="exact", audit=0.5)
    run_small("margin", "fedavg", "iris", model="mlp", validation=0.3)
    run_small("random", "fedavg", "diabetes")
    encoded = {"encoder": "fourier:features=8"}  # whose scale the first labels choose
    run_small("random", fl.ClosedForm(balance="class", passes=2), "iris", **encoded)
    run_small("random", fl.ClosedForm(reveal="head"), "iris", **encoded)
    assert reads <= EXEMPT
