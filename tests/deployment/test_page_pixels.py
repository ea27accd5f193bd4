"""The labeling page shows the pixels that the network reads."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.core.load_options import DEFAULTS, LoadOptions
from fallow.deployment.labeling_page.pictures import picture, sizes
from fallow.deployment.schema import Schema, schema_of
from fallow.deployment.site.rows import read_rows
from tests.data.test_own_images import dicom
from tests.data.test_shown_images import LOSSLESS, MODES, TURNS, encode
from tests.each import each_of

images = pytest.importorskip("PIL.Image")


def write_every_kind(folder: Path) -> None:
    """Write images of 2 x 2 pixels of every mode, and of blocks in every orientation."""
    folder.mkdir()
    for number, (make, kind, _) in enumerate(MODES.values()):
        image = make()
        if image.size == (2, 2):
            content = encode(image, kind).getvalue()
            (folder / f"mode{number}.{kind.lower()}").write_bytes(content)
    for kind, options in LOSSLESS.items():
        for orientation, stored in TURNS.items():
            exif = images.Exif()
            exif[0x0112] = orientation
            square = np.kron(stored, np.ones((8, 8)))[:16, :16].astype(np.uint8)
            turned = encode(images.fromarray(square), kind, exif=exif, **options)
            name = f"turned{orientation}.{kind.lower()}"
            (folder / name).write_bytes(turned.getvalue())


def assert_shown_as_read(
    folder: Path, schema: Schema, options: LoadOptions = DEFAULTS
) -> int:
    rows = read_rows(folder, schema, options)
    for row, name in enumerate(rows.ids):
        shown = picture(rows, row)
        assert shown is not None
        with images.open(BytesIO(shown.content)) as opened:
            assert opened.getexif().get(0x0112, 1) == 1, name
            assert sizes(rows, row) == [opened.size], name
            pixels = np.asarray(opened.convert("RGB"), dtype=np.float32) / 255
        read = rows.x[row].expand(3, -1, -1).permute(1, 2, 0)
        difference = (torch.from_numpy(pixels) - read).abs().max()
        assert float(difference) <= 0.5 / 255 + 1e-6, name
    return len(rows.ids)


def test_every_image_is_shown_as_the_network_reads_it(tmp_path: Path) -> None:
    write_every_kind(tmp_path / "all")
    for size in (2, 16):
        folder = tmp_path / str(size) / "cat"
        folder.mkdir(parents=True)
        prefix = "mode" if size == 2 else "turned"
        for file in sorted((tmp_path / "all").glob(f"{prefix}*")):
            (folder / file.name).write_bytes(file.read_bytes())
        schema = Schema(
            "images", "classification", classes=("cat", "dog"), shape=(3, size, size)
        )
        assert assert_shown_as_read(folder.parent, schema) > 10


def test_scans_are_shown_in_the_agreed_range(tmp_path: Path) -> None:
    for number in range(4):
        pixels = np.arange(16, dtype=np.uint16).reshape(4, 4) + 100 * number
        file = tmp_path / ("cat", "dog")[number % 2] / f"{number}.dcm"
        dicom(file, pixels, 12, slope=2.0, intercept=-1000.0)
    schema = schema_of(tmp_path)
    assert schema.physical_range == (-1000.0, -370.0)
    assert assert_shown_as_read(tmp_path, schema) == 4


def test_a_site_maps_its_values_to_the_agreed_range(tmp_path: Path) -> None:
    dicom(tmp_path / "cat" / "0.dcm", np.full((4, 4), 500, np.uint16), 12, slope=1.0)
    dicom(tmp_path / "dog" / "1.dcm", np.full((4, 4), 9, np.uint16), 12, slope=1.0)
    schema = replace(schema_of(tmp_path), physical_range=(0.0, 1000.0))
    assert read_rows(tmp_path, schema).x[0].mean() == pytest.approx(0.5)
    without = replace(schema, physical_range=(), physical_unit="")
    with pytest.raises(
        ValueError, match=r"no range for them; set physical_range in \[schema\]"
    ):
        read_rows(tmp_path, without)


@each_of(
    "elements, sentence",
    [
        ({"slope": 1.0, "Modality": "MR"}, "the images are MR in rescaled units"),
        ({"slope": 1.0, "RescaleType": "OD"}, "the images are CT in OD"),
        ({}, "the images are without a unit"),
    ],
)
def test_the_images_of_a_site_have_the_agreed_unit(
    elements: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / sentence[-4:]
    for name in ("cat", "dog"):
        dicom(folder / name / "0.dcm", np.full((4, 4), 500, np.uint16), 12, slope=1.0)
    schema = schema_of(folder)
    assert schema.physical_unit == schema.example_spec["physical_unit"] == "CT in HU"
    for file in folder.rglob("*.dcm"):
        file.unlink()
    pixels = np.full((4, 4), 500, np.uint16)
    if elements:
        dicom(folder / "cat" / "1.dcm", pixels, 12, **elements)
    else:
        images.fromarray(pixels.astype(np.uint8)).save(folder / "cat" / "1.png")
    with pytest.raises(ValueError, match=rf"{sentence}, and the agreement has CT in HU"):
        read_rows(folder, schema)


def test_a_site_without_units_is_refused_where_a_range_is_agreed(tmp_path: Path) -> None:
    dicom(tmp_path / "cat" / "0.dcm", np.full((4, 4), 500, np.uint16), 12)
    schema = Schema(
        "images",
        "classification",
        classes=("cat", "dog"),
        shape=(1, 4, 4),
        physical_range=(0.0, 1.0),
    )
    with pytest.raises(
        ValueError, match="has no RescaleSlope, and the physical range 0 to 1"
    ):
        read_rows(tmp_path, schema)


def test_empty_folders_are_classes_of_an_agreement(tmp_path: Path) -> None:
    dicom(tmp_path / "cat" / "0.dcm", np.full((4, 4), 500, np.uint16), 12)
    (tmp_path / "dog").mkdir()
    assert schema_of(tmp_path).classes == ("cat", "dog")


@pytest.mark.parametrize("ending", ["tif", "dcm"])
def test_each_page_of_a_file_is_shown(ending: str, tmp_path: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        file = tmp_path / name / f"{name}.{ending}"
        levels = [np.full((2, 2), 60 * number + 50 * page) for page in range(3)]
        if ending == "dcm":
            stored = np.concatenate(levels).astype(np.uint16)
            dicom(file, stored, 8, NumberOfFrames=3, Rows=2, BitsStored=8, HighBit=7)
            continue
        file.parent.mkdir()
        first, *others = [images.fromarray(level.astype(np.uint8)) for level in levels]
        first.save(file, save_all=True, append_images=others)
    schema = Schema("images", "classification", classes=("cat", "dog"), shape=(1, 2, 2))
    options = LoadOptions(pages="each")
    assert assert_shown_as_read(tmp_path, schema, options) == 6
    rows = read_rows(tmp_path, schema, options)
    assert rows.ids[:2] == (f"cat.{ending}#1", f"cat.{ending}#2")
    assert rows.labels == (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
    assert rows.groups is not None and len({*rows.groups}) == 2
    assert any("2 files with several pages" in note for note in rows.notes)
    with pytest.raises(ValueError, match=r"3 (pages or )?frames.*--pages each"):
        read_rows(tmp_path, schema)
