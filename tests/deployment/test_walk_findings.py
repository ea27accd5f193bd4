"""Test four findings in each image at real sites in a browser, with five killed processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment.browser import browser_test

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "walk_findings.py"


@pytest.mark.soak
@browser_test
def test_every_answer_to_four_findings_survives_five_kills(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("fallow")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "parties")],
        env={**os.environ, "FALLOW": str(command)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "48 images with 4 answers each, 5 kills" in done.stdout
