"""A site's own folder of images: ``class/*`` and ``unlabeled/*``."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from fallow.data.own.images import UNLABELED_FOLDER, list_files, read_images
from fallow.data.own.raster import ImageError, open_image


@final
@dataclass(frozen=True)
class Pictures:
    """x: (n, channels, height, width) float32 in [-1, 1]; labels: "" = unlabeled."""

    x: Tensor
    labels: tuple[str, ...]
    files: tuple[Path, ...]
    originals: Originals


@final
@dataclass(frozen=True)
class Originals:
    """Files of images below a folder, and what was in each of them when the site read them.

    digests: of each file's content; None for one that could not be read then.  faults: why files
    cannot be shown, in a sentence for each.
    """

    folder: Path
    files: tuple[Path, ...]
    digests: tuple[bytes | None, ...]
    faults: tuple[str, ...] = ()

    @staticmethod
    def of(folder: Path, files: Sequence[Path]) -> Originals:
        """Files of a folder, each opened once, with the digest of what is in it now."""
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
                with open_image(BytesIO(content), "showing images"):
                    pass
            except ImageError as error:
                faults.append(f"the image {file.name} cannot be shown: {error}")
        return Originals(folder, tuple(files), tuple(digests), tuple(faults))

    def read(self, row: int) -> bytes:
        """The content of a row's image; ValueError where it is gone, leads out of the folder or is
        another one than the site began with."""
        return self.read_file(self.files[row])

    def read_file(self, file: Path) -> bytes:
        """The content of one of the files; ValueError as for `read`."""
        content = read_inside(file, self.folder)
        known = self._digest_of.get(file)
        if known is not None and known != _digest(content):
            raise ValueError(
                f"the image {file.name} is not the one that this site began with: put the old file "
                "back, or start again if it was corrected"
            )
        return content

    @cached_property
    def _digest_of(self) -> dict[Path, bytes | None]:
        return dict(zip(self.files, self.digests, strict=True))


def read_inside(file: Path, folder: Path) -> bytes:
    """The content of a file in a folder; ValueError where it leads out of it or cannot be read.

    The folder's files may be swapped for links at any time.  So links are resolved first, and then
    each part of the way is opened from the one before, and no link is followed any more.
    """
    try:
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
            # without O_NONBLOCK a pipe in place of the file would never open
            result = os.open(
                way[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here
            )
        finally:
            os.close(here)
        with open(result, "rb") as opened:
            if not stat.S_ISREG(os.fstat(result).st_mode):
                raise ValueError(f"the image {file.name} cannot be shown: it is no file")
            return opened.read()
    except (OSError, RuntimeError) as error:  # the latter: a circle of links
        raise ValueError(f"the image {file.name} cannot be shown: {error}") from error


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def read_pictures(folder: Path, channels: int | None = None) -> Pictures:
    """Every image below the folder, in the order of its name, whatever its class, so that one may
    be moved into the folder of its class; hidden files are passed over.

    channels: 1 or 3, as agreed; None: one where every image is gray.  Raises ValueError that names
    the file when one cannot be read, has another size than the others or leads out of the folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in class/*")
    files = sorted(
        list_files(folder, "*/*"), key=lambda file: (file.name, file.parent.name)
    )
    if not files:
        raise ValueError(
            f"{folder} holds no images; put them in a folder for each class and in "
            f"{UNLABELED_FOLDER}/"
        )
    for file in files:
        check_inside(file, folder)
    x = torch.from_numpy(read_images(files, channels))
    labels: list[str] = []
    for file in files:
        if file.parent.name == UNLABELED_FOLDER:
            labels.append("")
        else:
            labels.append(file.parent.name)
    return Pictures(
        x=x,
        labels=tuple(labels),
        files=tuple(files),
        originals=Originals.of(folder, files),
    )


def check_inside(file: Path, folder: Path) -> None:
    """Raise ValueError where a name or a link leads out of the folder: who may write there could
    have any file of the machine shown on the labeling page."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"{file} leads to {file.resolve()}, which is not in {folder}: put the image itself "
            "there"
        )
