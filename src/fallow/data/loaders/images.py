"""Import of a folder of images: ``site/class/*`` and ``site/unlabeled/*``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.data.loaders.pixels import BRIGHTEST, ImageError, open_image
from fallow.data.loaders.table_files import ReportBytes, ignore_bytes, read_file
from fallow.storage.received import check_fits

UNLABELED_FOLDER = "unlabeled"
GRAY = ("1", "L")
COLOR = ("P", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
DEEP = ("I;16", "I;16B", "I;16L", "I")
"""Pillow's names for gray, color, and gray with 16 bits."""
DICOM_FILES = (".dcm", ".dicom")
FLOAT = 4  # bytes of a float32
DOUBLE = 8
LEFT_BY_WINDOWS = ("thumbs.db", "desktop.ini")
"""Files that file managers create in folders of images, and hide."""
Pixels = npt.NDArray[np.uint8] | npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Images:
    """Images of a folder, each with its label and its site."""

    x: npt.NDArray[np.float32]  # (n, channels, height, width), in [0, 1]
    labels: tuple[str, ...]  # "" = unlabeled; empty where a table lists targets
    names: tuple[str, ...]  # paths below the folder, such as site/class/file
    sites: tuple[str, ...] | None = None  # None: without sites
    notes: tuple[str, ...] = ()
    targets: npt.NDArray[np.float64] | None = None  # NaN = unlabeled


def read_folder(folder: Path, notify: ReportBytes = ignore_bytes) -> Images:
    """Read every image below the folder, sorted by name, without hidden files.

    The layout is ``site/class/*``, or ``class/*`` without sites. Images of unusual sizes
    are resized to the most frequent size, with a note. ``notify`` receives the number of bytes
    read. A table in the folder with the columns ``file`` and ``target``, and optionally
    ``site``, has regression targets: images are then the files in it.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in site/class/*")
    listed = _find_list(folder)
    if listed is not None:
        return _read_listed(folder, listed, notify)
    files = list_files(folder, "*/*/*")
    has_sites = bool(files)
    if not has_sites:
        files = list_files(folder, "*/*")
    if not files:
        raise ValueError(
            f"{folder} contains no images; put them in site/class/* or "
            f"site/{UNLABELED_FOLDER}/*, or in class/* without sites; for regression, add "
            "targets.csv with the columns file and target"
        )
    x, notes = _load_files(folder, files, notify)
    parts = [file.relative_to(folder).parts for file in files]
    sites: tuple[str, ...] | None = None
    if has_sites:
        sites = tuple(part[0] for part in parts)
    return Images(
        x=x,
        labels=tuple(label_of(file) for file in files),
        sites=sites,
        names=tuple("/".join(part) for part in parts),
        notes=notes,
    )


def label_of(file: Path) -> str:
    """Return the name of the folder of an image, "" if it is that of unlabeled images."""
    folder = file.parent.name
    if folder == UNLABELED_FOLDER:
        return ""
    return folder


def _find_list(folder: Path) -> Path | None:
    """Return the table in the folder with files and targets, or None."""
    listed = []
    for file in list_files(folder, "*.csv"):
        if {"file", "target"} <= read_file(file, _is_text).columns.keys():
            listed.append(file)
    if len(listed) > 1:
        raise ValueError(
            f"{folder} has {len(listed)} tables with files and targets, {listed[0].name} "
            f"and {listed[1].name}; keep one"
        )
    return next(iter(listed), None)


def _is_text(column: str) -> bool:
    return column in ("file", "site")


def _read_listed(folder: Path, table: Path, notify: ReportBytes) -> Images:
    """Read the images in a table, with their targets."""
    columns = read_file(table, _is_text).columns
    names = tuple(name.strip() for name in columns["file"].texts or ())
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{table} lists {twice[0]!r} more than once; leave one line")
    targets = columns["target"].numbers
    if targets is None:
        raise ValueError(
            f"{table}: the column 'target' contains texts; give numbers, or for classes "
            "folders with their names"
        )
    files = [folder / name for name in names]
    for name, file in zip(names, files, strict=True):
        is_inside = file.resolve().is_relative_to(folder.resolve())
        if not name or not is_inside or not file.is_file():
            raise ValueError(
                f"{table} lists {name!r}, and {folder} has no such file; give paths below the folder"
            )
    sites: tuple[str, ...] | None = None
    if "site" in columns:
        sites = tuple(columns["site"].texts or ())
    x, notes = _load_files(folder, files, notify)
    return Images(
        x=x,
        labels=(),
        targets=targets.astype(np.float64),
        sites=sites,
        names=names,
        notes=(f"regression targets were read from {table.name}", *notes),
    )


def _load_files(
    folder: Path, files: Sequence[Path], notify: ReportBytes
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Load files as one array in the most frequent size, and describe the changes."""
    _check_fits(folder, files)
    loaded = _read_each(files, notify=notify)
    sizes = Counter(pixels.shape[1:] for pixels in loaded)
    # the most frequent size; of several the smallest, so that no image is enlarged
    size = min(sizes, key=lambda shape: (-sizes[shape], shape))
    others = len(loaded) - sizes[size]
    x = _stack([_resize(pixels, size) for pixels in loaded], None)
    color = "color"
    if x.shape[1] == 1:
        color = "gray"
    notes = [f"images read as {color}, pixels scaled to [0, 1]"]
    if others:
        notes.append(
            f"{others} of {len(files)} images were resized to the most frequent size, "
            f"{size[1]} x {size[0]}"
        )
    deep = sum(pixels.dtype != np.uint8 for pixels in loaded)
    if deep:
        notes.append(
            f"{deep} images have more than 8 bits per pixel, all of which are used"
        )
    return x, tuple(notes)


