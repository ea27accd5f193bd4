"""Kill a site repeatedly while the sites jointly fill empty cells. The results equal those
of an undisturbed site, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fallow.privacy.settings import Privacy
from fallow.settings.spec import Spec
from tests.deployment.simulations import ward
from tests.deployment.test_closed_form_killed import EXPERIMENT, check

pytest.importorskip("cryptography")
UNITS = replace(EXPERIMENT, encoder=None, training=Spec("fedavg"))


@pytest.mark.parametrize(
    ("is_masked", "exchanges"),
    [(True, 3), (False, 2)],  # keys, sums, fill values
)
@pytest.mark.long
def test_before_an_encoder(is_masked: bool, exchanges: int, tmp_path: Path) -> None:
    training = EXPERIMENT.training if is_masked else Spec("fedavg")
    config = replace(EXPERIMENT, privacy=Privacy(secure_sum=is_masked), training=training)
    deaths = check(tmp_path, ("0/initial/cells/",), config, ward())
    assert set(deaths) == {f"0/initial/cells/{turn}" for turn in range(exchanges)}
    assert min(deaths.values()) >= 6


@pytest.mark.long
def test_together_with_units_of_columns(tmp_path: Path) -> None:
    deaths = check(tmp_path, ("0/initial/features/",), UNITS, ward())
    # keys and sums of cells, keys and sums of squares, and the agreed values
    assert set(deaths) == {f"0/initial/features/{turn}" for turn in range(5)}
    assert min(deaths.values()) >= 6
