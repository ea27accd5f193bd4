"""Test that the wheel is typed, contains Flower's app and provides the transport."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from tests.transport.wheels import check_wheel


def test_the_wheel_adds_the_transport_that_fallow_names(tmp_path: Path) -> None:
    files = check_wheel("fallow-flower", "flower", tmp_path)
    app = "fallow_flower/app"
    assert {f"{app}/pyproject.toml", f"{app}/fallow_pipe/apps/client_app.py"} <= files
