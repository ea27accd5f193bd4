"""Image folder of a site: ``class/*`` and ``unlabeled/*``."""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import final

from fallow.core.load_options import DEFAULTS, LoadOptions
from fallow.core.refusal import explain_errors
from fallow.data.loaders.dicom import PhysicalRange
from fallow.data.loaders.folders import (
    UNLABELED_FOLDER,
    label_of,
    list_files,
    list_folders,
)
from fallow.data.loaders.images import LISTED, Images, read_images
from fallow.data.loaders.listed import Listed, read_list
from fallow.data.loaders.pixels import ImageError, open_image

LABEL = "label"
"""Column of labels, if the agreement names no other."""
CLASS_AND_FILE = 2
"""Parts of the path of an image in the folder of a class."""


@final
@dataclass(frozen=True)
class Originals:
    """Image files below a folder, with the hashes of their content at the start.

    ``digests`` are None for unreadable files. ``faults`` has the reason for each file that cannot
    be displayed.
    """

    folder: Path
    files: tuple[Path, ...]
    digests: tuple[bytes | None, ...]
    faults: tuple[str, ...] = ()

    @staticmethod
    def of(folder: Path, files: Sequence[Path]) -> Originals:
        """Open each file of a folder once and compute its hash."""
        digests: list[bytes | None] = []
        faults: list[str] = []
        for file in files:
            try:
                content = read_inside(file, folder)
            except ValueError as error:
                digests.append(None)
                faults.append(str(error))
                continue
            digests.append(_digest(content))
            try:
                with open_image(BytesIO(content), "displaying images"):
                    pass
            except ImageError as error:
                faults.append(f"the image {file.name} cannot be displayed: {error}")
        return Originals(folder, tuple(files), tuple(digests), tuple(faults))

    def read(self, row: int) -> bytes:
        """Return the content of a row's image.

        Raises ValueError if it is missing, outside the folder, or changed since the start.
        """
        return self.read_file(self.files[row])

    def read_file(self, file: Path) -> bytes:
        """Return the content of one file. Raises ValueError as `read` does."""
        content = read_inside(file, self.folder)
        known = self._digest_of.get(file)
        if known is not None and known != _digest(content):
            raise ValueError(
                f"the image {file.name} has changed since the site started: restore "
                "the old file, or restart the site if it was corrected"
            )
        return content

    @cached_property
    def _digest_of(self) -> dict[Path, bytes | None]:
        return dict(zip(self.files, self.digests, strict=True))


