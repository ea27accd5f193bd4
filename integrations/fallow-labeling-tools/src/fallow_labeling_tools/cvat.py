"""Exchange of images and labels with CVAT (https://docs.cvat.ai) as files.

The export is an archive of images and a list of labels. The import reads "CVAT for images 1.1".

A label is a tag of a whole image. The name of an image contains the row number and the name of the
example, by which it is identified.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import final
from xml.parsers import expat

from fallow.deployment.site.labeling_tools import (
    Cells,
    JsonObject,
    LabelingTasks,
    LabelingTool,
    ShowRow,
)

ARCHIVE = ".zip"
LABELS = ".labels.json"
"""Suffix of the file that lists the labels of an archive."""
ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
OTHERS = re.compile(r"[^A-Za-z0-9_-]+")
MAX_NAME_LENGTH = 60  # characters of an example's name in the name of its image
EPOCH = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # fixed time of files in an archive, so that equal tasks give equal archives
SHAPES = ("box", "polygon", "polyline", "points", "mask", "ellipse", "cuboid", "skeleton")


@final
class CVAT(LabelingTool):
    """Exchange images and tags with CVAT as files."""

    def format_tasks(self, tasks: LabelingTasks) -> dict[str, bytes]:
        """Return an archive of the images, and the labels in the format of CVAT's raw constructor.

        Raises ValueError for examples without images, for regression, and for labels and
        predictions, which an archive cannot have.
        """
        if not tasks.choices:
            raise ValueError("CVAT's tags are classes, and this study asks for numbers")
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for line in tasks.lines:
                _add_image(archive, line, tasks.show)
        labels = [{"name": name, "type": "tag", "attributes": []} for name in tasks.choices]
        text = json.dumps(labels, indent=1, ensure_ascii=False) + "\n"
        return {ARCHIVE: written.getvalue(), LABELS: text.encode()}

    def parse_labels(self, content: bytes) -> list[Cells]:
        """Return the label of each tag in an export as "CVAT for images 1.1"."""
        return read_annotations(content)

    def name_example(self, row: int, name: str) -> str:
        """Return the name of an example's image in CVAT, without its extension.

        >>> CVAT().name_example(3, "scan 3")
        '000003-scan-3'
        """
        plain = OTHERS.sub("-", name).strip("-")[:MAX_NAME_LENGTH]
        return f"{row:06d}-{plain}"


def _add_image(archive: zipfile.ZipFile, line: JsonObject, show: ShowRow) -> None:
    """Add the image of an open labeling task to an archive."""
    if line.get("label") or "guess" in line:
        raise ValueError(
            "CVAT receives the images of open labeling tasks; omit --labels and --guess"
        )
    row = line["row"]
    example = str(line["id"])
    shown = show(row) if isinstance(row, int) else None
    if shown is None or shown.media_type not in ENDINGS:
        raise ValueError(
            f"example {example!r} has no image that CVAT shows; export such labeling tasks as .csv, "
            "or with --tool label-studio"
        )
    name = CVAT().name_example(int(str(row)), example) + ENDINGS[shown.media_type]
    archive.writestr(zipfile.ZipInfo(name, EPOCH), shown.content)


# -- import ---------------------------------------------------------------------------------


def read_annotations(content: bytes) -> list[Cells]:
    """Return the image name (``id``) and ``label`` of each tag in an export.

    The name has no extension, and an image without a tag has an empty label. Raises ValueError for
    a file in another format, for a document type or entity declaration, and for an image with
    shapes but no tag.

    >>> image = '<image id="0" name="000003-scan.png"><tag label="ill"/></image>'
    >>> read_annotations(f"<annotations>{image}</annotations>".encode())
    [{'id': '000003-scan', 'label': 'ill', 'location': 'tag 1'}]
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:  # also an unknown encoding
        raise ValueError(f"it is not XML: {error}") from error
    if not reader.is_export:
        raise ValueError("it is not an export of CVAT in the format 'CVAT for images 1.1'")
    return reader.lines


class _Reader:
    """XML handler that collects the elements of a file."""

    def __init__(self) -> None:
        self.lines: list[Cells] = []
        self.is_export = False
        self._depth = 0
        self._image: str | None = None
        self._labels: list[str] = []
        self._drawn: str | None = None

    def refuse(self, *declared: object) -> None:
        raise ValueError(
            "it declares a document type or entities, which exports do not contain"
        )

    def begin(self, element: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self.is_export = element == "annotations"
        elif self._depth == 2 and element == "image":
            self._image = attributes.get("name", "")
            self._labels = []
            self._drawn = None
        elif self._image is not None and self._depth == 3:
            if element == "tag":
                self._labels.append(attributes.get("label", "").strip())
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
            location = f"tag {len(self.lines) + 1}"
            self.lines.append({"id": name, "label": label, "location": location})


def _once(labels: Sequence[str]) -> list[str]:
    """Return distinct labels, because a repeated tag adds no information."""
    return list(dict.fromkeys(labels))
