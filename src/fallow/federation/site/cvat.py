"""Images to CVAT and what people say of them back, as files (https://docs.cvat.ai): an archive of
images with a list of labels out, its "CVAT for images 1.1" in.

A label is a tag of a whole image.  An image has the row's number and the sample's name as its own,
so that it is known again.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol
from xml.parsers import expat

from fallow.federation.ledger import Ledger
from fallow.federation.schema import Schema
from fallow.federation.site.label_studio import Cells
from fallow.federation.site.rows import SiteRows
from fallow.storage.files import write_whole
from fallow.storage.private import FILE

ARCHIVE = ".zip"
ANNOTATIONS = ".xml"
LABELS = ".labels.json"
"""How the list of labels is called beside an archive: its name, and this."""
ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
OTHERS = re.compile(r"[^A-Za-z0-9_-]+")
LONGEST = 60  # characters of a sample's name in that of an image
EPOCH = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # of every file in an archive: the same questions, the same bytes
SHAPES = ("box", "polygon", "polyline", "points", "mask", "ellipse", "cuboid", "skeleton")


class Shown(Protocol):
    """An image as a browser gets it."""

    @property
    def content(self) -> bytes: ...
    @property
    def media_type(self) -> str: ...


# -- out ------------------------------------------------------------------------------------


def name_image(rows: SiteRows, row: int) -> str:
    """What the image of a row is called there, without its ending."""
    name = OTHERS.sub("-", rows.ids[row]).strip("-")[:LONGEST]
    return f"{row:06d}-{name}"


def export_images(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    show: Callable[[int], Shown | None],
    cannot_tell: str,
) -> int:
    """Write the images of the open questions as an archive, and beside it the labels as CVAT's raw
    constructor takes them; how many images.

    show: the picture of a row.  cannot_tell: the label of a sample of which nobody knows it.
    Raises ValueError for rows that are no images, numbers to say, and another name than of an
    archive.
    """
    if path.suffix.lower() != ARCHIVE:
        raise ValueError(
            f"{path.name} does not end in {ARCHIVE}, as an archive of images does"
        )
    if not schema.classes:
        raise ValueError("CVAT's tags are classes, and this study asks for numbers")
    written = io.BytesIO()
    count = 0
    with zipfile.ZipFile(written, "w") as archive:
        for asked in ledger.questions(state="open"):
            shown = show(asked.row)
            if shown is None or shown.media_type not in ENDINGS:
                raise ValueError(
                    f"sample {rows.ids[asked.row]!r} is no image that CVAT shows; export such "
                    "questions as .csv, .json or for Label Studio"
                )
            name = name_image(rows, asked.row) + ENDINGS[shown.media_type]
            archive.writestr(zipfile.ZipInfo(name, EPOCH), shown.content)
            count += 1
    labels = [
        {"name": name, "type": "tag", "attributes": []}
        for name in dict.fromkeys((*schema.classes, cannot_tell))
    ]
    text = json.dumps(labels, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, written.getvalue(), mode=FILE)
    write_whole(path.with_name(path.stem + LABELS), text.encode(), mode=FILE)
    return count


# -- in -------------------------------------------------------------------------------------


def read_annotations(content: bytes) -> list[Cells]:
    """What an export says: for each tag of an image its name, without its ending, as ``id``, and
    the ``label``; an image without a tag has an empty one.

    Raises ValueError for a file that is no such export, that declares a document type or entities,
    and for an image on which people have drawn and said nothing of the whole.

    >>> image = '<image id="0" name="000003-scan.png"><tag label="ill"/></image>'
    >>> read_annotations(f"<annotations>{image}</annotations>".encode())
    [{'id': '000003-scan', 'label': 'ill'}]
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is not XML: {error}") from error
    if not reader.is_export:
        raise ValueError("it is no export of CVAT as 'CVAT for images 1.1'")
    return reader.said


class _Reader:
    """Takes the elements of a file as they come."""

    def __init__(self) -> None:
        self.said: list[Cells] = []
        self.is_export = False
        self._depth = 0
        self._image: str | None = None
        self._labels: list[str] = []
        self._drawn: str | None = None

    def refuse(self, *declared: object) -> None:
        raise ValueError("it declares a document type or entities, which no export does")

    def begin(self, element: str, about: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self.is_export = element == "annotations"
        elif self._depth == 2 and element == "image":
            self._image = about.get("name", "")
            self._labels = []
            self._drawn = None
        elif self._image is not None and self._depth == 3:
            if element == "tag":
                self._labels.append(about.get("label", "").strip())
            elif element in SHAPES:
                self._drawn = element

    def end(self, element: str) -> None:
        if self._depth == 2 and self._image is not None:
            self._take_image(self._image)
            self._image = None
        self._depth -= 1

    def _take_image(self, image: str) -> None:
        if not self._labels and self._drawn is not None:
            raise ValueError(
                f"image {image!r} has a {self._drawn} and no tag; labels are tags of a whole image"
            )
        name = Path(image).stem
        for label in _once(self._labels) or [""]:
            self.said.append({"id": name, "label": label})


def _once(labels: Sequence[str]) -> list[str]:
    """Each label once: the same tag given twice says nothing new."""
    return list(dict.fromkeys(labels))
