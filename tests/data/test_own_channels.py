"""Images with channels last, (n, height, width, channels)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fallow as fl
from fallow.data import open_dataset, read_rows
from fallow.data.loaders.open import from_arrays as from_plain_arrays
from tests.data.kinds import spec_of

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def digits() -> Arrays:
    """Return digits as (n, 1, 8, 8) floats, and their classes."""
    data = fl.load("digits")
    return {"x": data.x.numpy(), "y": data.y.numpy()}


def in_color(x: np.ndarray) -> np.ndarray:
    """Return three different channels made from one: (n, 1, h, w) -> (n, 3, h, w)."""
    colors: np.ndarray = np.concatenate([x, x[:, :, ::-1], x // 2], axis=1)
    return colors


def put_last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 1, 3))


@pytest.mark.parametrize("is_color", [False, True], ids=["gray", "color"])
def test_images_are_the_same_wherever_their_channels_are(
    digits: Arrays, is_color: bool
) -> None:
    x = in_color(digits["x"]) if is_color else digits["x"]
    first = fl.from_arrays(x, digits["y"], name="scans")
    with pytest.warns(
        UserWarning, match=r"images of shape \(8, 8, \d\) were read as"
    ) as caught:
        last = fl.from_arrays(put_last(x), digits["y"], name="scans")
    assert len(caught) == 1
    assert [note for note in last.notes if "channels last" in note] == list(last.notes)
    assert torch.equal(first.x, last.x) and torch.equal(first.x_test, last.x_test)
    declared = fl.from_arrays(put_last(x), digits["y"], name="scans", channels="last")
    assert torch.equal(first.x, declared.x) and declared.notes == ()

    settings: dict[str, Any] = {"sites": 3, "cycles": 1, "training": "fedavg", "rounds": 1}
    runs = [fl.run(data, "entropy", **settings) for data in (first, last)]
    assert runs[0].labels.equals(runs[1].labels)
    assert runs[0].records.accuracy.equals(runs[1].records.accuracy)
    # new images are converted to the shape of the model
    assert np.array_equal(runs[0].predict(x[:50]), runs[0].predict(put_last(x[:50])))


def test_channels_last_at_test_rows_and_in_files(digits: Arrays, tmp_path: Path) -> None:
    gray = np.round(digits["x"][:90] * 20 + 100).astype(np.uint8)
    x = put_last(in_color(gray))
    y = digits["y"][:90]
    parts: dict[str, Any] = {"x": x[:60], "y": y[:60], "x_test": x[60:], "y_test": y[60:]}
    np.savez(tmp_path / "scans.npz", **parts)
    data = open_dataset(tmp_path / "scans.npz")
    assert data.x.shape == (60, 3, 8, 8) and data.x_test.shape == (30, 3, 8, 8)
    pixels = (data.x_test * 255).round().numpy()
    assert np.array_equal(pixels, in_color(gray)[60:])
    (moved,) = [note for note in data.notes if "channels last" in note]
    assert moved == (
        "images of shape (8, 8, 3) were read as 3 channels of 8 x 8 pixels (channels last)"
    )
    rows = read_rows(tmp_path / "scans.npz", spec_of((3, 8, 8)))
    assert torch.equal(rows.x, data.x)
    kept = open_dataset(tmp_path / "scans.npz", channels="first")
    assert kept.x.shape == (60, 8, 8, 3)


@pytest.mark.parametrize("shape", [(3, 8, 3), (4, 8, 1), (3, 3, 3), (1, 8, 1)])
def test_images_that_may_be_read_in_both_ways_are_refused(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random((20, *shape)).astype(np.float32)
    y = np.arange(20) % 2
    words = f"{shape[0]} channels if these come first, and {shape[2]} if they come last"
    with pytest.raises(ValueError, match=words):
        fl.from_arrays(x, y)
    assert fl.from_arrays(x, y, channels="first").x.shape[1:] == shape
    last = fl.from_arrays(x, y, channels="last")
    assert last.x.shape[1:] == (shape[2], shape[0], shape[1])


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 4, 4), (28, 3, 3), (64, 4, 4), (2, 9, 9)])
def test_channels_that_come_first_stay_there(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random((20, *shape)).astype(np.float32)
    data = from_plain_arrays(x, np.arange(20) % 2)
    assert data.x.shape[1:] == shape and data.notes == ()


DOUBTFUL = [(16, 16, 13), (16, 16, 2), (12, 20, 5)]


@pytest.mark.parametrize("shape", DOUBTFUL)
def test_images_that_seem_to_have_other_channels_last_are_named(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).random((20, *shape)).astype(np.float32)
    y = np.arange(20) % 2
    data = from_plain_arrays(x, y)
    assert data.x.shape[1:] == shape
    (finding,) = data.findings
    assert f"{shape} were read as {shape[0]} channels" in finding.sentence
    assert finding.severity == "warning" and "channels='last'" in finding.fix
    np.savez(tmp_path / "scans.npz", x=x, y=y)
    assert finding in open_dataset(tmp_path / "scans.npz").findings
    assert from_plain_arrays(x, y, channels="first").findings == ()
    last = from_plain_arrays(x, y, channels="last")
    assert last.x.shape[1:] == (shape[2], *shape[:2]) and last.findings == ()


def test_an_unknown_order_is_refused(digits: Arrays) -> None:
    with pytest.raises(ValueError, match="channels is 'middle'; give 'first' or 'last'"):
        fl.from_arrays(digits["x"], digits["y"], channels="middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="digits is a named dataset: channels='last' does"):
        open_dataset("digits", channels="last")
