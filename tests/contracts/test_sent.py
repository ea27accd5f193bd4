"""Replies have the declared fields within bounds, and labels leave with noise where it is agreed.

Small studies of all algorithms run once, and all calls, reads and messages are recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import pandas as pd
import pytest

import fallow as fl
from fallow import training
from fallow.core.build import names
from fallow.core.client import declared, find_fault, find_wrong_argument
from fallow.core.messages import Request, Step
from fallow.core.methods import site_function
from fallow.core.types import Values
from fallow.core.values import SenderFacts, resolve_dims
from fallow.core.view import Release
from fallow.settings.classes import classes_of
from fallow.sites import replies
from fallow.sites.site import LocalSite
from fallow.training import personal
from tests.findings import findings

LABELS = frozenset(
    {
        *("labels", "weights", "counts", "chances", "labels_at", "validation_labels"),
        "positions_of",
    }
)
OF_ROWS = frozenset({"rows", "blocks", "logits", "embed"})
WITHOUT_NOISE = {
    # models, and the number of labels as their weight, which every site reports anyway
    *((name, "upload") for name in ("FedRep", "PFedGraph", "Robust", "Entropy")),
    *(("DPFL", function) for function in ("model", "weigh", "choices")),
    *((name, "upload") for name in ("FedAvg", "FedProx", "KCFU", "Scaffold")),
    ("Evidential", "upload"),
    *((name, "upload") for name in ("APFL", "Ditto", "FedAvgPost", "KNNPer", "PerFedAvg")),
    *((name, "upload") for name in ("FedAvgFT", "FedProxFT")),
    # over all examples, labeled or not, so a label changes none of them
    *(("Scaling", function) for function in ("columns", "cells", "spread")),
    *(("Fourier", function) for function in ("moments",)),
    # in simulations only
    ("OracleHistogram", "histogram"),
}
"""Client functions that read labels and whose replies epsilon does not cover (docs/privacy.md)."""
NOISE = fl.Privacy(epsilon=1.0)


@final
class Recorder:
    """View that records reads of labels, and of examples because they are labeled."""

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


@dataclass(frozen=True)
class Noted:
    """Records of the studies.

    Attributes
    ----------
    faults : arguments and replies that are not as declared, a sentence each.
    reads : client functions that leave something of labeled examples without noise.
    """

    faults: list[str] = field(default_factory=list)
    reads: set[tuple[str, str]] = field(default_factory=set)


@contextmanager
def noting() -> Iterator[Noted]:
    noted = Noted()

    def recording(method: Any, function: str) -> Callable[..., Any]:
        run_function: Any = site_function(method, function)

        def run(view: Any, **args: Any) -> Any:
            recorder = Recorder(view)
            result = run_function(recorder, **args)
            is_private = isinstance(result, Release)
            is_sent = declared(method)[function].operation != "keep"
            if recorder.is_read and is_sent and not is_private:
                noted.reads.add((type(method).__name__, function))
            return result

        return run

    reply_to_step = replies.reply_to_step

    def check(site: LocalSite, step: Step, request: Request) -> Values:
        reply = reply_to_step(site, step, request)
        noted.faults.extend(list_faults(site, step, request, reply))
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replies, "site_function", recording)
        patch.setattr("fallow.sites.in_process.reply_to_step", check)
        yield noted


def list_faults(
    site: LocalSite, step: Step, request: Request, reply: Values
) -> Iterator[str]:
    """Yield the deviations of an instruction and its reply from the declaration."""
    method = site.method(request.owner)
    declaration = declared(method).get(step.function)
    if declaration is None:
        yield f"{type(method).__name__} does not declare {step.function}"
        return
    sizes = resolve_dims(site.parts.layout, site.parts.classes, sites=3)
    sizes["inputs"] = site.seen[:1].numel()
    sizes["cells"] = site.x[:1].numel()
    known = SenderFacts(
        {**sizes, "rows": len(site.x)},
        rows=len(site.x),
        labels=len(site.labels),
        room=1e-6,
    )
    why = None
    if declaration.takes is not None:
        why = find_wrong_argument(declaration.takes, step.args, known)
    if why is None and declaration.returns is not None and step.kind in ("sum", "each"):
        why = find_fault(declaration.returns, reply, known)
    if why is not None:
        yield f"{type(method).__name__}.{step.function}: {why}"


def run_small(strategy: Any, algorithm: Any, data: Any, **settings: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sites = fl.Federation(data, fl.IID(), sites=3)
        small = {"cycles": 1, "rounds": 1, "initial": 6, "budget": 4, **settings}
        fl.run(sites, strategy, training=algorithm, **small)


STRATEGIES = dict(sorted(classes_of("strategy").items()))
TRAINING = dict(sorted({**names(training), **names(personal)}.items()))
# the initial labeled set determines its scale
FEW_FEATURES = {"encoder": "fourier:features=8"}


@cache
def note_query(name: str, **settings: Any) -> Noted:
    contract = STRATEGIES[name].contract
    data = "iris" if contract.classes else "diabetes"
    algorithm: Any = "fedavg" if contract.classes else "server-solve"
    if settings and not any(item.release for item in contract.functions):
        algorithm = fl.ClosedForm(delta=1e-5)  # something has to be noisy
        settings |= FEW_FEATURES
    elif contract.classes:
        settings["model"] = "mlp"
    if "evaluation_fraction" in contract.options and not settings.get("privacy"):
        settings["evaluation_fraction"] = 0.5
    with noting() as noted:
        run_small(name, algorithm, data, **settings)
    return noted


@cache
def note_training(name: str, **settings: Any) -> Noted:
    contract = TRAINING[name].contract
    data: Any = "iris" if contract.classes else "diabetes"
    if contract.multilabel and not contract.classes:
        data = findings()
    if contract.model:
        settings["model"] = contract.model
    if name.startswith("ClosedForm"):
        settings |= FEW_FEATURES
    if name == "DPFL":
        settings["validation"] = 0.4
    strategy = "ahfal" if settings.get("privacy") else "random"  # something has to be noisy
    with noting() as noted:
        run_small(strategy, name, data, **settings)
    return noted


@pytest.mark.long
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_query_sends_what_it_declares(name: str) -> None:
    assert note_query(name).faults == []


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, cls in STRATEGIES.items()
        if cls.contract.local_dp and cls.contract.classes and not cls.contract.not_solved
    ],
)
def test_a_query_adds_noise_to_all_that_it_sends_of_labels(name: str) -> None:
    assert note_query(name, privacy=NOISE).reads <= WITHOUT_NOISE


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINING)
def test_training_sends_what_it_declares(name: str) -> None:
    assert note_training(name).faults == []


@pytest.mark.parametrize(
    "name", [name for name, cls in TRAINING.items() if cls.contract.local_dp]
)
def test_training_adds_noise_to_all_that_it_sends_of_labels(name: str) -> None:
    assert note_training(name, privacy=NOISE).reads <= WITHOUT_NOISE


@pytest.mark.parametrize(
    ("algorithm", "target_scale", "words"),
    [
        ("fedavg", "labeled", "random and fedavg send nothing to which noise is added"),
        ("server-solve", "none", "does not support local privacy"),
        ("masked-solve", "none", "does not support local privacy"),
    ],
)
def test_noise_with_exact_sums_of_targets_or_of_labeled_rows_is_refused(
    algorithm: str, target_scale: str, words: str
) -> None:
    settings = {"privacy": NOISE, "target_scale": target_scale}
    with pytest.raises(ValueError, match=words):
        run_small("random", algorithm, "diabetes", **settings)


def test_a_noisy_closed_form_sends_no_exact_sum_of_labels() -> None:
    with noting() as noted:
        training = fl.ClosedForm(delta=1e-5)
        run_small("random", training, "iris", privacy=NOISE, **FEW_FEATURES)
    assert noted.reads <= WITHOUT_NOISE


@pytest.mark.parametrize(
    ("strategy", "algorithm", "data"),
    [
        (fl.AHFAL(tau_scale="count"), "fedavg", "iris"),
        (fl.FALE(mode="fedsvd"), "server-solve", "diabetes"),
        (fl.FALE(mode="tsqr", allot="site"), "masked-solve", "diabetes"),
        (fl.Pivotal(allot="site"), "server-solve", "diabetes"),
        (fl.Entropy(model="average"), "fedavg", "iris"),
        ("random", fl.ClosedForm(balance="class", passes=2, local_head="own"), "iris"),
        ("random", fl.ClosedForm(reveal="head"), "iris"),
        ("random", fl.ClosedForm(penalty=0.1), "diabetes"),
    ],
    ids=str,
)
def test_settings_narrow_what_is_declared(strategy: Any, algorithm: Any, data: str) -> None:
    settings = FEW_FEATURES if isinstance(algorithm, fl.ClosedForm) else {}
    with noting() as noted:
        run_small(strategy, algorithm, data, **settings)
    assert noted.faults == []


@pytest.mark.long
def test_encoders_scaling_and_validation_send_what_they_declare() -> None:
    with noting() as noted:
        run_small(
            "margin", "fedavg", "iris", model="mlp", head="exact", evaluation_fraction=0.5
        )
        run_small("margin", "fedavg", "iris", model="mlp", validation=0.3)
        run_small("random", "fedavg", "diabetes")
        run_small("random", "closed-form", "digits", encoder="convolution:filters=8")
    assert noted.faults == []


@pytest.mark.parametrize("others", [0, 1, 2])
def test_an_encoder_of_texts_sends_what_it_declares(others: int) -> None:
    columns: dict[str, list[Any]] = {
        "note": [f"{word} on day {day}" for day in range(30) for word in ("fever", "fine")],
        "age": list(range(20, 80)),
        "constant": [3.0] * 60,
    }
    chosen = list(columns)[: others + 1]
    frame = pd.DataFrame({**columns, "state": ["ill", "well"] * 30})
    data = fl.from_frame(frame, label="state", columns=chosen)
    with noting() as noted:
        run_small("random", "closed-form", data, encoder="hashed-text:features=64")
    assert noted.faults == []
