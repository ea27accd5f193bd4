"""Import of a folder of images: ``site/class/*`` and ``site/unlabeled/*``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.catalog import advise_name
from fallow.core.load_options import DEFAULTS, LoadOptions, Pages
from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.core.wording import count_noun, join_some
from fallow.data.loaders.dicom import (
    OWNERS,
    TAILS,
    PhysicalRange,
    Scan,
    check_range,
    choose_range,
    is_dicom,
    measure_scan,
    read_scans,
)
from fallow.data.loaders.folders import (
    UNLABELED_FOLDER,
    check_classes,
    describe_files,
    describe_names,
    find_layout,
    find_splits,
    label_of,
)
from fallow.data.loaders.listed import Listed, read_list
from fallow.data.loaders.nifti import (
    UNIT,
    count_slices,
    is_nifti,
    read_header,
    read_slices,
)
from fallow.data.loaders.pixels import (
    DEEP,
    GRAY,
    MOST_PAGES,
    PNG_HEAD,
    ImageError,
    count_pages,
    list_pages,
    measure_png,
    open_image,
    show_image,
)
from fallow.data.loaders.slices import SliceLocation
from fallow.data.loaders.text_rules import normal_name
from fallow.data.reading import Finding, ReportBytes, ignore_bytes, note, warning
from fallow.storage.received import check_fits

MOST_OF_FILE: Mapping[Pages, int] = {"refuse": 1, "each": MOST_PAGES}
"""Maximum number of images in a file."""
FLOAT = 4  # bytes of a float32
DOUBLE = 8
DARK = 255 / 15.9
"""Level below which all pixels of 16 bits have at most 12 bits."""
MOST_REPORTED = 5  # damaged files
SQUEEZED = 1.5
"""Ratio of height to width, relative to that of the other images, that is another shape."""
ROUNDED = 1e-9
"""Largest rounding error of a level of 8 bits."""
STORED_NUMBERS = "stored numbers without a unit"
PIXELS = "pixels without a unit"
Pixels = npt.NDArray[np.uint8] | npt.NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of a folder, each with its label and its site.

    Attributes
    ----------
    x : array of shape (n, channels, height, width)
        Pixels in [0, 1], float32.
    labels : tuple of str
        Class of each image, "" for unlabeled; empty where a table lists targets.
    names : tuple of str
        Paths below the folder, such as ``site/class/file``.
    sites : tuple of str, optional
        Site of each image; None without sites.
    is_test : array of shape (n,), optional
        Whether each image is a test example; None without a folder of test images.
    empty_classes : tuple of str
        Classes whose folders have no image.
    findings : tuple of Finding
        Choices and possible errors of the import.
    targets : array of shape (n,), optional
        Regression targets, NaN for unlabeled images.
    physical_range : tuple of float, optional
        Physical values that are black and white; None for images without units.
    unit : str
        Modality and unit of these values, such as "CT in HU"; "" without units.
    groups : tuple of str, optional
        Group of each image: its patient or series as requested, or its file if some have several
        pages; None otherwise.
    is_page : tuple of bool
        Whether each image is one of several in its file; empty if none is.
    locations : tuple of SliceLocation or None
        Location of each DICOM image in its volume; empty if it was not asked.
    table : str
        Name of the table that lists the images; "" if their folders are the classes.
    """

    x: npt.NDArray[np.float32]
    labels: tuple[str, ...]
    names: tuple[str, ...]
    sites: tuple[str, ...] | None = None
    is_test: npt.NDArray[np.bool_] | None = None
    empty_classes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    targets: npt.NDArray[np.float64] | None = None
    physical_range: PhysicalRange | None = None
    unit: str = ""
    groups: tuple[str, ...] | None = None
    is_page: tuple[bool, ...] = ()
    locations: tuple[SliceLocation | None, ...] = ()
    table: str = ""


