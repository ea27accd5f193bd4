"""A folder of 20,000 PNG images of 64 x 64: Fallow's import against a plain loop over Pillow.

Fallow also measures the headers before it reads, looks for orientation, transparency, profiles
and pages, and keeps classes and names.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.timing import Entry, Race
from fallow.data.loaders.images import read_folder

FILES = 20_000
FEW = 500
SIDE = 64


def write_files(folder: Path, n: int) -> None:
    """Write color images in ten class folders."""
    rng = np.random.default_rng(0)
    for number in range(n):
        file = folder / str(number % 10) / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, compress_level=1)


def read_plainly(folder: Path) -> npt.NDArray[np.float32]:
    """Return the pixels (n, 3, height, width) in [0, 1]."""
    files = sorted(folder.glob("*/*.png"))
    x = np.empty((len(files), 3, SIDE, SIDE), dtype=np.float32)
    for index, file in enumerate(files):
        with Image.open(file) as image:
            x[index] = np.asarray(image.convert("RGB")).transpose(2, 0, 1) / 255
    return x


def prepare(is_quick: bool) -> Race:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name)
    write_files(path, FEW if is_quick else FILES)
    read: dict[str, npt.NDArray[np.float32]] = {}

    def theirs() -> None:
        read["theirs"] = read_plainly(path)

    def ours() -> None:
        read["ours"] = read_folder(path).x

    def are_equal() -> bool:
        return np.array_equal(read["theirs"], read["ours"])

    return Race(theirs, ours, are_equal, runs=1, close=folder.cleanup)


ENTRIES = (
    Entry(
        "png-files",
        "a loop over Pillow that reads the same files, without orientation, transparency, "
        "profiles and pages",
        bar=0.67,
        compared="all pixels, bit for bit",
        prepare=prepare,
    ),
)
