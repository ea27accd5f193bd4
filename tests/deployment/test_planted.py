"""Search all messages of a site for a planted row, planted names and labels."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.packing import pack
from tests.deployment.planted import (
    ANNOTATOR,
    AT,
    CLASSES,
    FOLDER,
    LEAKY,
    NUMBERS,
    PLANTED,
    ROW,
    SITES,
    Wire,
    hidden_in,
    install_leaky,
    labels_of,
    people,
    planted,
    rows_of,
)
from tests.deployment.simulations import Federation
from tests.each import mark_long

pytest.importorskip("cryptography")
COMMON: dict[str, Any] = {
    "model": Spec("linear"),
    "training_config": TrainingConfig((TrainingStage(2),), 8, Optimizer(lr=0.05)),
    "strategy": Spec("entropy"),
    "initial": 6,
    "budget": 5,
    "rounds": 1,
    "cycles": 1,
    "score_rounds": 1,
    "dtype": "float64",
}
NUMBER: dict[str, Any] = {"training": Spec("server-solve"), "initial_by": "query"}
STUDIES: dict[str, dict[str, Any]] = {
    "random": {"strategy": Spec("random"), "dtype": "float32"},
    "entropy": {"validation": 0.3},
    "ahfal": {"strategy": Spec("ahfal")},
    "ahfal with secure sums": {
        "strategy": Spec("ahfal"),
        "privacy": Privacy(secure_sum=True),
    },
    "ahfal with noise": {"strategy": Spec("ahfal"), "privacy": Privacy(epsilon=1.0)},
    "badge": {"strategy": Spec("badge")},
    "logo": {"strategy": Spec("logo"), "model": Spec("mlp", {"hidden": [6]})},
    "dpfl": {
        "training": Spec("dpfl", {"budget": 2}),
        "validation": 0.4,
        "restart": "continue",
    },
    "numbers: fale": {**NUMBER, "strategy": Spec("fale")},
    "numbers: pivotal": {**NUMBER, "strategy": Spec("pivotal")},
    "numbers: masked fale and a masked solution": {
        **NUMBER,
        "strategy": Spec("fale", {"mode": "fedsvd"}),
        "training": Spec("masked-solve"),
    },
}


def tap_study(
    folder: Path, study: dict[str, Any], policy: NamePolicy = BUILT_IN
) -> tuple[Federation, Wire]:
    """Return a federation and a recorder of all its messages."""
    config = ExperimentConfig("alps", **{**COMMON, **study})
    simulation = planted(folder, config, "initial_by" not in study, policy=policy)
    return simulation, tap_sites(simulation)


def tap_sites(simulation: Federation) -> Wire:
    """Record every message of a federation from now on."""
    wire = Wire()
    for site, handle in simulation.transport.alive.items():
        simulation.transport.alive[site] = wire.tap(site, handle)
    return wire


def run_study(
    folder: Path, study: dict[str, Any], policy: NamePolicy = BUILT_IN
) -> tuple[Federation, Wire]:
    """Run a study from beginning to end."""
    simulation, wire = tap_study(folder, study, policy)
    assert simulation.program(people(simulation)).go()
    return simulation, wire


LONG = (
    "random",
    "ahfal",
    "ahfal with noise",
    "badge",
    "logo",
    "numbers: fale",
    "numbers: pivotal",
)
"""Studies whose kinds of messages occur in other studies too."""


def find_traces(simulation: Federation, wire: Wire) -> list[str]:
    """Return the planted values that occur in any message."""
    ledger = simulation.ledgers[PLANTED]
    return wire.find_traces(rows_of(simulation.sites[PLANTED], ledger), labels_of(ledger))


@pytest.mark.long
@pytest.mark.parametrize("name", mark_long(STUDIES, LONG))
def test_no_message_has_a_row_a_name_or_a_label(name: str, tmp_path: Path) -> None:
    simulation, wire = run_study(tmp_path, STUDIES[name])
    assert AT in {label.row for label in simulation.labels()[PLANTED]}, (
        "the row took no part"
    )
    assert find_traces(simulation, wire) == []
    simulation.close()


def test_a_site_that_trains_a_linear_model_on_one_row_alone_sends_that_row(
    tmp_path: Path,
) -> None:
    """The attack succeeds: only sums over sites hide the effect of one example."""
    config = ExperimentConfig("alps", **{**COMMON, "initial": 0, "budget": 8})
    simulation = planted(tmp_path, config, names=SITES[1:])
    wire = tap_sites(simulation)
    assert simulation.program(people(simulation)).go()
    assert find_traces(simulation, wire) == ["row in (18,) of 0/train/0/0"]
    simulation.close()


@pytest.mark.long
@pytest.mark.parametrize("what", ["rows", "columns", "labels"])
def test_what_a_method_should_not_send_is_found(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = install_leaky(tmp_path / "installed", monkeypatch)
    leaky = Spec(f"{LEAKY}:Leaky", {"what": what})
    simulation, wire = run_study(tmp_path, {"strategy": leaky}, policy)
    seen = find_traces(simulation, wire)
    assert any(line.startswith("labels" if what == "labels" else "row") for line in seen)
    assert not any(
        line.startswith("row" if what == "labels" else "labels") for line in seen
    )
    simulation.close()


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", ">f8"])
def test_planted_numbers_are_found_in_every_order_of_bytes_and_in_base64(kind: str) -> None:
    raw = np.array([0.5, *NUMBERS], kind).tobytes()
    assert hidden_in(b"x" + raw + b"y")
    assert kind != "<f4" or hidden_in(b"{" + base64.b64encode(raw) + b"}")


@pytest.mark.parametrize("text", [ROW, ANNOTATOR, FOLDER, CLASSES[1]])
def test_planted_texts_are_found_plain_and_in_base64(text: str) -> None:
    assert hidden_in(pack({"a": [text]}))
    for before in ("", "a", "ab"):
        assert hidden_in(base64.b64encode(f"{before}{text} and more".encode()))
    assert not hidden_in(pack({"a": [text[:3]], "b": torch.ones(99)}))


def test_a_refusal_tells_nothing_of_folders(tmp_path: Path) -> None:
    simulation, wire = tap_study(tmp_path, {"model": Spec("mlp", {"hidden": [400]})})
    tables = simulation.ledgers[PLANTED]._tables
    pages = tables.read("PRAGMA page_count")[0][0]
    tables.read(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RuntimeError, match=f"{PLANTED} .*free some space"):
        simulation.program(people(simulation)).go()
    refusals = [
        e["reason"] for e in simulation.list_events("refused") if e["site"] == PLANTED
    ]
    assert refusals
    assert not any(FOLDER in why or str(tmp_path) in why for why in refusals)
    assert wire.find_traces([], []) == []
    simulation.close()