def read_inside(file: Path, folder: Path) -> bytes:
    """Return the content of a file in a folder.

    Raises ValueError if it is outside the folder or unreadable. Files may be replaced by links at
    any time. Links are therefore resolved first, and then each path component is opened from its
    parent without following links.
    """
    with explain_errors(
        f"the image {file.name} cannot be displayed: ",
        of=(OSError, RuntimeError),  # RuntimeError: a loop of links
    ):
        inside = file.resolve(strict=True)
        top = folder.resolve(strict=True)
        check_inside(file, folder)
        way = inside.relative_to(top).parts
        here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in way[:-1]:
                follow = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                below = os.open(part, follow, dir_fd=here)
                os.close(here)
                here = below
            # without O_NONBLOCK, opening a pipe would block
            result = os.open(
                way[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here
            )
        finally:
            os.close(here)
        with open(result, "rb") as opened:
            if not stat.S_ISREG(os.fstat(result).st_mode):
                raise ValueError(
                    f"the image {file.name} cannot be displayed: it is not a file"
                )
            return opened.read()


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def read_pictures(
    folder: Path,
    channels: int | None = None,
    physical_range: PhysicalRange | None = None,
    options: LoadOptions = DEFAULTS,
    label: str = LABEL,
) -> Images:
    """Read every image in the folder of a class, sorted by name regardless of the class.

    A table in the folder may list the images with their labels, in the agreed column ``label`` or
    another of `LABEL_COLUMNS`. An image may be moved to the folder of its class. Hidden files are
    skipped. ``channels`` is 1 or 3 as agreed, or None for 1 if all images are grayscale. Raises
    ValueError, naming the file, for an image that is unreadable, has another size, or is outside
    the folder. ``physical_range`` has the agreed values of DICOM images that are black and white.
    ``options`` are those of the site, such as ``pages``: if each page is an example, a folder in
    that of a class is read as a file of pages, in the order of the numbers in their names.
    """
    own_label = label if label != LABEL else None
    listed = read_list(folder, options.group, own_label)
    if listed is not None:
        return _read_listed(listed, folder, channels, physical_range, options)
    files = sorted(
        list_files(folder, "*/*"), key=lambda file: (file.name, file.parent.name)
    )
    if options.pages == "each":
        files += sorted(list_files(folder, "*/*/*"), key=_order_pages)
    if not files:
        raise ValueError(
            f"{folder} contains no images; put them in a folder for each class and "
            f"in {UNLABELED_FOLDER}/, or {LISTED}"
        )
    for file in files:
        check_inside(file, folder)
    stack = read_images(files, channels, physical_range=physical_range, pages=options.pages)
    findings = stack.findings
    if options.group is None:
        findings = (*findings, *stack.suggest_groups())
    owners = [_find_owner(folder, files[at]) for at in stack.file_of]
    groups: tuple[str, ...] | None = None
    if options.group is not None:
        groups = stack.choose_groups(options.group)
    elif len({*owners}) < len(owners):
        groups = tuple(str(owner.resolve()) for owner in owners)
    labels = tuple(_find_class(folder, files[at]) for at in stack.file_of)
    n_pages = Counter(stack.file_of)
    return Images(
        x=stack.x,
        physical_range=stack.physical_range,
        unit=stack.unit,
        findings=findings,
        empty_classes=_find_empty_classes(folder, labels),
        labels=labels,
        names=tuple(files[at].relative_to(folder).as_posix() for at in stack.file_of),
        groups=groups,
        is_page=tuple(n_pages[at] > 1 for at in stack.file_of),
        locations=stack.locations,
    )


def _read_listed(
    listed: Listed,
    folder: Path,
    channels: int | None,
    physical_range: PhysicalRange | None,
    options: LoadOptions,
) -> Images:
    """Read the images in a table, sorted by name regardless of the order of its lines.

    Raises ValueError for images of several sites.
    """
    sites = sorted({*(listed.sites or ())})
    if len(sites) > 1:
        raise ValueError(
            f"{listed.table.name} lists images of {len(sites)} sites, such as {sites[0]!r} and "
            f"{sites[1]!r}; keep those of this site"
        )
    order = sorted(range(len(listed.files)), key=lambda at: _order_listed(listed.files[at]))
    listed = listed.take(order)
    stack = read_images(
        listed.files, channels, physical_range=physical_range, pages=options.pages
    )
    listed = listed.take(stack.file_of)  # a line for each image
    labels = listed.labels
    if listed.targets is not None:
        numbers = map(float, listed.targets)
        labels = tuple("" if math.isnan(number) else repr(number) for number in numbers)
    groups = listed.groups
    if groups is None:
        groups = stack.choose_groups(options.group)
    findings = stack.findings
    if options.group is None:
        findings = (*findings, *stack.suggest_groups())
    n_pages = Counter(stack.file_of)
    return Images(
        x=stack.x,
        labels=labels,
        targets=listed.targets,
        names=tuple(file.relative_to(folder).as_posix() for file in listed.files),
        findings=(*listed.findings, *findings),
        physical_range=stack.physical_range,
        unit=stack.unit,
        groups=groups,
        is_page=tuple(n_pages[at] > 1 for at in stack.file_of),
        locations=stack.locations,
        table=listed.table.name,
    )


def _order_listed(file: Path) -> tuple[str, str]:
    return file.name, str(file)


def _order_pages(file: Path) -> tuple[str, list[int], str]:
    """Return the key by which the pages in folders are sorted: folder, numbers, name.

    >>> sorted([Path("a/s10.png"), Path("a/s9.png")], key=_order_pages)[0].name
    's9.png'
    """
    return str(file.parent), [*map(int, re.findall(r"[0-9]+", file.stem))], file.name


def _find_owner(folder: Path, file: Path) -> Path:
    """Return the file, or its folder if that is in the folder of a class."""
    return file.parent if len(file.relative_to(folder).parts) > CLASS_AND_FILE else file


def _find_class(folder: Path, file: Path) -> str:
    """Return the class of an image, "" for an unlabeled one."""
    return label_of(folder / file.relative_to(folder).parts[0] / file.name)


def _find_empty_classes(folder: Path, used: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the folders without images."""
    names = {label_of(path / "image") for path in list_folders(folder, "*")} - {""}
    return tuple(sorted(names - {*used}))


def check_inside(file: Path, folder: Path) -> None:
    """Raise ValueError for a path outside the folder.

    Otherwise a user with write access could show any file of the machine on the labeling page.
    """
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"{file} leads to {file.resolve()}, outside {folder}: replace it by "
            "the image itself"
        )
