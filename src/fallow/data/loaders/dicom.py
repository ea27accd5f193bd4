"""DICOM images: physical units, and one range of values over all images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.data.loaders.slices import SliceLocation

DICOM_FILES = (".dcm", ".dicom")
OWNERS = ("PatientID", "SeriesInstanceUID")
"""Elements that several images share, the wider ones first."""
LOCATION = {"ImagePositionPatient": 3, "ImageOrientationPatient": 6, "PixelSpacing": 2}
"""Elements with the location of a slice, and their numbers."""
PREAMBLE = bytes(128)
MARK = b"DICM"
PURPOSE = "reading a DICOM file"
WHITE = 255.0
DEFLATED = "1.2.840.10008.1.2.1.99"
"""Transfer syntax of files that are compressed as a whole."""
GRAY_IMAGES = ("MONOCHROME1", "MONOCHROME2")
TAILS = 0.001
"""Share of the values below and above the range that is chosen from the images."""
MOST_SAMPLED = 4_000_000
"""Limit of the values from which a range is chosen."""
FEWEST_SAMPLED = 64  # of each image
Levels = npt.NDArray[np.float64]
PhysicalRange = tuple[float, float]


def check_range(values: Sequence[float]) -> PhysicalRange | None:
    """Return two numbers as a range, and None for none.  Raises ValueError for others."""
    if not len(values):
        return None
    numbers = tuple(map(float, values))
    if (
        len(numbers) != 2
        or not numbers[0] < numbers[1]
        or not all(map(math.isfinite, numbers))
    ):
        raise ValueError(
            f"physical_range is {', '.join(f'{number:g}' for number in numbers)}; give two numbers, "
            "the value that is black and the larger one that is white, such as -1000,400"
        )
    return numbers[0], numbers[1]


@final
@dataclass(frozen=True)
class Scan:
    """Image in a DICOM file.

    Attributes
    ----------
    values : array of shape (1 or 3, height, width)
        Physical values if there is a unit, otherwise levels from 0 (black) to 255.
    unit : str or None
        Modality and unit of the values, such as "CT in HU"; None without a rescale slope.
    is_inverted : bool
        Whether the lowest value is white.
    window : tuple of float, optional
        Smallest and largest value of the first window for display, which is not applied.
    owners : mapping
        Value of each of the elements `OWNERS`, "" without one.
    is_padding : array of shape (height, width), optional
        Pixels outside the image (PixelPaddingValue), which are black; None without any.
    location : SliceLocation, optional
        Location of a slice in its volume; None for a file that does not name it, or of several frames.
    """

    values: Levels
    unit: str | None = None
    is_inverted: bool = False
    window: PhysicalRange | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    is_padding: npt.NDArray[np.bool_] | None = None
    location: SliceLocation | None = None

    @property
    def known_values(self) -> Levels:
        """Values of the pixels inside the image, (n,); all if there are none."""
        values: Levels = self.values.ravel()
        if self.is_padding is None or self.is_padding.all():
            return values
        return values[~self.is_padding.ravel()]

    def scale(self, values_range: PhysicalRange) -> Levels:
        """Return levels from 0 (black) to 255, with the values outside the range clipped."""
        low, high = values_range
        share = np.clip((self.values - low) / (high - low), 0.0, 1.0)
        if self.is_inverted:
            share = 1.0 - share
        if self.is_padding is not None:
            share[:, self.is_padding] = 0.0
        levels: Levels = share * WHITE
        return levels


def is_dicom(file: Path) -> bool:
    """Return whether a file is DICOM, by its name or by the mark after 128 bytes."""
    if file.suffix.lower() in DICOM_FILES:
        return True
    if file.suffix:
        return False
    with file.open("rb") as opened:
        return has_mark(opened.read(len(PREAMBLE) + len(MARK)))


def has_mark(content: bytes) -> bool:
    """Return whether the content of a file begins as DICOM does."""
    return content[len(PREAMBLE) :].startswith(MARK)


def measure_scan(file: Path) -> tuple[tuple[int, ...], int]:
    """Return (channels, height, width) and frames by the header; (1, 0, 0), 1 if it is damaged."""
    pydicom = import_optional("pydicom", "pydicom", PURPOSE)
    try:
        _check_not_deflated(file)
        dicom = pydicom.dcmread(file, stop_before_pixels=True)
        shape = (int(dicom.SamplesPerPixel), int(dicom.Rows), int(dicom.Columns))
        return shape, _count_frames(dicom)
    except Exception:  # pydicom raises any error for a damaged file
        return (1, 0, 0), 1


PIXEL_DATA = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")


def _count_frames(dicom: Any) -> int:
    return int(getattr(dicom, "NumberOfFrames", 1) or 1)


def read_scans(file: Path, most_frames: int = 1) -> list[Scan]:
    """Read the frames in a DICOM file.

    Raises ValueError for a damaged file, and for one with more frames.
    """
    pydicom = import_optional("pydicom", "pydicom", PURPOSE)
    # pydicom raises any error for a damaged file
    with explain_errors(f"{file} could not be read as DICOM: ", of=Exception):
        with file.open("rb") as opened:
            if not has_mark(opened.read(len(PREAMBLE) + len(MARK))):
                raise ValueError(
                    "it has no DICOM header; export it as a DICOM file (Part 10)"
                )
        _check_not_deflated(file)
        dicom = pydicom.dcmread(file)
        if not any(name in dicom for name in PIXEL_DATA):
            raise ValueError("it has no image, as reports have none; remove it")
        n_frames = _count_frames(dicom)
        if n_frames > most_frames:
            raise ValueError(
                f"it has {n_frames} frames; save each as a file of its own, or load the training "
                "images with --pages each (pages=), which makes each an example"
            )
        stored = _read_stored(dicom)
        frames = [stored] if n_frames == 1 else list(stored)
        owners = {key: str(getattr(dicom, key, "") or "").strip() for key in OWNERS}
        scans = [_read_frame(dicom, frame, at) for at, frame in enumerate(frames)]
        location = _find_location(dicom, owners) if n_frames == 1 else None
        return [replace(scan, owners=owners, location=location) for scan in scans]


def _find_location(dicom: Any, owners: Mapping[str, str]) -> SliceLocation | None:
    """Return the location of a slice, or None if it is not complete."""
    numbers: list[tuple[float, ...]] = []
    for name, size in LOCATION.items():
        value = getattr(dicom, name, None)
        if value is None or len(value) != size:
            return None
        numbers.append(tuple(map(float, value)))
    corner, directions, spacing = numbers
    if not all(map(math.isfinite, (*corner, *directions, *spacing))) or min(spacing) <= 0:
        return None
    return SliceLocation(owners["SeriesInstanceUID"], corner, directions, spacing)


def _read_frame(dicom: Any, stored: npt.NDArray[Any], number: int) -> Scan:
    """Return a frame from its stored numbers: (h, w) or (h, w, 3)."""
    interpretation = str(dicom.PhotometricInterpretation)
    if interpretation not in GRAY_IMAGES:
        return Scan(_read_colors(dicom, stored, interpretation))
    is_inverted = interpretation == "MONOCHROME1"
    rescale = _find_rescale(dicom, number)
    if rescale is not None:
        operations = import_optional("pydicom.pixels", "pydicom", PURPOSE)
        with np.errstate(all="ignore"):  # checked in the next line
            values = np.asarray(operations.apply_modality_lut(stored, rescale))
        if not np.isfinite(values).all():
            raise ValueError("its rescale slope or intercept is not finite; correct it")
        if getattr(rescale, "RescaleSlope", None) == 0:
            raise ValueError(
                "its rescale slope is 0, which makes all pixels equal; correct it"
            )
        physical = values.astype(np.float64)[None]
        unit = _name_unit(dicom, rescale)
        return Scan(
            physical,
            unit,
            is_inverted,
            _find_window(dicom),
            is_padding=_find_padding(dicom, stored),
        )
    bits = int(dicom.BitsStored)
    lowest = 0
    if int(dicom.PixelRepresentation):
        lowest = -(2 ** (bits - 1))
    whole = Scan(stored.astype(np.float64)[None], is_inverted=is_inverted)
    levels = whole.scale((lowest, lowest + 2**bits - 1))
    return Scan(levels, window=_find_window(dicom))


def _find_padding(dicom: Any, stored: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
    """Return which stored numbers are padding: (h, w), or None without any."""
    first = getattr(dicom, "PixelPaddingValue", None)
    last = getattr(dicom, "PixelPaddingRangeLimit", None)
    if not isinstance(first, int):
        return None
    if not isinstance(last, int):
        last = first
    ends = [first, last]
    if int(dicom.PixelRepresentation):  # some programs write them without their sign
        whole = 2 ** int(dicom.BitsAllocated)
        ends = [end - whole if end >= whole // 2 else end for end in ends]
    is_padding: npt.NDArray[np.bool_] = (stored >= min(ends)) & (stored <= max(ends))
    return is_padding if is_padding.any() else None


def _find_rescale(dicom: Any, number: int) -> Any:
    """Return the part of a file with the rescale slope of a frame, or None.

    Enhanced files have it in functional groups, of the frame or of all frames.
    """
    groups: list[Any] = []  # data sets of pydicom
    per_frame = getattr(dicom, "PerFrameFunctionalGroupsSequence", None) or ()
    groups += per_frame[number : number + 1]
    groups += list(getattr(dicom, "SharedFunctionalGroupsSequence", None) or ())
    parts = [dicom]
    for group in groups:
        parts += list(getattr(group, "PixelValueTransformationSequence", None) or ())
    for part in parts:
        if "ModalityLUTSequence" in part or "RescaleSlope" in part:
            return part
    return None


def _find_window(dicom: Any) -> PhysicalRange | None:
    """Return the first window for display, None without a valid one."""
    try:
        (center, *_), (width, *_) = (
            np.atleast_1d(np.asarray(dicom[name].value, dtype=np.float64)).tolist()
            for name in ("WindowCenter", "WindowWidth")
        )
    except (KeyError, TypeError, ValueError):
        return None
    if not width > 0 or not math.isfinite(center):
        return None
    return center - width / 2, center + width / 2


def _check_not_deflated(file: Path) -> None:
    """Raise ValueError for a compressed file, whose content may exceed the memory."""
    reader = import_optional("pydicom.filereader", "pydicom", PURPOSE)
    header = reader.read_file_meta_info(file)
    if header.get("TransferSyntaxUID") == DEFLATED:
        raise ValueError("the whole file is compressed (deflated); export it without")


def choose_range(scans: Sequence[Scan]) -> PhysicalRange:
    """Return a range that has all values except `TAILS` at each end.

    All images count alike. The range of constant images has the width 1.
    """
    per_image = max(FEWEST_SAMPLED, MOST_SAMPLED // len(scans))
    samples: list[Levels] = []
    for scan in scans:
        values = scan.known_values
        step = math.ceil(len(values) / per_image)
        samples.append(values[::step])
    together = np.concatenate(samples)
    low = float(np.quantile(together, TAILS, method="lower"))
    high = float(np.quantile(together, 1 - TAILS, method="higher"))
    if low == high:
        high = low + 1
    return low, high


def _read_stored(dicom: Any) -> npt.NDArray[Any]:
    """Return the stored numbers, without bits above the stored ones (such as overlays)."""
    stored = np.asarray(dicom.pixel_array)
    bits = int(dicom.BitsStored)
    allocated = int(dicom.BitsAllocated)
    high_bit = int(dicom.HighBit)
    if not 1 <= bits <= allocated or not bits - 1 <= high_bit < allocated:
        raise ValueError(
            f"it stores {bits} of {allocated} bits with the highest bit {high_bit}, which is "
            "impossible; export it again"
        )
    if stored.dtype.kind not in "iu" or bits == allocated:
        return stored
    numbers = stored.astype(np.int64) >> (high_bit + 1 - bits)
    numbers &= 2**bits - 1
    if int(dicom.PixelRepresentation):
        is_negative = numbers >= 2 ** (bits - 1)
        numbers -= is_negative * 2**bits
    return numbers


def _read_colors(dicom: Any, stored: npt.NDArray[Any], interpretation: str) -> Levels:
    """Return levels (3, height, width) of an image with a palette or with colors."""
    bits = int(dicom.BitsStored)
    if interpretation == "PALETTE COLOR":
        operations = import_optional("pydicom.pixels", "pydicom", PURPOSE)
        colors = np.asarray(operations.apply_color_lut(stored, dicom))
        bits = 8 * colors.dtype.itemsize
    else:
        colors = stored  # pydicom has converted YBR to RGB
    scaled = np.asarray(colors[..., :3], dtype=np.float64) / (2**bits - 1)
    levels: Levels = scaled * WHITE
    return levels.transpose(2, 0, 1)  # of (h, w, 3)


def _name_unit(dicom: Any, rescale: Any) -> str:
    """Return the modality and the unit of physical values, such as "CT in HU"."""
    modality = str(getattr(dicom, "Modality", "") or "")
    unit = str(getattr(rescale, "RescaleType", "") or "")
    if modality == "PT":
        unit = str(getattr(dicom, "Units", "") or "") or unit  # such as BQML and GML
    if modality == "CT":
        unit = unit or "HU"  # the standard requires it
    modality = modality or "unknown modality"
    return f"{modality} in {unit or 'rescaled units'}"
