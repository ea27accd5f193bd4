"""What every test stands on: one thread, reproducible examples, the real data if it is there."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy start their threads

import pytest
import torch

torch.set_num_threads(1)
torch.set_num_interop_threads(1)

try:
    import hypothesis
except ImportError:  # a borrowed machine, for the tests of devices alone
    pass
else:
    # No deadline: a busy machine is not a bug. Derandomized: the same examples everywhere.
    hypothesis.settings.register_profile(
        "fallow", deadline=None, derandomize=True, max_examples=50
    )
    hypothesis.settings.load_profile("fallow")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: ``FALLOW_DATA``, else ``../shared/data``."""
    named = os.environ.get("FALLOW_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(
            f"no real data: {folder} is not a folder; set FALLOW_DATA to the one you have"
        )
    return folder