@final
@dataclass(frozen=True)
class Stack:
    """Images of one size in [0, 1], with the range and unit of physical values and the findings."""

    x: npt.NDArray[np.float32]
    physical_range: PhysicalRange | None
    unit: str
    findings: tuple[Finding, ...]
    file_of: tuple[int, ...]  # position of the file of each image
    owners: tuple[Mapping[str, str], ...]  # patient and series of each DICOM image
    shapes: tuple[tuple[int, ...], ...]  # of each image in its file
    locations: tuple[SliceLocation | None, ...]  # of each DICOM image in its volume

    def choose_groups(self, group: str | None) -> tuple[str, ...] | None:
        """Return the group of each image: its element ``group`` of DICOM, else its file.

        None if each file is one image.  Raises ValueError for images without the element.
        """
        if group is not None:
            names = tuple(owner.get(group, "") for owner in self.owners)
            without = names.count("")
            if without:
                raise ValueError(
                    f"{without} of {len(names)} images have no {group!r}; give group="
                    f"{' or '.join(map(repr, OWNERS))} for DICOM images that have it"
                )
            return names
        if len({*self.file_of}) == len(self.file_of):
            return None
        return tuple(map(str, self.file_of))

    def suggest_groups(self) -> list[Finding]:
        """Return a warning if several DICOM images are of one patient or series."""
        n = len(self.owners)
        for element in OWNERS:
            names = {owner.get(element, "") for owner in self.owners}
            if "" in names or not 1 < len(names) < n:
                continue
            return [
                warning(
                    f"{n:,} DICOM images have {len(names):,} different values of {element}, so "
                    "that training and test examples may be of one patient or series",
                    f"group={element!r}",
                )
            ]
        return []


