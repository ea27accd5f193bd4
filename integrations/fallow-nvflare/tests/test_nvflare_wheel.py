"""Test that the wheel is typed, contains the code of the job and provides the transport."""

from __future__ import annotations

from pathlib import Path

from tests.transport.wheels import check_wheel


def test_the_wheel_adds_the_transport_that_fallow_names(tmp_path: Path) -> None:
    files = check_wheel("fallow-nvflare", "nvflare", tmp_path)
    app = "fallow_nvflare/app"
    assert {f"{app}/keep.py", f"{app}/fallow_tunnel/tunnel.py"} <= files
