"""DICOM images are read in physical units, with one range over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.data import from_folder, open_dataset, read_rows
from fallow.data.example_spec import describe_examples
from fallow.data.loaders.dicom import read_scans
from fallow.data.loaders.images import read_images
from tests.data.kinds import quietly, spec_of
from tests.data.test_own_images import dicom, start_dicom
from tests.each import each_of

pydicom = pytest.importorskip("pydicom")
Header = Mapping[str, Any]


def steps(kind: str = "u2") -> np.ndarray:
    return np.arange(4, dtype=kind).reshape(2, 2)


VALUES = {  # stored numbers, bits, further elements -> values
    "slope and intercept": (
        steps(),
        12,
        {"slope": 2.0, "intercept": -1000.0},
        [-1000, -994],
    ),
    "signed": (-steps("i2"), 12, {"slope": 1.0}, [0, -3]),
    "signed, all bits": (steps("i2") - 3, 16, {"slope": 1.0, "intercept": 1.0}, [-2, 1]),
    "overlay in unused bits": (steps() | 0xF000, 12, {"slope": 1.0}, [0, 3]),
    "signed with an overlay": (
        ((-steps("i2")).view("u2") & 0x0FFF).view("i2"),
        12,
        {"slope": 1.0},
        [0, -3],
    ),
    "high bit": (steps() << 4, 12, {"slope": 1.0, "HighBit": 15}, [0, 3]),
    "negative slope": (steps(), 12, {"slope": -1.0}, [0, -3]),
}


@each_of("stored, bits, elements, ends", VALUES.values())
def test_values_are_physical(
    stored: np.ndarray, bits: int, elements: Header, ends: list[float], tmp_path: Path
) -> None:
    dicom(tmp_path / "a.dcm", stored, bits, **elements)
    (scan,) = read_scans(tmp_path / "a.dcm")
    assert scan.unit == "CT in HU"
    assert [scan.values[0, 0, 0], scan.values[0, 1, 1]] == ends


RAMP = np.add.outer(np.arange(16), np.arange(16)).astype("u1") * 8
COLORS = np.stack([RAMP, RAMP[::-1], RAMP // 2], axis=-1)
ENCODED = {  # pixels, bits, transfer syntax, interpretation, VR, format of the frame, tolerance
    "big-endian": (RAMP * np.uint16(16), 12, "ExplicitVRBigEndian", "", "OW", None, 0),
    "big-endian, signed": (
        -RAMP.astype("i2"),
        16,
        "ExplicitVRBigEndian",
        "",
        "OW",
        None,
        0,
    ),
    "big-endian bytes": (RAMP, 8, "ExplicitVRBigEndian", "", "OB", None, 0),
    "big-endian bytes in words": (RAMP, 8, "ExplicitVRBigEndian", "", "OW", None, 0),
    "big-endian colors": (COLORS, 8, "ExplicitVRBigEndian", "RGB", "OW", None, 0),
    "implicit": (RAMP, 8, "ImplicitVRLittleEndian", "", "OW", None, 0),
    "colors": (COLORS, 8, "ExplicitVRLittleEndian", "RGB", "OB", None, 0),
    "JPEG": (RAMP, 8, "JPEGBaseline8Bit", "", "OB", "JPEG", 2),
    "JPEG, colors": (COLORS, 8, "JPEGBaseline8Bit", "YBR_FULL", "OB", "JPEG", 12),
    "JPEG, fewer colors": (COLORS, 8, "JPEGBaseline8Bit", "YBR_FULL_422", "OB", "JPEG", 12),
    "JPEG 2000": (RAMP, 8, "JPEG2000Lossless", "", "OB", "JPEG2000", 0),
    "JPEG 2000, 16 bits": (RAMP * np.uint16(16), 16, "JPEG2000", "", "OB", "JPEG2000", 0),
    "JPEG 2000, colors": (COLORS, 8, "JPEG2000Lossless", "YBR_RCT", "OB", "JPEG2000", 0),
}


@each_of("pixels, bits, syntax, meaning, representation, form, tolerance", ENCODED.values())
def test_every_encoding_has_the_same_values(
    pixels: np.ndarray,
    bits: int,
    syntax: str,
    meaning: str,
    representation: str,
    form: str | None,
    tolerance: int,
    tmp_path: Path,
) -> None:
    is_big = syntax == "ExplicitVRBigEndian"
    header = start_dicom(pixels, bits, getattr(pydicom.uid, syntax))
    if meaning:
        header.PhotometricInterpretation = meaning
        header.PlanarConfiguration = 0
    else:
        header.Modality, header.RescaleSlope, header.RescaleIntercept = "CT", 1.0, 0.0
    content = pixels.astype(pixels.dtype.newbyteorder(">" if is_big else "<")).tobytes()
    if is_big and representation == "OW" and pixels.itemsize == 1:
        content = np.frombuffer(content, dtype="u2").byteswap().tobytes()
    if form is not None:
        frame = BytesIO()
        options = {"quality": 95} if form == "JPEG" else {"irreversible": False}
        images = pytest.importorskip("PIL.Image")
        images.fromarray(pixels).save(frame, form, **options)
        content = pydicom.encaps.encapsulate([frame.getvalue()])
    header.PixelData = content
    header["PixelData"].VR = representation
    header.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    (scan,) = read_scans(tmp_path / "a.dcm")
    expected = pixels.transpose(2, 0, 1) if meaning else pixels[None]
    assert np.abs(scan.values - expected).max() <= tolerance


def test_monochrome1_is_inverted_in_the_common_range(tmp_path: Path) -> None:
    for name, meaning in (("a", "MONOCHROME1"), ("b", "MONOCHROME2")):
        dicom(tmp_path / f"{name}.dcm", steps(), 12, meaning, slope=10.0)
    files = [tmp_path / "a.dcm", tmp_path / "b.dcm"]
    stack = read_images(files, physical_range=(0.0, 30.0))
    assert stack.x[0].ravel().tolist() == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert (stack.x[0] + stack.x[1]).ravel().tolist() == pytest.approx([1] * 4)


def test_a_palette_has_colors(tmp_path: Path) -> None:
    table = np.array([0, 65_535, 0, 0], dtype="<u2").tobytes()
    black = bytes(8)
    colors: dict[str, Any] = {}
    for color in ("Red", "Green", "Blue"):
        colors[f"{color}PaletteColorLookupTableDescriptor"] = [4, 0, 16]
        colors[f"{color}PaletteColorLookupTableData"] = table if color == "Red" else black
    dicom(tmp_path / "a.dcm", steps(), 8, "PALETTE COLOR", **colors)
    levels = read_scans(tmp_path / "a.dcm")[0].values
    assert levels.shape == (3, 2, 2)
    assert levels[:, 0, 1].tolist() == [255, 0, 0] and levels[:, 0, 0].tolist() == [0, 0, 0]


def write_scanners(folder: Path, other: Callable[[Path, np.ndarray], None]) -> None:
    """Write the same values of two scanners; the second stores them in another way."""
    for number in range(8):
        values = np.arange(16, dtype="u2").reshape(4, 4) * 10 + number
        kind = ("ill", "well")[number % 2]
        dicom(folder / "a" / kind / f"{number}.dcm", values, 12, slope=1.0, intercept=-50.0)
        other(folder / "b" / kind / f"{number}.dcm", values)


def test_two_scanners_have_one_range_over_all_sites(tmp_path: Path) -> None:
    def half(file: Path, values: np.ndarray) -> None:
        dicom(file, 2 * values, 12, slope=0.5, intercept=-50.0, WindowCenter=1)

    write_scanners(tmp_path, half)
    (tmp_path / "a" / "ill" / "0.dcm").unlink()  # the same values twice are a duplicate
    data = from_folder(tmp_path)
    assert data.physical_range == (-50.0, 107.0)
    assert any(
        "values from -50 to 107 (CT in HU) were scaled" in note for note in data.notes
    )
    assert data.ids is not None
    by_name = dict(zip(data.ids, data.x, strict=True))
    pairs = [name for name in by_name if name[0] == "a" and f"b{name[1:]}" in by_name]
    assert pairs
    for name in pairs:
        assert (by_name[name] == by_name[f"b{name[1:]}"]).all()


def test_a_given_range_clips_the_values(tmp_path: Path) -> None:
    write_scanners(tmp_path, lambda file, values: dicom(file, values, 12, slope=2.0))
    data = open_dataset(tmp_path, physical_range=(0.0, 10.0))
    assert data.physical_range == (0.0, 10.0)
    assert float(data.x.min()) == 0 and float(data.x.max()) == 1
    assert any("as given" in note for note in data.notes)


REFUSED = {
    "no slope": (
        {},
        "different units: .* has CT in HU, .* has stored numbers without a unit",
    ),
    "another unit": ({"slope": 1.0, "RescaleType": "US"}, "different units: .* CT in US"),
    "modality": (
        {"slope": 1.0, "Modality": "MR"},
        "different units: .* MR in rescaled units",
    ),
}


@each_of("elements, message", REFUSED.values())
def test_images_without_a_common_unit_are_refused(
    elements: Header, message: str, tmp_path: Path
) -> None:
    write_scanners(tmp_path, lambda file, values: dicom(file, values, 12, **elements))
    with pytest.raises(ValueError, match=message):
        from_folder(tmp_path)


def test_other_images_among_physical_values_are_refused(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    write_scanners(tmp_path, lambda file, values: dicom(file, values, 12, slope=1.0))
    file = next(tmp_path.rglob("*.dcm")).with_name("x.png")
    images.fromarray(np.zeros((4, 4), np.uint8)).save(file)
    with pytest.raises(ValueError, match=r"CT in HU.* has pixels without a unit"):
        from_folder(tmp_path)


@each_of("bits, is_deep", [(8, False), (12, True)])
def test_only_images_of_more_bits_are_counted_as_such(
    bits: int, is_deep: bool, tmp_path: Path
) -> None:
    folder = tmp_path / str(bits)
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        dicom(folder / name / "x.dcm", steps(), bits)
    notes = quietly(lambda: from_folder(folder)).notes
    assert any("more than 8 bits" in one for one in notes) is is_deep


def test_files_that_are_no_images_are_named(tmp_path: Path) -> None:
    (tmp_path / "raw.dcm").write_bytes(b"\x08\x00\x05\x00" + bytes(200))
    with pytest.raises(ValueError, match="has no DICOM header"):
        read_scans(tmp_path / "raw.dcm")
    dicom(tmp_path / "report.dcm", steps(), 12)
    pydicom = pytest.importorskip("pydicom")
    report = pydicom.dcmread(tmp_path / "report.dcm")
    del report.PixelData
    report.save_as(tmp_path / "report.dcm")
    with pytest.raises(ValueError, match="it has no image, as reports have none"):
        read_scans(tmp_path / "report.dcm")


def test_positron_images_in_different_units_are_refused(tmp_path: Path) -> None:
    for name, unit in (("a", "BQML"), ("b", "GML")):
        elements: Header = {"slope": 1.0, "Modality": "PT", "Units": unit}
        dicom(tmp_path / f"{name}.dcm", steps(), 12, **elements)
    files = [tmp_path / "a.dcm", tmp_path / "b.dcm"]
    with pytest.raises(ValueError, match=r"PT in BQML, .* PT in GML .*Units"):
        read_images(files)
    assert read_images(files[:1]).physical_range == (0, 3)


PADDING = {
    "a value": {"PixelPaddingValue": -2000},
    "a range": {"PixelPaddingValue": -2001, "PixelPaddingRangeLimit": -1999},
}


@each_of("elements", PADDING.values())
def test_padding_is_black_and_outside_the_range(elements: Header, tmp_path: Path) -> None:
    stored = np.array([[-2000, 0], [100, 400]], dtype="i2")
    dicom(tmp_path / "a.dcm", stored, 16, slope=1.0, **elements)
    dicom(tmp_path / "b.dcm", stored, 16, "MONOCHROME1", slope=1.0, **elements)
    stack = read_images([tmp_path / "a.dcm", tmp_path / "b.dcm"])
    assert stack.physical_range == (0, 400)
    assert stack.x[0].ravel().tolist() == [0, 0, 0.25, 1]
    assert stack.x[1].ravel().tolist() == [0, 1, 0.75, 0]
    assert any("2 images with padding" in item.sentence for item in stack.findings)


def test_padding_may_be_written_without_its_sign(tmp_path: Path) -> None:
    stored = np.array([[-2000, 0], [100, 400]], dtype="i2")
    dicom(tmp_path / "a.dcm", stored, 16, slope=1.0)
    changed = pydicom.dcmread(tmp_path / "a.dcm")
    changed.add_new("PixelPaddingValue", "US", 2**16 - 2000)
    changed.save_as(tmp_path / "a.dcm")
    assert read_images([tmp_path / "a.dcm"]).physical_range == (0, 400)


def test_a_padding_value_that_no_pixel_has_changes_nothing(tmp_path: Path) -> None:
    dicom(tmp_path / "a.dcm", steps(), 12, slope=1.0, PixelPaddingValue=4000)
    stack = read_images([tmp_path / "a.dcm"])
    assert stack.physical_range == (0, 3)
    assert not any("padding" in item.sentence for item in stack.findings)


DAMAGED = {
    "frames": ({"NumberOfFrames": 2}, "has 2 frames; save each as a file of its own"),
    "bits": ({"BitsStored": 17}, "could not be read as DICOM"),
    "high bit": ({"HighBit": 3}, "could not be read as DICOM: it stores 12 of 16 bits"),
    "slope": ({"slope": float("inf")}, "slope or intercept is not finite"),
    "rows": ({"Rows": 40_000, "Columns": 40_000}, "could not be read as DICOM"),
    "no colors": ({"PhotometricInterpretation": "X"}, "could not be read as DICOM"),
    "slope 0": ({"slope": 0.0}, "its rescale slope is 0"),
}


@each_of("elements, message", DAMAGED.values())
def test_odd_files_are_refused(elements: Header, message: str, tmp_path: Path) -> None:
    dicom(tmp_path / "a.dcm", steps(), 12, **elements)
    with pytest.raises(ValueError, match=message):
        read_scans(tmp_path / "a.dcm")


def test_a_compressed_file_is_not_unpacked(tmp_path: Path) -> None:
    dicom(tmp_path / "a.dcm", steps(), 12)
    dataset = pydicom.dcmread(tmp_path / "a.dcm")
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    dataset.save_as(tmp_path / "b.dcm")
    with pytest.raises(ValueError, match=r"the whole file is compressed \(deflated\)"):
        read_scans(tmp_path / "b.dcm")


def test_damaged_bytes_are_read_or_refused(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    file = tmp_path / "a.dcm"
    dicom(file, steps(), 12, slope=1.0)
    content = file.read_bytes()
    for _ in range(100):
        damaged = bytearray(content[: draw.integers(140, len(content) + 1)])
        for at in draw.integers(132, len(damaged), 3):
            damaged[at] = draw.integers(256)
        file.write_bytes(bytes(damaged))
        try:
            (scan,) = read_scans(file)
        except ValueError:
            continue
        assert scan.values.ndim == 3


def test_scans_to_predict_are_mapped_to_the_range_of_training(tmp_path: Path) -> None:
    dicom(tmp_path / "a.dcm", np.full((2, 2), 5, "u2"), 12, slope=10.0)
    x = read_rows(tmp_path, {**spec_of((1, 2, 2)), "physical_range": (0.0, 100.0)}).x
    assert float(x.mean()) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="physical units, and the images of training"):
        read_rows(tmp_path, spec_of((1, 2, 2)))


def test_images_of_another_size_to_predict_are_a_warning(tmp_path: Path) -> None:
    for name, size in (("a", 4), ("b", 2)):
        dicom(tmp_path / f"{name}.dcm", np.full((size, size), 5, "u2"), 12)
    (finding,) = read_rows(tmp_path, spec_of((1, 2, 2))).findings
    assert "1 of 2 images were resized to 2 x 2 pixels" in finding.sentence


OTHERS: dict[str, tuple[Header, str]] = {
    "Hounsfield units": ({"slope": 10.0}, ""),
    "another type of numbers": ({"slope": 10.0, "RescaleType": "OD"}, "CT in OD"),
    "another modality": ({"slope": 10.0, "Modality": "PT", "Units": "BQML"}, "PT in BQML"),
}


@each_of("elements, unit", OTHERS.values())
def test_scans_to_predict_have_the_unit_of_training(
    elements: Header, unit: str, tmp_path: Path
) -> None:
    for number in range(8):
        file = tmp_path / "train" / "ab"[number % 2] / f"{number}.dcm"
        dicom(file, np.full((2, 2), number, "u2"), 12, slope=10.0)
    spec = describe_examples(quietly(lambda: from_folder(tmp_path / "train")))
    new = tmp_path / f"new {unit}"
    dicom(new / "a.dcm", np.full((2, 2), 5, "u2"), 12, **elements)
    if not unit:
        assert len(read_rows(new, spec).x) == 1
        return
    with pytest.raises(ValueError, match=f"images with {unit}, .* training had CT in HU"):
        read_rows(new, spec)


SLICES = 24


def write_series(folder: Path, *, patients: int, series: int) -> None:
    """Write slices in two classes, each of a patient and of a series of that patient."""
    for number in range(SLICES):
        levels = np.full((2, 2), 100 * number, dtype=np.uint16)
        owners: dict[str, Any] = {"SeriesInstanceUID": f"1.2.{number % series + 1}"}
        if patients:
            owners["PatientID"] = f"p{number % patients}"
        dicom(folder / "ab"[number % 2] / f"{number}.dcm", levels, 12, **owners)


@each_of(
    "patients, series, fix",
    [
        (6, 12, "group='PatientID'"),
        (1, 12, "group='SeriesInstanceUID'"),  # one patient, or a common pseudonym
        (0, 12, "group='SeriesInstanceUID'"),
        (SLICES, 12, "group='SeriesInstanceUID'"),
        (SLICES, SLICES, None),
        (0, SLICES, None),
        (1, 1, None),
    ],
)
def test_slices_of_one_patient_or_series_are_a_warning_with_the_group(
    patients: int, series: int, fix: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / f"{patients}-{series}"
    write_series(folder, patients=patients, series=series)
    data = quietly(lambda: open_dataset(folder))
    fixes = [item.fix for item in data.findings if "DICOM images have" in item.sentence]
    assert fixes == ([] if fix is None else [fix])
    if fix is None:
        return
    grouped = open_dataset(folder, group=fix.split("'")[1])
    assert not any("DICOM images have" in note for note in grouped.notes)
    assert grouped.groups is not None and grouped.groups_test is not None
    train = {*grouped.groups.tolist()}
    test = {*grouped.groups_test.tolist()}
    assert test and not train & test
    n_groups = patients if "Patient" in fix else series
    assert len(train | test) == n_groups


def test_frames_of_a_file_have_the_group_of_their_patient(tmp_path: Path) -> None:
    for number in range(8):
        frames = np.arange(8, dtype=np.uint16).reshape(4, 2) + 20 * number
        file = tmp_path / "ab"[number % 2] / f"{number}.dcm"
        dicom(file, frames, 12, NumberOfFrames=2, Rows=2, PatientID=f"p{number // 4}")
    data = open_dataset(tmp_path, pages="each", group="PatientID")
    assert data.n_groups == 2 and len(data.x) + len(data.x_test) == 16


@each_of("group", ["patient", "PatientID"])
def test_a_group_that_images_lack_is_refused(group: str, tmp_path: Path) -> None:
    write_series(tmp_path, patients=0, series=3)
    with pytest.raises(ValueError, match=f"24 of 24 images have no '{group}'; give group="):
        open_dataset(tmp_path, group=group)
