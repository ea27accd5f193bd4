"""Layout of a folder of images: sites, classes, splits, and files that are no examples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fallow.core.wording import count_noun, join_some, join_words
from fallow.data.loaders.dicom import DICOM_FILES
from fallow.data.loaders.nifti import SUFFIXES as NIFTI_FILES
from fallow.data.loaders.text_rules import OBJECTS, normal_name, warn_of_similar_names
from fallow.data.reading import Finding, note, warning

UNLABELED_FOLDER = "unlabeled"
UNLABELED_NAME = re.compile("unlabel{1,2}ed", re.I)
"""Names of the folder of unlabeled images, with one or two l."""
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
    *NIFTI_FILES,
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
MASK = re.compile(
    r"(.+?)[ _.-](mask|seg|segmentation|gt|annotation|overlay|heatmap|thumb|thumbnail|preview"
    r"|(aug|augmented|flip|flipped|rot|rotated|copy)[ _.-]?\d{0,3})s?",
    re.I,
)
"""Names of images that belong to another image."""
PATIENT = re.compile(
    rf"(p|pat|pt|subj|sub|case|{OBJECTS})[\W_]*\d+|(19|20)\d\d([-_]\d\d){{0,2}}", re.I
)
"""Names of folders of one patient or object, or of a date."""


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

    def describe(self, in_validation: int) -> Iterator[Finding]:
        """Yield what the folders mean. in_validation: number of validation images."""
        yield note(f"the test set is the folder {self.test[0]}/")
        if in_validation:
            yield note(
                f"{in_validation:,} validation images were added to the training images",
                "validation=0.1",
            )


def find_splits(folder: Path) -> Splits | None:
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


def names_split(name: str) -> bool:
    """Return whether a name is that of training, validation or test examples.

    >>> names_split("Training"), names_split("pos")
    (True, False)
    """
    return _is_split(name, SPLITS)


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

    def list_empty_classes(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the classes whose folders have no image; labels: those of the images."""
        names = {normal_name(path.name) for path in self.empty if not is_unlabeled(path)}
        return tuple(sorted(names - {*labels}))

    def describe_empty(self, classes: Sequence[str]) -> Iterator[Finding]:
        """Yield what empty folders mean; classes: those without an image."""
        if classes:
            noun = "class has" if len(classes) == 1 else "classes have"
            yield note(f"{len(classes)} {noun} a folder and no image: {join_some(classes)}")
        if self.empty_sites:
            names = [path.name for path in self.empty_sites]
            noun = count_noun(len(names), "site folder")
            yield warning(f"{noun} without images left out: {join_some(names)}")

    def describe_strays(self, folder: Path, splits: Splits | None) -> Iterator[Finding]:
        """Yield warnings of files that are no examples."""
        if self.others:
            layout_words = "site/class/*" if self.has_sites else "class/*"
            if splits is not None:
                layout_words += f" in {join_words(splits.folders)}"
            first = self.others[0].relative_to(folder).as_posix()
            noun = count_noun(len(self.others), "image")
            sentence = f"{noun} outside {layout_words} left out, such as {first}"
            yield warning(sentence, "move the files")
        if self.broken:
            names = [path.relative_to(folder).as_posix() for path in self.broken]
            noun = count_noun(len(names), "link")
            yield warning(f"{noun} to no file left out: {join_some(names)}")


def find_layout(folder: Path, splits: Splits | None) -> Layout:
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
                file for file in list_files(folder, "*/*") if is_unlabeled(file.parent)
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


def describe_names(
    folders: Sequence[tuple[str, ...]], labels: Sequence[str], sites: Sequence[str] | None
) -> list[Finding]:
    """Return what may be wrong with the names of sites and classes.

    folders: parts of the path of each image below the folder.
    """
    return [
        *_find_forms(folders),
        *_find_patients(labels, sites),
        *_find_train_site(sites),
        *warn_of_similar_names("classes", Counter(filter(None, labels)), RENAME),
        *warn_of_similar_names("sites", Counter(sites or ()), RENAME),
    ]


def describe_files(
    files: Sequence[Path], labels: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> list[Finding]:
    """Return what may be wrong with the files of the images.

    shapes: (channels, height, width) of each image in its file.
    """
    return [
        *_find_unlabeled(files),
        *_find_told_classes(files, labels, shapes),
        *_find_masks(files),
    ]


def _find_forms(folders: Iterable[tuple[str, ...]]) -> list[Finding]:
    """Return a note for each pair of folders whose names differ in their Unicode form."""
    forms: dict[str, set[str]] = {}
    for name in {name for parts in folders for name in parts}:
        forms.setdefault(normal_name(name), set()).add(name)
    return [
        note(f"folders {name!r} in {len(several)} Unicode forms are one name")
        for name, several in sorted(forms.items())
        if len(several) > 1
    ]


def check_classes(folder: Path, files: Sequence[Path]) -> None:
    """Raise ValueError if the classes are those of training and test images."""
    names = {file.parent.name for file in files if not is_unlabeled(file.parent)}
    has_train = any(_is_split(name, TRAIN) for name in names)
    if len(names) > 1 and has_train and all(_is_split(name, SPLITS) for name in names):
        raise ValueError(
            f"{folder}: the classes would be {join_some(sorted(names))}, such as of "
            f"{files[0].relative_to(folder).as_posix()}; put these folders above the classes, as "
            "in train/class/* and test/class/*"
        )


def _find_unlabeled(files: Iterable[Path]) -> list[Finding]:
    """Return a note on folders of unlabeled images in another writing."""
    names = {file.parent.name for file in files if is_unlabeled(file.parent)}
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
    if not 1 < n_sites < len(classes):
        return []
    label, site = min(pairs)
    if len(pairs) == len(classes):
        where = f"{label!r} at {site!r}"
        sentence = f"each of {len(classes):,} classes is at one site only, such as {where}"
    elif all(map(PATIENT.fullmatch, classes)):
        sentence = f"the {len(classes):,} classes are named as patients or dates, such as {label!r}"
    else:
        return []
    sentence += ": the sites may be classes, and the classes patients"
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


def _find_told_classes(
    files: Sequence[Path], labels: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> Iterator[Finding]:
    """Yield a warning if the format, size or color of a file tells the class of its image."""
    counts = Counter(filter(None, labels))
    if len(counts) < 2 or min(counts.values()) < FEWEST_OF_CLASS:
        return
    kinds = {
        "format": list(map(_name_format, files)),
        "size": [f"{width} x {height}" for _, height, width in shapes],
        "color": ["gray" if channels == 1 else "color" for channels, _, _ in shapes],
    }
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
        yield warning(sentence, "export all images alike")


def _name_format(file: Path) -> str:
    """Return the suffix of a file, the same for all suffixes of a format.

    >>> _name_format(Path("a.JPEG")), _name_format(Path("a.tiff"))
    ('.jpg', '.tif')
    """
    suffix = file.suffix.lower()
    return {".jpeg": ".jpg", ".tiff": ".tif"}.get(suffix, suffix)


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
        f"{count_noun(len(masks), 'image')} named as the mask or a copy of another, such as "
        f"{masks[0].name}, which became an example"
    )
    return [warning(sentence, "move them to another folder")]


def label_of(file: Path) -> str:
    """Return the name of the folder of an image, "" if it is that of unlabeled images."""
    if is_unlabeled(file.parent):
        return ""
    return normal_name(file.parent.name)


def is_unlabeled(folder: Path) -> bool:
    return UNLABELED_NAME.fullmatch(normal_name(folder.name)) is not None
