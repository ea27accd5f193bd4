"""Import of a folder of images: ``site/class/*`` and ``site/unlabeled/*``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.catalog import advise_name
from fallow.core.load_options import DEFAULTS, LoadOptions, Pages
from fallow.core.optional import import_optional
from fallow.core.wording import count_noun, join_some, join_words
from fallow.data.loaders.dicom import (
    DICOM_FILES,
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
from fallow.data.loaders.text_rules import normal_name, warn_of_similar_names
from fallow.data.reading import Finding, ReportBytes, ignore_bytes, note, warning
from fallow.storage.received import check_fits

UNLABELED_FOLDER = "unlabeled"
UNLABELED_NAME = re.compile("unlabel{1,2}ed", re.I)
"""Names of the folder of unlabeled images, with one or two l."""
MOST_OF_FILE: Mapping[Pages, int] = {"refuse": 1, "each": MOST_PAGES}
"""Maximum number of images in a file."""
FLOAT = 4  # bytes of a float32
DOUBLE = 8
LEFT_BY_WINDOWS = ("thumbs.db", "desktop.ini")
"""Files that file managers create in folders of images, and hide."""
LEFT_BY_PROGRAMS = ("__macosx", "@eadir")
"""Folders that archives and servers create in folders of images."""
IMAGE_FILES = (
    ".bmp",
    ".gif",
    ".jpeg",
    ".jpg",
    ".png",
    ".tif",
    ".tiff",
    ".webp",
    *DICOM_FILES,
)
"""Suffixes of files that are reported if their place has no meaning."""
TRAIN = ("train", "training")
VALIDATION = ("val", "valid", "validation", "dev")
TEST = ("test", "testing", "eval", "evaluation", "holdout")
SPLITS = (*TRAIN, *VALIDATION, *TEST)
"""Names of folders that divide images into training, validation and test examples."""
AFTER_SPLIT = re.compile(r"([\W_]?(set|data|images?|split))?([\W_]?\d{4})?", re.I)
"""Rest of such a name, as in ``training_set`` and ``val2017``."""
RENAME = "rename the folders"
DARK = 255 / 15.9
"""Level below which all pixels of 16 bits have at most 12 bits."""
MASK = re.compile(
    r"(.+?)[ _.-](mask|seg|segmentation|gt|annotation|overlay|heatmap)s?", re.I
)
"""Names of images that belong to another image."""
MOST_REPORTED = 5  # damaged files
STORED_NUMBERS = "stored numbers without a unit"
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
    read. A table in the folder with the columns ``file`` and ``target``, and optionally
    ``site``, has regression targets: images are then the files in it. ``options``: the range of
    physical values of DICOM images (default: chosen from the images), and whether each page of a
    file is an example, which is a group of them.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in site/class/*")
    listed = _find_list(folder)
    if listed is not None:
        return _read_listed(folder, listed, notify, options)
    splits = _find_splits(folder)
    layout = _find_layout(folder, splits)
    files = layout.files
    if not files and layout.others:
        raise ValueError(
            f"{folder} has images at another depth, such as "
            f"{layout.others[0].relative_to(folder).as_posix()}; put them in site/class/* or "
            "class/*, and divided ones in train/site/class/* or train/class/* and test/class/*"
        )
    if not files:
        raise ValueError(
            f"{folder} contains no images; put them in site/class/* or "
            f"site/{UNLABELED_FOLDER}/*, or in class/* without sites; for regression, add "
            f"targets.csv with the columns file and target{advise_name(folder)}"
        )
    _check_classes(folder, files)
    stack = _load_files(folder, files, notify, options)
    files = [files[at] for at in stack.file_of]
    folders = [file.relative_to(folder).parent.parts for file in files]
    sites: tuple[str, ...] | None = None
    if layout.has_sites:
        sites = tuple(normal_name(parts[-2]) for parts in folders)
    labels = tuple(label_of(file) for file in files)
    is_test = None
    split_findings: list[Finding] = []
    if splits:
        is_test = np.array([parts[0] in splits.test for parts in folders], dtype=np.bool_)
        in_validation = sum(parts[0] in splits.validation for parts in folders)
        split_findings = splits.describe(in_validation)
    empty = sorted(
        {normal_name(path.name) for path in layout.empty if not _is_unlabeled(path)}
        - {*labels}
    )
    return Images(
        x=stack.x,
        labels=labels,
        sites=sites,
        is_test=is_test,
        empty_classes=tuple(empty),
        names=name_pages(
            [file.relative_to(folder).as_posix() for file in files], stack.file_of
        ),
        groups=stack.choose_groups(options.group),
        findings=(
            *([] if options.group else stack.suggest_groups()),
            *_find_in_names(folders),
            *_find_unlabeled(files),
            *_find_patients(labels, sites),
            *_find_train_site(sites),
            *_find_told_by_files(labels, files, stack.shapes),
            *warn_of_similar_names("classes", Counter(filter(None, labels)), RENAME),
            *warn_of_similar_names("sites", Counter(sites or ()), RENAME),
            *split_findings,
            *_find_empty(layout, empty),
            *_find_strays(folder, layout, splits),
            *_find_masks(files),
            *stack.findings,
        ),
        physical_range=stack.physical_range,
        unit=stack.unit,
    )


@final
@dataclass(frozen=True)
class Splits:
    """Folders of training, validation and test images, by their names."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    @property
    def folders(self) -> tuple[str, ...]:
        return (*self.train, *self.validation, *self.test)

    def describe(self, in_validation: int) -> list[Finding]:
        """Return what the folders mean. in_validation: number of validation images."""
        findings = [note(f"the test set is the folder {self.test[0]}/")]
        if in_validation:
            findings.append(
                note(
                    f"{in_validation:,} validation images were added to the training images",
                    "validation=0.1",
                )
            )
        return findings