def read_folder(
    folder: Path,
    notify: ReportBytes = ignore_bytes,
    options: LoadOptions = DEFAULTS,
) -> Images:
    """Read every image below the folder, sorted by name, without hidden files.

    The layout is ``site/class/*``, or ``class/*`` without sites; both also in ``train/``,
    ``val/`` and ``test/``. A folder without images is a class. Images of unusual sizes
    are resized to the most frequent size, with a note. ``notify`` receives the number of bytes
    read. A table in the folder with the columns ``file`` and ``label``, or ``target`` for numbers,
    and optionally ``site``, lists the images. ``options``: the range of
    physical values of DICOM images (default: chosen from the images), and whether each page of a
    file is an example, which is a group of them.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in site/class/*")
    listed = read_list(folder, options.group, options.label)
    if listed is not None:
        return _read_listed(listed, folder, notify, options)
    if options.label is not None:
        raise ValueError(
            f"{folder} has no table with a column {options.label!r} that lists its images; {LISTED}"
        )
    splits = find_splits(folder)
    layout = find_layout(folder, splits)
    files = layout.files
    if not files and layout.others:
        raise ValueError(
            f"{folder} has images at another depth, such as "
            f"{layout.others[0].relative_to(folder).as_posix()}; put them in site/class/* or "
            "class/*, and divided ones in train/site/class/* or train/class/* and test/class/*, or "
            f"{LISTED}"
        )
    if not files:
        raise ValueError(
            f"{folder} contains no images; put them in site/class/* or "
            f"site/{UNLABELED_FOLDER}/*, or in class/* without sites, or {LISTED}"
            f"{advise_name(folder)}"
        )
    check_classes(folder, files)
    stack = _load_files(folder, files, notify, options)
    files = [files[at] for at in stack.file_of]
    folders = [file.relative_to(folder).parent.parts for file in files]
    sites: tuple[str, ...] | None = None
    if layout.has_sites:
        sites = tuple(normal_name(parts[-2]) for parts in folders)
    labels = tuple(label_of(file) for file in files)
    is_test = None
    split_findings: Iterable[Finding] = ()
    if splits:
        is_test = np.array([parts[0] in splits.test for parts in folders], dtype=np.bool_)
        in_validation = sum(parts[0] in splits.validation for parts in folders)
        split_findings = splits.describe(in_validation)
    empty = layout.list_empty_classes(labels)
    return Images(
        x=stack.x,
        labels=labels,
        sites=sites,
        is_test=is_test,
        empty_classes=empty,
        names=name_pages(
            [file.relative_to(folder).as_posix() for file in files], stack.file_of
        ),
        groups=stack.choose_groups(options.group),
        findings=(
            *([] if options.group else stack.suggest_groups()),
            *describe_names(folders, labels, sites),
            *split_findings,
            *layout.describe_empty(empty),
            *layout.describe_strays(folder, splits),
            *describe_files(files, labels, stack.shapes),
            *stack.findings,
        ),
        physical_range=stack.physical_range,
        unit=stack.unit,
    )


LISTED = "add a table with the columns file and label, such as labels.csv (file and target for numbers)"


def _read_listed(
    listed: Listed, folder: Path, notify: ReportBytes, options: LoadOptions
) -> Images:
    """Read the images in a table, with their targets or classes."""
    stack = _load_files(folder, listed.files, notify, options)
    listed = listed.take(stack.file_of)
    groups = listed.groups
    if groups is None:
        groups = stack.choose_groups(options.group)
    return Images(
        x=stack.x,
        labels=listed.labels,
        targets=listed.targets,
        sites=listed.sites,
        names=name_pages(listed.names, stack.file_of),
        groups=groups,
        findings=(
            *([] if options.group else stack.suggest_groups()),
            *listed.findings,
            *stack.findings,
        ),
        physical_range=stack.physical_range,
        unit=stack.unit,
    )


def _load_files(
    folder: Path,
    files: Sequence[Path],
    notify: ReportBytes,
    options: LoadOptions,
) -> Stack:
    """Load files as one array in the most frequent size, and describe the changes."""
    most_pages = MOST_OF_FILE[options.pages]
    _check_fits(folder, files, most_pages=most_pages)
    loaded = _read_each(
        files,
        physical_range=check_range(options.physical_range),
        notify=notify,
        most_pages=most_pages,
    )
    levels = loaded.levels
    sizes = Counter(pixels.shape[1:] for pixels in levels)
    # the most frequent size; of several the smallest, so that no image is enlarged
    size = min(sizes, key=lambda shape: (-sizes[shape], shape))
    others = len(levels) - sizes[size]
    x = _stack([_resize(pixels, size) for pixels in levels], None)
    color = "color"
    if x.shape[1] == 1:
        color = "gray"
    findings = [note(f"images read as {color}, pixels scaled to [0, 1]")]
    if others:
        sentence = (
            f"{others} of {len(levels)} images were resized to the most frequent size, "
            f"{size[1]} x {size[0]}"
        )
        findings.append(note(sentence))
    squeezed = sum(times for shape, times in sizes.items() if _is_squeezed(shape, size))
    if squeezed:
        sentence = (
            f"{count_noun(squeezed, 'image')} of another shape squeezed into that size"
        )
        findings.append(Finding("warning", sentence, "crop or pad them", is_doubtful=True))
    deep = sum(pixels.dtype != np.uint8 for pixels in levels)
    if deep:
        findings.append(
            note(f"{deep} images have more than 8 bits per pixel, all of which are used")
        )
    # of 16 bits in color, the upper 8 are read
    in_8_bits = [pixels for pixels in levels if pixels.dtype == np.uint8]
    in_more = [pixels for pixels in levels if pixels.dtype != np.uint8]
    findings += _warn_of_blank(levels, files, loaded.file_of)
    findings += _warn_of_dark("images", in_8_bits)
    findings += _warn_of_dark("images with more than 8 bits", in_more)
    return loaded.build_stack(x, findings)


def _is_squeezed(shape: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """Return whether resizing an image (height, width) changes its shape much."""
    ratio = shape[0] * size[1] / (shape[1] * size[0])
    return max(ratio, 1 / ratio) > SQUEEZED


def _warn_of_dark(what: str, levels: Sequence[Pixels]) -> list[Finding]:
    """Return a warning if no image uses more than 12 of 16 bits."""
    largest = max((float(pixels.max()) for pixels in levels), default=0.0)
    if not 0 < largest <= DARK:
        return []
    return [
        warning(
            f"the largest number in {what} is {largest / 255:.1%} of the largest possible one: "
            "images of 10 or 12 bits in 16 bits are dark",
            "scale the pixels to all bits",
        )
    ]


def _warn_of_blank(
    levels: Sequence[Pixels], files: Sequence[Path], file_of: Sequence[int]
) -> list[Finding]:
    """Return a warning of images with one color only, if most images have more.

    Pages and slices without content are usual, so that they are doubtful.
    """
    blank = [at for at, pixels in enumerate(levels) if _is_blank(pixels)]
    if not 0 < len(blank) < len(levels) / 2:
        return []
    shown = join_some([files[file_of[at]].name for at in blank])
    have = "image has" if len(blank) == 1 else "images have"
    sentence = f"{len(blank):,} {have} one color only, and may be damaged or empty: {shown}"
    n_pages = Counter(file_of)
    are_pages = all(n_pages[file_of[at]] > 1 for at in blank)
    return [Finding("warning", sentence, "replace or remove them", are_pages)]


def _is_blank(pixels: Pixels) -> bool:
    """Return whether all pixels of an image (channels, h, w) are equal."""
    return bool((pixels == pixels[:, :1, :1]).all())


def _note_pages(file_of: Sequence[int]) -> list[Finding]:
    """Return a note on files of several images, if there are any."""
    several = sum(n > 1 for n in Counter(file_of).values())
    if not several:
        return []
    return [
        note(
            f"{count_noun(several, 'file')} with several pages or frames, of which each is an "
            "example; those of a file are a group that no split divides",
            "pages='refuse'",
        )
    ]


def name_pages(names: Sequence[str], file_of: Sequence[int]) -> tuple[str, ...]:
    """Return the names of examples: that of the file, with the number of the page of several.

    >>> name_pages(["a.tif", "b.tif", "b.tif"], [0, 1, 1])
    ('a.tif', 'b.tif#1', 'b.tif#2')
    """
    n_pages = Counter(file_of)
    page_of: Counter[int] = Counter()
    shown = []
    for name, file in zip(names, file_of, strict=True):
        page_of[file] += 1
        if n_pages[file] > 1:
            name = f"{name}#{page_of[file]}"
        shown.append(name)
    return tuple(shown)


@final
@dataclass(frozen=True)
class LoadedImages:
    """Levels of each image, from 0 to 255, with the range of physical values, and its file."""

    levels: list[Pixels]
    physical_range: PhysicalRange | None
    unit: str
    findings: tuple[Finding, ...]
    file_of: list[int]
    owners: list[Mapping[str, str]]
    locations: list[SliceLocation | None]

    def build_stack(self, x: npt.NDArray[np.float32], findings: Sequence[Finding]) -> Stack:
        """Return the images as the array ``x`` of one size, with further findings."""
        return Stack(
            x=x,
            physical_range=self.physical_range,
            unit=self.unit,
            findings=(*findings, *_note_pages(self.file_of), *self.findings),
            file_of=tuple(self.file_of),
            owners=tuple(self.owners),
            shapes=tuple(pixels.shape for pixels in self.levels),
            locations=tuple(self.locations),
        )


def _read_each(
    files: Sequence[Path],
    channels: int | None = None,
    size: tuple[int, int] | None = None,
    physical_range: PhysicalRange | None = None,
    notify: ReportBytes = ignore_bytes,
    most_pages: int = 1,
) -> LoadedImages:
    """Return the levels of each page of each file, resized if a size is given.

    Raises ValueError that names the damaged files.
    """
    sizes = [file.stat().st_size for file in files]  # in bytes
    total = sum(sizes)
    done = 0
    images: list[Pixels | Scan] = []
    file_of: list[int] = []
    owners: list[Mapping[str, str]] = []
    locations: list[SliceLocation | None] = []
    windows: Counter[PhysicalRange] = Counter()
    changes: Counter[str] = Counter()
    errors: dict[Path, str] = {}
    units: dict[str, Path] = {}  # of DICOM images, with the first file of each
    n_resized = 0
    plain: Path | None = None  # first file that is no DICOM image
    for number, (file, n_bytes) in enumerate(zip(files, sizes, strict=True)):
        try:
            pages = _read_pages(file, channels, most_pages)
        except ValueError as error:
            errors[file] = str(error)
            if len(errors) > MOST_REPORTED:
                break
            continue
        for image, changed in pages:
            if not isinstance(image, Scan):
                owners.append({})
                locations.append(None)
                plain = plain or file
            else:
                owners.append(image.owners)
                locations.append(image.location)
                units.setdefault(image.unit or STORED_NUMBERS, file)
                if image.is_padding is not None:
                    changed = (*changed, "with padding (PixelPaddingValue), which is black")
                if image.window is not None:
                    windows[image.window] += 1
                if image.unit is None:
                    image = _drop_fractions(image.values)
                elif physical_range is not None:
                    image = image.scale(physical_range)
            if size is not None and not isinstance(image, Scan):
                n_resized += image.shape[1:] != tuple(size)
                image = _resize(image, size)
            changes.update(changed)
            images.append(image)
            file_of.append(number)
        done += n_bytes
        notify(done, total)
    if errors:
        raise ValueError(_join_errors(errors))
    findings = []
    for change, times in changes.items():
        findings.append(note(f"{count_noun(times, 'image')} {change}"))
    if size is not None and n_resized:
        n_images = count_noun(len(images), "image")
        sentence = (
            f"{n_resized:,} of {n_images} were resized to {size[1]} x {size[0]} pixels, the size of "
            "training"
        )
        findings.append(warning(sentence))
    if plain is not None and {*units} - {STORED_NUMBERS}:
        units[PIXELS] = plain
    _check_units(units, physical_range)
    findings += _note_windows(windows, units, physical_range)
    unit = next(iter(units), STORED_NUMBERS)
    if unit == STORED_NUMBERS:
        levels = [image for image in images if not isinstance(image, Scan)]
        return LoadedImages(levels, None, "", tuple(findings), file_of, owners, locations)
    chosen = "as given"
    if physical_range is None:
        scans = [image for image in images if isinstance(image, Scan)]
        physical_range = choose_range(scans)
        chosen = f"{TAILS:.1%} and {1 - TAILS:.1%} quantiles of the values of all images"
    low, high = physical_range
    sentence = f"values from {low:g} to {high:g} ({unit}) were scaled to [0, 1]: {chosen}"
    findings.append(note(sentence, f"physical_range=({low:g}, {high:g})"))
    return LoadedImages(
        [_finish_scan(image, physical_range, size) for image in images],
        physical_range,
        unit,
        tuple(findings),
        file_of,
        owners,
        locations,
    )


def _note_windows(
    windows: Counter[PhysicalRange],
    units: Mapping[str, Path],
    physical_range: PhysicalRange | None,
) -> list[Finding]:
    """Return a note on windows for display, which differ from image to image."""
    if not windows or physical_range is not None:
        return []
    low, high = windows.most_common(1)[0][0]
    fix = ""
    if STORED_NUMBERS not in units:
        fix = f"physical_range=({low:g}, {high:g})"
    noun = count_noun(windows.total(), "image")
    sentence = (
        f"{noun} with a window for display ({count_noun(len(windows), 'different one')}, most "
        f"often {low:g} to {high:g}), which was not applied: all images have one range"
    )
    return [note(sentence, fix)]


def _drop_fractions(levels: npt.NDArray[np.float64]) -> Pixels:
    """Return levels as whole numbers if they are, as those of 8 bits."""
    whole = np.rint(levels)
    if np.abs(whole - levels).max(initial=0.0) > ROUNDED:
        return levels
    return whole.astype(np.uint8)


def _finish_scan(
    image: Pixels | Scan, physical_range: PhysicalRange, size: tuple[int, int] | None
) -> Pixels:
    """Return the levels of an image, if they were not computed when it was read."""
    if not isinstance(image, Scan):
        return image
    levels = image.scale(physical_range)
    if size is None:
        return levels
    return _resize(levels, size)


def _check_units(units: dict[str, Path], physical_range: PhysicalRange | None) -> None:
    """Raise ValueError for DICOM images that have no common scale."""
    if len(units) > 1:
        (unit, file), (other, other_file) = list(units.items())[:2]
        raise ValueError(
            f"DICOM images have different units: {file} has {unit}, {other_file} has {other} "
            "(by Modality, RescaleSlope, RescaleType and Units); import images of one kind"
        )
    if physical_range is not None and STORED_NUMBERS in units:
        raise ValueError(
            f"{units[STORED_NUMBERS]} has no RescaleSlope, and the physical range "
            f"{physical_range[0]:g} to {physical_range[1]:g} is in physical units; export it with "
            "its rescale slope and intercept"
        )


def _join_errors(errors: dict[Path, str]) -> str:
    """Return one sentence about all files that cannot be read."""
    sentences = list(errors.values())
    if len(errors) == 1:
        return sentences[0]
    others = [file.name for file in errors][1:]
    more = " and others"
    if len(errors) <= MOST_REPORTED:
        more = ""
    return f"{sentences[0]}; so cannot {', '.join(others[: MOST_REPORTED - 1])}{more}"


def read_images(
    files: Sequence[Path],
    channels: int | None = None,
    size: tuple[int, int] | None = None,
    physical_range: PhysicalRange | None = None,
    pages: Pages = "refuse",
) -> Stack:
    """Read images of one size.

    channels: 1 or 3; None: 1 if every image is gray. size: (height, width) to which images
    are resized; None: they have the same size. physical_range: physical values of DICOM images
    that are black and white; None: chosen from the images. pages: "each" makes an example of
    each page or frame of a file. Raises ValueError with the file
    if it cannot be read, has another size, or has colors although gray is required.
    """
    if files:
        _check_fits(files[0].parent, files, size, MOST_OF_FILE[pages])
    loaded = _read_each(
        files, channels, size, physical_range, most_pages=MOST_OF_FILE[pages]
    )
    levels = loaded.levels
    for at, pixels in zip(loaded.file_of, levels, strict=True):
        file = files[at]
        if pixels.shape[1:] != levels[0].shape[1:]:
            raise ValueError(
                f"{file} has {_format_size(pixels.shape)} pixels and {files[0].name} has "
                f"{_format_size(levels[0].shape)}; resize all images to one size"
            )
    blank = _warn_of_blank(levels, files, loaded.file_of)
    return loaded.build_stack(_stack(levels, channels), blank)


def _stack(loaded: Sequence[Pixels], channels: int | None) -> npt.NDArray[np.float32]:
    """Stack images of one size in [0, 1]; gray images among color images are repeated."""
    if channels is None:
        channels = max(map(len, loaded))
    height, width = loaded[0].shape[1:]
    stack = np.empty((len(loaded), channels, height, width), dtype=np.float32)
    # one by one: intermediate results for all images would take five times the memory
    for index, pixels in enumerate(loaded):
        np.divide(pixels, np.float32(255), out=stack[index], casting="same_kind")
    return stack


def _check_fits(
    where: Path,
    files: Sequence[Path],
    size: tuple[int, int] | None = None,
    most_pages: int = 1,
) -> None:
    """Raise ValueError if images do not fit into memory, by their headers.

    Both the pixels of each image and the array of all images count. size: (height, width)
    to which each is resized on reading; None: they are kept until all are read.
    """
    n_pixels = 0  # bytes
    n_values = 0
    largest = 0
    for file in files:
        shape, n_bytes, n_pages = measure_file(file, most_pages)
        if size is not None:
            shape = (shape[0], *size)
        n_pixels += n_bytes * n_pages
        n_values += math.prod(shape) * n_pages
        largest = max(largest, n_bytes)
    if size is not None:
        n_pixels = n_values + largest
    check_fits(where, n_pixels + FLOAT * n_values)


def measure_file(file: Path, most_pages: int) -> tuple[tuple[int, ...], int, int]:
    """Return (channels, height, width) of an image by its header, the size of a page in bytes in
    memory, and the number of pages, at most ``most_pages``.

    An image without a readable header counts 0 pixels; its error is raised when it is read.
    """
    if is_dicom(file):
        shape, n_frames = measure_scan(file)
        return shape, DOUBLE * math.prod(shape), min(n_frames, most_pages)
    if is_nifti(file):
        shape, n_slices = _measure_volume(file)
        return shape, DOUBLE * math.prod(shape), min(n_slices, most_pages)
    with file.open("rb") as stream:
        png = measure_png(stream.read(PNG_HEAD))
    if png is not None and most_pages == 1:
        shape, is_deep = png
        return shape, math.prod(shape) * (DOUBLE if is_deep else 1), 1
    n_pages = 1
    try:
        with open_image(file, "reading a folder of images") as opened:
            width, height = opened.size
            mode = opened.mode
            if most_pages > 1:
                n_pages = min(count_pages(opened), most_pages)
    except ImageError:
        return (1, 0, 0), 0, 1
    if mode in DEEP:
        return (1, height, width), DOUBLE * height * width, n_pages
    channels = 3
    if mode in GRAY:
        channels = 1
    return (channels, height, width), channels * height * width, n_pages


def _measure_volume(file: Path) -> tuple[tuple[int, ...], int]:
    """Return (channels, height, width) and slices by the header; (1, 0, 0), 1 if it is damaged."""
    try:
        header = read_header(file)
    except (OSError, ValueError):
        return (1, 0, 0), 1
    width, height = (*header.shape, 1)[:2]
    return (1, height, width), count_slices(header)


def _read_volume(file: Path, most_slices: int) -> list[Scan]:
    """Return the slices of a volume. Raises ValueError for a damaged file or too many slices."""
    with explain_errors(f"{file} could not be read as NIfTI: "):
        slices = read_slices(file)
        if len(slices) > most_slices:
            raise ValueError(
                f"it has {len(slices)} slices; load it with --pages each (pages=), which makes each "
                "an example"
            )
    return [Scan(image[None], UNIT) for image in slices]


def _read_pages(
    file: Path, channels: int | None, most_pages: int
) -> list[tuple[Pixels | Scan, tuple[str, ...]]]:
    """Return (1, h, w) for each gray page, and (3, h, w) otherwise, and its changes.

    The type is uint8, or float64 from 0 to 255 for more than 8 bits; or a DICOM image.
    """
    pages: list[tuple[Pixels | Scan, tuple[str, ...]]] = []
    if is_dicom(file):
        for scan in read_scans(file, most_pages):
            if channels == 1 and len(scan.values) > 1:
                raise ValueError(f"{file}: it has colors, and the others are gray")
            pages.append((scan, ()))
        return pages
    if is_nifti(file):
        return [(scan, ()) for scan in _read_volume(file, most_pages)]
    try:
        with open_image(file, "reading a folder of images") as opened:
            shown_pages = [show_image(opened)] if most_pages == 1 else list_pages(opened)
            for shown in shown_pages:
                if channels == 1 and not shown.is_gray:
                    raise ImageError("it has colors, and the others are gray")
                pages.append((shown.levels, shown.changes))
    except ImageError as error:
        raise ValueError(
            f"{file} could not be read as an image: {error}; remove other files from a "
            f"folder of images{_say_of_texts(file)}"
        ) from error
    return pages


def _say_of_texts(file: Path) -> str:
    """Return a hint for a folder of texts that is used as a folder of images."""
    if file.suffix.lower() not in (".txt", ".md", ".html"):
        return ""
    return " (texts become rows in Python: fl.from_arrays(fl.texts_to_rows(texts), y))"


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