def _read_each(
    files: Sequence[Path],
    channels: int | None = None,
    size: tuple[int, int] | None = None,
    notify: ReportBytes = ignore_bytes,
) -> list[Pixels]:
    """Return the pixels of each file, resized if a size is given."""
    sizes = [file.stat().st_size for file in files]  # in bytes
    total = sum(sizes)
    done = 0
    loaded: list[Pixels] = []
    for file, n_bytes in zip(files, sizes, strict=True):
        pixels = _read_pixels(file, channels)
        if size is not None:
            pixels = _resize(pixels, size)
        loaded.append(pixels)
        done += n_bytes
        notify(done, total)
    return loaded


def list_files(folder: Path, pattern: str) -> list[Path]:
    """List the files of a pattern, sorted by name, without hidden files."""
    files = []
    for file in sorted(folder.glob(pattern)):
        parts = file.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)
        is_hidden = is_hidden or parts[-1].lower() in LEFT_BY_WINDOWS
        if file.is_file() and not is_hidden:
            files.append(file)
    return files


def read_images(
    files: Sequence[Path],
    channels: int | None = None,
    size: tuple[int, int] | None = None,
) -> npt.NDArray[np.float32]:
    """Read images of one size, (n, channels, height, width) in [0, 1].

    channels: 1 or 3; None: 1 if every image is gray. size: (height, width) to which images
    are resized; None: they have the same size. Raises ValueError with the file if it cannot
    be read, has another size, or has colors although gray is required.
    """
    if files:
        _check_fits(files[0].parent, files, size)
    loaded = _read_each(files, channels, size)
    for file, pixels in zip(files, loaded, strict=True):
        if pixels.shape[1:] != loaded[0].shape[1:]:
            raise ValueError(
                f"{file} has {_format_size(pixels.shape)} pixels and {files[0].name} has "
                f"{_format_size(loaded[0].shape)}; resize all images to one size"
            )
    return _stack(loaded, channels)


def _stack(loaded: Sequence[Pixels], channels: int | None) -> npt.NDArray[np.float32]:
    """Stack images of one size in [0, 1]; gray images among color images are repeated."""
    if channels is None:
        channels = max(map(len, loaded))
    height, width = loaded[0].shape[1:]
    stack = np.empty((len(loaded), channels, height, width), dtype=np.float32)
    # one by one: intermediate results for all images would take five times the memory
    for index, pixels in enumerate(loaded):
        stack[index] = pixels / 255
    return stack


def _check_fits(
    where: Path, files: Sequence[Path], size: tuple[int, int] | None = None
) -> None:
    """Raise ValueError if images do not fit into memory, by their headers.

    Both the pixels of each image and the array of all images count. size: (height, width)
    to which each is resized on reading; None: they are kept until all are read.
    """
    n_pixels = 0  # bytes
    n_values = 0
    largest = 0
    for file in files:
        shape, n_bytes = _measure(file)
        if size is not None:
            shape = (shape[0], *size)
        n_pixels += n_bytes
        n_values += math.prod(shape)
        largest = max(largest, n_bytes)
    if size is not None:
        n_pixels = n_values + largest
    check_fits(where, n_pixels + FLOAT * n_values)


def _measure(file: Path) -> tuple[tuple[int, ...], int]:
    """Return (channels, height, width) of an image by its header, and its size in bytes in
    memory.

    An image without a readable header counts 0 pixels; its error is raised when it is read.
    """
    if _is_dicom(file):
        return _measure_dicom(file)
    try:
        with open_image(file, "reading a folder of images") as opened:
            width, height = opened.size
            mode = opened.mode
    except ImageError:
        return (1, 0, 0), 0
    if mode in DEEP:
        return (1, height, width), DOUBLE * height * width
    channels = 3
    if mode in GRAY:
        channels = 1
    return (channels, height, width), channels * height * width