def _find_splits(folder: Path) -> Splits | None:
    """Return the folders of training and test images, None if classes or sites are on top.

    Without a test folder, the validation images are the test set.
    """
    names = [path.name for path in list_folders(folder, "*")]
    train = tuple(name for name in names if _is_split(name, TRAIN))
    validation = tuple(name for name in names if _is_split(name, VALIDATION))
    test = tuple(name for name in names if _is_split(name, TEST))
    if len(train) != 1 or not (test or validation):
        return None
    others = {*names} - {*train, *validation, *test}
    is_class = bool(list_files(folder / train[0], "*"))
    if is_class and not all(map(UNLABELED_NAME.fullmatch, others)):
        return None
    if not test:
        return Splits(train, (), validation)
    return Splits(train, validation, test)


def _is_split(name: str, kinds: Sequence[str]) -> bool:
    """Return whether a folder is one of a kind, such as ``train``, ``training_set``, ``val2017``.

    >>> _is_split("Train-Images", TRAIN), _is_split("trainee", TRAIN)
    (True, False)
    """
    lower = name.lower()
    return any(
        lower.startswith(kind) and AFTER_SPLIT.fullmatch(lower.removeprefix(kind))
        for kind in kinds
    )


@final
@dataclass(frozen=True)
class Layout:
    """Files of a folder that are examples, and what else is there.

    Attributes
    ----------
    files : list of Path
        Images, sorted by name.
    has_sites : bool
        Whether their path is ``site/class/*``.
    empty : list of Path
        Class folders without files.
    empty_sites : list of Path
        Site folders without class folders.
    others : list of Path
        Images at another depth.
    broken : list of Path
        Links that lead to no file.
    """

    files: list[Path]
    has_sites: bool
    empty: list[Path]
    empty_sites: list[Path]
    others: list[Path]
    broken: list[Path]


def _find_layout(folder: Path, splits: Splits | None) -> Layout:
    """Find the images at the depth of ``site/class/*``, or of ``class/*`` if there are none."""
    top = "" if splits is None else "*/"
    by_depth = [list_paths(folder, f"{top}{'*/' * depth}*") for depth in range(4)]
    depth = 2 if by_depth[2].files else 1
    files = by_depth[depth].files
    others: list[Path] = []
    for listing in by_depth:
        if listing is not by_depth[depth]:
            others += [path for path in listing.files if _is_named_image(path)]
    if splits is not None:
        beside = [file for file in files if not _is_below(file, folder, splits)]
        others += [file for file in beside if _is_named_image(file)]
        files = [file for file in files if _is_below(file, folder, splits)]
        if depth == 1:
            unlabeled = [
                file for file in list_files(folder, "*/*") if _is_unlabeled(file.parent)
            ]
            files = sorted([*files, *unlabeled])
            others = [file for file in others if file not in unlabeled]
    used = {file.parent for file in files}
    class_folders = [
        path
        for path in by_depth[depth - 1].folders
        if splits is None or _is_below(path, folder, splits)
    ]
    empty_sites: list[Path] = []
    if depth == 2:
        occupied = {path.parent for path in (*class_folders, *others)}
        empty_sites = [path for path in by_depth[0].folders if path not in occupied]
    return Layout(
        files=files,
        has_sites=depth == 2,
        empty=[path for path in class_folders if path not in used],
        empty_sites=empty_sites,
        others=others,
        broken=[path for listing in by_depth for path in listing.broken],
    )


