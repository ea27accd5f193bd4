"""Folders of clinical images: without sites, of several sizes, 16 bits, DICOM."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.data import from_folder, read_rows
from tests.data.kinds import spec_of

image = pytest.importorskip("PIL.Image")


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path)


def test_folders_of_classes_alone_name_no_sites(tmp_path: Path) -> None:
    for i in range(10):
        save(
            tmp_path / ("cat", "dog")[i % 2] / f"{i}.png", np.full((4, 4), 20 * i, np.uint8)
        )
    save(tmp_path / "unlabeled" / "x.png", np.full((4, 4), 255, np.uint8))
    d = from_folder(tmp_path)
    assert d.sites is None and d.classes == ("cat", "dog")
    assert len(d.x) + len(d.x_test) == 11 and int((d.y == -1).sum()) == 1


def test_images_of_16_bits_keep_all_of_them(tmp_path: Path) -> None:
    for i in range(10):
        pixels = np.full((4, 4), 6_553 * i + i, np.uint16)
        save(tmp_path / "north" / ("cat", "dog")[i % 2] / f"{i}.png", pixels)
    d = from_folder(tmp_path)
    assert "images read as gray, pixels scaled to [0, 1]" in d.notes
    assert "10 images have more than 8 bits per pixel, all of which are used" in d.notes
    assert d.ids is not None
    for name, x in zip(d.ids, d.x, strict=True):
        i = int(name.rpartition("/")[2][0])
        assert float(x[0, 0, 0]) == pytest.approx(6_554 * i / 65_535, abs=1e-6)


def test_images_of_many_sizes_are_brought_to_the_most_frequent_one(tmp_path: Path) -> None:
    for i in range(12):
        size = (8, 6) if i < 9 else (16, 12)
        save(
            tmp_path / "north" / ("cat", "dog")[i % 2] / f"{i:02}.png",
            np.full(size, 99, np.uint8),
        )
        # a flat image is equal in every size, and no two examples may be duplicates
        save(
            tmp_path / "north" / ("cat", "dog")[i % 2] / f"{i:02}.png",
            np.full(size, 10 * i, np.uint8),
        )
    d = from_folder(tmp_path)
    assert d.x.shape[1:] == (1, 8, 6)
    output = "3 of 12 images were resized to the most frequent size, 6 x 8"
    assert output in d.notes and d.ids is not None
    assert "images read as gray, pixels scaled to [0, 1]" in d.notes
    for name, x in zip(d.ids, d.x, strict=True):
        value = int(name.rpartition("/")[2][:2]) * 10 / 255
        assert float(x.min()) == pytest.approx(value, abs=1e-5) == float(x.max())
    # new examples are resized to the input shape of the model
    assert tuple(read_rows(tmp_path, spec_of((1, 8, 6))).x.shape) == (12, 1, 8, 6)


def start_dicom(pixels: np.ndarray, bits: int, syntax: str) -> Any:
    """Return a DICOM data set of an image (h, w) or (h, w, 3) without its pixels."""
    pydicom = pytest.importorskip("pydicom")
    header = pydicom.dataset.Dataset()
    header.file_meta = pydicom.dataset.FileMetaDataset()
    header.file_meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    header.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    header.file_meta.TransferSyntaxUID = syntax
    header.Rows, header.Columns = pixels.shape[:2]
    header.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    header.BitsAllocated = 8 * pixels.itemsize
    header.BitsStored = bits
    header.HighBit = bits - 1
    header.PixelRepresentation = int(pixels.dtype.kind == "i")
    header.PhotometricInterpretation = "MONOCHROME2"
    return header


def dicom(
    path: Path,
    pixels: np.ndarray,
    bits: int,
    meaning: str = "MONOCHROME2",
    slope: float | None = None,
    intercept: float = 0.0,
    **elements: object,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    uid = pytest.importorskip("pydicom").uid
    header = start_dicom(pixels, bits, uid.ExplicitVRLittleEndian)
    header.BitsAllocated = 16
    header.PhotometricInterpretation = meaning
    if slope is not None:
        header.Modality = "CT"
        header.RescaleSlope = slope
        header.RescaleIntercept = intercept
    for name, value in elements.items():
        setattr(header, name, value)
    header.PixelData = pixels.tobytes()
    header["PixelData"].VR = "OW"
    header.save_as(path, enforce_file_format=True)


def test_dicom_files_are_pictures_by_the_bits_they_store(tmp_path: Path) -> None:
    for i in range(10):
        low = np.full((4, 4), 409 * i, np.uint16)
        dicom(tmp_path / "north" / ("cat", "dog")[i % 2] / f"{i}.dcm", low, 12)
    dicom(
        tmp_path / "north" / "cat" / "9w.dcm",
        np.zeros((4, 4), np.uint16),
        12,
        "MONOCHROME1",
    )
    dicom(tmp_path / "north" / "cat" / "0s.dcm", np.full((4, 4), -2048, np.int16), 12)
    d = from_folder(tmp_path)
    assert d.ids is not None
    for name, x in zip(d.ids, d.x, strict=True):
        stem = Path(name).stem
        meant = {"9w": 1.0, "0s": 0.0}.get(stem, 409 * int(stem[0]) / 4095)
        assert float(x[0, 0, 0]) == pytest.approx(meant, abs=1e-6)
    (tmp_path / "north" / "cat" / "broken.dcm").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.dcm could not be read as DICOM"):
        from_folder(tmp_path)


def test_without_pydicom_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pydicom", None)
    (tmp_path / "north" / "cat").mkdir(parents=True)
    (tmp_path / "north" / "cat" / "a.dcm").write_bytes(b"\0" * 128 + b"DICM")
    with pytest.raises(
        ValueError, match="reading a DICOM file needs the package pydicom, which"
    ):
        from_folder(tmp_path)


def test_a_broken_png_is_named(tmp_path: Path) -> None:
    save(tmp_path / "north" / "cat" / "a.png", np.zeros((4, 4), np.uint8))
    whole = (tmp_path / "north" / "cat" / "a.png").read_bytes()
    (tmp_path / "north" / "cat" / "b.png").write_bytes(whole[:40])
    with pytest.raises(ValueError, match=r"b\.png could not be read as an image"):
        from_folder(tmp_path)


def test_what_a_file_manager_leaves_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    for i in range(10):
        save(
            tmp_path / ("cat", "dog")[i % 2] / f"{i}.png", np.full((4, 4), 20 * i, np.uint8)
        )
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"no image")
    (tmp_path / "dog" / "desktop.ini").write_text("no image")
    folder = from_folder(tmp_path)
    assert len(folder.x) + len(folder.x_test) == 10


def test_a_folder_of_texts_is_told_where_to_go(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a.txt").write_text("a good day")
    with pytest.raises(ValueError, match=r"remove other files .*fl\.texts_to_rows"):
        from_folder(tmp_path)


def test_a_few_bytes_that_name_a_huge_picture_are_not_unpacked(tmp_path: Path) -> None:
    save(tmp_path / "north" / "cat" / "a.png", np.zeros((4, 4), np.uint8))
    whole = (tmp_path / "north" / "cat" / "a.png").read_bytes()
    size = (30_000).to_bytes(4, "big")
    head = b"IHDR" + size + size + whole[24:29]
    mark = zlib.crc32(head).to_bytes(4, "big")
    (tmp_path / "north" / "cat" / "b.png").write_bytes(
        whole[:12] + head + mark + whole[33:]
    )
    with pytest.raises(
        ValueError, match=r"b\.png could not be read as an image: Image size"
    ):
        from_folder(tmp_path)


def test_reading_a_folder_says_how_many_bytes_of_its_files_it_has_read(
    tmp_path: Path,
) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        for k in range(6):
            pixels = np.full((4, 4), 40 * k, dtype=np.uint8)
            image.fromarray(pixels).save(tmp_path / kind / f"{k}.png")
    progress: list[tuple[int, int]] = []
    from_folder(tmp_path, notify=lambda done, total: progress.append((done, total)))
    total = sum(file.stat().st_size for file in tmp_path.glob("*/*.png"))
    assert len(progress) == 12 and progress[-1] == (total, total)
    assert 0 < progress[5][0] < total


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 4 4
%%EndComments
showpage
%%EOF
"""


def plant_ghostscript(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake gs program first on the path; return the file that it writes when run."""
    from PIL import EpsImagePlugin

    trace = folder / "gs-ran"
    program = folder / "gs"
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # searched for at the first use
    return trace


def test_postscript_under_the_name_of_an_image_runs_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = plant_ghostscript(tmp_path, monkeypatch)
    file = tmp_path / "rows" / "north" / "cat" / "x.png"
    save(file.with_name("a.png"), np.zeros((4, 4), np.uint8))
    file.write_bytes(POSTSCRIPT)
    with pytest.raises(
        ValueError,
        match=r"x\.png could not be read as an image: its format is not supported",
    ):
        from_folder(tmp_path / "rows")
    assert not trace.exists()


def test_every_image_is_opened_by_the_function_that_names_the_formats() -> None:
    source = Path(__file__).parents[2] / "src" / "fallow"
    openers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"\bimages?\.open\(|\bImage\.open\(", path.read_text("utf-8"))
    }
    assert openers == {"data/loaders/pixels.py"}