def _measure_dicom(file: Path) -> tuple[tuple[int, ...], int]:
    """Like `_measure`, for a DICOM file."""
    pydicom = import_optional("pydicom", "pydicom", "reading a DICOM file")
    try:
        dicom = pydicom.dcmread(file, stop_before_pixels=True)
        shape = (int(dicom.SamplesPerPixel), int(dicom.Rows), int(dicom.Columns))
    except Exception:  # pydicom raises any error for a damaged file
        return (1, 0, 0), 0
    return shape, DOUBLE * math.prod(shape)


def _read_pixels(file: Path, channels: int | None) -> Pixels:
    """Return (1, h, w) for a gray image, and (3, h, w) otherwise.

    The type is uint8, or float64 from 0 to 255 for more than 8 bits.
    """
    if _is_dicom(file):
        return _read_dicom(file, channels)
    try:
        with open_image(file, "reading a folder of images") as opened:
            if opened.mode not in (*GRAY, *COLOR, *DEEP):
                raise ValueError(f"its pixel format {opened.mode} is not supported")
            is_gray = opened.mode in (*GRAY, *DEEP)
            if channels == 1 and not is_gray:
                raise ValueError("it has colors, and the others are gray")
            if opened.mode in DEEP:
                deep = np.asarray(opened)  # (h, w)
                if deep.min() < 0 or deep.max() > BRIGHTEST["uint16"]:
                    raise ValueError("its pixels have more than 16 bits")
                wide: npt.NDArray[np.float64] = deep.astype(np.float64)
                return wide[None] * 255 / BRIGHTEST["uint16"]
            pixels: npt.NDArray[np.uint8]
            if is_gray:
                pixels = np.asarray(opened.convert("L"))  # (h, w)
                return pixels[None]
            pixels = np.asarray(opened.convert("RGB"))  # (h, w, 3)
            return pixels.transpose(2, 0, 1)
    except ImageError as error:
        raise ValueError(
            f"{file} could not be read as an image: {error}; remove other files from a "
            f"folder of images{_say_of_texts(file)}"
        ) from error


def _say_of_texts(file: Path) -> str:
    """Return a hint for a folder of texts that is used as a folder of images."""
    if file.suffix.lower() not in (".txt", ".md", ".html"):
        return ""
    return " (texts become rows in Python: fl.from_arrays(fl.texts_to_rows(texts), y))"


def _is_dicom(file: Path) -> bool:
    """Return whether a file is DICOM, by its name or by the mark after 128 bytes."""
    if file.suffix.lower() in DICOM_FILES:
        return True
    if file.suffix:
        return False
    with file.open("rb") as opened:
        return opened.read(132)[128:] == b"DICM"


def _read_dicom(file: Path, channels: int | None) -> Pixels:
    """Return the image in a DICOM file, from 0 (black) to 255, scaled by the stored bits."""
    pydicom = import_optional("pydicom", "pydicom", "reading a DICOM file")
    # pydicom raises any error for a damaged file
    with explain_errors(f"{file} could not be read as DICOM: ", of=Exception):
        dicom = pydicom.dcmread(file)
        pixels: npt.NDArray[np.float64] = np.asarray(dicom.pixel_array, dtype=np.float64)
        if int(getattr(dicom, "NumberOfFrames", 1) or 1) != 1:
            raise ValueError("it contains several images; give one per file")
        is_gray = int(dicom.SamplesPerPixel) == 1
        brightest = 2 ** int(dicom.BitsStored) - 1
        if int(dicom.PixelRepresentation):  # signed: the lowest number is black
            pixels += 2 ** (int(dicom.BitsStored) - 1)
        pixels = np.clip(pixels / brightest, 0.0, 1.0) * 255
        if dicom.PhotometricInterpretation == "MONOCHROME1":  # 0 is white
            pixels = 255 - pixels
        if channels == 1 and not is_gray:
            raise ValueError("it has colors, and the others are gray")
    if is_gray:
        return pixels[None]  # of (h, w)
    return pixels.transpose(2, 0, 1)  # of (h, w, 3)


def _resize(pixels: Pixels, size: tuple[int, ...]) -> Pixels:
    """Resize an image to (h, w) by bilinear interpolation, if needed."""
    if pixels.shape[1:] == tuple(size):
        return pixels
    image = import_optional("PIL.Image", "pillow", "resizing images")
    height, width = size
    channels = []
    for channel in pixels:
        of_channel = image.fromarray(channel.astype(np.float32))
        resized = of_channel.resize((width, height), image.Resampling.BILINEAR)
        channels.append(np.asarray(resized, dtype=np.float64).clip(0.0, 255.0))
    stacked = np.stack(channels)
    if pixels.dtype == np.uint8:
        return stacked.round().astype(np.uint8)
    return stacked


def _format_size(shape: tuple[int, ...]) -> str:
    """Format the size of (channels, height, width) as width x height."""
    _, height, width = shape
    return f"{width} x {height}"