def _is_below(path: Path, folder: Path, splits: Splits) -> bool:
    return path.relative_to(folder).parts[0] in splits.folders


def _is_named_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_FILES


def _find_in_names(folders: Iterable[tuple[str, ...]]) -> list[Finding]:
    """Return a note for each pair of folders whose names differ in their Unicode form."""
    forms: dict[str, set[str]] = {}
    for name in {name for parts in folders for name in parts}:
        forms.setdefault(normal_name(name), set()).add(name)
    return [
        note(f"folders {name!r} in {len(several)} Unicode forms are one name")
        for name, several in sorted(forms.items())
        if len(several) > 1
    ]


def _find_empty(layout: Layout, classes: Sequence[str]) -> list[Finding]:
    findings = []
    if classes:
        noun = "class has" if len(classes) == 1 else "classes have"
        findings.append(
            note(f"{len(classes)} {noun} a folder and no image: {join_some(classes)}")
        )
    if layout.empty_sites:
        names = [path.name for path in layout.empty_sites]
        noun = count_noun(len(names), "site folder")
        findings.append(warning(f"{noun} without images left out: {join_some(names)}"))
    return findings


def _check_classes(folder: Path, files: Sequence[Path]) -> None:
    """Raise ValueError if the classes are those of training and test images."""
    names = {file.parent.name for file in files if not _is_unlabeled(file.parent)}
    has_train = any(_is_split(name, TRAIN) for name in names)
    if len(names) > 1 and has_train and all(_is_split(name, SPLITS) for name in names):
        raise ValueError(
            f"{folder}: the classes would be {join_some(sorted(names))}, such as of "
            f"{files[0].relative_to(folder).as_posix()}; put these folders above the classes, as "
            "in train/class/* and test/class/*"
        )


def _find_unlabeled(files: Iterable[Path]) -> list[Finding]:
    """Return a note on folders of unlabeled images in another writing."""
    names = {file.parent.name for file in files if _is_unlabeled(file.parent)}
    return [
        note(f"images in folders {name!r} are unlabeled", RENAME)
        for name in sorted(names - {UNLABELED_FOLDER})
    ]


def _find_patients(labels: Sequence[str], sites: Sequence[str] | None) -> list[Finding]:
    """Return a warning if the sites seem to be classes, with a folder for each patient."""
    if sites is None:
        return []
    pairs = {pair for pair in zip(labels, sites, strict=True) if pair[0]}
    classes = {label for label, _ in pairs}
    n_sites = len({site for _, site in pairs})
    if len(pairs) > len(classes) or not 1 < n_sites < len(classes):
        return []
    label, site = min(pairs)
    sentence = (
        f"each of {len(classes):,} classes is at one site only, such as {label!r} at {site!r}: the "
        "sites may be classes, and the classes patients"
    )
    return [warning(sentence, "put the images into class/*, or into site/class/*")]


def _find_train_site(sites: Sequence[str] | None) -> list[Finding]:
    """Return a warning if a site has the name of training images."""
    names = sorted({*(sites or ())})
    trains = [name for name in names if _is_split(name, TRAIN)]
    if not trains or len(names) == 1:
        return []
    others = [name for name in names if name not in trains]
    return [
        warning(
            f"the folders {join_some([*trains, *others])} are sites, and {trains[0]!r} may have the "
            "training images",
            "name the folder of test images test, and put other folders elsewhere",
        )
    ]


FEWEST_OF_CLASS = 5
"""Smallest number of images of each class in which their files tell anything."""


