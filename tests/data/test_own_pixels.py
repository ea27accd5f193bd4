"""Integer pixels from 0 to 255 are rescaled, since a model would not learn from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.data import from_arrays, open_dataset, read_rows
from tests.data.kinds import spec_of


def squares(dtype: type[np.generic], brightest: int, n: int = 40) -> dict[str, np.ndarray]:
    """Return images (n, 1, 4, 4) whose class is the bright half, left or right."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, brightest // 4, (n, 1, 4, 4)).astype(dtype)
    y = np.arange(n) % 2
    for i in range(n):
        x[i, 0, :, 2 * y[i] : 2 * y[i] + 2] = brightest
    return {"x": x, "y": y}


@pytest.mark.parametrize(("dtype", "brightest"), [(np.uint8, 255), (np.uint16, 65_535)])
def test_images_of_whole_numbers_are_scaled_by_the_brightest_their_type_holds_and_say_so(
    tmp_path: Path, dtype: type[np.generic], brightest: int
) -> None:
    arrays = squares(dtype, brightest)
    np.savez(tmp_path / "scans.npz", x=arrays["x"], y=arrays["y"])
    d = open_dataset(tmp_path / "scans.npz")
    assert d.x.dtype == torch.float32 and float(d.x.max()) == 1.0 and float(d.x.min()) >= 0
    sentence = f"pixels are {np.dtype(dtype)} and were divided by {brightest:,}"
    assert any(sentence in note for note in d.notes)
    # new examples are scaled by the same rule
    rows = read_rows(tmp_path / "scans.npz", spec_of((1, 4, 4)))
    assert float(rows.x.max()) == 1.0


def test_images_of_other_whole_numbers_are_refused_and_lists_of_counts_stay() -> None:
    x = np.arange(160).reshape(10, 1, 4, 4)
    with pytest.raises(ValueError, match="images are int64 values with unknown maximum"):
        from_arrays(x, np.arange(10) % 2)
    counts = from_arrays(x.reshape(10, 16).astype(np.uint8), np.arange(10) % 2)
    assert float(counts.x.max()) == 159 and counts.notes == ()


def test_floats_far_from_one_are_used_and_said() -> None:
    x = np.linspace(0, 255, 160).reshape(10, 1, 4, 4)
    d = from_arrays(x, np.arange(10) % 2)
    assert any("pixels are between 0 and 255 and are used unchanged" in n for n in d.notes)
    assert from_arrays(x / 255, np.arange(10) % 2).notes == ()
