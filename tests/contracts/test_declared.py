"""Every reply of every client function has the fields that its declaration lists, within bounds.

The replies are those of small studies of all algorithms.
"""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd
import pytest

import fallow as fl
from fallow import training
from fallow.core.build import names
from fallow.core.client import declared, find_fault, find_wrong_argument
from fallow.core.messages import Request, Step
from fallow.core.types import Answer
from fallow.core.values import Known, resolve_dims
from fallow.settings.classes import classes_of
from fallow.sites.answering import answer_step
from fallow.sites.site import LocalSite
from fallow.training import personal

STRATEGIES = sorted(classes_of("strategy").items())
TRAINING = sorted({**names(training), **names(personal)}.items())
Faults = list[str]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Faults in arguments and replies of client functions, collected as they are called."""
    found: Faults = []

    def check(site: LocalSite, step: Step, request: Request) -> Answer:
        answer = answer_step(site, step, request)
        method = site.method(request.owner)
        declaration = declared(method).get(step.verb)
        if declaration is None:
            found.append(f"{type(method).__name__} does not declare {step.verb}")
            return answer
        sizes = resolve_dims(site.parts.layout, site.parts.classes, sites=3)
        sizes["inputs"] = site.seen[:1].numel()
        sizes["cells"] = site.x[:1].numel()
        known = Known(
            {**sizes, "rows": len(site.x)},
            rows=len(site.x),
            labels=len(site.labels),
            room=1e-6,
        )
        why = None
        if declaration.takes is not None:
            why = find_wrong_argument(declaration.takes, step.args, known)
        if why is None and declaration.returns is not None and step.kind in ("sum", "each"):
            why = find_fault(declaration.returns, answer, known)
        if why is not None:
            found.append(f"{type(method).__name__}.{step.verb}: {why}")
        return answer

    monkeypatch.setattr("fallow.sites.in_process.answer_step", check)
    return found


def run_small(strategy: Any, algorithm: Any, data: Any, **settings: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sites = fl.Federation(data, fl.IID(), sites=3)
        small = {"cycles": 1, "rounds": 1, "initial": 6, "budget": 4, **settings}
        fl.run(sites, strategy, training=algorithm, **small)


@pytest.mark.parametrize(("name", "cls"), STRATEGIES, ids=str)
def test_a_query_sends_what_it_declares(name: str, cls: Any, faults: Faults) -> None:
    contract = cls.contract
    data = "iris" if contract.classes else "diabetes"
    algorithm = "fedavg" if contract.classes else "server-solve"
    settings: dict[str, Any] = {}
    if contract.classes:
        settings["model"] = "mlp"
    if "audit" in contract.options:
        settings["audit"] = 0.5
    run_small(name, algorithm, data, **settings)
    assert faults == []


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
def test_settings_narrow_what_is_declared(
    strategy: Any, algorithm: Any, data: str, faults: Faults
) -> None:
    run_small(strategy, algorithm, data)
    assert faults == []


@pytest.mark.parametrize(("name", "cls"), TRAINING, ids=str)
def test_training_sends_what_it_declares(name: str, cls: Any, faults: Faults) -> None:
    contract = cls.contract
    data = "iris" if contract.classes else "diabetes"
    settings: dict[str, Any] = {}
    if contract.linear:
        settings["model"] = "linear"
    if name == "DPFL":
        settings["validation"] = 0.4
    run_small("random", name, data, **settings)
    assert faults == []


def test_encoders_and_scaling_send_what_they_declare(faults: Faults) -> None:
    run_small("margin", "fedavg", "iris", model="mlp", head="exact", audit=0.5)
    run_small("random", "fedavg", "diabetes")
    run_small("random", "closed-form", "digits", encoder="convolution")
    run_small("random", "closed-form", "iris", encoder="fourier:features=8")
    assert faults == []


@pytest.mark.parametrize("others", [0, 1, 2])
def test_an_encoder_of_texts_sends_what_it_declares(others: int, faults: Faults) -> None:
    columns: dict[str, list[Any]] = {
        "note": [f"{word} on day {day}" for day in range(30) for word in ("fever", "fine")],
        "age": list(range(20, 80)),
        "constant": [3.0] * 60,
    }
    chosen = list(columns)[: others + 1]
    frame = pd.DataFrame({**columns, "state": ["ill", "well"] * 30})
    data = fl.from_frame(frame, label="state", columns=chosen)
    run_small("random", "closed-form", data, encoder="hashed-text")
    assert faults == []
