"""Test closed-form classifiers at real sites: secure sums unless the sites agree otherwise,
and messages that state what is disclosed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.deployment.building import build_study
from fallow.deployment.site.agreement_text import describe_study, list_disclosures
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.transport.envelope import open_reply
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.each import mark_long

SECURE = Privacy(secure_sum=True)
CLOSED: dict[str, Any] = {
    "model": Spec("linear"),
    "encoder": Spec("fourier", {"features": 24}),
    "strategy": Spec("margin"),
    "initial": 5,
    "budget": 4,
    "rounds": 1,
    "score_rounds": 1,
    "cycles": 1,
    "dtype": "float64",
}
TREES: dict[str, Any] = {"model": Spec("trees"), "encoder": None}
HEADS = ("closed-form", "closed-form-heads", "boosted-trees")


def hospitals(folder: Path, training: Spec, privacy: Privacy = SECURE) -> Federation:
    settings = CLOSED | (TREES if training.name == "boosted-trees" else {})
    config = ExperimentConfig("hospitals", **settings, training=training, privacy=privacy)
    return federation(folder, config, rows(classes=3))


@pytest.mark.parametrize("name", HEADS)
def test_without_secure_sums_it_is_refused_and_says_what_would_be_seen(
    name: str, tmp_path: Path
) -> None:
    agreed = hospitals(tmp_path, Spec(name)).agreement
    plain = replace(agreed, config=replace(agreed.config, privacy=Privacy()))
    with pytest.raises(ValueError, match=r"those of a single example reveal it") as refused:
        build_study(plain)
    assert "privacy.secure_sum = true" in str(refused.value)
    assert "shown=parts" in str(refused.value)


@pytest.mark.parametrize("name", HEADS)
def test_sites_may_agree_to_show_their_parts_and_are_told_what_that_means(
    name: str, tmp_path: Path
) -> None:
    simulation = hospitals(tmp_path, Spec(name, {"shown": "parts"}), Privacy())
    study = describe_study(simulation.sites["basel"])
    assert any("without secure aggregation, the coordinator sees" in line for line in study)
    assert any(
        "can compute rows from what is sent, labeled or not" in line for line in study
    )


def test_with_secure_sums_only_the_totals_of_two_closes_are_spoken_of(
    tmp_path: Path,
) -> None:
    simulation = hospitals(tmp_path, Spec("closed-form"))
    study = describe_study(simulation.sites["basel"])
    assert not any("without secure aggregation" in line for line in study)
    assert any(
        "can compute rows from what is sent, labeled or not" in line for line in study
    )
    seen_by = {
        function: seen
        for _, function, _, seen, _ in list_disclosures(simulation.sites["basel"])
    }
    assert seen_by["totals"] == "coordinator, aggregate only"


def test_what_an_exact_head_asks_is_listed(tmp_path: Path) -> None:
    config = ExperimentConfig("hospitals", **{**CLOSED, "encoder": None, "head": "exact"})
    simulation = federation(tmp_path, config, rows(classes=3))
    listed = {
        function
        for part, function, *_ in list_disclosures(simulation.sites["basel"])
        if part == "exact head"
    }
    assert listed == {"columns", "spread", "totals", "left_out"}
    study = describe_study(simulation.sites["basel"])
    assert any("without secure aggregation, the coordinator sees" in line for line in study)


# -- what two aggregates disclose ----------------------------------------------------------


def listen(simulation: Federation) -> dict[str, dict[str, Any]]:
    """Record the replies to the coordinator from now on, by exchange key and site."""
    messages: dict[str, dict[str, Any]] = {}

    def listening_to(site: str) -> Callable[[bytes], bytes | None]:
        honest = simulation.transport.alive[site]

        def handle(blob: bytes) -> bytes | None:
            sent = honest(blob)
            reply = open_reply(simulation.sites[site].keys.verify, sent or b"", site)
            messages.setdefault(str(reply.key), {})[site] = reply.body
            return sent

        return handle

    for site in simulation.sites:
        simulation.transport.alive[site] = listening_to(site)
    return messages


def add_up(parts: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the sums of masked contributions, which disclose nothing else."""
    total = SecureSum().total(parts, "training", "totals", None)
    return {name: torch.as_tensor(value) for name, value in total.items()}


def change_one(simulation: Federation, change: str) -> list[int]:
    """Label or withdraw one example of chur; the returned list then contains its row."""
    ledger = simulation.ledgers["chur"]
    changed: list[int] = []

    def answer(site: str, row: int) -> float | None:
        is_first = simulation.ledgers[site].cycles()[-1] < 0
        if is_first:
            return simulation.truth(site, row)
        if site == "chur" and not changed:
            changed.append(row)
            if change == "label":
                return simulation.truth(site, row)
            changed[0] = ledger.store.load_labels("chur")[0].row
            ledger.withdraw(changed[0], "Ann", "the patient asked for it")
        return None  # "cannot tell"

    simulation.annotate = answer
    return changed


def compare_aggregates(
    folder: Path, change: str
) -> tuple[Federation, list[int], list[dict[str, torch.Tensor]]]:
    """Run a study with a passive coordinator; return the aggregates of its two cycles."""
    config = ExperimentConfig(
        "hospitals",
        **{**CLOSED, "encoder": Spec("identity"), "strategy": Spec("random")},
        training=Spec("closed-form"),
        privacy=Privacy(secure_sum=True),
    )
    simulation = federation(folder, config, rows(NAMES[:3], classes=3))
    changed = change_one(simulation, change)
    messages = listen(simulation)
    assert simulation.program().go()
    aggregates = [add_up(messages[f"{cycle}/train/0/1"]) for cycle in (0, 1)]
    return simulation, changed, aggregates


@pytest.mark.long
@pytest.mark.parametrize("change", mark_long(["label", "withdrawal"], ["label"]))
def test_two_aggregates_show_the_one_example_that_changed(
    change: str, tmp_path: Path
) -> None:
    """A passive coordinator reconstructs the example and its class from two aggregates."""
    simulation, changed, (before, after) = compare_aggregates(tmp_path, change)
    (row,) = changed
    sign = 1.0 if change == "label" else -1.0
    assert float(after["n"] - before["n"]) == sign
    # the site's own examples, scaled as the coordinator knows
    x = simulation.sites["chur"].rows.x[row].double()
    shown = sign * (after["features"] - before["features"])
    known = simulation.ledgers["chur"].store.load_states("chur")["features"]
    expected = (x - known["mean"]) / known["std"]
    torch.testing.assert_close(shown, expected.double(), rtol=0, atol=1e-4)
    difference = sign * (after["targets"] - before["targets"])
    assert int(difference.argmax()) == int(simulation.truth("chur", row))
    simulation.close()
