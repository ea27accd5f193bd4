"""Test closed-form classifiers with self-training on unlabeled examples at real sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.client import declared, find_fault
from fallow.core.composites import MASS
from fallow.core.values import SenderFacts
from fallow.deployment.building import build_study
from fallow.deployment.site.agreement_text import describe_study, list_disclosures
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.training import ClosedForm
from fallow.training.parts.ridge import TEMPERATURES
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.deployment.test_closed_form import CLOSED
from tests.deployment.test_closed_form_killed import EXPERIMENT, check
from tests.each import each_of

UNLABELED: dict[str, Any] = {
    **CLOSED,
    "initial": 20,
    "encoder": Spec("fourier", {"features": 32}),
    "training": Spec("closed-form"),
    "privacy": Privacy(secure_sum=True),
}
CALLS = ("class_counts", *4 * ["totals"], "totals", "left_out")
CONNECT = 2 * (len(CALLS) + 1)
"""Exchange that connects similar examples, after those of keys and sums."""


def study(folder: Path, **settings: Any) -> Federation:
    config = ExperimentConfig("hospitals", **{**UNLABELED, **settings})
    return federation(folder, config, rows(NAMES[:3], classes=3, per_site=66))


def test_a_site_is_told_what_leaves_it(tmp_path: Path) -> None:
    simulation = study(tmp_path)
    listed = {
        function: what
        for _, function, what, *_ in list_disclosures(simulation.sites["basel"])
    }
    assert "products of all examples" in listed["example_totals"]
    assert "class probabilities of all examples" in listed["soft_labels"]
    assert any(
        "64 principal directions of the features of all examples" in line
        for line in describe_study(simulation.sites["basel"])
    )
    assert any(
        "up to 17 more exchanges per cycle, which send exact products of all examples"
        in line
        for line in describe_study(simulation.sites["basel"])
    )
    assert any(
        "can compute rows from what is sent, labeled or not" in line
        for line in describe_study(simulation.sites["basel"])
    )
    simulation.close()


@pytest.mark.long
def test_the_run_states_the_weight_of_unlabeled_examples(tmp_path: Path) -> None:
    simulation = study(tmp_path, cycles=0)
    assert simulation.program().go()
    record = simulation.records()[-1]
    assert 0 <= record["unlabeled"] <= 1
    assert -1 <= record["unlabeled_gain"] <= 1
    simulation.close()


@pytest.mark.long
def test_a_site_killed_while_it_learns_from_unlabeled_examples_ends_with_the_same_bits(
    tmp_path: Path,
) -> None:
    config = replace(
        EXPERIMENT,
        training=UNLABELED["training"],
        encoder=UNLABELED["encoder"],
        initial=20,
    )
    data = rows(NAMES[:3], classes=3, per_site=66)
    deadly = (f"0/train/0/{CONNECT}", f"0/train/0/{CONNECT + 2}")
    deaths = check(tmp_path, deadly, config, data)
    assert set(deadly) == set(deaths)


@each_of("classes, features", [(0, 32), (3, 29)])
def test_for_regression_and_with_few_features_sites_refuse_to_read_unlabeled_examples(
    classes: int, features: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = ExperimentConfig("hospitals", **{**UNLABELED, "strategy": Spec("random")})
    config = replace(config, encoder=Spec("fourier", {"features": features}))
    data = rows(NAMES[:3], classes=classes)
    folder = tmp_path_factory.mktemp("study")
    training = build_study(federation(folder, config, data).agreement).methods["training"]
    assert set(training.contract.disclosures) == {"totals", "fitted"}


# -- replies -------------------------------------------------------------------------------


def test_more_held_out_examples_than_labels_are_refused() -> None:
    held_out = declared(ClosedForm())["held_out"].returns
    assert held_out is not None
    answer = {
        "squared": torch.zeros(3),
        "right": torch.tensor([0.0, 1.0, 99.0]),
        "log": torch.zeros(3, len(TEMPERATURES)),
    }
    known = SenderFacts(noted={MASS: 60.0}, heaviest=1.0)
    assert "right is 99" in (find_fault(held_out, answer, known) or "")
    known = SenderFacts(noted={MASS: 99.0}, heaviest=1.0)
    assert find_fault(held_out, answer, known) is None