def _find_told_by_files(
    labels: Sequence[str], files: Sequence[Path], shapes: Sequence[tuple[int, ...]]
) -> list[Finding]:
    """Return a warning if the format or the size of a file tells the class of its image."""
    counts = Counter(filter(None, labels))
    if len(counts) < 2 or min(counts.values()) < FEWEST_OF_CLASS:
        return []
    kinds = {
        "format": [_name_format(file) for file in files],
        "size": [_format_size(shape) for shape in shapes],
    }
    findings = []
    for what, values in kinds.items():
        pairs = {pair for pair in zip(labels, values, strict=True) if pair[0]}
        class_of = {value: label for label, value in pairs}
        if len(class_of) < len(pairs) or len(class_of) > 2 * len(counts):
            continue
        (label, value), (other, another) = sorted(pairs)[:2]
        sentence = (
            f"the {what} of a file tells its class ({value} in {label!r}, {another} in {other!r}), "
            "and a model may learn its traces"
        )
        findings.append(warning(sentence, "export all images alike"))
    return findings


def _name_format(file: Path) -> str:
    """Return the suffix of a file, the same for all suffixes of a format.

    >>> _name_format(Path("a.JPEG")), _name_format(Path("a.tiff"))
    ('.jpg', '.tif')
    """
    suffix = file.suffix.lower()
    return {".jpeg": ".jpg", ".tiff": ".tif"}.get(suffix, suffix)


def _find_strays(folder: Path, layout: Layout, splits: Splits | None) -> list[Finding]:
    """Return warnings of files that are no examples."""
    findings = []
    if layout.others:
        layout_words = "site/class/*" if layout.has_sites else "class/*"
        if splits is not None:
            layout_words += f" in {join_words(splits.folders)}"
        first = layout.others[0].relative_to(folder).as_posix()
        noun = count_noun(len(layout.others), "image")
        sentence = f"{noun} outside {layout_words} left out, such as {first}"
        findings.append(warning(sentence, "move the files"))
    if layout.broken:
        names = [path.relative_to(folder).as_posix() for path in layout.broken]
        noun = count_noun(len(names), "link")
        findings.append(warning(f"{noun} to no file left out: {join_some(names)}"))
    return findings


def _find_masks(files: Sequence[Path]) -> list[Finding]:
    """Return a warning of images that are named as masks of others, which became examples."""
    names = {file.with_suffix("") for file in files}
    masks = []
    for file in files:
        match = MASK.fullmatch(file.stem)
        if match is not None and file.with_name(match[1]) in names:
            masks.append(file)
    if not masks:
        return []
    sentence = (
        f"{count_noun(len(masks), 'image')} named as the mask of another, such as "
        f"{masks[0].name}, which became an example"
    )
    return [warning(sentence, "move the masks to another folder")]


IN_LIST = "write numbers with a decimal point"


def label_of(file: Path) -> str:
    """Return the name of the folder of an image, "" if it is that of unlabeled images."""
    if _is_unlabeled(file.parent):
        return ""
    return normal_name(file.parent.name)


def _is_unlabeled(folder: Path) -> bool:
    return UNLABELED_NAME.fullmatch(normal_name(folder.name)) is not None


def _find_list(folder: Path) -> Path | None:
    """Return the table in the folder with files and targets, or None."""
    from fallow.data.loaders.table_files import read_file

    listed = []
    for file in list_files(folder, "*.csv"):
        if {"file", "target"} <= read_file(file).columns.keys():
            listed.append(file)
    if len(listed) > 1:
        raise ValueError(
            f"{folder} has {len(listed)} tables with files and targets, {listed[0].name} "
            f"and {listed[1].name}; keep one"
        )
    return next(iter(listed), None)


def _read_listed(
    folder: Path, table: Path, notify: ReportBytes, options: LoadOptions
) -> Images:
    """Read the images in a table, with their targets."""
    from fallow.data.loaders.table_files import read_file

    cells = read_file(table)
    names = tuple(cells.texts("file"))
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{table} lists {twice[0]!r} more than once; leave one line")
    targets = cells.numbers("target")
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
    if "site" in cells.columns:
        sites = tuple(cells.texts("site"))
    stack = _load_files(folder, files, notify, options)
    at = list(stack.file_of)
    return Images(
        x=stack.x,
        labels=(),
        targets=targets[at],
        sites=None if sites is None else tuple(sites[file] for file in at),
        names=name_pages([names[file] for file in at], at),
        groups=stack.choose_groups(options.group),
        findings=(
            *([] if options.group else stack.suggest_groups()),
            note(f"regression targets were read from {table.name}"),
            *(
                replace(doubt, fix=IN_LIST)
                for doubt in cells.marks.warn_of_doubt(table.name)
            ),
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
        findings.append(
            note(
                f"{others} of {len(levels)} images were resized to the most frequent size, "
                f"{size[1]} x {size[0]}"
            )
        )
    deep = sum(pixels.dtype != np.uint8 for pixels in levels)
    if deep:
        findings.append(
            note(f"{deep} images have more than 8 bits per pixel, all of which are used")
        )
    # of 16 bits in color, the upper 8 are read
    in_8_bits = [pixels for pixels in levels if pixels.dtype == np.uint8]
    in_more = [pixels for pixels in levels if pixels.dtype != np.uint8]
    findings += _warn_of_dark("images", in_8_bits)
    findings += _warn_of_dark("images with more than 8 bits", in_more)
    return Stack(
        x,
        loaded.physical_range,
        loaded.unit,
        (*findings, *_note_pages(loaded.file_of), *loaded.findings),
        tuple(loaded.file_of),
        tuple(loaded.owners),
        tuple(pixels.shape for pixels in levels),
    )


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
        shown.append(f"{name}#{page_of[file]}" if n_pages[file] > 1 else name)
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
    windows: Counter[PhysicalRange] = Counter()
    changes: Counter[str] = Counter()
    errors: dict[Path, str] = {}
    units: dict[str, Path] = {}  # of DICOM images, with the first file of each
    for number, (file, n_bytes) in enumerate(zip(files, sizes, strict=True)):
        try:
            pages = _read_pages(file, channels, most_pages)
        except ValueError as error:
            errors[file] = str(error)
            if len(errors) > MOST_REPORTED:
                break
            continue
        for image, changed in pages:
            owners.append(image.owners if isinstance(image, Scan) else {})
            if isinstance(image, Scan):
                units.setdefault(image.unit or STORED_NUMBERS, file)
                if image.is_padding is not None:
                    changed = (*changed, "with padding (PixelPaddingValue), which is black")
                if image.window is not None:
                    windows[image.window] += 1
                if image.unit is None:
                    image = image.values
                elif physical_range is not None:
                    image = image.scale(physical_range)
            if size is not None and not isinstance(image, Scan):
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
    _check_units(units, physical_range)
    findings += _note_windows(windows, units, physical_range)
    unit = next(iter(units), STORED_NUMBERS)
    if unit == STORED_NUMBERS:
        levels = [image for image in images if not isinstance(image, Scan)]
        return LoadedImages(levels, None, "", tuple(findings), file_of, owners)
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


@final
@dataclass(frozen=True)
class Listing:
    """Paths of a pattern without hidden ones, sorted by name; ``broken`` are links to nothing."""

    files: list[Path]
    folders: list[Path]
    broken: list[Path]


def list_paths(folder: Path, pattern: str) -> Listing:
    """List the files and folders of a pattern. Links to a folder around them are left out."""
    listing = Listing([], [], [])
    is_left_out: dict[Path, bool] = {}  # by folder
    for path in sorted(folder.glob(pattern)):
        parent = path.parent
        if parent not in is_left_out:
            is_left_out[parent] = _is_hidden(parent, folder) or _leads_around(
                parent, folder
            )
        if is_left_out[parent] or _is_hidden_name(path.name):
            continue
        if path.is_file():
            if path.name.lower() not in LEFT_BY_WINDOWS:
                listing.files.append(path)
        elif path.is_dir():
            if not _leads_around(path, folder):
                listing.folders.append(path)
        elif path.is_symlink():
            listing.broken.append(path)
    return listing


def list_files(folder: Path, pattern: str) -> list[Path]:
    """List the files of a pattern, sorted by name, without hidden files."""
    return list_paths(folder, pattern).files


def list_folders(folder: Path, pattern: str) -> list[Path]:
    """List the folders of a pattern, sorted by name, without hidden ones."""
    return list_paths(folder, pattern).folders


def _leads_around(path: Path, folder: Path) -> bool:
    """Return whether a part of the path is a link to a folder that contains it."""
    while path != folder:
        if path.is_symlink() and path.parent.resolve().is_relative_to(path.resolve()):
            return True
        path = path.parent
    return False


def _is_hidden(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return any(map(_is_hidden_name, parts))


def _is_hidden_name(name: str) -> bool:
    return name.startswith(".") or name.lower() in LEFT_BY_PROGRAMS


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
    return Stack(
        _stack(levels, channels),
        loaded.physical_range,
        loaded.unit,
        (*_note_pages(loaded.file_of), *loaded.findings),
        tuple(loaded.file_of),
        tuple(loaded.owners),
        tuple(pixels.shape for pixels in levels),
    )


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
